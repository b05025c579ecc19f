//! What isn't well, the worst first, and the command to run next.

use std::time::Duration;

use sendslot_runtime::control::{LaneStatus, QueueStatus, Status};
use serde::Serialize;

use crate::text::{bytes, count, line, moment, per_second, several, span_ms};

/// A refresh is due each minute: three missed are no accident.
const REFRESH_OLD: Duration = Duration::from_mins(3);
/// All of the rate, in 1024ths.
const WHOLE: u64 = 1_024;
/// More than this part of Redis's memory is too much, percent.
const MEMORY_FULL: u64 = 80;
/// More than this part of the day's quota is nearly all, percent.
const DAY_FULL: u64 = 95;
/// Redrives are proposed at this part of what may be sent now.
const REDRIVE_PART: f64 = 5.0;

/// Something that isn't well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What, for people.
    pub what: String,
    /// What to run next.
    pub next: String,
}

/// What isn't well, the worst first. `again` is how the command is called.
#[must_use]
pub fn problems(status: &Status, again: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut add = |what: String, next: String| found.push(Problem { what, next });
    let redis = &status.redis;
    if !redis.ok {
        let why = redis.error.as_deref().unwrap_or("it doesn't answer");
        let what = format!(
            "Redis can't be used: {}; mail is kept or sent as RedisDownPolicy says",
            line(why)
        );
        add(what, format!("{again} watch"));
        for lane in &status.lanes {
            found.extend(of_lane(lane, &rate(status), again));
        }
        return found;
    }
    let refresh = format!("{again} refresh");
    if status.budget.is_none() {
        let what =
            "there is no budget: nobody knows how fast mail may go, and none goes".to_owned();
        add(what, refresh.clone());
    }
    if let Some(blocked) = &status.blocked {
        let (reason, left) = (line(&blocked.reason), span_ms(blocked.left_ms));
        add(
            format!("nobody may send: {reason}, for {left} yet"),
            "aws sesv2 get-account".to_owned(),
        );
    }
    if let Some(what) = stale(status) {
        add(what, refresh.clone());
    }
    found.extend(of_budget(status, again));
    found.extend(of_tenants(status, again));
    for lane in &status.lanes {
        found.extend(of_lane(lane, &rate(status), again));
    }
    found.extend(of_redis(status, again));
    found
}

/// What a redrive is proposed at: well below what may be sent.
#[must_use]
pub fn rate(status: &Status) -> String {
    let effective = status
        .budget
        .as_ref()
        .map_or(0.0, |budget| budget.effective_rate);
    let part = effective / REDRIVE_PART;
    if part >= 1.0 {
        format!("{}/s", part.floor())
    } else {
        format!("{:.3}/s", part.max(0.001))
    }
}

fn stale(status: &Status) -> Option<String> {
    let Some(last) = &status.last_refresh else {
        return Some("the budget was never refreshed from the account".to_owned());
    };
    let age = status.now_ms.saturating_sub(last.at_ms);
    if Duration::from_millis(age) > REFRESH_OLD {
        return Some(format!(
            "the budget was last refreshed {} ago, and should be each minute",
            span_ms(age)
        ));
    }
    let kept = last.kept.as_deref()?;
    let why = match &last.error {
        Some(error) => format!("{kept}: {}", line(error)),
        None => kept.to_owned(),
    };
    let of = last.taken_ms.map_or_else(
        || "they were never taken".to_owned(),
        |taken| format!("those of {} hold", moment(taken)),
    );
    Some(format!("the account's numbers weren't taken ({why}); {of}"))
}

