//! What one provider account may send, and the whole numbers that the schedule and the guard run on.

use crate::{
    Cell, Lane, Millis, Rate,
    window::{self, Caps, Span},
};

/// What one provider account may send.
///
/// Everything derived from it is a fraction of whole numbers small enough that a Lua number, which
/// holds integers up to 2^53, computes with it exactly. So the scripts and this crate can't differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    limit: Rate,
    headroom: Rate,
    guard: Rate,
    burst: u32,
    rate: Rate,
    reserve: Rate,
    reserve_share: Share,
    guard_rate: Rate,
    guard_share: Share,
    slice: Share,
    caps: Caps,
    factor: u64,
    horizon: Millis,
}

/// The settings of a [`Budget`], as an operator gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// L: what the provider allows, recipients per second.
    pub limit: Rate,
    /// h: the part of the limit that the schedule hands out.
    pub headroom: Rate,
    /// η: the part of the limit that the guard lets through.
    pub guard: Rate,
    /// Recipients that the guard lets through at once to make up for lateness; `None` is
    /// (1 − η)·L, at least 1.
    pub burst: Option<u32>,
    /// What the priority lane has to itself, recipients per second. More than half the rate is cut to
    /// half: a number typed for a large account must not starve a small one's bulk mail.
    pub reserve: Rate,
    /// The last part of every second that holds four and more, kept until two seconds before for tenants with
    /// nothing booked; a fraction, at most a half. Of no use to a lone tenant.
    pub slice: Rate,
    /// What may be sent in any hour and in any day, recipients.
    pub caps: Caps,
    /// How far ahead of now anyone may book; 1 to 900 s.
    pub horizon: Millis,
}

/// A part of a whole, `num ÷ den`, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The numerator.
    pub num: u64,
    /// The denominator.
    pub den: u64,
}

/// The settings make no budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// A limit of nothing.
    #[error("limit is {0}: give the recipients per second that the provider allows, above 0")]
    NoLimit(Rate),
    /// h and η are out of order.
    #[error(
        "headroom {} and guard {} don't fit: 0 < headroom ≤ guard − 0.01 and guard ≤ 1, else \
         the guard can never make up for a stall",
        .headroom.per_second(),
        .guard.per_second()
    )]
    Fractions {
        /// h as given.
        headroom: Rate,
        /// η as given.
        guard: Rate,
    },
    /// The guard's burst is out of range.
    #[error("burst is {0}: give 1 up to the limit, or nothing for (1 − guard) × limit")]
    Burst(u32),
    /// The booking horizon is out of range.
    #[error("booking horizon is {} ms: give 1 to 900 s, the longest delay of an SQS message", .0.0)]
    Horizon(Millis),
    /// The slice is out of range.
    #[error("slice is {}: give a fraction of at most 0.5, or 0 for none", .0.per_second())]
    Slice(Rate),
    /// A cap is out of range.
    #[error("cap is {0}: give 1 to {max} recipients, or nothing for no cap", max = Caps::MAX)]
    Cap(u64),
}

impl Budget {
    /// The longest delay of an SQS message: no booking horizon is longer.
    pub const LONGEST_HORIZON: Millis = Millis::from_secs(900);

