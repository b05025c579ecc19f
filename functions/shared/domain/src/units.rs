//! Units as types: moments, durations, cells and rates.

use std::{fmt, str::FromStr};

/// A duration in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Millis(pub u64);

impl Millis {
    /// So many whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1000)
    }

    /// Whole seconds, rounded down: what SQS takes as `DelaySeconds`.
    #[must_use]
    pub const fn whole_secs(self) -> u64 {
        self.0 / 1000
    }
}

impl From<Millis> for std::time::Duration {
    fn from(ms: Millis) -> Self {
        Self::from_millis(ms.0)
    }
}

/// A moment on the Redis clock, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// The cell that holds this moment.
    #[must_use]
    pub const fn cell(self) -> Cell {
        Cell(self.0 / 1000)
    }

    /// How long until `later`; zero when that is past.
    #[must_use]
    pub const fn until(self, later: Self) -> Millis {
        Millis(later.0.saturating_sub(self.0))
    }
}

impl std::ops::Add<Millis> for Moment {
    type Output = Self;

    /// So much later; the last moment there is, where that would be beyond it: moments come out of messages, too.
    fn add(self, rhs: Millis) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

/// One second of the schedule, counted from the Unix epoch on the Redis clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cell(pub u64);

impl Cell {
    /// The cell's first millisecond; the last moment there is, for a cell beyond it.
    #[must_use]
    pub const fn start(self) -> Moment {
        Moment(self.0.saturating_mul(1000))
    }
}

/// Recipients per second, as an exact fraction in lowest terms.
///
/// `11.2/s` is 56/5 and `20/h` is 1/180, so what the schedule hands out is exact in the long run.
/// Numerator × denominator stays below 2^43, which keeps every product the scripts form inside the
/// 2^53 that a Lua number holds exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    num: u64,
    den: u64,
}

/// The text or the numbers make no rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// Not a number with an optional unit.
    #[error("{0:?} is no rate: write for example \"100\", \"11.2/s\" or \"20/h\"")]
    Syntax(String),
    /// Above what the schedule is built for.
    #[error("{0} is above the {max} recipients/s that the schedule holds", max = Rate::MAX_PER_SECOND)]
    TooHigh(String),
    /// So many digits that it can't be kept exact.
    #[error("{0} has more digits than can be kept exact: use at most six after the point")]
    TooFine(String),
}

impl Rate {
    /// The greatest rate, in recipients per second.
    pub const MAX_PER_SECOND: u64 = 50_000;
    const MAX_PRODUCT: u64 = 1 << 43;

    /// One half, as a fraction.
    pub const HALF: Self = Self { num: 1, den: 2 };

    /// One, as a fraction: all of it.
    pub const ONE: Self = Self { num: 1, den: 1 };

    /// Nothing at all.
    pub const ZERO: Self = Self { num: 0, den: 1 };

    /// `num ÷ den` recipients per second.
    ///
    /// # Errors
    /// When the rate is above [`Rate::MAX_PER_SECOND`], or its terms are too large to be exact.
    pub fn new(num: u64, den: u64) -> Result<Self, RateError> {
        let text = || format!("{num}/{den}");
        if den == 0 {
            return Err(RateError::Syntax(text()));
        }
        let common = gcd(num, den);
        let (num, den) = (num / common, den / common);
        if num / den > Self::MAX_PER_SECOND || (num / den == Self::MAX_PER_SECOND && num % den > 0)
        {
            return Err(RateError::TooHigh(text()));
        }
        if num
            .checked_mul(den)
            .is_none_or(|product| product >= Self::MAX_PRODUCT)
        {
            return Err(RateError::TooFine(text()));
        }
        Ok(Self { num, den })
    }

    /// The numerator in lowest terms.
    #[must_use]
    pub const fn num(self) -> u64 {
        self.num
    }

    /// The denominator in lowest terms.
    #[must_use]
    pub const fn den(self) -> u64 {
        self.den
    }

    /// Whether nothing may go at this rate.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.num == 0
    }

    /// The rate as a floating-point number, for people and metrics only.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "both terms are below 2^43")]
    pub fn per_second(self) -> f64 {
        self.num as f64 / self.den as f64
    }

    /// This rate times `fraction` (itself a ratio, such as a headroom of 98/100): exact where that can be kept
    /// exact, else the largest rate below it that can; at most [`Rate::MAX_PER_SECOND`]. No product of settings
    /// is refused for its digits.
    #[must_use]
    pub fn times(self, fraction: Self) -> Self {
        let wide = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let (num, den) = (wide(self.num, fraction.num), wide(self.den, fraction.den));
        if num >= u128::from(Self::MAX_PER_SECOND) * den {
            return Self {
                num: Self::MAX_PER_SECOND,
                den: 1,
            };
        }
        Self::at_most(num, den)
    }

    /// `num ÷ den` where that can be kept exact, else the largest rate below it that can.
    fn at_most(num: u128, den: u128) -> Self {
        let common = gcd_wide(num, den);
        if let (Ok(num), Ok(den)) = (u64::try_from(num / common), u64::try_from(den / common))
            && let Ok(exact) = Self::new(num, den)
        {
            return exact;
        }
        // The finest binary fraction that still fits.
        let below = (0..42).rev().find_map(|bits| {
            let rounded = u64::try_from((num << bits) / den).ok()?;
            Self::new(rounded, 1 << bits).ok()
        });
        below.unwrap_or(Self::ZERO)
    }
}

