//! Rolling windows: never more than a cap within any hour, or any day.
//!
//! # The rules
//! - **Blocks.** Recipients are counted in blocks of fixed length, each a little longer than the n-th part of
//!   the window. Any window overlaps at most n + 1 of them, and one that is longer by a minute does so, too: what is
//!   sent up to a minute off its slot is still counted where it belongs.
//! - **Conservative.** In no n + 1 blocks in a row is more than the cap booked. A booking is checked against every
//!   such stretch that holds its block, so also against what was booked later in time before it.
//! - **Bulk** leaves priority its part of the budget's cap.
//! - **Clock.** A clock set back does not give back what was used: what would count before the present block
//!   counts in it.

use std::collections::BTreeMap;

use crate::{Cell, Lane, Moment, budget::Share};

/// The length of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Span {
    /// An hour.
    Hour,
    /// A day.
    Day,
}

impl Span {
    /// Both, the shorter first.
    pub const ALL: [Self; 2] = [Self::Hour, Self::Day];

    /// The length, in seconds.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Hour => 3600,
            Self::Day => 86_400,
        }
    }

    /// The length of a block, in seconds: 60 × 61 s and 96 × 901 s are an hour and a day, and a minute more.
    #[must_use]
    pub const fn block_seconds(self) -> u64 {
        match self {
            Self::Hour => 61,
            Self::Day => 901,
        }
    }

    /// n: a booking counts in its block and the n that follow.
    #[must_use]
    pub const fn blocks(self) -> u64 {
        match self {
            Self::Hour => 60,
            Self::Day => 96,
        }
    }

    /// Blocks after the present one that can be booked: as far as any message can be delayed.
    #[must_use]
    pub const fn ahead(self) -> u64 {
        900_u64.div_ceil(self.block_seconds()) + 1
    }

    /// The block that holds a cell.
    #[must_use]
    pub const fn block(self, cell: Cell) -> u64 {
        cell.0 / self.block_seconds()
    }

    /// The first cell of a block.
    #[must_use]
    pub const fn start(self, block: u64) -> Cell {
        Cell(block * self.block_seconds())
    }
}

/// At most so many recipients in any hour and in any day; `None` is no cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// Recipients in any 60 minutes.
    pub hour: Option<u64>,
    /// Recipients in any 24 hours.
    pub day: Option<u64>,
}

impl Caps {
    /// The greatest cap: what a day at the greatest rate can hold, and small enough for two counts in one number.
    pub const MAX: u64 = 50_000 * 86_400;

    /// The cap of a window.
    #[must_use]
    pub const fn of(&self, span: Span) -> Option<u64> {
        match span {
            Span::Hour => self.hour,
            Span::Day => self.day,
        }
    }

    /// Whether there is any.
    #[must_use]
    pub const fn is_some(&self) -> bool {
        self.hour.is_some() || self.day.is_some()
    }

    /// What the caps allow on average, recipients per second; infinite without one.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "an estimate, and the scripts compute it alike"
    )]
    pub fn rate(&self) -> f64 {
        let mut rate = f64::INFINITY;
        for span in Span::ALL {
            if let Some(cap) = self.of(span) {
                rate = rate.min(cap as f64 / span.seconds() as f64);
            }
        }
        rate
    }
}

/// What a lane may have of a cap.
#[must_use]
pub const fn part_of(cap: u64, lane: Lane, reserve: Share) -> u64 {
    match lane {
        Lane::Priority => cap,
        Lane::Bulk => cap - crate::budget::mul_div(cap, reserve.num, reserve.den),
    }
}

/// What was booked in the blocks of one window.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// By block: in all, and from bulk.
    blocks: BTreeMap<u64, [u64; 2]>,
    /// The present block: the latest there was.
    present: u64,
}

impl Window {
    /// Moves on to the block of this moment, and drops what no window holds any more.
    pub fn advance(&mut self, span: Span, now: Moment) {
        self.present = self.present.max(span.block(now.cell()));
        let oldest = self.present.saturating_sub(span.blocks());
        self.blocks = self.blocks.split_off(&oldest);
    }

