//! What isn't a request; status; and what is asked at once.

use sendslot_domain::{Lane, Millis, Moment};
use sendslot_schedule::{Booking, Claim, Fed, Told};
use serde_json::{Value, json};

use crate::rig::{Rig, account, tenant};

/// Why a request wasn't done.
pub(crate) async fn failure(rig: &Rig, request: &str) -> (String, String) {
    let (answer, metrics) = rig.handle(request).await;
    assert!(metrics.is_none());
    let error = &answer["error"];
    let text = |field: &str| {
        error[field]
            .as_str()
            .unwrap_or_else(|| panic!("{request}: {answer}"))
            .to_owned()
    };
    (text("code"), text("message"))
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
#[tokio::test]
async fn what_is_no_request_is_answered_with_what_is_wrong() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    let before = rig.everything().await;
    for (request, code, says) in [
        ("", "bad_request", "no JSON"),
        ("{\"action\": \"status\"", "bad_request", "line 1"),
        ("[]", "bad_request", "no object"),
        ("null", "bad_request", "no object"),
        ("{}", "bad_request", "no action"),
        ("{\"action\": 1}", "bad_request", "no text"),
        ("{\"action\": \"reset\"}", "unknown_action", "\"reset\""),
        ("{\"action\": \"pause\"}", "bad_field", "reason"),
        (
            "{\"action\": \"pause\", \"reason\": \"x\"}",
            "bad_field",
            "exactly one of tenant",
        ),
        (
            "{\"action\": \"pause\", \"tenant\": \"acme\"}",
            "bad_field",
            "reason",
        ),
        (
            "{\"action\": \"pause\", \"tenant\": 1, \"reason\": \"x\"}",
            "bad_field",
            "tenant",
        ),
        (
            "{\"action\": \"pause\", \"tenant\": \"acme\", \"reason\": \" \"}",
            "bad_field",
            "reason",
        ),
        (
            "{\"action\": \"pause\", \"tenant\": \"acme\", \"reason\": \"a\\nb\"}",
            "bad_field",
            "reason",
        ),
        (
            "{\"action\": \"pause\", \"tenant\": \"a b\", \"reason\": \"x\"}",
            "bad_field",
            "\"a b\"",
        ),
        (
            "{\"action\": \"pause\", \"tenant\": \"acmee\", \"reason\": \"x\"}",
            "unknown_tenant",
            "\"acmee\"",
        ),
        (
            "{\"action\": \"resume\", \"tenant\": \"acmee\"}",
            "unknown_tenant",
            "SENDSLOT_TENANTS",
        ),
        ("{\"action\": \"resume\"}", "bad_field", "tenant"),
        (
            "{\"action\": \"resume\", \"tenant\": \"acme\", \"rate\": \"fast\"}",
            "bad_field",
            "rate: \"fast\" is no rate",
        ),
        (
            "{\"action\": \"resume\", \"tenant\": \"acme\", \"rate\": \"0/s\"}",
            "bad_field",
            "rate: \"0/s\" is less",
        ),
        (
            "{\"action\": \"resume\", \"tenant\": \"acme\", \"rate\": 20}",
            "bad_field",
            "rate",
        ),
        (
            "{\"action\": \"replay\", \"seconds\": 51}",
            "bad_field",
            "seconds 51",
        ),
        (
            "{\"action\": \"replay\", \"seconds\": 0}",
            "bad_field",
            "seconds 0",
        ),
        (
            "{\"action\": \"replay\", \"tenant\": \"a b\"}",
            "bad_field",
            "\"a b\"",
        ),
        ("{\"action\": \"release\"}", "bad_field", "tenant"),
        (
            "{\"action\": \"release\", \"tenant\": \"acme\", \"reason\": \"lost\"}",
            "bad_field",
            "paused or uncertain",
        ),
        (
            "{\"action\": \"suppress\", \"entries\": [{}]}",
            "bad_field",
            "entries[0]",
        ),
        (
            "{\"action\": \"status\", \"caller\": 1}",
            "bad_field",
            "caller",
        ),
        (
            "{\"action\": \"refresh\", \"account\": {\"max_send_rate\": \"14\"}}",
            "bad_field",
            "account.max_send_rate",
        ),
        (
            "{\"action\": \"refresh\", \"account\": 14}",
            "bad_field",
            "account",
        ),
        (
            "{\"action\": \"refresh\", \"tenants\": {}}",
            "bad_field",
            "tenants",
        ),
        (
            "{\"action\": \"refresh\", \"tenants\": [{}]}",
            "bad_field",
            "tenants[0]",
        ),
        (
            "{\"action\": \"refresh\", \"sets\": [{\"set\": \"a\", \"sending\": \"no\"}]}",
            "bad_field",
            "sets[0].sending",
        ),
        (
            "{\"action\": \"refresh\", \"final\": \"yes\"}",
            "bad_field",
            "final",
        ),
    ] {
        let (found, message) = failure(&rig, request).await;
        assert_eq!(found, code, "{request}: {message}");
        assert!(
            message.contains(says),
            "{request}: {message:?} lacks {says:?}"
        );
    }
    assert_eq!(rig.everything().await, before, "something was written");
}

