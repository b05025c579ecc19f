//! The rate that may be used after the provider has refused sends as too many: cut at once, measured once,
//! raised slowly.
//!
//! The provider doesn't say what it allows now; it shows it, by what it accepts. So:
//! - **Cut.** A refusal halves the rate: what workers hold already goes on for up to a second, and nothing more may
//!   come on top. What was granted within [`SETTLED`] of a cut or its measure says nothing about the new rate and cuts no more.
//! - **Measure.** [`MEASURED_AFTER`] the cut, the rate becomes 0.95 of what the provider has shown to accept: what it accepted in
//!   the second after the cut, or the rate at which it did from the first refusal to a later one (the last, or any with [`ENOUGH`] between:
//!   the last may lie where hardly anything was offered any more), whichever is more. Few refusals
//!   (below 5 %) are a burst, not a limit: then it is 0.9 of what it was at least. It is never more than it was.
//! - **Climb.** After [`PLATEAU`] the rate rises by [`STEP`] ÷ 1024 of the budget's a second. Additive, since each probe
//!   above the limit is paid with throttled mail; the plateau, since the account's real limit is asked for every minute.
//!
//! The guard and new bookings go by it. What was booked under a higher rate is caught by the guard and rebooked behind it.

use std::collections::BTreeMap;

use crate::{Millis, Moment, budget::FACTOR_ONE, guard::Guard};

/// What was granted so soon after a cut is no reason for another.
pub const SETTLED: Millis = Millis(2000);
/// So long after a cut it is known what became of the second that followed it.
pub const MEASURED_AFTER: Millis = Millis(1300);
/// If the guard was looked at later than this after a cut, it has forgotten what came of it.
const MEASURED_UNTIL: Millis = Millis(2000);
/// So many recipients tell a rate well enough.
const ENOUGH: u64 = 40;
/// How long a rate stays after a cut.
pub const PLATEAU: Millis = Millis(30_000);
/// How much it rises each second after that, in [`FACTOR_ONE`]ths.
pub const STEP: u64 = 2;
/// It is never lower, in [`FACTOR_ONE`]ths.
pub const LEAST_FACTOR: u64 = 8;

/// What is known of the provider's refusals.
#[derive(Clone, Debug, Default)]
pub struct Adaptive {
    slowed: Option<Slowed>,
    /// By tenth of a second: recipients granted in it that were refused.
    refused: BTreeMap<u64, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Slowed {
    factor: u64,
    cut: Moment,
    raised: Moment,
    /// Until when grants may be of another rate.
    settled: Moment,
    /// The factor before the cut, until that has been measured.
    uncut: Option<u64>,
}

impl Adaptive {
    /// [`FACTOR_ONE`]ths of the budget's rate that may be used.
    #[must_use]
    pub fn factor(&self) -> u64 {
        self.slowed.map_or(FACTOR_ONE, |slowed| slowed.factor)
    }

    /// So many recipients that were granted then were refused as too many. Answers whether the rate was cut.
    pub fn refuse(&mut self, now: Moment, granted: Moment, recipients: u64) -> bool {
        *self.refused.entry(granted.0 / 100).or_default() += recipients;
        let factor = self.factor();
        if let Some(slowed) = self.slowed
            && now >= slowed.cut
            && granted < slowed.settled
        {
            return false;
        }
        self.slowed = Some(Slowed {
            factor: (factor / 2).max(LEAST_FACTOR),
            cut: now,
            raised: now,
            settled: now + SETTLED,
            uncut: Some(factor),
        });
        true
    }

    /// Measures and climbs, as is due; the guard tells what went.
    pub fn recover(&mut self, now: Moment, guard: &Guard) {
        let Some(slowed) = &mut self.slowed else {
            return;
        };
        if now < slowed.cut {
            (slowed.cut, slowed.raised, slowed.settled) = (now, now, now + SETTLED);
        }
        if let Some(uncut) = slowed.uncut
            && now >= slowed.cut + MEASURED_AFTER
        {
            slowed.uncut = None;
            slowed.settled = now + SETTLED;
            let looked = guard.clock();
            let known = looked <= slowed.cut + MEASURED_UNTIL && looked <= now;
            if known {
                slowed.factor = measured(slowed, uncut, &self.refused, guard);
            }
        }
        let since = slowed.raised.max(slowed.cut + PLATEAU);
        let steps = since.until(now).0 / 1000;
        if steps > 0 {
            slowed.factor = FACTOR_ONE.min(slowed.factor + steps * STEP);
            slowed.raised = since + Millis(steps * 1000);
        }
        if slowed.factor >= FACTOR_ONE {
            self.slowed = None;
        }
    }
}

/// The factor by what was accepted.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of a few seconds; the same arithmetic as in Lua"
)]
fn measured(slowed: &Slowed, uncut: u64, refused: &BTreeMap<u64, u64>, guard: &Guard) -> u64 {
    let cut = slowed.cut.0 / 100;
    let (mut went_after, mut refused_after) = (0, 0);
    let (mut went_in_all, mut refused_in_all) = (0, 0);
    // From the first refusal to the last: when the first was, what was accepted since, and as it was at the last.
    let (mut first, mut offered, mut accepted) = (None, 0, 0);
    let (mut shown, mut best) = (0.0, 0.0_f64);
    for tenth in cut - 10..cut + 10 {
        let (went, refused) = (guard.went(tenth), refused.get(&tenth).copied().unwrap_or(0));
        went_in_all += went;
        refused_in_all += refused;
        if tenth >= cut {
            went_after += went;
            refused_after += refused;
        }
        if let Some(first) = first {
            offered += went;
            accepted += went.saturating_sub(refused);
            if refused > 0 {
                shown = accepted as f64 * 10.0 / (tenth - first) as f64;
                if offered >= ENOUGH {
                    best = best.max(shown);
                }
            }
        } else if refused > 0 {
            first = Some(tenth);
        }
    }
    if went_in_all == 0 {
        return slowed.factor;
    }
    let accepted = shown
        .max(best)
        .max(went_after.saturating_sub(refused_after) as f64);
    let mut factor = (accepted * 0.95 * FACTOR_ONE as f64 / guard.full_rate()) as u64;
    if refused_in_all * 20 < went_in_all {
        factor = factor.max((uncut as f64 * 0.9) as u64);
    }
    if refused_after == 0 {
        factor = factor.max(slowed.factor); // nothing speaks for less
    }
    factor.min(uncut).max(LEAST_FACTOR)
}
