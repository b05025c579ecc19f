//! A refresh: what is told, and what comes of it when something isn't there.

use std::time::Duration;

use quota_refresh::ports::{CallError, Kind};
use serde_json::{Value, json};

use crate::fakes::{Port, TIMEOUT, World, busy, call_error, page, refreshed};

fn schedule() -> Value {
    json!({ "trigger": "schedule" })
}

#[tokio::test(start_paused = true)]
async fn control_is_told_what_the_account_and_the_tenants_settings_say() {
    let world = World::with(|state| {
        state.pages = vec![
            Ok(page(&[("acme", r#"{"version":1,"weight":3}"#)], Some("2"))),
            Ok(page(&[("beta", "weight: 3"), ("gamma", "")], None)),
        ];
    });
    let handled = world.run(schedule()).await;
    assert_eq!(handled.failure(), None);
    let told = json!({
        "action": "refresh",
        "caller": "quota-refresh",
        "account": {
            "max_send_rate": 14.0, "max_24_hour_send": 50_000.0, "sent_last_24_hours": null,
            "sending_enabled": true, "enforcement": "HEALTHY", "production": true,
        },
        "error": null,
        "tenants": [
            { "name": "acme", "settings": { "version": 1, "weight": 3 } },
            { "name": "beta", "settings": "weight: 3" },
            { "name": "gamma", "settings": "" },
        ],
        "sets": null,
        "final": false,
    });
    assert_eq!(world.state().asked, [told]);
    assert_eq!(world.state().tokens, [None, Some("2".to_owned())]);
    let answer = handled.answer.as_ref().unwrap();
    assert_eq!(answer["control"]["budget"]["limit"], "14/s");
    for none in ["GetAccountFailed", "TenantsFailed", "ConcurrencyFailed"] {
        assert_eq!(handled.count(none), Some(0), "{none}");
    }
    assert_eq!(handled.count("ResponseFailed"), None);
    assert_eq!(world.calls(Port::Respond), 0);
    assert_eq!(world.calls(Port::Account), 1);
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_not_said_is_told_with_its_code() {
    let denied = call_error("AccessDeniedException", Kind::Other);
    for (hangs, account, code) in [
        (false, Err(denied), "AccessDeniedException"),
        (false, Err(busy()), "TooManyRequestsException"),
        (true, Err(busy()), "timeout"),
    ] {
        let world = World::with(|state| {
            state.account = account;
            state.hangs.extend(hangs.then_some(Port::Account));
        });
        let handled = world.run(schedule()).await;
        assert_eq!(handled.failure(), None);
        assert_eq!(handled.count("GetAccountFailed"), Some(1));
        let asked = world.state().asked.clone();
        assert_eq!((asked.len(), &asked[0]["account"]), (1, &Value::Null));
        assert_eq!(asked[0]["error"], code);
        assert_eq!(asked[0]["tenants"][0]["name"], "acme");
        assert_eq!(world.calls(Port::Account), 1, "{code}");
        assert!(handled.took < Duration::from_secs(7), "{:?}", handled.took);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_tenants_that_is_not_whole_is_none() {
    let first = Ok(page(&[("acme", "{}")], Some("2")));
    for (pages, hangs) in [
        (vec![first.clone(), Err(busy())], false),
        (vec![Err(call_error("AccessDenied", Kind::Other))], false),
        (vec![first.clone()], true),
        // SSM never comes to an end.
        (vec![first], false),
    ] {
        let world = World::with(|state| {
            state.pages = pages;
            state.hangs.extend(hangs.then_some(Port::Parameters));
        });
        let handled = world.run(schedule()).await;
        assert_eq!(handled.failure(), None);
        assert_eq!(handled.count("TenantsFailed"), Some(1));
        let asked = world.state().asked.clone();
        assert_eq!((asked.len(), &asked[0]["tenants"]), (1, &Value::Null));
        assert_eq!(asked[0]["account"]["max_send_rate"], 14.0);
        assert!(handled.took < Duration::from_secs(32), "{:?}", handled.took);
    }
}

#[tokio::test(start_paused = true)]
async fn no_tenant_is_an_empty_list() {
    let world = World::with(|state| state.pages = vec![Ok(page(&[], None))]);
    world.run(schedule()).await;
    assert_eq!(world.state().asked[0]["tenants"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn pages_are_read_at_a_pace() {
    let pages = (0..12).map(|n| Ok(page(&[("acme", "{}")], (n < 11).then_some("next"))));
    let world = World::with(|state| state.pages = pages.collect());
    world.run(schedule()).await;
    let state = world.state();
    assert_eq!(state.asked[0]["tenants"].as_array().unwrap().len(), 12);
    let of_ssm = state.calls.iter().filter(|call| call.0 == Port::Parameters);
    let began: Vec<_> = of_ssm.map(|call| call.1).collect();
    assert_eq!(began.len(), 12);
    for pair in began.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(100));
    }
}

#[tokio::test(start_paused = true)]
async fn what_control_fails_with_is_said_and_counted() {
    let text = |text: &str| Ok(text.as_bytes().to_vec());
    for (answer, code) in [
        (
            text(r#"{"error":{"code":"redis_unavailable","message":"no route"}}"#),
            "redis_unavailable",
        ),
        (
            Err(CallError::other("Sandbox.Timedout", "10 s")),
            "Sandbox.Timedout",
        ),
        (text("null"), "bad_answer"),
        (text(""), "bad_answer"),
        (text("<html>"), "bad_answer"),
        (text(r#"{"budget":3}"#), "bad_answer"),
        // Nothing was ever known of the account.
        (Ok(refreshed(&json!({ "budget": null }))), "no_budget"),
        (text("{}"), "no_budget"),
    ] {
        let world = World::with(|state| state.control = vec![answer]);
        let handled = world.run(schedule()).await;
        assert_eq!(handled.failure().as_deref(), Some(code));
        assert_eq!(world.state().asked.len(), 1, "{code}");
        assert_eq!(world.calls(Port::Mapping), 0, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn control_is_asked_again_only_while_it_is_busy() {
    let world = World::with(|state| {
        state.control = vec![Err(busy()), Err(busy()), Ok(refreshed(&json!({})))];
    });
    assert_eq!(world.run(schedule()).await.failure(), None);
    let asked = world.state().asked.clone();
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|request| request == &asked[0]));

    let world = World::with(|state| state.control = vec![Err(busy())]);
    let handled = world.run(schedule()).await;
    assert_eq!(
        handled.failure().as_deref(),
        Some("TooManyRequestsException")
    );
    assert_eq!(world.state().asked.len(), 4);

    // It may have been done: asked again, it would count what SES said twice.
    let world = World::with(|state| state.hangs.extend([Port::Control]));
    let handled = world.run(schedule()).await;
    assert_eq!(handled.failure().as_deref(), Some("timeout"));
    assert_eq!(world.state().asked.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_invocation_ends_in_time_whatever_hangs() {
    for port in Port::ALL {
        for timeout in [TIMEOUT, Duration::from_secs(10), Duration::from_secs(1)] {
            let world = World::with(|state| {
                state.hangs.insert(port);
                let verify = json!({ "verify": ["acme-set"] });
                state.control = vec![Ok(refreshed(&verify))];
                state.sets.insert("acme-set".into(), Ok(Some(true)));
            });
            let handled = world.run_within(schedule(), timeout).await;
            let left = timeout.saturating_sub(handled.took);
            assert!(left >= timeout / 50, "{port:?} {timeout:?}: {left:?} left");
            let failed = handled.failure();
            if timeout == TIMEOUT {
                assert_eq!(failed.is_some(), port == Port::Control, "{port:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_panics_is_one_that_failed() {
    let world = World::with(|state| state.panics = Some(Port::Mapping));
    let handled = world.run(schedule()).await;
    assert_eq!(handled.failure().as_deref(), Some("panicked"));
}
