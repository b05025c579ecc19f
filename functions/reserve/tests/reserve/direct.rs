//! What direct callers are told.

use crate::rig::{self, NOW, Rig, attribute, request, slot, unused};
use reserve::{Event, HandlerError};
use sendslot_domain::{Lane, Millis};
use sendslot_runtime::queue::Failed;
use sendslot_schedule::{Booking, Standing, Wait};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn each_request_has_its_result_in_order() {
    let rig = Rig::new()
        .booking(|_, lane, ask| match (lane, ask.tenant.as_str(), ask.cost) {
            (Lane::Priority, ..) => slot(Millis(1234), ask.cost),
            (_, "nobody", _) => Booking::UnknownTenant,
            (_, "slow", _) => Booking::Wait(Wait {
                delay: Millis(62_500),
                place: 9,
                estimate: Millis(93_000),
            }),
            _ => slot(Millis(61_001), ask.cost),
        })
        .answering(|queue, _, messages| {
            let lost = messages
                .iter()
                .position(|message| message.body.contains("\"lost\""));
            match lost.filter(|_| queue == "bulk-send") {
                Some(index) => Ok(vec![Failed {
                    index,
                    sender_fault: true,
                    code: "X".into(),
                }]),
                None => Ok(Vec::new()),
            }
        });
    let with = |send_id: &str, field: &str, value: &str| {
        let mut request = request(send_id);
        request[field] = value.into();
        request.to_string()
    };
    let waiting = with("waits", "tenant", "slow");
    let results = rig
        .direct(&[
            with("urgent", "lane", "priority"),
            "{\"send_id\": \"unread\", \"to\": 3}".to_owned(),
            request("plain").to_string(),
            waiting.clone(),
            with("stray", "tenant", "nobody"),
            request("lost").to_string(),
            "17".to_owned(),
            request("plain").to_string(),
        ])
        .await;
    let plain = json!({
        "send_id": "plain", "status": "booked",
        "slot": "2026-11-30T17:31:01.001Z", "slot_ms": NOW.0 + 61_001, "wait_ms": 61_001,
    });
    assert_eq!(
        json!(results),
        json!([
            {
                "send_id": "urgent", "status": "booked",
                "slot": "2026-11-30T17:30:01.234Z", "slot_ms": NOW.0 + 1234, "wait_ms": 1234,
            },
            {
                "send_id": "unread", "status": "refused", "reason": results[1]["reason"],
                "message": results[1]["message"],
            },
            plain,
            { "send_id": "waits", "status": "waiting", "wait_ms": 62_500, "estimate_ms": 93_000 },
            {
                "send_id": "stray", "status": "refused", "reason": "unknown_tenant",
                "message": "/tenant: \"nobody\" is not set up: correct it, or give it settings (deploy infra/tenant.yaml, or name it in Tenants)",
            },
            {
                "send_id": "lost", "status": "failed",
                "message": "putting it on the send queue: refused by SQS with X",
            },
            {
                "send_id": null, "status": "refused", "reason": "bad_value",
                "message": "the request: wrong type: give an object",
            },
            plain,
        ])
    );
    // One call per lane; what is refused is told, not dead-lettered; what waits does so on its queue.
    assert_eq!(
        rig.asked()
            .iter()
            .map(|(lane, asks)| (*lane, asks.len()))
            .collect::<Vec<_>>(),
        [(Lane::Priority, 1), (Lane::Bulk, 4),]
    );
    assert!(rig.on("bulk-intake-dlq").is_empty());
    let queued = rig.on("bulk-intake");
    assert_eq!(queued.len(), 1);
    assert_eq!(
        (queued[0].body.as_str(), queued[0].delay_seconds),
        (waiting.as_str(), 62)
    );
    assert_eq!(attribute(&queued[0], "SendslotPlace").as_deref(), Some("9"));
    assert_eq!(
        attribute(&queued[0], "SendslotFirstSeen"),
        Some(NOW.0.to_string())
    );
    assert_eq!(
        rig.released(),
        [(Lane::Bulk, vec![unused(Millis(61_001), 1)])]
    );
}

#[tokio::test]
async fn a_key_given_twice_is_refused_though_the_event_is_json() {
    let rig = Rig::new();
    let text = request("twice")
        .to_string()
        .replacen('{', "{\"tenant\":\"acme\",", 1);
    let results = rig.direct(&[text]).await;
    assert_eq!(results[0]["reason"], "duplicate_key");
}

#[tokio::test]
async fn a_copy_in_another_lane_gets_what_the_first_gets() {
    let rig = Rig::new();
    let mut urgent = request("twice");
    urgent["lane"] = "priority".into();
    let results = rig
        .direct(&[request("twice").to_string(), urgent.to_string()])
        .await;
    assert_eq!(results[0]["status"], "booked");
    assert_eq!(results[0], results[1]);
    assert_eq!(
        Lane::ALL.map(|lane| rig.sent(lane).len()),
        [0, 1],
        "the first's lane"
    );
}

