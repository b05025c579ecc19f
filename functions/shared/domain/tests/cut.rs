//! The provider's limit is cut and nobody says so: schedule, guard and adaptive rate together, in simulated time, against a
//! provider with a token bucket.
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't set itself up has failed"
)]

use std::collections::{BTreeMap, BTreeSet};

use sendslot_domain::{
    Budget, Lane, Millis, Moment, Rate,
    adaptive::Adaptive,
    budget::Settings,
    guard::Guard,
    schedule::{Booking, Schedule, Standing},
    window::Caps,
};

const START: Moment = Moment(1_800_000_000_000);
/// From a send's grant until the provider sees it, and from there until the worker has its answer.
const UNDER_WAY: Millis = Millis(20);
const ANSWER: Millis = Millis(100);

#[derive(Clone, Copy)]
enum Event {
    /// It asks for a slot.
    Book(usize, Standing),
    /// It surfaces from its queue.
    Surface(usize),
    /// The provider gets it, granted then.
    Arrive(usize, Moment),
    /// Its worker hears that it was refused.
    Refused(usize, Moment),
}

/// A token bucket, in thousandths of a recipient.
struct Provider {
    rate: u64,
    level: u64,
    seen: Moment,
}

impl Provider {
    fn accepts(&mut self, now: Moment) -> bool {
        self.level = (self.level + self.seen.until(now).0 * self.rate).min(self.rate * 1000);
        self.seen = now;
        let accepts = self.level >= 1000;
        if accepts {
            self.level -= 1000;
        }
        accepts
    }

    fn set(&mut self, rate: u64) {
        self.rate = rate;
        self.level = self.level.min(rate * 1000);
    }
}

/// What was seen of a run.
struct Seen {
    sent: BTreeMap<usize, Moment>,
    refusals: Vec<Moment>,
    /// How often each message took a new slot.
    rebooked: Vec<u32>,
}

impl Seen {
    /// In how many seconds from the first refusal on there were any.
    fn seconds_with_refusals(&self) -> usize {
        let first = self.refusals.first().copied().unwrap_or_default();
        let seconds: BTreeSet<u64> = self
            .refusals
            .iter()
            .map(|at| first.until(*at).0 / 1000)
            .collect();
        seconds.len()
    }

    fn worst(&self) -> u32 {
        self.rebooked.iter().copied().max().unwrap_or_default()
    }

    fn drained(&self) -> Moment {
        self.sent.values().copied().max().unwrap_or_default()
    }
}

fn budget() -> Budget {
    budget_of("100")
}

fn budget_of(limit: &str) -> Budget {
    Budget::new(Settings {
        limit: limit.parse().unwrap(),
        headroom: "0.98".parse().unwrap(),
        guard: "0.99".parse().unwrap(),
        burst: None,
        reserve: "0".parse().unwrap(),
        slice: Rate::ZERO,
        caps: Caps::default(),
        horizon: Millis::from_secs(60),
    })
    .unwrap()
}

/// Sends so many mails handed in within so many milliseconds; the provider's limit becomes another at each of the moments.
fn run(mails: usize, within: u64, limits: &[(Moment, u64)]) -> Seen {
    let (mut schedule, mut guard) = (Schedule::new(START, budget()), Guard::new(budget()));
    let (mut adaptive, tenant) = (Adaptive::default(), "acme".parse().unwrap());
    let mut provider = Provider {
        rate: 100,
        level: 100_000,
        seen: START,
    };
    let mut limits = limits.iter().peekable();
    let mut slots = vec![START; mails];
    let mut seen = Seen {
        sent: BTreeMap::new(),
        refusals: Vec::new(),
        rebooked: vec![0; mails],
    };
    let mut events: BTreeMap<(Moment, usize), Event> = BTreeMap::new();
    let mut number = 0;
    let mut put = |events: &mut BTreeMap<_, _>, at, event| {
        number += 1;
        events.insert((at, number), event);
    };
    for mail in 0..mails {
        let at = START + Millis(mail as u64 * 613 % within);
        put(&mut events, at, Event::Book(mail, Standing::New));
    }
    while let Some(((now, _), event)) = events.pop_first() {
        while let Some((_, rate)) = limits.next_if(|(at, _)| *at <= now) {
            provider.set(*rate);
        }
        match event {
            Event::Book(mail, standing) => {
                schedule.slow_to(adaptive.factor());
                match schedule.book(now, Lane::Bulk, &tenant, 1, standing) {
                    Booking::Slot(slot) => {
                        slots[mail] = slot.at;
                        let early = Millis(slot.delay.whole_secs() * 1000);
                        put(&mut events, now + early, Event::Surface(mail));
                    }
                    Booking::Wait(wait) => {
                        let standing = match wait.place {
                            0 => standing,
                            place => Standing::Waited { place },
                        };
                        put(&mut events, now + wait.delay, Event::Book(mail, standing));
                    }
                    other => panic!("{other:?}"),
                }
            }
            Event::Surface(mail) => {
                adaptive.recover(now, &guard);
                guard.slow_to(adaptive.factor());
                let grant = guard.grant(now, Lane::Bulk, slots[mail], 1, Millis(2000));
                if let Some(at) = grant {
                    put(&mut events, at + UNDER_WAY, Event::Arrive(mail, at));
                } else {
                    seen.rebooked[mail] += 1;
                    put(&mut events, now, Event::Book(mail, Standing::Again));
                }
            }
            Event::Arrive(mail, granted) => {
                if provider.accepts(now) {
                    assert!(seen.sent.insert(mail, now).is_none());
                } else {
                    seen.refusals.push(now);
                    put(&mut events, now + ANSWER, Event::Refused(mail, granted));
                }
            }
            Event::Refused(mail, granted) => {
                adaptive.refuse(now, granted, 1);
                let spread = Millis((mail as u64 * 379) % 2000);
                put(
                    &mut events,
                    now + spread,
                    Event::Book(mail, Standing::Again),
                );
            }
        }
    }
    assert_eq!(seen.sent.len(), mails);
    seen
}

