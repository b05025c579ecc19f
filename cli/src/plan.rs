//! What a campaign takes: `sendslot plan`. Arithmetic alone; nobody is asked.
//!
//! ```text
//! rate      = headroom × limit, less what only the priority lane may use
//! mail k    goes at k × recipients ÷ rate; later where a cap of an hour or a day holds it
//! booked    at once if that is within the horizon; otherwise it waits in the intake queue until half a horizon before,
//!           in hops of at most 900 s, of which the first is the short one
//! ```
//!
//! It is the plan of an idle stack with one tenant that has mail waiting. Others share the rate by weight.

use clap::Args;
use sendslot_domain::{Lane, Rate, concurrency};
use serde::Serialize;

use crate::{
    error::Error,
    exit::Exit,
    output::Output,
    prices::{self, PerMail, Prices},
    text,
};

const HOUR: f64 = 3_600.0;
const DAY: f64 = 86_400.0;
/// The longest delay of SQS.
const LONGEST_HOP: f64 = 900.0;
/// How long a mail may wait at most, as the stack is deployed; and a message may stay on a queue.
const LONGEST_WAIT: f64 = 14.0 * DAY;
/// Of how many mails an average is taken at most.
const LOOKED_AT: u64 = 100_000;
/// Waits a mail from which on another way is cheaper: a day of them.
const MANY_WAITS: f64 = 96.0;
/// The memory of a `cache.t4g.micro`, less the quarter that `ElastiCache` keeps.
const SMALL_CACHE: f64 = 0.5 * 1_073_741_824.0 * 0.75;
/// What caps lose as they count conservatively: 3 % of an hour's, 1 % of a day's.
const OF_HOUR: f64 = 0.97;
const OF_DAY: f64 = 0.99;

/// What to plan for.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// How many mails.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000_000))]
    pub mails: u64,
    /// What the account may send, recipients a second, such as `14` or `20/h`: `sendslot status` says it.
    #[arg(long, value_name = "L")]
    pub limit: Rate,
    /// The part of it that is booked, as the stack is deployed (`Headroom`).
    #[arg(long, value_name = "PART", default_value = "0.9", value_parser = headroom)]
    pub headroom: Rate,
    /// Recipients of each mail, which is what limits count.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub recipients: u32,
    /// How far ahead mail is booked, in seconds (`HorizonSeconds`).
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=900))]
    pub horizon: u32,
    /// The lane: `priority` or `bulk`.
    #[arg(long, default_value = "bulk")]
    pub lane: Lane,
    /// What only the priority lane may use (`PriorityReserve`), at most half of what is booked.
    #[arg(long, value_name = "RATE", default_value = "2/s")]
    pub reserve: Rate,
    /// Recipients that the account or the tenant may send in any 24 hours.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub daily_quota: Option<u64>,
    /// The same in any 60 minutes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub hourly_cap: Option<u64>,
}

fn headroom(text: &str) -> Result<Rate, String> {
    let part: Rate = text.parse().map_err(|error| format!("{error}"))?;
    if part.is_zero() || part > Rate::ONE {
        return Err("give a part of the limit, such as 0.9".to_owned());
    }
    Ok(part)
}

/// What it takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Mails.
    pub mails: u64,
    /// Recipients of all of them.
    pub recipients: u64,
    /// Recipients a second that this lane may use.
    pub rate_per_second: f64,
    /// From the first to the last mail, in seconds.
    pub drain_seconds: f64,
    /// What holds it: `rate`, `hourly_cap` or `daily_quota`.
    pub held_by: &'static str,
    /// How far ahead mail is booked, in seconds.
    pub horizon_seconds: u32,
    /// Mails that are booked at once; the others wait.
    pub booked_ahead: u64,
    /// How often a mail waits on average, before it is booked.
    pub waits_per_mail: f64,
    /// How often the last one does.
    pub most_waits: u64,
    /// Messages on queues, for one mail.
    pub sqs_messages_per_mail: f64,
    /// Requests to SQS, for one mail.
    pub sqs_requests_per_mail: f64,
    /// Invocations of `send` at once, if each has one mail: the most it may take.
    pub concurrency: u32,
    /// The same with ten mails each.
    pub concurrency_in_tens: u32,
    /// Memory of Redis for marks and traces, in bytes, two weeks long.
    pub redis_bytes: f64,
    /// Dollars.
    pub cost: Cost,
    /// Whether a mail's share of each service was counted, or assumed.
    pub counted: bool,
    /// What to think of before.
    pub notes: Vec<String>,
}

