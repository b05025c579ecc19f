//! When a tenant's bounces and complaints are too many.
//!
//! A provider pauses the whole account over one bad list, so a tenant is paused before it comes to that. Ratios alone would pause a tenant
//! of three mails for one bounce: each has a least number of recipients sent to and of events, below which it says nothing. The defaults are
//! what a large sender settled on (`complaints 1 % over 1 h or 0.3 % over 24 h, bounces 10 % over 1 h or 5 % over 24 h`); Amazon SES
//! itself reviews an account at 5 % bounces and 0.1 % complaints, and may pause it at 10 % and 0.5 %.

use std::fmt;

/// What was counted of a tenant's mail over some time, in recipients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sent to.
    pub sent: u64,
    /// Of these, bounced.
    pub bounced: u64,
    /// Of these, complained.
    pub complained: u64,
}

/// How much is too much, of one kind and over one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Events among a million recipients sent to, from which on it is too much; above 0, at most [`Limit::WHOLE`].
    pub ppm: u32,
    /// So many must have been sent to, at least.
    pub sent: u64,
    /// So many events there must be, at least; above 0.
    pub events: u64,
}

impl Limit {
    /// All of them, in [`Limit::ppm`].
    pub const WHOLE: u32 = 1_000_000;

    /// Whether so many events among so many recipients reach this limit.
    #[must_use]
    pub fn is_reached(&self, events: u64, sent: u64) -> bool {
        // What was sent may be told later than what bounced of it.
        let sent = sent.max(events);
        let part = u128::from(events) * u128::from(Self::WHOLE);
        sent >= self.sent
            && events >= self.events.max(1)
            && part >= u128::from(self.ppm) * u128::from(sent)
    }

    /// Half of it, for a warning.
    #[must_use]
    pub fn half(&self) -> Self {
        Self {
            ppm: self.ppm.div_ceil(2),
            events: self.events.div_ceil(2),
            ..*self
        }
    }
}

/// All limits of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Bounces in an hour.
    pub bounce_hour: Limit,
    /// Bounces in 24 hours.
    pub bounce_day: Limit,
    /// Complaints in an hour.
    pub complaint_hour: Limit,
    /// Complaints in 24 hours.
    pub complaint_day: Limit,
}

impl Default for Thresholds {
    fn default() -> Self {
        let limit = |ppm, sent, events| Limit { ppm, sent, events };
        Self {
            bounce_hour: limit(100_000, 200, 20),
            bounce_day: limit(50_000, 1000, 50),
            complaint_hour: limit(10_000, 200, 5),
            complaint_day: limit(3000, 1000, 10),
        }
    }
}

/// What there is too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bounces.
    Bounces,
    /// Complaints.
    Complaints,
}

/// A limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Of what.
    pub kind: Kind,
    /// Over how many hours: 1 or 24.
    pub hours: u8,
    /// How many events there are.
    pub events: u64,
    /// Among how many recipients.
    pub sent: u64,
    /// The limit.
    pub limit: Limit,
}

impl fmt::Display for Breach {
    /// For people, without spaces at its ends or line breaks: it becomes a pause's reason.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Bounces => "bounces",
            Kind::Complaints => "complaints",
        };
        let Self {
            hours,
            events,
            sent,
            limit,
            ..
        } = self;
        let percent = f64::from(limit.ppm) / 10_000.0;
        let had = *events as f64 * 100.0 / (*sent).max(1) as f64;
        write!(
            f,
            "{kind}: {events} of {sent} recipients in {hours} h are {had:.2} %, the limit is {percent} %"
        )
    }
}

/// What is to be done about a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// Say that it comes near a limit.
    Warn(Breach),
    /// Let it send nothing more.
    Pause(Breach),
}

