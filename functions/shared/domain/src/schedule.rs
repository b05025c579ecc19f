//! The schedule as a pure model: what `book.lua`, `release.lua` and `pause.lua` do, without Redis or a clock.
//!
//! Read this to learn the rules. The scripts are held against it step by step, so both say the same;
//! this one says it in the open.
//!
//! # The rules
//! - **Cells.** Each second is a cell that holds ⌊(c+1)·r⌋ − ⌊c·r⌋ recipients ([`Budget::capacity`]).
//!   Priority may fill a cell; bulk only up to capacity − reserve ([`Budget::reserved`]).
//! - **Slice.** The last part of a cell ([`Budget::sliced`]) is kept until shortly before: from two seconds ahead
//!   for *newcomers*, tenants with no line, nothing booked later than that, and no more than half a slice of it; in its own
//!   second for anyone whose turn it is, but for new mail of a tenant that has mail booked a quarter of a horizon ahead: it would
//!   overtake that, and a burst leaves newcomers the slices of the seconds in which it is handed in. So a newcomer has a slot within three seconds however much others have booked. A message takes such
//!   near room only if it fits in whole.
//! - **The present cell** offers only the turns that are not over: turns missed count as bulk's, since
//!   priority's part is the last to be given up.
//! - **Frontier.** Every cell before a lane's frontier is full for that lane, slice apart, or lies where a window holds
//!   no more; so searches start there and the cost of a booking doesn't grow with the backlog.
//! - **Costs may be split** over cells: a message takes what room there is, in order. It goes at the
//!   turn of its last recipient, or of its ⌊L⌋-th if it costs more than L: a provider lets such a
//!   message go when a whole second is free and is then owed the rest, so what it books beyond ⌊L⌋ is
//!   the silence after it.
//! - **Turns.** The k-th recipient of a cell that holds n goes at k/n of the second, counted from 0.
//! - **Windows** ([`crate::window`]), of the budget and of a tenant: a message begins in the first block with room for all of it. The
//!   budget's move the frontier past what they have filled. What costs more than a cap can never go and is refused.
//! - **Horizon.** A message is booked if its slot is within the horizon, else it waits in its tenant's line,
//!   outside the schedule. The first of all, with nothing of its lane booked ahead of it, is booked as far
//!   ahead as a message can be delayed: at a low rate, or for many recipients, the very next slot may be
//!   past the horizon, and nothing is gained by waiting for it.
//! - **Lines.** A waiting message keeps its place: recipients that its tenant ever queued, up to and with itself.
//!   The lines are merged by weight ([`crate::line`]): that gives the recipients before it, and those ÷ the lane's rate, from
//!   the frontier on, its estimated slot. It sleeps until its slot is half a horizon away, so that it wakes neither too
//!   early to find room nor too late to use it, and it is in turn if its slot is about so near: with more room for error,
//!   whoever asks first would run ahead of its equals.
//! - **Nothing idle.** Where nothing is booked from a quarter of a horizon on, anyone who asks may have it,
//!   as long as it overtakes its own tenant's mail by no more than that. A place in a line that has ended since is none: its
//!   message is as good as new.
//! - **A tenant under a cap of its own** doesn't compete with the others: it waits in a line by itself, which its cap
//!   serves, and takes what it may when it may.
//! - **Slots only.** A service that sends by itself books like anyone, but doesn't wait: it is told when to ask again. The
//!   guard leaves those recipients their part of the second; so they are booked past what it may have granted already.
//! - **Pauses.** A tenant that may not send is booked nothing, and keeps no place: its mail waits elsewhere. A pause gives back what the tenant
//!   has booked and ends its lines.
//! - **Clock.** Time doesn't run backwards: when the Redis clock is set back by up to 5 s, the
//!   schedule stands still until it catches up; by more, the cells start anew.

use std::collections::BTreeMap;

use crate::{
    Budget, Cell, Lane, Millis, Moment, Rate, TenantName,
    adaptive::rescaled,
    budget::GUARD_TICKS,
    line::{self, Lines},
    window::{Caps, Span, Window},
};

/// The longest sleep: the longest delay of an SQS message.
pub const LONGEST_SLEEP: Millis = Millis::from_secs(900);
/// How far the Redis clock may be set back before the schedule starts anew instead of standing still.
pub const LONGEST_STANDSTILL: Millis = Millis::from_secs(5);
/// The shortest sleep, so that nothing spins.
pub const SHORTEST_SLEEP: Millis = Millis::from_secs(1);
/// Cells ahead of the present one in which a newcomer finds the slice.
const SLICE_OPENS: u64 = 2;
/// The longest that all may be kept from booking ([`Schedule::block`]), and a minute.
pub const LONGEST_BLOCK: Millis = Millis::from_secs(960);
/// Searches begin anew at most so often because the rate has moved.
pub const SHORTEST_EPOCH: Millis = Millis::from_secs(60);
/// Cells ahead in which the guard may have granted already: its longest wait.
const GRANTED: u64 = 3;
/// No slice is booked further ahead, in cells: where there are slices, even the costliest message is over soon.
const FARTHEST: u64 = 1000;
/// Past cells that are kept: the guard looks back so far.
pub const PAST_CELLS: u64 = 3;

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
    /// It woke from a wait and won't go after all (it has expired, say): its line moves up.
    Left {
        /// As in [`Standing::Waited`].
        place: u64,
    },
    /// It had a slot before (a retry, a rebooking): it isn't new mail and stands in no line. Past the horizon it
    /// goes ahead of all who wait, as far as a message can be delayed.
    Again,
    /// Only a slot is wanted, for mail that somebody else sends; it never waits in a line.
    SlotOnly,
}

/// What is set for one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its part of the bulk rate while others wait, too, in relation to theirs; 1 to [`Tenant::MAX_WEIGHT`].
    pub weight: u32,
    /// What it may send in any hour and in any day, recipients.
    pub caps: Caps,
}

impl Tenant {
    /// The greatest weight.
    pub const MAX_WEIGHT: u32 = 1000;
}

impl Default for Tenant {
    fn default() -> Self {
        Self {
            weight: 1,
            caps: Caps::default(),
        }
    }
}

/// The answer to one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Booking {
    /// It may go then.
    Slot(Slot),
    /// Its slot would be past the booking horizon: ask again after the delay.
    Wait(Wait),
    /// It costs more than what may be sent in an hour or a day: it can never go.
    OverCap,
    /// It has left its line, as it asked.
    Left,
    /// Its tenant may not send ([`Schedule::pause`]), and nothing is booked for it.
    Paused,
    /// Nobody may send for so long ([`Schedule::block`]), and nothing is booked meanwhile: ask so again.
    Blocked(Millis),
}

