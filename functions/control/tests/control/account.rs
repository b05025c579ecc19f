//! The budget follows the account, and nothing else.

use sendslot_domain::{Budget, Lane, Millis, Rate};
use sendslot_schedule::{Ask, Booking, Claim, ScheduleError, Seed, Standing};
use serde_json::{Value, json};

use crate::rig::{MINUTE, Rig, account, settings, tenant};

/// Mails that have a slot within the horizon of a minute, at so many a second.
fn within_a_minute(booked: usize, rate: f64) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let seconds = booked as f64 / rate;
    (58.0..=61.5).contains(&seconds)
}

#[tokio::test]
async fn a_rise_and_a_fall_to_a_tenth_hold_at_once() {
    let mut rig = Rig::new(&[]).await;
    let mut was = Value::Null;
    for (rate, quota, text, quota_text) in [
        (14.0, 50_000.0, "14/s", "50000"),
        (50.0, 50_000.0, "50/s", "50000"),
        (5.0, 5_000.0, "5/s", "5000"),
    ] {
        let answer = rig.follow(account(rate, quota, 0)).await;
        assert_eq!(rig.budget().await, [text, quota_text, "account"]);
        let budget = &answer["budget"];
        assert_eq!(budget["limit"], text);
        assert_eq!(budget["changed"], true);
        assert_eq!(budget["was"]["limit"], was, "{text}");
        was = text.into();
        assert_eq!(answer["kept"], Value::Null);
        assert_eq!(rig.metric("SendRate"), rate);
        assert_eq!(rig.metric("EffectiveRate"), (rate * 900.0).round() / 1000.0);
        assert_eq!(rig.metric("DailyQuota"), quota_text.parse::<u64>().unwrap());
        assert_eq!(rig.metric("BudgetKept"), 0);
        let booked = rig.booked_anew("acme", 4000).await;
        assert!(within_a_minute(booked, rate * 0.9), "{booked} at {text}");
    }
}

#[tokio::test]
async fn no_daily_quota_is_none() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(14.0, 200.0, 0) }))
        .await;
    assert_eq!(rig.booked("acme", 500).await, 200);
    let answer = rig.follow(account(14.0, -1.0, 0)).await;
    assert_eq!(answer["budget"]["daily_quota"], Value::Null);
    assert_eq!(rig.budget().await, ["14/s", "none", "account"]);
    assert_eq!(rig.metric("DailyQuota"), Value::Null);
    assert_eq!(rig.metric("QuotaUsedPercent"), Value::Null);
    let booked = rig.booked_anew("acme", 4000).await;
    assert!(within_a_minute(booked, 12.6), "{booked}");
}

#[tokio::test]
async fn the_sandbox_cuts_what_was_set_for_a_large_account() {
    let mut rig = Rig::new(&[("SENDSLOT_BURST", "20"), ("SENDSLOT_RESERVE", "5/s")]).await;
    let answer = rig
        .refresh(json!({ "account": account(1.0, 200.0, 0) }))
        .await;
    assert_eq!(rig.budget().await, ["1/s", "200", "account"]);
    assert_eq!(rig.word("burst").await, "1");
    assert_eq!(rig.word("reserve").await, "0.45/s");
    let warnings = answer["warnings"].to_string();
    for says in [
        "burst 20 ",
        "SENDSLOT_BURST",
        "reserve 5/s ",
        "SENDSLOT_RESERVE",
    ] {
        assert!(warnings.contains(says), "{warnings}");
    }
    let booked = rig.booked("acme", 100).await;
    assert!(within_a_minute(booked, 0.9), "{booked}");
    assert!(matches!(rig.claim("acme", 1).await, Claim::Go { .. }));
    // What was cut is whole again on a larger account.
    let answer = rig.follow(account(50.0, 50_000.0, 0)).await;
    assert_eq!(answer["warnings"], json!([]));
    assert_eq!(rig.word("burst").await, "20");
    assert_eq!(rig.word("reserve").await, "5/s");
}

