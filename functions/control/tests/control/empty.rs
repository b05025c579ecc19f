//! Redis is empty: pauses come back before the budget does.

use sendslot_domain::{Budget, Millis, Rate};
use sendslot_runtime::TenantSettings;
use sendslot_schedule::{Claim, ScheduleError, Seed};
use serde_json::{Value, json};

use crate::rig::{MINUTE, Rig, account, settings, tenant};

const TENANTS: [(&str, &str); 1] = [("SENDSLOT_TENANTS", "acme=acme-set,beta=beta-set,gamma")];

fn is_no_budget<T>(answer: &Result<T, ScheduleError>) -> bool {
    matches!(answer, Err(ScheduleError::NoBudget(_)))
}

#[tokio::test]
async fn a_paused_sets_tenant_is_paused_before_anything_can_be_booked() {
    let mut rig = Rig::new(&TENANTS).await;
    for time in ["at first", "when redis was emptied"] {
        let answer = rig
            .refresh(json!({ "account": account(14.0, 50_000.0, 0), "tenants": [] }))
            .await;
        assert_eq!(answer["pending"], true, "{time}");
        assert_eq!(answer["empty_found"], true);
        assert_eq!(answer["budget"], Value::Null);
        assert_eq!(answer["verify"], json!(["acme-set", "beta-set"]));
        assert!(is_no_budget(&rig.try_book("acme", 1).await));
        assert_eq!(rig.word("source").await, "");
        assert_eq!(rig.metric("RedisGenerationChanged"), 0);

        rig.pass(Millis::from_secs(2)).await;
        let sets = json!([{ "set": "acme-set", "sending": false }, { "set": "beta-set", "sending": true }]);
        let answer = rig.refresh(json!({ "sets": sets, "final": true })).await;
        assert_eq!(answer["pending"], false);
        assert_eq!(answer["paused"], json!(["acme"]));
        assert_eq!(answer["verify"], json!([]));
        assert_eq!(answer["generation_ms"], rig.now.0);
        assert_eq!(rig.budget().await, ["14/s", "50000", "account"]);
        assert_eq!(rig.metric("RedisGenerationChanged"), 1);
        let paused = rig.hash("paused").await;
        let value = String::from_utf8(paused["acme"].clone()).unwrap();
        assert_eq!(value, format!("1|0|{}|set_paused", rig.now.0));
        assert_eq!(paused.len(), 1);
        assert!(matches!(rig.claim("acme", 1).await, Claim::Paused { .. }));
        assert!(matches!(rig.claim("beta", 1).await, Claim::Go { .. }));

        // Nothing more is asked for, and nothing is said to have been emptied.
        let answer = rig.follow(account(14.0, 50_000.0, 0)).await;
        assert_eq!(
            (&answer["verify"], &answer["empty_found"]),
            (&json!([]), &json!(false))
        );
        assert_eq!(rig.metric("RedisGenerationChanged"), 0);
        // It stays until it is resumed, whatever its set says later.
        let sets = json!([{ "set": "acme-set", "sending": true }]);
        rig.refresh(json!({ "sets": sets })).await;
        assert!(matches!(rig.claim("acme", 1).await, Claim::Paused { .. }));
        rig.flush().await;
        rig.pass(MINUTE).await;
    }
}

/// A pause that can't be written keeps the budget from being written.
#[tokio::test]
async fn the_pause_is_written_before_the_budget() {
    let mut rig = Rig::new(&TENANTS).await;
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    let key = "sendslot:{test}:tenant:beta";
    let _: () = rig.server.run(&["SET", key, "no hash"]).await;
    let told = json!({
        "action": "refresh", "sets": [{ "set": "beta-set", "sending": false }], "final": true,
    });
    let (answer, _) = rig.handle(&told.to_string()).await;
    assert_eq!(answer["error"]["code"], "redis_failed", "{answer}");
    assert_eq!(rig.word("source").await, "");
    assert!(is_no_budget(&rig.try_book("acme", 1).await));
    let _: usize = rig.server.run(&["DEL", key]).await;
    rig.ask(told).await;
    assert_eq!(rig.budget().await, ["14/s", "50000", "account"]);
    assert!(matches!(rig.claim("beta", 1).await, Claim::Paused { .. }));
}

