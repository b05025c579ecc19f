//! What an answer of the provider does: to the message, to all others, to the counts and to the claim.

use std::{
    collections::{BTreeSet, HashSet},
    ops::RangeInclusive,
    time::Duration,
};

use sendslot_domain::{
    Millis,
    outcome::{MAX_ATTEMPTS, Outcome},
};
use sendslot_runtime::queue::Attribute;
use sendslot_schedule::Ending;
use serde_json::{Value, json};

use crate::{
    batch::is_reason,
    fakes::{
        DLQ, HANGS, NOW, REQUEST, SEND, THROTTLED, World, bodies, body_with, envelope, go, slot,
        unused,
    },
};

const WAITS: Option<Millis> = Some(Millis::from_secs(30));

/// Where the message is then.
enum Now {
    /// Nowhere.
    Gone,
    /// In the bucket, as paused.
    Parked,
    /// On its queue so many seconds, with such fields, in a new slot.
    Again(RangeInclusive<u16>, Value),
    /// On its queue so many seconds, without a slot.
    Blocked(RangeInclusive<u16>),
    /// On its queue until the event that it was sent should have come.
    Waits,
}

/// What comes of an answer: where the message is, what Redis is told, what is counted, and how the claim ends.
type Case = (Outcome, Now, Told, Counts, Ending);
type Told = &'static [&'static str];
type Counts = &'static [(&'static str, u64)];

/// The rows of docs/outcomes.md that concern one mail, of one with five attempts and five holds behind it.
fn of_one_mail() -> Vec<Case> {
    let again = |delays, attempts, holds| {
        Now::Again(delays, json!({ "attempts": attempts, "holds": holds }))
    };
    // 64 s after the sixth failure, half of it at least.
    let failed = || again(32..=64, 6, 5);
    let (free, rejected) = (Ending::Free, Ending::Rejected);
    let counts: Counts = &[("Failed", 1), ("Retried", 1)];
    let uncertain: Counts = &[("Held", 1), ("Uncertain", 1)];
    let down = |retry_after| Outcome::Unavailable { retry_after };
    let bad = Outcome::BadRequest;
    let deleted = |outcome, counts: Counts| -> Case { (outcome, Now::Gone, &[], counts, rejected) };
    vec![
        (Outcome::Sent, Now::Gone, &[], &[("Sent", 1)], Ending::Sent),
        // Counted as shadow.rs has it.
        (Outcome::Shadowed, Now::Gone, &[], &[], Ending::Sent),
        deleted(Outcome::Rejected, &[("Rejected", 1)]),
        deleted(Outcome::Suppressed, &[("Suppressed", 1)]),
        deleted(bad, &[("Rejected", 1)]),
        (Outcome::NotVerified, failed(), &[], counts, free),
        (Outcome::NotFound, failed(), &[], counts, free),
        (Outcome::Unknown, failed(), &[], counts, free),
        (down(None), failed(), &[], counts, free),
        (down(WAITS), again(30..=94, 6, 5), &[], counts, free),
        (Outcome::NotSent, again(32..=64, 5, 6), &[], counts, free),
        // Nobody knows whose pause it is.
        (
            Outcome::Paused,
            again(32..=64, 5, 6),
            &[],
            &[("Paused", 1), ("Retried", 1)],
            free,
        ),
        (
            Outcome::Uncertain,
            Now::Waits,
            &[],
            uncertain,
            Ending::Uncertain,
        ),
    ]
}

/// The rows that concern others too: nothing that counts against the mail.
fn of_all_mail() -> Vec<Case> {
    // Once for the answer, once for the copy that waits for the block's end.
    let twice: Counts = &[("Blocked", 2)];
    let account: Told = &["block 60000 to 900000 account_paused"];
    let blocked = |outcome, seconds, told: Told, counts: Counts| {
        let now = Now::Blocked(seconds);
        (outcome, now, told, counts, Ending::Free)
    };
    let parked = |outcome, told: Told| {
        let counts: Counts = &[("Parked", 1), ("Paused", 1)];
        (outcome, Now::Parked, told, counts, Ending::Free)
    };
    vec![
        (
            THROTTLED,
            Now::Again(4..=6, json!({ "attempts": 5, "holds": 5 })),
            &["slow 7 1"],
            &[("Retried", 1), ("Throttled", 1)],
            Ending::Free,
        ),
        blocked(
            Outcome::RateThrottled { retry_after: WAITS },
            30..=60,
            &["slow 7 1", "block 30000 to 30000 retry_after"],
            &[("Blocked", 1), ("Throttled", 1)],
        ),
        blocked(
            Outcome::DailyQuota,
            600..=660,
            &["block 600000 to 900000 daily_quota"],
            twice,
        ),
        parked(Outcome::SetPaused, &["pause acme 60000 set_paused"]),
        parked(Outcome::TenantPaused, &["pause acme 60000 tenant_paused"]),
        blocked(Outcome::AccountPaused, 60..=120, account, twice),
        blocked(
            Outcome::Suspended,
            60..=120,
            &["block 60000 to 900000 suspended"],
            twice,
        ),
        blocked(
            Outcome::Denied,
            60..=120,
            &["block 60000 to 900000 denied"],
            &[("Blocked", 1), ("Denied", 1)],
        ),
    ]
}

