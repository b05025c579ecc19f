//! The calls other than `SendEmail`, as clients see them: their limit, faults and record.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Answer, Client, Server, mail};

const ACCOUNT: &str = "/v2/email/account";
const SET: &str = "/v2/email/configuration-sets/acme-set";
const CALLS: &str = "/_simulator/calls";
const MS: Duration = Duration::from_millis(1);

fn account(client: &mut Client) -> Answer {
    client.request("GET", ACCOUNT, "")
}

fn calls(client: &mut Client) -> Vec<Value> {
    let answer = client.request("GET", CALLS, "");
    assert_eq!(answer.status, 200);
    answer.json().as_array().unwrap().clone()
}

/// Operation, set, outcome and error of each call.
fn shown(client: &mut Client) -> Vec<String> {
    let calls = calls(client);
    let of = |call: &Value, name: &str| call[name].as_str().unwrap_or("-").to_owned();
    let names = ["operation", "configuration_set", "outcome", "error"];
    calls
        .iter()
        .map(|call| names.map(|name| of(call, name)).join(" "))
        .collect()
}

#[test]
fn every_call_is_on_record_and_no_mail() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let body = json!({"ConfigurationSetName": "acme-set"}).to_string();
    let off = json!({"SendingEnabled": false}).to_string();
    account(&mut client);
    client.request("PUT", "/v2/email/account/sending", "{");
    client.request("POST", "/v2/email/configuration-sets", &body);
    client.request("POST", "/v2/email/configuration-sets", &body);
    client.request("PUT", &format!("{SET}/sending"), &off);
    client.request("GET", SET, "");
    client.request("POST", "/v2/email/list-configuration-sets", "{}");
    client.request("DELETE", SET, "");
    client.request("GET", SET, "");
    client.request("GET", "/v2/email/configuration-sets/a@example.com", "");
    client.send(&mail(1));
    assert_eq!(
        shown(&mut client),
        [
            "GetAccount - done -",
            "PutAccountSendingAttributes - refused SerializationException",
            "CreateConfigurationSet acme-set done -",
            "CreateConfigurationSet acme-set refused AlreadyExistsException",
            "PutConfigurationSetSendingOptions acme-set done -",
            "GetConfigurationSet acme-set done -",
            "ListConfigurationSets - done -",
            "DeleteConfigurationSet acme-set done -",
            "GetConfigurationSet acme-set refused NotFoundException",
            "GetConfigurationSet - refused NotFoundException",
        ]
    );
    let times: Vec<f64> = calls(&mut client)
        .iter()
        .map(|call| call["at_ms"].as_f64().unwrap())
        .collect();
    assert!(times.is_sorted());
    assert_eq!(client.record().len(), 1, "mail has a record of its own");
    assert_eq!(client.request("DELETE", CALLS, "").status, 204);
    assert_eq!(calls(&mut client), Vec::<Value>::new());
    assert_eq!(client.record().len(), 1);
}

/// One a second, shared by all calls and never asked of mail; what is refused changes nothing.
#[test]
fn the_control_plane_has_its_own_limit() {
    let server = Server::start(&["--control-rate", "1", "--configuration-set", "acme-set"]);
    let mut client = server.connect();
    let off = json!({"SendingEnabled": false}).to_string();
    let sending = format!("{SET}/sending");

    assert_eq!(account(&mut client).status, 200);
    let started = Instant::now();
    let refused = client.request("PUT", &sending, &off);
    assert_eq!(refused.error(), (429, "TooManyRequestsException"));
    assert_eq!(refused.json()["message"], "Rate exceeded");
    for _ in 0..20 {
        assert_eq!(client.send(&mail(1)).status, 200);
    }
    thread::sleep((1010 * MS).saturating_sub(started.elapsed()));
    let set = client.request("GET", SET, "");
    assert_eq!(set.status, 200, "a second later there is one more");
    assert_eq!(set.json()["SendingOptions"]["SendingEnabled"], true);

    client.settings(&json!({"control_rate": -1}));
    for _ in 0..20 {
        assert_eq!(account(&mut client).status, 200);
    }
    let outcome = calls(&mut client)[1].clone();
    assert_eq!(outcome["outcome"], "throttled");
    assert_eq!(outcome["error"], "TooManyRequestsException");
    assert_eq!(outcome.get("fault"), None);
}