#[tokio::test]
async fn what_could_not_be_read_holds_nobody_up_and_is_asked_for_again() {
    let mut rig = Rig::new(&TENANTS).await;
    let answer = rig
        .refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    assert_eq!(answer["pending"], true);
    rig.refresh(json!({ "sets": [{ "set": "beta-set", "sending": true }], "final": true }))
        .await;
    assert_eq!(rig.budget().await, ["14/s", "50000", "account"]);
    let answer = rig.follow(account(14.0, 50_000.0, 0)).await;
    assert_eq!(answer["verify"], json!(["acme-set"]));
    let answer = rig
        .refresh(json!({ "sets": [{ "set": "acme-set", "sending": false }], "final": true }))
        .await;
    assert_eq!(answer["paused"], json!(["acme"]));
    assert!(matches!(rig.claim("acme", 1).await, Claim::Paused { .. }));
    let answer = rig.follow(account(14.0, 50_000.0, 0)).await;
    assert_eq!(answer["verify"], json!([]));
}

#[tokio::test]
async fn a_refresh_that_never_ends_holds_the_budget_for_three_minutes_only() {
    let mut rig = Rig::new(&TENANTS).await;
    for _ in 0..3 {
        let answer = rig
            .refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
            .await;
        assert_eq!(answer["pending"], true);
        assert!(is_no_budget(&rig.try_book("acme", 1).await));
        rig.pass(MINUTE).await;
    }
    let answer = rig
        .refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    assert_eq!(answer["pending"], false);
    assert_eq!(answer["verify"], json!(["acme-set", "beta-set"]));
    assert_eq!(rig.booked("acme", 1).await, 1);
}

#[tokio::test]
async fn more_sets_than_fit_into_a_minute_are_asked_for_in_parts() {
    let names: Vec<String> = (0..120).map(|n| format!("t{n:03}=set-{n:03}")).collect();
    let mut rig = Rig::new(&[("SENDSLOT_TENANTS", &names.join(","))]).await;
    let mut told = json!({ "account": account(14.0, 50_000.0, 0) });
    let mut seen = Vec::new();
    for expected in [50, 50, 20, 0] {
        let answer = rig.refresh(told.clone()).await;
        let verify = answer["verify"].as_array().unwrap().clone();
        assert_eq!(verify.len(), expected);
        let sets: Vec<_> = verify
            .iter()
            .map(|set| json!({ "set": set, "sending": *set != "set-119" }))
            .collect();
        seen.extend(verify);
        rig.refresh(json!({ "sets": sets, "final": true })).await;
        assert_eq!(rig.word("limit").await, "14/s");
        told = json!({ "account": account(14.0, 50_000.0, 0) });
        rig.pass(MINUTE).await;
    }
    let sets: Vec<_> = (0..120)
        .map(|n| Value::String(format!("set-{n:03}")))
        .collect();
    assert_eq!(seen, sets);
    assert!(matches!(rig.claim("t119", 1).await, Claim::Paused { .. }));
    assert!(matches!(rig.claim("t000", 1).await, Claim::Go { .. }));
}

#[tokio::test]
async fn a_budget_that_others_brought_along_after_redis_was_emptied_is_noticed() {
    let mut rig = Rig::new(&TENANTS).await;
    let all =
        json!([{ "set": "acme-set", "sending": true }, { "set": "beta-set", "sending": true }]);
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0), "sets": all, "final": true }))
        .await;
    rig.flush().await;
    rig.pass(MINUTE).await;
    let mut numbers = settings(&[]).numbers;
    numbers.limit = Rate::new(3, 1).unwrap();
    let deployed = Seed {
        source: "deploy".into(),
        budget: Budget::new(numbers).unwrap(),
        tenants: vec![(tenant("acme"), sendslot_schedule::Tenant::default())],
    };
    assert!(rig.schedule().seed(&deployed).await.unwrap());
    let answer = rig.follow(account(14.0, 50_000.0, 7_000)).await;
    assert_eq!(answer["empty_found"], true);
    assert_eq!(answer["verify"], json!(["acme-set", "beta-set"]));
    assert_eq!(rig.metric("RedisGenerationChanged"), 1);
    // What was sent before isn't taken for others' mail, and counts against the day's quota.
    assert_eq!(answer["unscheduled"], 0);
    assert_eq!(rig.budget().await, ["14/s", "43000", "account"]);
}