    /// Checks the settings and derives the numbers.
    ///
    /// # Errors
    /// When a setting is out of its range.
    pub fn new(settings: Settings) -> Result<Self, BudgetError> {
        let Settings {
            limit,
            headroom,
            guard,
            burst,
            reserve,
            slice,
            caps,
            horizon,
        } = settings;
        if limit.is_zero() {
            return Err(BudgetError::NoLimit(limit));
        }
        // h ≤ η − 0.01 ≤ 0.99, in whole numbers.
        let (h, e) = (headroom, guard);
        let wide = u128::from;
        let apart = (wide(h.num()) * 100 + wide(h.den())) * wide(e.den())
            <= wide(e.num()) * wide(h.den()) * 100;
        if h.is_zero() || e.num() > e.den() || !apart {
            return Err(BudgetError::Fractions { headroom, guard });
        }
        if horizon < Millis::from_secs(1) || horizon > Self::LONGEST_HORIZON {
            return Err(BudgetError::Horizon(horizon));
        }
        if slice > Rate::HALF {
            return Err(BudgetError::Slice(slice));
        }
        for cap in [caps.hour, caps.day].into_iter().flatten() {
            if cap == 0 || cap > Caps::MAX {
                return Err(BudgetError::Cap(cap));
            }
        }
        let whole_limit = limit.num() / limit.den();
        let spare = limit.num() * (e.den() - e.num()) / (limit.den() * e.den());
        let burst = match burst {
            Some(given) if given == 0 || u64::from(given) > whole_limit.max(1) => {
                return Err(BudgetError::Burst(given));
            }
            Some(given) => given,
            None => u32::try_from(spare.max(1)).unwrap_or(u32::MAX),
        };
        let rate = limit.times(headroom);
        let guard_rate = limit.times(guard);
        let half = rate.times(Rate::HALF);
        let reserve = reserve.min(half);
        let reserve_share = Share::of(reserve, rate);
        let guard_share = Share::of(reserve, guard_rate);
        Ok(Self {
            limit,
            headroom,
            guard,
            burst,
            rate,
            reserve,
            reserve_share,
            guard_rate,
            guard_share,
            slice: Share::of(slice, Rate::ONE),
            caps,
            factor: FACTOR_ONE,
            horizon,
        })
    }

    /// The same budget with a horizon so far that nobody ever waits: for those who put no messages on
    /// SQS, such as models and benches.
    #[must_use]
    pub const fn without_horizon(mut self) -> Self {
        self.horizon = Millis(4_000_000_000);
        self
    }

    /// L, recipients per second.
    #[must_use]
    pub const fn limit(&self) -> Rate {
        self.limit
    }

    /// h, a fraction.
    #[must_use]
    pub const fn headroom(&self) -> Rate {
        self.headroom
    }

    /// η, a fraction.
    #[must_use]
    pub const fn guard(&self) -> Rate {
        self.guard
    }

    /// The guard's burst, recipients.
    #[must_use]
    pub const fn burst(&self) -> u32 {
        self.burst
    }

    /// r = h·L, recipients per second.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// The priority lane's reserve, recipients per second; at most half of r.
    #[must_use]
    pub const fn reserve(&self) -> Rate {
        self.reserve
    }

    /// ρ = reserve ÷ r.
    #[must_use]
    pub const fn reserve_share(&self) -> Share {
        self.reserve_share
    }

    /// η·L, recipients per second.
    #[must_use]
    pub const fn guard_rate(&self) -> Rate {
        self.guard_rate
    }

    /// The reserve as a part of η·L.
    #[must_use]
    pub const fn guard_share(&self) -> Share {
        self.guard_share
    }

    /// The slice, a part of every second that holds [`SLICED_FROM`] and more.
    #[must_use]
    pub const fn slice(&self) -> Share {
        self.slice
    }

    /// The caps of an hour and a day.
    #[must_use]
    pub const fn caps(&self) -> Caps {
        self.caps
    }

    /// What a lane may have of a window, if that has a cap: bulk leaves priority its part.
    #[must_use]
    pub fn cap(&self, span: Span, lane: Lane) -> Option<u64> {
        let cap = self.caps.of(span)?;
        Some(window::part_of(cap, lane, self.reserve_share))
    }

    /// The same budget for so many tenants: a lone one has no use for a slice.
    #[must_use]
    pub const fn for_tenants(mut self, tenants: usize) -> Self {
        if tenants < 2 {
            self.slice.num = 0;
        }
        self
    }

    /// The same budget, slowed down for a while to `factor` ÷ [`FACTOR_ONE`] of its rate.
    #[must_use]
    pub fn slowed(mut self, factor: u64) -> Self {
        self.factor = factor.clamp(1, FACTOR_ONE);
        self
    }

