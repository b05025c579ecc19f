//! What becomes of batches from a queue.

use crate::rig::{self, NOW, Rig, attribute, body, body_of, failed, record, request, slot, unused};
use reserve::HandlerError;
use sendslot_domain::{Lane, Millis};
use sendslot_schedule::{Booking, Standing, Wait};
use serde_json::{Value, json};

#[tokio::test]
async fn a_batch_is_booked_in_one_call_and_each_mail_waits_for_its_slot() {
    let rig = Rig::new();
    let bodies: Vec<_> = (0..12).map(|n| body(&format!("m{n}"))).collect();
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0; 0]);

    let asked = rig.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].0, asked[0].1.len()), (Lane::Bulk, 12));
    assert!(
        asked[0]
            .1
            .iter()
            .all(|ask| ask.cost == 1 && ask.standing == Standing::New)
    );
    let mut sent: Vec<_> = rig
        .on("bulk-send")
        .iter()
        .map(|message| message.delay_seconds)
        .collect();
    sent.sort_unstable();
    assert_eq!(sent, (1..=12).collect::<Vec<u16>>());
    let envelopes = rig.sent(Lane::Bulk);
    let first = envelopes
        .iter()
        .find(|e| e.send_id.as_str() == "m0")
        .expect("m0");
    assert_eq!((first.lane, first.attempts), (Lane::Bulk, 0));
    assert_eq!(first.slot, NOW + Millis(1000));
    assert_eq!(first.cells, [((NOW + Millis(1000)).cell(), 1)]);
    assert_eq!(first.first_seen.0, NOW.0 - 250, "when SQS took it");
    assert!(rig.released().is_empty());
}

#[tokio::test]
async fn a_bad_message_goes_to_the_dead_letter_queue_and_blocks_nobody() {
    let rig = Rig::new();
    let mut crowd = request("crowd");
    crowd["to"] = (0..51).map(|n| format!("u{n}@example.com")).collect();
    let mut express = request("express");
    express["lane"] = "express".into();
    let mut wrong = request("wrong");
    wrong["lane"] = "priority".into();
    let bodies = [
        body("good-1"),
        "{\"send_id\": ".to_owned(),
        crowd.to_string(),
        express.to_string(),
        wrong.to_string(),
        body("good-2"),
    ];
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0; 0]);

    let sent = rig.sent(Lane::Bulk);
    assert_eq!(
        sent.iter().map(|e| e.send_id.as_str()).collect::<Vec<_>>(),
        ["good-1", "good-2"]
    );
    let dead = rig.on("bulk-intake-dlq");
    let reasons: Vec<_> = dead
        .iter()
        .filter_map(|message| attribute(message, "SendslotReason"))
        .collect();
    assert_eq!(
        reasons,
        [
            "malformed_json",
            "too_many_recipients",
            "unknown_lane",
            "wrong_lane"
        ]
    );
    assert_eq!(
        dead.iter().map(|m| m.body.as_str()).collect::<Vec<_>>(),
        bodies[1..5]
    );
    for message in dead {
        let detail = attribute(&message, "SendslotDetail").expect("a detail");
        assert!(
            !detail.contains('@') && !detail.contains("Hello"),
            "{detail}"
        );
    }
}

#[tokio::test]
async fn what_the_dead_letter_queue_does_not_take_comes_again() {
    let rig = Rig::new().answering(|queue, _, messages| match queue {
        "bulk-intake-dlq" => Ok((0..messages.len())
            .map(|index| failed(index, true))
            .collect()),
        _ => Ok(Vec::new()),
    });
    let bodies = [body("good"), "nonsense".to_owned()];
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [1]);
    assert_eq!(rig.sent(Lane::Bulk).len(), 1);
}

#[tokio::test]
async fn a_body_too_large_is_refused_and_one_that_just_fits_is_not() {
    let rig = Rig::new();
    // One that would fit alone, but not with its envelope; one that leaves room for it.
    let bodies = [body_of("large", 1_047_500), body_of("fits", 1_046_500)];
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0; 0]);
    let dead = rig.on("bulk-intake-dlq");
    assert_eq!(dead.len(), 1);
    assert_eq!(
        attribute(&dead[0], "SendslotReason").as_deref(),
        Some("too_large")
    );
    assert_eq!(rig.sent(Lane::Bulk)[0].send_id.as_str(), "fits");
}