#[test]
fn without_a_cut_nothing_is_refused_or_rebooked() {
    let seen = run(3000, 1, &[]);
    assert!(seen.refusals.is_empty());
    assert_eq!(seen.worst(), 0);
    assert!(START.until(seen.drained()) < Millis(31_000));
}

/// In the middle of a burst: at most two seconds with refusals, drained within a tenth of the ideal, and no message takes a
/// new slot more than twice. Wherever in a second the cut comes.
#[test]
fn a_cut_costs_two_seconds_of_refusals_and_two_new_slots() {
    for to in [60, 80, 90, 30, 45] {
        for (after, within) in [(5000, 1), (6370, 1000)] {
            let seen = cut(Millis(after), to, within);
            let seconds = seen.seconds_with_refusals();
            assert!(seconds <= 2, "{to} after {after}: {:?}", seen.refusals);
        }
    }
}

/// Sends 1,500 mails, handed in within so many milliseconds; so long after, the provider allows so much.
fn cut(after: Millis, to: u64, within: u64) -> Seen {
    let at = START + after;
    let seen = run(1500, within, &[(at, to)]);
    let before = seen.sent.values().filter(|sent| **sent < at).count() as u64;
    let ideal = (1500 - before) * 1000 / to;
    let took = at.until(seen.drained()).0;
    assert!(
        took <= ideal * 11 / 10,
        "{to} after {after:?}: {took} ms, ideal {ideal}"
    );
    assert!(seen.worst() <= 2, "{to}: {} new slots", seen.worst());
    seen
}

/// Refusals are watched for two seconds at most; what was cut stays for a while, and then climbs back, a little each second.
#[test]
fn the_rate_climbs_back() {
    let (mut adaptive, guard) = (Adaptive::default(), Guard::new(budget()));
    adaptive.refuse(START, START, 1);
    let mut at = |seconds| {
        adaptive.recover(START + Millis::from_secs(seconds), &guard);
        let factor = adaptive.factor();
        if seconds == 2 {
            // What was granted before the cut cuts no more.
            adaptive.refuse(START + Millis(3000), START + Millis(1800), 1);
        }
        factor
    };
    let factors = [1, 2, 4, 32, 33, 42, 287, 288, 1000].map(&mut at);
    assert_eq!(factors, [1024, 512, 512, 512, 514, 532, 1022, 1024, 1024]);
}

/// Sixty a second were accepted while a hundred were offered; that the last refusal lies in a gap behind makes it no less.
#[test]
fn a_refusal_in_a_gap_hides_nothing_of_the_rate() {
    let (mut adaptive, mut guard) = (Adaptive::default(), Guard::new(budget()));
    for slot in (0..900).step_by(10).chain([1350]) {
        guard.grant(START, Lane::Bulk, START + Millis(slot), 1, Millis(2000));
    }
    let refused = (3..=8).map(|tenth| (tenth * 100, 4)).chain([(1300, 1)]);
    for (granted, recipients) in refused {
        adaptive.refuse(START + Millis(400), START + Millis(granted), recipients);
    }
    let of_sixty = |percent: u64| 60 * percent * 1024 / 100 / 99;
    for (at, percent) in [(1000, 100), (1100, 85), (2300, 85), (2400, 95)] {
        adaptive.recover(START + Millis(at), &guard);
        let (is, expected) = (adaptive.factor(), of_sixty(percent));
        if percent == 100 {
            assert_eq!(is, 1024, "{at}: too few are known");
        } else {
            assert!(is.abs_diff(expected) < 30, "{at}: {is}, not {expected}");
        }
    }
}

/// Sixty of a hundred were allowed, and then the account itself says sixty: that is no reason to go at 36.
#[test]
fn a_rate_that_falls_takes_nothing_of_what_was_measured() {
    let (mut adaptive, mut guard) = (Adaptive::default(), Guard::new(budget()));
    adaptive.refuse(START, START, 1);
    adaptive.recover(START + Millis(2000), &guard);
    assert_eq!(adaptive.factor(), 512);
    let mut to = |limit: &str, guard: &mut Guard| {
        let before = guard.full_rate_per_tick();
        guard.set_budget(budget_of(limit));
        adaptive.rescale(before, guard.full_rate_per_tick());
        adaptive.factor()
    };
    for (limit, factor) in [("80", 640), ("160", 640), ("100", 1024), ("50", 1024)] {
        assert_eq!(to(limit, &mut guard), factor, "{limit}");
    }
}
