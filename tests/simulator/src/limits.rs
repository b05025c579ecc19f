//! The two limits of an SES account, counted in recipients, as pure functions of the time given.
//!
//! All arithmetic is in integers, so that a message refused at one microsecond and accepted at
//! the next is so on every machine. A refused message takes nothing from any allowance.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::clock::Micros;

const SECOND: Micros = 1_000_000;
const DAY: Micros = 24 * 60 * 60 * SECOND;

/// Nano-recipients in a recipient: the resolution of a [`Rate`].
const NANO: u64 = 1_000_000_000;

/// Recipients per second, from a millionth to a million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "f64")]
pub struct Rate {
    nano: u64,
}

impl From<Rate> for f64 {
    #[expect(clippy::cast_precision_loss, reason = "at most 1e15")]
    fn from(rate: Rate) -> Self {
        rate.nano as f64 / 1e9
    }
}

impl Rate {
    /// 100 recipients per second.
    pub const DEFAULT: Self = Self { nano: 100 * NANO };

    /// A rate, or `None` outside 0.000001..=1000000 recipients per second.
    #[must_use]
    pub fn per_second(recipients: f64) -> Option<Self> {
        if !(1e-6..=1e6).contains(&recipients) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1e3 and 1e15 by the check above"
        )]
        let nano = (recipients * 1e9).round() as u64;
        Some(Self { nano })
    }

    /// Whether so many recipients are more than one second's worth.
    fn is_below(self, recipients: u64) -> bool {
        recipients.saturating_mul(NANO) > self.nano
    }
}

/// How `MaxSendRate` is enforced. SES does not publish its way; these are the two that a sender
/// must be ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// A token bucket of capacity L, refilled at L per second. A message that costs more than L
    /// goes only when the bucket is full, and leaves it in debt.
    Bucket,
    /// Never more than L recipients in any one second `[t, t + 1 s)`. A message that alone costs
    /// more than L goes only when the second before it is empty.
    Window,
}

/// What the account may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// `MaxSendRate`.
    pub rate: Rate,
    /// How the rate is enforced.
    pub model: Model,
    /// `Max24HourSend` in recipients, over a rolling 24 hours; `None` is unlimited.
    pub daily: Option<u64>,
    /// Recipients that others sent in the last 24 hours: they use up the daily quota too.
    pub elsewhere: u64,
}

/// The answer to an offered message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted, and counted.
    Accepted,
    /// Over `MaxSendRate`.
    Throttled,
    /// Over `Max24HourSend`.
    OverQuota,
}

/// The state of both limits. Both rate models are kept at all times, so that a change of model
/// starts from what was really sent.
#[derive(Debug, Clone)]
pub struct Limits {
    quota: Quota,
    bucket: Bucket,
    second: Tally,
    day: Tally,
}

impl Limits {
    /// Limits of an account that has not sent yet.
    #[must_use]
    pub fn new(quota: Quota, now: Micros) -> Self {
        Self {
            quota,
            bucket: Bucket::full(quota.rate, now),
            second: Tally::over(SECOND),
            day: Tally::over(DAY),
        }
    }

    /// Changes the quota. What was sent stays counted; a higher rate fills the bucket from where
    /// it stands, a lower one cuts it.
    pub fn set_quota(&mut self, now: Micros, quota: Quota) {
        self.bucket.refill(now, self.quota.rate);
        self.bucket.level = self.bucket.level.min(capacity(quota.rate));
        self.quota = quota;
    }

    /// Decides on a message to `recipients`, of whom `counted` count against the daily quota, and
    /// takes their allowance if it is accepted.
    pub fn offer(&mut self, now: Micros, recipients: u32, counted: u32) -> Verdict {
        let Quota { rate, model, .. } = self.quota;
        self.bucket.refill(now, rate);
        self.second.expire(now);
        self.day.expire(now);

        let used = self.used();
        let daily = self.quota.daily;
        let over_quota = daily.is_some_and(|most| used.saturating_add(counted.into()) > most);
        if counted > 0 && over_quota {
            return Verdict::OverQuota;
        }
        let fits = match model {
            Model::Bucket => self.bucket.fits(recipients, rate),
            Model::Window => self.second.fits(recipients, rate),
        };
        if !fits {
            return Verdict::Throttled;
        }
        self.bucket.take(recipients);
        self.second.add(now, recipients);
        self.day.add(now, counted);
        Verdict::Accepted
    }

