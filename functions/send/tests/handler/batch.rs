//! The way of a batch, on fakes.

use std::{collections::HashSet, sync::Mutex, time::Duration};

use send::batch::{CLOSING, COUNTS, SEND_TIMEOUT};
use sendslot_domain::{Cell, Lane, Millis, outcome::Outcome};
use sendslot_runtime::queue::{Attribute, Message};
use sendslot_schedule::{Booking, Claim, Ended, Ending, Purpose, Standing, Unused, Wait};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fakes::{
    Asked, DLQ, FULL, HANGS, NOW, REQUEST, SEND, THROTTLED, TIME, World, bodies, body_with,
    envelope, event, go, settings, slot, unused,
};

fn read(message: &Message) -> Value {
    serde_json::from_str(&message.body).unwrap()
}

/// Whether a dead letter has this reason.
pub(crate) fn is_reason(message: &Message, code: &'static str) -> bool {
    message
        .attributes
        .contains(&Attribute::text("SendslotReason", code))
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
    let world = World {
        claims: ids
            .into_iter()
            .enumerate()
            .map(|(index, id)| (id, go(wait(index).0)))
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
    let world = World {
        claims: [("a", later(12_999)), ("b", later(950_000))].into(),
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a", "b"])).await;

    assert_eq!(handled.failed, [""; 0]);
    assert_eq!(handled.count("Early"), 2);
    assert_eq!(world.calls(), ["claim", "put", "put"]);
    assert_eq!(
        world.copies(),
        [(12, envelope("a")), (900, envelope("b"))],
        "with slot and all"
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_guard_costs_a_new_slot_but_no_attempt() {
    let world = World {
        claims: [("b", FULL)].into(),
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
    let Some(Asked::Book { lane, asks, ids }) = book else {
        panic!("nothing was booked")
    };
    assert_eq!(
        (lane, asks.len(), asks[0].cost, asks[0].standing),
        (Lane::Bulk, 1, 1, Standing::Again)
    );
    assert_eq!(asks[0].tenant.as_str(), "beta");
    assert_eq!(ids, [Some("b".parse().unwrap())], "so that it can be found");
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
async fn what_is_being_sent_elsewhere_comes_back_when_that_lease_ends() {
    let held = |ms| Claim::Held { left: Millis(ms) };
    let world = World {
        claims: [("b", held(1_001)), ("c", held(0))].into(),
        fails: ["hide"].into(),
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
    let world = World {
        claims: [("a", Claim::Conflict)].into(),
        ..World::default()
    };
    let bodies = [
        bodies(&["a"]),
        vec![body_with("c", &json!({ "tenant": "gone" }))],
    ]
    .concat();
    let handled = world.handle(&bodies).await;

    assert_eq!(handled.failed, [""; 0]);
    assert_eq!(handled.counts(), [("DeadLettered", 2)].into());
    assert_eq!(world.sent(), [""; 0]);
    assert_eq!(world.ends(), [], "claims of others are theirs");
    let dead = world.put(DLQ);
    for (body, code) in bodies.iter().zip(["send_id_conflict", "unknown_tenant"]) {
        let message = dead.iter().find(|message| message.body == *body).unwrap();
        assert!(is_reason(message, code), "{message:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_without_a_free_slot_waits_unbooked() {
    let wait = Wait {
        delay: Millis::from_secs(50),
        place: 0,
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
    let (delay, copy) = world.copies().remove(0);
    assert_eq!(copy["cells"], json!([]));
    assert!((50..=52).contains(&delay), "{delay}");
    assert!(is_reason(&world.put(DLQ)[0], "unknown_tenant"));
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
            outcomes: [
                ("b", Outcome::Unknown),
                ("c", Outcome::Uncertain),
                ("f", Outcome::SetPaused),
            ]
            .into(),
            ..world
        };
        let expired = body_with("d", &json!({ "expires_at_ms": NOW.0 }));
        let handled = world
            .handle(&[bodies(&["a", "b", "c", "f"]), vec![expired]].concat())
            .await;

        assert!(world.last_send().elapsed() <= CLOSING);
        assert_eq!(handled.failed, [""; 0], "copies take their place");
        let counts = [
            ("Sent", 1),
            ("SentUncommitted", 1),
            ("Failed", 1),
            ("RedisDown", 1),
            ("Uncertain", 1),
            ("Held", 1),
            ("Expired", 1),
            ("Paused", 1),
            ("Parked", 1),
        ];
        assert_eq!(handled.counts(), counts.into());
        assert_eq!(
            world.calls(),
            [
                "claim", "pause", "commit", "commit", "commit", "park", "put", "put"
            ],
            "no more is asked of Redis"
        );
        // Whose claims may still stand says so, unless it may have been sent.
        let copies = world.copies();
        let copy = |id| {
            &copies
                .iter()
                .find(|(_, copy)| copy["send_id"] == id)
                .unwrap()
                .1
        };
        assert_eq!(copy("b")["void"], REQUEST);
        assert_eq!(copy("b")["attempts"], 1);
        assert_eq!(copy("c")["void"], Value::Null);
        assert_eq!(copy("c")["uncertain"], true);
        assert_eq!(world.parked()[0].1["void"], REQUEST);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_whose_claim_still_stands_says_so() {
    for (commits_fail, void) in [(2, Value::Null), (3, REQUEST.into())] {
        let world = World {
            outcomes: [("a", Outcome::Unknown), ("b", Outcome::Unknown)].into(),
            claims: [("c", Claim::Conflict)].into(),
            commits_fail: Mutex::new(commits_fail),
            ..World::default()
        };
        let last = |id, more: Value| {
            let mut body = envelope(id);
            body["attempts"] = 9.into();
            for (name, value) in more.as_object().unwrap() {
                body[name] = value.clone();
            }
            body.to_string()
        };
        let sent = [
            last("a", json!({})),
            // It may have been sent before; the claim says no more than that.
            last("b", json!({ "uncertain": true })),
            last("c", json!({})),
            "{".to_owned(),
        ];
        let handled = world.handle(&sent).await;
        assert_eq!(handled.failed, [""; 0]);
        let dead = world.put(DLQ);
        let of = |n: usize| -> Value {
            let id = &serde_json::from_str::<Value>(&sent[n]).unwrap()["send_id"];
            let bodies = dead
                .iter()
                .filter_map(|put| serde_json::from_str(&put.body).ok());
            bodies
                .into_iter()
                .find(|body: &Value| body["send_id"] == *id)
                .unwrap()
        };
        assert_eq!(dead.len(), 4);
        assert_eq!(of(0)["void"], void, "{commits_fail} fail");
        assert_eq!(of(0)["attempts"], 9, "a redrive has one attempt");
        assert_eq!(of(0)["mail"], envelope("a")["mail"]);
        for n in [1, 2] {
            assert_eq!(of(n)["void"], Value::Null, "{n}");
        }
        assert!(dead.iter().any(|put| put.body == "{"));
        // What a redrive is claimed with.
        let redrive = World::default();
        let body = dead.iter().find(|put| put.body.contains("\"a\"")).unwrap();
        redrive.handle(std::slice::from_ref(&body.body)).await;
        assert_eq!(redrive.claimed()[0].void.as_deref(), void.as_str());
    }
}

#[tokio::test(start_paused = true)]
async fn all_after_the_last_send_fits_in_its_time_when_nothing_answers() {
    // The commit works at the last moment; what comes before and after it hangs.
    for queues_take in [Duration::ZERO, HANGS] {
        let held = Claim::Held { left: Millis(500) };
        let world = World {
            claims: [("d", held)].into(),
            outcomes: [
                ("b", THROTTLED),
                ("c", Outcome::Uncertain),
                ("f", Outcome::SetPaused),
                ("g", Outcome::AccountPaused),
            ]
            .into(),
            brakes_take: HANGS,
            commits_fail: Mutex::new(2),
            commit_takes: Duration::from_millis(999),
            slots_take: HANGS,
            parking_takes: HANGS,
            queues_take,
            ..World::default()
        };
        let expired = body_with("e", &json!({ "expires_at_ms": NOW.0 }));
        let mut handled = world
            .handle(&[bodies(&["a", "b", "c", "d", "f", "g"]), vec![expired]].concat())
            .await;

        let took = world.last_send().elapsed();
        assert!(took > Duration::from_secs(5) && took < CLOSING, "{took:?}");
        handled.failed.sort();
        let calls = world.calls();
        for call in ["slow", "block", "pause", "book", "park", "put", "hide"] {
            assert!(calls.contains(&call), "{call} of {calls:?}");
        }
        let counts = ["Sent", "SentUncommitted", "Expired"].map(|name| handled.count(name));
        assert_eq!(counts, [1, 0, 1]);
        if queues_take == HANGS {
            assert_eq!(handled.failed, ["m1", "m2", "m3", "m4", "m5"]);
        } else {
            assert_eq!(handled.failed, ["m3"]);
            assert_eq!(world.copies().len(), 4, "b, c, f and g are held");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whether_the_account_sends_is_asked_within_the_time_of_a_send() {
    let world = World {
        outcomes: [("a", Outcome::Paused)].into(),
        send_takes: SEND_TIMEOUT.saturating_sub(Duration::from_secs(1)),
        account_sends: Some(true),
        account_takes: HANGS,
        commits_fail: Mutex::new(2),
        commit_takes: Duration::from_millis(999),
        slots_take: HANGS,
        queues_take: HANGS,
        ..World::default()
    };
    let start = Instant::now();
    let handled = world
        .handle_within(SEND_TIMEOUT + CLOSING, &bodies(&["a"]))
        .await;
    let took = start.elapsed();
    assert!(took < SEND_TIMEOUT + CLOSING, "{took:?}");
    assert_eq!(handled.failed, ["m0"], "no queue took its copy");
    assert_eq!(world.told(), [""; 0]);
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
    let world = World {
        claims: [("a", go(0)), ("b", go(1_000))].into(),
        claim_takes: TIME.saturating_sub(SEND_TIMEOUT + CLOSING + Duration::from_millis(500)),
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a", "b"])).await;
    assert_eq!(world.sent(), ["a"]);
    assert_eq!(handled.failed, [""; 0]);
    assert_eq!(
        world.ends(),
        [
            ("a".to_owned(), Ending::Sent),
            ("b".to_owned(), Ending::Free)
        ]
    );
    assert_eq!(handled.count("Rebooked"), 1, "the second goes another time");
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
    let purposes: Vec<_> = world.claimed().iter().map(|ask| ask.purpose).collect();
    let (expire, once) = (Purpose::Expire, Purpose::Once);
    assert_eq!(purposes, [expire, expire, expire, once, once]);
    assert_eq!(
        world.ends().len(),
        2,
        "the claim has marked them as expired"
    );
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
    let claims = [
        ("rebooked", FULL),
        ("copy", Claim::Ended(Ended::Sent)),
        ("conflict", Claim::Conflict),
        ("uncertain", Claim::Uncertain { age: Millis(0) }),
        ("blocked", Claim::Blocked { left: Millis(500) }),
    ];
    let (bodies, slots): (Vec<_>, Vec<_>) = [
        ("rebooked", "beta"),
        ("copy", "acme"),
        ("conflict", "acme"),
        ("uncertain", "acme"),
        ("blocked", "acme"),
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
    assert_eq!(handled.failed.len(), 5);
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
    let copies = world.copies();
    let uncertain = copies
        .iter()
        .find(|(_, copy)| copy["send_id"] == "uncertain");
    assert_eq!(uncertain.unwrap().1["cells"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn what_costs_more_than_a_lowered_cap_is_dead_lettered() {
    let world = World {
        claims: [("full", FULL)].into(),
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
    let sender = send::Sender::new(&world, &world, &world, &world, settings(&[]));
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
            if let Asked::Send { tenant, .. } = asked {
                Some(tenant.configuration_set)
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
    for name in COUNTS {
        assert_eq!(handled.count(name), u64::from(name == "Sent"), "{name}");
    }
}
