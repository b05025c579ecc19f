//! What the provider says the account may send, and whether to believe it.
//!
//! Once a minute `GetAccount` is asked, and the budget follows its answer. A wrong answer that is believed stops
//! everybody's mail or floods the account, so:
//! - **A rise, and any fall to a tenth or more, is taken at once.** 50/s to 5/s is taken.
//! - **A fall below a tenth is doubted**, of the rate or of the day's quota, until it is said [`BELIEVED`] times in a row in the same
//!   numbers. It may be true: an account that is put back into the sandbox has 1/s and 200 a day. No answer in between is no
//!   contradiction; any other answer is.
//! - **No answer, a part of one, nothing or nonsense** keeps the last numbers; where there are none, the ones given at deploy.
//! - **An account that may not send** keeps its numbers, and the decision says that nobody may send: what such an answer
//!   says of rates is not what will hold afterwards.
//!
//! What is known are always the provider's own numbers. Upper bounds given at deploy are laid over them afterwards, by
//! [`bounded`] and [`bounded_quota`], so that a raised bound holds at once.

use crate::{Rate, window::Caps};

/// So many times in a row an answer below a tenth must be said to be taken.
pub const BELIEVED: u32 = 3;

/// An account is below a tenth if so many times its numbers are less than the last.
const TENTH: u64 = 10;

/// What `GetAccount` answered; `None` where it left something out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// Recipients per second.
    pub max_send_rate: Option<f64>,
    /// Recipients in any 24 hours; −1 is without limit.
    pub max_24_hour_send: Option<f64>,
    /// Recipients in the last 24 hours.
    pub sent_last_24_hours: Option<f64>,
    /// Whether sending is switched on for the account in this Region.
    pub sending_enabled: Option<bool>,
    /// What the provider thinks of it.
    pub enforcement: Option<Enforcement>,
    /// Whether it may send to anybody, not only to verified addresses. Nothing is decided by it: the numbers say it.
    pub production: Option<bool>,
}

impl Account {
    /// Recipients of the last 24 hours, whole; `None` if that wasn't said or can't be.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be from 0 to 2^53"
    )]
    pub fn sent(&self) -> Option<u64> {
        let sent = self.sent_last_24_hours?;
        (0.0..=9_007_199_254_740_992.0)
            .contains(&sent)
            .then_some(sent as u64)
    }

    /// Whether it may send, as far as it says so.
    #[must_use]
    pub fn sending(&self) -> Sending {
        match (self.enforcement, self.sending_enabled) {
            (Some(Enforcement::Shutdown), _) => Sending::Blocked(Block::Shutdown),
            (_, Some(false)) => Sending::Blocked(Block::Disabled),
            (_, Some(true)) => Sending::Allowed,
            (_, None) => Sending::Unknown,
        }
    }
}

/// What the provider thinks of an account: SES's `EnforcementStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// Nothing is wrong.
    Healthy,
    /// Something is, and it may still send.
    Probation,
    /// It may not send.
    Shutdown,
    /// A word that isn't known yet. It doesn't stop anybody.
    Other,
}

impl Enforcement {
    /// By the provider's word for it.
    #[must_use]
    pub fn named(word: &str) -> Self {
        match word {
            "HEALTHY" => Self::Healthy,
            "PROBATION" => Self::Probation,
            "SHUTDOWN" => Self::Shutdown,
            _ => Self::Other,
        }
    }
}

/// Whether the account may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// It may.
    Allowed,
    /// Nobody may send.
    Blocked(Block),
    /// It wasn't said. An earlier block neither ends nor begins by that.
    Unknown,
}

/// Why nobody may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// Sending is switched off in this Region.
    Disabled,
    /// The provider shut the account down.
    Shutdown,
}

impl Block {
    /// For logs and metrics.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Disabled => "sending_disabled",
            Self::Shutdown => "shutdown",
        }
    }
}

/// What is known of an account from its answers so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Recipients per second.
    pub limit: Rate,
    /// Recipients in any 24 hours; `None` is without limit.
    pub daily_quota: Option<u64>,
    /// The answer that isn't believed yet.
    pub doubtful: Option<Doubtful>,
}

/// An answer below a tenth of what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubtful {
    /// Recipients per second.
    pub limit: Rate,
    /// Recipients in any 24 hours; `None` is without limit.
    pub daily_quota: Option<u64>,
    /// How often it was said in a row.
    pub times: u32,
}