/// A booked slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// [`Standing::Again`] or [`Standing::SlotOnly`], which asks so again.
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
    /// Of all, those that somebody else sends.
    pub slots_only: u64,
}

/// What is known of a tenant in one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// Recipients ever queued: the place of the last to join.
    pub queued: u64,
    /// Recipients ever booked out of the line.
    pub served: u64,
    /// Recipients ever queued when the line was opened: places up to there are of earlier lines.
    pub opened: u64,
    /// Its place among the lines of others.
    pub among: line::Standing,
    /// Who has asked lately.
    pub look: Look,
    /// In which run of the schedule it last booked.
    pub run: u64,
    /// The last cell booked.
    pub last: Cell,
}

/// A look at a line for as long as it takes everyone in it to ask: who hasn't asked is not there any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// When it began.
    pub since: Moment,
    /// How far the line reached then, in recipients ever queued.
    pub reached: u64,
    /// Recipients ever queued before the first of those who have asked since.
    pub lowest: u64,
}

/// What a tenant holds of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Recipients booked in it.
    pub booked: u64,
    /// Recipients that go in it: all of a message go at once, in one of its cells.
    pub going: u64,
}

/// What is held of a tenant.
#[derive(Clone, Debug, Default)]
struct Account {
    lines: [Line; 2],
    /// By cell and lane.
    bookings: BTreeMap<Cell, [Held; 2]>,
    windows: [Window; 2],
}

/// The schedule of one budget.
#[derive(Clone, Debug)]
pub struct Schedule {
    budget: Budget,
    tenants: BTreeMap<TenantName, Tenant>,
    cells: BTreeMap<Cell, Booked>,
    clock: Moment,
    /// How often the cells have started anew.
    run: u64,
    frontier: [Cell; 2],
    /// Every cell before is full for the lane, slice and all.
    full: [Cell; 2],
    lines: [Lines; 2],
    windows: [Window; 2],
    accounts: BTreeMap<TenantName, Account>,
    /// At which rate (recipients per second), and when, searches last began anew.
    epoch: (f64, Moment),
    blocked: Moment,
    /// Tenants that may not send, until when; nothing: until they are resumed.
    paused: BTreeMap<TenantName, Option<Moment>>,
}

/// A message that asks.
#[derive(Clone, Copy)]
struct Ask {
    lane: Lane,
    cost: u64,
    tenant: Tenant,
    slot_only: bool,
    /// The last cell whose slice it may use.
    opens: Cell,
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
    pub fn new(now: Moment, budget: Budget) -> Self {
        Self {
            epoch: (rate_of(&budget), now),
            blocked: Moment(0),
            paused: BTreeMap::new(),
            budget,
            tenants: BTreeMap::new(),
            cells: BTreeMap::new(),
            clock: Moment(0),
            run: 0,
            frontier: [Cell(0); 2],
            full: [Cell(0); 2],
            lines: Default::default(),
            windows: Default::default(),
            accounts: BTreeMap::new(),
        }
    }

    /// What time it is for the schedule: the latest it was told.
    #[must_use]
    pub const fn clock(&self) -> Moment {
        self.clock
    }

    /// How often the cells have started anew, as the clock was set back.
    #[must_use]
    pub const fn run(&self) -> u64 {
        self.run
    }

    /// The budget in force.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// A new budget. What slows the old one down slows this one, though to no less than the old one came to: that was measured. A rate that has moved by a tenth and more since searches
    /// last began anew, at most once a minute, and any other change at once, starts an epoch: searches go back to now, as
    /// there may be room in every cell. What was booked before stays where it is; the guard sees to it after a cut.
    pub fn set_budget(&mut self, now: Moment, budget: Budget) {
        let old = self.budget;
        // By the tick, as the guard has them: by the second, the last digit of a quotient may be another.
        let per_tick = |rate: Rate| to_float(rate.num()) / to_float(rate.den() * GUARD_TICKS);
        let (was, is) = (per_tick(old.guard_rate()), per_tick(budget.guard_rate()));
        self.budget = budget.slowed(rescaled(old.factor(), was, is));
        self.full = [Cell(0); 2];
        let (rate, since) = self.epoch;
        let new = rate_of(&budget);
        let moved = (new - rate).abs() * 10.0 >= rate;
        let long_ago = now >= since + SHORTEST_EPOCH || now < since;
        let other = |of: &Budget| (of.reserve(), of.horizon(), of.slice(), of.caps());
        if moved && long_ago || other(&old) != other(&budget) {
            self.frontier = [Cell(0); 2];
            self.epoch = (new, now);
        }
    }

    /// Slows new bookings down to `factor` ÷ [`crate::budget::FACTOR_ONE`] of the budget's rate, or speeds them up
    /// again. What is booked stays, and searches go on where they are.
    pub fn slow_to(&mut self, factor: u64) {
        self.budget = self.budget.slowed(factor);
        self.full = [Cell(0); 2];
    }

    /// Lets nobody book until then, a moment at most [`LONGEST_BLOCK`] away; one further away was set by a clock since set back.
    pub const fn block(&mut self, until: Moment) {
        self.blocked = until;
    }