/// Dollars for all mails, at list prices, without what is paid by the month.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The region that the prices are of.
    pub region: String,
    /// The day they are of.
    pub as_of: String,
    /// SES, a recipient.
    pub ses: f64,
    /// SQS.
    pub sqs: f64,
    /// Lambda.
    pub lambda: f64,
    /// Logs and metrics.
    pub cloudwatch: f64,
    /// All of it.
    pub total: f64,
    /// Of the stack itself, without SES, for a million mails.
    pub stack_per_million: f64,
}

/// Says what it takes.
///
/// # Errors
/// When nothing may be sent at that rate, or the result can't be written.
pub fn plan(args: &PlanArgs, out: &mut Output) -> Result<Exit, Error> {
    let broken = |error: serde_json::Error| Error::Other(error.to_string());
    let (prices, per_mail) = (
        prices::prices().map_err(broken)?,
        prices::per_mail().map_err(broken)?,
    );
    let plan = made(args, &prices, &per_mail)?;
    if !out.json() {
        out.say(&shown(&plan, args, &per_mail))?;
    }
    out.value(&plan)?;
    Ok(Exit::Done)
}

/// The plan.
///
/// # Errors
/// When nothing may be sent at that rate.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a plan's figures need no more digits than a double has"
)]
pub fn made(args: &PlanArgs, prices: &Prices, per_mail: &PerMail) -> Result<Plan, Error> {
    let booked = args.limit.times(args.headroom).per_second();
    let reserve = match args.lane {
        Lane::Bulk => args.reserve.per_second().min(booked / 2.0),
        Lane::Priority => 0.0,
    };
    let rate = booked - reserve;
    if rate <= 0.0 {
        return Err(Error::Other("nothing may be sent at this rate\n  do: give a --limit above zero, as `sendslot status` says it".to_owned()));
    }
    let each = f64::from(args.recipients);
    let mails = args.mails as f64;
    let all = mails * each;
    let caps = Caps {
        hour: args.hourly_cap.map(|cap| cap as f64 * OF_HOUR),
        day: args.daily_quota.map(|cap| cap as f64 * OF_DAY),
        rate,
    };
    let drain = caps.at(all - each);
    let horizon = f64::from(args.horizon);
    let waits_per_mail = average_waits(args.mails, each, horizon, &caps);
    let batch = per_mail.reserve_batch.max(1.0);
    // A wait is taken, put back and deleted, and takes reserve once more.
    let sqs = per_mail.sqs_requests + waits_per_mail * 3.0 / batch;
    let grouped = per_mail.sqs_grouped + waits_per_mail * 2.0 / batch;
    let runs = per_mail.lambda_requests + waits_per_mail / batch;
    let seconds = per_mail.lambda_gb_seconds + waits_per_mail * per_mail.reserve_gb_seconds / batch;
    let cost = cost(
        prices,
        all,
        mails,
        [
            sqs * prices.sqs_request + grouped * prices.sqs_fair_request_surcharge,
            runs * prices.lambda_request + seconds * prices.lambda_gb_second,
            per_mail.log_bytes / 1e9 * prices.cloudwatch_logs_gb,
        ],
    );
    let load = |batch| concurrency::Load {
        rate: args.limit,
        batch,
        duration: None,
        reserved: None,
    };
    let mut plan = Plan {
        mails: args.mails,
        recipients: args.mails * u64::from(args.recipients),
        rate_per_second: rate,
        drain_seconds: drain,
        held_by: caps.held_by(all),
        horizon_seconds: args.horizon,
        booked_ahead: args.mails.min(caps.within(horizon, each) as u64),
        waits_per_mail,
        most_waits: waits(drain, horizon) as u64,
        sqs_messages_per_mail: 2.0 + waits_per_mail,
        sqs_requests_per_mail: sqs,
        concurrency: concurrency::wanted(&load(None)),
        concurrency_in_tens: concurrency::wanted(&load(Some(10.0))),
        redis_bytes: mails * per_mail.redis_bytes,
        cost,
        counted: per_mail.counted,
        notes: Vec::new(),
    };
    plan.notes = notes(&plan, args, &caps);
    Ok(plan)
}