    /// Recipients that a lane may still book in a block under this cap.
    #[must_use]
    pub fn room(&self, span: Span, lane: Lane, cap: u64, bulk_cap: u64, block: u64) -> u64 {
        let block = block.max(self.present);
        let farthest = self.farthest(span);
        let mut room = u64::MAX;
        for last in block..=farthest {
            let [all, bulk] = self.booked(last.saturating_sub(span.blocks()), last);
            room = room.min(cap.saturating_sub(all));
            if lane == Lane::Bulk {
                room = room.min(bulk_cap.saturating_sub(bulk));
            }
        }
        room
    }

    /// What is booked in these blocks: in all, and from bulk.
    #[must_use]
    pub fn booked(&self, first: u64, last: u64) -> [u64; 2] {
        let mut sum = [0; 2];
        for (_, [all, bulk]) in self.blocks.range(first..=last) {
            sum[0] += all;
            sum[1] += bulk;
        }
        sum
    }

    /// The present block.
    #[must_use]
    pub const fn present(&self) -> u64 {
        self.present
    }

    /// The last block that can be booked: no message goes later.
    #[must_use]
    pub const fn farthest(&self, span: Span) -> u64 {
        self.present + span.ahead()
    }

    /// Counts recipients in the block of a cell.
    pub fn add(&mut self, span: Span, lane: Lane, cell: Cell, count: u64) {
        let held = self.blocks.entry(self.counted_in(span, cell)).or_default();
        held[0] += count;
        if lane == Lane::Bulk {
            held[1] += count;
        }
    }

    /// Takes recipients back that were counted in the block of a cell to come.
    pub fn remove(&mut self, span: Span, lane: Lane, cell: Cell, count: u64) {
        let block = self.counted_in(span, cell);
        if let Some(held) = self.blocks.get_mut(&block) {
            held[0] -= count.min(held[0]);
            if lane == Lane::Bulk {
                held[1] -= count.min(held[1]);
            }
        }
    }

    /// Whether anything was ever counted in it.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        self.present > 0
    }

    fn counted_in(&self, span: Span, cell: Cell) -> u64 {
        span.block(cell).clamp(self.present, self.farthest(span))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A later booking in an earlier block is checked against what was booked after it.
    #[test]
    fn what_was_booked_later_in_time_counts_too() {
        let now = Moment(1_800_000_000_000);
        let mut window = Window::default();
        window.advance(Span::Hour, now);
        let present = window.present();
        let later = Span::Hour.start(present + 3);
        window.add(Span::Hour, Lane::Bulk, later, 20);
        assert_eq!(window.room(Span::Hour, Lane::Bulk, 20, 20, present), 0);
        window.remove(Span::Hour, Lane::Bulk, later, 5);
        assert_eq!(window.room(Span::Hour, Lane::Bulk, 20, 20, present), 5);
        assert_eq!(window.room(Span::Hour, Lane::Bulk, 20, 18, present), 3);
        assert_eq!(window.room(Span::Hour, Lane::Priority, 20, 18, present), 5);
    }

    proptest! {
        /// Whoever books only what there is room for never has more than the cap in any hour, or day, nor in one
        /// that is a minute longer.
        #[test]
        fn no_window_ever_holds_more_than_its_cap(
            cap in 1_u64..40,
            day in any::<bool>(),
            steps in prop::collection::vec((0_u64..4000, 0_u64..900, 1_u64..6), 1..120),
        ) {
            let span = if day { Span::Day } else { Span::Hour };
            let pace = span.seconds() / 3600;
            let (mut window, mut now) = (Window::default(), Moment(1_800_000_000_000));
            let mut booked: BTreeMap<u64, u64> = BTreeMap::new();
            for (passes, ahead, count) in steps {
                now = Moment(now.0 + passes * 250 * pace);
                window.advance(span, now);
                let cell = Cell(now.cell().0 + ahead);
                if window.room(span, Lane::Bulk, cap, cap, span.block(cell)) >= count {
                    window.add(span, Lane::Bulk, cell, count);
                    *booked.entry(cell.0).or_default() += count;
                }
                for start in booked.keys() {
                    let within: u64 = booked.range(start..&(start + span.seconds() + 60)).map(|(_, n)| n).sum();
                    prop_assert!(within <= cap, "{within} of {cap} from {start}");
                }
            }
        }
    }
}
