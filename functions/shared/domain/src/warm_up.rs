//! Warming up: a tenant's cap by the day since it began.
//!
//! Receivers trust an address or a domain that they don't know only slowly. A schedule is data: from which day on how many
//! recipients may be sent to, in any hour or in any day. Providers' own ramps are in `docs/warm-up`.
//!
//! - **Days are UTC days**, the start is day 1. Whether a day has come is up to the caller, who gives today.
//! - **A step holds until the next**: days that aren't named have the cap of the last one reached.
//! - **Before the start, the first step holds.** Nothing at all would be a surprise: a start that was typed a year too late would
//!   stop a tenant that is only supposed to be careful.
//! - **After the last step its cap stays**, unless the schedule ends: after its last day there is none.
//! - A step caps either the hour or the day. The other is then without a cap of the warm-up; a tenant's own caps hold
//!   besides, see [`tighter`].

use std::{fmt, str::FromStr};

use crate::{
    Moment,
    window::{Caps, Span},
};

/// A day of the proleptic Gregorian calendar in UTC, from 1970-01-01 to 9999-12-31.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Date {
    days: u32,
}

/// The text or the numbers make no date.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DateError {
    /// Not of the form YYYY-MM-DD.
    #[error("{0:?} is no date: write it as YYYY-MM-DD, for example 2026-11-30")]
    Syntax(String),
    /// Such a day doesn't exist, or is too far away.
    #[error(
        "{0} is no day of the calendar from 1970-01-01 to 9999-12-31: check year, month and day"
    )]
    NoSuchDay(String),
}

/// Years come again after 400, which are so many days.
const DAYS_OF_400_YEARS: u32 = 146_097;
/// 1970-01-01, counted in days from 0000-03-01.
const EPOCH: u32 = 719_468;
/// 9999-12-31, in days since 1970-01-01.
const LAST: u32 = 2_932_896;

impl Date {
    /// A day of the calendar; months and days count from 1.
    ///
    /// # Errors
    /// When there is no such day from 1970-01-01 to 9999-12-31.
    pub fn new(year: u32, month: u32, day: u32) -> Result<Self, DateError> {
        let wrong = || DateError::NoSuchDay(format!("{year:04}-{month:02}-{day:02}"));
        if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day)
        {
            return Err(wrong());
        }
        // Counted from March, a leap day is the last of its year, and the months' lengths are regular.
        let (from_march, march_year) = if month > 2 {
            (month - 3, year)
        } else {
            (month + 9, year - 1)
        };
        let leap_days = march_year / 4 - march_year / 100 + march_year / 400;
        let days = march_year * 365 + leap_days + days_to_month(from_march) + day - 1 - EPOCH;
        // A 31st that its month hasn't got comes out as one of the next month.
        let date = Self { days };
        if date.parts() != (year, month, day) {
            return Err(wrong());
        }
        Ok(date)
    }

    /// The UTC day that holds a moment; the last that can be written for all after it.
    #[must_use]
    pub fn of(moment: Moment) -> Self {
        let days = u32::try_from(moment.0 / 86_400_000).unwrap_or(LAST);
        Self {
            days: days.min(LAST),
        }
    }

    /// The day so many days after 1970-01-01, if it can be written.
    #[must_use]
    pub fn from_days(days: u32) -> Option<Self> {
        (days <= LAST).then_some(Self { days })
    }

    /// Days since 1970-01-01.
    #[must_use]
    pub const fn days(self) -> u32 {
        self.days
    }

    /// Year, month and day; the latter two count from 1.
    #[must_use]
    pub const fn parts(self) -> (u32, u32, u32) {
        let days = self.days + EPOCH;
        let (cycle, rest) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
        // Take the leap days out: one in 1461 days, but for one in 36,524, but for the very last.
        let leap_days = rest / 1460 - rest / 36_524 + rest / (DAYS_OF_400_YEARS - 1);
        let year_of_cycle = (rest - leap_days) / 365;
        let before = year_of_cycle * 365 + year_of_cycle / 4 - year_of_cycle / 100;
        let day_of_year = rest - before;
        let from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - days_to_month(from_march) + 1;
        let year = cycle * 400 + year_of_cycle;
        if from_march < 10 {
            (year, from_march + 3, day)
        } else {
            (year + 1, from_march - 9, day)
        }
    }
}