#[tokio::test]
async fn a_body_that_leaves_no_room_for_its_reason_is_left_to_the_queues_own_redrive() {
    let rig = Rig::new();
    let bodies = [body_of("full", 1_048_576), body("good")];
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0]);
    assert!(rig.on("bulk-intake-dlq").is_empty());
    assert_eq!(rig.sent(Lane::Bulk).len(), 1);
}

#[tokio::test]
async fn ten_bodies_of_150_kb_are_cut_by_bytes() {
    let rig = Rig::new();
    let bodies: Vec<_> = (0..10)
        .map(|n| body_of(&format!("m{n}"), 150_000))
        .collect();
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0; 0]);
    let calls = rig::locked(&rig.queues.calls);
    // The fake refuses a call above 1 MiB; six of these fit.
    let sizes: Vec<_> = calls.iter().map(|(_, messages)| messages.len()).collect();
    assert_eq!(sizes, [6, 4]);
}

#[tokio::test]
async fn the_longest_delay_is_900_seconds_and_what_is_further_asks_again() {
    let delays = [899_999, 900_000, 900_999, 901_000];
    let rig = Rig::new().booking(move |n, _, ask| slot(Millis(delays[n]), ask.cost));
    let bodies: Vec<_> = (0..4).map(|n| body(&format!("m{n}"))).collect();
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0; 0]);

    let sent: Vec<_> = rig
        .on("bulk-send")
        .iter()
        .map(|message| message.delay_seconds)
        .collect();
    assert_eq!(sent, [899, 900, 900]);
    let again = rig.on("bulk-intake");
    assert_eq!(again.len(), 1);
    assert_eq!(
        (again[0].body.as_str(), again[0].delay_seconds),
        (bodies[3].as_str(), 900)
    );
    assert_eq!(attribute(&again[0], "SendslotPlace"), None);
    assert_eq!(
        rig.released(),
        [(Lane::Bulk, vec![unused(Millis(901_000), 1)])]
    );
}

#[tokio::test]
async fn what_must_wait_goes_back_as_it_came_with_its_place() {
    let delays = [0, 899_000, 900_000, 901_000];
    let rig = Rig::new().booking(move |n, _, _| {
        Booking::Wait(Wait {
            delay: Millis(delays[n]),
            place: 70 + n as u64,
            estimate: Millis(5_000_000),
        })
    });
    let bodies: Vec<_> = (0..4).map(|n| body(&format!("m{n}"))).collect();
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0; 0]);
    let waiting = rig.on("bulk-intake");
    let seen: Vec<_> = waiting
        .iter()
        .map(|m| (m.delay_seconds, attribute(m, "SendslotPlace")))
        .collect();
    let place = |n: u64| Some((70 + n).to_string());
    assert_eq!(
        seen,
        [
            (1, place(0)),
            (899, place(1)),
            (900, place(2)),
            (900, place(3))
        ]
    );
    for (message, body) in waiting.iter().zip(&bodies) {
        assert_eq!(&message.body, body);
        assert_eq!(
            attribute(message, "SendslotFirstSeen"),
            Some((NOW.0 - 250).to_string())
        );
    }
    assert!(rig.sent(Lane::Bulk).is_empty());
}

#[tokio::test]
async fn what_has_waited_asks_with_its_place_and_keeps_its_age() {
    let rig = Rig::new();
    let mut woken = record(Lane::Bulk, &body("woken"));
    woken["messageAttributes"] = json!({
        "SendslotPlace": { "stringValue": "71", "dataType": "Number" },
        "SendslotFirstSeen": { "stringValue": "1796059000000", "dataType": "Number" },
    });
    let (again, metrics) = rig
        .records(&[woken, record(Lane::Bulk, &body("new"))])
        .await;
    assert_eq!(again, [0; 0]);
    let standings: Vec<_> = rig.asked()[0].1.iter().map(|ask| ask.standing).collect();
    assert_eq!(standings, [Standing::Waited { place: 71 }, Standing::New]);
    assert_eq!(rig.sent(Lane::Bulk)[0].first_seen.0, 1_796_059_000_000);
    // Accepted once, when it came first.
    assert_eq!(
        (metrics[0].get("Accepted"), metrics[0].get("Booked")),
        (Some(1), Some(2))
    );
}

