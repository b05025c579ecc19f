//! What callers are told who only want slots.

use crate::rig::{self, NOW, Rig, slot, unused};
use reserve::HandlerError;
use sendslot_domain::{Lane, Millis};
use sendslot_schedule::{Booking, Standing, Unused, Wait};
use serde_json::{Value, json};

fn texts<const N: usize>(requests: &[Value; N]) -> Vec<String> {
    requests.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn each_request_has_its_slot_in_order_and_nothing_is_put_on_a_queue() {
    let rig = Rig::new().booking(|_, lane, ask| match (lane, ask.tenant.as_str()) {
        (Lane::Priority, _) => slot(Millis(1234), ask.cost),
        (_, "nobody") => Booking::UnknownTenant,
        (_, "capped") => Booking::OverCap,
        (_, "slow") => Booking::Wait(Wait {
            delay: Millis(62_500),
            place: 0,
            estimate: Millis(93_000),
        }),
        _ => slot(Millis(901_500), ask.cost),
    });
    let (results, _) = rig
        .slots(&texts(&[
            json!({ "tenant": "acme", "recipients": 50, "send_id": "n-1" }),
            json!({ "tenant": "acme", "lane": "priority" }),
            json!({ "tenant": "slow" }),
            json!({ "tenant": "nobody", "lane": "bulk" }),
            json!({ "tenant": "capped", "recipients": 2 }),
            json!({ "tenant": "acme", "send_id": "n-1" }),
        ]))
        .await;
    // No message is delayed, so no slot is too far ahead.
    let later = json!({
        "send_id": "n-1", "status": "slot",
        "slot": "2026-11-30T17:45:01.5Z", "slot_ms": NOW.0 + 901_500, "wait_ms": 901_500,
    });
    assert_eq!(
        json!(results),
        json!([
            later,
            {
                "send_id": null, "status": "slot",
                "slot": "2026-11-30T17:30:01.234Z", "slot_ms": NOW.0 + 1234, "wait_ms": 1234,
            },
            { "send_id": null, "status": "retry_after", "retry_after_ms": 62_500 },
            {
                "send_id": null, "status": "refused", "reason": "unknown_tenant",
                "message": "/tenant: \"nobody\" is not set up: correct it, or give it settings (deploy infra/tenant.yaml, or name it in Tenants)",
            },
            {
                "send_id": null, "status": "refused", "reason": "over_cap",
                "message": "costs more recipients than may be sent in an hour or a day: split it, or raise the cap",
            },
            later,
        ])
    );
    let asked = rig.asked();
    let lanes: Vec<_> = asked
        .iter()
        .map(|(lane, asks)| (*lane, asks.len()))
        .collect();
    assert_eq!(
        lanes,
        [(Lane::Priority, 1), (Lane::Bulk, 5)],
        "one call per lane"
    );
    let mut asks = asked.iter().flat_map(|(_, asks)| asks);
    assert!(asks.all(|ask| ask.standing == Standing::SlotOnly));
    let costs: Vec<_> = asked[1].1.iter().map(|ask| ask.cost).collect();
    assert_eq!(costs, [50, 1, 1, 2, 1]);
    assert!(rig::locked(&rig.queues.calls).is_empty() && rig.released().is_empty());
}

#[tokio::test]
async fn a_bad_request_is_told_where_and_what_and_its_neighbours_have_their_slots() {
    let rig = Rig::new();
    let good = json!({ "tenant": "acme" }).to_string();
    for (bad, reason, message) in [
        ("17", "bad_value", "the request: wrong type: give an object"),
        ("{}", "missing_field", "/tenant: missing: add it"),
        (r#"{"tenant":"a b"}"#, "bad_tenant", "/tenant: holds ' '"),
        (
            r#"{"tenant":7}"#,
            "bad_value",
            "/tenant: wrong type: give string",
        ),
        (
            r#"{"tenant":"acme","to":["bob@example.com"]}"#,
            "unknown_field",
            "/to: unknown field: correct its name or leave it out",
        ),
        (
            r#"{"tenant":"acme","bob@example.com":1}"#,
            "unknown_field",
            "/*: unknown field",
        ),
        (
            r#"{"tenant":"acme","tenant":"beta"}"#,
            "duplicate_key",
            "/tenant: the key is there twice",
        ),
        (
            r#"{"tenant":"acme","recipients":0}"#,
            "bad_value",
            "/recipients: too small: at least 1",
        ),
        (
            r#"{"tenant":"acme","recipients":51}"#,
            "bad_value",
            "/recipients: too large: at most 50",
        ),
        (
            r#"{"tenant":"acme","recipients":2.0}"#,
            "bad_value",
            "/recipients: written with a point: give a whole number",
        ),
        (
            r#"{"tenant":"acme","recipients":"2"}"#,
            "bad_value",
            "/recipients: wrong type: give integer",
        ),
        (
            r#"{"tenant":"acme","lane":"express"}"#,
            "unknown_lane",
            "/lane: unknown lane",
        ),
        (
            r#"{"tenant":"acme","send_id":"bob@example.com"}"#,
            "bad_send_id",
            "/send_id: holds '@'",
        ),
    ] {
        let requests = [good.clone(), bad.to_owned(), good.clone()];
        let (results, _) = rig.slots(&requests).await;
        let statuses: Vec<_> = results.iter().map(|result| &result["status"]).collect();
        assert_eq!(statuses, ["slot", "refused", "slot"], "{bad}");
        assert_eq!(results[1]["reason"], reason, "{bad}");
        let told = results[1]["message"].as_str().expect("a message");
        assert!(told.starts_with(message), "{bad}: {told}");
        assert!(!told.contains("bob"), "{told}");
    }
    let (results, _) = rig
        .slots(&texts(&[json!({ "send_id": "n-1", "recipients": 1 })]))
        .await;
    assert_eq!(results[0]["send_id"], "n-1", "also of what is refused");
}

#[tokio::test]
async fn a_thousand_slots_are_one_call_and_one_more_is_refused() {
    let rig = Rig::new();
    let request = json!({ "tenant": "acme" }).to_string();
    let (results, _) = rig.slots(&vec![request.clone(); 1000]).await;
    assert!(results.iter().all(|result| result["status"] == "slot"));
    assert_eq!(rig.asked().len(), 1);
    let messages = vec![request; 1001].join(",");
    let event = format!("{{\"enqueue\":false,\"messages\":[{messages}]}}");
    let error: HandlerError = rig.run(&event).await.expect_err("too many");
    assert!(error.to_string().starts_with("1001 messages"), "{error}");
}

#[tokio::test]
async fn with_enqueue_set_to_true_mail_is_mail() {
    let rig = Rig::new().without_slots_only();
    let event = json!({ "enqueue": true, "messages": [rig::request("m")] });
    let (answer, metrics) = rig.run(&event.to_string()).await.expect("an answer");
    assert_eq!(answer["results"][0]["status"], "booked");
    assert_eq!(rig.sent(Lane::Bulk).len(), 1);
    assert_eq!(metrics[0].get("SlotsOnly"), None, "of no interest here");
}

#[tokio::test]
async fn slots_only_count_as_booked_but_not_as_accepted() {
    let rig = Rig::new().booking(|n, _, ask| match n {
        0 => Booking::Wait(Wait {
            delay: Millis(2000),
            place: 0,
            estimate: Millis(2000),
        }),
        n => slot(Millis(n as u64 * 700), ask.cost),
    });
    let request = |tenant: &str| json!({ "tenant": tenant, "lane": "priority" });
    let (_, metrics) = rig
        .slots(&texts(&[
            request("acme"),
            request("acme"),
            request("acme"),
            json!({}),
        ]))
        .await;
    let told: Vec<_> = metrics
        .iter()
        .map(|metrics| {
            [
                "SlotsOnly",
                "Booked",
                "Accepted",
                "Waiting",
                "Refused",
                "BookedAheadMs",
            ]
            .map(|name| metrics.get(name))
        })
        .collect();
    let some = |values: [u64; 5]| values.map(Some);
    assert_eq!(told[0][..5], some([2, 2, 0, 0, 0]));
    assert_eq!(told[0][5], Some(1400));
    assert_eq!(told[1][..5], some([0, 0, 0, 0, 1]), "in the default lane");
    assert_eq!(told[1][5], None);

    // Mail beside them counts as before.
    let event = json!({ "messages": [rig::request("m")] }).to_string();
    let (_, metrics) = rig.run(&event).await.expect("an answer");
    let counts = ["SlotsOnly", "Booked", "Accepted"].map(|name| metrics[0].get(name));
    assert_eq!(counts, [0, 1, 1].map(Some));
}

#[tokio::test]
async fn without_redis_the_call_fails_and_no_slot_stays_booked() {
    let rig = Rig::new();
    rig::locked(&rig.schedule.down).push(Lane::Bulk);
    let requests = texts(&[
        json!({ "tenant": "acme" }),
        json!({ "tenant": "acme", "lane": "priority", "recipients": 3 }),
    ]);
    let event = format!(
        "{{\"enqueue\":false,\"messages\":[{}]}}",
        requests.join(",")
    );
    let error: HandlerError = rig.run(&event).await.expect_err("no Redis");
    let told = error.to_string();
    assert!(
        told.starts_with("nothing was booked, hand the messages in again"),
        "{told}"
    );
    let slot = Unused {
        slot_only: true,
        ..unused(Millis(1000), 3)
    };
    assert_eq!(rig.released(), [(Lane::Priority, vec![slot])]);
}