    /// Sets a tenant's weight and caps; without, they are [`Tenant::default`]. Its line keeps its recipients.
    pub fn set_tenant(&mut self, name: TenantName, tenant: Tenant) {
        self.tenants.insert(name, tenant);
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

    /// Every cell before is full for the lane, slice and all.
    #[must_use]
    pub const fn full(&self, lane: Lane) -> Cell {
        self.full[lane as usize]
    }

    /// A lane's waiting lines.
    #[must_use]
    pub const fn lines(&self, lane: Lane) -> &Lines {
        &self.lines[lane as usize]
    }

    /// What is known of a tenant in a lane.
    #[must_use]
    pub fn line(&self, lane: Lane, tenant: &TenantName) -> Line {
        let account = self.accounts.get(tenant);
        account.map_or_else(Line::default, |account| account.lines[lane as usize])
    }

    /// What a tenant has booked, by cell and lane.
    pub fn bookings(&self, tenant: &TenantName) -> impl Iterator<Item = (Cell, [Held; 2])> {
        let account = self.accounts.get(tenant);
        account
            .into_iter()
            .flat_map(|account| account.bookings.iter().map(|(cell, count)| (*cell, *count)))
    }

    /// One of the budget's windows.
    #[must_use]
    pub const fn window(&self, span: Span) -> &Window {
        &self.windows[span as usize]
    }

    /// One of a tenant's windows.
    #[must_use]
    pub fn window_of(&self, tenant: &TenantName, span: Span) -> Option<&Window> {
        Some(&self.accounts.get(tenant)?.windows[span as usize])
    }

    /// What is set for a tenant.
    #[must_use]
    pub fn tenant(&self, name: &TenantName) -> Tenant {
        self.tenants.get(name).copied().unwrap_or_default()
    }

    /// Recipients that a cell still holds for the lane. The slice is kept after the cell `opens`.
    #[must_use]
    pub fn room(&self, lane: Lane, cell: Cell, opens: Cell) -> u64 {
        let booked = self.used(cell);
        let kept = if cell > opens {
            self.budget.sliced(cell)
        } else {
            0
        };
        let capacity = self.budget.capacity(cell);
        let all = capacity.saturating_sub(kept + booked.all);
        match lane {
            Lane::Priority => all,
            Lane::Bulk => {
                let reserved = self.budget.reserved(cell);
                all.min(capacity.saturating_sub(reserved + kept + booked.bulk))
            }
        }
    }

    /// Books one message of `cost` recipients, or says how long it must wait.
    pub fn book(
        &mut self,
        now: Moment,
        lane: Lane,
        name: &TenantName,
        cost: u32,
        standing: Standing,
    ) -> Booking {
        let left = now.until(self.blocked);
        if left > Millis(0) && left <= LONGEST_BLOCK {
            return match standing {
                // Its line shortens when it is seen that nobody asks.
                Standing::Left { .. } => Booking::Left,
                _ => Booking::Blocked(left),
            };
        }
        let is_paused = self.is_paused(now, name);
        let now = self.advance(now);
        if is_paused && !matches!(standing, Standing::Left { .. }) {
            return Booking::Paused;
        }
        let ask = Ask {
            opens: now.cell(),
            lane,
            cost: u64::from(cost),
            tenant: self.tenant(name),
            slot_only: standing == Standing::SlotOnly,
        };
        let mut account = self.accounts.remove(name).unwrap_or_default();
        let is_over_cap = self.is_over_cap(ask);
        let asked_to_leave = matches!(standing, Standing::Left { .. });
        let standing = match standing {
            Standing::Waited { place } if is_over_cap => Standing::Left { place },
            standing => standing,
        };
        let leaves = matches!(standing, Standing::Left { .. });
        let booking = if is_over_cap && !leaves {
            Booking::OverCap
        } else {
            account.advance(now, lane, self.run, ask.tenant.caps);
            self.book_for(now, name, &mut account, ask, standing)
        };
        let booking = if is_over_cap && !asked_to_leave {
            Booking::OverCap
        } else {
            booking
        };
        self.accounts.insert(name.clone(), account);
        booking
    }

    fn book_for(
        &mut self,
        now: Moment,
        name: &TenantName,
        account: &mut Account,
        mut ask: Ask,
        standing: Standing,
    ) -> Booking {
        let Some((place, standing)) = self.find_place(now, name, account, ask, standing) else {
            return Booking::Left;
        };
        let turn = self.turn(now, account, ask, &place);
        let line = &account.lines[ask.lane as usize];
        let capped = ask.tenant.caps.is_some();
        let fresh = matches!(standing, Standing::New | Standing::SlotOnly);
        let newcomer = fresh
            && !place.is_open
            && line.has_nothing_after(now, SLICE_OPENS)
            && account.near(now, ask.lane) < self.kept_near(now);
        let ahead = line.last.0.saturating_sub(now.cell().0) * 1000;
        if newcomer {
            ask.opens = Cell(now.cell().0 + SLICE_OPENS);
        } else if fresh && ahead * 4 > self.budget.horizon().0 {
            ask.opens = Cell(now.cell().0 - 1); // it would overtake its own
        }
        let in_turn = standing == Standing::Again
            || turn.within
            || turn.idle
            || !place.is_open && (capped || !place.pressed);

        let mut takes = None;
        if newcomer || in_turn {
            takes = self.take_near(now, account, ask);
        }
        let far = takes.is_none();
        if takes.is_none() && in_turn {
            let first = standing == Standing::Again || self.is_first(now, ask.lane);
            takes = self.take(now, account, ask, self.budget.horizon());
            if takes.is_none() && first {
                takes = self.take(now, account, ask, LONGEST_SLEEP);
            }
        }
        match takes {
            Some(takes) => {
                let last = &mut account.lines[ask.lane as usize].last;
                *last = takes.iter().map(|take| take.cell).fold(*last, Cell::max);
                let served = Served { place: &place, far };
                self.serve(now, name, account, ask, standing, served);
                Booking::Slot(self.slot(now, ask.cost, &takes))
            }
            None => Booking::Wait(self.wait(now, name, account, ask, standing, &place)),
        }
    }

    /// Where a message stands, in its own line and among all; nothing if it has just left.
    fn find_place(
        &mut self,
        now: Moment,
        name: &TenantName,
        account: &mut Account,
        ask: Ask,
        standing: Standing,
    ) -> Option<(Place, Standing)> {
        let Ask { lane, cost, .. } = ask;
        let frontier = self.frontier(lane);
        let budget = &self.budget;
        let lines = &mut self.lines[lane as usize];
        lines.check(now);
        lines.pass(now.cell(), frontier, |cell| budget.turns_before(lane, cell));
        let line = &mut account.lines[lane as usize];
        let capped = ask.tenant.caps.is_some();
        line.settle(lines, name, ask.tenant, now);
        if !line.is_open(lines, capped, now) {
            line.served = line.queued;
        }
        if matches!(standing, Standing::Waited { .. } | Standing::Left { .. }) {
            lines.ask(name, &mut line.among, now);
        }
        // A place of a line that has ended is none.
        let standing = match standing {
            Standing::Waited { place } if !line.holds(lines, capped, now, place) => Standing::New,
            Standing::Left { place } if !line.holds(lines, capped, now, place) => return None,
            standing => standing,
        };
        if let Standing::Waited { place } | Standing::Left { place } = standing {
            line.look_at(lines, name, place.saturating_sub(cost), now);
        }
        let is_open = line.is_open(lines, capped, now);
        let place = match standing {
            Standing::New | Standing::SlotOnly => line.queued + cost,
            Standing::Waited { place } => place.max(line.served + cost),
            Standing::Again => line.served + cost,
            Standing::Left { .. } => {
                line.served = line.queued.min(line.served + cost);
                if is_open && !capped {
                    lines.shorten(name, &mut line.among, cost, line.queued - line.served);
                }
                return None;
            }
        };
        let before = place - cost - line.served;
        let start = line.start(lines, place, cost, ask.tenant.weight);
        let rank = if standing == Standing::Again || !is_open && !capped {
            0.0
        } else if capped {
            to_float(before)
        } else {
            lines.rank(start, &line.among)
        };
        let place = Place {
            number: place,
            before,
            rank,
            is_open,
            pressed: lines.weight() > 0,
        };
        Some((place, standing))
    }

    /// A message has been booked: its line moves on.
    fn serve(
        &mut self,
        now: Moment,
        name: &TenantName,
        account: &mut Account,
        ask: Ask,
        standing: Standing,
        served: Served<'_>,
    ) {
        let Served { place, far } = served;
        let Ask { lane, cost, .. } = ask;
        let line = &mut account.lines[lane as usize];
        let lines = &mut self.lines[lane as usize];
        let capped = ask.tenant.caps.is_some();
        match standing {
            Standing::Waited { .. } => {
                line.served = line.queued.min(line.served + cost);
                if place.is_open && !capped {
                    lines.serve(cost);
                }
            }
            // New mail counts as if it had stood in line, but for what it finds near.
            Standing::New | Standing::SlotOnly if far && place.pressed && !capped => {
                if !place.is_open {
                    line.open(now);
                }
                line.queued += cost;
                line.served += cost;
                line.join(lines, name, ask, now);
                lines.serve(cost);
            }
            Standing::New | Standing::SlotOnly | Standing::Again | Standing::Left { .. } => {}
        }
    }

    /// A message must wait: new mail joins its line.
    fn wait(
        &mut self,
        now: Moment,
        name: &TenantName,
        account: &mut Account,
        ask: Ask,
        standing: Standing,
        place: &Place,
    ) -> Wait {
        let line = &mut account.lines[ask.lane as usize];
        let lines = &mut self.lines[ask.lane as usize];
        let fresh = standing == Standing::New;
        if fresh {
            if !place.is_open {
                line.open(now);
            }
            line.queued = place.number;
            if ask.tenant.caps.is_some() {
                lines.ask(name, &mut line.among, now);
            } else {
                line.join(lines, name, ask, now);
            }
        }
        let estimate = self.turn(now, account, ask, place).estimate;
        let rest = estimate.0.saturating_sub(self.budget.horizon().0 / 2);
        // Only the first hop is short: then as many surface each second as are sent, not all at once.
        let hop = if rest > LONGEST_SLEEP.0 && fresh {
            rest % LONGEST_SLEEP.0
        } else {
            rest.min(LONGEST_SLEEP.0)
        };
        if standing == Standing::Again {
            // Until then there is no room.
            return Wait {
                delay: LONGEST_SLEEP,
                place: 0,
                estimate: estimate.max(LONGEST_SLEEP),
            };
        }
        let keeps = matches!(standing, Standing::New | Standing::Waited { .. });
        Wait {
            delay: Millis(hop.max(SHORTEST_SLEEP.0)),
            place: if keeps { place.number } else { 0 },
            estimate,
        }
    }

    /// Gives a booked message's recipients back. Cells that have begun are past saving and ignored, as is what its tenant
    /// hasn't booked. Freed cells go to whatever books next: a timer can't be woken.
    pub fn release(
        &mut self,
        now: Moment,
        lane: Lane,
        name: &TenantName,
        slot: &Slot,
        slot_only: bool,
    ) {
        let Some(now) = self.standing_still(now) else {
            return; // the next booking starts anew
        };
        let Some(mut account) = self.accounts.remove(name) else {
            return;
        };
        if account.lines[lane as usize].run != self.run {
            self.accounts.insert(name.clone(), account);
            return; // it was booked before the cells started anew
        }
        for &(cell, count) in &slot.cells {
            let held = account.booked(cell, lane);
            let count = u64::from(count).min(held.booked);
            if cell > now.cell() && count > 0 {
                held.booked -= count;
                self.free(lane, cell, count, slot_only);
                self.search_from(cell);
            }
        }
        let goes = slot.at.cell();
        let cost = slot.cells.iter().map(|(_, count)| u64::from(*count)).sum();
        if goes > now.cell() {
            self.uncount(now, lane, &mut account, goes, cost);
        }
        self.accounts.insert(name.clone(), account);
    }

    /// Lets a tenant send nothing, for a while of less than [`LONGEST_BLOCK`] or until it is resumed: gives back all that it has booked, and
    /// ends its lines. A pause until it is resumed isn't replaced by one with an end; and an end further away than the longest was set by
    /// a clock since set back: it stands for nothing yet.
    pub fn pause(&mut self, now: Moment, name: &TenantName, length: Option<Millis>) {
        let until = length.map(|length| now + length);
        let held = self.paused.entry(name.clone()).or_insert(until);
        *held = held.and(until);
        let Some(mut account) = self.accounts.remove(name) else {
            return;
        };
        for lane in Lane::ALL {
            let line = &mut account.lines[lane as usize];
            self.lines[lane as usize].leave(name, &mut line.among);
            line.served = line.queued;
            line.last = Cell(0);
        }
        if let Some(now) = self.standing_still(now) {
            let ahead: Vec<_> = account
                .bookings
                .range(Cell(now.cell().0 + 1)..)
                .flat_map(|(cell, held)| Lane::ALL.map(|lane| (*cell, lane, held[lane as usize])))
                .filter(|(_, lane, _)| account.lines[*lane as usize].run == self.run)
                .collect();
            for (cell, lane, held) in ahead {
                if held.booked > 0 {
                    self.free(lane, cell, held.booked, false);
                    self.search_from(cell);
                }
                self.uncount(now, lane, &mut account, cell, held.going);
            }
        }
        account.bookings.clear();
        self.accounts.insert(name.clone(), account);
    }

    /// Lets a tenant send again. Answers whether it was paused, be it that the pause had ended.
    pub fn resume(&mut self, name: &TenantName) -> bool {
        self.paused.remove(name).is_some()
    }

    /// Whether a tenant may not send. Asked of the clock as it is, not of the schedule's, which stands still when that is set back.
    #[must_use]
    pub fn is_paused(&self, now: Moment, name: &TenantName) -> bool {
        self.paused.get(name).is_some_and(|until| {
            until.is_none_or(|until| until > now && now.until(until) < LONGEST_BLOCK)
        })
    }

    /// Moves the clock on and drops the past; answers what time it is for the schedule. Every booking begins with it.
    pub fn advance(&mut self, now: Moment) -> Moment {
        if self.standing_still(now).is_none() {
            self.cells.clear();
            self.run += 1;
            self.frontier = [Cell(0); 2];
            self.full = [Cell(0); 2];
            self.clock = now;
        }
        self.clock = self.clock.max(now);
        let kept = self.clock.cell().0.saturating_sub(PAST_CELLS);
        self.cells = self.cells.split_off(&Cell(kept));
        for span in Span::ALL {
            if self.budget.caps().of(span).is_some() {
                self.windows[span as usize].advance(span, self.clock);
            }
        }
        self.clock
    }

    /// What time it is for the schedule, or nothing if the clock was set back by too much.
    fn standing_still(&self, now: Moment) -> Option<Moment> {
        let back = now.until(self.clock);
        (back <= LONGEST_STANDSTILL).then(|| now.max(self.clock))
    }

    /// Takes recipients of a lane out of a cell to come.
    fn free(&mut self, lane: Lane, cell: Cell, count: u64, slot_only: bool) {
        let booked = self.cells.entry(cell).or_default();
        let own = match lane {
            Lane::Priority => booked.all - booked.bulk,
            Lane::Bulk => booked.bulk,
        };
        let count = count.min(own);
        booked.all -= count;
        if lane == Lane::Bulk {
            booked.bulk -= count;
        }
        let slots_only = if slot_only { count } else { 0 };
        booked.slots_only = booked.slots_only.saturating_sub(slots_only).min(booked.all);
    }

    /// Both lanes search from this cell on, if they would only have searched further on.
    fn search_from(&mut self, cell: Cell) {
        for frontier in self.frontier.iter_mut().chain(&mut self.full) {
            *frontier = cell.min(*frontier);
        }
    }

    /// Takes recipients out of the windows again that were to go in a cell.
    fn uncount(&mut self, now: Moment, lane: Lane, account: &mut Account, goes: Cell, count: u64) {
        let held = account.booked(goes, lane);
        let count = count.min(held.going);
        held.going -= count;
        if count == 0 {
            return;
        }
        for span in Span::ALL {
            let index = span as usize;
            if account.windows[index].is_used() {
                account.windows[index].remove(span, lane, goes, count);
            }
            if self.windows[index].is_used() {
                self.windows[index].remove(span, lane, goes, count);
                // Its room may be anybody's, from now on.
                self.search_from(now.cell());
            }
        }
    }

    /// Whether a message costs more than may ever go in an hour or a day.
    fn is_over_cap(&self, ask: Ask) -> bool {
        Span::ALL.into_iter().any(|span| {
            let caps = [self.budget.cap(span, ask.lane), ask.tenant.caps.of(span)];
            caps.into_iter().flatten().any(|cap| ask.cost > cap)
        })
    }

    /// The cell from which the budget's windows have room for a message, if not this one.
    fn blocked_by_budget(&self, ask: Ask, cell: Cell) -> Option<Cell> {
        blocked(&self.windows, ask, cell, |span, lane| {
            self.budget.cap(span, lane)
        })
    }

    /// Whether nothing the lane could still use lies between now and its frontier: then a message that books
    /// next is the first of its lane.
    fn is_first(&self, now: Moment, lane: Lane) -> bool {
        let frontier = self.frontier(lane);
        frontier <= now.cell() || self.budget.next_with_capacity(lane, now.cell()) >= frontier
    }

    /// Whose turn it is, for a message in its place.
    fn turn(&self, now: Moment, account: &Account, ask: Ask, place: &Place) -> Turn {
        let Ask { lane, tenant, .. } = ask;
        let horizon = self.budget.horizon();
        let frontier = self.frontier(lane).start().max(now);
        let (mut from, mut rate) = (frontier, self.budget.line_rate(lane));
        let reach = to_float(horizon.0) * rate / 1000.0;
        if tenant.caps.is_some() {
            rate = rate.min(tenant.caps.rate());
            let mut cell = now.cell();
            while let Some(next) = account.blocked(ask, cell) {
                cell = next;
            }
            from = from.max(cell.start());
        }
        let estimate = Millis(now.until(from).0 + truncated(place.rank * 1000.0 / rate));
        let free = now.until(frontier).0 <= horizon.0 / 4 || self.is_first(now, lane);
        Turn {
            within: estimate.0 <= horizon.0 / 2 + horizon.0 / 24 + 1000,
            idle: free && (place.before == 0 || to_float(place.before * 4) <= reach),
            estimate,
        }
    }

    /// Recipients that a newcomer may hold of the next two seconds: half a slice, so that others come in at the same time.
    fn kept_near(&self, now: Moment) -> u64 {
        let ahead = (1..=SLICE_OPENS).map(|ahead| self.budget.sliced(Cell(now.cell().0 + ahead)));
        (ahead.max().unwrap_or(0) / 2).max(1)
    }

    /// Takes what is near, before the frontier, if that holds all of the message.
    fn take_near(&mut self, now: Moment, account: &mut Account, ask: Ask) -> Option<Vec<Take>> {
        if self.budget.slice().num == 0 || ask.slot_only {
            return None;
        }
        let lane = ask.lane;
        let first = self.full(lane).max(now.cell());
        let last = ask.opens.0.min(self.frontier(lane).0.saturating_sub(1));
        if first.0 > last {
            return None;
        }
        let takes = self.find_near(account, ask, first, last);
        if let Some(takes) = &takes {
            for take in takes {
                self.add(lane, take, ask.slot_only);
            }
            self.count(account, ask, takes);
        }
        let has_room = |cell: &u64| self.room(lane, Cell(*cell), ask.opens) > 0;
        self.full[lane as usize] = Cell((first.0..=last).find(has_room).unwrap_or(last + 1));
        takes
    }

    /// What of these cells a message would take, if they hold all of it.
    fn find_near(&self, account: &Account, ask: Ask, first: Cell, last: u64) -> Option<Vec<Take>> {
        let mut takes: Vec<Take> = Vec::new();
        let mut left = ask.cost;
        for cell in (first.0..=last).map(Cell) {
            let count = self.room(ask.lane, cell, ask.opens).min(left);
            if count > 0 {
                takes.push(Take {
                    cell,
                    first: self.used(cell).all,
                    count,
                });
                left -= count;
            }
        }
        let begins = takes.first()?.cell;
        let blocked =
            self.blocked_by_budget(ask, begins).is_some() || account.blocked(ask, begins).is_some();
        (left == 0 && !blocked).then_some(takes)
    }

    /// Takes `cost` recipients from the frontier on, or nothing if its slot would be further away than `reach`.
    /// What a message books behind its slot may lie further.
    fn take(
        &mut self,
        now: Moment,
        account: &mut Account,
        ask: Ask,
        reach: Millis,
    ) -> Option<Vec<Take>> {
        let Ask { lane, cost, .. } = ask;
        let last = (now + reach).cell();
        let goes_with = cost.min(self.budget.largest_shared());
        let mut takes = Vec::new();
        let mut left = cost;
        let mut cell = self.frontier(lane).max(now.cell());
        // What only the tenant's own windows keep it from is still there for others.
        let mut follows = true;
        let mut blocked = false;
        let granted = Cell(now.cell().0 + GRANTED);
        if ask.slot_only && cell <= granted {
            (cell, follows) = (Cell(granted.0 + 1), false);
        }
        loop {
            cell = self.budget.next_with_capacity(lane, cell);
            if cell > last && cost - left < goes_with {
                break;
            }
            if left == cost {
                if let Some(next) = self.blocked_by_budget(ask, cell) {
                    (cell, blocked) = (next, true);
                    continue;
                }
                if let Some(next) = account.blocked(ask, cell) {
                    if follows {
                        self.frontier[lane as usize] = cell;
                        follows = false;
                    }
                    cell = next;
                    continue;
                }
            }
            let count = self.room(lane, cell, ask.opens).min(left);
            if count > 0 {
                let take = Take {
                    cell,
                    first: self.used(cell).all,
                    count,
                };
                self.add(lane, &take, ask.slot_only);
                takes.push(take);
                left -= count;
            }
            if self.room(lane, cell, ask.opens) > 0 {
                break;
            }
            cell.0 += 1;
            if left == 0 {
                break;
            }
        }
        // Where the windows hold no more within reach, whoever waits sleeps until they do.
        while left == cost
            && blocked
            && let Some(next) = self.blocked_by_budget(ask, cell)
        {
            cell = self.budget.next_with_capacity(lane, next);
        }
        if follows {
            self.frontier[lane as usize] = cell;
        }
        if left == 0 {
            self.count(account, ask, &takes);
            return Some(takes);
        }
        for Take { cell, count, .. } in takes {
            self.free(lane, cell, count, ask.slot_only);
            let frontier = &mut self.frontier[lane as usize];
            *frontier = cell.min(*frontier);
        }
        None
    }

    /// What is booked in a cell, and of the present one the turns that are over; the turn under way may still be used.
    fn used(&self, cell: Cell) -> Booked {
        let mut booked = self.booked(cell);
        if cell == self.clock.cell() {
            let over = (self.clock.0 % 1000) * self.budget.capacity(cell) / 1000;
            let missed = over.saturating_sub(booked.all);
            booked.all += missed;
            booked.bulk += missed;
        }
        booked
    }

    fn add(&mut self, lane: Lane, take: &Take, slot_only: bool) {
        let mut booked = self.used(take.cell);
        booked.all += take.count;
        if lane == Lane::Bulk {
            booked.bulk += take.count;
        }
        if slot_only {
            booked.slots_only += take.count;
        }
        self.cells.insert(take.cell, booked);
    }

    /// Counts a booked message for its tenant and in the windows.
    fn count(&mut self, account: &mut Account, ask: Ask, takes: &[Take]) {
        let Ask {
            lane, cost, tenant, ..
        } = ask;
        for take in takes {
            account.booked(take.cell, lane).booked += take.count;
        }
        let goes = self.goes(cost, takes).0;
        account.booked(goes, lane).going += cost;
        for span in Span::ALL {
            if self.budget.caps().of(span).is_some() {
                self.windows[span as usize].add(span, lane, goes, cost);
            }
            if tenant.caps.of(span).is_some() {
                account.windows[span as usize].add(span, lane, goes, cost);
            }
        }
    }

    /// In which cell, and at which of its turns, a message goes: with its last recipient, or with its ⌊L⌋-th.
    fn goes(&self, cost: u64, takes: &[Take]) -> (Cell, u64) {
        let goes_with = cost.min(self.budget.largest_shared());
        let mut before = 0;
        let mut goes = (Cell(0), 0);
        for Take { cell, first, count } in takes {
            if before < goes_with {
                goes = (*cell, first + count.min(&(goes_with - before)) - 1);
            }
            before += count;
        }
        goes
    }

    fn slot(&self, now: Moment, cost: u64, takes: &[Take]) -> Slot {
        let (cell, turn) = self.goes(cost, takes);
        let at = Moment(cell.start().0 + turn * 1000 / self.budget.capacity(cell)).max(now);
        let cells = takes
            .iter()
            .map(|take| (take.cell, narrow(take.count)))
            .collect();
        Slot {
            at,
            delay: now.until(at),
            cells,
        }
    }
}

/// Where a message stands.
struct Place {
    /// Recipients ever queued in its own line, up to and with it.
    number: u64,
    /// Recipients before it in its own line.
    before: u64,
    /// Recipients before it, of all lines.
    rank: f64,
    /// Whether its own line has anyone in it.
    is_open: bool,
    /// Whether any line has.
    pressed: bool,
}

/// How a message was booked.
#[derive(Clone, Copy)]
struct Served<'a> {
    place: &'a Place,
    /// Not near, but from the frontier on.
    far: bool,
}

