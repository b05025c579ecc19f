//! The schedule as a pure model: what `book.lua` and `release.lua` do, without Redis or a clock.
//!
//! Read this to learn the rules. The scripts are held against it step by step, so both say the same;
//! this one says it in the open.
//!
//! # The rules
//! - **Cells.** Each second is a cell that holds ⌊(c+1)·r⌋ − ⌊c·r⌋ recipients ([`Budget::capacity`]).
//!   Priority may fill a cell; bulk only up to capacity − reserve ([`Budget::reserved`]).
//! - **The present cell** offers only the turns that are not over: turns missed count as bulk's, since
//!   priority's part is the last to be given up.
//! - **Frontier.** Every cell before a lane's frontier is full for that lane, so searches start there
//!   and the cost of a booking doesn't grow with the backlog.
//! - **Costs may be split** over cells: a message takes what room there is, in order. It goes at the
//!   turn of its last recipient, or of its ⌊L⌋-th if it costs more than L: a provider lets such a
//!   message go when a whole second is free and is then owed the rest, so what it books beyond ⌊L⌋ is
//!   the silence after it.
//! - **Turns.** The k-th recipient of a cell that holds n goes at k/n of the second, counted from 0.
//! - **Horizon.** A message is booked if its slot is within the horizon, else it waits in its lane's line,
//!   outside the schedule. The first of all, with nothing of its lane booked ahead of it, is booked as far
//!   ahead as a message can be delayed: at a low rate, or for many recipients, the very next slot may be
//!   past the horizon, and nothing is gained by waiting for it.
//! - **Clock.** Time doesn't run backwards: when the Redis clock is set back by up to 5 s, the
//!   schedule stands still until it catches up; by more, it starts anew.
//! - **Lines.** A waiting message keeps its place: recipients ever queued, up to and with itself. The
//!   line knows how many were served. Its slot will be about (recipients before it) ÷ rate past the
//!   frontier; a message whose estimated slot is past the horizon doesn't book even if there is room,
//!   unless it is at the head of the line. It sleeps until its slot is half a horizon away, so that it wakes
//!   neither too early to find room nor too late to use it.

use std::collections::BTreeMap;

use crate::{Budget, Cell, Lane, Millis, Moment};

/// The longest sleep: the longest delay of an SQS message.
pub const LONGEST_SLEEP: Millis = Millis::from_secs(900);
/// How far the Redis clock may be set back before the schedule starts anew instead of standing still.
pub const LONGEST_STANDSTILL: Millis = Millis::from_secs(5);
/// The shortest sleep, so that nothing spins.
pub const SHORTEST_SLEEP: Millis = Millis::from_secs(1);

/// Where a message that asks for a slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has never been in a waiting line.
    New,
    /// It woke from a wait with this place in its line.
    Waited {
        /// Recipients ever queued in the line, up to and with this message.
        place: u64,
    },
    /// It had a slot before (a retry, a rebooking): it isn't new mail and stands in no line.
    Again,
}

/// The answer to one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Booking {
    /// It may go then.
    Slot(Slot),
    /// Its slot would be past the booking horizon: ask again after the delay.
    Wait(Wait),
}

/// A booked slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// When the message may go.
    pub at: Moment,
    /// `at` minus the Redis clock at booking; zero when the slot is already due.
    pub delay: Millis,
    /// The recipients booked, cell by cell, so that they can be released.
    pub cells: Vec<(Cell, u32)>,
}

/// A wait, unbooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Sleep this long, then ask again: [`SHORTEST_SLEEP`] to [`LONGEST_SLEEP`].
    pub delay: Millis,
    /// Its place in the line, to be shown when it asks again; 0 for a message that asked
    /// [`Standing::Again`], which asks so again.
    pub place: u64,
    /// Estimated time until its slot, however many sleeps away.
    pub estimate: Millis,
}