    /// Recipients that count against the daily quota and were sent in the last 24 hours: those
    /// accepted here, and those sent elsewhere.
    pub fn sent_last_24_hours(&mut self, now: Micros) -> u64 {
        self.day.expire(now);
        self.used()
    }

    fn used(&self) -> u64 {
        self.day.sum.saturating_add(self.quota.elsewhere)
    }
}

/// Levels are in units of 10⁻¹⁵ recipients: then a rate in nano-recipients per second is a whole
/// number of units per microsecond.
#[derive(Debug, Clone)]
struct Bucket {
    level: i128,
    at: Micros,
}

const UNITS_PER_RECIPIENT: i128 = 1_000_000_000_000_000;

fn capacity(rate: Rate) -> i128 {
    i128::from(rate.nano) * i128::from(SECOND)
}

impl Bucket {
    fn full(rate: Rate, now: Micros) -> Self {
        Self {
            level: capacity(rate),
            at: now,
        }
    }

    fn refill(&mut self, now: Micros, rate: Rate) {
        let elapsed = now.saturating_sub(self.at);
        let refilled = self.level + i128::from(elapsed) * i128::from(rate.nano);
        self.level = refilled.min(capacity(rate));
        self.at += elapsed;
    }

    fn fits(&self, recipients: u32, rate: Rate) -> bool {
        let needed = i128::from(recipients) * UNITS_PER_RECIPIENT;
        self.level >= needed.min(capacity(rate))
    }

    fn take(&mut self, recipients: u32) {
        self.level -= i128::from(recipients) * UNITS_PER_RECIPIENT;
    }
}

/// What was accepted in the last `span`, exactly.
#[derive(Debug, Clone)]
struct Tally {
    span: Micros,
    entries: VecDeque<(Micros, u32)>,
    sum: u64,
}

impl Tally {
    fn over(span: Micros) -> Self {
        Self {
            span,
            entries: VecDeque::new(),
            sum: 0,
        }
    }

    fn expire(&mut self, now: Micros) {
        while let Some(&(at, recipients)) = self.entries.front()
            && at.saturating_add(self.span) <= now
        {
            self.entries.pop_front();
            self.sum -= u64::from(recipients);
        }
    }

    fn fits(&self, recipients: u32, rate: Rate) -> bool {
        self.sum == 0 || !rate.is_below(self.sum + u64::from(recipients))
    }