fn cost(prices: &Prices, recipients: f64, mails: f64, [sqs, lambda, logs]: [f64; 3]) -> Cost {
    let ses = recipients * prices.ses_mail;
    let stack = sqs + lambda + logs;
    Cost {
        region: prices.region.clone(),
        as_of: prices.as_of.clone(),
        ses,
        sqs: mails * sqs,
        lambda: mails * lambda,
        cloudwatch: mails * logs,
        total: mails.mul_add(stack, ses),
        stack_per_million: stack * 1e6,
    }
}

/// What may go when.
struct Caps {
    hour: Option<f64>,
    day: Option<f64>,
    rate: f64,
}

impl Caps {
    /// When the recipient after so many goes, in seconds after the first: a full window ends where it began an hour or a day before.
    fn at(&self, recipients: f64) -> f64 {
        let (days, left) = Self::whole(self.day, DAY, self.hourly(), recipients);
        let (hours, left) = Self::whole(self.hour, HOUR, self.rate, left);
        days + hours + left / self.rate
    }

    /// How long whole windows take, and what is left after them. A cap that the rate never reaches is none.
    fn whole(cap: Option<f64>, span: f64, rate: f64, recipients: f64) -> (f64, f64) {
        match cap.filter(|cap| *cap < rate * span) {
            Some(cap) => {
                let whole = (recipients / cap).floor();
                (whole * span, recipients - whole * cap)
            }
            None => (0.0, recipients),
        }
    }

    /// Recipients a second over an hour.
    fn hourly(&self) -> f64 {
        self.hour.map_or(self.rate, |cap| self.rate.min(cap / HOUR))
    }

    /// Mails that go within so many seconds.
    fn within(&self, seconds: f64, each: f64) -> f64 {
        let rate = (self.rate * seconds).floor();
        let cap = [self.hour, self.day]
            .into_iter()
            .flatten()
            .fold(rate, f64::min);
        (cap / each).floor().max(1.0)
    }

    fn held_by(&self, recipients: f64) -> &'static str {
        let reached = |cap: Option<f64>, span, rate: f64| {
            cap.is_some_and(|cap| cap < rate * span && recipients > cap)
        };
        if reached(self.day, DAY, self.hourly()) {
            "daily_quota"
        } else if reached(self.hour, HOUR, self.rate) {
            "hourly_cap"
        } else {
            "rate"
        }
    }
}

/// How often a mail waits that goes after so many seconds.
fn waits(at: f64, horizon: f64) -> f64 {
    if at <= horizon {
        0.0
    } else {
        ((at - horizon / 2.0) / LONGEST_HOP).floor() + 1.0
    }
}

/// The same of all mails on average: of each, or of so many among them.
#[expect(
    clippy::cast_precision_loss,
    reason = "a plan's figures need no more digits than a double has"
)]
fn average_waits(mails: u64, each: f64, horizon: f64, caps: &Caps) -> f64 {
    let looked_at = mails.min(LOOKED_AT);
    let step = mails as f64 / looked_at as f64;
    let of = |k: u64| waits(caps.at((k as f64 * step).floor() * each), horizon);
    (0..looked_at).map(of).sum::<f64>() / looked_at as f64
}

fn notes(plan: &Plan, args: &PlanArgs, caps: &Caps) -> Vec<String> {
    let mut notes = Vec::new();
    if plan.drain_seconds > LONGEST_WAIT {
        notes.push("no mail waits longer than 14 days (MaxMessageAge): hand it in in parts, so that each is sent within them".to_owned());
    }
    let least = [caps.hour, caps.day]
        .into_iter()
        .flatten()
        .fold(f64::INFINITY, f64::min);
    if least < f64::from(args.recipients) {
        notes.push(
            "a single mail has more recipients than a cap ever lets go: it is refused (over_cap)"
                .to_owned(),
        );
    }
    if plan.waits_per_mail > MANY_WAITS {
        notes.push("most of it waits for days, in hops of 15 minutes that are paid for: hand it in a day at a time".to_owned());
    }
    if plan.redis_bytes > SMALL_CACHE {
        notes.push("more than a cache.t4g.micro holds: give a larger CacheNodeType, or spread it over more than two weeks".to_owned());
    }
    notes
}