/// Recipients booked in one cell. Turns of the present cell that were missed count as bulk's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Booked {
    /// In all.
    pub all: u64,
    /// From bulk.
    pub bulk: u64,
}

/// A lane's waiting line, in recipients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Ever queued: the place of the last to join.
    pub queued: u64,
    /// Ever booked out of the line.
    pub served: u64,
    /// When the last place should long have been served. After it the line is taken for empty, so that
    /// messages that never come back (deleted by hand) can't hold it open.
    pub until: Moment,
}

/// The schedule of one budget.
#[derive(Clone, Debug)]
pub struct Schedule {
    budget: Budget,
    cells: BTreeMap<Cell, Booked>,
    clock: Moment,
    frontier: [Cell; 2],
    lines: [Line; 2],
}

/// Recipients taken from one cell by the call under way.
struct Take {
    cell: Cell,
    first: u64,
    count: u64,
}

impl Schedule {
    /// An empty schedule.
    #[must_use]
    pub const fn new(budget: Budget) -> Self {
        Self {
            budget,
            cells: BTreeMap::new(),
            clock: Moment(0),
            frontier: [Cell(0); 2],
            lines: [Line {
                queued: 0,
                served: 0,
                until: Moment(0),
            }; 2],
        }
    }

    /// What time it is for the schedule: the latest it was told.
    #[must_use]
    pub const fn clock(&self) -> Moment {
        self.clock
    }

