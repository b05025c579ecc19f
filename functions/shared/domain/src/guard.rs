//! The guard as a pure model: what `claim.lua` draws from, without Redis or a clock.
//!
//! The schedule says when a message should go; timers are late, batches surface together and limits
//! get cut. So every send also needs a *grant*, and at no moment are more than the limit granted.
//!
//! # The rules
//! Messages are claimed up to seconds before they go and not in the order they go, so the guard is no
//! bucket with one level but a strip of ticks, ten milliseconds each, that can be drawn on in any order.
//! - **Units.** Tick t yields ⌊(t+1)·g⌋ − ⌊t·g⌋ units, g = η·L ÷ 100. A message takes one per
//!   recipient, in order, from the first tick at or after its slot, and goes at the tick of the last. So
//!   in any n ticks fewer than n·g + 1 recipients go: a token bucket at η·L with a burst of 1.
//! - **Low rates.** Below two a second a unit comes less than every half second, and waiting for one would
//!   delay every message by as much. There a message goes at its slot, and the guard closes behind it for
//!   as long as its recipients take at η·L.
//! - **Priority's part.** Of the units, ⌊ρ·U(t+1)⌋ − ⌊ρ·U(t)⌋ of a tick are priority's, with U(t) = ⌊t·g⌋ and
//!   ρ = reserve ÷ (η·L): as in the schedule, and so that urgent mail doesn't stand behind late bulk.
//! - **Burst.** A late message may use up what was left unused in the (burst − 1) ÷ (η·L) seconds before
//!   now: fewer than η·L + burst in any second, a token bucket with that burst.
//! - **Costs.** A message of several recipients also uses what was left unused in the time its own
//!   recipients take before its slot, at most a second: the schedule booked those turns for it.
//! - **Windows.** Several recipients go at one instant, so besides, in no second around a grant may more
//!   than ⌈L⌉ recipients go. A message that alone costs more than ⌊L⌋ goes when nobody else does for a
//!   second before and after, and nobody goes after it until what it was over is paid for.
//! - **Slots only.** What others send by themselves in a second ([`crate::schedule::Standing::SlotOnly`]) takes its part of the
//!   units of that second, spread evenly over them, and goes at their ticks.
//! - **Slowed down** ([`crate::adaptive`]), g is so much less, in millionths of a recipient a tick, and so are the ⌊L⌋ and ⌈L⌉ of
//!   a second: what was granted under another rate lies at other ticks.
//! - **Far grants** are not drawn: past the longest wait the message takes a new slot instead.
//! - **Clock.** When the Redis clock is set back, what was granted lies anywhere in the next seconds of real
//!   time. The guard forgets it and grants nothing until it is surely over. (Set back for less long than until
//!   the next claim, nobody can tell; then a second may be overfull by what the shift brings together.)

use std::collections::BTreeMap;

use crate::{
    Budget, Cell, Lane, Millis, Moment,
    budget::{FACTOR_ONE, GUARD_TICKS, Share, mul_div},
};

/// A tick in milliseconds.
pub const TICK: Millis = Millis(1000 / GUARD_TICKS);
/// The longest wait for a grant that may be asked for.
pub const LONGEST_WAIT: Millis = Millis(3000);
/// How far back unused units can be found, in ticks: a second for cost, a second for burst.
const MEMORY: u64 = 2 * GUARD_TICKS;
/// While grants are slowed down, nobody waits longer for the debt of a costly message than this, in ticks, unless it took longer at the full rate: a
/// minute, since the rate climbs again meanwhile.
const MOST_SLOWED: u64 = 60 * GUARD_TICKS;
/// Parts of a recipient that a tick yields while grants are slowed down.
const FINE: u64 = 1_000_000;

/// What was drawn in one tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// Units taken, recipients.
    pub units: u64,
    /// Of these, by bulk.
    pub bulk: u64,
    /// Recipients that go at the tick's start.
    pub going: u64,
}