fn shown(plan: &Plan, args: &PlanArgs, per_mail: &PerMail) -> String {
    use std::time::Duration;
    let span =
        |seconds: f64| text::span(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "shown, and a clamping cast"
    )]
    let bytes = text::bytes(plan.redis_bytes as u64);
    let held = match plan.held_by {
        "rate" => String::new(),
        "hourly_cap" => ", held by the hourly cap".to_owned(),
        _ => ", held by the daily quota".to_owned(),
    };
    let Cost {
        region,
        as_of,
        ses,
        sqs,
        lambda,
        cloudwatch,
        total,
        stack_per_million,
    } = &plan.cost;
    let counted = if plan.counted {
        format!(
            "shares of a mail are as counted by `make costs` at {:.0}/s; at slower rates batches are smaller",
            per_mail.rate_per_second
        )
    } else {
        "shares of a mail are assumed: `make costs` counts them".to_owned()
    };
    let rows = [
        (
            "mails",
            format!(
                "{}, {} in all",
                text::count(plan.mails),
                text::several(plan.recipients, "recipient")
            ),
        ),
        (
            "rate",
            format!(
                "{} of the {} lane",
                text::per_second(plan.rate_per_second),
                args.lane
            ),
        ),
        ("drains in", format!("{}{held}", span(plan.drain_seconds))),
        (
            "booked at once",
            format!(
                "{}, which go within the horizon of {} s",
                text::several(plan.booked_ahead, "mail"),
                plan.horizon_seconds
            ),
        ),
        (
            "waits a mail",
            format!(
                "{:.2} on average, {} at most, of 900 s or less each",
                plan.waits_per_mail, plan.most_waits
            ),
        ),
        (
            "SQS a mail",
            format!(
                "{:.2} messages, {:.2} requests",
                plan.sqs_messages_per_mail, plan.sqs_requests_per_mail
            ),
        ),
        (
            "send at once",
            format!(
                "{} invocations with a mail each, {} with ten each",
                plan.concurrency, plan.concurrency_in_tens
            ),
        ),
        ("Redis", format!("{bytes} for two weeks")),
        (
            "cost",
            format!(
                "${total:.2}: SES ${ses:.2}, SQS ${sqs:.2}, Lambda ${lambda:.2}, CloudWatch ${cloudwatch:.2}"
            ),
        ),
        (
            "",
            format!(
                "the stack's part is ${stack_per_million:.2} a million mails; what is paid by the month is in docs/costs.md"
            ),
        ),
        ("", format!("list prices of {region}, {as_of}; {counted}")),
    ];
    let mut lines: Vec<String> = rows
        .iter()
        .map(|(name, value)| format!("{name:<15} {value}").trim_end().to_owned())
        .collect();
    lines.extend(plan.notes.iter().map(|note| format!("note: {note}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        args: PlanArgs,
    }

    fn of(options: &str) -> Plan {
        let args = Only::try_parse_from(std::iter::once("x").chain(options.split(' ')))
            .unwrap()
            .args;
        made(&args, &prices::prices().unwrap(), &per_mail()).unwrap()
    }

    fn per_mail() -> PerMail {
        PerMail {
            counted: true,
            rate_per_second: 100.0,
            sqs_requests: 1.0,
            sqs_grouped: 0.0,
            lambda_requests: 0.5,
            lambda_gb_seconds: 0.1,
            log_bytes: 1000.0,
            redis_calls: 0.3,
            redis_bytes: 1000.0,
            reserve_batch: 10.0,
            reserve_gb_seconds: 0.1,
        }
    }

    fn near(is: f64, should: f64) {
        assert!(
            (is - should).abs() <= should.abs() * 0.002 + 1e-9,
            "{is}, not {should}"
        );
    }

    #[test]
    fn a_million_at_100_a_second() {
        let plan = of("--mails 1000000 --limit 100 --headroom 0.97 --reserve 2/s");
        near(plan.rate_per_second, 95.0);
        near(plan.drain_seconds, 999_999.0 / 95.0);
        assert_eq!((plan.held_by, plan.booked_ahead), ("rate", 5_700));
        // Seen in simulated time: 5.8 hops, and at most one wait beyond.
        assert!(
            (5.8..6.8).contains(&plan.waits_per_mail),
            "{}",
            plan.waits_per_mail
        );
        assert_eq!(plan.most_waits, 12);
        assert_eq!((plan.concurrency, plan.concurrency_in_tens), (156, 16));
        near(plan.cost.ses, 100.0);
        near(plan.redis_bytes, 1e9);
        assert!(plan.notes.iter().any(|note| note.contains("t4g.micro")));
    }

    #[test]
    fn waits_are_counted_in_hops() {
        for (at, hops) in [
            (0.0, 0.0),
            (60.0, 0.0),
            (61.0, 1.0),
            (929.0, 1.0),
            (931.0, 2.0),
            (1829.0, 2.0),
            (1831.0, 3.0),
        ] {
            assert!((waits(at, 60.0) - hops).abs() < 1e-9, "{at} s");
        }
        // A million looked at here and there is as good as each.
        let all = Caps {
            hour: None,
            day: None,
            rate: 90.0,
        };
        let each = average_waits(LOOKED_AT, 10.0, 60.0, &all);
        near(average_waits(LOOKED_AT * 10, 1.0, 60.0, &all), each);
        // Half of them go in the first hours, the others a day later.
        let plan = of("--mails 198000 --limit 100 --lane priority --daily-quota 100000");
        assert!(
            (48.0..54.0).contains(&plan.waits_per_mail),
            "{}",
            plan.waits_per_mail
        );
    }

    #[test]
    fn what_fits_into_the_horizon_never_waits() {
        let plan = of("--mails 500 --limit 14");
        near(plan.rate_per_second, 10.6);
        assert_eq!(
            (plan.waits_per_mail, plan.most_waits, plan.booked_ahead),
            (0.0, 0, 500)
        );
        near(plan.sqs_messages_per_mail, 2.0);
        near(plan.cost.sqs, 500.0 * 0.4e-6);
        near(
            plan.cost.lambda,
            500.0 * (0.5 * 0.2e-6 + 0.1 * 0.000_013_333_4),
        );
    }

    #[test]
    fn recipients_count_not_mails() {
        let plan = of("--mails 100 --limit 10 --recipients 50 --lane priority --headroom 1");
        assert_eq!(plan.recipients, 5_000);
        near(plan.drain_seconds, 4_950.0 / 10.0);
        assert_eq!(plan.booked_ahead, 12);
        near(plan.cost.ses, 0.5);
    }

    #[test]
    fn quotas_make_days_of_it() {
        let plan = of("--mails 250000 --limit 100 --lane priority --daily-quota 100000");
        assert_eq!(plan.held_by, "daily_quota");
        // Two whole windows of 99,000, then 52,000 at 90/s.
        near(plan.drain_seconds, 2.0 * 86_400.0 + 51_999.0 / 90.0);
        let plan = of("--mails 1000 --limit 100 --lane priority --hourly-cap 200");
        assert_eq!(plan.held_by, "hourly_cap");
        near(plan.drain_seconds, 5.0 * 3_600.0 + 29.0 / 90.0);
        let plan = of("--mails 1000 --limit 1 --lane priority --daily-quota 200000");
        assert_eq!(plan.held_by, "rate");
        let plan = of("--mails 100000 --limit 14 --lane priority --hourly-cap 10 --recipients 20");
        assert!(plan.notes.iter().any(|note| note.contains("over_cap")));
        assert!(plan.notes.iter().any(|note| note.contains("14 days")));
    }

    #[test]
    fn no_rate_is_no_plan() {
        let args = Only::try_parse_from(["x", "--mails", "1", "--limit", "0"])
            .unwrap()
            .args;
        assert!(made(&args, &prices::prices().unwrap(), &per_mail()).is_err());
        assert!(
            Only::try_parse_from(["x", "--mails", "1", "--limit", "1", "--headroom", "1.1"])
                .is_err()
        );
    }
}