#[tokio::test]
async fn an_answer_that_cannot_be_is_said_and_changes_nothing() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    let before = rig.hash("budget").await;
    for (wrong, kept) in [
        (account(0.0, 50_000.0, 0), "zero"),
        (account(14.0, 0.0, 0), "zero"),
        (account(-5.0, 50_000.0, 0), "absurd"),
        (account(14.0, -2.0, 0), "absurd"),
        (account(1e12, 50_000.0, 0), "absurd"),
        (account(14.0, 1e18, 0), "absurd"),
        (
            json!({ "sending_enabled": true, "max_send_rate": 14.0 }),
            "missing",
        ),
        (json!({}), "missing"),
    ] {
        let answer = rig.follow(wrong.clone()).await;
        assert_eq!(answer["kept"], kept, "{wrong}");
        assert_eq!(answer["budget"]["limit"], "14/s");
        assert_eq!(answer["budget"]["changed"], false);
        assert_eq!(rig.metric("BudgetKept"), 1);
        assert_eq!(rig.hash("budget").await, before, "{wrong}");
    }
    let status = rig.ask(json!({ "action": "status" })).await;
    assert_eq!(status["last_refresh"]["kept"], "missing");
}

#[tokio::test]
async fn an_hour_of_failures_changes_nothing() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    let taken = rig.now.0;
    let before = rig.hash("budget").await;
    for minute in 0..60 {
        rig.pass(MINUTE).await;
        let answer = rig
            .refresh(json!({ "account": null, "error": "timeout", "tenants": null, "sets": null }))
            .await;
        assert_eq!(answer["kept"], "failed");
        assert_eq!(answer["budget"]["limit"], "14/s");
        assert_eq!(rig.metric("BudgetKept"), 1);
        assert_eq!(rig.hash("budget").await, before, "minute {minute}");
    }
    let booked = rig.booked("acme", 4000).await;
    assert!(within_a_minute(booked, 12.6), "{booked}");
    let last = rig.ask(json!({ "action": "status" })).await["last_refresh"].clone();
    assert_eq!(last["at_ms"], rig.now.0);
    assert_eq!(last["taken_ms"], taken);
    assert_eq!(
        (&last["kept"], &last["error"]),
        (&json!("failed"), &json!("timeout"))
    );
    let answer = rig.follow(account(20.0, 50_000.0, 0)).await;
    assert_eq!(answer["kept"], Value::Null);
    assert_eq!(rig.budget().await, ["20/s", "50000", "account"]);
}

#[tokio::test]
async fn a_fall_below_a_tenth_holds_when_it_was_said_three_times() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(50.0, 50_000.0, 0) }))
        .await;
    let sandbox = || account(1.0, 200.0, 0);
    for (says, kept, limit) in [
        (sandbox(), json!("below_tenth"), "50/s"),
        (sandbox(), json!("below_tenth"), "50/s"),
        (account(50.0, 50_000.0, 0), Value::Null, "50/s"), // begins anew
        (sandbox(), json!("below_tenth"), "50/s"),
        (sandbox(), json!("below_tenth"), "50/s"),
        (sandbox(), Value::Null, "1/s"),
        (account(50.0, 50_000.0, 0), Value::Null, "50/s"),
    ] {
        let answer = rig.follow(says).await;
        assert_eq!(answer["kept"], kept);
        assert_eq!(rig.word("limit").await, limit);
        // What quota-refresh asks in between is no answer of the account.
        let answer = rig.refresh(json!({ "sets": [], "final": true })).await;
        assert_eq!(answer["kept"], Value::Null);
        assert_eq!(rig.word("limit").await, limit);
    }
}

