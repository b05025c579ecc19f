//! Redis can't be used: mail is held, or goes at a fixed pace.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use send::{
    Invocation,
    batch::{CLOSING, COUNTS, SEND_TIMEOUT},
};
use sendslot_domain::{Millis, Moment, outcome::Outcome};
use sendslot_schedule::{Claim, Ending};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::{
    batch::is_reason,
    fakes::{
        Asked, DLQ, FULL, HANGS, NOW, REQUEST, SEND, THROTTLED, TIME, World, bodies, body_with,
        envelope, event, received,
    },
};

/// Redis doesn't answer, or refuses every call.
fn away() -> [World; 2] {
    [HANGS, Duration::ZERO].map(|away_takes| World {
        away_until: Some(Instant::now() + HANGS),
        away_takes,
        ..World::default()
    })
}

/// The envelope of a message with these fields.
fn with(send_id: &str, fields: &Value) -> Value {
    serde_json::from_str(&body_with(send_id, fields)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn without_redis_a_copy_takes_the_place_of_each_message() {
    for world in away() {
        let bodies = [bodies(&["a", "b"]), vec!["{".into()]].concat();
        let start = Instant::now();
        let handled = world.handle(&bodies).await;

        assert!(start.elapsed() < TIME, "{:?}", start.elapsed());
        assert_eq!(handled.failed, [""; 0], "no receive is spent");
        assert_eq!(
            handled.counts(),
            [("DeadLettered", 1), ("RedisDown", 2)].into()
        );
        assert_eq!(world.sent(), [""; 0]);
        assert!(is_reason(&world.put(DLQ)[0], "bad_envelope"));
        assert_eq!(world.hidden(), []);
        let frees = ["a", "b"].map(|id| (id.to_owned(), Ending::Free));
        assert_eq!(world.ends(), frees, "only the answer may have been lost");
        for (id, (delay, copy)) in ["a", "b"].into_iter().zip(world.copies()) {
            let held = json!({ "holds": 1, "void": REQUEST });
            assert_eq!(copy, with(id, &held), "all else as it was, its slot too");
            assert!((2..=5).contains(&delay), "{delay}");
        }
        assert_eq!(world.released(), []);
        for name in COUNTS {
            assert!(handled.metrics.get(name).is_some(), "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_held_for_longer_each_time() {
    let mut found = BTreeMap::new();
    for round in 0..20 {
        let holds = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 40, u32::MAX];
        let whole = [5, 10, 20, 40, 80, 160, 320, 640, 900, 900, 900, 900];
        let world = World {
            fails: ["claim"].into(),
            ..World::default()
        };
        let body = |holds: &u32| body_with(&format!("id{holds}"), &json!({ "holds": holds }));
        let bodies: Vec<_> = holds.iter().map(body).collect();
        world.handle(&bodies).await;
        for ((delay, copy), (holds, whole)) in
            world.copies().into_iter().zip(holds.into_iter().zip(whole))
        {
            assert_eq!(copy["holds"], holds.saturating_add(1));
            assert!((whole / 2..=whole).contains(&delay), "{holds}: {delay}");
            found
                .entry(whole)
                .or_insert_with(Vec::new)
                .push((round, delay));
        }
    }
    let delays: Vec<_> = found[&900].iter().map(|(_, delay)| delay).collect();
    assert!(
        delays.iter().min() < delays.iter().max(),
        "what was held together is spread"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_a_message_is_kept_while_it_is_held() {
    for world in away() {
        let bodies = [
            body_with("a", &json!({ "uncertain": true, "cells": [] })),
            body_with("b", &json!({ "resend": true, "attempts": 4 })),
            body_with("c", &json!({ "void": "request-0" })),
            body_with("d", &json!({ "expires_at_ms": NOW.0 })),
            envelope("e").to_string(),
        ];
        let event = received(event(SEND, &bodies), 4, 3, NOW);
        let handled = world.run(event, NOW, TIME).await;

        assert_eq!(handled.failed, [""; 0]);
        assert_eq!(handled.counts(), [("RedisDown", 5)].into());
        let copies: Vec<_> = world.copies().into_iter().map(|(_, copy)| copy).collect();
        let held = |id, mut fields: Value| {
            fields["holds"] = 1.into();
            with(id, &fields)
        };
        assert_eq!(
            copies,
            [
                held("a", json!({ "uncertain": true, "cells": [] })),
                held(
                    "b",
                    json!({ "resend": true, "attempts": 4, "void": REQUEST })
                ),
                held("c", json!({ "void": format!("request-0,{REQUEST}") })),
                held("d", json!({ "expires_at_ms": NOW.0, "void": REQUEST })),
                held(
                    "e",
                    json!({ "suspect_since_ms": NOW.0 - 5_000, "void": REQUEST })
                ),
            ],
            "what may have been sent isn't void"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn with_no_queue_either_messages_come_back() {
    for world in away() {
        let world = World {
            queues_take: HANGS,
            ..world
        };
        let start = Instant::now();
        let handled = world.handle(&bodies(&["a", "b"])).await;
        assert_eq!(handled.failed, ["m0", "m1"]);
        assert_eq!(handled.count("RedisDown"), 0);
        assert!(start.elapsed() < TIME, "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_booking_only_what_needed_one_is_held() {
    let fails = World {
        fails: ["book"].into(),
        ..World::default()
    };
    let hangs = World {
        slots_take: HANGS,
        ..World::default()
    };
    for world in [fails, hangs] {
        let world = World {
            claims: [("c", FULL)].into(),
            outcomes: [("b", Outcome::Unknown)].into(),
            ..world
        };
        let handled = world.handle(&bodies(&["a", "b", "c"])).await;

        assert_eq!(handled.failed, [""; 0]);
        let counts = [("Failed", 1), ("RedisDown", 2), ("Sent", 1)];
        assert_eq!(handled.counts(), counts.into());
        let copies: HashMap<_, _> = world
            .copies()
            .into_iter()
            .map(|(_, copy)| (copy["send_id"].as_str().unwrap().to_owned(), copy))
            .collect();
        let b = json!({ "holds": 1, "attempts": 1, "void": REQUEST, "cells": [] });
        assert_eq!(copies["b"], with("b", &b));
        let c = json!({ "holds": 1, "void": REQUEST });
        assert_eq!(copies["c"], with("c", &c), "its slot wasn't given back");
        assert_eq!(world.released(), []);
    }
}

/// A message on a queue.
struct Waiting {
    body: String,
    from: Instant,
    receives: u32,
    first: Option<Moment>,
}

/// The send queue, and its consumer.
struct Desk {
    world: World,
    waiting: Vec<Waiting>,
    start: Instant,
    /// Puts of [`World::log`] that are on the queue.
    taken: usize,
    /// How often each mail was received.
    receives: HashMap<String, u32>,
}

impl Desk {
    const VISIBILITY: Duration = Duration::from_secs(90);

    fn new(world: World, bodies: Vec<String>) -> Self {
        let start = Instant::now();
        let waiting = |body| Waiting {
            body,
            from: start,
            receives: 0,
            first: None,
        };
        Self {
            world,
            waiting: bodies.into_iter().map(waiting).collect(),
            start,
            taken: 0,
            receives: HashMap::new(),
        }
    }

    fn now(&self) -> Moment {
        let since = self.start.elapsed().as_millis();
        NOW + Millis(u64::try_from(since).unwrap())
    }

    /// Receives and handles the next batch, when it is due.
    async fn next(&mut self, number: usize) {
        self.waiting.sort_by_key(|waiting| waiting.from);
        sleep_until(self.waiting[0].from).await;
        let (now, moment) = (Instant::now(), self.now());
        let due = self.waiting.iter().take_while(|w| w.from <= now).count();
        let mut batch: Vec<_> = self.waiting.drain(..due.min(10)).collect();
        let bodies: Vec<_> = batch.iter().map(|message| message.body.clone()).collect();
        let mut records = event(SEND, &bodies);
        for (index, message) in batch.iter_mut().enumerate() {
            message.receives += 1;
            let first = *message.first.get_or_insert(moment);
            records = received(records, index, message.receives, first);
            let envelope: Value = serde_json::from_str(&message.body).unwrap();
            let id = envelope["send_id"].as_str().unwrap().to_owned();
            *self.receives.entry(id).or_default() += 1;
        }
        let invocation = Invocation {
            id: format!("request-{number}"),
            now: moment,
            deadline: now + TIME,
        };
        let handled = self.world.invoke(records, &invocation).await;
        for (index, mut message) in batch.into_iter().enumerate() {
            if handled.failed.contains(&format!("m{index}")) {
                message.from = now + Self::VISIBILITY;
                self.waiting.push(message);
            }
        }
        let puts = self.world.put(SEND);
        for put in &puts[self.taken..] {
            self.waiting.push(Waiting {
                body: put.body.clone(),
                from: Instant::now() + Duration::from_secs(put.delay_seconds.into()),
                receives: 0,
                first: None,
            });
        }
        self.taken = puts.len();
        let receives = self.waiting.iter().map(|message| message.receives);
        assert_eq!(receives.max().unwrap_or(0), 0, "a receive was spent");
    }
}

#[tokio::test(start_paused = true)]
async fn an_hour_without_redis_costs_no_mail_and_few_tries() {
    let hour = Duration::from_hours(1);
    for away_takes in [Duration::ZERO, Duration::from_secs(2), HANGS] {
        let ids: Vec<_> = (0..40).map(|n| format!("id{n}")).collect();
        let bodies = ids.iter().map(|id| envelope(id).to_string()).collect();
        let world = World {
            away_until: Some(Instant::now() + hour),
            away_takes,
            ..World::default()
        };
        let mut desk = Desk::new(world, bodies);
        let mut number = 0;
        while !desk.waiting.is_empty() {
            number += 1;
            desk.next(number).await;
            assert!(number < 1_000, "it never ends");
        }

        let mut sent = desk.world.sent();
        assert_eq!(sent.len(), ids.len());
        sent.sort();
        sent.dedup();
        assert_eq!(sent.len(), ids.len(), "each once");
        assert_eq!(desk.world.put(DLQ), []);
        // 5 s doubling to 900 s, and half of it at least, are 15 within the hour at most.
        let most = desk.receives.values().max().unwrap();
        assert!(*most <= 17, "{most} tries of a mail");
        assert!(*most >= 9);
        // What was held longest comes 900 s after Redis at most; one invocation serves at a time here.
        let took = desk.start.elapsed();
        assert!(
            took > hour && took < hour + Duration::from_mins(16),
            "{took:?}"
        );
    }
}

/// In a world without Redis that sends all the same: 9 recipients a second in all, from so many environments a lane.
fn capped(concurrency: &'static str) -> World {
    World {
        vars: vec![
            ("SENDSLOT_REDIS_DOWN", "capped"),
            ("SENDSLOT_LIMIT", "10/s"),
            ("SENDSLOT_HEADROOM", "0.9"),
            ("SENDSLOT_SEND_CONCURRENCY", concurrency),
        ],
        fails: ["claim"].into(),
        ..World::default()
    }
}

/// What one recipient takes in an environment of 2 of each lane.
const PACE: Duration = Duration::from_nanos(4_000_000_000 / 9);

fn to(send_id: &str, recipients: usize) -> String {
    let to: Vec<_> = (0..recipients)
        .map(|n| format!("r{n}@example.org"))
        .collect();
    let mut envelope = envelope(send_id);
    envelope["mail"]["to"] = json!(to);
    envelope.to_string()
}

#[tokio::test(start_paused = true)]
async fn capped_mail_goes_without_reservation_and_says_so() {
    let world = capped("2");
    let handled = world.handle(&bodies(&["a", "b", "c"])).await;
    assert_eq!(handled.failed, [""; 0]);
    assert_eq!(world.sent(), ["a", "b", "c"]);
    assert_eq!(handled.counts(), [("Sent", 3), ("SentUnclaimed", 3)].into());
    assert_eq!(world.copies(), []);
    let ends = world.ends();
    for id in ["a", "b", "c"] {
        let last = ends.iter().rfind(|(of, _)| of == id).unwrap();
        assert_eq!(last.1, Ending::Sent, "a copy finds it, if Redis does");
    }
    for name in COUNTS {
        assert!(handled.metrics.get(name).is_some(), "{name}");
    }
    let grants: Vec<_> = world
        .asked()
        .into_iter()
        .filter_map(|asked| match asked {
            Asked::Send { grant, .. } => Some(grant),
            _ => None,
        })
        .collect();
    assert_eq!(grants, [NOW; 3]);
}

#[tokio::test(start_paused = true)]
async fn capped_is_for_when_redis_is_away_only() {
    let world = World {
        fails: [].into(),
        claims: [("b", FULL), ("c", Claim::Blocked { left: Millis(1) })].into(),
        ..capped("2")
    };
    let handled = world.handle(&bodies(&["a", "b", "c"])).await;
    let counts = [("Blocked", 1), ("Rebooked", 1), ("Sent", 1)];
    assert_eq!(handled.counts(), counts.into());
}

#[tokio::test(start_paused = true)]
async fn no_environment_sends_faster_than_its_part_of_the_rate() {
    // Batch after batch without a pause; some answers take long.
    let ids = ["a", "b", "c", "d", "e", "f"];
    let costs = [1, 3, 1, 1, 2, 1];
    let seconds = Duration::from_secs;
    let world = World {
        sends_take: [("b", seconds(3)), ("d", seconds(1))].into(),
        ..capped("2")
    };
    let mut last = Instant::now();
    for _ in 0..20 {
        let bodies: Vec<_> = ids.iter().zip(costs).map(|(id, n)| to(id, n)).collect();
        let handled = world.handle(&bodies).await;
        assert_eq!(handled.count("SentUnclaimed"), 6);
    }
    let mut sent = 0;
    for asked in world.asked() {
        if let Asked::Send { send_id, at, .. } = asked {
            let cost = costs[ids.iter().position(|id| *id == send_id).unwrap()];
            let gap = at - last;
            let least = PACE * u32::try_from(cost).unwrap();
            assert!(
                gap + Duration::from_millis(1) >= least,
                "{send_id}: {gap:?}"
            );
            (last, sent) = (at, sent + 1);
        }
    }
    assert_eq!(sent, 120);
}

#[tokio::test(start_paused = true)]
async fn all_environments_of_both_lanes_together_keep_to_the_rate() {
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let lanes = ["priority", "bulk"].map(|lane| format!("sendslot-{lane}-send"));
    let worlds: Vec<_> = (0..20).map(|_| capped("10")).collect();
    let runs = worlds.iter().enumerate().map(|(number, world)| {
        let event = event(&lanes[number % 2], &bodies(&ids));
        world.run(event, NOW, TIME)
    });
    let start = Instant::now();
    futures_util::future::join_all(runs).await;
    let mut starts: Vec<_> = worlds
        .iter()
        .flat_map(World::asked)
        .filter_map(|asked| match asked {
            Asked::Send { at, .. } => Some(at - start),
            _ => None,
        })
        .collect();
    starts.sort();
    // Each sends one in 20/9 s, after as long at least: 5 each in the 13 s that there are.
    assert!((80..=100).contains(&starts.len()), "{}", starts.len());
    // Nine a second; each environment's clock is out of step with the others', by one mail at most.
    let part = Duration::from_nanos(20_000_000_000 / 9);
    for (first, at) in starts.iter().enumerate() {
        let within = starts[first..]
            .iter()
            .take_while(|next| **next < *at + part)
            .count();
        assert!(within <= 20, "{within} within {part:?}");
    }
    // They don't start together.
    let spread = starts[19].saturating_sub(starts[0]);
    assert!(spread > part / 4, "{spread:?}");
}

#[tokio::test(start_paused = true)]
async fn what_capped_has_no_time_for_is_held() {
    // 4.4 s each: two or three fit into 13 s.
    let world = capped("20");
    let ids = ["a", "b", "c", "d", "e", "f"];
    let start = Instant::now();
    let handled = world.handle(&bodies(&ids)).await;
    let sent = world.sent().len();
    assert!(start.elapsed() < TIME.saturating_sub(CLOSING));
    assert!((1..=2).contains(&sent), "{sent}");
    assert_eq!(handled.count("SentUnclaimed"), sent as u64);
    assert_eq!(handled.count("RedisDown"), (ids.len() - sent) as u64);
    assert_eq!(handled.failed, [""; 0]);
    let copies = world.copies();
    for (id, (_, copy)) in ids[sent..].iter().zip(&copies) {
        assert_eq!(*copy, with(id, &json!({ "holds": 1, "void": REQUEST })));
    }
    assert_eq!(copies.len(), ids.len() - sent);
    // A rate so low that nothing ever fits.
    let world = capped("1000");
    let handled = world.handle(&bodies(&ids)).await;
    assert_eq!((world.sent().len(), world.copies().len()), (0, 6));
    assert_eq!(handled.failed, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_capped_should_not_send_is_held() {
    let world = capped("2");
    let bodies = [
        body_with("a", &json!({ "uncertain": true })),
        body_with("b", &json!({ "suspect_since_ms": NOW.0 })),
        body_with("c", &json!({ "expires_at_ms": NOW.0 })),
        envelope("d").to_string(),
        envelope("e").to_string(),
    ];
    let event = received(event(SEND, &bodies), 3, 2, NOW);
    let handled = world.run(event, NOW, TIME).await;
    assert_eq!(world.sent(), ["e"]);
    assert_eq!(
        handled.counts(),
        [("RedisDown", 4), ("Sent", 1), ("SentUnclaimed", 1)].into()
    );
    let copies = world.copies();
    let void: Vec<_> = copies
        .iter()
        .map(|(_, copy)| copy["void"].as_str())
        .collect();
    assert_eq!(void, [None, Some(REQUEST), Some(REQUEST), Some(REQUEST)]);
}

#[tokio::test(start_paused = true)]
async fn what_ses_answers_counts_when_capped_too() {
    let world = World {
        outcomes: [
            ("a", Outcome::Rejected),
            ("b", Outcome::Uncertain),
            ("c", Outcome::SetPaused),
            ("d", Outcome::Unknown),
            ("e", THROTTLED),
        ]
        .into(),
        ..capped("1")
    };
    let mut bodies =
        ["a", "b", "c", "d", "e", "f"].map(|id| body_with(id, &json!({ "attempts": 9 })));
    // That an operator had it sent again holds for one send.
    bodies[1] = body_with("b", &json!({ "attempts": 9, "resend": true }));
    let handled = world.handle(&bodies).await;
    assert_eq!(handled.failed, [""; 0]);
    let counts = [
        ("Failed", 1),
        ("Paused", 1),
        ("RedisDown", 5),
        ("Rejected", 1),
        ("Throttled", 1),
        ("Uncertain", 1),
    ];
    assert_eq!(handled.counts(), counts.into());
    let copies: Vec<_> = world.copies().into_iter().map(|(_, copy)| copy).collect();
    let held = |id, fields: &Value| {
        let mut held = with(id, fields);
        (held["holds"], held["attempts"]) = (1.into(), 9.into());
        held
    };
    let void = json!({ "void": REQUEST });
    assert_eq!(
        copies,
        [
            held("b", &json!({ "uncertain": true })),
            held("c", &void),
            held("d", &void),
            held("e", &void),
            held("f", &void),
        ],
        "only one may have been sent, and after a throttle nothing is"
    );
    assert_eq!(world.told(), [""; 0]);
    assert_eq!((world.put(DLQ), world.parked()), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn capped_mail_asks_about_the_account_once_too() {
    for (account_sends, sent) in [(Some(true), 3), (Some(false), 1), (None, 3)] {
        let world = World {
            outcomes: ["a", "b", "c"].map(|id| (id, Outcome::Paused)).into(),
            account_sends,
            ..capped("1")
        };
        world.handle(&bodies(&["a", "b", "c"])).await;
        let calls = world.calls().into_iter();
        assert_eq!(calls.filter(|call| *call == "account").count(), 1);
        assert_eq!(world.sent().len(), sent, "{account_sends:?}");
        assert_eq!(world.copies().len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn capped_closes_in_time_when_nothing_answers() {
    let world = World {
        send_takes: SEND_TIMEOUT.saturating_sub(Duration::from_millis(1)),
        outcomes: [("b", Outcome::Unknown)].into(),
        commit_takes: HANGS,
        slots_take: HANGS,
        queues_take: HANGS,
        ..capped("2")
    };
    let start = Instant::now();
    let handled = world.handle(&bodies(&["a", "b", "c"])).await;
    assert!(start.elapsed() < TIME, "{:?}", start.elapsed());
    assert!(world.last_send().elapsed() < CLOSING);
    assert_eq!(world.sent()[0], "a");
    assert!(!handled.failed.contains(&"m0".to_owned()), "it was sent");
    assert_eq!(
        handled.count("SentUncommitted"),
        handled.count("SentUnclaimed")
    );
    // A claim that hangs leaves no time to send.
    let world = World {
        claim_takes: HANGS,
        ..capped("2")
    };
    let start = Instant::now();
    let handled = world.handle(&bodies(&["a"])).await;
    assert!(start.elapsed() < TIME, "{:?}", start.elapsed());
    assert_eq!((world.sent().len(), world.copies().len()), (0, 1));
    assert_eq!(handled.failed, [""; 0]);
}