/// The guard of one budget.
#[derive(Clone, Debug)]
pub struct Guard {
    budget: Budget,
    factor: u64,
    ticks: BTreeMap<u64, Tick>,
    clock: Moment,
    /// Nothing goes before this tick.
    closed_until: u64,
    /// By second: recipients that others send by themselves.
    elsewhere: BTreeMap<Cell, u64>,
}

impl Guard {
    /// A guard that has granted nothing yet.
    #[must_use]
    pub const fn new(budget: Budget) -> Self {
        Self {
            budget,
            factor: FACTOR_ONE,
            ticks: BTreeMap::new(),
            clock: Moment(0),
            closed_until: 0,
            elsewhere: BTreeMap::new(),
        }
    }

    /// A new budget. What was granted under the old one still counts.
    pub const fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// Slows grants down to `factor` ÷ [`FACTOR_ONE`] of η·L.
    pub const fn slow_to(&mut self, factor: u64) {
        self.factor = factor;
    }

    /// η·L, recipients per second, as if nothing was slowed down.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate's numbers are below 2^53"
    )]
    pub fn full_rate(&self) -> f64 {
        self.full_rate_per_tick() * GUARD_TICKS as f64
    }

    /// The same by tick.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate's numbers are below 2^53"
    )]
    pub fn full_rate_per_tick(&self) -> f64 {
        let (rate, ticks) = (self.budget.guard_rate(), GUARD_TICKS as f64);
        rate.num() as f64 / (rate.den() as f64 * ticks)
    }

    /// The first tenth of a second of which the guard still knows all that went.
    #[must_use]
    pub const fn remembers(&self) -> u64 {
        (self.clock.0 / TICK.0)
            .saturating_sub(MEMORY)
            .div_ceil(GUARD_TICKS / 10)
    }

    /// Recipients that were to go in this tenth of a second.
    #[must_use]
    pub fn went(&self, tenth: u64) -> u64 {
        let first = tenth * GUARD_TICKS / 10;
        let tenth = self.ticks.range(first..first + GUARD_TICKS / 10);
        tenth.map(|(_, tick)| tick.going).sum()
    }

    /// Of a number that the limit comes to in a second, as much as may be used.
    const fn slowed(&self, recipients: u64) -> u64 {
        let part = mul_div(recipients, self.factor, FACTOR_ONE);
        if part < 1 { 1 } else { part }
    }

    /// Most recipients that share a second.
    const fn largest_shared(&self) -> u64 {
        self.slowed(self.budget.largest_shared())
    }

    /// Most recipients that go in a second.
    const fn most_per_second(&self) -> u64 {
        self.slowed(self.budget.most_per_second())
    }

    /// g: units that a tick yields.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate's numbers are below 2^53; the same arithmetic as in Lua"
    )]
    const fn per_tick(&self) -> Share {
        let rate = self.budget.guard_rate();
        let (num, den) = (rate.num(), rate.den() * GUARD_TICKS);
        if self.factor >= FACTOR_ONE {
            return Share { num, den };
        }
        let fine = num as f64 / den as f64 * self.factor as f64 / FACTOR_ONE as f64 * FINE as f64;
        let num = if fine < 1.0 { 1 } else { fine as u64 };
        Share { num, den: FINE }
    }

    /// By second, what others send by themselves, recipients.
    pub fn leave(&mut self, elsewhere: BTreeMap<Cell, u64>) {
        self.elsewhere = elsewhere;
    }

    /// Units of a tick that are others'.
    #[must_use]
    pub fn elsewhere(&self, tick: u64) -> u64 {
        let cell = Cell(tick / GUARD_TICKS);
        let Some(recipients) = self.elsewhere.get(&cell) else {
            return 0;
        };
        let first = self.before(cell.0 * GUARD_TICKS);
        let all = self.before((cell.0 + 1) * GUARD_TICKS) - first;
        let part = |upto: u64| {
            let part = (upto - first) * recipients.min(&all);
            part.checked_div(all).unwrap_or(0)
        };
        part(self.before(tick + 1)) - part(self.before(tick))
    }

    /// When the guard was last asked.
    #[must_use]
    pub const fn clock(&self) -> Moment {
        self.clock
    }

    /// U(t) = ⌊t·g⌋ with g = η·L ÷ 100: units that all ticks before this one yield.
    const fn before(&self, tick: u64) -> u64 {
        let Share { num, den } = self.per_tick();
        mul_div(tick, num, den)
    }

    /// Units that a lane may still take of a tick.
    #[must_use]
    pub fn room(&self, lane: Lane, tick: u64) -> u64 {
        let (before, after) = (self.before(tick), self.before(tick + 1));
        let taken = self.tick(tick);
        let elsewhere = self.elsewhere(tick);
        let all = (after - before).saturating_sub(taken.units + elsewhere);
        match lane {
            Lane::Priority => all,
            Lane::Bulk => {
                let Share { num, den } = self.budget.guard_share();
                let reserved = mul_div(after, num, den) - mul_div(before, num, den);
                all.min((after - before - reserved).saturating_sub(taken.bulk + elsewhere))
            }
        }
    }

    /// Ticks in which so many recipients go at η·L, rounded down.
    #[must_use]
    pub const fn ticks_for(&self, recipients: u64) -> u64 {
        let Share { num, den } = self.per_tick();
        mul_div(recipients, den, num)
    }

    /// Ticks for which nobody goes after so many recipients over what a second holds.
    fn debt(&self, recipients: u64) -> u64 {
        let rate = self.budget.guard_rate();
        let at_full_rate = mul_div(recipients, rate.den() * GUARD_TICKS, rate.num());
        self.ticks_for(recipients)
            .min(at_full_rate.max(MOST_SLOWED))
    }

    /// Grants the moment at which a message of `cost` recipients with this slot may go, or nothing if
    /// that is more than `longest` (at most [`LONGEST_WAIT`]) from now.
    pub fn grant(
        &mut self,
        now: Moment,
        lane: Lane,
        slot: Moment,
        cost: u32,
        longest: Millis,
    ) -> Option<Moment> {
        let longest = longest.min(LONGEST_WAIT);
        self.advance(now);
        let last = (now.0 + longest.0) / TICK.0;
        let earliest = now.0.max(slot.0).div_ceil(TICK.0).max(self.closed_until);
        if earliest > last {
            return None;
        }
        let cost = u64::from(cost);
        let largest = self.largest_shared();
        let alone = cost > largest;

        let slow = self.is_slow();
        let takes = if slow {
            Vec::new()
        } else {
            self.units(now, lane, slot, cost.min(largest), last)?
        };

        // The first tick from there on around which no window overflows.
        let silence = if alone {
            GUARD_TICKS.max(self.debt(cost - largest) + 1)
        } else {
            GUARD_TICKS
        };
        let mut goes = takes
            .last()
            .map_or(earliest, |(tick, _)| earliest.max(*tick));
        loop {
            if goes > last {
                return None;
            }
            let fits = if alone {
                let from = goes.saturating_sub(GUARD_TICKS - 1);
                self.ticks
                    .range(from..goes + silence)
                    .all(|(_, t)| t.going == 0)
                    && (from..goes + GUARD_TICKS).all(|tick| self.elsewhere(tick) == 0)
            } else {
                self.fullest_second_with(goes) + cost <= self.most_per_second()
            };
            if fits {
                break;
            }
            goes += 1;
        }

        for (tick, count) in takes {
            let taken = self.ticks.entry(tick).or_default();
            taken.units += count;
            if lane == Lane::Bulk {
                taken.bulk += count;
            }
        }
        self.ticks.entry(goes).or_default().going += cost;
        if alone {
            self.closed_until = goes + silence;
        }
        if slow {
            self.closed_until = self.closed_until.max(goes + self.debt(cost) + 1);
        }
        Some(Moment(goes * TICK.0))
    }

    /// Whether the guard spaces grants by themselves instead of by units.
    const fn is_slow(&self) -> bool {
        let Share { num, den } = self.per_tick();
        num * GUARD_TICKS < 2 * den
    }

    /// The units for so many recipients, from as far back as burst and cost allow, or nothing if they run past
    /// the `last` tick.
    fn units(
        &self,
        now: Moment,
        lane: Lane,
        slot: Moment,
        recipients: u64,
        last: u64,
    ) -> Option<Vec<(u64, u64)>> {
        let present = now.0.div_ceil(TICK.0);
        let burst = self
            .ticks_for(u64::from(self.budget.burst()) - 1)
            .min(GUARD_TICKS);
        let own = self.ticks_for(recipients - 1).min(GUARD_TICKS);
        let mut tick = slot
            .0
            .div_ceil(TICK.0)
            .max(present.saturating_sub(burst))
            .saturating_sub(own);
        let (mut takes, mut left) = (Vec::new(), recipients);
        while left > 0 {
            if tick > last {
                return None;
            }
            let count = self.room(lane, tick).min(left);
            if count > 0 {
                takes.push((tick, count));
                left -= count;
            }
            tick += 1;
        }
        Some(takes)
    }

    /// What was drawn in a tick.
    #[must_use]
    pub fn tick(&self, tick: u64) -> Tick {
        self.ticks.get(&tick).copied().unwrap_or_default()
    }

    /// Most recipients that go in any second that holds this tick.
    fn fullest_second_with(&self, tick: u64) -> u64 {
        (tick.saturating_sub(GUARD_TICKS - 1)..=tick)
            .map(|first| {
                let second = first..first + GUARD_TICKS;
                let granted: u64 = self.ticks.range(second.clone()).map(|(_, t)| t.going).sum();
                granted + second.map(|tick| self.elsewhere(tick)).sum::<u64>()
            })
            .max()
            .unwrap_or(0)
    }

    /// Moves the clock on and drops what no rule looks at any more.
    fn advance(&mut self, now: Moment) {
        if now < self.clock {
            self.ticks.clear();
            self.closed_until = (now.0 + LONGEST_WAIT.0) / TICK.0 + GUARD_TICKS;
        }
        self.clock = now;
        self.ticks = self
            .ticks
            .split_off(&(now.0 / TICK.0).saturating_sub(MEMORY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rate, budget::Settings, window::Caps};

    const NOW: Moment = Moment(1_800_000_000_000);

    fn guard(limit: &str, guard: &str, burst: Option<u32>, reserve: &str) -> Guard {
        guard_at(limit, "0.5", guard, burst, reserve)
    }

    fn guard_at(
        limit: &str,
        headroom: &str,
        guard: &str,
        burst: Option<u32>,
        reserve: &str,
    ) -> Guard {
        let settings = Settings {
            limit: limit.parse().unwrap(),
            headroom: headroom.parse().unwrap(),
            guard: guard.parse().unwrap(),
            burst,
            reserve: reserve.parse().unwrap(),
            slice: Rate::ZERO,
            caps: Caps::default(),
            horizon: Millis::from_secs(60),
        };
        Guard::new(Budget::new(settings).unwrap())
    }

    /// Milliseconds after [`NOW`] of the grants of so many messages that were due a second ago.
    fn grants(guard: &mut Guard, lane: Lane, count: usize) -> Vec<u64> {
        let slot = Moment(NOW.0 - 1000);
        (0..count)
            .map_while(|_| guard.grant(NOW, lane, slot, 1, LONGEST_WAIT))
            .map(|at| NOW.until(at).0)
            .collect()
    }

    #[test]
    fn what_is_due_at_once_is_spread_at_the_guards_rate() {
        let mut guard = guard("100", "0.95", Some(1), "0");
        let granted = grants(&mut guard, Lane::Bulk, 500);
        assert_eq!(granted.iter().filter(|at| **at < 1000).count(), 95);
        assert!(granted.windows(2).all(|pair| pair[0] < pair[1]));
        // Past the longest wait there is no grant.
        assert!(granted.len() <= 286 && granted[granted.len() - 1] <= 3000);
    }

    #[test]
    fn a_burst_uses_up_what_the_moments_before_have_left() {
        let mut guard = guard("100", "0.95", Some(5), "0");
        let granted = grants(&mut guard, Lane::Bulk, 20);
        // Four ticks back yield three or four, and the present one one more; never more than the burst.
        let at_once = granted.iter().filter(|at| **at == 0).count();
        assert!((4..=5).contains(&at_once), "{granted:?}");
    }

    #[test]
    fn grants_are_drawn_in_any_order() {
        let mut guard = guard("100", "0.95", Some(1), "0");
        let mut at = |slot| guard.grant(NOW, Lane::Bulk, NOW + Millis(slot), 1, LONGEST_WAIT);
        assert_eq!(at(900), Some(NOW + Millis(900)));
        assert_eq!(at(500), Some(NOW + Millis(500)));
        assert_eq!(at(500), Some(NOW + Millis(510)));
    }

    #[test]
    fn fifty_recipients_at_eleven_a_second_go_alone_and_are_paid_for() {
        let mut guard = guard("11", "0.99", None, "0");
        let at = guard.grant(NOW, Lane::Bulk, NOW, 50, LONGEST_WAIT).unwrap();
        assert!(at <= NOW + Millis(1000), "{at:?}");
        let debt = Millis(39 * 1000 / 11);
        let soon = at + Millis(100);
        assert_eq!(guard.grant(soon, Lane::Bulk, soon, 1, LONGEST_WAIT), None);
        let later = at + debt;
        let next = guard
            .grant(later, Lane::Bulk, later, 1, LONGEST_WAIT)
            .unwrap();
        assert!(
            at.until(next) > debt && at.until(next) < Millis(debt.0 + 500),
            "{next:?}"
        );
    }

    #[test]
    fn late_bulk_leaves_priority_its_part() {
        let mut guard = guard("100", "0.95", Some(1), "5");
        assert!(grants(&mut guard, Lane::Bulk, 200).len() == 200);
        let urgent = grants(&mut guard, Lane::Priority, 3);
        assert!(urgent.iter().all(|at| *at <= 700), "{urgent:?}");
    }

    /// At every rate, a stream on schedule is granted within a second of its slots, and none is turned away.
    #[test]
    fn a_stream_on_schedule_is_granted_on_time_at_every_rate() {
        use crate::schedule::{Booking, Schedule, Standing};
        for limit in ["100", "14", "3", "2", "1", "0.8", "0.2", "20/h"] {
            for (lane, reserve) in [
                (Lane::Bulk, "0"),
                (Lane::Bulk, "2"),
                (Lane::Priority, "2"),
                (Lane::Priority, "0"),
            ] {
                let mut guard = guard_at(limit, "0.9", "0.95", None, reserve);
                let mut schedule = Schedule::new(NOW, guard.budget.without_horizon());
                let mut now = NOW;
                for n in 0..200 {
                    let Booking::Slot(slot) =
                        schedule.book(NOW, lane, &"acme".parse().unwrap(), 1, Standing::New)
                    else {
                        panic!("no horizon")
                    };
                    // Claimed up to a second early.
                    now = now.max(Moment(slot.at.0 - (n * 379) % 1000));
                    let granted = guard.grant(now, lane, slot.at, 1, Millis(2000));
                    let late = granted.map(|at| slot.at.until(at));
                    assert!(
                        late.is_some_and(|late| late <= Millis(1000)),
                        "{limit} {lane} {reserve}: {n} {late:?}"
                    );
                }
            }
        }
    }
}