fn before() -> Value {
    let mut before = envelope("a");
    (before["attempts"], before["holds"]) = (5.into(), 5.into());
    before
}

fn check(world: &World, now: &Now, outcome: Outcome) {
    let (copies, parked) = (world.copies(), world.parked());
    let mut expected = before();
    expected["cells"] = json!([]);
    match now {
        Now::Gone => assert_eq!((copies.len(), parked.len()), (0, 0), "{outcome:?}"),
        Now::Parked => {
            expected["void"] = REQUEST.into();
            let key = format!("parked/acme/{}-paused-bulk-a.json", NOW.0 - 5_000);
            assert_eq!(parked, [(key, expected)], "{outcome:?}");
            assert_eq!(copies, [], "{outcome:?}");
        }
        Now::Again(delays, fields) => {
            for (name, value) in fields.as_object().unwrap() {
                expected[name] = value.clone();
            }
            expected["slot_ms"] = slot().at.0.into();
            expected["cells"] = json!([[slot().cells[0].0.0, 1]]);
            assert_eq!(copies.len(), 1, "{outcome:?}");
            assert!(delays.contains(&copies[0].0), "{outcome:?} {}", copies[0].0);
            assert_eq!(copies[0].1, expected, "{outcome:?}");
        }
        Now::Blocked(delays) => {
            assert_eq!(copies.len(), 1, "{outcome:?}");
            assert!(delays.contains(&copies[0].0), "{outcome:?} {}", copies[0].0);
            assert_eq!(copies[0].1, expected, "{outcome:?}");
        }
        Now::Waits => {
            expected["uncertain"] = true.into();
            assert_eq!(copies, [(300, expected)], "{outcome:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_outcome_does_what_the_table_says() {
    let mut seen = BTreeSet::new();
    for (outcome, now, told, counts, end) in of_one_mail().into_iter().chain(of_all_mail()) {
        let world = World {
            claims: [("a", go(7))].into(),
            outcomes: [("a", outcome)].into(),
            ..World::default()
        };
        let handled = world.handle(&[before().to_string()]).await;

        assert_eq!(handled.failed, [""; 0], "{outcome:?}");
        assert_eq!(world.told(), told, "{outcome:?}");
        let counts = counts.iter().copied().collect();
        assert_eq!(handled.counts(), counts, "{outcome:?}");
        assert_eq!(world.ends(), [("a".to_owned(), end)], "{outcome:?}");
        assert_eq!(world.put(DLQ), [], "{outcome:?}");
        assert_eq!(world.released(), [], "{outcome:?}: its grant was drawn");
        check(&world, &now, outcome);
        seen.insert(outcome.code());
    }
    let all = Outcome::ALL.iter().map(|outcome| outcome.code());
    assert_eq!(seen, all.collect());
}

#[tokio::test(start_paused = true)]
async fn redis_is_told_at_once_and_the_claims_end_before_anything_is_put_back() {
    let world = World {
        outcomes: [
            ("a", THROTTLED),
            ("b", Outcome::SetPaused),
            ("c", Outcome::Denied),
        ]
        .into(),
        ..World::default()
    };
    let three = body_with(
        "a",
        &json!({ "mail": {
        "from": "shop@example.com",
        "to": ["ann@example.org", "bob@example.org", "cid@example.org"],
        "content": { "simple": { "subject": "Hello", "text": "Hi" } },
    } }),
    );
    world
        .handle(&[vec![three], bodies(&["b", "c"])].concat())
        .await;
    assert_eq!(
        world.calls(),
        [
            "claim", "slow", "pause", "block", "commit", "book", "park", "put", "put", "trace"
        ]
    );
    assert_eq!(world.told()[0], "slow 0 3", "its recipients");
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_names_nobody_is_the_accounts_or_the_sets_as_the_account_says() {
    for (account_sends, told, code) in [
        (Some(true), "pause acme 60000 set_paused", "Parked"),
        (
            Some(false),
            "block 60000 to 900000 account_paused",
            "Blocked",
        ),
    ] {
        let world = World {
            outcomes: [("a", Outcome::Paused)].into(),
            account_sends,
            ..World::default()
        };
        let handled = world.handle(&bodies(&["a"])).await;
        assert_eq!(world.told(), [told], "{account_sends:?}");
        assert!(handled.count(code) > 0, "{account_sends:?}");
        let is_parked = account_sends == Some(true);
        assert_eq!(world.parked().len(), usize::from(is_parked));
        assert_eq!(world.copies().len(), usize::from(!is_parked));
    }
}

/// How often the account was asked about.
fn questions(world: &World) -> usize {
    let asked = world.calls().into_iter();
    asked.filter(|call| *call == "account").count()
}

#[tokio::test(start_paused = true)]
async fn the_account_is_asked_about_once_in_a_batch() {
    let ids = ["a", "b", "c", "d", "e"];
    for (account_sends, parked, copies) in [(Some(true), 5, 0), (Some(false), 0, 5), (None, 0, 5)] {
        let world = World {
            outcomes: ids.map(|id| (id, Outcome::Paused)).into(),
            // Some find out while it is asked about, some after that.
            claims: [("d", go(1_000)), ("e", go(1_500))].into(),
            sends_take: [("a", Duration::from_millis(1_200))].into(),
            account_sends,
            account_takes: Duration::from_millis(300),
            ..World::default()
        };
        world.handle(&bodies(&ids)).await;
        assert_eq!(questions(&world), 1, "{account_sends:?}");
        let now = (world.parked().len(), world.copies().len());
        assert_eq!(now, (parked, copies), "{account_sends:?}");
        if account_sends == Some(true) {
            assert_eq!(world.sent().len(), 5);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_nobody_knows_whom_holds_its_message_and_nobody_else() {
    for account_takes in [Duration::ZERO, HANGS] {
        let world = World {
            outcomes: [("a", Outcome::Paused), ("b", Outcome::Paused)].into(),
            claims: [("c", go(1_500))].into(),
            account_sends: None,
            account_takes,
            ..World::default()
        };
        let handled = world.handle(&bodies(&["a", "b", "c"])).await;
        assert_eq!((world.told(), questions(&world)), (vec![], 1));
        assert_eq!((world.sent().len(), handled.count("Sent")), (3, 1));
        assert_eq!(world.parked(), []);
        let copies = world.copies();
        assert_eq!(copies.len(), 2);
        for (_, copy) in copies {
            assert_eq!((&copy["holds"], &copy["attempts"]), (&json!(1), &json!(0)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_account_is_asked_about_nothing_else() {
    let world = World {
        outcomes: [("a", Outcome::SetPaused), ("b", Outcome::AccountPaused)].into(),
        ..World::default()
    };
    world.handle(&bodies(&["a", "b", "c"])).await;
    assert!(!world.calls().contains(&"account"));
}

#[tokio::test(start_paused = true)]
async fn a_blocking_answer_stops_what_was_not_sent_yet() {
    for outcome in [
        Outcome::DailyQuota,
        Outcome::AccountPaused,
        Outcome::Suspended,
        Outcome::Denied,
        Outcome::RateThrottled { retry_after: WAITS },
    ] {
        // The answer comes after 100 ms: b is under way then.
        let world = World {
            claims: [("b", go(50)), ("c", go(150)), ("d", go(1_900))].into(),
            outcomes: [("a", outcome)].into(),
            ..World::default()
        };
        let handled = world.handle(&bodies(&["a", "b", "c", "d"])).await;

        assert_eq!(world.sent(), ["a", "b"], "{outcome:?}");
        assert_eq!(handled.failed, [""; 0], "{outcome:?}");
        let ends = [
            ("a", Ending::Free),
            ("b", Ending::Sent),
            ("c", Ending::Free),
            ("d", Ending::Free),
        ];
        assert_eq!(world.ends(), ends.map(|(id, end)| (id.to_owned(), end)));
        let copies = world.copies();
        let ids: Vec<_> = copies.iter().map(|(_, copy)| &copy["send_id"]).collect();
        assert_eq!(ids, ["a", "c", "d"], "{outcome:?}");
        for (delay, copy) in &copies {
            assert!(*delay >= 30, "{outcome:?} {delay}");
            assert_eq!((&copy["attempts"], &copy["cells"]), (&json!(0), &json!([])));
            assert_eq!(
                (&copy["holds"], &copy["void"]),
                (&Value::Null, &Value::Null)
            );
        }
        assert_eq!(world.released(), [], "grants were drawn");
    }
}

#[tokio::test(start_paused = true)]
async fn other_answers_stop_nobody() {
    for outcome in [THROTTLED, Outcome::SetPaused, Outcome::Unknown] {
        let world = World {
            claims: [("b", go(500))].into(),
            outcomes: [("a", outcome)].into(),
            ..World::default()
        };
        world.handle(&bodies(&["a", "b"])).await;
        assert_eq!(world.sent(), ["a", "b"], "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn when_redis_cannot_be_told_the_message_goes_its_way() {
    let world = World {
        outcomes: [("a", Outcome::SetPaused), ("b", THROTTLED)].into(),
        brakes_take: HANGS,
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a", "b"])).await;
    assert_eq!((world.parked().len(), world.copies().len()), (1, 1));
    assert_eq!(handled.failed, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn retries_of_one_moment_are_spread() {
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    for (outcome, attempts, delays) in [(THROTTLED, 0, 4..=6), (Outcome::Unknown, 5, 32..=64)] {
        let world = World {
            outcomes: ids.map(|id| (id, outcome)).into(),
            ..World::default()
        };
        let bodies = ids.map(|id| body_with(id, &json!({ "attempts": attempts })));
        world.handle(&bodies).await;
        let found: HashSet<u16> = world.copies().iter().map(|(delay, _)| *delay).collect();
        assert!(found.len() > 1, "{found:?}");
        assert!(
            found.iter().all(|delay| delays.contains(delay)),
            "{found:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_as_long_as_the_provider_wants_but_not_past_what_sqs_delays() {
    let told = |seconds| Outcome::Unavailable {
        retry_after: Some(Millis::from_secs(seconds)),
    };
    let world = World {
        outcomes: [("a", told(30)), ("b", told(5_000))].into(),
        ..World::default()
    };
    world.handle(&bodies(&["a", "b"])).await;
    let delays: Vec<_> = world.copies().iter().map(|(delay, _)| *delay).collect();
    assert!((30..=32).contains(&delays[0]), "{delays:?}");
    assert_eq!(delays[1], 900);
}

#[tokio::test(start_paused = true)]
async fn the_tenth_failed_attempt_is_the_last() {
    let world = World {
        outcomes: [
            ("last", Outcome::Unknown),
            ("ninth", Outcome::Unknown),
            ("throttled", THROTTLED),
        ]
        .into(),
        ..World::default()
    };
    let body = |id, attempts: u32| body_with(id, &json!({ "attempts": attempts }));
    let handled = world
        .handle(&[
            body("last", MAX_ATTEMPTS - 1),
            body("ninth", MAX_ATTEMPTS - 2),
            body("throttled", MAX_ATTEMPTS + 5),
        ])
        .await;

    let counts = [
        ("DeadLettered", 1),
        ("Failed", 2),
        ("Retried", 2),
        ("Throttled", 1),
    ];
    assert_eq!(handled.counts(), counts.into());
    let dead = world.put(DLQ);
    assert!(is_reason(&dead[0], "attempts_exhausted"));
    let detail = Attribute::text("SendslotDetail", "unknown: 400 SomeException");
    assert!(dead[0].attributes.contains(&detail), "{dead:?}");
    assert!(
        world.ends().contains(&("last".to_owned(), Ending::Free)),
        "a redrive may send it"
    );
}

#[tokio::test(start_paused = true)]
async fn an_uncertain_send_waits_as_long_as_the_settings_say() {
    let world = World {
        vars: vec![("SENDSLOT_CONFIRMATION_SECONDS", "42")],
        outcomes: [("a", Outcome::Uncertain)].into(),
        ..World::default()
    };
    // An operator had it sent again: that was this once.
    let body = body_with("a", &json!({ "resend": true }));
    let handled = world.handle(&[body]).await;
    let mut copy = envelope("a");
    (copy["uncertain"], copy["cells"]) = (true.into(), json!([]));
    assert_eq!(world.copies(), [(42, copy)]);
    assert_eq!(handled.failed, [""; 0]);
    assert!(!world.calls().contains(&"book"));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_its_queue_does_not_take_leaves_the_message_where_it_is() {
    let world = World {
        outcomes: [
            ("a", Outcome::Uncertain),
            ("b", Outcome::Denied),
            ("c", THROTTLED),
        ]
        .into(),
        full: [SEND].into(),
        bookings: std::sync::Mutex::new(
            [
                sendslot_schedule::Booking::Blocked(Millis(1)),
                sendslot_schedule::Booking::Slot(slot()),
            ]
            .into(),
        ),
        ..World::default()
    };
    let mut handled = world.handle(&bodies(&["a", "b", "c"])).await;
    handled.failed.sort();
    assert_eq!(handled.failed, ["m0", "m1", "m2"]);
    let counts = [("Denied", 1), ("Throttled", 1), ("Uncertain", 1)];
    assert_eq!(handled.counts(), counts.into());
    assert_eq!(
        world.released(),
        [unused(slot().at.cell(), &slot().cells)],
        "the new slot"
    );
}