fn of_budget(status: &Status, again: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut add = |what: String, next: String| found.push(Problem { what, next });
    if let Some(budget) = &status.budget {
        if budget.source != "account"
            && status
                .last_refresh
                .as_ref()
                .is_none_or(|last| last.kept.is_none())
        {
            let what = format!(
                "the budget is from {}, not from the account",
                line(&budget.source)
            );
            add(what, format!("{again} refresh"));
        }
        if budget.factor < WHOLE {
            let percent = budget.factor * 100 / WHOLE;
            let what = format!(
                "the provider refused mail as too much: {percent} % of the rate is used ({}), and it comes back by itself",
                per_second(budget.effective_rate)
            );
            add(what, format!("{again} watch"));
        }
        if let Some(quota) = budget.daily_quota.filter(|quota| *quota > 0)
            && status.sent_24h.saturating_mul(100) >= quota.saturating_mul(DAY_FULL)
        {
            let what = format!(
                "the day's quota is nearly used: {} of {} in 24 hours; what is over it waits",
                count(status.sent_24h),
                count(quota)
            );
            add(what, "aws sesv2 get-account".to_owned());
        }
    }
    if status.refused_10s > 0 {
        let refused = several(status.refused_10s, "recipient");
        add(
            format!("{refused} refused as too many in the last 10 s"),
            format!("{again} watch"),
        );
    }
    found
}

fn of_tenants(status: &Status, again: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    for paused in &status.paused {
        let until = paused.until_ms.map_or_else(
            || "until it is resumed".to_owned(),
            |until| format!("until {}", moment(until)),
        );
        let (tenant, reason) = (&paused.tenant, line(&paused.reason));
        found.push(Problem {
            what: format!(
                "tenant {tenant} is paused since {}, {until}: {reason}",
                moment(paused.since_ms)
            ),
            next: format!(
                "{again} resume {tenant} --rate {}   # once the cause is gone",
                rate(status)
            ),
        });
    }
    for tenant in &status.tenants {
        let parked: u64 = tenant
            .lanes
            .values()
            .map(|lane| lane.parked_uncertain)
            .sum();
        if parked > 0 {
            let (name, rate) = (&tenant.tenant, rate(status));
            let more = if tenant.more_parked { " or more" } else { "" };
            found.push(Problem {
                what: format!(
                    "{}{more} of tenant {name} may have been sent, and nobody knows: parked until somebody decides",
                    several(parked, "mail")
                ),
                next: format!("{again} redrive --from parked --tenant {name} --reason uncertain --resend --rate {rate} --dry-run"),
            });
        }
    }
    found
}

fn of_lane(lane: &LaneStatus, rate: &str, again: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    let name = &lane.lane;
    let held = |queue: &str| lane.queues.get(queue).map_or(0, held);
    let (refused, unsent) = (held("intake_dead"), held("send_dead"));
    if refused + unsent > 0 {
        found.push(Problem {
            what: format!(
                "{} in lane {name}: {} refused when handed in, {} not sent",
                several(refused + unsent, "dead letter"),
                count(refused),
                count(unsent)
            ),
            next: format!("{again} redrive --lane {name} --rate {rate} --dry-run"),
        });
    }
    found
}

fn of_redis(status: &Status, again: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut add = |what: String| {
        found.push(Problem {
            what,
            next: format!("{again} watch"),
        });
    };
    let redis = &status.redis;
    if let Some(eviction) = redis
        .eviction
        .as_deref()
        .filter(|policy| *policy != "noeviction")
    {
        add(format!(
            "Redis may drop bookings when its memory is full: its maxmemory-policy is {}, and must be noeviction",
            line(eviction)
        ));
    }
    if let (Some(used), Some(most)) = (redis.used_memory, redis.max_memory.filter(|most| *most > 0))
        && used.saturating_mul(100) > most.saturating_mul(MEMORY_FULL)
    {
        add(format!(
            "Redis's memory is nearly full: {} of {}",
            bytes(used),
            bytes(most)
        ));
    }
    found
}

/// All messages of a queue, whatever they wait for.
#[must_use]
pub const fn held(queue: &QueueStatus) -> u64 {
    queue.visible + queue.delayed + queue.in_flight
}