#[tokio::test]
async fn what_is_too_old_or_expired_is_dead_lettered_not_dropped() {
    let rig = Rig::new();
    let mut old = record(Lane::Priority, &body("old"));
    let first_seen = (NOW.0 - 14 * 86_400_000).to_string();
    old["messageAttributes"] = json!({ "SendslotFirstSeen": { "stringValue": first_seen } });
    let mut expired = request("expired");
    expired["expires_at"] = "2026-11-30T17:30:00Z".into();
    let mut later = request("later");
    later["expires_at"] = "2026-11-30T17:30:01Z".into();
    let records = [
        old,
        record(Lane::Priority, &expired.to_string()),
        record(Lane::Priority, &later.to_string()),
    ];
    assert_eq!(rig.records(&records).await.0, [0; 0]);
    let dead = rig.on("priority-intake-dlq");
    let reasons: Vec<_> = dead
        .iter()
        .filter_map(|message| attribute(message, "SendslotReason"))
        .collect();
    assert_eq!(reasons, ["expired", "expired"]);
    let sent = rig.sent(Lane::Priority);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].expires_at, Some(NOW + Millis(1000)));
}

#[tokio::test(start_paused = true)]
async fn only_what_sqs_failed_comes_again_and_its_cells_are_released() {
    // Index 1 fails for good; index 2 once, then it is taken.
    let rig = Rig::new().answering(|queue, call, _| match (queue, call) {
        ("bulk-send", 0) => Ok(vec![failed(1, true), failed(2, false)]),
        _ => Ok(Vec::new()),
    });
    let bodies: Vec<_> = (0..4).map(|n| body(&format!("m{n}"))).collect();
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [1]);
    let calls: Vec<_> = rig::locked(&rig.queues.calls)
        .iter()
        .map(|(_, m)| m.len())
        .collect();
    assert_eq!(calls, [4, 1]);
    assert_eq!(
        rig.released(),
        [(Lane::Bulk, vec![unused(Millis(2000), 1)])]
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_that_fails_three_times_comes_again() {
    let rig = Rig::new().answering(|_, _, _| Ok(vec![failed(0, false)]));
    assert_eq!(rig.queued(Lane::Bulk, &[body("m")]).await, [0]);
    assert_eq!(rig.on("bulk-send").len(), 3);
    assert_eq!(rig.released().len(), 1);
}

#[tokio::test]
async fn when_a_whole_call_fails_its_messages_come_again() {
    let rig = Rig::new().answering(|_, call, _| {
        if call == 0 {
            Err("unreachable".into())
        } else {
            Ok(vec![])
        }
    });
    let bodies: Vec<_> = (0..12).map(|n| body(&format!("m{n}"))).collect();
    assert_eq!(
        rig.queued(Lane::Bulk, &bodies).await,
        (0..10).collect::<Vec<_>>()
    );
    let released = rig.released();
    let slots = (1..=10).map(|n| unused(Millis::from_secs(n), 1)).collect();
    assert_eq!(released, [(Lane::Bulk, slots)]);
}

#[tokio::test]
async fn an_unknown_tenant_is_refused_by_name() {
    let rig = Rig::new().booking(|n, _, ask| {
        if n == 0 {
            Booking::UnknownTenant
        } else {
            slot(Millis(0), ask.cost)
        }
    });
    assert_eq!(
        rig.queued(Lane::Bulk, &[body("m0"), body("m1")]).await,
        [0; 0]
    );
    let dead = rig.on("bulk-intake-dlq");
    assert_eq!(
        attribute(&dead[0], "SendslotReason").as_deref(),
        Some("unknown_tenant")
    );
    assert_eq!(rig.sent(Lane::Bulk)[0].send_id.as_str(), "m1");
}

#[tokio::test]
async fn what_costs_more_than_a_cap_is_refused_and_blocks_nobody() {
    let rig = Rig::new().booking(|_, _, ask| match ask.cost {
        1 => slot(Millis(0), 1),
        _ => Booking::OverCap,
    });
    let mut crowd = request("crowd");
    crowd["cc"] = json!(["ann@example.com"]);
    let bodies = [crowd.to_string(), body("m1")];
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0; 0]);
    let dead = rig.on("bulk-intake-dlq");
    let [reason, detail] = ["SendslotReason", "SendslotDetail"]
        .map(|name| attribute(&dead[0], name).expect("an attribute"));
    assert_eq!(
        (dead[0].body.as_str(), reason.as_str()),
        (bodies[0].as_str(), "over_cap")
    );
    assert_eq!(
        detail,
        "costs more recipients than may be sent in an hour or a day: split it, or raise the cap"
    );
    assert_eq!(rig.sent(Lane::Bulk)[0].send_id.as_str(), "m1");
    let [refused, booked] = &rig.direct(&bodies).await[..] else {
        panic!("two results")
    };
    assert_eq!(
        (&refused["reason"], &booked["status"]),
        (&json!("over_cap"), &json!("booked"))
    );
}

