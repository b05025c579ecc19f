//! CloudFormation's custom resource: answered in time, once, whatever hangs.

use std::time::Duration;

use quota_refresh::{Event, event::EventError};
use serde_json::{Value, json};

use crate::fakes::{LATENCY, Port, TIMEOUT, URL, World, refreshed};

fn request(kind: &str) -> Value {
    json!({
        "RequestType": kind, "ResponseURL": URL, "StackId": "arn:stack", "RequestId": "request-1",
        "LogicalResourceId": "Refresh", "ResourceType": "Custom::QuotaRefresh",
        "ResourceProperties": { "ServiceToken": "arn:function" },
    })
}

fn existing(kind: &str) -> Value {
    let mut request = request(kind);
    request["PhysicalResourceId"] = "named-before".into();
    request
}

/// The one answer that CloudFormation took or was offered.
fn answer(world: &World) -> Value {
    let put = world.state().put.clone();
    assert!(
        put.iter().all(|answer| answer == &put[0]),
        "one answer only"
    );
    put.first().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_refreshes_and_says_what_came_of_it() {
    for (request, name) in [
        (request("Create"), "quota-refresh"),
        (existing("Update"), "named-before"),
    ] {
        let world = World::default();
        let handled = world.run(request).await;
        let expected = json!({
            "Status": "SUCCESS", "PhysicalResourceId": name, "StackId": "arn:stack", "RequestId": "request-1",
            "LogicalResourceId": "Refresh",
            "Data": { "Refreshed": "true", "Limit": "14/s", "DailyQuota": "50000", "Source": "account" },
        });
        assert_eq!(world.state().put, [expected]);
        assert_eq!(world.state().asked.len(), 1);
        assert_eq!(handled.count("RefreshFailed"), Some(0));
        assert_eq!(handled.count("ResponseFailed"), Some(0));
        assert_eq!(handled.answer.unwrap()["status"], "SUCCESS");
    }
}

#[tokio::test(start_paused = true)]
async fn no_quota_is_an_empty_text() {
    let budget = json!({ "budget": { "limit": "14/s", "source": "account" } });
    let world = World::with(|state| state.control = vec![Ok(refreshed(&budget))]);
    world.run(request("Create")).await;
    assert_eq!(answer(&world)["Data"]["DailyQuota"], "");
}

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_does_not_fail_the_stack() {
    let error = json!({ "error": { "code": "redis_failed", "message": "x".repeat(9000) } });
    let world = World::with(|state| state.control = vec![Ok(error.to_string().into())]);
    let handled = world.run(request("Create")).await;
    let answer = answer(&world);
    assert_eq!(answer["Status"], "SUCCESS");
    // All that a template may read: one that reads what isn't there is rolled back.
    let data = json!({ "Refreshed": "false", "Limit": "", "DailyQuota": "", "Source": "" });
    assert_eq!(answer["Data"], data);
    let reason = answer["Reason"].as_str().unwrap();
    assert!(
        reason.starts_with("not refreshed yet: redis_failed: xxx"),
        "{reason}"
    );
    // What CloudFormation takes.
    assert!(answer.to_string().len() < 4096);
    assert_eq!(handled.count("RefreshFailed"), Some(1));
}

#[tokio::test(start_paused = true)]
async fn delete_is_answered_at_once() {
    let world = World::with(|state| {
        let others = Port::ALL.into_iter().filter(|port| *port != Port::Respond);
        state.hangs.extend(others);
    });
    let handled = world.run(existing("Delete")).await;
    let answer = answer(&world);
    assert_eq!(answer["Status"], "SUCCESS");
    assert_eq!(answer["PhysicalResourceId"], "named-before");
    assert_eq!(world.state().calls.len(), 1, "nobody else is called");
    assert!(handled.took < LATENCY * 2);
    assert_eq!(handled.count("RefreshFailed"), None);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_request_is_answered_that_it_failed() {
    for (kind, word) in [
        (json!("Rename"), "Rename"),
        (json!(3), ""),
        (Value::Null, ""),
    ] {
        let mut request = existing("");
        request["RequestType"] = kind;
        let world = World::default();
        let handled = world.run(request).await;
        let answer = answer(&world);
        assert_eq!(answer["Status"], "FAILED");
        assert_eq!(answer["PhysicalResourceId"], "named-before");
        let reason = format!("unknown RequestType {word:?}: use Create, Update or Delete");
        assert_eq!(answer["Reason"], reason);
        assert_eq!(world.state().calls.len(), 1, "nobody else is called");
        assert!(handled.answer.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_answered_before_the_deadline_whatever_hangs() {
    for timeout in [TIMEOUT, Duration::from_secs(20), Duration::from_secs(4)] {
        for port in Port::ALL.into_iter().filter(|port| *port != Port::Respond) {
            let world = World::with(|state| {
                state.hangs.insert(port);
                let first = json!({ "verify": ["acme-set"], "pending": true, "budget": null });
                state.control = vec![Ok(refreshed(&first)), Ok(refreshed(&json!({})))];
                state.sets.insert("acme-set".into(), Ok(Some(true)));
            });
            let handled = world.run_within(request("Create"), timeout).await;
            let answer = answer(&world);
            assert_eq!(answer["Status"], "SUCCESS", "{port:?}");
            if timeout == TIMEOUT {
                let refreshed = (port != Port::Control).to_string();
                assert_eq!(answer["Data"]["Refreshed"], refreshed, "{port:?}");
            }
            assert_eq!(world.calls(Port::Respond), 1, "{port:?}");
            // There was time for at least one try that hangs.
            let kept = (timeout / 2).min(Duration::from_secs(11));
            assert!(handled.took + kept <= timeout + LATENCY * 3, "{port:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_answered_when_everything_else_panics() {
    for port in [Port::Account, Port::Control, Port::Scale] {
        let world = World::with(|state| state.panics = Some(port));
        world.run(request("Update")).await;
        assert_eq!(answer(&world)["Data"]["Refreshed"], "false", "{port:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_taken_is_given_again() {
    for (refused, tries) in [(0, 1), (1, 2), (4, 5)] {
        let world = World::with(|state| state.refused = refused);
        let handled = world.run(request("Create")).await;
        assert_eq!(world.calls(Port::Respond), tries);
        assert_eq!(answer(&world)["Status"], "SUCCESS");
        assert!(handled.answer.is_ok());
        assert_eq!(handled.count("ResponseFailed"), Some(0));
    }
}

/// Lambda invokes it again then, so that another try is made.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_never_taken_is_an_error_without_the_url() {
    for hangs in [false, true] {
        for kind in ["Create", "Delete"] {
            let world = World::with(|state| {
                state.refused = 99;
                state.hangs.extend(hangs.then_some(Port::Respond));
            });
            let handled = world.run(existing(kind)).await;
            let error = handled.answer.clone().unwrap_err().to_string();
            assert!(error.starts_with("CloudFormation could not be answered: "));
            assert!(!error.contains("s3.example"), "{error}");
            assert_eq!(handled.count("ResponseFailed"), Some(1));
            assert!(world.calls(Port::Respond) >= 3, "{kind} {hangs}");
            assert!(handled.took + Duration::from_secs(1) <= TIMEOUT);
        }
    }
    // All hangs: the refresh to its end, and every try.
    let world = World::with(|state| state.hangs.extend(Port::ALL));
    let handled = world.run(request("Create")).await;
    assert!(handled.answer.is_err());
    assert!(world.calls(Port::Respond) >= 3);
    assert!(handled.took + Duration::from_secs(1) <= TIMEOUT);
}

#[test]
fn the_url_is_never_shown() {
    let event = Event::read(&request("Create")).unwrap();
    let shown = format!("{event:?}");
    assert!(
        !shown.contains("hunter2") && !shown.contains("s3.example"),
        "{shown}"
    );
}

#[test]
fn a_request_that_nobody_could_be_answered_is_an_error() {
    for url in [Value::Null, json!(""), json!(3)] {
        let mut request = request("Create");
        request["ResponseURL"] = url;
        assert_eq!(Event::read(&request), Err(EventError::NoResponseUrl));
    }
}