    /// [`FACTOR_ONE`]ths of the rate that new bookings go by.
    #[must_use]
    pub const fn factor(&self) -> u64 {
        self.factor
    }

    /// The booking horizon.
    #[must_use]
    pub const fn horizon(&self) -> Millis {
        self.horizon
    }

    /// ⌈L⌉: at most so many recipients in any one second.
    #[must_use]
    pub const fn most_per_second(&self) -> u64 {
        self.limit.num().div_ceil(self.limit.den())
    }

    /// max(1, ⌊L⌋): a message that costs more can't fit into any one second, so it goes alone.
    #[must_use]
    pub const fn largest_shared(&self) -> u64 {
        let whole = self.limit.num() / self.limit.den();
        if whole == 0 { 1 } else { whole }
    }

    /// C(c) = ⌊c·r⌋: recipients that all cells before `cell` hold; of these the factor's part.
    #[must_use]
    pub const fn before(&self, cell: Cell) -> u64 {
        let all = mul_div(cell.0, self.rate.num(), self.rate.den());
        mul_div(all, self.factor, FACTOR_ONE)
    }

    /// Recipients that a cell holds: C(c+1) − C(c).
    #[must_use]
    pub const fn capacity(&self, cell: Cell) -> u64 {
        self.before(Cell(cell.0 + 1)) - self.before(cell)
    }

    /// Recipients of a cell that bulk may not take: ⌊ρ·C(c+1)⌋ − ⌊ρ·C(c)⌋.
    #[must_use]
    pub const fn reserved(&self, cell: Cell) -> u64 {
        let Share { num, den } = self.reserve_share;
        mul_div(self.before(Cell(cell.0 + 1)), num, den) - mul_div(self.before(cell), num, den)
    }

    /// Recipients that all cells before `cell` hold for a lane.
    #[must_use]
    pub const fn turns_before(&self, lane: Lane, cell: Cell) -> u64 {
        let all = self.before(cell);
        match lane {
            Lane::Priority => all,
            Lane::Bulk => all - mul_div(all, self.reserve_share.num, self.reserve_share.den),
        }
    }

    /// Recipients of a cell that are kept for newcomers until shortly before: its part by floor difference, at
    /// least one, where the cell holds [`SLICED_FROM`] and more.
    #[must_use]
    pub const fn sliced(&self, cell: Cell) -> u64 {
        let Share { num, den } = self.slice;
        if num == 0 || self.capacity(cell) < SLICED_FROM {
            return 0;
        }
        let slice =
            mul_div(self.before(Cell(cell.0 + 1)), num, den) - mul_div(self.before(cell), num, den);
        if slice == 0 { 1 } else { slice }
    }

    /// The first cell at or after `cell` in which the lane has any capacity: computed, not searched.
    ///
    /// Recipients are numbered 1, 2, 3, … over all cells. Recipient n is in the first cell c with
    /// C(c+1) ≥ n, so c + 1 = ⌈n ÷ r⌉. Bulk's j-th recipient is the first n with n − ⌊ρ·n⌋ ≥ j, that is
    /// ⌈(1−ρ)·n⌉ ≥ j, so n = ⌊(j−1) ÷ (1−ρ)⌋ + 1. Slowed down by f, the n-th is the ⌈n ÷ f⌉-th of all.
    #[must_use]
    pub const fn next_with_capacity(&self, lane: Lane, cell: Cell) -> Cell {
        let before = self.before(cell);
        let n = match lane {
            Lane::Priority => before + 1,
            Lane::Bulk => {
                let Share { num, den } = self.reserve_share;
                mul_div(before - mul_div(before, num, den), den, den - num) + 1
            }
        };
        let (whole, rest) = (n / self.factor, n % self.factor);
        let n = whole * FACTOR_ONE + (rest * FACTOR_ONE).div_ceil(self.factor);
        let (num, den) = (self.rate.num(), self.rate.den());
        // ⌈n ÷ r⌉ − 1 = ⌊(n·den − 1) ÷ num⌋, with n·den split as in `mul_div`.
        let whole = (n / num) * den;
        let rest = (n % num) * den;
        let found = if rest == 0 {
            whole - 1
        } else {
            whole + (rest - 1) / num
        };
        Cell(found)
    }