/// What the provider said of acme's mail: 50 sent, 20 of them within the hour; some came back.
async fn feed(rig: &Rig) {
    let event = |n: usize, told, recipients, age| Fed {
        id: format!("event-{n}"),
        tenant: tenant("acme"),
        send_id: format!("fed-{n}").parse().unwrap(),
        told,
        recipients,
        sent_at: Moment(rig.now.0 - age),
        suppress: None,
    };
    let events = [
        event(0, Told::Sent, 20, 60_000),
        event(1, Told::Bounced, 2, 60_000),
        event(2, Told::Complained, 1, 60_000),
        event(3, Told::Sent, 30, 2 * 3_600_000),
        event(4, Told::Bounced, 1, 2 * 3_600_000),
    ];
    let memory = Millis::from_secs(86_400);
    rig.schedule().feed(memory, &events).await.unwrap();
}

fn counts(tenant: &str, numbers: [u64; 6]) -> Value {
    let [
        sent_1h,
        bounced_1h,
        complained_1h,
        sent_24h,
        bounced_24h,
        complained_24h,
    ] = numbers;
    json!({
        "tenant": tenant, "sent_1h": sent_1h, "bounced_1h": bounced_1h, "complained_1h": complained_1h,
        "sent_24h": sent_24h, "bounced_24h": bounced_24h, "complained_24h": complained_24h,
    })
}

/// Of what status says of a tenant, what the provider told.
fn provider_said(tenant: &Value) -> Value {
    let mut tenant = tenant.clone();
    for field in ["lanes", "configuration_set", "weight", "more_parked"] {
        assert!(
            tenant.as_object_mut().unwrap().remove(field).is_some(),
            "{field}"
        );
    }
    tenant
}

#[tokio::test]
async fn status_tells_of_all_tenants_up_to_a_thousand() {
    let mut rig = Rig::new(&[]).await;
    let names: Vec<Value> = (0..1_005)
        .map(|n| json!({ "name": format!("tenant-{n:04}"), "settings": {} }))
        .collect();
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0), "tenants": names }))
        .await;
    let status = rig.ask(json!({ "action": "status" })).await;
    let told = status["tenants"].as_array().unwrap();
    assert_eq!(told.len(), 1000);
    // As deployed, and by their parameters.
    for (at, name) in [
        (0, "acme"),
        (1, "beta"),
        (2, "tenant-0000"),
        (999, "tenant-0997"),
    ] {
        assert_eq!(provider_said(&told[at]), counts(name, [0; 6]));
        assert_eq!(told[at]["weight"], 1, "{name}");
    }
}

