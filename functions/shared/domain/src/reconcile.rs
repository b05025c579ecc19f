//! The provider's count of the last 24 hours against our own: what was sent past the schedule.
//!
//! SES counts what the whole account sent in the last 24 hours, and that counts against one quota. Others may use the account
//! as well: a console, a script, a service that was never moved over. What of SES's count can't be ours is theirs. It
//! shrinks what our own windows may use (`foreign`), and it is worth an alarm (`unscheduled`).
//!
//! # What is compared
//! - **Ours** is counted in recipients when a send is *granted*, before it goes, and taken back when it is certain that it wasn't
//!   accepted. A send of unknown outcome stays counted. Bookings of slots alone, which a service then uses by itself,
//!   are counted at their slot.
//! - It is kept in blocks of [`BLOCK`], and all blocks that the last 24 h and [`SLACK`] touch are added up. The slack is: up to 12 s
//!   from the grant until SES accepts (2 s until its moment, 10 s for the call), up to a minute until SES counts it (and drops
//!   it again), up to 45 s from SES's answer to the look at our own count, which comes after.
//! - **So what SES counts of ours is in our count, too**, whatever the edges of the two windows are. The other way round
//!   it isn't: under way, at the far edge, or never counted by SES are sends that only we count.
//!
//! # The arithmetic
//! `difference = SES's − ours = B + F − E`, with three unknowns, none below 0:
//! - B: sent **before** our count begins, since Redis was new or found empty. All of it is gone a day later.
//! - F: sent by others since. This is what we want to know.
//! - E: in our count alone: under way, given back later, at the far edge, or what SES doesn't count for the quota at all,
//!   such as mail to its mailbox simulator.
//!
//! `unscheduled = difference − base` is never above F if `base ≥ B − E`. So `base` must be kept high enough:
//! - **It is learnt** until [`SLACK`] after the first look: `difference + under way`, where *under way* is what we granted within the
//!   last [`SLACK`]. Until then, sends that were granted before Redis was emptied may still arrive in SES's count. What others
//!   sent before is in it too: nobody can tell it from ours.
//! - **After that it only falls**, to the least `difference + under way` that was seen: B never grows again. Without *under way* it
//!   would fall by what is granted and not yet counted, and the very same sends would seem to be foreign
//!   once SES counts them.
//! - **It is never below 0**, as B isn't. What SES never counts stays in our count for a day, and its leaving
//!   must not look like foreign mail arriving.
//! - **A day and [`SLACK`] later it is 0**: B is gone.
//!
//! # How far it can be trusted
//! - It is a lower bound, and exact while E is nothing: when nothing of ours went in the last minutes, nor a day ago at this
//!   time, and nothing to the mailbox simulator. Under steady traffic it is blind to what we send ourselves in about three minutes.
//! - One thing raises it falsely: sends of ours that left our count and not SES's. Those are grants which Redis lost without
//!   being empty (a fail-over loses the last moments' writes: about the rate times its lag, for a day), a
//!   slot used by itself minutes late, and grants taken back wrongly or more than [`SLACK`] late in the first day.
//! - Keep [`Reconciled`] where the count is, so that both are lost together. A state that outlives its count takes all that
//!   is in SES's count for foreign.

use crate::{Millis, Moment};

/// The length of a block of our own count.
pub const BLOCK: Millis = Millis::from_secs(60);

/// How much later SES may count or drop a send than we do, and how old its answer may be, together.
pub const SLACK: Millis = Millis::from_secs(120);

/// What SES's count looks back on.
const DAY: Millis = Millis::from_secs(86_400);

/// Blocks to keep at the least: all that a look adds up.
pub const BLOCKS: u64 = (DAY.0 + SLACK.0) / BLOCK.0 + 1;

/// The block that holds a moment.
#[must_use]
pub const fn block(at: Moment) -> u64 {
    at.0 / BLOCK.0
}

/// The first block that counts now: up to the present one there are [`BLOCKS`].
#[must_use]
pub const fn first_counted(now: Moment) -> u64 {
    block(Moment(now.0.saturating_sub(DAY.0 + SLACK.0)))
}

/// The first block whose sends SES may not have counted yet.
#[must_use]
pub const fn first_under_way(now: Moment) -> u64 {
    block(Moment(now.0.saturating_sub(SLACK.0)))
}

/// Both counts at one look, in recipients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// On the Redis clock, when our count was read.
    pub now: Moment,
    /// What the provider says that was sent in the last 24 hours; asked at most 45 s before.
    pub provider: u64,
    /// What we count from [`first_counted`] on.
    pub ours: u64,
    /// What of it is in the blocks from [`first_under_way`] on.
    pub under_way: u64,
}