impl Ord for Rate {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let wide = |a: u64, b: u64| u128::from(a) * u128::from(b);
        wide(self.num, other.den).cmp(&wide(other.num, self.den))
    }
}

impl PartialOrd for Rate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for Rate {
    type Err = RateError;

    /// Reads `100`, `11.2`, `0.8/s`, `30/m`, `20/h` or `200/d`; digits that can't all be kept exact are rounded down.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let syntax = || RateError::Syntax(text.to_owned());
        let (number, per) = match text.trim().split_once('/') {
            None => (text.trim(), 1),
            Some((number, unit)) => {
                let seconds = match unit.trim() {
                    "s" => 1,
                    "m" | "min" => 60,
                    "h" => 3600,
                    "d" => 86_400,
                    _ => return Err(syntax()),
                };
                (number.trim(), seconds)
            }
        };
        let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty()
            || !digits(whole)
            || !digits(decimals)
            || (number.contains('.') && decimals.is_empty())
        {
            return Err(syntax());
        }
        let decimals = decimals.trim_end_matches('0');
        let places = u32::try_from(decimals.len()).ok().filter(|n| *n <= 6);
        let scale = 10_u64.pow(places.ok_or_else(|| RateError::TooFine(text.to_owned()))?);
        let too_high = |_| RateError::TooHigh(text.to_owned());
        let whole: u64 = whole.parse().map_err(too_high)?;
        let part: u64 = if decimals.is_empty() {
            0
        } else {
            decimals.parse().map_err(too_high)?
        };
        let (num, den) = (
            u128::from(whole) * u128::from(scale) + u128::from(part),
            u128::from(scale * per),
        );
        if num > u128::from(Self::MAX_PER_SECOND) * den {
            return Err(RateError::TooHigh(text.to_owned()));
        }
        Ok(Self::at_most(num, den))
    }
}

impl fmt::Display for Rate {
    /// As [`Rate::from_str`] reads it, such as `11.2/s`; six decimals a second where no unit makes it exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, seconds) in [("s", 1_u64), ("m", 60), ("h", 3600), ("d", 86_400)] {
            let scaled = u128::from(self.num) * u128::from(seconds) * 1_000_000;
            if scaled.is_multiple_of(u128::from(self.den)) {
                let micro = scaled / u128::from(self.den);
                let decimals = format!("{:06}", micro % 1_000_000);
                let decimals = decimals.trim_end_matches('0');
                let point = if decimals.is_empty() { "" } else { "." };
                return write!(f, "{}{point}{decimals}/{unit}", micro / 1_000_000);
            }
        }
        write!(f, "{:.6}/s", self.per_second())
    }
}

const fn gcd_wide(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd_wide(b, a % b) }
}

pub(crate) const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn moments_that_no_clock_shows_stay_the_last_ones() {
        let last = Moment(u64::MAX);
        assert_eq!(last + Millis(1), last);
        assert_eq!(Cell(u64::MAX).start(), last);
        assert_eq!(last.cell().start(), Moment(u64::MAX / 1000 * 1000));
    }

    #[test]
    fn rates_are_exact_fractions_and_print_as_they_are_written() {
        for (text, num, den, shown) in [
            ("100", 100, 1, "100/s"),
            ("11.2/s", 56, 5, "11.2/s"),
            ("0.8", 4, 5, "0.8/s"),
            ("20/h", 1, 180, "20/h"),
            ("30/m", 1, 2, "0.5/s"),
            ("200/d", 1, 432, "200/d"),
            ("0", 0, 1, "0/s"),
        ] {
            let read = rate(text);
            assert_eq!((read.num(), read.den()), (num, den), "{text}");
            assert_eq!(read.to_string(), shown);
            assert_eq!(rate(shown), read);
        }
    }

    #[test]
    fn what_is_no_rate_is_refused_with_its_text() {
        for text in ["", "fast", "1/fortnight", ".5", "1.", "-1", "1e3", "٣"] {
            assert_eq!(
                text.parse::<Rate>(),
                Err(RateError::Syntax(text.into())),
                "{text}"
            );
        }
        assert!(matches!(
            "50001".parse::<Rate>(),
            Err(RateError::TooHigh(_))
        ));
        assert!(matches!(
            "0.1234567".parse::<Rate>(),
            Err(RateError::TooFine(_))
        ));
    }

    #[test]
    fn what_cant_be_exact_is_rounded_down_by_next_to_nothing() {
        for (a, b) in [
            ("14.567", "0.951"),
            ("10007/d", "0.95"),
            ("49999.999", "0.987654"),
            ("0.000001", "0.000001"),
        ] {
            let (a, b) = (rate(a), rate(b));
            let product = a.times(b);
            let ideal = a.per_second() * b.per_second();
            assert!(product.per_second() <= ideal * (1.0 + 1e-12), "{a:?} {b:?}");
            assert!(
                product.per_second() >= ideal * (1.0 - 1e-6) - 1e-12,
                "{a:?} × {b:?} = {product:?}"
            );
        }
    }

    #[test]
    fn a_fraction_of_a_rate_is_exact() {
        assert_eq!(rate("14").times(rate("0.8")), rate("11.2"));
        assert_eq!(rate("100").times(rate("0.98")), rate("98"));
        assert_eq!(Rate::ZERO.times(rate("0.98")), Rate::ZERO);
    }
}