/// Whose turn it is.
struct Turn {
    /// The estimated slot is about half a horizon away, or nearer.
    within: bool,
    /// Nothing is booked for so long that anyone may go.
    idle: bool,
    /// Time until the slot.
    estimate: Millis,
}

impl Account {
    /// Drops the past, and what was booked before the cells started anew.
    fn advance(&mut self, now: Moment, lane: Lane, run: u64, caps: Caps) {
        let line = &mut self.lines[lane as usize];
        if line.run != run {
            line.run = run;
            line.last = Cell(0);
            for held in self.bookings.values_mut() {
                held[lane as usize] = Held::default();
            }
        }
        self.bookings = self.bookings.split_off(&now.cell());
        for span in Span::ALL {
            if caps.of(span).is_some() {
                self.windows[span as usize].advance(span, now);
            }
        }
    }

    /// Recipients booked in the next two seconds.
    fn near(&self, now: Moment, lane: Lane) -> u64 {
        let now = now.cell().0;
        let near = self.bookings.range(Cell(now + 1)..=Cell(now + SLICE_OPENS));
        near.map(|(_, held)| held[lane as usize].booked).sum()
    }

    fn booked(&mut self, cell: Cell, lane: Lane) -> &mut Held {
        &mut self.bookings.entry(cell).or_default()[lane as usize]
    }