    /// The budget in force.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// A new budget: searches start from now again, as there may be more room in every cell.
    pub const fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
        self.frontier = [Cell(0); 2];
    }

    /// What is booked in a cell.
    #[must_use]
    pub fn booked(&self, cell: Cell) -> Booked {
        self.cells.get(&cell).copied().unwrap_or_default()
    }

    /// The cells with any booking, in order.
    pub fn cells(&self) -> impl Iterator<Item = (Cell, Booked)> {
        self.cells.iter().map(|(cell, booked)| (*cell, *booked))
    }

    /// A lane's frontier: every cell before it is full for the lane.
    #[must_use]
    pub const fn frontier(&self, lane: Lane) -> Cell {
        self.frontier[lane as usize]
    }

    /// A lane's waiting line.
    #[must_use]
    pub const fn line(&self, lane: Lane) -> Line {
        self.lines[lane as usize]
    }

    /// Recipients that the lane may still book in a cell, turns already missed not counted.
    #[must_use]
    pub fn room(&self, lane: Lane, cell: Cell) -> u64 {
        let booked = self.booked(cell);
        let capacity = self.budget.capacity(cell);
        let all = capacity.saturating_sub(booked.all);
        match lane {
            Lane::Priority => all,
            Lane::Bulk => {
                all.min((capacity - self.budget.reserved(cell)).saturating_sub(booked.bulk))
            }
        }
    }

    /// Books one message of `cost` recipients, or says how long it must wait.
    pub fn book(&mut self, now: Moment, lane: Lane, cost: u32, standing: Standing) -> Booking {
        let now = self.advance(now);
        let line = &mut self.lines[lane as usize];
        let open = line.served < line.queued && now <= line.until;
        if !open {
            line.served = line.queued;
        }
        let cost_wide = u64::from(cost);
        let place = match standing {
            Standing::New => line.queued + cost_wide,
            Standing::Waited { place } => place.max(line.served + cost_wide),
            Standing::Again => line.served + cost_wide,
        };
        let before = place - line.served - cost_wide;
        let in_turn = !open
            || before == 0
            || matches!(standing, Standing::Again)
            || self.estimate(now, lane, before) <= self.budget.horizon();
        let first = self.is_first(now, lane);
        let mut booked = None;
        if in_turn {
            booked = self.take(now, lane, cost_wide, self.budget.horizon());
            if booked.is_none() && first {
                booked = self.take(now, lane, cost_wide, LONGEST_SLEEP);
            }
        }
        if let Some(takes) = booked {
            if matches!(standing, Standing::Waited { .. }) {
                let line = &mut self.lines[lane as usize];
                line.served = line.queued.min(line.served + cost_wide);
            }
            return Booking::Slot(self.slot(now, cost_wide, &takes));
        }
        let estimate = self.estimate(now, lane, before);
        let line = &mut self.lines[lane as usize];
        let horizon = self.budget.horizon();
        if matches!(standing, Standing::New) {
            line.queued = place;
            let closes = now + Millis(estimate.0 + estimate.0 / 2 + 2 * horizon.0);
            line.until = line.until.max(closes);
        }
        let rest = estimate.0.saturating_sub(horizon.0 / 2);
        // Only the first hop is short: then as many surface each second as are sent, not all at once.
        let first = matches!(standing, Standing::New);
        let hop = if rest > LONGEST_SLEEP.0 && first {
            rest % LONGEST_SLEEP.0
        } else {
            rest.min(LONGEST_SLEEP.0)
        };
        let place = if matches!(standing, Standing::Again) {
            0
        } else {
            place
        };
        Booking::Wait(Wait {
            delay: Millis(hop.max(SHORTEST_SLEEP.0)),
            place,
            estimate,
        })
    }

    /// Gives booked recipients back. Cells that have begun are past saving and ignored, as is what was
    /// never booked.
    pub fn release(&mut self, now: Moment, lane: Lane, cells: &[(Cell, u32)]) {
        if now < self.clock && now.until(self.clock) > LONGEST_STANDSTILL {
            return; // the next booking starts anew
        }
        let now = now.max(self.clock);
        for &(cell, count) in cells {
            let Some(booked) = self.cells.get_mut(&cell).filter(|_| cell > now.cell()) else {
                continue;
            };
            let own = match lane {
                Lane::Priority => booked.all - booked.bulk,
                Lane::Bulk => booked.bulk,
            };
            let count = u64::from(count).min(own);
            if count == 0 {
                continue;
            }
            booked.all -= count;
            if lane == Lane::Bulk {
                booked.bulk -= count;
            }
            for frontier in &mut self.frontier {
                *frontier = cell.min(*frontier);
            }
        }
    }

    /// Moves the clock on and drops the past; answers what time it is for the schedule. Every booking
    /// begins with it.
    pub fn advance(&mut self, now: Moment) -> Moment {
        if now < self.clock && now.until(self.clock) > LONGEST_STANDSTILL {
            self.cells.clear();
            self.frontier = [Cell(0); 2];
            self.clock = now;
        }
        self.clock = self.clock.max(now);
        self.cells = self.cells.split_off(&self.clock.cell());
        self.clock
    }

    /// Whether nothing the lane could still use lies between now and its frontier: then a message that books
    /// next is the first of its lane.
    fn is_first(&self, now: Moment, lane: Lane) -> bool {
        let frontier = self.frontier(lane);
        frontier <= now.cell() || self.budget.next_with_capacity(lane, now.cell()) >= frontier
    }

    /// Time from now until the first turn of a message with so many recipients of the line before it: the
    /// lane's frontier, then the line at the lane's rate.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate; the script computes the same in the same order, so both round alike"
    )]
    fn estimate(&self, now: Moment, lane: Lane, before: u64) -> Millis {
        let frontier = self.frontier(lane).start().max(now);
        let served_in = before as f64 * 1000.0 / self.budget.line_rate(lane);
        Millis(now.until(frontier).0 + served_in as u64)
    }

    /// Takes `cost` recipients from the frontier on, or nothing if its slot would be further away than `reach`.
    /// What a message books behind its slot may lie further.
    fn take(&mut self, now: Moment, lane: Lane, cost: u64, reach: Millis) -> Option<Vec<Take>> {
        let last = (now + reach).cell();
        let goes_with = cost.min(self.budget.largest_shared());
        let mut takes = Vec::new();
        let mut left = cost;
        let mut cell = self.frontier(lane).max(now.cell());
        loop {
            cell = self.budget.next_with_capacity(lane, cell);
            if cell > last && cost - left < goes_with {
                break;
            }
            if cell == now.cell() {
                self.miss_turns(now);
            }
            let count = self.room(lane, cell).min(left);
            if count > 0 {
                let booked = self.cells.entry(cell).or_default();
                takes.push(Take {
                    cell,
                    first: booked.all,
                    count,
                });
                booked.all += count;
                if lane == Lane::Bulk {
                    booked.bulk += count;
                }
                left -= count;
            }
            if self.room(lane, cell) > 0 {
                break;
            }
            cell.0 += 1;
            if left == 0 {
                break;
            }
        }
        self.frontier[lane as usize] = cell;
        if left == 0 {
            return Some(takes);
        }
        for Take { cell, count, .. } in takes {
            let booked = self.cells.entry(cell).or_default();
            booked.all -= count;
            if lane == Lane::Bulk {
                booked.bulk -= count;
            }
            let frontier = &mut self.frontier[lane as usize];
            *frontier = cell.min(*frontier);
        }
        None
    }

    /// Gives up the turns of the present cell that are over; the turn under way may still be used.
    fn miss_turns(&mut self, now: Moment) {
        let cell = now.cell();
        let over = (now.0 % 1000) * self.budget.capacity(cell) / 1000;
        let booked = self.booked(cell);
        if booked.all < over {
            let missed = over - booked.all;
            self.cells.insert(
                cell,
                Booked {
                    all: over,
                    bulk: booked.bulk + missed,
                },
            );
        }
    }

    fn slot(&self, now: Moment, cost: u64, takes: &[Take]) -> Slot {
        let goes_with = cost.min(self.budget.largest_shared());
        let mut before = 0;
        let mut at = now;
        for Take { cell, first, count } in takes {
            if before < goes_with {
                let turn = first + count.min(&(goes_with - before)) - 1;
                at = Moment(cell.start().0 + turn * 1000 / self.budget.capacity(*cell)).max(now);
            }
            before += count;
        }
        let cells = takes
            .iter()
            .map(|take| (take.cell, u32::try_from(take.count).unwrap_or(u32::MAX)))
            .collect();
        Slot {
            at,
            delay: now.until(at),
            cells,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Settings;

    const NOW: Moment = Moment(1_800_000_000_000);

    fn budget(limit: &str, headroom: &str, reserve: &str) -> Budget {
        Budget::new(Settings {
            limit: limit.parse().unwrap(),
            headroom: headroom.parse().unwrap(),
            guard: "1".parse().unwrap(),
            burst: None,
            reserve: reserve.parse().unwrap(),
            horizon: Millis::from_secs(60),
        })
        .unwrap()
    }

    fn slot(booking: Booking) -> Slot {
        match booking {
            Booking::Slot(slot) => slot,
            Booking::Wait(wait) => panic!("{wait:?}"),
        }
    }

    fn wait(booking: Booking) -> Wait {
        match booking {
            Booking::Wait(wait) => wait,
            Booking::Slot(slot) => panic!("{slot:?}"),
        }
    }

    #[test]
    fn at_eight_tenths_a_second_ten_mails_take_the_cells_that_hold_one() {
        let mut schedule = Schedule::new(budget("1", "0.8", "0"));
        let mut book = || slot(schedule.book(NOW, Lane::Bulk, 1, Standing::New)).at;
        let seconds: Vec<u64> = (0..10).map(|_| (book().0 - NOW.0) / 1000).collect();
        // NOW's cell is the first of five, which holds nothing.
        assert_eq!(seconds, [1, 2, 3, 4, 6, 7, 8, 9, 11, 12]);
    }

    #[test]
    fn fifty_recipients_at_eleven_a_second_go_with_the_eleventh_and_leave_silence_behind() {
        let mut schedule = Schedule::new(budget("11", "0.99", "0"));
        let fifty = slot(schedule.book(NOW, Lane::Bulk, 50, Standing::New));
        assert_eq!(fifty.cells.iter().map(|(_, count)| count).sum::<u32>(), 50);
        assert!(fifty.cells.iter().all(|(_, count)| *count <= 11));
        assert_eq!(fifty.cells.len(), 5);
        let next = slot(schedule.book(NOW, Lane::Bulk, 1, Standing::New));
        // At 10.89/s, 39 of the 50 are owed when it goes, and one more turn for the next.
        assert!(fifty.at <= NOW + Millis(1100), "{fifty:?}");
        assert!(
            fifty.at.until(next.at) >= Millis(40 * 1000 / 11),
            "{next:?}"
        );
    }

    #[test]
    fn eleven_recipients_at_eleven_a_second_go_with_their_last() {
        let mut schedule = Schedule::new(budget("11", "0.99", "0"));
        let eleven = slot(schedule.book(NOW, Lane::Bulk, 11, Standing::New));
        let last = eleven.cells[eleven.cells.len() - 1].0;
        assert_eq!(eleven.at.cell(), last);
    }

    #[test]
    fn the_first_turn_of_the_present_second_is_the_one_under_way() {
        let mut schedule = Schedule::new(budget("12.5", "0.8", "0"));
        let mut book = |now| slot(schedule.book(now, Lane::Bulk, 1, Standing::New));
        // The cell holds ten; five turns are over, the sixth is under way.
        let at = book(NOW + Millis(550)).at;
        assert_eq!(at, NOW + Millis(550));
        assert_eq!(book(NOW + Millis(550)).at, NOW + Millis(600));
    }

    /// Sleeps on both sides of the longest delay there is: only the first hop is short.
    #[test]
    fn a_wait_of_901_s_hops_once_shortly_and_then_for_900() {
        // One a second, booked for 61 s; half a horizon of 30 s is not slept: the n-th to wait sleeps 30 + n s.
        for (waiting_before, rest, first_hop) in [(868, 899, 899), (869, 900, 900), (870, 901, 1)] {
            let mut schedule = Schedule::new(budget("2", "0.5", "0"));
            while let Booking::Slot(_) = schedule.book(NOW, Lane::Bulk, 1, Standing::New) {}
            for _ in 1..waiting_before {
                wait(schedule.book(NOW, Lane::Bulk, 1, Standing::New));
            }
            let first = wait(schedule.book(NOW, Lane::Bulk, 1, Standing::New));
            assert_eq!(
                first.estimate,
                Millis::from_secs(rest + 30),
                "{waiting_before}"
            );
            assert_eq!(
                first.delay,
                Millis::from_secs(first_hop),
                "{waiting_before}"
            );
            // Woken at once, it still waits, for the rest, or for the longest there is.
            let standing = Standing::Waited { place: first.place };
            let again = wait(schedule.book(NOW, Lane::Bulk, 1, standing));
            assert_eq!(again.delay, Millis::from_secs(rest.min(900)));
            assert_eq!(again.place, first.place);
        }
    }

    #[test]
    fn a_retry_stands_in_no_line_and_leaves_the_line_as_it_is() {
        let mut schedule = Schedule::new(budget("2", "0.5", "0"));
        while let Booking::Slot(_) = schedule.book(NOW, Lane::Bulk, 1, Standing::New) {}
        let line = schedule.line(Lane::Bulk);
        let retry = wait(schedule.book(NOW, Lane::Bulk, 1, Standing::Again));
        assert_eq!(
            (retry.place, schedule.line(Lane::Bulk).queued),
            (0, line.queued)
        );
        // A second later there is room at the end, and the retry has it although others wait.
        let later = NOW + Millis::from_secs(1);
        slot(schedule.book(later, Lane::Bulk, 1, Standing::Again));
    }

    #[test]
    fn priority_takes_the_reserve_of_seconds_that_bulk_has_filled() {
        let mut schedule = Schedule::new(budget("10", "0.9", "2"));
        for _ in 0..300 {
            slot(schedule.book(NOW, Lane::Bulk, 1, Standing::New));
        }
        let urgent = slot(schedule.book(NOW, Lane::Priority, 1, Standing::New));
        assert!(urgent.delay <= Millis(1000), "{urgent:?}");
    }

    #[test]
    fn a_line_whose_messages_never_come_back_closes_by_itself() {
        let mut schedule = Schedule::new(budget("2", "0.5", "0"));
        while let Booking::Slot(_) = schedule.book(NOW, Lane::Bulk, 1, Standing::New) {}
        for _ in 0..500 {
            wait(schedule.book(NOW, Lane::Bulk, 1, Standing::New));
        }
        let much_later = schedule.line(Lane::Bulk).until + Millis(1);
        let fresh = slot(schedule.book(much_later, Lane::Bulk, 1, Standing::New));
        assert!(fresh.delay <= Millis(1000));
    }

    /// No message is stuck: alone, whatever it costs and however slow the lane, it is booked after few wakes.
    #[test]
    fn a_lone_message_is_booked_soon_at_every_rate() {
        for limit in ["1", "14", "100", "20/h", "1/h", "200/d", "3"] {
            for (horizon, reserve) in [(1, "2"), (3, "2"), (60, "0"), (60, "2"), (900, "2")] {
                for (lane, cost) in [
                    (1, Lane::Bulk),
                    (14, Lane::Bulk),
                    (50, Lane::Bulk),
                    (1, Lane::Priority),
                    (50, Lane::Priority),
                ]
                .map(|(cost, lane)| (lane, cost))
                {
                    let budget = Budget::new(Settings {
                        limit: limit.parse().unwrap(),
                        headroom: "0.9".parse().unwrap(),
                        guard: "0.95".parse().unwrap(),
                        burst: None,
                        reserve: reserve.parse().unwrap(),
                        horizon: Millis::from_secs(horizon),
                    });
                    let mut schedule = Schedule::new(budget.unwrap());
                    let (mut now, mut standing, mut wakes) = (NOW + Millis(730), Standing::New, 0);
                    while let Booking::Wait(wait) = schedule.book(now, lane, cost, standing) {
                        now = now + wait.delay;
                        standing = Standing::Waited { place: wait.place };
                        wakes += 1;
                        assert!(
                            wakes <= 12,
                            "{limit}, {horizon} s, reserve {reserve}, {cost} in {lane}"
                        );
                    }
                }
            }
        }
    }

    /// What waits behind a message of many recipients in a slow lane gets its turn, in the time the lane's rate gives.
    #[test]
    fn a_costly_message_holds_up_the_line_for_its_cost_and_no_longer() {
        let mut schedule = Schedule::new(budget("1", "0.9", "2"));
        let costs: Vec<u32> = [1; 9].into_iter().chain([28]).chain([1; 9]).collect();
        let total: u32 = costs.iter().sum();
        let mut asleep: Vec<(Moment, u32, Standing)> = costs
            .into_iter()
            .map(|cost| (NOW, cost, Standing::New))
            .collect();
        let (mut last, mut wakes) = (NOW, 0);
        while !asleep.is_empty() {
            asleep.sort_by_key(|(due, ..)| *due);
            let (now, cost, standing) = asleep.remove(0);
            match schedule.book(now, Lane::Bulk, cost, standing) {
                Booking::Slot(slot) => last = last.max(slot.at),
                Booking::Wait(wait) => {
                    asleep.push((
                        now + wait.delay,
                        cost,
                        Standing::Waited { place: wait.place },
                    ));
                    wakes += 1;
                    assert!(wakes < 200, "they wake and wake");
                }
            }
        }
        // 46 recipients at 0.45 a second.
        let ideal = u64::from(total) * 1000 * 100 / 45;
        assert!(NOW.until(last).0 < ideal + 60_000, "{last:?} after {ideal}");
    }
}
