//! Pause, resume and status; and what isn't a request.

use sendslot_domain::{Lane, Millis};
use sendslot_schedule::{Booking, Claim};
use serde_json::{Value, json};

use crate::rig::{Rig, account, tenant};

async fn failure(rig: &Rig, request: &str) -> (String, String) {
    let (answer, metrics) = rig.control.handle(request).await;
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
        ("{\"action\": \"pause\"}", "bad_field", "tenant"),
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

#[tokio::test]
async fn while_nobody_knows_who_there_is_anybody_can_be_paused() {
    let mut rig = Rig::new(&[]).await;
    let gamma = json!({ "action": "pause", "tenant": "gamma", "reason": "x" });
    rig.ask(gamma).await;
    let tenants = json!([{ "name": "gamma", "settings": {} }]);
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0), "tenants": tenants }))
        .await;
    assert!(matches!(rig.claim("gamma", 1).await, Claim::Paused { .. }));
}

#[tokio::test]
async fn a_paused_tenant_sends_nothing_until_it_is_resumed() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({
        "account": account(14.0, 50_000.0, 0), "tenants": [{ "name": "gamma", "settings": {} }],
    }))
    .await;
    for name in ["acme", "gamma"] {
        rig.pass(Millis::from_secs(5)).await;
        assert_eq!(rig.booked(name, 20).await, 20);
        let since = rig.now.0;
        let pause = json!({ "action": "pause", "tenant": name, "reason": "complaints", "caller": "auto-pause" });
        let answer = rig.ask(pause.clone()).await;
        assert_eq!(
            answer,
            json!({ "tenant": name, "already": false, "since_ms": since, "reason": "complaints" })
        );
        assert!(matches!(
            rig.claim(name, 1).await,
            Claim::Paused { left: None }
        ));
        assert!(matches!(rig.claim("beta", 1).await, Claim::Go { .. }));
        rig.pass(Millis::from_secs(1)).await; // what has begun stays
        assert_eq!(
            rig.schedule().look().await.unwrap().booked,
            [0, 0],
            "its cells are given back"
        );
        // The first pause stands, with its reason.
        rig.pass(Millis::from_secs(5)).await;
        let again = json!({ "action": "pause", "tenant": name, "reason": "by hand" });
        let answer = rig.ask(again).await;
        assert_eq!(
            answer,
            json!({ "tenant": name, "already": true, "since_ms": since, "reason": "complaints" })
        );

        let resume = json!({ "action": "resume", "tenant": name, "caller": "operator" });
        assert_eq!(
            rig.ask(resume.clone()).await,
            json!({ "tenant": name, "was_paused": true })
        );
        assert!(matches!(rig.claim(name, 1).await, Claim::Go { .. }));
        assert_eq!(
            rig.ask(resume).await,
            json!({ "tenant": name, "was_paused": false })
        );
    }
}

/// Whoever is gone from the deployment can be let go.
#[tokio::test]
async fn a_paused_tenant_that_is_gone_can_be_resumed() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    rig.ask(json!({ "action": "pause", "tenant": "acme", "reason": "moving out" }))
        .await;
    rig.redeploy(&[("SENDSLOT_TENANTS", "beta")]);
    let answer = rig
        .ask(json!({ "action": "resume", "tenant": "acme" }))
        .await;
    assert_eq!(answer["was_paused"], true);
    let request = json!({ "action": "resume", "tenant": "acme" }).to_string();
    assert_eq!(failure(&rig, &request).await.0, "unknown_tenant");
}

#[tokio::test]
async fn status_says_what_there_is() {
    let mut rig = Rig::new(&[]).await;
    let answer = rig.ask(json!({ "action": "status" })).await;
    assert_eq!(answer["redis"], json!({ "ok": true, "error": null }));
    assert_eq!(
        (&answer["budget"], &answer["last_refresh"]),
        (&Value::Null, &Value::Null)
    );

    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    let start = rig.now.0;
    rig.send(30).await;
    assert_eq!(rig.booked("beta", 40).await, 40);
    rig.ask(json!({ "action": "pause", "tenant": "acme", "reason": "complaints" }))
        .await;
    let paused = rig.now.0;
    rig.schedule()
        .pause(&tenant("beta"), Some(Millis(500)), "budget")
        .await
        .unwrap();
    assert_eq!(rig.schedule().slow(rig.now, 7).await.unwrap(), 1024);
    rig.pass(Millis(1_000)).await;
    assert_eq!(rig.booked("acme", 25).await, 25);
    rig.schedule()
        .block(Millis(9_000), Millis(9_000), "account_paused")
        .await
        .unwrap();
    let answer = rig
        .ask(json!({ "action": "status", "caller": "operator" }))
        .await;
    let look = rig.schedule().look().await.unwrap();
    let ahead = look.booked_until.0 - rig.now.cell().0;
    assert!((2..=4).contains(&ahead), "{ahead}");
    let expected = json!({
        "redis": { "ok": true, "error": null },
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
        "paused": [{ "tenant": "acme", "since_ms": paused, "until_ms": null, "reason": "complaints" }],
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
            rig.control.handle(&told),
            rig.control.handle(&told),
            rig.control
                .handle("{\"action\": \"refresh\", \"error\": \"timeout\", \"final\": true}"),
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