    /// The cell from which the tenant's windows have room for a message, if not this one.
    fn blocked(&self, ask: Ask, cell: Cell) -> Option<Cell> {
        blocked(&self.windows, ask, cell, |span, _| ask.tenant.caps.of(span))
    }
}

/// The first cell after a block without room for the message.
fn blocked(
    windows: &[Window; 2],
    ask: Ask,
    cell: Cell,
    cap: impl Fn(Span, Lane) -> Option<u64>,
) -> Option<Cell> {
    for span in Span::ALL {
        let window = &windows[span as usize];
        let (Some(all), Some(bulk)) = (cap(span, Lane::Priority), cap(span, Lane::Bulk)) else {
            continue;
        };
        let block = span.block(cell);
        if block <= window.farthest(span)
            && window.room(span, ask.lane, all, bulk, block) < ask.cost
        {
            return Some(span.start(block.max(window.present()) + 1));
        }
    }
    None
}

impl Line {
    /// Puts the tenant's place among the lines right, as things have changed since it was last seen.
    fn settle(&mut self, lines: &mut Lines, name: &TenantName, tenant: Tenant, now: Moment) {
        let among = &mut self.among;
        if among.weight == 0 {
            return;
        }
        if tenant.caps.is_some() || !lines.is_open(among, now) {
            lines.leave(name, among);
        } else if among.weight != tenant.weight {
            let recipients = (among.tag - lines.time()) * f64::from(among.weight);
            lines.leave(name, among);
            among.tag = lines.time() + recipients / f64::from(tenant.weight);
            lines.join(name, among, tenant.weight, 0);
        }
    }