    fn add(&mut self, now: Micros, recipients: u32) {
        if recipients > 0 {
            self.entries.push_back((now, recipients));
            self.sum += u64::from(recipients);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Micros = 1_790_000_000_000_000;

    fn limits(model: Model, rate: f64, daily: Option<u64>) -> Limits {
        Limits::new(quota(model, rate, daily), START)
    }

    fn quota(model: Model, rate: f64, daily: Option<u64>) -> Quota {
        Quota {
            rate: Rate::per_second(rate).unwrap(),
            model,
            daily,
            elsewhere: 0,
        }
    }

    /// Offers one recipient at a time until refused, and says how many went.
    fn drain(limits: &mut Limits, now: Micros) -> u32 {
        let mut went = 0;
        while limits.offer(now, 1, 1) == Verdict::Accepted {
            went += 1;
        }
        went
    }

    #[test]
    fn rates_are_bounded_and_print_as_given() {
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e7] {
            assert_eq!(Rate::per_second(wrong), None, "{wrong}");
        }
        for right in [0.000_001, 0.8, 11.2, 100.0, 1e6] {
            assert_eq!(
                Rate::per_second(right).map(f64::from),
                Some(right),
                "{right}"
            );
        }
    }

    #[test]
    fn bucket_refuses_until_exactly_the_refill() {
        let mut limits = limits(Model::Bucket, 10.0, None);
        assert_eq!(drain(&mut limits, START), 10);
        assert_eq!(limits.offer(START + 99_999, 1, 1), Verdict::Throttled);
        assert_eq!(limits.offer(START + 100_000, 1, 1), Verdict::Accepted);
        assert_eq!(limits.offer(START + 100_000, 1, 1), Verdict::Throttled);
    }

    #[test]
    fn bucket_lets_an_oversized_message_go_when_full_and_in_debt() {
        let mut limits = limits(Model::Bucket, 11.0, None);
        assert_eq!(limits.offer(START, 1, 1), Verdict::Accepted);
        assert_eq!(
            limits.offer(START, 50, 50),
            Verdict::Throttled,
            "not full any more"
        );
        let full = START + 90_910;
        assert_eq!(limits.offer(full - 1, 50, 50), Verdict::Throttled);
        assert_eq!(limits.offer(full, 50, 50), Verdict::Accepted);
        // 39 in debt: 40 recipients' worth of time until one may go.
        let one = full + 3_636_364;
        assert_eq!(limits.offer(one - 1, 1, 1), Verdict::Throttled);
        assert_eq!(limits.offer(one, 1, 1), Verdict::Accepted);
    }

    #[test]
    fn a_rate_below_one_still_sends_at_that_rate() {
        let mut limits = limits(Model::Bucket, 0.8, None);
        for message in 0..5 {
            let due = START + message * 1_250_000;
            if message > 0 {
                assert_eq!(limits.offer(due - 1, 1, 1), Verdict::Throttled);
            }
            assert_eq!(limits.offer(due, 1, 1), Verdict::Accepted);
        }
    }

    #[test]
    fn window_frees_what_is_a_second_old() {
        let mut limits = limits(Model::Window, 10.0, None);
        assert_eq!(limits.offer(START, 4, 4), Verdict::Accepted);
        assert_eq!(drain(&mut limits, START + 1), 6);
        assert_eq!(limits.offer(START + SECOND - 1, 1, 1), Verdict::Throttled);
        assert_eq!(limits.offer(START + SECOND, 4, 4), Verdict::Accepted);
        assert_eq!(limits.offer(START + SECOND, 1, 1), Verdict::Throttled);
    }

    #[test]
    fn window_lets_an_oversized_message_go_when_empty() {
        let mut limits = limits(Model::Window, 11.0, None);
        assert_eq!(limits.offer(START, 1, 1), Verdict::Accepted);
        assert_eq!(limits.offer(START + SECOND - 1, 50, 50), Verdict::Throttled);
        assert_eq!(limits.offer(START + SECOND, 50, 50), Verdict::Accepted);
        assert_eq!(
            limits.offer(START + 2 * SECOND - 1, 1, 1),
            Verdict::Throttled
        );
        assert_eq!(limits.offer(START + 2 * SECOND, 1, 1), Verdict::Accepted);
    }

    #[test]
    fn daily_quota_is_a_rolling_day_that_simulator_addresses_escape() {
        let mut limits = limits(Model::Bucket, 1000.0, Some(10));
        assert_eq!(limits.offer(START, 6, 6), Verdict::Accepted);
        assert_eq!(limits.offer(START + SECOND, 5, 5), Verdict::OverQuota);
        assert_eq!(limits.offer(START + SECOND, 4, 4), Verdict::Accepted);
        assert_eq!(limits.offer(START + SECOND, 50, 0), Verdict::Accepted);
        assert_eq!(limits.sent_last_24_hours(START + SECOND), 10);
        assert_eq!(limits.offer(START + DAY - 1, 1, 1), Verdict::OverQuota);
        assert_eq!(limits.offer(START + DAY, 6, 6), Verdict::Accepted);
        assert_eq!(limits.sent_last_24_hours(START + DAY), 10);

        // Also when a cut quota is already overdrawn.
        limits.set_quota(START + DAY, quota(Model::Bucket, 1000.0, Some(5)));
        assert_eq!(limits.offer(START + DAY, 1, 1), Verdict::OverQuota);
        assert_eq!(limits.offer(START + DAY, 1, 0), Verdict::Accepted);
    }

    #[test]
    fn what_others_sent_uses_up_the_day() {
        let mut limits = limits(Model::Bucket, 1000.0, Some(10));
        assert_eq!(limits.offer(START, 4, 4), Verdict::Accepted);
        let shared = Quota {
            elsewhere: 5,
            ..quota(Model::Bucket, 1000.0, Some(10))
        };
        limits.set_quota(START, shared);
        assert_eq!(limits.sent_last_24_hours(START), 9);
        assert_eq!(limits.offer(START, 2, 2), Verdict::OverQuota);
        assert_eq!(limits.offer(START, 1, 1), Verdict::Accepted);
        assert_eq!(limits.sent_last_24_hours(START + DAY), 5);
        let most = Quota {
            elsewhere: u64::MAX,
            ..shared
        };
        limits.set_quota(START, most);
        assert_eq!(limits.offer(START, 1, 1), Verdict::OverQuota);
    }

    #[test]
    fn over_quota_takes_nothing_from_the_rate() {
        let mut limits = limits(Model::Bucket, 10.0, Some(0));
        assert_eq!(limits.offer(START, 10, 10), Verdict::OverQuota);
        limits.set_quota(START, quota(Model::Bucket, 10.0, None));
        assert_eq!(limits.offer(START, 10, 10), Verdict::Accepted);
    }

    #[test]
    fn a_new_rate_keeps_the_level_and_cuts_it_to_the_new_capacity() {
        let mut limits = limits(Model::Bucket, 10.0, None);
        limits.set_quota(START, quota(Model::Bucket, 100.0, None));
        assert_eq!(drain(&mut limits, START), 10, "a raise is no gift");
        limits.set_quota(START + SECOND, quota(Model::Bucket, 5.0, None));
        assert_eq!(drain(&mut limits, START + SECOND), 5);
    }

    #[test]
    fn a_new_model_knows_what_was_sent() {
        let mut limits = limits(Model::Bucket, 10.0, None);
        assert_eq!(drain(&mut limits, START), 10);
        limits.set_quota(START, quota(Model::Window, 10.0, None));
        assert_eq!(limits.offer(START + SECOND - 1, 1, 1), Verdict::Throttled);
        assert_eq!(drain(&mut limits, START + SECOND), 10);
        limits.set_quota(START + SECOND, quota(Model::Bucket, 10.0, None));
        assert_eq!(limits.offer(START + SECOND, 1, 1), Verdict::Throttled);
    }

    #[test]
    fn time_that_stands_or_goes_back_gives_nothing() {
        for model in [Model::Bucket, Model::Window] {
            let mut limits = limits(model, 10.0, None);
            assert_eq!(drain(&mut limits, START), 10);
            assert_eq!(limits.offer(START - DAY, 1, 1), Verdict::Throttled);
            assert_eq!(limits.offer(START, 1, 1), Verdict::Throttled);
        }
    }

    /// Offers with gaps that make both verdicts common at rates around 20/s.
    fn offers() -> impl Strategy<Value = Vec<(Micros, u32)>> {
        let gap = prop_oneof![
            Just(0),
            1..50_000_u64,
            40_000..400_000_u64,
            Just(SECOND),
            900_000..3_000_000_u64
        ];
        let cost = prop_oneof![4 => 1..4_u32, 1 => 1..=50_u32];
        prop::collection::vec((gap, cost), 1..200)
    }

    fn rates() -> impl Strategy<Value = f64> {
        prop_oneof![
            (1..=40_u32).prop_map(f64::from),
            (1..=4000_u32).prop_map(|hundredths| f64::from(hundredths) / 100.0)
        ]
    }

    /// Runs the offers; gives each with its time and verdict.
    fn run(limits: &mut Limits, offers: &[(Micros, u32)]) -> Vec<(Micros, u32, Verdict)> {
        let mut now = START;
        let mut played = Vec::new();
        for &(gap, cost) in offers {
            now += gap;
            played.push((now, cost, limits.offer(now, cost, cost)));
        }
        played
    }

    fn accepted(played: &[(Micros, u32, Verdict)]) -> Vec<(Micros, u32)> {
        let kept = played.iter().filter(|offer| offer.2 == Verdict::Accepted);
        kept.map(|&(at, cost, _)| (at, cost)).collect()
    }

    fn recipients(messages: &[(Micros, u32)]) -> i128 {
        messages.iter().map(|&(_, cost)| i128::from(cost)).sum()
    }

    /// L·t in units of 10⁻¹⁵ recipients.
    fn earned(rate: Rate, elapsed: Micros) -> i128 {
        i128::from(rate.nano) * i128::from(elapsed)
    }

    proptest! {
        /// From the definition, over the record alone: a message fits if every interval that ends
        /// with it holds at most L + L·t; an oversized one if every such interval is paid back.
        #[test]
        fn bucket_agrees_with_its_record(rate in rates(), offers in offers()) {
            let mut limits = limits(Model::Bucket, rate, None);
            let rate = limits.quota.rate;
            let mut sent: Vec<(Micros, u32)> = Vec::new();
            for (now, cost, verdict) in run(&mut limits, &offers) {
                let needed = (i128::from(cost) * UNITS_PER_RECIPIENT).min(capacity(rate));
                let fits = (0..sent.len()).all(|first| {
                    recipients(&sent[first..]) * UNITS_PER_RECIPIENT + needed
                        <= capacity(rate) + earned(rate, now - sent[first].0)
                });
                prop_assert_eq!(verdict == Verdict::Accepted, fits, "{} at {}", cost, now - START);
                if fits {
                    sent.push((now, cost));
                }
            }
        }

        /// No interval holds more than L + L·t, save for what its last message alone is over L.
        #[test]
        fn bucket_never_exceeds_its_line(rate in rates(), offers in offers()) {
            let mut limits = limits(Model::Bucket, rate, None);
            let rate = limits.quota.rate;
            let sent = accepted(&run(&mut limits, &offers));
            for first in 0..sent.len() {
                for last in first..sent.len() {
                    let (ended, cost) = sent[last];
                    let over = i128::from(cost) * UNITS_PER_RECIPIENT - capacity(rate);
                    let line = capacity(rate) + earned(rate, ended - sent[first].0) + over.max(0);
                    prop_assert!(recipients(&sent[first..=last]) * UNITS_PER_RECIPIENT <= line);
                }
            }
        }

        /// Refused exactly when the last second, counted afresh from the record, has no room.
        #[test]
        fn window_agrees_with_its_record(rate in rates(), offers in offers()) {
            let mut limits = limits(Model::Window, rate, None);
            let mut sent: Vec<(Micros, u32)> = Vec::new();
            for (now, cost, verdict) in run(&mut limits, &offers) {
                let recent: Vec<_> =
                    sent.iter().copied().filter(|&(at, _)| at + SECOND > now).collect();
                let total = recipients(&recent) + i128::from(cost);
                let room = total * UNITS_PER_RECIPIENT <= capacity(limits.quota.rate);
                let fits = room || recent.is_empty();
                prop_assert_eq!(verdict == Verdict::Accepted, fits, "{} at {}", cost, now - START);
                if fits {
                    sent.push((now, cost));
                }
            }
        }

        /// No sliding second holds more than L, save a single message that alone costs more.
        #[test]
        fn window_never_exceeds_its_rate(rate in rates(), offers in offers()) {
            let mut limits = limits(Model::Window, rate, None);
            let sent = accepted(&run(&mut limits, &offers));
            for (first, &(start, _)) in sent.iter().enumerate() {
                let rest = &sent[first..];
                let second = &rest[..rest.partition_point(|&(at, _)| at < start + SECOND)];
                prop_assert!(
                    second.len() == 1
                        || recipients(second) * UNITS_PER_RECIPIENT <= capacity(limits.quota.rate)
                );
            }
        }

        /// The rolling day, counted afresh, over offers hours apart.
        #[test]
        fn day_agrees_with_its_record(daily in 1..200_u64, offers in offers()) {
            let mut limits = limits(Model::Bucket, 1e6, Some(daily));
            let hours: Vec<_> = offers.iter().map(|&(gap, cost)| (gap * 10_000, cost)).collect();
            let mut sent: Vec<(Micros, u32)> = Vec::new();
            for (now, cost, verdict) in run(&mut limits, &hours) {
                let recent: Vec<_> =
                    sent.iter().copied().filter(|&(at, _)| at + DAY > now).collect();
                let fits = recipients(&recent) + i128::from(cost) <= i128::from(daily);
                let expected = if fits { Verdict::Accepted } else { Verdict::OverQuota };
                prop_assert_eq!(verdict, expected);
                if fits {
                    sent.push((now, cost));
                }
            }
        }
    }
}
