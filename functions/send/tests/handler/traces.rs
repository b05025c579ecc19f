//! What is noted of mails on their way, for whoever looks for one.

use std::time::Duration;

use sendslot_domain::{Lane, Millis, Moment, outcome::Outcome};
use sendslot_schedule::{Booking, Claim, Note, What};
use serde_json::json;
use tokio::time::Instant;

use crate::fakes::*;

fn noted(send_id: &str, what: What) -> Note {
    Note {
        tenant: "acme".parse().unwrap(),
        send_id: send_id.parse().unwrap(),
        lane: Lane::Bulk,
        cost: 1,
        what,
    }
}

fn dead(reason: &str) -> What {
    What::Dead {
        reason: reason.to_owned(),
    }
}

fn parked(reason: &str) -> What {
    What::Parked {
        first_seen: Moment(NOW.0 - 5_000),
        reason: reason.to_owned(),
    }
}

/// The last of its attempts.
fn last(send_id: &str) -> String {
    body_with(send_id, &json!({ "attempts": 9 }))
}

#[tokio::test(start_paused = true)]
async fn what_is_parked_or_dead_lettered_is_noted_in_one_call_after_all_else() {
    let world = World {
        outcomes: [
            ("gives-up", Outcome::Unknown),
            ("set-paused", Outcome::SetPaused),
        ]
        .into(),
        claims: [
            ("conflict", Claim::Conflict),
            ("paused", Claim::Paused { left: None }),
            (
                "uncertain",
                Claim::Uncertain {
                    age: Millis::from_secs(301),
                },
            ),
            ("over-cap", FULL),
        ]
        .into(),
        bookings: std::sync::Mutex::new([Booking::OverCap].into()),
        ..World::default()
    };
    let bodies = [
        bodies(&[
            "sent",
            "conflict",
            "paused",
            "uncertain",
            "over-cap",
            "set-paused",
        ]),
        vec![last("gives-up"), "not an envelope".to_owned()],
    ]
    .concat();
    let handled = world.handle(&bodies).await;
    assert_eq!(handled.failed, [""; 0]);
    let mut noted_of = world.noted();
    noted_of.sort_by(|a, b| a.send_id.as_str().cmp(b.send_id.as_str()));
    assert_eq!(
        noted_of,
        [
            noted("conflict", dead("send_id_conflict")),
            noted("gives-up", dead("attempts_exhausted")),
            noted("over-cap", dead("over_cap")),
            noted("paused", parked("paused")),
            noted("set-paused", parked("paused")),
            noted("uncertain", parked("uncertain")),
        ]
    );
    let calls = world.calls();
    assert_eq!(calls.last(), Some(&"trace"));
    assert_eq!(calls.iter().filter(|call| **call == "trace").count(), 1);
    let memory = world.asked().into_iter().find_map(|asked| match asked {
        Asked::Trace { memory, .. } => Some(memory),
        _ => None,
    });
    // As long as it may be parked, and a day.
    assert_eq!(memory, Some(Millis::from_secs(15 * 86_400)));
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_parked_or_dead_lettered_nothing_is_noted() {
    let world = World {
        claims: [("b", FULL)].into(),
        outcomes: [("c", Outcome::Rejected)].into(),
        ..World::default()
    };
    world.handle(&bodies(&["a", "b", "c"])).await;
    assert!(!world.calls().contains(&"trace"));
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_parked_or_dead_lettered_is_not_noted() {
    let world = World {
        claims: [("paused", Claim::Paused { left: None })].into(),
        outcomes: [("gives-up", Outcome::Unknown)].into(),
        fails: ["park"].into(),
        full: [DLQ].into(),
        ..World::default()
    };
    let handled = world
        .handle(&[bodies(&["paused"]), vec![last("gives-up")]].concat())
        .await;
    assert_eq!(handled.failed, ["m1"], "the other one is held");
    assert_eq!(world.noted(), []);
}

#[tokio::test(start_paused = true)]
async fn a_note_that_fails_or_hangs_costs_nothing_but_a_moment() {
    for (fails, slots_take, most) in [
        ("trace", Duration::ZERO, Duration::from_millis(200)),
        ("nothing", HANGS, Duration::from_millis(500)),
    ] {
        let world = World {
            claims: [("paused", Claim::Paused { left: None })].into(),
            fails: [fails].into(),
            slots_take,
            ..World::default()
        };
        let start = Instant::now();
        let handled = world.handle(&bodies(&["paused"])).await;
        assert_eq!(handled.failed, [""; 0]);
        assert_eq!(world.parked().len(), 1);
        assert_eq!(world.noted().len(), 1, "it was tried");
        // Beside the release of its slot, not after it.
        assert!(start.elapsed() <= most, "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn while_redis_is_away_nobody_is_told() {
    let world = World {
        away_until: Some(Instant::now() + HANGS),
        ..World::default()
    };
    world
        .handle(&[bodies(&["a"]), vec!["not an envelope".to_owned()]].concat())
        .await;
    assert!(!world.calls().contains(&"trace"));
}
