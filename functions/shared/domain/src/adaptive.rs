//! The rate that may be used after the provider has refused sends as too many: watched for a moment, cut once, measured,
//! raised slowly.
//!
//! The provider doesn't say what it allows now; it shows it, by what it accepts. So:
//! - **Watch.** A refusal alone says little. What was granted from the first one on is watched until its fate is known of
//!   [`ENOUGH`] recipients, for [`WATCHED`] at most; what is granted meanwhile goes at the old rate, and shows the limit.
//!   To cut at the first refusal already would be quicker, but leaves a gap in which nothing shows it.
//! - **Cut.** Then the rate becomes 0.85 of what was accepted: what was granted already goes on for up to a second, and little may
//!   come on top. Of few recipients less can be said: then the rate is at least halved at most. Few refusals
//!   (below 5 %) are a burst, not a limit: then it becomes 0.9 of what it was at least.
//! - **Measure.** [`MEASURED_AFTER`] the cut everything granted before it has its answer, and what was accepted from the first
//!   refusal to the last is known more exactly: the rate becomes 0.95 of that.
//!   What was granted within [`SETTLED`] of the cut or the measure says nothing about the new rate and cuts no more.
//! - **Climb.** After [`PLATEAU`] the rate rises by [`STEP`] ÷ 1024 of the budget's a second. Additive, since each probe
//!   above the limit is paid with throttled mail; the plateau, since the account's real limit is asked for every minute.
//!
//! All of it is decided when something is about to be granted: nothing goes otherwise. The guard and new bookings go by
//! the rate. What was booked under a higher one is caught by the guard and rebooked behind it.

use std::{collections::BTreeMap, ops::Range};

use crate::{Millis, Moment, budget::FACTOR_ONE, guard::Guard};

/// The longest that refusals are watched before the rate is cut.
pub const WATCHED: Millis = Millis(2000);
/// The fate of a send is known so long after its grant: the answer's way, and that of what it says.
const ANSWERED: Millis = Millis(300);
/// What was granted so soon after a cut is no reason for another.
pub const SETTLED: Millis = Millis(2000);
/// So long after a cut it is known what became of the second that followed it.
pub const MEASURED_AFTER: Millis = Millis(1300);
/// If the guard was looked at later than this after a cut or the first refusal, it has forgotten what came of it.
const REMEMBERED: Millis = Millis(2000);
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
    watch: Option<Watch>,
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

/// Refusals that are not yet a reason to cut.
#[derive(Clone, Copy, Debug)]
struct Watch {
    /// When the first was granted that was refused.
    first: Moment,
    /// When that was told.
    told: Moment,
}

/// What the provider has shown in some tenths of a second.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    went: u64,
    refused: u64,
    /// From the first refusal to the last: recipients offered behind the first, and the rate accepted (recipients/s).
    offered: u64,
    rate: f64,
}

/// The factor of a rate that takes the place of another, recipients a second: as much as the old one's came to, and no lower.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers; the same arithmetic as in Lua"
)]
pub(crate) fn rescaled(factor: u64, from: f64, to: f64) -> u64 {
    let scaled = (factor as f64 * from / to) as u64;
    factor.max(scaled.min(FACTOR_ONE))
}

impl Adaptive {
    /// [`FACTOR_ONE`]ths of the budget's rate that may be used.
    #[must_use]
    pub fn factor(&self) -> u64 {
        self.slowed.map_or(FACTOR_ONE, |slowed| slowed.factor)
    }

    /// The budget's rate falls from one to another, recipients a second: what was measured under the old one holds on, as
    /// far as the new one goes. Of a higher one the same part may be used.
    pub fn rescale(&mut self, from: f64, to: f64) {
        let scaled = |factor| rescaled(factor, from, to);
        let Some(slowed) = &mut self.slowed else {
            return;
        };
        slowed.factor = scaled(slowed.factor);
        slowed.uncut = slowed.uncut.map(scaled);
        if slowed.factor >= FACTOR_ONE {
            self.slowed = None;
        }
    }

    /// So many recipients that were granted then were refused as too many.
    pub fn refuse(&mut self, now: Moment, granted: Moment, recipients: u64) {
        *self.refused.entry(granted.0 / 100).or_default() += recipients;
        if let Some(slowed) = self.slowed
            && now >= slowed.cut
            && granted < slowed.settled
        {
            return;
        }
        let watch = self.watch.get_or_insert(Watch {
            first: granted,
            told: now,
        });
        watch.first = watch.first.min(granted);
    }

    /// Cuts, measures and climbs, as is due; the guard tells what went.
    pub fn recover(&mut self, now: Moment, guard: &Guard) {
        self.cut(now, guard);
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
            let tenth = slowed.cut.0 / 100;
            let looked = guard.clock();
            if looked <= slowed.cut + REMEMBERED && looked <= now {
                let shown = shown(tenth.saturating_sub(20)..tenth + 10, &self.refused, guard);
                if shown.offered >= ENOUGH {
                    slowed.factor = by(shown, 0.95, uncut, guard);
                }
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

    /// Cuts the rate, once enough is known.
    fn cut(&mut self, now: Moment, guard: &Guard) {
        let Some(watch) = self.watch else {
            return;
        };
        if now < watch.told {
            self.watch = None; // the clock was set back
            return;
        }
        let factor = self.factor();
        let looked = guard.clock();
        let mut seen = Shown::default();
        if looked <= watch.first + REMEMBERED + REMEMBERED && looked <= now {
            let known = now.0.saturating_sub(ANSWERED.0) / 100;
            seen = shown(watch.first.0 / 100..known, &self.refused, guard);
        }
        if seen.offered < ENOUGH && now < watch.told + WATCHED {
            return;
        }
        let least = if seen.offered < ENOUGH { factor / 2 } else { 0 };
        self.watch = None;
        self.slowed = Some(Slowed {
            factor: by(seen, 0.85, factor, guard).max(least).max(LEAST_FACTOR),
            cut: now,
            raised: now,
            settled: now + SETTLED,
            uncut: Some(factor),
        });
    }
}

/// What was shown in these tenths of a second.
#[expect(clippy::cast_precision_loss, reason = "counts of a few seconds")]
fn shown(tenths: Range<u64>, refused: &BTreeMap<u64, u64>, guard: &Guard) -> Shown {
    let mut shown = Shown::default();
    let (mut first, mut offered, mut accepted) = (None, 0, 0);
    for tenth in tenths.start.max(guard.remembers())..tenths.end {
        let (went, refused) = (guard.went(tenth), refused.get(&tenth).copied().unwrap_or(0));
        shown.went += went;
        shown.refused += refused;
        if let Some(first) = first {
            offered += went;
            accepted += went.saturating_sub(refused);
            if refused > 0 {
                // The last refusal may lie where hardly anything was offered any more.
                let rate = accepted as f64 * 10.0 / (tenth - first) as f64;
                if shown.offered < ENOUGH || rate > shown.rate {
                    shown.rate = rate;
                }
                shown.offered = offered;
            }
        } else if refused > 0 {
            first = Some(tenth);
        }
    }
    shown
}

/// The factor by what was accepted, of which so much is used. It is never more than it was.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of a few seconds; the same arithmetic as in Lua"
)]
fn by(shown: Shown, share: f64, uncut: u64, guard: &Guard) -> u64 {
    let mut factor = (shown.rate * share * FACTOR_ONE as f64 / guard.full_rate()) as u64;
    if shown.refused * 20 < shown.went {
        factor = factor.max((uncut as f64 * 0.9) as u64);
    }
    factor.min(uncut).max(LEAST_FACTOR)
}