#[tokio::test]
async fn what_sqs_refuses_raw_waits_as_escapes_and_is_the_same_mail() {
    let wait = Booking::Wait(Wait {
        delay: Millis(62_500),
        place: 9,
        estimate: Millis(93_000),
    });
    let rig = Rig::new().booking(move |n, _, ask| match n {
        0 => wait.clone(),
        _ => slot(Millis(1000), ask.cost),
    });
    let mut odd = request("odd");
    odd["content"] =
        json!({ "template": { "name": "t", "data": { "\u{fffe}": "a\u{ffff}\u{fffd}" } } });
    let results = rig.direct(&[odd.to_string()]).await;
    assert_eq!(results[0]["status"], "waiting", "{results:?}");
    let body = rig.on("bulk-intake").remove(0).body;
    assert!(!body.contains(['\u{fffe}', '\u{ffff}']), "{body}");
    let read: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(read, odd);

    // It comes back, and the producer hands the same in once more.
    assert_eq!(rig.queued(Lane::Bulk, &[body]).await, [0; 0]);
    rig.direct(&[odd.to_string()]).await;
    let sent = rig.sent(Lane::Bulk);
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].fingerprint, sent[1].fingerprint);
}

#[test]
fn why_an_event_cannot_be_read_holds_nothing_of_it() {
    for event in [
        r#"{"messages": "bob@x.org"}"#,
        r#"{"messages": {"bob@x.org": 1}}"#,
        r#"{"messages": [], "enqueue": "bob@x.org"}"#,
        r#"{"messages": [], "messages": "bob@x.org"}"#,
        r#"{"messages": [{"to": "bob@x.org"#,
        r#"{"messages": [bob@x.org]}"#,
        r#"{"messages": ["bob@x.org\q"]}"#,
        r#"{"Records": [{"body": {"bob@x.org": 3}}]}"#,
        r#"{"Records": [{"attributes": {"bob@x.org": 3}}]}"#,
        r#"{"Records": [{"messageAttributes": {"bob@x.org": "bob@x.org"}}]}"#,
        r#""bob@x.org""#,
        r#"["bob@x.org"]"#,
        "bob@x.org",
    ] {
        // As the Lambda runtime reads it and tells why it can't.
        let from = &mut serde_json::Deserializer::from_slice(event.as_bytes());
        let error = serde_path_to_error::deserialize::<_, Event>(from).expect_err(event);
        let told = format!("{} {error} {error:?} {}", error.path(), error.inner());
        assert!(!told.contains("bob") && !told.contains("x.org"), "{told}");
        assert!(told.contains("column"), "{told}");
    }
}

#[tokio::test]
async fn a_thousand_requests_are_one_booking_call() {
    let rig = Rig::new().booking(|n, _, ask| slot(Millis(n as u64), ask.cost));
    let requests: Vec<_> = (0..1000)
        .map(|n| request(&format!("m{n}")).to_string())
        .collect();
    let results = rig.direct(&requests).await;
    assert!(
        results
            .iter()
            .enumerate()
            .all(|(n, result)| result["wait_ms"] == n)
    );
    assert_eq!(rig.asked().len(), 1);
    assert_eq!(rig::locked(&rig.queues.calls).len(), 100);
}

#[tokio::test]
async fn without_redis_the_call_fails_and_nothing_stays_booked() {
    let rig = Rig::new();
    rig::locked(&rig.schedule.down).push(Lane::Bulk);
    let mut urgent = request("urgent");
    urgent["lane"] = "priority".into();
    let event = json!({ "messages": [request("plain"), urgent] }).to_string();
    let error: HandlerError = rig.run(&event).await.expect_err("no Redis");
    assert!(
        error
            .to_string()
            .starts_with("nothing was booked, hand the messages in again"),
        "{error}"
    );
    assert!(rig::locked(&rig.queues.calls).is_empty());
    assert_eq!(
        rig.released(),
        [(Lane::Priority, vec![unused(Millis(1000), 1)])]
    );
}

#[tokio::test]
async fn without_redis_nothing_stays_in_a_line() {
    let rig = Rig::new().booking(|_, _, ask| match ask.standing {
        Standing::Left { .. } => Booking::Left,
        _ => Booking::Wait(Wait {
            delay: Millis(62_500),
            place: 9,
            estimate: Millis(93_000),
        }),
    });
    rig::locked(&rig.schedule.down).push(Lane::Bulk);
    let mut urgent = request("urgent");
    urgent["lane"] = "priority".into();
    let event = json!({ "messages": [request("plain"), urgent] }).to_string();
    assert!(rig.run(&event).await.is_err());
    assert!(rig::locked(&rig.queues.calls).is_empty());
    let standings: Vec<_> = rig
        .asked()
        .iter()
        .map(|(lane, asks)| (*lane, asks[0].standing))
        .collect();
    let left = Standing::Left { place: 9 };
    assert_eq!(
        standings,
        [(Lane::Priority, Standing::New), (Lane::Priority, left)]
    );
}