    /// What the lane's waiting line is served at, recipients per second, for estimates.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "an estimate, and the scripts compute it alike"
    )]
    pub fn line_rate(&self, lane: Lane) -> f64 {
        let rate = self.rate.num() as f64 / self.rate.den() as f64;
        let rate = match lane {
            Lane::Priority => rate,
            Lane::Bulk => rate - self.reserve.num() as f64 / self.reserve.den() as f64,
        };
        rate * self.factor as f64 / FACTOR_ONE as f64
    }
}

/// A factor of one: nothing is slowed down.
pub const FACTOR_ONE: u64 = 1024;
/// Seconds that hold fewer recipients have no slice: it would be too large a part.
pub const SLICED_FROM: u64 = 4;

/// Ticks of the guard in a second.
pub const GUARD_TICKS: u64 = 100;

impl Share {
    /// `part ÷ whole`: exact where its terms are small enough, else rounded down to a millionth or so.
    /// `mul_div` by den ÷ (den − num) needs den² below 2^53.
    fn of(part: Rate, whole: Rate) -> Self {
        let wide = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let (num, den) = (wide(part.num(), whole.den()), wide(part.den(), whole.num()));
        let (mut a, mut b) = (num, den);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        let small = |n: u128| u64::try_from(n).ok().filter(|n| *n < 1 << 26);
        match (small(num / a), small(den / a)) {
            (Some(num), Some(den)) => Self { num, den },
            _ => Self {
                num: u64::try_from((num << 20) / den).unwrap_or(0),
                den: 1 << 20,
            },
        }
    }
}