#[test]
fn a_patch_makes_answers_absurd() {
    let server = Server::start(&["--rate", "14", "--configuration-set", "acme-set"]);
    let mut client = server.connect();
    let patch = |operation: &str, patch: Value| json!({"operation": operation, "kind": "patch", "count": 1, "patch": patch});
    client.faults(&json!([
        patch(
            "GetAccount",
            json!({"SendQuota": {"MaxSendRate": 0, "Max24HourSend": null}})
        ),
        patch(
            "GetAccount",
            json!({"SendQuota": null, "SendingEnabled": null})
        ),
        patch("GetConfigurationSet", json!({"SendingOptions": null})),
    ]));
    let zero = account(&mut client).json();
    assert_eq!(
        zero["SendQuota"],
        json!({"MaxSendRate": 0, "SentLast24Hours": 0})
    );
    assert_eq!(zero["SendingEnabled"], true);
    let bare = account(&mut client).json();
    assert_eq!(bare.get("SendQuota"), None);
    assert_eq!(bare.get("SendingEnabled"), None);
    assert_eq!(bare["EnforcementStatus"], "HEALTHY");
    let sane = account(&mut client).json();
    assert_eq!(sane["SendQuota"]["MaxSendRate"], 14.0);
    let set = client.request("GET", SET, "").json();
    assert_eq!(set, json!({"ConfigurationSetName": "acme-set", "Tags": []}));
    let faults: Vec<Value> = calls(&mut client)
        .iter()
        .map(|call| call.get("fault").cloned().unwrap_or_default())
        .collect();
    assert_eq!(json!(faults), json!(["patch", "patch", null, "patch"]));
}

#[test]
fn calls_fail_as_mail_does_and_mail_does_not() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let rule = |kind: &str| json!({"operation": "GetAccount", "kind": kind, "count": 1, "ms": 300, "retry_after_s": 4});
    let kinds = ["throttle", "denied", "error_before", "error_after", "slow"];
    client.faults(&json!(kinds.map(rule)));
    assert_eq!(client.send(&mail(1)).status, 200);
    for (kind, expected) in [
        ("throttle", (429, "TooManyRequestsException")),
        ("denied", (403, "AccessDeniedException")),
        ("error_before", (500, "InternalFailure")),
        ("error_after", (500, "InternalFailure")),
    ] {
        let answer = account(&mut client);
        assert_eq!(answer.error(), expected, "{kind}");
        let retry = (kind == "throttle").then_some("4");
        assert_eq!(answer.header("retry-after"), retry, "{kind}");
    }
    let started = Instant::now();
    assert_eq!(account(&mut client).status, 200);
    assert!(started.elapsed() >= 300 * MS);
    assert_eq!(
        shown(&mut client),
        [
            "GetAccount - throttled TooManyRequestsException",
            "GetAccount - failed AccessDeniedException",
            "GetAccount - failed InternalFailure",
            "GetAccount - done InternalFailure",
            "GetAccount - done -",
        ]
    );
}

#[test]
fn a_call_hangs_or_breaks_without_an_answer() {
    for (kind, error, lasts) in [
        ("hang_before", None, 300 * MS),
        ("hang_after", None, 300 * MS),
        (
            "reset_before",
            Some(ErrorKind::ConnectionReset),
            Duration::ZERO,
        ),
        (
            "reset_after",
            Some(ErrorKind::ConnectionReset),
            Duration::ZERO,
        ),
    ] {
        let server = Server::start(&["--configuration-set", "acme-set"]);
        let mut control = server.connect();
        let operation = "PutConfigurationSetSendingOptions";
        control.faults(&json!([{"operation": operation, "kind": kind, "ms": 300}]));
        let mut client = server.connect();
        let started = Instant::now();
        client
            .write("PUT", &format!("{SET}/sending"), "{}")
            .unwrap();
        let (rest, end) = client.rest();
        assert_eq!(String::from_utf8_lossy(&rest), "", "{kind}");
        assert_eq!(end, error, "{kind}");
        assert!(started.elapsed() >= lasts, "{kind}");
        let set = control.request("GET", SET, "").json();
        let switched = set["SendingOptions"]["SendingEnabled"] == false;
        assert_eq!(switched, kind.ends_with("_after"), "{kind}");
    }
}