/// Days from the first of March to the first of the month so many months later: five months have 153 in turn.
const fn days_to_month(from_march: u32) -> u32 {
    (153 * from_march + 2) / 5
}

impl FromStr for Date {
    type Err = DateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let syntax = || DateError::Syntax(text.to_owned());
        let shape = text.len() == 10
            && text.bytes().enumerate().all(|(at, byte)| match at {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        if !shape {
            return Err(syntax());
        }
        let number = |from: usize, to: usize| {
            text.get(from..to)
                .and_then(|part| part.parse::<u32>().ok())
                .ok_or_else(syntax)
        };
        Self::new(number(0, 4)?, number(5, 7)?, number(8, 10)?)
    }
}

impl fmt::Display for Date {
    /// As [`Date::from_str`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.parts();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

/// From a day on, at most so many recipients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The first day of the step; the start is day 1.
    pub day: u32,
    /// Recipients, 1 to [`Caps::MAX`].
    pub cap: u64,
    /// In any hour or in any day.
    pub per: Span,
}

/// A window by its name in a schedule: `hour` or `day`.
///
/// # Errors
/// When it is neither.
pub fn span_named(name: &str) -> Result<Span, WarmUpError> {
    match name {
        "hour" => Ok(Span::Hour),
        "day" => Ok(Span::Day),
        _ => Err(WarmUpError::Per(name.to_owned())),
    }
}

/// The schedule can't be followed. Steps are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WarmUpError {
    /// It is empty.
    #[error("warm-up schedule has no steps: give at least one, or leave the warm-up out")]
    NoSteps,
    /// A step before the start.
    #[error("step {step} of the warm-up schedule is for day 0: the start is day 1")]
    DayZero {
        /// Which.
        step: usize,
    },
    /// A step that isn't after the one before it.
    #[error(
        "step {step} of the warm-up schedule is for day {day}, the one before it for day {before}: sort the steps by day \
         and name each day once"
    )]
    Order {
        /// Which.
        step: usize,
        /// Its day.
        day: u32,
        /// The day of the step before it.
        before: u32,
    },
    /// A cap that can't be kept.
    #[error(
        "step {step} of the warm-up schedule caps at {cap}: give 1 to {max} recipients; to stop a tenant, pause it",
        max = Caps::MAX
    )]
    Cap {
        /// Which.
        step: usize,
        /// Its cap.
        cap: u64,
    },
    /// Not the name of a window.
    #[error("a warm-up step caps per {0:?}: write \"hour\" or \"day\"")]
    Per(String),
    /// It ends before its last step.
    #[error(
        "warm-up schedule ends after day {ends}, before its last step on day {last}: end it on day {last} or later, or \
         drop the steps after it"
    )]
    Ends {
        /// The last day.
        ends: u32,
        /// The day of the last step.
        last: u32,
    },
}

/// A schedule with its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmUp {
    start: Date,
    steps: Vec<Step>,
    ends: Option<u32>,
}

impl WarmUp {
    /// Checks the steps. `ends` is the last day that has a cap; `None` keeps the last step's for good.
    ///
    /// # Errors
    /// When there are none, their days don't rise strictly from 1 or more, a cap is out of range, or it ends too early. Caps
    /// needn't rise: a ramp may well take a step back.
    pub fn new(start: Date, steps: Vec<Step>, ends: Option<u32>) -> Result<Self, WarmUpError> {
        let mut before = None;
        for (&Step { day, cap, .. }, step) in steps.iter().zip(1..) {
            if day == 0 {
                return Err(WarmUpError::DayZero { step });
            }
            if let Some(before) = before.filter(|before| day <= *before) {
                return Err(WarmUpError::Order { step, day, before });
            }
            if cap == 0 || cap > Caps::MAX {
                return Err(WarmUpError::Cap { step, cap });
            }
            before = Some(day);
        }
        let last = before.ok_or(WarmUpError::NoSteps)?;
        if let Some(ends) = ends.filter(|ends| *ends < last) {
            return Err(WarmUpError::Ends { ends, last });
        }
        Ok(Self { start, steps, ends })
    }

    /// Its first day.
    #[must_use]
    pub const fn start(&self) -> Date {
        self.start
    }