/// ⌊x·num ÷ den⌋ without a product above num·den or the result: exact in Lua, too.
#[must_use]
pub const fn mul_div(x: u64, num: u64, den: u64) -> u64 {
    (x / den) * num + (x % den) * num / den
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    fn settings(limit: &str, headroom: &str, reserve: &str) -> Settings {
        Settings {
            limit: rate(limit),
            headroom: rate(headroom),
            guard: rate("1"),
            burst: None,
            reserve: rate(reserve),
            slice: Rate::ZERO,
            caps: Caps::default(),
            horizon: Millis::from_secs(60),
        }
    }

    #[test]
    fn fractional_rates_are_exact_in_the_long_run() {
        for (limit, headroom, days, expected) in [
            ("14", "0.8", 1, 967_680),  // 11.2/s
            ("1", "0.8", 1, 69_120),    // 0.8/s
            ("25/h", "0.8", 1, 480),    // 20/h
            ("200/d", "0.9", 10, 1800), // 180/d
        ] {
            let budget = Budget::new(settings(limit, headroom, "0")).unwrap();
            let start = 1_796_000_000;
            let total: u64 = (start..start + days * 86_400)
                .map(|c| budget.capacity(Cell(c)))
                .sum();
            assert_eq!(total, expected, "{limit} × {headroom}");
        }
    }

    #[test]
    fn at_eight_tenths_a_second_four_of_five_cells_hold_one() {
        let budget = Budget::new(settings("1", "0.8", "0")).unwrap();
        let cells: Vec<u64> = (0..10).map(|c| budget.capacity(Cell(c))).collect();
        assert_eq!(cells, [0, 1, 1, 1, 1, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn a_small_reserve_takes_its_exact_part_of_the_cells() {
        let budget = Budget::new(settings("10", "0.8", "0.1")).unwrap();
        let reserved: u64 = (0..1000).map(|c| budget.reserved(Cell(c))).sum();
        assert_eq!(reserved, 100);
        assert!((0..1000).all(|c| budget.reserved(Cell(c)) <= 1));
    }

    #[test]
    fn a_reserve_above_half_the_rate_is_cut_to_half() {
        let budget = Budget::new(settings("1", "0.9", "2")).unwrap();
        assert_eq!(budget.reserve(), rate("0.45"));
    }

    #[test]
    fn the_burst_defaults_to_what_the_guard_leaves() {
        let burst = |guard: &str| {
            let guard = rate(guard);
            Budget::new(Settings {
                guard,
                ..settings("100", "0.5", "0")
            })
            .unwrap()
            .burst()
        };
        assert_eq!((burst("0.95"), burst("0.99"), burst("1")), (5, 1, 1));
    }

    #[test]
    fn what_makes_no_budget_says_why() {
        let good = settings("100", "0.9", "2");
        let refused = |settings| Budget::new(settings).unwrap_err().to_string();
        for (settings, says) in [
            (
                Settings {
                    limit: Rate::ZERO,
                    ..good
                },
                "limit is 0/s",
            ),
            (
                Settings {
                    headroom: rate("0.995"),
                    ..good
                },
                "headroom 0.995 and guard 1",
            ),
            (
                Settings {
                    headroom: Rate::ZERO,
                    ..good
                },
                "headroom 0 ",
            ),
            (
                Settings {
                    guard: rate("1.01"),
                    ..good
                },
                "guard 1.01",
            ),
            (
                Settings {
                    burst: Some(0),
                    ..good
                },
                "burst is 0",
            ),
            (
                Settings {
                    burst: Some(101),
                    ..good
                },
                "burst is 101",
            ),
            (
                Settings {
                    horizon: Millis(999),
                    ..good
                },
                "booking horizon is 999 ms",
            ),
            (
                Settings {
                    horizon: Millis(900_001),
                    ..good
                },
                "booking horizon is 900001 ms",
            ),
        ] {
            let text = refused(settings);
            assert!(text.contains(says), "{text:?} lacks {says:?}");
        }
    }

    proptest! {
        /// The computed next cell is the one a search finds.
        #[test]
        fn next_with_capacity_is_what_a_search_finds(
            num in 1_u64..400, den in 1_u64..400, reserve_num in 0_u64..50, from in 0_u64..2_000_000_000,
            factor in prop_oneof![Just(FACTOR_ONE), 30_u64..FACTOR_ONE],
        ) {
            let limit = Rate::new(num, den).unwrap();
            let reserve = Rate::new(reserve_num, 100).unwrap();
            let made = Budget::new(Settings { limit, reserve, ..settings("1", "0.9", "0") });
            prop_assume!(made.is_ok());
            let budget = made.unwrap().slowed(factor);
            for lane in Lane::ALL {
                let has = |c: &u64| match lane {
                    Lane::Priority => budget.capacity(Cell(*c)) > 0,
                    Lane::Bulk => budget.capacity(Cell(*c)) > budget.reserved(Cell(*c)),
                };
                let searched = (from..from + 200_000).find(has).unwrap();
                prop_assert_eq!(budget.next_with_capacity(lane, Cell(from)), Cell(searched));
            }
        }

        /// The reserve never takes more of a cell than it holds, and its long-run part is exact.
        #[test]
        fn the_reserve_fits_into_its_cells(num in 1_u64..2000, den in 1_u64..100, reserve in 0_u64..400, from in 0_u64..2_000_000_000) {
            let limit = Rate::new(num, den).unwrap();
            let made = Budget::new(Settings { limit, reserve: Rate::new(reserve, 7).unwrap(), ..settings("1", "0.9", "0") });
            prop_assume!(made.is_ok());
            let budget = made.unwrap();
            let mut total = 0;
            for c in from..from + 700 {
                prop_assert!(budget.reserved(Cell(c)) <= budget.capacity(Cell(c)));
                total += budget.reserved(Cell(c));
            }
            let share = budget.reserve_share();
            let exact = budget.before(Cell(from + 700)) - budget.before(Cell(from));
            let expected = mul_div(exact, share.num, share.den);
            prop_assert!(total.abs_diff(expected) <= 1);
        }
    }
}
