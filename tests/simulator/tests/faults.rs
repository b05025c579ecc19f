//! Faults on purpose, as clients see them and as the record has them.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Server, mail};

const PATH: &str = "/_simulator/faults";
const MS: Duration = Duration::from_millis(1);

/// One mail under this fault, from a connection that reads whatever comes until the server ends
/// it: the bytes, the error, the time it took; and its line in the record.
fn sent_under(rule: &Value) -> (Vec<u8>, Option<ErrorKind>, Duration, Value) {
    let server = Server::start(&["--rate", "1"]);
    let mut control = server.connect();
    assert_eq!(control.faults(&json!([rule])).status, 200);
    let mut client = server.connect();
    let started = Instant::now();
    client
        .write("POST", "/v2/email/outbound-emails", &mail(1).to_string())
        .unwrap();
    let (rest, error) = client.rest();
    let took = started.elapsed();
    let record = control.record();
    assert_eq!(record.len(), 1);

    // The only recipient per second goes to whoever is accepted first.
    control.request("DELETE", PATH, "");
    let next = control.send(&mail(1)).status;
    let accepted = record[0]["outcome"] == "accepted";
    assert_eq!(next, if accepted { 429 } else { 200 }, "{rule}");
    (rest, error, took, record[0].clone())
}

/// Nothing at all comes, not even a status line; then the connection ends as it should.
fn assert_silent(kind: &str, outcome: &str, end: Option<ErrorKind>, lasts: Duration) {
    let rule = json!({"kind": kind, "ms": 300});
    let (rest, error, took, line) = sent_under(&rule);
    assert_eq!(String::from_utf8_lossy(&rest), "", "{kind}");
    assert_eq!(error, end, "{kind}");
    assert!(
        took >= lasts && took < lasts + 1500 * MS,
        "{kind}: {took:?}"
    );
    assert_eq!(line["outcome"], outcome, "{kind}");
    assert_eq!(line["fault"], kind);
    assert_eq!(line["message_id"].is_string(), outcome == "accepted");
}

#[test]
fn a_reset_breaks_the_connection_without_an_answer() {
    let reset = Some(ErrorKind::ConnectionReset);
    assert_silent("reset_before", "failed", reset, Duration::ZERO);
    assert_silent("reset_after", "accepted", reset, Duration::ZERO);
}

#[test]
fn a_hang_ends_in_a_closed_connection() {
    assert_silent("hang_before", "failed", None, 300 * MS);
    assert_silent("hang_after", "accepted", None, 300 * MS);
}

#[test]
fn a_throttle_names_its_retry_after() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.faults(&json!([
        {"kind": "throttle", "count": 1, "retry_after_s": 7},
        {"kind": "throttle", "count": 1},
    ]));
    for expected in [Some("7"), None] {
        let answer = client.send(&mail(1));
        assert_eq!(answer.error(), (429, "TooManyRequestsException"));
        assert_eq!(answer.header("retry-after"), expected);
    }
    assert_eq!(client.send(&mail(1)).status, 200);
    let record = client.record();
    let line = |index: usize| (record[index]["outcome"].clone(), record[index].get("fault"));
    assert_eq!(line(0), (json!("throttled"), Some(&json!("throttle"))));
    assert_eq!(line(2), (json!("accepted"), None));
}

#[test]
fn an_error_is_a_500_whatever_was_accepted() {
    for (kind, outcome) in [("error_before", "failed"), ("error_after", "accepted")] {
        let server = Server::start(&[]);
        let mut client = server.connect();
        client.faults(&json!([{"kind": kind, "count": 1}]));
        assert_eq!(client.send(&mail(1)).error(), (500, "InternalFailure"));
        let sent = client.request("GET", "/v2/email/account", "").json();
        let counted = u8::from(outcome == "accepted");
        assert_eq!(sent["SendQuota"]["SentLast24Hours"], counted, "{kind}");
        assert_eq!(client.send(&mail(1)).status, 200);
        let line = &client.record()[0];
        assert_eq!(line["outcome"], outcome);
        assert_eq!(line["fault"], kind);
    }
}

#[test]
fn a_slow_answer_comes_late() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.faults(&json!([{"kind": "slow", "ms": 400}]));
    let started = Instant::now();
    let answer = client.send(&mail(1));
    assert!(started.elapsed() >= 400 * MS);
    let line = &client.record()[0];
    assert_eq!((answer.status, &line["fault"]), (200, &json!("slow")));
    assert_eq!(line["message_id"], answer.json()["MessageId"]);
}