/// Why the last numbers stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// There was no answer.
    Failed,
    /// The rate or the quota wasn't said.
    Missing,
    /// The rate or the quota is nothing.
    Zero,
    /// The rate or the quota is no number, below zero, or more than can be.
    Absurd,
    /// The rate or the quota is below a tenth of the last, and that wasn't said often enough yet.
    BelowTenth,
    /// The account may not send.
    Blocked,
}

impl Kept {
    /// For logs, metrics and the refresh's answer.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Missing => "missing",
            Self::Zero => "zero",
            Self::Absurd => "absurd",
            Self::BelowTenth => "below_tenth",
            Self::Blocked => "blocked",
        }
    }
}

/// What to do with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What is known from now on, to be kept for the next answer; `None` if no answer was ever good: then what was given at
    /// deploy holds.
    pub known: Option<Known>,
    /// Why the numbers aren't the answer's; `None` if they are.
    pub kept: Option<Kept>,
    /// Whether the account may send.
    pub sending: Sending,
}

impl Decision {
    /// Why nobody may send, if so.
    #[must_use]
    pub const fn blocked(&self) -> Option<&'static str> {
        match self.sending {
            Sending::Blocked(block) => Some(block.code()),
            Sending::Allowed | Sending::Unknown => None,
        }
    }
}

/// Judges an answer by what is known; `None` for `seen` is that there was no answer.
#[must_use]
pub fn judge(known: Option<&Known>, seen: Option<&Account>) -> Decision {
    let Some(seen) = seen else {
        return Decision {
            known: known.copied(),
            kept: Some(Kept::Failed),
            sending: Sending::Unknown,
        };
    };
    let sending = seen.sending();
    let (known, kept) = match (sending, numbers(seen)) {
        (Sending::Blocked(_), _) => (known.copied(), Some(Kept::Blocked)),
        (_, Err(kept)) => {
            let undoubted = known.map(|known| Known {
                doubtful: None,
                ..*known
            });
            (undoubted, Some(kept))
        }
        (_, Ok((limit, daily_quota))) => weighed(known, limit, daily_quota),
    };
    Decision {
        known,
        kept,
        sending,
    }
}

/// The lower of the account's limit and the most that was given at deploy.
#[must_use]
pub fn bounded(limit: Rate, most: Option<Rate>) -> Rate {
    most.map_or(limit, |most| limit.min(most))
}

/// The lower of the account's daily quota and the most that was given at deploy; `None` is without limit.
#[must_use]
pub fn bounded_quota(daily_quota: Option<u64>, most: Option<u64>) -> Option<u64> {
    daily_quota.into_iter().chain(most).min()
}

/// Numbers that can be, against the last.
fn weighed(
    known: Option<&Known>,
    limit: Rate,
    daily_quota: Option<u64>,
) -> (Option<Known>, Option<Kept>) {
    let taken = Known {
        limit,
        daily_quota,
        doubtful: None,
    };
    let Some(known) = known.filter(|known| below_tenth(known, limit, daily_quota)) else {
        return (Some(taken), None);
    };
    let said = known
        .doubtful
        .filter(|doubtful| (doubtful.limit, doubtful.daily_quota) == (limit, daily_quota))
        .map_or(0, |doubtful| doubtful.times);
    let times = said.saturating_add(1);
    if times >= BELIEVED {
        return (Some(taken), None);
    }
    let doubtful = Some(Doubtful {
        limit,
        daily_quota,
        times,
    });
    (Some(Known { doubtful, ..*known }), Some(Kept::BelowTenth))
}

/// Whether either is strictly below a tenth of the last. Any quota is, after none.
fn below_tenth(known: &Known, limit: Rate, daily_quota: Option<u64>) -> bool {
    let times = |rate: Rate, other: Rate| u128::from(rate.num()) * u128::from(other.den());
    let rate = times(limit, known.limit) * u128::from(TENTH) < times(known.limit, limit);
    let quota = match (daily_quota, known.daily_quota) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(now), Some(last)) => now.saturating_mul(TENTH) < last,
    };
    rate || quota
}