#[tokio::test]
async fn the_same_again_writes_nothing_but_that_it_was_said() {
    let mut rig = Rig::new(&[("SENDSLOT_TENANTS", "acme=acme-set,beta")]).await;
    let told = json!({
        "account": account(14.0, 50_000.0, 0),
        "tenants": [{ "name": "gamma", "settings": { "weight": 3 } }],
        "final": true,
    });
    rig.refresh(told.clone()).await;
    let before = (rig.hash("budget").await, rig.hash("account").await);
    assert!(before.0.contains_key("epoch") && !before.0["digest"].is_empty());
    let booked = rig.booked("acme", 100).await;
    assert_eq!(booked, 100);
    let state = rig.hash("schedule").await;
    // What a refresh writes although nothing changed would replace this.
    let marked: usize = rig
        .server
        .run(&["HSET", "sendslot:{test}:tenants", "mark", "of the test"])
        .await;
    assert_eq!(marked, 1);
    for _ in 0..5 {
        rig.pass(Millis::from_secs(10)).await;
        let answer = rig.refresh(told.clone()).await;
        assert_eq!(answer["budget"]["changed"], false);
        assert_eq!(rig.hash("budget").await, before.0);
        assert_eq!(rig.hash("schedule").await, state, "searches begin anew");
        assert!(rig.hash("tenants").await.contains_key("mark"));
    }
    let mut after = rig.hash("account").await;
    assert_ne!(after["refresh"], before.1["refresh"]);
    after.insert("refresh".into(), before.1["refresh"].clone());
    after.insert("count".into(), before.1["count"].clone()); // settled meanwhile
    assert_eq!(after, before.1);
    // A tenant's weight alone is a change.
    let digest = rig.word("digest").await;
    rig.refresh(json!({ "tenants": [{ "name": "gamma", "settings": { "weight": 4 } }] }))
        .await;
    assert_ne!(rig.word("digest").await, digest);
    rig.refresh(json!({ "tenants": [] })).await;
    let tenants = rig.hash("tenants").await;
    assert_eq!(tenants.keys().collect::<Vec<_>>(), ["", "acme", "beta"]);
}

#[tokio::test]
async fn what_is_set_at_deploy_bounds_the_account() {
    let bounds = [("SENDSLOT_LIMIT", "10/s"), ("SENDSLOT_DAILY_QUOTA", "1000")];
    let mut rig = Rig::new(&bounds).await;
    rig.refresh(json!({ "account": account(14.0, 5_000.0, 0) }))
        .await;
    assert_eq!(rig.budget().await, ["10/s", "1000", "account"]);
    rig.follow(account(4.0, 500.0, 0)).await;
    assert_eq!(rig.budget().await, ["4/s", "500", "account"]);
    // A bound that is raised or taken away holds with the next refresh, whatever the account says then.
    rig.follow(account(40.0, 50_000.0, 0)).await;
    assert_eq!(rig.budget().await, ["10/s", "1000", "account"]);
    rig.redeploy(&[]);
    rig.refresh(json!({ "error": "timeout" })).await;
    assert_eq!(rig.budget().await, ["40/s", "50000", "account"]);
}

#[tokio::test]
async fn an_account_that_was_never_known_has_the_budget_of_the_settings_or_none() {
    let mut rig = Rig::new(&[]).await;
    let answer = rig
        .refresh(json!({ "error": "AccessDeniedException" }))
        .await;
    assert_eq!(
        (&answer["budget"], &answer["pending"]),
        (&Value::Null, &json!(false))
    );
    assert_eq!(answer["kept"], "failed");
    assert!(answer["warnings"].to_string().contains("SENDSLOT_LIMIT"));
    assert!(matches!(
        rig.try_book("acme", 1).await,
        Err(ScheduleError::NoBudget(_))
    ));
    assert_eq!(rig.metric("SendRate"), Value::Null);

    rig.redeploy(&[("SENDSLOT_LIMIT", "2/s"), ("SENDSLOT_DAILY_QUOTA", "100")]);
    let answer = rig
        .refresh(json!({ "error": "AccessDeniedException" }))
        .await;
    assert_eq!(answer["budget"]["source"], "settings");
    assert_eq!(rig.budget().await, ["2/s", "100", "settings"]);
    assert_eq!(rig.booked("acme", 5).await, 5);
    rig.follow(account(1.5, 50_000.0, 0)).await;
    assert_eq!(rig.budget().await, ["1.5/s", "100", "account"]);
}

#[tokio::test]
async fn what_other_functions_brought_along_is_replaced_and_stays_so() {
    let mut rig = Rig::new(&[]).await;
    let mut numbers = settings(&[]).numbers;
    numbers.limit = Rate::new(3, 1).unwrap();
    let deployed = Seed {
        source: "deploy".into(),
        budget: Budget::new(numbers).unwrap(),
        tenants: vec![(tenant("acme"), sendslot_schedule::Tenant::default())],
    };
    assert!(rig.schedule().seed(&deployed).await.unwrap());
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    assert_eq!(rig.budget().await, ["14/s", "50000", "account"]);
    assert!(!rig.schedule().seed(&deployed).await.unwrap());
    assert_eq!(rig.budget().await, ["14/s", "50000", "account"]);
}