/// Counts that outlive the budget are another Redis's: what is noted of them is made anew.
#[tokio::test]
async fn notes_of_another_generation_are_not_believed() {
    let mut rig = Rig::new(&TENANTS).await;
    let all =
        json!([{ "set": "acme-set", "sending": true }, { "set": "beta-set", "sending": true }]);
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0), "sets": all, "final": true }))
        .await;
    rig.follow(account(14.0, 50_000.0, 0)).await;
    let _: () = rig.server.run(&["DEL", "sendslot:{test}:budget"]).await;
    let answer = rig.follow(account(14.0, 50_000.0, 500)).await;
    assert_eq!(answer["pending"], true);
    assert_eq!(answer["verify"], json!(["acme-set", "beta-set"]));
    assert_eq!(answer["unscheduled"], 0);
}

#[tokio::test]
async fn nobody_is_refused_because_nobody_told_who_there_is() {
    let mut rig = Rig::new(&[]).await;
    let gamma = json!([{ "name": "gamma", "settings": { "version": 1 } }]);
    let healthy = account(14.0, 50_000.0, 0);
    rig.refresh(json!({ "account": healthy, "tenants": gamma }))
        .await;
    rig.flush().await;
    // The parameters can't be read in the minute in which Redis was emptied, nor in the next.
    for _ in 0..5 {
        rig.pass(Millis(60_000)).await;
        let told = rig
            .refresh(json!({ "account": healthy, "tenants": null, "final": true }))
            .await;
        assert_eq!(
            (&told["pending"], &told["budget"]),
            (&json!(true), &Value::Null)
        );
        let told = rig.schedule().tenants(&[tenant("gamma")]).await;
        assert!(matches!(told, Err(ScheduleError::NoBudget(_))), "{told:?}");
    }
    rig.refresh(json!({ "account": healthy, "tenants": gamma }))
        .await;
    assert_eq!(rig.told("gamma").await, Some(TenantSettings::default()));
}

#[tokio::test]
async fn a_final_call_fills_no_redis_that_was_emptied_since_the_first() {
    let mut rig = Rig::new(&[
        ("SENDSLOT_LIMIT", "100/s"),
        ("SENDSLOT_TENANTS", "acme=acme-set"),
    ])
    .await;
    let first = rig
        .refresh(json!({ "account": account(14.0, 200.0, 0) }))
        .await;
    assert_eq!(first["pending"], true);
    rig.flush().await;
    let sets = json!([{ "set": "acme-set", "sending": true }]);
    let second = rig
        .refresh(json!({ "tenants": null, "sets": sets, "final": true }))
        .await;
    assert_eq!(
        (&second["pending"], &second["budget"]),
        (&json!(true), &Value::Null)
    );
}

#[tokio::test]
async fn settings_are_there_again_though_only_they_were_lost() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    rig.lose("tenants").await;
    rig.follow(account(14.0, 50_000.0, 0)).await;
    assert_eq!(rig.told("acme").await, Some(TenantSettings::default()));
    assert_eq!(rig.told("nobody").await, None);
}

#[tokio::test]
async fn a_list_that_has_lost_most_tenants_is_believed_when_it_is_said_three_times() {
    let mut rig = Rig::new(&[]).await;
    let many: Vec<Value> = (0..10)
        .map(|n| json!({ "name": format!("tenant-{n}"), "settings": { "version": 1 } }))
        .collect();
    let healthy = account(14.0, 50_000.0, 0);
    rig.refresh(json!({ "account": healthy, "tenants": many }))
        .await;
    for (told, known) in [
        (0, true),
        (0, true),
        (10, true),
        (4, true),
        (4, true),
        (4, false),
    ] {
        rig.pass(Millis(60_000)).await;
        rig.refresh(json!({ "account": healthy, "tenants": many[..told] }))
            .await;
        assert_eq!(rig.told("tenant-9").await.is_some(), known, "{told}");
    }
    // One of two may go at once.
    rig.refresh(json!({ "account": healthy, "tenants": many[..2] }))
        .await;
    assert_eq!(rig.told("tenant-2").await, None);
    rig.refresh(json!({ "account": healthy, "tenants": many[..1] }))
        .await;
    assert_eq!(rig.told("tenant-1").await, None);
}
