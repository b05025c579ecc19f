//! The way of a batch, on fakes.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
    time::Duration,
};

use send::batch::{CLOSING, SEND_TIMEOUT};
use sendslot_domain::{
    Cell, Lane, Millis,
    outcome::{DAILY_QUOTA_PAUSE, Outcome, longest_jitter},
};
use sendslot_runtime::queue::{Attribute, Message};
use sendslot_schedule::{Booking, Claim, Ending, Standing, Unused, Wait};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fakes::{
    Asked, NOW, REQUEST, TIME, World, bodies, body_with, envelope, event, slot, unused,
};

const SEND: &str = "sendslot-bulk-send";
const DLQ: &str = "sendslot-bulk-send-dlq";
/// How long a call takes that never answers.
const HANGS: Duration = Duration::from_hours(1);
const THROTTLED: Outcome = Outcome::RateThrottled { retry_after: None };

fn read(message: &Message) -> Value {
    serde_json::from_str(&message.body).unwrap()
}

fn reason(message: &Message) -> &Attribute {
    message
        .attributes
        .iter()
        .find(|a| a.name == "SendslotReason")
        .unwrap()
}

fn is_reason(message: &Message, code: &'static str) -> bool {
    *reason(message) == Attribute::text("SendslotReason", code)
}

#[tokio::test(start_paused = true)]
async fn a_good_batch_takes_one_claim_and_one_commit() {
    let world = World::default();
    let handled = world.handle(&bodies(&["a", "b", "c"])).await;

    assert_eq!(handled.failed, [""; 0]);
    assert_eq!(handled.count("Sent"), 3);
    assert_eq!(world.calls(), ["claim", "commit"]);
    assert_eq!(world.sent(), ["a", "b", "c"]);
    let marks: Vec<_> = ["a", "b", "c"]
        .map(|id| (id.to_owned(), Ending::Sent))
        .into();
    assert_eq!(world.ends(), marks);

    let Some(Asked::Claim { owner, terms, asks }) = world.asked().into_iter().next() else {
        panic!("no claim")
    };
    assert_eq!(
        (owner.as_str(), terms.lease, terms.longest_wait),
        (REQUEST, Millis::from_secs(60), Millis(2_000))
    );
    assert_eq!(
        (asks[1].send_id.as_str(), asks[1].tenant.as_str()),
        ("b", "acme")
    );
    assert_eq!(
        (asks[1].fingerprint.as_str(), asks[1].cost, asks[1].slot),
        ("00ff", 1, NOW)
    );
    let Some(Asked::Commit { owner, memory, .. }) = world.asked().into_iter().next_back() else {
        panic!("no commit")
    };
    assert_eq!(owner, REQUEST);
    assert!(
        memory > Millis::from_secs(14 * 86_400) && memory == terms.memory,
        "marks must outlive messages"
    );
}