    /// Someone asks, with so many recipients ever queued before it. After a look, those that haven't asked are gone, and
    /// the line moves up.
    fn look_at(&mut self, lines: &mut Lines, name: &TenantName, first: u64, now: Moment) {
        let look = &mut self.look;
        look.lowest = look.lowest.min(first);
        if now >= look.since && now < look.since + line::QUIET {
            return;
        }
        let gone = look.lowest.min(look.reached).saturating_sub(self.served);
        *look = Look {
            since: now,
            reached: self.queued,
            lowest: first,
        };
        self.served += gone;
        if gone > 0 && self.among.weight > 0 {
            lines.shorten(name, &mut self.among, gone, self.queued - self.served);
        }
    }

    /// Whether nothing is booked more than so many cells ahead. What is booked further ahead than possible was under a
    /// clock since set back.
    const fn has_nothing_after(&self, now: Moment, ahead: u64) -> bool {
        let now = now.cell().0;
        self.last.0 <= now + ahead || self.last.0 > now + FARTHEST
    }

    /// The line begins.
    const fn open(&mut self, now: Moment) {
        self.opened = self.queued;
        self.look = Look {
            since: now,
            reached: self.queued,
            lowest: u64::MAX,
        };
    }

    /// Whether a place is one of this line, and not of one that has ended.
    fn holds(&self, lines: &Lines, capped: bool, now: Moment, place: u64) -> bool {
        self.is_open(lines, capped, now) && place > self.opened && place <= self.queued
    }

