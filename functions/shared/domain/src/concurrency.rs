//! How many batches an event source mapping may have worked on at once, by Little's law.
//!
//! What is in a system is what arrives in a second times the seconds that each stays. Here:
//!
//! ```text
//! invocations a second = recipients a second ÷ messages in a batch
//! at once              = invocations a second × seconds that one takes × margin
//! ```
//!
//! 14 recipients/s in batches of one message, of 1.2 s each, keep 14 × 1.2 = 16.8 invocations busy; with the margin of
//! 1.3 that is 21.84, so 22. In batches of ten it is 2.184, so 3.
//!
//! - A message is taken to have one recipient: with more, fewer messages arrive, and the result is high, not low.
//! - Too high costs nothing while nothing waits: it is a ceiling, not a pool. Too low slows the whole account down, and
//!   nothing but a growing queue tells. So all roundings go up, and what isn't known counts as the worst.
//! - Both lanes' mappings call one function and each may have to carry the whole rate alone. They share
//!   that function's reserved concurrency, if it has one, in equal parts: a mapping that asks for more gets throttled
//!   invocations, and throttled messages count as received.

use crate::{Lane, Millis, Rate};

/// The least `MaximumConcurrency` that Lambda takes (AWS Lambda Developer Guide, "Configuring scaling behavior for SQS
/// event source mappings").
pub const LEAST: u32 = 2;

/// The greatest `MaximumConcurrency` that Lambda takes (there, too).
pub const MOST: u32 = 1000;

/// What an invocation of send takes where nothing was measured: its messages wait together for their moments, which lie
/// within the present second, so up to 1 s; and then goes one SES call, 0.2 s with its connection set up.
pub const ASSUMED_DURATION: Millis = Millis(1200);

/// The least that is believed of a measured mean: half a second of waiting within the second, and a call of SES. Less is of
/// batches that sent nothing, while the account was blocked for example, and would leave too few for when it isn't any more.
pub const LEAST_DURATION: Millis = Millis(600);

/// 1.3 as a fraction: traffic is uneven within the minute over which means are taken, and a new environment starts cold.
const MARGIN: (u128, u128) = (13, 10);

/// What one event source mapping has to carry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The most that arrives: the budget's rate, recipients per second.
    pub rate: Rate,
    /// Messages in a batch, as measured: their mean. `None`, below 1 and no number count as 1, the worst.
    pub batch: Option<f64>,
    /// How long an invocation takes, as measured: their mean, [`LEAST_DURATION`] at least. `None` is [`ASSUMED_DURATION`].
    pub duration: Option<Millis>,
    /// The function's reserved concurrency, which all lanes' mappings share; `None` is none.
    pub reserved: Option<u32>,
}

/// The `MaximumConcurrency` that carries the load, [`LEAST`] to [`MOST`]; at most an equal part of what is reserved, as
/// far as Lambda takes that.
#[must_use]
pub fn wanted(load: &Load) -> u32 {
    let Load {
        rate,
        batch,
        duration,
        reserved,
    } = *load;
    let duration = duration.map_or(ASSUMED_DURATION, |measured| measured.max(LEAST_DURATION));
    let duration = u128::from(duration.0);
    // rate [1/s] × duration [ms] × margin ÷ batch [1/1000]: the thousands cancel out.
    let above = u128::from(rate.num()) * duration * MARGIN.0;
    let below = u128::from(rate.den()) * MARGIN.1 * thousandths(batch);
    let needed = u32::try_from(above.div_ceil(below)).unwrap_or(MOST);
    let lanes = u32::try_from(Lane::ALL.len()).unwrap_or(MOST);
    let part = reserved.map_or(MOST, |all| all / lanes);
    needed.min(part).clamp(LEAST, MOST)
}

/// Whether a mapping is worth an update: only when it moves by more than a tenth. Every update makes Lambda set its
/// pollers up anew, and means always vary a little.
#[must_use]
pub const fn moves(current: u32, wanted: u32) -> bool {
    current.abs_diff(wanted) as u64 * 10 > current as u64
}