fn wait(place: u64) -> Booking {
    Booking::Wait(Wait {
        delay: Millis(2000),
        place,
        estimate: Millis(32_000),
    })
}

/// A record that woke with a place in its line.
fn woken(lane: Lane, body: &str, place: &str) -> Value {
    let mut woken = record(lane, body);
    woken["messageAttributes"] = json!({
        "SendslotPlace": { "stringValue": place, "dataType": "Number" },
        "SendslotFirstSeen": { "stringValue": "1796059000000", "dataType": "Number" },
    });
    woken
}

#[tokio::test]
async fn what_has_waited_and_will_not_go_leaves_its_line_before_the_others_ask() {
    let rig = Rig::new().booking(|n, _, ask| match ask.standing {
        Standing::Left { .. } => Booking::Left,
        _ => slot(Millis(n as u64), ask.cost),
    });
    let mut expired = request("expired");
    expired["expires_at"] = "2026-11-30T17:30:00Z".into();
    expired["cc"] = json!(["ann@example.com"]);
    let mut other = request("m1");
    other["content"]["simple"]["text"] = "Another text.".into();
    let bulk = |body: &str, place| woken(Lane::Bulk, body, place);
    let records = [
        record(Lane::Bulk, &body("new")),
        bulk(&expired.to_string(), "7"),
        bulk("nonsense", "8"),
        bulk(&body("m1"), "9"),
        bulk(&body("m1"), "10"),
        bulk(&other.to_string(), "11"),
        woken(Lane::Priority, &expired.to_string(), "12"),
        record(Lane::Priority, &expired.to_string()),
    ];
    assert_eq!(rig.records(&records).await.0, [0; 0]);
    let asked: Vec<_> = rig
        .asked()
        .into_iter()
        .map(|(lane, asks)| {
            let asks: Vec<_> = asks.iter().map(|ask| (ask.standing, ask.cost)).collect();
            (lane, asks)
        })
        .collect();
    let left = |place| Standing::Left { place };
    let bulk = vec![
        (left(7), 2),
        (left(10), 1),
        (left(11), 1),
        (Standing::New, 1),
        (Standing::Waited { place: 9 }, 1),
    ];
    assert_eq!(
        asked,
        [(Lane::Priority, vec![(left(12), 2)]), (Lane::Bulk, bulk)]
    );
    let sent = rig.sent(Lane::Bulk);
    let sent: Vec<_> = sent
        .iter()
        .map(|e| (e.send_id.as_str(), e.slot.0))
        .collect();
    assert_eq!(
        sent,
        [("new", NOW.0 + 4), ("m1", NOW.0 + 5)],
        "each its own slot"
    );
    assert_eq!(rig.on("bulk-intake-dlq").len(), 3);
    assert_eq!(rig.on("priority-intake-dlq").len(), 2);
}

#[tokio::test]
async fn what_was_new_and_can_not_be_put_back_leaves_the_place_it_got() {
    let rig = Rig::new()
        .booking(|n, _, ask| match ask.standing {
            Standing::Left { .. } => Booking::Left,
            Standing::Waited { place } => wait(place),
            _ => wait(70 + n as u64),
        })
        .answering(|queue, _, _| match queue {
            "bulk-intake" => Ok([0, 1, 2].map(|index| failed(index, true)).to_vec()),
            _ => Ok(Vec::new()),
        });
    let mut crowd = request("crowd");
    crowd["cc"] = json!(["ann@example.com"]);
    let records = [
        record(Lane::Bulk, &body("m0")),
        woken(Lane::Bulk, &body("woken"), "9"),
        record(Lane::Bulk, &crowd.to_string()),
        record(Lane::Bulk, &body("m1")),
    ];
    assert_eq!(rig.records(&records).await.0, [0, 1, 2]);
    let asked = rig.asked();
    assert_eq!(asked.len(), 2);
    let left: Vec<_> = asked[1].1.iter().map(|a| (a.standing, a.cost)).collect();
    let place = |place| Standing::Left { place };
    assert_eq!(
        (asked[1].0, left),
        (Lane::Bulk, vec![(place(70), 1), (place(72), 2)]),
        "the one that has waited comes again with its place, the last is there"
    );
    assert!(rig.released().is_empty());
}