    /// Whether the line has anyone in it.
    fn is_open(&self, lines: &Lines, capped: bool, now: Moment) -> bool {
        if capped {
            self.served < self.queued && now <= self.among.asked + line::QUIET
        } else {
            lines.is_open(&self.among, now)
        }
    }

    /// The virtual time at which a message's turn begins.
    fn start(&self, lines: &Lines, place: u64, cost: u64, weight: u32) -> f64 {
        let behind = to_float(self.queued + cost) - to_float(place);
        self.among.tag.max(lines.time()) - behind / f64::from(weight)
    }

    /// The line grows by a message.
    fn join(&mut self, lines: &mut Lines, name: &TenantName, ask: Ask, now: Moment) {
        lines.ask(name, &mut self.among, now);
        lines.join(name, &mut self.among, ask.tenant.weight, narrow(ask.cost));
    }
}

fn rate_of(budget: &Budget) -> f64 {
    to_float(budget.rate().num()) / to_float(budget.rate().den())
}

#[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
const fn to_float(count: u64) -> f64 {
    count as f64
}

/// An estimate in whole milliseconds. The script computes in the same order, so both round alike.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never negative, and saturating"
)]
const fn truncated(ms: f64) -> u64 {
    ms as u64
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rate, budget::Settings};

    const NOW: Moment = Moment(1_800_000_000_000);

    fn budget(limit: &str, headroom: &str, reserve: &str) -> Budget {
        Budget::new(Settings {
            limit: limit.parse().unwrap(),
            headroom: headroom.parse().unwrap(),
            guard: "1".parse().unwrap(),
            burst: None,
            reserve: reserve.parse().unwrap(),
            slice: Rate::ZERO,
            caps: Caps::default(),
            horizon: Millis::from_secs(60),
        })
        .unwrap()
    }

    fn acme() -> TenantName {
        "acme".parse().unwrap()
    }

    fn slot(booking: Booking) -> Slot {
        match booking {
            Booking::Slot(slot) => slot,
            other => panic!("{other:?}"),
        }
    }

    fn wait(booking: Booking) -> Wait {
        match booking {
            Booking::Wait(wait) => wait,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn at_eight_tenths_a_second_ten_mails_take_the_cells_that_hold_one() {
        let mut schedule = Schedule::new(NOW, budget("1", "0.8", "0"));
        let mut book = || slot(schedule.book(NOW, Lane::Bulk, &acme(), 1, Standing::New)).at;
        let seconds: Vec<u64> = (0..10).map(|_| (book().0 - NOW.0) / 1000).collect();
        // NOW's cell is the first of five, which holds nothing.
        assert_eq!(seconds, [1, 2, 3, 4, 6, 7, 8, 9, 11, 12]);
    }

    #[test]
    fn fifty_recipients_at_eleven_a_second_go_with_the_eleventh_and_leave_silence_behind() {
        let mut schedule = Schedule::new(NOW, budget("11", "0.99", "0"));
        let fifty = slot(schedule.book(NOW, Lane::Bulk, &acme(), 50, Standing::New));
        assert_eq!(fifty.cells.iter().map(|(_, count)| count).sum::<u32>(), 50);
        assert!(fifty.cells.iter().all(|(_, count)| *count <= 11));
        assert_eq!(fifty.cells.len(), 5);
        let next = slot(schedule.book(NOW, Lane::Bulk, &acme(), 1, Standing::New));
        // At 10.89/s, 39 of the 50 are owed when it goes, and one more turn for the next.
        assert!(fifty.at <= NOW + Millis(1100), "{fifty:?}");
        assert!(
            fifty.at.until(next.at) >= Millis(40 * 1000 / 11),
            "{next:?}"
        );
    }

    #[test]
    fn eleven_recipients_at_eleven_a_second_go_with_their_last() {
        let mut schedule = Schedule::new(NOW, budget("11", "0.99", "0"));
        let eleven = slot(schedule.book(NOW, Lane::Bulk, &acme(), 11, Standing::New));
        let last = eleven.cells[eleven.cells.len() - 1].0;
        assert_eq!(eleven.at.cell(), last);
    }

    #[test]
    fn the_first_turn_of_the_present_second_is_the_one_under_way() {
        let mut schedule = Schedule::new(NOW, budget("12.5", "0.8", "0"));
        let mut book = |now| slot(schedule.book(now, Lane::Bulk, &acme(), 1, Standing::New));
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
            let mut schedule = Schedule::new(NOW, budget("2", "0.5", "0"));
            while let Booking::Slot(_) = schedule.book(NOW, Lane::Bulk, &acme(), 1, Standing::New) {
            }
            for _ in 1..waiting_before {
                wait(schedule.book(NOW, Lane::Bulk, &acme(), 1, Standing::New));
            }
            let first = wait(schedule.book(NOW, Lane::Bulk, &acme(), 1, Standing::New));
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
            let again = wait(schedule.book(NOW, Lane::Bulk, &acme(), 1, standing));
            assert_eq!(again.delay, Millis::from_secs(rest.min(900)));
            assert_eq!(again.place, first.place);
        }
    }

    #[test]
    fn a_retry_stands_in_no_line_and_goes_past_the_horizon_ahead_of_it() {
        let mut schedule = Schedule::new(NOW, budget("2", "0.5", "0"));
        while let Booking::Slot(_) = schedule.book(NOW, Lane::Bulk, &acme(), 1, Standing::New) {}
        let line = schedule.line(Lane::Bulk, &acme());
        for ahead in 61..=900 {
            let retry = slot(schedule.book(NOW, Lane::Bulk, &acme(), 1, Standing::Again));
            assert_eq!(retry.delay, Millis::from_secs(ahead));
        }
        // Where not even that has room, it asks again when there may be some.
        let retry = wait(schedule.book(NOW, Lane::Bulk, &acme(), 1, Standing::Again));
        assert_eq!((retry.place, retry.delay), (0, LONGEST_SLEEP));
        assert_eq!(
            schedule.line(Lane::Bulk, &acme()).queued,
            line.queued,
            "the line is as it was"
        );
    }

    #[test]
    fn while_nobody_may_send_nothing_is_booked() {
        let mut schedule = Schedule::new(NOW, budget("2", "0.5", "0"));
        schedule.block(NOW + Millis(5000));
        let mut ask = |at: Moment| schedule.book(at, Lane::Bulk, &acme(), 1, Standing::New);
        assert_eq!(ask(NOW), Booking::Blocked(Millis(5000)));
        assert_eq!(ask(NOW + Millis(4999)), Booking::Blocked(Millis(1)));
        slot(ask(NOW + Millis(5000)));
        // A block that far away was set by a clock since set back.
        schedule.block(NOW + Millis(5_000_000));
        slot(schedule.book(NOW + Millis(5000), Lane::Bulk, &acme(), 1, Standing::New));
    }

    #[test]
    fn a_paused_tenant_is_booked_nothing_and_keeps_no_place() {
        let now = Moment(1_800_000_000_000);
        let mut schedule = Schedule::new(now, budget("10", "0.9", "0"));
        let ask = |schedule: &mut Schedule, after: u64, standing| {
            schedule.book(now + Millis(after), Lane::Bulk, &acme(), 1, standing)
        };
        slot(ask(&mut schedule, 0, Standing::New));
        schedule.pause(now, &acme(), Some(Millis(5000)));
        for standing in [
            Standing::New,
            Standing::Again,
            Standing::SlotOnly,
            Standing::Waited { place: 1 },
        ] {
            let booking = ask(&mut schedule, 4999, standing);
            assert_eq!(booking, Booking::Paused, "{standing:?}");
        }
        let left = ask(&mut schedule, 4999, Standing::Left { place: 1 });
        assert_eq!(left, Booking::Left);
        assert_eq!(schedule.line(Lane::Bulk, &acme()).queued, 0);
        slot(ask(&mut schedule, 5000, Standing::New));
        // One with an end doesn't take the place of one without; that is ended by a resume alone, and only once.
        schedule.pause(now, &acme(), None);
        schedule.pause(now, &acme(), Some(Millis(1)));
        let booking = ask(&mut schedule, 900_000, Standing::New);
        assert_eq!(booking, Booking::Paused);
        assert!(schedule.resume(&acme()));
        assert!(!schedule.resume(&acme()));
        slot(ask(&mut schedule, 900_000, Standing::New));
        // An end so far away was set by another clock.
        schedule.pause(now, &acme(), Some(LONGEST_BLOCK));
        slot(ask(&mut schedule, 0, Standing::New));
    }

    #[test]
    fn priority_takes_the_reserve_of_seconds_that_bulk_has_filled() {
        let mut schedule = Schedule::new(NOW, budget("10", "0.9", "2"));
        for _ in 0..300 {
            slot(schedule.book(NOW, Lane::Bulk, &acme(), 1, Standing::New));
        }
        let urgent = slot(schedule.book(NOW, Lane::Priority, &acme(), 1, Standing::New));
        assert!(urgent.delay <= Millis(1000), "{urgent:?}");
    }

    #[test]
    fn a_line_whose_messages_never_come_back_closes_by_itself() {
        let mut schedule = Schedule::new(NOW, budget("2", "0.5", "0"));
        while let Booking::Slot(_) = schedule.book(NOW, Lane::Bulk, &acme(), 1, Standing::New) {}
        for _ in 0..500 {
            wait(schedule.book(NOW, Lane::Bulk, &acme(), 1, Standing::New));
        }
        let much_later = NOW + line::QUIET + Millis(1);
        let fresh = slot(schedule.book(much_later, Lane::Bulk, &acme(), 1, Standing::New));
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
                        slice: Rate::ZERO,
                        caps: Caps::default(),
                        horizon: Millis::from_secs(horizon),
                    });
                    let mut schedule = Schedule::new(NOW, budget.unwrap());
                    let (mut now, mut standing, mut wakes) = (NOW + Millis(730), Standing::New, 0);
                    while let Booking::Wait(wait) =
                        schedule.book(now, lane, &acme(), cost, standing)
                    {
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
        let mut schedule = Schedule::new(NOW, budget("1", "0.9", "2"));
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
            match schedule.book(now, Lane::Bulk, &acme(), cost, standing) {
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
                other => panic!("{other:?}"),
            }
        }
        // 46 recipients at 0.45 a second.
        let ideal = u64::from(total) * 1000 * 100 / 45;
        assert!(NOW.until(last).0 < ideal + 60_000, "{last:?} after {ideal}");
    }
}