/// Thousandths of a message in a batch, rounded down; at least one whole message.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what SQS can hand over: at most 10,000 messages"
)]
fn thousandths(batch: Option<f64>) -> u128 {
    let batch = batch.filter(|n| n.is_finite()).unwrap_or(1.0);
    (batch.clamp(1.0, 10_000.0) * 1000.0) as u128
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn load(rate: &str, batch: Option<f64>, ms: Option<u64>, reserved: Option<u32>) -> Load {
        Load {
            rate: rate.parse().unwrap(),
            batch,
            duration: ms.map(Millis),
            reserved,
        }
    }

    #[test]
    fn littles_law_with_a_margin_rounded_up() {
        for (rate, batch, ms, reserved, expected) in [
            ("14", None, None, None, 22),              // 14 × 1.2 × 1.3 = 21.84
            ("14", Some(10.0), None, None, 3),         // 2.184
            ("100", Some(1.0), Some(1000), None, 130), // exactly: not one more
            ("100", Some(2.5), Some(800), None, 42),   // 40 × 0.8 × 1.3 = 41.6
            ("1", None, Some(100), None, LEAST),       // 0.13
            ("20/h", None, None, None, LEAST),
            ("2000", None, None, None, MOST),
            ("50000", None, Some(u64::MAX), None, MOST),
            ("100", None, None, Some(100), 50), // 156, but two lanes share 100
            ("100", None, None, Some(101), 50),
            ("100", None, None, Some(1000), 156),
            ("100", None, None, Some(1), LEAST), // Lambda takes no less
        ] {
            let load = load(rate, batch, ms, reserved);
            assert_eq!(wanted(&load), expected, "{load:?}");
        }
    }

    #[test]
    fn a_batch_that_cant_be_counts_as_one_message() {
        let worst = wanted(&load("14", None, None, None));
        for batch in [0.0, -3.0, 0.4, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(
                wanted(&load("14", Some(batch), None, None)),
                worst,
                "{batch}"
            );
        }
    }

    #[test]
    fn only_more_than_a_tenth_is_a_move() {
        for (current, wanted, expected) in [
            (20, 20, false),
            (20, 22, false), // exactly a tenth
            (20, 23, true),
            (20, 18, false),
            (20, 17, true),
            (2, 3, true),
            (10, 11, false),
            (9, 10, true),
            (1000, 2, true),
        ] {
            assert_eq!(moves(current, wanted), expected, "{current} to {wanted}");
        }
    }

    proptest! {
        /// As many as asked for really keep up: in a second they finish at least what arrives, with the margin.
        #[test]
        fn what_is_wanted_keeps_up(
            rate in 1_u32..100_000, batch in prop::option::of(0.5_f64..200.0), ms in prop::option::of(1_u32..30_000),
        ) {
            let load = Load {
                rate: Rate::new(u64::from(rate), 100).unwrap(),
                batch,
                duration: ms.map(|ms| Millis(u64::from(ms))),
                reserved: None,
            };
            let made = f64::from(wanted(&load));
            let seconds = ms.map_or(1.2, |ms| f64::from(ms.max(600)) / 1000.0);
            let busy = f64::from(rate) / 100.0 / batch.unwrap_or(1.0).max(1.0) * seconds * 1.3;
            prop_assert!((2.0..=1000.0).contains(&made));
            prop_assert!(made >= busy.min(1000.0) - 1e-6, "{made} for {busy}");
            prop_assert!(made <= 2.0 || made <= busy * 1.001 + 1.0, "{made} for {busy}");
        }

        /// More of anything that makes work never asks for less.
        #[test]
        fn more_load_never_wants_less(rate in 1_u64..5000, more in 0_u64..5000, ms in 1_u64..20_000, reserved in prop::option::of(1_u32..3000)) {
            let at = |rate: u64, ms: u64| wanted(&Load {
                rate: Rate::new(rate, 10).unwrap(), batch: None, duration: Some(Millis(ms)), reserved,
            });
            prop_assert!(at(rate + more, ms) >= at(rate, ms));
            prop_assert!(at(rate, ms + more) >= at(rate, ms));
            if let Some(all) = reserved {
                prop_assert!(at(rate, ms) <= (all / 2).max(LEAST));
            }
        }
    }
}