/// The rate, rounded down to three decimals, and the day's quota, rounded down.
fn numbers(seen: &Account) -> Result<(Rate, Option<u64>), Kept> {
    let (Some(rate), Some(quota)) = (seen.max_send_rate, seen.max_24_hour_send) else {
        return Err(Kept::Missing);
    };
    Ok((limit(rate)?, daily_quota(quota)?))
}

/// −1 and no other negative number is without limit; above [`Caps::MAX`] is more than can be sent.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "checked to be from 0 to Caps::MAX, which is below 2^53"
)]
fn daily_quota(quota: f64) -> Result<Option<u64>, Kept> {
    const UNLIMITED: f64 = -1.0;
    if (quota - UNLIMITED).abs() < f64::EPSILON {
        return Ok(None);
    }
    if !(0.0..=Caps::MAX as f64).contains(&quota) {
        return Err(Kept::Absurd);
    }
    match quota as u64 {
        0 => Err(Kept::Zero),
        whole => Ok(Some(whole)),
    }
}

/// By the decimals that the number prints with: 1.001 × 1000 as a floating-point number is below 1001.
fn limit(rate: f64) -> Result<Rate, Kept> {
    if !rate.is_finite() || rate < 0.0 {
        return Err(Kept::Absurd);
    }
    let text = rate.abs().to_string(); // without an exponent, and −0 without its sign
    let end = text
        .find('.')
        .map_or(text.len(), |at| text.len().min(at + 4));
    let limit: Rate = text
        .get(..end)
        .and_then(|cut| cut.parse().ok())
        .ok_or(Kept::Absurd)?;
    if limit.is_zero() {
        return Err(Kept::Zero);
    }
    Ok(limit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    fn known(limit: &str, daily_quota: Option<u64>) -> Known {
        Known {
            limit: rate(limit),
            daily_quota,
            doubtful: None,
        }
    }

    fn account(max_send_rate: f64, max_24_hour_send: f64) -> Account {
        Account {
            max_send_rate: Some(max_send_rate),
            max_24_hour_send: Some(max_24_hour_send),
            sent_last_24_hours: Some(0.0),
            sending_enabled: Some(true),
            enforcement: Some(Enforcement::Healthy),
            production: Some(true),
        }
    }

    /// Answers one after another (`None` is none): the reason of each, and what is known at the end.
    fn after(first: Option<Known>, answers: &[Option<Account>]) -> (Vec<&str>, Option<Known>) {
        let mut known = first;
        let reasons = answers.iter().map(|answer| {
            let decision = judge(known.as_ref(), answer.as_ref());
            known = decision.known;
            decision.kept.map_or("", Kept::code)
        });
        (reasons.collect(), known)
    }

    #[test]
    fn rises_and_falls_to_a_tenth_are_taken_at_once() {
        for (last, last_quota, seen, seen_quota, quota) in [
            ("14", Some(50_000), 14.0, 50_000.0, Some(50_000)),
            ("1", Some(200), 50_000.0, 4e9, Some(4_000_000_000)),
            ("50", Some(50_000), 5.0, 5000.9, Some(5000)),
            ("50", Some(50_000), 50.0, -1.0, None),
            ("0.1", Some(10), 0.01, 1.0, Some(1)),
        ] {
            let decision = judge(
                Some(&known(last, last_quota)),
                Some(&account(seen, seen_quota)),
            );
            assert_eq!(decision.kept, None);
            assert_eq!(decision.known, Some(known(&seen.to_string(), quota)));
            assert_eq!(decision.sending, Sending::Allowed);
        }
    }

    #[test]
    fn below_a_tenth_is_taken_when_it_was_said_three_times_in_a_row() {
        let last = known("50", Some(50_000));
        let sandbox = Some(account(1.0, 200.0));
        let none = None::<Account>;
        let good = Some(account(50.0, 50_000.0));
        let other = Some(account(2.0, 200.0));
        let doubt = "below_tenth";
        for (answers, reasons, limit) in [
            (vec![&sandbox], vec![doubt], "50"),
            (vec![&sandbox, &sandbox], vec![doubt, doubt], "50"),
            (
                vec![&sandbox, &sandbox, &sandbox],
                vec![doubt, doubt, ""],
                "1",
            ),
            // No answer is no contradiction …
            (
                vec![&sandbox, &none, &sandbox, &none, &sandbox],
                vec![doubt, "failed", doubt, "failed", ""],
                "1",
            ),
            // … but another is.
            (
                vec![&sandbox, &sandbox, &good, &sandbox, &sandbox],
                vec![doubt, doubt, "", doubt, doubt],
                "50",
            ),
            (
                vec![&sandbox, &sandbox, &other, &sandbox],
                vec![doubt, doubt, doubt, doubt],
                "50",
            ),
        ] {
            let answers: Vec<_> = answers.into_iter().cloned().collect();
            let (found, known) = after(Some(last), &answers);
            assert_eq!(found, reasons);
            assert_eq!(known.unwrap().limit, rate(limit), "{reasons:?}");
        }
    }

    #[test]
    fn the_tenth_is_strict_and_holds_for_the_quota_as_well() {
        for (seen, quota) in [
            (4.999, 50_000.0),
            (50.0, 4999.0),
            (60.0, 4999.0), // a rise of one doesn't carry the other
        ] {
            let decision = judge(
                Some(&known("50", Some(50_000))),
                Some(&account(seen, quota)),
            );
            assert_eq!(decision.kept, Some(Kept::BelowTenth), "{seen} {quota}");
        }
        let unlimited = judge(Some(&known("50", None)), Some(&account(50.0, 1e9)));
        assert_eq!(unlimited.kept, Some(Kept::BelowTenth));
    }

    #[test]
    fn nothing_and_nonsense_keep_the_last_numbers() {
        let with = |rate, quota| Account {
            max_send_rate: rate,
            max_24_hour_send: quota,
            ..account(0.0, 0.0)
        };
        let doubted = Known {
            doubtful: Some(Doubtful {
                limit: rate("1"),
                daily_quota: Some(200),
                times: 2,
            }),
            ..known("14", Some(50_000))
        };
        for (seen, reason) in [
            (with(None, Some(50_000.0)), "missing"),
            (with(Some(14.0), None), "missing"),
            (with(None, None), "missing"),
            (with(Some(0.0), Some(50_000.0)), "zero"),
            (with(Some(-0.0), Some(50_000.0)), "zero"),
            (with(Some(0.000_9), Some(50_000.0)), "zero"),
            (with(Some(14.0), Some(0.0)), "zero"),
            (with(Some(14.0), Some(0.5)), "zero"),
            (with(Some(f64::NAN), Some(50_000.0)), "absurd"),
            (with(Some(f64::INFINITY), Some(50_000.0)), "absurd"),
            (with(Some(-14.0), Some(50_000.0)), "absurd"),
            (with(Some(50_001.0), Some(50_000.0)), "absurd"),
            (with(Some(1e300), Some(50_000.0)), "absurd"),
            (with(Some(14.0), Some(f64::NAN)), "absurd"),
            (with(Some(14.0), Some(f64::INFINITY)), "absurd"),
            (with(Some(14.0), Some(-2.0)), "absurd"),
            (with(Some(14.0), Some(4_320_000_001.0)), "absurd"),
        ] {
            let decision = judge(Some(&doubted), Some(&seen));
            assert_eq!(decision.kept.map(Kept::code), Some(reason), "{seen:?}");
            // It is another answer: the doubtful one wasn't said three times in a row.
            assert_eq!(decision.known, Some(known("14", Some(50_000))), "{seen:?}");
            assert_eq!(judge(None, Some(&seen)).known, None);
        }
        assert_eq!(judge(Some(&doubted), None).known, Some(doubted));
        assert_eq!(judge(None, None).known, None);
        assert_eq!(judge(None, None).sending, Sending::Unknown);
    }

    #[test]
    fn the_first_good_answer_is_taken_whatever_it_is() {
        let decision = judge(None, Some(&account(1.0, 200.0)));
        assert_eq!(decision.known, Some(known("1", Some(200))));
        assert_eq!(decision.kept, None);
    }

    #[test]
    fn an_account_that_may_not_send_blocks_and_keeps_its_numbers() {
        use Enforcement::{Healthy, Other, Probation, Shutdown};
        let last = known("14", Some(50_000));
        let seen = |enabled, enforcement| Account {
            sending_enabled: enabled,
            enforcement,
            ..account(28.0, 100_000.0)
        };
        for (enabled, enforcement, blocked, sending) in [
            (Some(false), Some(Healthy), Some("sending_disabled"), None),
            (Some(false), None, Some("sending_disabled"), None),
            (Some(false), Some(Shutdown), Some("shutdown"), None),
            (Some(true), Some(Shutdown), Some("shutdown"), None),
            (None, Some(Shutdown), Some("shutdown"), None),
            (Some(true), Some(Probation), None, Some(Sending::Allowed)),
            (Some(true), Some(Other), None, Some(Sending::Allowed)),
            (Some(true), None, None, Some(Sending::Allowed)),
            (None, Some(Healthy), None, Some(Sending::Unknown)),
            (None, None, None, Some(Sending::Unknown)),
        ] {
            let decision = judge(Some(&last), Some(&seen(enabled, enforcement)));
            assert_eq!(decision.blocked(), blocked, "{enabled:?} {enforcement:?}");
            if let Some(sending) = sending {
                assert_eq!(decision.sending, sending);
                assert_eq!(decision.known, Some(known("28", Some(100_000))));
            } else {
                assert_eq!(decision.kept.map(Kept::code), Some("blocked"));
                assert_eq!(decision.known, Some(last));
            }
        }
        assert_eq!(Enforcement::named("SHUTDOWN"), Shutdown);
        assert_eq!(Enforcement::named("shut"), Other);
    }

    #[test]
    fn deploy_time_bounds_only_lower() {
        assert_eq!(bounded(rate("14"), None), rate("14"));
        assert_eq!(bounded(rate("14"), Some(rate("10"))), rate("10"));
        assert_eq!(bounded(rate("14"), Some(rate("20"))), rate("14"));
        assert_eq!(bounded_quota(None, None), None);
        assert_eq!(bounded_quota(None, Some(7)), Some(7));
        assert_eq!(bounded_quota(Some(5), None), Some(5));
        assert_eq!(bounded_quota(Some(5), Some(7)), Some(5));
    }

    #[test]
    fn what_was_sent_is_whole_or_not_known() {
        for (said, sent) in [
            (None, None),
            (Some(0.0), Some(0)),
            (Some(12.9), Some(12)),
            (Some(-1.0), None),
            (Some(f64::NAN), None),
            (Some(f64::INFINITY), None),
        ] {
            let account = Account {
                sent_last_24_hours: said,
                ..Account::default()
            };
            assert_eq!(account.sent(), sent, "{said:?}");
        }
    }

    proptest! {
        /// A rate of so many thousandths is read exactly, and what is below the thousandth is cut off.
        #[test]
        fn rates_are_rounded_down_to_three_decimals(milli in 1_u64..50_000_000, rest in 0_u64..1000) {
            let text = format!("{}.{:03}", milli / 1000, milli % 1000);
            let expected = Rate::new(milli, 1000);
            prop_assume!(expected.is_ok());
            let finer: f64 = format!("{text}{rest:03}").parse().unwrap();
            prop_assert_eq!(limit(finer), expected.clone().map_err(|_| Kept::Absurd));
            prop_assert_eq!(limit(text.parse().unwrap()), expected.map_err(|_| Kept::Absurd));
        }

        /// No single answer whatever cuts the budget below a tenth, stops it, or makes it more than what was said.
        #[test]
        fn no_single_answer_cuts_the_budget_below_a_tenth(
            milli in 1_u64..50_000_000, quota in prop::option::of(1_u64..Caps::MAX),
            seen_rate in prop::option::of(prop::num::f64::ANY), seen_quota in prop::option::of(prop::num::f64::ANY),
            enabled in any::<Option<bool>>(),
        ) {
            let last = Known { limit: Rate::new(milli, 1000).unwrap(), daily_quota: quota, doubtful: None };
            let seen = Account {
                max_send_rate: seen_rate, max_24_hour_send: seen_quota, sending_enabled: enabled, ..Account::default()
            };
            let now = judge(Some(&last), Some(&seen)).known.unwrap();
            prop_assert!(now.limit.per_second() * 10.0 >= last.limit.per_second() * (1.0 - 1e-9));
            prop_assert!(now.limit == last.limit || now.limit.per_second() <= seen_rate.unwrap());
            prop_assert!(now.daily_quota.is_none_or(|now| now * 10 >= last.daily_quota.unwrap_or(u64::MAX) || now == last.daily_quota.unwrap_or(0)));
        }
    }
}