    /// Its steps, by day.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The day of the warm-up: 1 at the start, 0 before it.
    #[must_use]
    pub const fn day(&self, today: Date) -> u32 {
        (today.days + 1).saturating_sub(self.start.days)
    }

    /// What holds today; nothing once it has ended.
    #[must_use]
    pub fn caps(&self, today: Date) -> Caps {
        let day = self.day(today);
        if self.ends.is_some_and(|ends| day > ends) {
            return Caps::default();
        }
        let reached = self.steps.partition_point(|step| step.day <= day);
        let Some(step) = self.steps.get(reached.saturating_sub(1)) else {
            return Caps::default(); // never: there is a step
        };
        match step.per {
            Span::Hour => Caps {
                hour: Some(step.cap),
                day: None,
            },
            Span::Day => Caps {
                hour: None,
                day: Some(step.cap),
            },
        }
    }
}

/// The lower cap of each window: a tenant's own and those of its warm-up hold together.
#[must_use]
pub fn tighter(a: Caps, b: Caps) -> Caps {
    let lower = |span| a.of(span).into_iter().chain(b.of(span)).min();
    Caps {
        hour: lower(Span::Hour),
        day: lower(Span::Day),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn date(text: &str) -> Date {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    fn step(day: u32, cap: u64, per: &str) -> Step {
        Step {
            day,
            cap,
            per: span_named(per).unwrap(),
        }
    }

    fn shown(caps: Caps) -> String {
        let window = |cap: Option<u64>| cap.map_or("-".to_owned(), |cap| cap.to_string());
        format!("{} {}", window(caps.hour), window(caps.day))
    }

    #[test]
    fn dates_are_days_since_1970() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1970-12-31", 364),
            ("1972-02-29", 789),
            ("1972-03-01", 790),
            ("2000-01-01", 10_957),
            ("2000-02-29", 11_016),
            ("2026-11-30", 20_787),
            ("2100-03-01", 47_541),
            ("9999-12-31", LAST),
        ] {
            let date = date(text);
            assert_eq!(date.days(), days, "{text}");
            assert_eq!(date.to_string(), text);
            assert_eq!(Date::from_days(days), Some(date));
        }
        assert_eq!(Date::from_days(LAST + 1), None);
        assert_eq!(Date::of(Moment(86_400_000 - 1)), date("1970-01-01"));
        assert_eq!(Date::of(Moment(86_400_000)), date("1970-01-02"));
        assert_eq!(Date::of(Moment(u64::MAX)), date("9999-12-31"));
    }

    /// Day by day by the rules as one learns them at school.
    #[test]
    fn every_day_follows_the_one_before_it() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..=LAST {
            let date = Date::from_days(days).unwrap();
            assert_eq!(date.parts(), (year, month, day), "day {days}");
            assert_eq!(Date::new(year, month, day), Ok(date));
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + u32::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
        assert_eq!((year, month, day), (10_000, 1, 1));
    }

    #[test]
    fn what_is_no_date_is_refused_with_its_text() {
        for text in [
            "",
            "today",
            "2026-1-01",
            "2026/11/30",
            "2026-11-30T00:00:00Z",
            "+026-11-30",
            " 2026-11-3",
            "٢٠٢٦-11",
            "2026-11-3é",
        ] {
            assert_eq!(
                text.parse::<Date>(),
                Err(DateError::Syntax(text.into())),
                "{text}"
            );
        }
        for text in [
            "2026-02-29",
            "2100-02-29",
            "2026-13-01",
            "2026-00-10",
            "2026-04-31",
            "2026-01-00",
            "2026-01-99",
            "1969-12-31",
            "0000-01-01",
        ] {
            assert_eq!(
                text.parse::<Date>(),
                Err(DateError::NoSuchDay(text.into())),
                "{text}"
            );
        }
    }

    #[test]
    fn the_last_step_reached_holds() {
        let steps = vec![
            step(1, 20, "hour"),
            step(3, 30, "hour"),
            step(10, 1000, "day"),
        ];
        let kept = WarmUp::new(date("2026-11-30"), steps.clone(), None).unwrap();
        let ended = WarmUp::new(date("2026-11-30"), steps, Some(12)).unwrap();
        for (today, caps, after) in [
            ("2025-11-30", "20 -", "20 -"), // before the start, too
            ("2026-11-29", "20 -", "20 -"),
            ("2026-11-30", "20 -", "20 -"),
            ("2026-12-01", "20 -", "20 -"),
            ("2026-12-02", "30 -", "30 -"),
            ("2026-12-08", "30 -", "30 -"),
            ("2026-12-09", "- 1000", "- 1000"),
            ("2026-12-11", "- 1000", "- 1000"),
            ("2026-12-12", "- 1000", "- -"),
            ("9999-12-31", "- 1000", "- -"),
        ] {
            assert_eq!(shown(kept.caps(date(today))), caps, "{today}");
            assert_eq!(shown(ended.caps(date(today))), after, "{today}");
        }
        let late = WarmUp::new(date("2026-11-30"), vec![step(5, 7, "day")], None).unwrap();
        assert_eq!(shown(late.caps(date("2026-11-30"))), "- 7");
    }

    #[test]
    fn a_schedule_says_what_is_wrong_with_it() {
        let ok = step(1, 20, "hour");
        for (steps, ends, says) in [
            (vec![], None, "no steps"),
            (
                vec![step(0, 1, "day")],
                None,
                "step 1 of the warm-up schedule is for day 0",
            ),
            (
                vec![ok, step(1, 30, "hour")],
                None,
                "step 2 of the warm-up schedule is for day 1, the one before it for day 1",
            ),
            (
                vec![ok, step(9, 1, "day"), step(8, 1, "day")],
                None,
                "step 3 of the warm-up schedule is for day 8",
            ),
            (
                vec![ok, step(2, 0, "day")],
                None,
                "step 2 of the warm-up schedule caps at 0",
            ),
            (
                vec![step(1, Caps::MAX + 1, "day")],
                None,
                "caps at 4320000001",
            ),
            (
                vec![ok, step(5, 1, "day")],
                Some(4),
                "ends after day 4, before its last step on day 5",
            ),
        ] {
            let text = WarmUp::new(date("2026-11-30"), steps, ends)
                .unwrap_err()
                .to_string();
            assert!(text.contains(says), "{text:?} lacks {says:?}");
        }
        let text = span_named("week").unwrap_err().to_string();
        assert!(text.contains("\"week\""), "{text}");
    }

    #[test]
    fn both_sets_of_caps_hold_together() {
        let caps = |hour, day| Caps { hour, day };
        let both = tighter(caps(Some(20), Some(900)), caps(Some(30), Some(500)));
        assert_eq!(both, caps(Some(20), Some(500)));
        let one = tighter(caps(None, Some(900)), caps(Some(30), None));
        assert_eq!(one, caps(Some(30), Some(900)));
        assert_eq!(tighter(Caps::default(), Caps::default()), Caps::default());
    }

    proptest! {
        /// On each day the cap is that of the step which a search finds, and a valid schedule always has one.
        #[test]
        fn the_cap_is_what_a_search_finds(
            gaps in prop::collection::vec((1_u32..20, 1_u64..1_000_000, any::<bool>()), 1..50),
            start in 1000_u32..40_000, ahead in 0_u32..1500, spare in prop::option::of(0_u32..20),
        ) {
            let mut day = 0;
            let steps: Vec<Step> = gaps.iter().map(|(gap, cap, hour)| {
                day += gap;
                step(day, *cap, if *hour { "hour" } else { "day" })
            }).collect();
            let ends = spare.map(|spare| day + spare);
            let start = Date::from_days(start).unwrap();
            let warm_up = WarmUp::new(start, steps.clone(), ends).unwrap();
            let today = Date::from_days(start.days() + ahead - 500.min(ahead)).unwrap();
            let nth = today.days() + 1 - start.days();
            let found = steps.iter().rfind(|step| step.day <= nth).unwrap_or(&steps[0]);
            let caps = warm_up.caps(today);
            if ends.is_some_and(|ends| nth > ends) {
                prop_assert_eq!(caps, Caps::default());
            } else {
                prop_assert_eq!(caps.of(found.per), Some(found.cap));
                prop_assert_eq!(u8::from(caps.hour.is_some()) + u8::from(caps.day.is_some()), 1);
            }
        }
    }
}