#[tokio::test]
async fn status_says_what_there_is() {
    let mut rig = Rig::new(&[]).await;
    let answer = rig.ask(json!({ "action": "status" })).await;
    assert_eq!(
        (&answer["redis"]["ok"], &answer["redis"]["error"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(
        (&answer["budget"], &answer["last_refresh"]),
        (&Value::Null, &Value::Null)
    );

    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    let start = rig.now.0;
    rig.send(30).await;
    assert_eq!(rig.booked("beta", 40).await, 40);
    rig.ask(json!({ "action": "pause", "tenant": "acme", "reason": "complaints", "caller": "me" }))
        .await;
    let paused = rig.now.0;
    feed(&rig).await;
    rig.schedule()
        .pause(&tenant("beta"), Some(Millis(500)), "budget")
        .await
        .unwrap();
    assert_eq!(rig.schedule().slow(rig.now, 7).await.unwrap(), 1024);
    rig.pass(Millis(1_000)).await;
    assert_eq!(rig.booked("acme", 1).await, 0, "it is paused");
    assert_eq!(rig.booked("beta", 25).await, 25, "its pause is over");
    rig.schedule()
        .block(Millis(9_000), Millis(9_000), "account_paused")
        .await
        .unwrap();
    let mut answer = rig
        .ask(json!({ "action": "status", "caller": "operator" }))
        .await;
    // Redis's own words, and what the tests of single mails look at.
    let redis = answer["redis"].take();
    assert!(
        redis["version"].is_string() && redis["used_memory"].as_u64() > Some(0),
        "{redis}"
    );
    let of_lanes = ["minutes", "lanes"].map(|field| answer.as_object_mut().unwrap().remove(field));
    assert!(of_lanes.iter().all(Option::is_some));
    for tenant in answer["tenants"].as_array_mut().unwrap() {
        *tenant = provider_said(tenant);
    }
    let look = rig.schedule().look().await.unwrap();
    let ahead = look.booked_until.0 - rig.now.cell().0;
    assert!((2..=4).contains(&ahead), "{ahead}");
    let expected = json!({
        "redis": null,
        "now_ms": rig.now.0,
        "budget": {
            "limit": "14/s", "daily_quota": 50_000, "source": "account", "factor": 1024, "effective_rate": 12.6,
        },
        "booked": { "priority": look.booked[Lane::Priority as usize], "bulk": 0 },
        "booked_ahead_seconds": ahead,
        "sent_24h": 30,
        "unscheduled": 0,
        "refused_10s": 7,
        "blocked": { "left_ms": 9_000, "reason": "account_paused" },
        // beta's pause has ended.
        "paused": [{ "tenant": "acme", "since_ms": paused, "until_ms": null, "reason": "complaints (me)" }],
        "tenants": [counts("acme", [20, 2, 1, 50, 3, 1]), counts("beta", [0; 6])],
        "generation_ms": start,
        "last_refresh": { "at_ms": start, "caller": "test", "taken_ms": start, "kept": null, "error": null },
    });
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn without_redis_status_says_so_and_nothing_else_is_done() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    rig.server.kill();
    let answer = rig.ask(json!({ "action": "status" })).await;
    assert_eq!(answer["redis"]["ok"], false);
    assert!(
        answer["redis"]["error"]
            .as_str()
            .is_some_and(|error| error.contains("redis"))
    );
    for request in [
        json!({ "action": "refresh", "account": account(14.0, 50_000.0, 0) }),
        json!({ "action": "pause", "tenant": "acme", "reason": "x" }),
        json!({ "action": "resume", "tenant": "acme" }),
        json!({ "action": "replay" }),
        json!({ "action": "release", "tenant": "acme" }),
        json!({ "action": "find", "tenant": "acme", "send_id": "m-1" }),
        json!({ "action": "cancel", "tenant": "acme", "send_id": "m-1" }),
        json!({ "action": "suppress", "entries": [{ "digest": "0".repeat(32), "cause": "bounce" }] }),
    ] {
        let (code, message) = failure(&rig, &request.to_string()).await;
        assert_eq!(code, "redis_unavailable", "{message}");
        assert!(message.contains("again"), "{message}");
    }
}

#[tokio::test]
async fn refreshes_at_once_do_no_harm() {
    let mut rig = Rig::new(&[("SENDSLOT_TENANTS", "acme=acme-set,beta")]).await;
    let told = json!({
        "action": "refresh", "account": account(14.0, 50_000.0, 100), "final": true,
        "tenants": [{ "name": "gamma", "settings": { "weight": 2 } }],
        "sets": [{ "set": "acme-set", "sending": false }],
    })
    .to_string();
    for round in 0..3 {
        let both = tokio::join!(
            rig.handle(&told),
            rig.handle(&told),
            rig.handle("{\"action\": \"refresh\", \"error\": \"timeout\", \"final\": true}"),
        );
        for (answer, _) in [both.0, both.1, both.2] {
            assert_eq!(answer.get("error"), None, "round {round}");
        }
        assert_eq!(
            rig.budget().await,
            ["14/s", "49900", "account"],
            "round {round}"
        );
        assert!(matches!(rig.claim("acme", 1).await, Claim::Paused { .. }));
        rig.pass(Millis::from_secs(60)).await;
    }
    // Another one afterwards finds all of it as it should be.
    let budget = rig.hash("budget").await;
    let answer = rig.refresh(serde_json::from_str(&told).unwrap()).await;
    assert_eq!(
        (&answer["unscheduled"], &answer["budget"]["changed"]),
        (&json!(0), &json!(false))
    );
    assert_eq!(rig.hash("budget").await, budget);
    let booked = rig.try_book("gamma", 5).await.unwrap();
    assert!(
        booked
            .iter()
            .all(|booking| matches!(booking, Booking::Slot(_)))
    );
}