#[tokio::test]
async fn an_account_that_may_not_send_blocks_everybody_and_keeps_its_numbers() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    let mut disabled = account(1.0, 200.0, 0);
    disabled["sending_enabled"] = false.into();
    let mut shutdown = account(1.0, 200.0, 0);
    shutdown["enforcement"] = "SHUTDOWN".into();
    for (says, reason) in [(disabled, "sending_disabled"), (shutdown, "shutdown")] {
        let answer = rig.follow(says).await;
        assert_eq!(answer["kept"], "blocked");
        assert_eq!(answer["blocked"], reason);
        assert!(answer["blocked_ms"].as_u64().unwrap() >= 60_000);
        assert_eq!(rig.budget().await, ["14/s", "50000", "account"]);
        let bookings = rig.try_book("acme", 3).await.unwrap();
        let blocked = |booking: &Booking| matches!(booking, Booking::Blocked(_));
        assert!(bookings.iter().all(blocked), "{bookings:?}");
        assert!(matches!(rig.claim("acme", 1).await, Claim::Blocked { .. }));
        let status = rig.ask(json!({ "action": "status" })).await;
        assert_eq!(status["blocked"]["reason"], reason);
    }
    // It ends by itself, two minutes after the last refresh that found it so.
    rig.follow(account(14.0, 50_000.0, 0)).await;
    rig.pass(Millis::from_secs(61)).await;
    assert_eq!(rig.booked("acme", 3).await, 3);
    assert!(matches!(rig.claim("acme", 1).await, Claim::Go { .. }));
}

#[tokio::test]
async fn an_account_that_may_not_send_is_blocked_before_its_first_budget_is_there() {
    let mut rig = Rig::new(&[("SENDSLOT_LIMIT", "5/s")]).await;
    let mut disabled = account(1.0, 200.0, 0);
    disabled["sending_enabled"] = false.into();
    rig.refresh(json!({ "account": disabled })).await;
    assert_eq!(rig.budget().await, ["5/s", "none", "settings"]);
    assert!(matches!(rig.claim("acme", 1).await, Claim::Blocked { .. }));
    assert!(
        rig.schedule()
            .look()
            .await
            .unwrap()
            .generation()
            .is_some_and(|at| at == rig.now)
    );
}
#[tokio::test]
async fn a_block_that_is_refreshed_has_no_gaps() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    let mut disabled = account(14.0, 50_000.0, 0);
    disabled["sending_enabled"] = false.into();
    for late in [0_u64, 300, 0, 900, 100, 0, 700, 200, 0, 400] {
        rig.refresh(json!({ "account": disabled })).await;
        for _ in 0..29 {
            let claim = rig.claim("acme", 1).await;
            assert!(matches!(claim, Claim::Blocked { .. }), "{claim:?}");
            rig.pass(Millis(2_000)).await;
        }
        rig.pass(Millis(1_500 + late)).await;
    }
}

#[tokio::test]
async fn a_quota_that_others_have_used_up_refuses_no_mail_for_good() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 50_000) }))
        .await;
    let ask = Ask {
        tenant: tenant("acme"),
        cost: 50,
        standing: Standing::New,
    };
    let booked = rig.schedule().book(Lane::Bulk, &[ask]).await.unwrap();
    assert!(!matches!(booked[0], Booking::OverCap), "{booked:?}");
}

#[tokio::test]
async fn an_account_that_may_send_again_is_not_kept_waiting() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    for (reason, ends) in [("suspended", true), ("daily_quota", false)] {
        let longest = Millis(900_000);
        rig.schedule()
            .block(longest, longest, reason)
            .await
            .unwrap();
        rig.follow(account(14.0, 50_000.0, 0)).await;
        let claim = rig.claim("acme", 1).await;
        assert_eq!(
            matches!(claim, Claim::Go { .. }),
            ends,
            "{reason}: {claim:?}"
        );
    }
}