#[tokio::test(start_paused = true)]
async fn mails_go_beside_each_other_and_none_before_its_moment() {
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let wait = |index: usize| Millis(index as u64 * 7);
    let go = |index| Claim::Go {
        at: NOW + wait(index),
        wait: wait(index),
    };
    let world = World {
        claims: ids
            .into_iter()
            .enumerate()
            .map(|(index, id)| (id, go(index)))
            .collect(),
        claim_takes: Duration::from_millis(30),
        ..World::default()
    };
    let start = Instant::now();
    let handled = world.handle(&bodies(&ids)).await;

    assert_eq!(handled.count("Sent"), 10);
    let answered = start + world.claim_takes;
    for asked in world.asked() {
        if let Asked::Send {
            send_id, grant, at, ..
        } = asked
        {
            let index = ids.iter().position(|id| *id == send_id).unwrap();
            assert_eq!(grant, NOW + wait(index));
            let due = answered + Duration::from(wait(index));
            assert!(
                at >= due && at <= due + Duration::from_millis(2),
                "{send_id}: {:?}",
                at - answered
            );
        }
    }
    let took = answered.elapsed();
    assert!(
        took >= Duration::from_millis(163) && took < Duration::from_millis(180),
        "{took:?}"
    );
    assert!(handled.count("GrantErrorMs") <= 2);
    assert!(
        (63..=65).contains(&handled.count("SlotErrorMs")),
        "{:?}",
        handled.metrics.get("SlotErrorMs")
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_that_surfaced_early_goes_back_as_it_is() {
    let later = |ms| Claim::Later {
        wait: Millis(ms),
        slot_ahead: true,
    };
    let claims = HashMap::from([("a", later(12_999)), ("b", later(950_000))]);
    let world = World {
        claims,
        ..World::default()
    };
    let bodies = bodies(&["a", "b"]);
    let handled = world.handle(&bodies).await;

    assert_eq!(handled.failed, [""; 0]);
    assert_eq!(handled.count("Early"), 2);
    assert_eq!(world.calls(), ["claim", "put", "put"]);
    let put = world.put(SEND);
    assert_eq!((&put[0].body, put[0].delay_seconds), (&bodies[0], 12));
    assert_eq!((&put[1].body, put[1].delay_seconds), (&bodies[1], 900));
}

#[tokio::test(start_paused = true)]
async fn a_full_guard_costs_a_new_slot_but_no_attempt() {
    let claims = HashMap::from([(
        "b",
        Claim::Later {
            wait: Millis(0),
            slot_ahead: false,
        },
    )]);
    let world = World {
        claims,
        ..World::default()
    };
    let body = body_with("b", &json!({ "attempts": 3, "tenant": "beta" }));
    let handled = world.handle(&[envelope("a").to_string(), body]).await;

    assert_eq!(handled.failed, [""; 0]);
    assert_eq!(
        (
            handled.count("Sent"),
            handled.count("Rebooked"),
            handled.count("Retried")
        ),
        (1, 1, 0)
    );
    assert_eq!(
        world.ends(),
        [("a".to_owned(), Ending::Sent)],
        "nothing was claimed for b"
    );
    let book = world
        .asked()
        .into_iter()
        .find(|asked| matches!(asked, Asked::Book { .. }));
    let Some(Asked::Book { lane, asks }) = book else {
        panic!("nothing was booked")
    };
    assert_eq!(
        (lane, asks.len(), asks[0].cost, asks[0].standing),
        (Lane::Bulk, 1, 1, Standing::Again)
    );
    assert_eq!(asks[0].tenant.as_str(), "beta");
    let put = world.put(SEND);
    assert_eq!(put[0].delay_seconds, 4);
    let mut rebooked = envelope("b");
    rebooked["tenant"] = "beta".into();
    rebooked["attempts"] = 3.into();
    rebooked["slot_ms"] = slot().at.0.into();
    rebooked["cells"] = json!([[slot().cells[0].0.0, 1]]);
    assert_eq!(read(&put[0]), rebooked);
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_is_dropped() {
    let world = World {
        claims: HashMap::from([("a", Claim::Sent)]),
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a"])).await;

    assert_eq!((handled.failed.len(), handled.count("Duplicate")), (0, 1));
    assert_eq!(world.calls(), ["claim", "release"], "of a slot of its own");
    assert_eq!(world.sent(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_being_sent_elsewhere_comes_back_when_that_lease_ends() {
    let held = |ms| Claim::Held { left: Millis(ms) };
    let claims = HashMap::from([("b", held(1_001)), ("c", held(0))]);
    let world = World {
        claims,
        hiding_fails: true,
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a", "b", "c"])).await;

    assert_eq!(handled.failed, ["m1", "m2"]);
    assert_eq!((handled.count("Sent"), handled.count("Held")), (1, 2));
    assert_eq!(world.hidden(), [("r1".to_owned(), 2), ("r2".to_owned(), 1)]);
    assert_eq!(world.sent(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_sent_at_all_is_dead_lettered_with_its_reason() {
    let claims = HashMap::from([("a", Claim::Conflict), ("b", Claim::Unknown)]);
    let world = World {
        claims,
        ..World::default()
    };
    let bodies = [
        bodies(&["a", "b"]),
        vec![body_with("c", &json!({ "tenant": "gone" }))],
    ]
    .concat();
    let handled = world.handle(&bodies).await;

    assert_eq!(
        (
            handled.failed.len(),
            handled.count("DeadLettered"),
            handled.count("Uncertain")
        ),
        (0, 3, 1)
    );
    assert_eq!(world.sent(), [""; 0]);
    assert_eq!(world.ends(), [], "claims of others are theirs");
    let dead = world.put(DLQ);
    for (body, code) in bodies
        .iter()
        .zip(["send_id_conflict", "uncertain", "unknown_tenant"])
    {
        let message = dead.iter().find(|message| message.body == *body).unwrap();
        assert!(is_reason(message, code), "{message:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_send_takes_a_new_slot_once_its_claim_is_given_up() {
    let outcomes = [
        ("a", THROTTLED),
        ("b", Outcome::Unavailable { retry_after: None }),
        ("c", Outcome::NotSent),
        ("d", Outcome::Unknown),
        ("e", Outcome::Paused),
    ];
    let world = World {
        outcomes: outcomes.into(),
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a", "b", "c", "d", "e", "f"])).await;

    assert_eq!(handled.failed, [""; 0]);
    assert_eq!(
        (
            handled.count("Sent"),
            handled.count("Retried"),
            handled.count("Throttled")
        ),
        (1, 5, 1)
    );
    assert_eq!(
        world.calls(),
        ["claim", "commit", "book", "put", "put", "put", "put", "put"]
    );
    let frees = world
        .ends()
        .into_iter()
        .filter(|(_, how)| *how == Ending::Free)
        .map(|(id, _)| id);
    assert_eq!(frees.collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
    for message in world.put(SEND) {
        let envelope = read(&message);
        assert_eq!(
            (&envelope["attempts"], &envelope["slot_ms"]),
            (&json!(1), &json!(slot().at.0))
        );
        assert!(
            (4..=6).contains(&message.delay_seconds),
            "4.2 s to the slot and up to 2 s of jitter"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn retries_of_one_moment_are_spread() {
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let world = World {
        outcomes: ids.map(|id| (id, THROTTLED)).into(),
        ..World::default()
    };
    let bodies: Vec<_> = ids
        .iter()
        .map(|id| body_with(id, &json!({ "attempts": 3 })))
        .collect();
    world.handle(&bodies).await;

    let delays: HashSet<u16> = world
        .put(SEND)
        .iter()
        .map(|message| message.delay_seconds)
        .collect();
    assert!(delays.len() > 1, "{delays:?}");
    let latest = 4 + u16::try_from(longest_jitter(4).whole_secs()).unwrap();
    assert!(
        delays.iter().all(|delay| (4..=latest).contains(delay)),
        "{delays:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_as_long_as_the_provider_wants_but_not_past_what_sqs_delays() {
    let told = |seconds| Outcome::RateThrottled {
        retry_after: Some(Millis::from_secs(seconds)),
    };
    let outcomes = [
        ("a", told(30)),
        ("b", told(5_000)),
        ("c", Outcome::DailyQuota),
    ]
    .into();
    let world = World {
        outcomes,
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a", "b", "c"])).await;

    assert_eq!(
        (handled.count("Throttled"), handled.count("Retried")),
        (3, 3)
    );
    let delays: Vec<u64> = world
        .put(SEND)
        .iter()
        .map(|message| message.delay_seconds.into())
        .collect();
    let quota = DAILY_QUOTA_PAUSE.whole_secs();
    assert!((30..=32).contains(&delays[0]), "{delays:?}");
    assert_eq!(delays[1], 900);
    assert!((quota..=quota + 2).contains(&delays[2]), "{delays:?}");
}

#[tokio::test(start_paused = true)]
async fn a_retry_without_a_free_slot_waits_unbooked() {
    let wait = Wait {
        delay: Millis::from_secs(50),
        place: 7,
        estimate: Millis::from_secs(90),
    };
    let world = World {
        outcomes: [("a", THROTTLED), ("b", THROTTLED)].into(),
        bookings: Mutex::new([Booking::Wait(wait), Booking::UnknownTenant].into()),
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a", "b"])).await;

    assert_eq!(
        (handled.count("Retried"), handled.count("DeadLettered")),
        (1, 1)
    );
    let put = world.put(SEND);
    let envelope = read(&put[0]);
    assert_eq!(
        (&envelope["attempts"], &envelope["cells"]),
        (&json!(1), &json!([]))
    );
    assert!((50..=52).contains(&put[0].delay_seconds));
    assert!(is_reason(&world.put(DLQ)[0], "unknown_tenant"));
}

#[tokio::test(start_paused = true)]
async fn the_fifth_failed_attempt_is_the_last() {
    let world = World {
        outcomes: [("a", THROTTLED), ("b", THROTTLED)].into(),
        ..World::default()
    };
    let body = |id, attempts| body_with(id, &json!({ "attempts": attempts }));
    let handled = world.handle(&[body("a", 4), body("b", 3)]).await;

    assert_eq!(
        (handled.count("DeadLettered"), handled.count("Retried")),
        (1, 1)
    );
    assert_eq!(read(&world.put(SEND)[0])["send_id"], "b");
    let dead = world.put(DLQ);
    assert!(is_reason(&dead[0], "attempts_exhausted"));
    let detail = Attribute::text("SendslotDetail", "rate_throttled: 400 SomeException");
    assert!(dead[0].attributes.contains(&detail), "{dead:?}");
    assert!(
        world.ends().contains(&("a".to_owned(), Ending::Free)),
        "a redrive may send it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rejected_mail_is_counted_and_deleted() {
    let world = World {
        outcomes: [("a", Outcome::Rejected), ("b", Outcome::BadRequest)].into(),
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a", "b"])).await;

    assert_eq!((handled.failed.len(), handled.count("Rejected")), (0, 2));
    assert_eq!(world.calls(), ["claim", "commit"]);
    assert!(world.ends().iter().all(|(_, how)| *how == Ending::Free));
}

#[tokio::test(start_paused = true)]
async fn a_mail_that_may_have_been_accepted_is_set_aside_with_its_claim() {
    let world = World {
        outcomes: [("a", Outcome::Uncertain)].into(),
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a"])).await;

    assert_eq!(
        (
            handled.failed.len(),
            handled.count("Uncertain"),
            handled.count("DeadLettered")
        ),
        (0, 1, 1)
    );
    assert_eq!(
        world.calls(),
        ["claim", "put"],
        "neither given up nor booked again"
    );
    assert!(is_reason(&world.put(DLQ)[0], "uncertain"));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_put_on_a_queue_comes_back_and_its_new_slot_is_released() {
    let world = World {
        claims: [
            ("c", Claim::Conflict),
            (
                "d",
                Claim::Later {
                    wait: Millis(3_000),
                    slot_ahead: true,
                },
            ),
        ]
        .into(),
        outcomes: [("b", THROTTLED)].into(),
        full: [SEND, DLQ].into(),
        ..World::default()
    };
    let mut handled = world.handle(&bodies(&["a", "b", "c", "d"])).await;

    handled.failed.sort();
    assert_eq!(handled.failed, ["m1", "m2", "m3"]);
    let counts = ["Sent", "Retried", "Early", "DeadLettered"].map(|name| handled.count(name));
    assert_eq!(counts, [1, 0, 0, 0]);
    assert_eq!(
        world.released(),
        [unused(slot().at.cell(), &slot().cells)],
        "d keeps its slot, b's new one is given back"
    );
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_tried_three_times() {
    let world = World {
        commits_fail: Mutex::new(2),
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a"])).await;

    assert_eq!(world.calls(), ["claim", "commit", "commit", "commit"]);
    assert_eq!(
        (handled.count("Sent"), handled.count("SentUncommitted")),
        (1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_sent_mail_never_goes_back_for_want_of_a_commit() {
    let refused = World {
        commits_fail: Mutex::new(99),
        ..World::default()
    };
    let hanging = World {
        commit_takes: HANGS,
        slots_take: HANGS,
        ..World::default()
    };
    for world in [refused, hanging] {
        let world = World {
            outcomes: [("b", THROTTLED), ("c", Outcome::Uncertain)].into(),
            ..world
        };
        let expired = body_with("d", &json!({ "expires_at_ms": NOW.0 }));
        let handled = world
            .handle(&[bodies(&["a", "b", "c"]), vec![expired]].concat())
            .await;

        assert!(world.last_send().elapsed() <= CLOSING);
        assert_eq!(handled.failed, ["m1"], "it needed a new slot");
        let counts = [
            "Sent",
            "SentUncommitted",
            "DeadLettered",
            "Expired",
            "Retried",
        ];
        assert_eq!(counts.map(|name| handled.count(name)), [1, 1, 1, 1, 0]);
        assert_eq!(
            world.calls(),
            ["claim", "commit", "commit", "commit", "put"],
            "no more is asked of Redis"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn all_after_the_last_send_fits_in_its_time_when_nothing_answers() {
    // The commit works at the last moment; what comes after it hangs.
    for queues_take in [Duration::ZERO, HANGS] {
        let held = Claim::Held { left: Millis(500) };
        let world = World {
            claims: [("d", held)].into(),
            outcomes: [("b", THROTTLED), ("c", Outcome::Uncertain)].into(),
            commits_fail: Mutex::new(2),
            commit_takes: Duration::from_millis(999),
            slots_take: HANGS,
            queues_take,
            ..World::default()
        };
        let expired = body_with("e", &json!({ "expires_at_ms": NOW.0 }));
        let mut handled = world
            .handle(&[bodies(&["a", "b", "c", "d"]), vec![expired]].concat())
            .await;

        let took = world.last_send().elapsed();
        assert!(took > Duration::from_secs(3) && took < CLOSING, "{took:?}");
        handled.failed.sort();
        let calls = world.calls();
        assert!(calls.contains(&"book") && calls.contains(&"release"));
        assert_eq!(
            (handled.count("Sent"), handled.count("SentUncommitted")),
            (1, 0)
        );
        if queues_take == HANGS {
            assert_eq!(handled.failed, ["m1", "m2", "m3"]);
            assert_eq!(handled.count("DeadLettered"), 0);
        } else {
            assert_eq!(handled.failed, ["m1", "m3"]);
            assert_eq!(handled.count("DeadLettered"), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_hangs_leaves_time_to_give_it_up() {
    let world = World {
        claim_takes: HANGS,
        commit_takes: HANGS,
        slots_take: HANGS,
        ..World::default()
    };
    let start = Instant::now();
    let handled = world.handle(&bodies(&["a", "b"])).await;

    assert!(start.elapsed() < TIME, "{:?}", start.elapsed());
    assert_eq!(handled.failed, ["m0", "m1"]);
    assert_eq!(handled.count("ClaimFailed"), 2);
    assert!(world.ends().iter().all(|(_, how)| *how == Ending::Free));
}

#[tokio::test(start_paused = true)]
async fn without_a_claim_nothing_is_sent_and_all_come_back() {
    let world = World {
        claims_fail: true,
        ..World::default()
    };
    let bodies = [bodies(&["a", "b"]), vec!["{".into()]].concat();
    let handled = world.handle(&bodies).await;

    assert_eq!(
        handled.failed,
        ["m0", "m1"],
        "the bad message's end needs no claim"
    );
    assert_eq!(handled.count("ClaimFailed"), 2);
    assert_eq!(world.sent(), [""; 0]);
    assert!(is_reason(&world.put(DLQ)[0], "bad_envelope"));
    let frees = [
        ("a".to_owned(), Ending::Free),
        ("b".to_owned(), Ending::Free),
    ];
    assert_eq!(world.ends(), frees, "only the answer may have been lost");
}

#[tokio::test(start_paused = true)]
async fn without_a_booking_only_what_needed_one_comes_back() {
    let world = World {
        bookings_fail: true,
        outcomes: [("b", THROTTLED)].into(),
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a", "b"])).await;

    assert_eq!(handled.failed, ["m1"]);
    assert_eq!((handled.count("Sent"), handled.count("Retried")), (1, 0));
    assert_eq!(
        world.ends(),
        [
            ("a".to_owned(), Ending::Sent),
            ("b".to_owned(), Ending::Free)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn waits_shrink_with_the_time_that_is_left() {
    let left = Duration::from_millis(1_200);
    let world = World::default();
    world
        .handle_within(SEND_TIMEOUT + CLOSING + left, &bodies(&["a"]))
        .await;
    let Some(Asked::Claim { terms, .. }) = world.asked().into_iter().next() else {
        panic!("no claim")
    };
    assert_eq!(terms.longest_wait, Millis(1_200));
}

#[tokio::test(start_paused = true)]
async fn no_send_is_started_that_could_be_cut_short() {
    // No time at all: nothing is claimed.
    let world = World::default();
    let handled = world
        .handle_within(SEND_TIMEOUT, &bodies(&["a", "b"]))
        .await;
    assert_eq!(handled.failed, ["m0", "m1"]);
    assert_eq!(world.calls(), ["hide", "hide"]);
    assert_eq!(world.hidden(), [("r0".to_owned(), 0), ("r1".to_owned(), 0)]);

    // The claim took so long that only the first mail's turn is in time.
    let go = |ms| Claim::Go {
        at: NOW + Millis(ms),
        wait: Millis(ms),
    };
    let world = World {
        claims: [("a", go(0)), ("b", go(1_000))].into(),
        claim_takes: TIME.saturating_sub(SEND_TIMEOUT + CLOSING + Duration::from_millis(500)),
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a", "b"])).await;
    assert_eq!(world.sent(), ["a"]);
    assert_eq!(handled.failed, ["m1"]);
    assert_eq!(
        world.ends(),
        [
            ("a".to_owned(), Ending::Sent),
            ("b".to_owned(), Ending::Free)
        ]
    );
    assert_eq!(world.hidden(), [("r1".to_owned(), 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_bad_envelope_stops_no_other() {
    let bad = [
        String::new(),
        "{".to_owned(),
        "[]".to_owned(),
        body_with("c", &json!({ "send_id": "not an id" })),
        body_with("d", &json!({ "v": 2 })),
        body_with("e", &json!({ "lane": "express" })),
    ];
    let world = World::default();
    let handled = world
        .handle(&[bodies(&["a"]), bad.to_vec(), bodies(&["b"])].concat())
        .await;

    assert_eq!(
        (
            handled.failed.len(),
            handled.count("Sent"),
            handled.count("DeadLettered")
        ),
        (0, 2, 6)
    );
    let dead = world.put(DLQ);
    assert_eq!(
        dead.iter()
            .map(|message| message.body.as_str())
            .collect::<Vec<_>>(),
        bad
    );
    for message in &dead {
        assert!(is_reason(message, "bad_envelope"));
        let told = format!("{:?}", message.attributes);
        assert!(
            !told.contains("not an id") && !told.contains("express"),
            "content in {told}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_expired_is_not_sent_and_its_slot_is_released() {
    let day = 86_400_000;
    let expired = [
        json!({ "expires_at_ms": NOW.0 }),
        json!({ "first_seen_ms": NOW.0 - 14 * day }),
        json!({ "first_seen_ms": NOW.0 - 14 * day, "expires_at_ms": NOW.0 + day }),
    ];
    let fresh = [
        json!({ "expires_at_ms": NOW.0 + 1 }),
        json!({ "first_seen_ms": NOW.0 - 14 * day + 1 }),
    ];
    let bodies: Vec<_> = expired
        .iter()
        .chain(&fresh)
        .enumerate()
        .map(|(i, f)| body_with(&format!("id{i}"), f))
        .collect();
    let world = World::default();
    let handled = world.handle(&bodies).await;

    assert_eq!(
        (
            handled.failed.len(),
            handled.count("Expired"),
            handled.count("Sent")
        ),
        (0, 3, 2)
    );
    assert_eq!(world.sent(), ["id3", "id4"]);
    let one = unused(NOW.cell(), &[(NOW.cell(), 1)]);
    assert_eq!(world.released(), [one.clone(), one.clone(), one]);
}

/// An envelope whose slot is two cells ahead, for two recipients of whom one is booked in the cell after it.
fn ahead(send_id: &str, tenant: &str) -> (String, Unused) {
    let (goes, next) = (Cell(NOW.cell().0 + 2), Cell(NOW.cell().0 + 3));
    let cells = [[goes.0, 1], [next.0, 1]];
    let slot_ms = goes.start().0 + 700;
    let body = json!({ "tenant": tenant, "slot_ms": slot_ms, "cells": cells });
    let unused = Unused {
        tenant: tenant.parse().unwrap(),
        ..unused(goes, &[(goes, 1), (next, 1)])
    };
    (body_with(send_id, &body), unused)
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_without_a_grant_gives_its_slot_back() {
    let full = Claim::Later {
        wait: Millis(0),
        slot_ahead: false,
    };
    let claims = [
        ("rebooked", full),
        ("copy", Claim::Sent),
        ("conflict", Claim::Conflict),
        ("unknown", Claim::Unknown),
    ];
    let (bodies, slots): (Vec<_>, Vec<_>) = [
        ("rebooked", "beta"),
        ("copy", "acme"),
        ("conflict", "acme"),
        ("unknown", "acme"),
        ("stray", "gone"),
    ]
    .map(|(send_id, tenant)| ahead(send_id, tenant))
    .into_iter()
    .unzip();
    let world = World {
        claims: claims.into(),
        ..World::default()
    };
    let handled = world.handle(&bodies).await;
    assert_eq!((handled.count("Rebooked"), handled.failed.len()), (1, 0));
    let released = world.released();
    assert_eq!(released.len(), slots.len());
    assert!(slots.iter().all(|slot| released.contains(slot)));

    // What can't leave keeps its slot; only the new one goes back, and the copy's, which is deleted.
    let world = World {
        claims: claims.into(),
        full: [SEND, DLQ].into(),
        ..World::default()
    };
    let handled = world.handle(&bodies).await;
    assert_eq!(handled.failed.len(), 4);
    let new = Unused {
        tenant: "beta".parse().unwrap(),
        ..unused(slot().at.cell(), &slot().cells)
    };
    assert_eq!(world.released(), [slots[1].clone(), new]);
}

#[tokio::test(start_paused = true)]
async fn where_a_grant_was_drawn_the_slot_is_used_up() {
    let world = World {
        claims: [("held", Claim::Held { left: Millis(1) })].into(),
        outcomes: [
            ("throttled", THROTTLED),
            ("rejected", Outcome::Rejected),
            ("uncertain", Outcome::Uncertain),
        ]
        .into(),
        ..World::default()
    };
    let bodies = ["sent", "throttled", "rejected", "uncertain", "held"];
    let bodies = bodies.map(|send_id| ahead(send_id, "acme").0);
    let handled = world.handle(&bodies).await;
    assert_eq!((handled.count("Retried"), handled.count("Sent")), (1, 1));
    assert!(!world.calls().contains(&"release"));
}

#[tokio::test(start_paused = true)]
async fn what_costs_more_than_a_lowered_cap_is_dead_lettered() {
    let full = Claim::Later {
        wait: Millis(0),
        slot_ahead: false,
    };
    let world = World {
        claims: [("full", full)].into(),
        outcomes: [("throttled", THROTTLED)].into(),
        bookings: Mutex::new([Booking::OverCap, Booking::OverCap].into()),
        ..World::default()
    };
    let (full, slot) = ahead("full", "acme");
    let bodies = [full, envelope("throttled").to_string()];
    let handled = world.handle(&bodies).await;
    let counts = ["DeadLettered", "Rebooked", "Retried"].map(|name| handled.count(name));
    assert_eq!((counts, handled.failed.len()), ([2, 0, 0], 0));
    let dead = world.put(DLQ);
    assert!(dead.iter().all(|message| is_reason(message, "over_cap")));
    let bodies_put: HashSet<_> = dead.iter().map(|message| &message.body).collect();
    assert_eq!(bodies_put, bodies.iter().collect());
    assert_eq!(world.released(), [slot]);
}

#[tokio::test(start_paused = true)]
async fn the_queue_decides_the_lane() {
    let world = World {
        outcomes: [("a", THROTTLED)].into(),
        ..World::default()
    };
    world
        .run(event("sendslot-priority-send", &bodies(&["a"])), NOW, TIME)
        .await;
    assert!(world.asked().iter().any(|asked| matches!(
        asked,
        Asked::Book {
            lane: Lane::Priority,
            ..
        }
    )));
    assert_eq!(world.put("sendslot-priority-send").len(), 1);

    let invocation = send::Invocation {
        id: REQUEST.into(),
        now: NOW,
        deadline: Instant::now() + TIME,
    };
    let sender = send::Sender::new(&world, &world, &world, crate::fakes::settings());
    let refused = sender
        .handle(event("another-queue", &bodies(&["b"])), &invocation)
        .await;
    assert!(refused.is_err_and(|error| error.to_string().contains("another-queue")));
    assert_eq!(world.sent(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_tenants_mail_goes_through_its_configuration_set() {
    let world = World::default();
    world
        .handle(&[
            envelope("a").to_string(),
            body_with("b", &json!({ "tenant": "beta" })),
        ])
        .await;
    let sets: Vec<_> = world
        .asked()
        .into_iter()
        .filter_map(|asked| {
            if let Asked::Send {
                configuration_set, ..
            } = asked
            {
                Some(configuration_set)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(sets, [Some("acme-set".to_owned()), None]);
}

#[tokio::test(start_paused = true)]
async fn every_count_is_there_even_when_it_is_zero() {
    let handled = World::default().handle(&bodies(&["a"])).await;
    for name in send::batch::COUNTS {
        assert_eq!(handled.count(name), u64::from(name == "Sent"), "{name}");
    }
}