#[tokio::test]
async fn the_same_mail_twice_in_a_batch_is_booked_once() {
    let rig = Rig::new();
    let mut other = request("twice");
    other["content"]["simple"]["text"] = "Another text.".into();
    let mut neighbour = request("twice");
    neighbour["tenant"] = "beta".into();
    let bodies = [
        body("twice"),
        body("twice"),
        other.to_string(),
        neighbour.to_string(),
    ];
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0; 0]);
    let sent: Vec<_> = rig
        .sent(Lane::Bulk)
        .iter()
        .map(|e| e.tenant.to_string())
        .collect();
    assert_eq!(sent, ["acme", "beta"]);
    let dead = rig.on("bulk-intake-dlq");
    assert_eq!(dead.len(), 1);
    assert_eq!(
        attribute(&dead[0], "SendslotReason").as_deref(),
        Some("conflict")
    );
}

#[tokio::test]
async fn a_copy_with_another_expiry_is_the_same_mail_and_the_first_counts() {
    let rig = Rig::new();
    let mut first = request("twice");
    first["expires_at"] = "2026-11-30T18:00:00Z".into();
    let mut later = request("twice");
    later["expires_at"] = "2026-11-30T19:00:00Z".into();
    let bodies = [first.to_string(), later.to_string(), body("twice")];
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0; 0]);
    let sent = rig.sent(Lane::Bulk);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].expires_at, Some(NOW + Millis::from_secs(30 * 60)));
    assert!(rig.on("bulk-intake-dlq").is_empty());
}

#[tokio::test]
async fn a_copy_comes_again_when_its_first_does() {
    let rig = Rig::new().answering(|_, _, _| Ok(vec![failed(1, true)]));
    let bodies = [body("m0"), body("twice"), body("m2"), body("twice")];
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [1, 3]);
}

#[tokio::test]
async fn everything_is_counted_by_lane() {
    let rig = Rig::new().booking(|n, _, ask| match n {
        0 => Booking::Wait(Wait {
            delay: Millis(2000),
            place: 1,
            estimate: Millis(2000),
        }),
        n => slot(Millis(n as u64 * 700), ask.cost),
    });
    let bodies = ["m0", "m1", "m2"]
        .map(body)
        .into_iter()
        .chain(["nonsense".to_owned()]);
    let records: Vec<_> = bodies.map(|body| record(Lane::Priority, &body)).collect();
    let (_, metrics) = rig.records(&records).await;
    assert_eq!(metrics.len(), 1);
    let line: Value = serde_json::from_str(&metrics[0].line(0).expect("a line")).expect("JSON");
    for (name, value) in [
        ("Accepted", 3),
        ("Booked", 2),
        ("Waiting", 1),
        ("Refused", 1),
        ("EnqueueFailed", 0),
        ("BookedAheadMs", 1400),
    ] {
        assert_eq!(line[name], value, "{name}");
    }
    assert_eq!(
        (&line["service"], &line["lane"]),
        (&json!("reserve"), &json!("priority"))
    );
}

#[tokio::test]
async fn an_event_that_is_none_of_ours_fails_clearly() {
    let rig = Rig::new().without_slots_only();
    let foreign = record(Lane::Bulk, &body("m"))
        .to_string()
        .replace(":bulk-intake", ":orders");
    for (event, part) in [
        ("{}".to_owned(), "unknown event"),
        (
            "{\"Records\":[],\"messages\":[]}".to_owned(),
            "unknown event",
        ),
        (format!("{{\"Records\":[{foreign}]}}"), "no messageId"),
        (
            format!(
                "{{\"Records\":[{}]}}",
                foreign.replacen('{', "{\"messageId\":\"1\",", 1)
            ),
            "\"orders\" belongs to no lane",
        ),
        (
            "{\"messages\":[],\"enqueue\":false}".to_owned(),
            "\"enqueue\": false is not allowed: name who may book slots only in the stack's parameter SlotHolders",
        ),
        (
            format!("{{\"messages\":[{}]}}", vec!["1"; 1001].join(",")),
            "1001 messages",
        ),
    ] {
        let error: HandlerError = rig.run(&event).await.expect_err(part);
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(rig.asked().is_empty());
}