/// Faults before the limit take nothing from it.
#[test]
fn a_failed_call_takes_no_allowance() {
    let server = Server::start(&["--control-rate", "0.01"]);
    let mut client = server.connect();
    client.faults(&json!([{"operation": "GetAccount", "kind": "error_before", "count": 3}]));
    for _ in 0..3 {
        assert_eq!(account(&mut client).status, 500);
    }
    assert_eq!(account(&mut client).status, 200);
    assert_eq!(account(&mut client).status, 429);
}

#[test]
fn the_account_counts_what_others_sent() {
    let server = Server::start(&["--daily", "100"]);
    let mut client = server.connect();
    client.send(&mail(5));
    client.settings(&json!({"sent_elsewhere": 90}));
    let quota = account(&mut client).json()["SendQuota"].clone();
    assert_eq!(quota["SentLast24Hours"], 95);
    assert_eq!(quota["Max24HourSend"], 100);
    assert_eq!(client.send(&mail(6)).error().0, 429);
    assert_eq!(client.send(&mail(5)).status, 200);
}

/// The list as clients see it; and no address on the record, in an error or in a token as it is.
#[test]
fn the_suppression_list_is_kept() {
    const LIST: &str = "/v2/email/suppression/addresses";
    let server = Server::start(&["--event-delay-ms", "0"]);
    let mut client = server.connect();
    let one = format!("{LIST}/bounce1%40bounces.example");
    assert_eq!(
        client.request("GET", &one, "").error(),
        (404, "NotFoundException")
    );
    let mut bounces = mail(0);
    bounces["Destination"]["ToAddresses"] = json!([
        "bounce1@bounces.example",
        "fine@example.com",
        "bounce@simulator.amazonses.com"
    ]);
    assert_eq!(client.send(&bounces).status, 200);
    let put = |address: &str, reason: &str| {
        json!({"EmailAddress": address, "Reason": reason}).to_string()
    };
    let added = client.request("PUT", LIST, &put("Zoe@example.com", "COMPLAINT"));
    assert_eq!(added.status, 200);
    for body in [
        put("zoe", "BOUNCE"),
        put("zoe@example.com", "zoe@example.com"),
    ] {
        let refused = client.request("PUT", LIST, &body);
        assert_eq!(refused.status, 400);
        assert!(!refused.json().to_string().contains("zoe"));
    }
    let told = client.request("GET", &one, "").json()["SuppressedDestination"].clone();
    assert_eq!(told["EmailAddress"], "bounce1@bounces.example");
    assert_eq!(told["Reason"], "BOUNCE");
    let since = told["LastUpdateTime"].as_f64().unwrap();
    assert!(since > 1.7e9 && since < 1e10, "seconds: {since}");

    let first = client
        .request("GET", &format!("{LIST}?PageSize=1"), "")
        .json();
    let token = first["NextToken"].as_str().unwrap();
    assert!(!token.contains("example"));
    let last = client
        .request("GET", &format!("{LIST}?NextToken={token}"), "")
        .json();
    assert_eq!(
        last["SuppressedDestinationSummaries"][0]["EmailAddress"],
        "zoe@example.com"
    );
    assert_eq!(last.get("NextToken"), None);
    let stale = client.request("GET", &format!("{LIST}?NextToken=%21"), "");
    assert_eq!(stale.error(), (400, "InvalidNextTokenException"));
    assert_eq!(client.request("DELETE", &one, "").status, 200);
    assert_eq!(
        client.request("DELETE", &one, "").error(),
        (404, "NotFoundException")
    );
    assert_eq!(
        shown(&mut client),
        [
            "GetSuppressedDestination - refused NotFoundException",
            "PutSuppressedDestination - done -",
            "PutSuppressedDestination - refused BadRequestException",
            "PutSuppressedDestination - refused SerializationException",
            "GetSuppressedDestination - done -",
            "ListSuppressedDestinations - done -",
            "ListSuppressedDestinations - done -",
            "ListSuppressedDestinations - refused InvalidNextTokenException",
            "DeleteSuppressedDestination - done -",
            "DeleteSuppressedDestination - refused NotFoundException",
        ]
    );
    let all = client.request("GET", CALLS, "").json().to_string();
    assert!(!all.contains("example"), "{all}");
}