#[test]
fn only_the_connection_that_is_hit_breaks() {
    let server = Server::start(&[]);
    let mut other = server.connect();
    other.faults(&json!([{"kind": "reset_before", "count": 1}]));
    let mut hit = server.connect();
    hit.write("POST", "/v2/email/outbound-emails", &mail(1).to_string())
        .unwrap();
    assert_eq!(hit.rest().1, Some(ErrorKind::ConnectionReset));
    assert_eq!(other.send(&mail(1)).status, 200);
    assert_eq!(server.connect().send(&mail(1)).status, 200);
}

#[test]
fn what_hangs_does_not_keep_the_server_from_stopping() {
    let server = Server::start(&[]);
    let mut control = server.connect();
    control.faults(&json!([{"kind": "hang_after", "ms": 3_600_000}]));
    let mut clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
    for client in &mut clients {
        client
            .write("POST", "/v2/email/outbound-emails", &mail(1).to_string())
            .unwrap();
    }
    while control.record().len() < clients.len() {
        std::thread::sleep(5 * MS);
    }
    let told = Instant::now();
    assert!(server.terminate().success());
    assert!(told.elapsed() < 4500 * MS, "{:?}", told.elapsed());
    for client in &mut clients {
        assert_eq!(client.rest().0, b"");
    }
}

#[test]
fn faults_are_put_shown_and_deleted() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let none = json!({"faults": []});
    assert_eq!(client.request("GET", PATH, "").json(), none);
    let put = client.faults(&json!([{"kind": "throttle"}]));
    let expected = json!({"faults": [
        {"kind": "throttle", "share": 1.0, "count": null, "ms": null, "retry_after_s": null},
    ]});
    assert_eq!((put.status, put.json()), (200, expected.clone()));

    for (wrong, message) in [
        (
            r#"{"faults": [{"kind": "slow"}]}"#,
            "faults[0].ms: expected",
        ),
        (
            r#"{"faults": [{"kind": "boom"}]}"#,
            "faults[0].kind: expected",
        ),
        (r#"{"faults": [], "lane": 1}"#, "unknown field"),
        ("[]", "must be a JSON object"),
        ("{", "not JSON"),
    ] {
        let refused = client.request("PUT", PATH, wrong);
        assert_eq!(refused.status, 400);
        let text = refused.json()["message"].clone();
        assert!(text.as_str().unwrap().contains(message), "{wrong}: {text}");
    }
    assert_eq!(client.request("GET", PATH, "").json(), expected);
    assert_eq!(client.request("DELETE", PATH, "").status, 204);
    assert_eq!(client.request("GET", PATH, "").json(), none);
    assert_eq!(client.send(&mail(1)).status, 200);
}

/// What the fault tests of others rely on besides faults: limits, sets and the account can be
/// changed while mail flows, and changed back.
#[test]
fn limits_sets_and_the_account_change_while_running() {
    let server = Server::start(&["--rate", "100", "--configuration-set", "acme-set"]);
    let mut client = server.connect();
    let mut request = mail(1);
    request["ConfigurationSetName"] = json!("acme-set");
    let switch = |on: bool| json!({ "SendingEnabled": on }).to_string();
    let set = "/v2/email/configuration-sets/acme-set/sending";
    let account = "/v2/email/account/sending";
    for path in [set, account] {
        assert_eq!(client.request("PUT", path, &switch(false)).status, 200);
        let refused = client.send(&request);
        assert_eq!(refused.error(), (400, "SendingPausedException"), "{path}");
        assert_eq!(client.request("PUT", path, &switch(true)).status, 200);
        assert_eq!(client.send(&request).status, 200, "{path}");
    }
    client.settings(&json!({"enforcement": "SHUTDOWN"}));
    let refused = client.send(&request);
    assert_eq!(refused.error(), (400, "AccountSuspendedException"));
    client.settings(&json!({"enforcement": "HEALTHY", "rate": 50, "daily": 2}));
    assert_eq!(client.send(&request).error().0, 429, "the day is used up");
    client.settings(&json!({"daily": -1, "rate": 100}));
    assert_eq!(client.send(&request).status, 200);
    let quota = client.request("GET", "/v2/email/account", "").json()["SendQuota"].clone();
    assert_eq!(quota["MaxSendRate"], 100.0);
}