/// Judges a tenant by what was counted over the last hour and the last 24.
#[must_use]
pub fn judge(thresholds: &Thresholds, hour: Counts, day: Counts) -> Verdict {
    let all = [
        (
            Kind::Complaints,
            1,
            hour.complained,
            hour.sent,
            thresholds.complaint_hour,
        ),
        (
            Kind::Complaints,
            24,
            day.complained,
            day.sent,
            thresholds.complaint_day,
        ),
        (
            Kind::Bounces,
            1,
            hour.bounced,
            hour.sent,
            thresholds.bounce_hour,
        ),
        (
            Kind::Bounces,
            24,
            day.bounced,
            day.sent,
            thresholds.bounce_day,
        ),
    ];
    let find = |half: bool| {
        all.iter().find_map(|&(kind, hours, events, sent, limit)| {
            let reached = if half { limit.half() } else { limit };
            reached.is_reached(events, sent).then_some(Breach {
                kind,
                hours,
                events,
                sent,
                limit,
            })
        })
    };
    if let Some(breach) = find(false) {
        return Verdict::Pause(breach);
    }
    find(true).map_or(Verdict::Fine, Verdict::Warn)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn counts(sent: u64, bounced: u64, complained: u64) -> Counts {
        Counts {
            sent,
            bounced,
            complained,
        }
    }

    fn verdict(hour: Counts, day: Counts) -> Verdict {
        judge(&Thresholds::default(), hour, day)
    }

    fn is_paused(hour: Counts, day: Counts) -> bool {
        matches!(verdict(hour, day), Verdict::Pause(_))
    }

    #[test]
    fn a_tenant_of_three_mails_is_not_paused_by_one_bounce() {
        let few = counts(3, 1, 1);
        assert_eq!(verdict(few, few), Verdict::Fine);
    }

    #[test]
    fn each_limit_pauses_at_its_figure_and_not_before() {
        let none = counts(0, 0, 0);
        for (hour, day, pauses) in [
            (counts(200, 20, 0), none, true),
            (counts(200, 19, 0), none, false),
            (counts(199, 100, 0), none, false),
            (counts(201, 20, 0), none, false),
            (counts(200, 0, 5), none, true),
            (counts(200, 0, 4), none, false),
            (counts(501, 0, 5), none, false),
            (none, counts(1000, 50, 0), true),
            (none, counts(999, 99, 0), false),
            (none, counts(1001, 50, 0), false),
            (none, counts(1000, 0, 10), true),
            (none, counts(3334, 0, 10), false),
        ] {
            assert_eq!(is_paused(hour, day), pauses, "{hour:?} {day:?}");
        }
    }

    #[test]
    fn half_of_a_limit_warns() {
        let warned = verdict(counts(200, 10, 0), counts(200, 10, 0));
        assert!(
            matches!(
                warned,
                Verdict::Warn(Breach {
                    kind: Kind::Bounces,
                    hours: 1,
                    ..
                })
            ),
            "{warned:?}"
        );
        assert_eq!(verdict(counts(200, 9, 0), counts(200, 9, 0)), Verdict::Fine);
    }

    #[test]
    fn a_reason_says_what_and_how_much() {
        let Verdict::Pause(breach) = verdict(counts(400, 50, 0), counts(0, 0, 0)) else {
            panic!("not paused");
        };
        assert_eq!(
            breach.to_string(),
            "bounces: 50 of 400 recipients in 1 h are 12.50 %, the limit is 10 %"
        );
    }

    proptest! {
        /// More events, or fewer recipients above the gate, never make it better.
        #[test]
        fn more_events_never_help(sent in 0..100_000_u64, bounced in 0..10_000_u64, more in 0..1000_u64) {
            let one = counts(sent, bounced, 0);
            let worse = counts(sent, bounced + more, 0);
            prop_assert!(!is_paused(one, one) || is_paused(worse, worse));
        }

        /// Whoever is paused was over: the share and both gates, counted by hand.
        #[test]
        fn whoever_is_paused_was_over(sent in 0..5000_u64, bounced in 0..600_u64) {
            let share = |percent: u64| bounced * 100 >= percent * sent.max(bounced);
            let over = sent.max(bounced) >= 200 && bounced >= 20 && share(10)
                || sent.max(bounced) >= 1000 && bounced >= 50 && share(5);
            let one = counts(sent, bounced, 0);
            prop_assert_eq!(is_paused(one, one), over);
        }
    }
}