/// What is kept from look to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconciled {
    /// At most so many recipients of the provider's count are from before our own, less those that only we count.
    pub base: u64,
    /// The first look since our count began.
    pub since: Moment,
    /// Whether nothing from before can still arrive in the provider's count.
    pub settled: bool,
}

/// What came of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reckoning {
    /// To be kept for the next look.
    pub state: Reconciled,
    /// The provider's count less ours; below 0 while more is only in ours.
    pub difference: i64,
    /// At least so many recipients of the last 24 h were sent by others since our count began. For an alarm.
    pub unscheduled: u64,
    /// At least so many recipients of the last 24 h are in the provider's count alone, from before or from others. Our
    /// count and this are together the greater of both counts.
    pub foreign: u64,
}

impl Reckoning {
    /// What our own windows may hold of the day's quota: what is left of it by the `foreign`, at least 1. A cap of
    /// nothing isn't one; the one send that it lets through a day the provider refuses.
    #[must_use]
    pub const fn part_of(&self, daily_quota: u64) -> u64 {
        let left = daily_quota.saturating_sub(self.foreign);
        if left == 0 { 1 } else { left }
    }
}

/// Compares the counts. No state is the first look ever, or since Redis was found empty.
#[must_use]
pub fn reconcile(state: Option<Reconciled>, look: &Look) -> Reckoning {
    let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let difference = whole(look.provider).saturating_sub(whole(look.ours));
    let seen = |n: i64| u64::try_from(n).unwrap_or(0);
    let at_most = seen(difference.saturating_add(whole(look.under_way)));
    let mut state = state.unwrap_or(Reconciled {
        base: at_most,
        since: look.now,
        settled: false,
    });
    // A clock set back starts the day anew; longer is on the safe side.
    state.since = state.since.min(look.now);
    state.base = if state.settled {
        state.base.min(at_most)
    } else {
        at_most
    };
    state.settled |= look.now >= state.since + SLACK;
    if look.now >= state.since + DAY + SLACK {
        state.base = 0;
    }
    Reckoning {
        state,
        difference,
        unscheduled: seen(difference.saturating_sub(whole(state.base))),
        foreign: seen(difference),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: u64 = 1_800_000_000_000;

    fn look(second: u64, provider: u64, ours: u64, under_way: u64) -> Look {
        Look {
            now: Moment(START + second * 1000),
            provider,
            ours,
            under_way,
        }
    }

    /// Looks one after another: what each found as unscheduled.
    fn unscheduled(looks: &[Look]) -> Vec<u64> {
        let mut state = None;
        looks
            .iter()
            .map(|look| {
                let found = reconcile(state, look);
                state = Some(found.state);
                found.unscheduled
            })
            .collect()
    }

    #[test]
    fn what_was_sent_before_the_first_look_is_nobodys_fault() {
        assert_eq!(
            unscheduled(&[
                look(0, 900, 0, 0),
                look(60, 950, 0, 0), // granted before, counted late
                look(120, 950, 0, 0),
                look(180, 957, 0, 0), // seven that we know nothing of
                look(240, 857, 0, 0), // the oldest leave
                look(300, 860, 0, 0),
            ]),
            [0, 0, 0, 7, 0, 3]
        );
    }

    #[test]
    fn what_is_under_way_is_not_foreign_when_it_arrives() {
        assert_eq!(
            unscheduled(&[
                look(0, 900, 0, 0),
                look(120, 900, 0, 0),
                look(180, 900, 50, 50),
                look(240, 950, 50, 50),
                look(400, 950, 50, 0),
                look(460, 951, 50, 0),
            ]),
            [0, 0, 0, 0, 0, 1]
        );
    }

    /// Mail to the mailbox simulator is in our count for a day, and in SES's never.
    #[test]
    fn what_the_provider_never_counts_is_not_foreign_when_it_leaves() {
        let day = 86_400;
        assert_eq!(
            unscheduled(&[
                look(0, 0, 0, 0),
                look(120, 0, 0, 0),
                look(180, 0, 1000, 1000),
                look(600, 0, 1000, 0),
                look(day + 600, 0, 0, 0),
                look(day + 660, 4, 0, 0),
            ]),
            [0, 0, 0, 0, 0, 4]
        );
    }

    /// If the base can't fall, since our own traffic never stops, what is from before still ends.
    #[test]
    fn after_a_day_nothing_is_from_before() {
        let found = unscheduled(&[
            look(0, 900, 0, 0),
            look(120, 900, 0, 0),
            look(86_519, 950, 50, 0),
            look(86_520, 950, 50, 0),
        ]);
        assert_eq!(found, [0, 0, 0, 900]);
    }

    #[test]
    fn a_clock_set_back_only_makes_it_more_careful() {
        let mut state = reconcile(None, &look(1_000_000, 10, 0, 0)).state;
        for second in [0, 60, 120, 180] {
            let found = reconcile(Some(state), &look(second, 10, 0, 0));
            assert_eq!((found.unscheduled, found.foreign), (0, 10));
            state = found.state;
        }
        assert_eq!(reconcile(Some(state), &look(240, 13, 0, 0)).unscheduled, 3);
        let end = reconcile(Some(state), &look(86_520, 10, 0, 0));
        assert_eq!(end.state.base, 0);
    }

    #[test]
    fn the_quota_shrinks_by_what_only_the_provider_counts() {
        let found = reconcile(None, &look(0, 30_000, 10_000, 0));
        assert_eq!((found.difference, found.foreign), (20_000, 20_000));
        assert_eq!(found.part_of(50_000), 30_000);
        assert_eq!(found.part_of(20_000), 1);
        let ours = reconcile(None, &look(0, 10_000, 30_000, 0));
        assert_eq!((ours.difference, ours.foreign), (-20_000, 0));
        assert_eq!(ours.part_of(50_000), 50_000);
    }

    #[test]
    fn counts_of_any_size_are_taken() {
        for (provider, ours) in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX)] {
            let found = reconcile(None, &look(0, provider, ours, u64::MAX));
            assert_eq!(found.unscheduled, 0);
        }
    }

    #[test]
    fn a_look_adds_up_a_day_and_the_slack() {
        for odd in [0, 1, 59_999, 60_000] {
            let now = Moment(START + odd);
            assert!(first_counted(now) * BLOCK.0 <= now.0 - DAY.0 - SLACK.0);
            assert!((first_counted(now) + 1) * BLOCK.0 > now.0 - DAY.0 - SLACK.0);
            assert_eq!(block(now) - first_counted(now) + 1, BLOCKS);
            assert!(first_under_way(now) * BLOCK.0 <= now.0 - SLACK.0);
        }
    }

    /// Some recipients, and when they are in which count. Milliseconds.
    #[derive(Clone, Copy, Debug)]
    struct Mail {
        count: u64,
        /// When it was granted, and until when it is in our count unless that is too old; `None` isn't ours.
        ours: Option<(u64, u64)>,
        /// From when until when it is in SES's count.
        theirs: Option<(u64, u64)>,
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// Ours: how long until SES accepts it, and how much later it counts it, and whether it drops it as late.
        Sent(u64, u64, bool),
        /// Ours, refused after a while and taken back.
        GivenBack(u64),
        /// Ours, and never counted by SES.
        Simulated,
        /// Somebody else's: how much later SES counts it.
        Foreign(u64),
        /// Redis loses everything.
        Flush,
    }

    fn events() -> impl Strategy<Value = Event> {
        prop_oneof![
            10 => (0_u64..12_000, 0_u64..60_000, any::<bool>()).prop_map(|(a, b, c)| Event::Sent(a, b, c)),
            2 => (0_u64..100_000).prop_map(Event::GivenBack),
            2 => Just(Event::Simulated),
            2 => (0_u64..60_000).prop_map(Event::Foreign),
            1 => Just(Event::Flush),
        ]
    }

    /// Both counts are played out: mails, and a state that is lost with Redis.
    #[derive(Default)]
    struct World {
        mails: Vec<Mail>,
        emptied: u64,
        state: Option<Reconciled>,
    }

    impl World {
        fn happens(&mut self, now: u64, count: u64, event: Event) {
            let day = DAY.0;
            let mail = match event {
                Event::Sent(accepted, late, drops_late) => {
                    let accepted = now + accepted;
                    let until = accepted + day + if drops_late { late } else { 0 };
                    Mail {
                        count,
                        ours: Some((now, u64::MAX)),
                        theirs: Some((accepted + late, until)),
                    }
                }
                Event::GivenBack(after) => Mail {
                    count,
                    ours: Some((now, now + after)),
                    theirs: None,
                },
                Event::Simulated => Mail {
                    count,
                    ours: Some((now, u64::MAX)),
                    theirs: None,
                },
                Event::Foreign(late) => Mail {
                    count,
                    ours: None,
                    theirs: Some((now + late, now + late + day)),
                },
                Event::Flush => {
                    (self.emptied, self.state) = (now, None);
                    return;
                }
            };
            self.mails.push(mail);
        }

        fn sum(&self, holds: impl Fn(&Mail) -> bool) -> u64 {
            self.mails
                .iter()
                .filter(|mail| holds(mail))
                .map(|mail| mail.count)
                .sum()
        }

        /// The provider is asked, and `age` later our count is read. Answers that and what others truly sent.
        fn look(&mut self, now: u64, age: u64) -> (Look, Reckoning, u64) {
            let emptied = self.emptied;
            let counts = |mail: &Mail| {
                mail.theirs
                    .is_some_and(|(from, until)| (from..until).contains(&(now - age)))
            };
            let ours_from = |first: u64| {
                self.sum(|mail| {
                    mail.ours.is_some_and(|(granted, until)| {
                        block(Moment(granted)) >= first
                            && granted >= emptied
                            && (granted..until).contains(&now)
                    })
                })
            };
            let at = Moment(now);
            let look = Look {
                now: at,
                provider: self.sum(counts),
                ours: ours_from(first_counted(at)),
                under_way: ours_from(first_under_way(at)),
            };
            let foreign = self.sum(|mail| mail.ours.is_none() && counts(mail));
            let found = reconcile(self.state, &look);
            self.state = Some(found.state);
            (look, found, foreign)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Whatever is late, given back, never counted, at an edge or lost with Redis: nothing of ours is ever taken for
        /// others'; and our count and the foreign are never less than what SES counts.
        #[test]
        fn nothing_of_ours_is_ever_taken_for_others(
            steps in prop::collection::vec((0_u64..1000, 1_u64..40, events(), 0_u64..45_000), 1..120),
            pace in prop_oneof![Just(100_u64), Just(1000), Just(4000)],
        ) {
            let mut world = World::default();
            let mut now = START;
            for (passes, count, event, age) in steps {
                let until = now + passes * pace;
                // A look each minute where that is short, else near both ends.
                let mut at = now + 60_000;
                while at < until {
                    let (look, found, foreign) = world.look(at, age);
                    prop_assert!(found.unscheduled <= foreign, "{found:?} of {look:?}, truly {foreign}");
                    prop_assert_eq!(look.ours + found.foreign, look.ours.max(look.provider));
                    at += if until - at > 600_000 { 540_000 } else { 60_000 };
                }
                now = until;
                world.happens(now, count, event);
                let (look, found, foreign) = world.look(now.max(START + age), age);
                prop_assert!(found.unscheduled <= foreign, "{found:?} of {look:?}, truly {foreign}");
            }
            // And when all has left both windows, nothing is left of it.
            let (look, found, _) = world.look(now + DAY.0 + 2 * SLACK.0 + BLOCK.0, 0);
            prop_assert_eq!((look.ours, look.provider, found.unscheduled), (0, 0, 0));
        }

        /// A day after a few minutes' traffic, SES and we drop it one by one, in steps of our own.
        #[test]
        fn at_the_far_edge_nothing_of_ours_is_taken_for_others(
            steps in prop::collection::vec((0_u64..20_000, 1_u64..40, events(), 0_u64..45_000), 1..40),
            odd in 0_u64..60_000, every in 1000_u64..20_000,
        ) {
            let mut world = World::default();
            let mut now = START + odd;
            for passes in [0, 60_000, 120_000] {
                world.look(now + passes, 0);
            }
            now += 180_000;
            let first = now;
            for (passes, count, event, _) in &steps {
                now += passes;
                if !matches!(event, Event::Flush) {
                    world.happens(now, *count, *event);
                }
            }
            let mut ages = steps.iter().map(|(_, _, _, age)| *age).cycle();
            let (mut at, last) = (first + DAY.0 - 60_000, now + DAY.0 + 2 * SLACK.0);
            while at < last {
                let (look, found, foreign) = world.look(at, ages.next().unwrap_or(0));
                prop_assert!(found.unscheduled <= foreign, "{found:?} of {look:?}, truly {foreign}");
                at += every;
            }
        }

        /// With nothing of ours under way, at the far edge or never counted, what others send is counted to the last.
        #[test]
        fn what_others_send_is_counted_exactly_at_the_next_look(
            before in 0_u64..5000, ours in 0_u64..5000, quiet in 180_u64..3600, foreign in prop::collection::vec(0_u64..300, 1..20),
        ) {
            let mut world = World::default();
            // All from before within one second, so that none of it leaves during the test.
            world.happens(START, before, Event::Sent(0, 0, false));
            world.happens(START + 1000, 1, Event::Flush);
            let mut now = START + 2000;
            for _ in 0..4 {
                world.look(now, 0);
                now += 60_000;
            }
            world.happens(now, ours, Event::Sent(5000, 30_000, false));
            now += quiet * 1000;
            world.look(now, 0);
            let mut sent = 0;
            for count in foreign {
                world.happens(now + 1000, count, Event::Foreign(0));
                sent += count;
                now += 60_000;
                let (_, found, truly) = world.look(now, 0);
                prop_assert_eq!(truly, sent);
                prop_assert_eq!(found.unscheduled, sent);
            }
        }
    }
}
