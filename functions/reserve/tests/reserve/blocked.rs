//! What becomes of mail while nobody may send.

use crate::rig::{NOW, Rig, back, body, carried, carrying, failed, record, slot};
use sendslot_domain::{Lane, Millis};
use sendslot_schedule::{Booking, Standing};
use serde_json::json;

fn blocked(ms: u64) -> Rig {
    Rig::new().booking(move |_, _, ask| match ask.standing {
        Standing::Left { .. } => Booking::Left,
        _ => Booking::Blocked(Millis(ms)),
    })
}

#[tokio::test]
async fn it_goes_back_to_its_queue_as_it_came_until_after_the_block() {
    let rig = blocked(100_000);
    let numbers = [
        ("SendslotFirstSeen", 1_796_059_000_000),
        ("SendslotPlace", 71),
        ("SendslotSuspectSince", 1_796_059_100_000),
    ];
    let held = [&numbers[..], &[("SendslotHolds", 3)]].concat();
    let mut records = vec![carrying(record(Lane::Bulk, &body("woken")), &held)];
    records.extend((0..30).map(|n| record(Lane::Bulk, &body(&format!("m{n}")))));
    let (again, metrics) = rig.records(&records).await;
    assert_eq!(again, [0; 0], "a failure would spend a receive");

    let waiting = rig.on("bulk-intake");
    assert_eq!(waiting.len(), 31);
    let delays: Vec<_> = waiting.iter().map(|m| m.delay_seconds).collect();
    assert!(delays.iter().all(|delay| (100..=160).contains(delay)));
    assert!(delays.iter().any(|delay| *delay != delays[0]), "spread");
    let text = |(name, number): (&'static str, u64)| (name, number.to_string());
    let woken = waiting.iter().find(|m| m.body == body("woken"));
    assert_eq!(
        carried(woken.expect("a copy")),
        numbers.map(text).into(),
        "Redis is there, so holds start anew"
    );
    let new = waiting.iter().find(|m| m.body == body("m0"));
    let first_seen = ("SendslotFirstSeen", NOW.0 - 250);
    assert_eq!(
        carried(new.expect("a copy")),
        [first_seen].map(text).into(),
        "no place: it joined no line"
    );
    assert!(rig.sent(Lane::Bulk).is_empty() && rig.released().is_empty());
    assert_eq!(rig.asked().len(), 1, "there is nothing to undo");
    let counts = ["Waiting", "Accepted", "RedisDown", "Booked"];
    let counts = counts.map(|name| metrics[0].get(name));
    assert_eq!(counts, [31, 30, 0, 0].map(Some));
}

#[tokio::test]
async fn a_short_block_is_waited_for_a_second_and_a_long_one_900_at_a_time() {
    for (ms, range) in [
        (0, 1..=1),
        (300, 1..=1),
        (10_000, 10..=20),
        (840_000, 840..=900),
        (899_500, 899..=900),
        (86_400_000, 900..=900),
    ] {
        let rig = blocked(ms);
        let bodies: Vec<_> = (0..20).map(|n| body(&format!("m{n}"))).collect();
        assert_eq!(rig.queued(Lane::Priority, &bodies).await, [0; 0]);
        for message in rig.on("priority-intake") {
            assert!(range.contains(&message.delay_seconds), "{ms}: {message:?}");
        }
    }
}

#[tokio::test]
async fn however_often_it_comes_back_it_is_accepted_once_and_then_booked_by_its_place() {
    let rig = blocked(5000);
    let woken = carrying(
        record(Lane::Bulk, &body("woken")),
        &[
            ("SendslotFirstSeen", 1_796_059_000_000),
            ("SendslotPlace", 71),
        ],
    );
    let mut records = vec![woken, record(Lane::Bulk, &body("new"))];
    for round in 0..3_usize {
        let (_, metrics) = rig.records(&records).await;
        let accepted = metrics[0].get("Accepted");
        assert_eq!(accepted, Some(u64::from(round == 0)), "round {round}");
        let copies = &rig.on("bulk-intake")[round * 2..];
        records = copies.iter().map(|copy| back(Lane::Bulk, copy)).collect();
    }
    let rig = rig.booking(|_, _, ask| slot(Millis(1000), ask.cost));
    let (_, metrics) = rig.records(&records).await;
    let counts = ["Booked", "Accepted"].map(|name| metrics[0].get(name));
    assert_eq!(counts, [2, 0].map(Some));
    let asks = rig.asked().pop().expect("a call").1;
    let standings: Vec<_> = asks.iter().map(|ask| ask.standing).collect();
    assert_eq!(standings, [Standing::Waited { place: 71 }, Standing::New]);
    let first_seen: Vec<_> = rig
        .sent(Lane::Bulk)
        .iter()
        .map(|e| e.first_seen.0)
        .collect();
    assert_eq!(first_seen, [1_796_059_000_000, NOW.0 - 250]);
}

#[tokio::test]
async fn what_its_queue_does_not_take_comes_again() {
    let rig = blocked(5000).answering(|_, _, _| Ok(vec![failed(0, true)]));
    let bodies = ["m0", "m1"].map(body);
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0]);
    assert!(rig.released().is_empty());
    assert_eq!(rig.asked().len(), 1);
}

#[tokio::test]
async fn what_will_not_go_leaves_its_line_all_the_same() {
    let rig = blocked(5000);
    let expired = json!({ "send_id": "x", "tenant": "acme", "from": "a@example.com", "to": ["b@example.com"],
        "content": { "simple": { "subject": "s", "text": "t" } }, "expires_at": "2026-11-30T17:30:00Z" });
    let expired = record(Lane::Bulk, &expired.to_string());
    let records = [
        carrying(expired, &[("SendslotPlace", 7)]),
        record(Lane::Bulk, &body("m")),
    ];
    assert_eq!(rig.records(&records).await.0, [0; 0]);
    assert_eq!(rig.on("bulk-intake-dlq").len(), 1);
    assert_eq!(rig.on("bulk-intake").len(), 1);
}

#[tokio::test]
async fn a_direct_caller_is_told_that_it_waits_and_whoever_wants_slots_to_ask_again() {
    let rig = blocked(100_000);
    let results = rig.direct(&[body("m")]).await;
    assert_eq!(results[0]["status"], "waiting");
    assert_eq!(results[0]["estimate_ms"], 100_000);
    let wait = results[0]["wait_ms"].as_u64().expect("a number");
    assert!((100_000..=160_000).contains(&wait), "{wait}");
    assert_eq!(rig.on("bulk-intake").len(), 1);

    let requests = [json!({ "tenant": "acme" }).to_string()];
    let (results, metrics) = rig.slots(&requests).await;
    let told = json!({ "send_id": null, "status": "retry_after", "retry_after_ms": 100_000 });
    assert_eq!(results, [told]);
    let counts = ["Booked", "SlotsOnly", "Waiting", "RedisDown"];
    assert_eq!(counts.map(|name| metrics[0].get(name)), [0; 4].map(Some));
    assert_eq!(rig.on("bulk-intake").len(), 1, "and nothing is kept");
}
