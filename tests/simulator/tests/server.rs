//! The simulator as its clients see it, over HTTP.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use support::{PATIENCE, Server, mail};

/// A file that no other test uses, in Cargo's folder for it.
fn record_file(test: &str) -> PathBuf {
    let name = format!("{test}-{}.jsonl", std::process::id());
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn lines(path: &PathBuf) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "a torn line");
    let lines = text.lines();
    lines.map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn unix_ms() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs_f64()
        * 1000.0
}

#[test]
fn a_mail_is_accepted_and_recorded_at_once() {
    let path = record_file("accepted");
    let server = Server::start(&[
        "--record",
        path.to_str().unwrap(),
        "--configuration-set",
        "acme-set",
    ]);
    let mut client = server.connect();
    let mut request = mail(3);
    request["ConfigurationSetName"] = json!("acme-set");
    let before = unix_ms();
    let answer = client.send(&request);
    let after = unix_ms();

    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(answer.header("x-amzn-requestid").is_some());
    let id = answer.json()["MessageId"].clone();
    assert!(id.is_string());

    let written = lines(&path);
    assert_eq!(written, client.record());
    let at = written[0]["at_ms"].as_f64().unwrap();
    assert!(
        (before - 1.0..=after + 1.0).contains(&at),
        "{before} {at} {after}"
    );
    let mut expected = json!({
        "recipients": 3, "outcome": "accepted", "send_id": "order-1",
        "tenant": "acme", "lane": "bulk", "slot_ms": 1_790_000_000_000_u64,
        "grant_ms": 1_790_000_000_001_u64, "configuration_set": "acme-set",
    });
    expected["at_ms"] = json!(at);
    expected["message_id"] = id;
    assert_eq!(written, [expected]);

    let cleared = client.request("DELETE", "/_simulator/record", "");
    assert_eq!(cleared.status, 204);
    assert_eq!(client.record(), Vec::<Value>::new());
    assert_eq!(lines(&path), Vec::<Value>::new());
    client.send(&mail(1));
    assert_eq!(lines(&path).len(), 1);
    fs::remove_file(&path).unwrap();
}

#[test]
fn the_record_holds_nothing_personal() {
    let path = record_file("personal");
    let server = Server::start(&["--record", path.to_str().unwrap()]);
    let mut client = server.connect();
    client.send(&mail(51));
    let mut request = mail(1);
    request["ConfigurationSetName"] = json!("someone@example.com");
    request["EmailTags"] = json!([{"Name": "tenant", "Value": "someone@example.com"}]);
    client.send(&request);
    let body = request.to_string();
    client.request("POST", "/v2/email/outbound-emails", &body[..body.len() - 1]);

    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 3);
    for personal in ["someone", "example.com", "a subject", "a text"] {
        assert!(!text.contains(personal), "{personal} in {text}");
    }
    fs::remove_file(&path).unwrap();
}

#[test]
fn errors_have_the_shape_of_aws() {
    // The first mail is above the rate: it goes, and leaves hours of debt.
    let server = Server::start(&[
        "--rate",
        "0.0001",
        "--daily",
        "3",
        "--configuration-set",
        "paused",
    ]);
    let mut client = server.connect();
    let off = json!({"SendingEnabled": false}).to_string();
    let paused = client.request("PUT", "/v2/email/configuration-sets/paused/sending", &off);
    assert_eq!((paused.status, paused.json()), (200, json!({})));

    let malformed = client.request("POST", "/v2/email/outbound-emails", "{");
    assert_eq!(malformed.error(), (400, "SerializationException"));
    assert_eq!(client.send(&mail(0)).error(), (400, "BadRequestException"));
    assert_eq!(client.send(&mail(51)).error(), (400, "BadRequestException"));
    let in_set = |name: &str| {
        let mut request = mail(1);
        request["ConfigurationSetName"] = json!(name);
        request
    };
    assert_eq!(
        client.send(&in_set("nobody")).error(),
        (404, "NotFoundException")
    );
    assert_eq!(
        client.send(&in_set("paused")).error(),
        (400, "SendingPausedException")
    );

    let daily = client.send(&mail(4));
    assert_eq!(daily.error(), (429, "TooManyRequestsException"));
    assert_eq!(daily.json()["message"], "Daily message quota exceeded");

    assert_eq!(
        client.send(&mail(2)).status,
        200,
        "refusals took no allowance"
    );
    let rate = client.send(&mail(1));
    assert_eq!(rate.error(), (429, "TooManyRequestsException"));
    assert_eq!(rate.json()["message"], "Maximum sending rate exceeded.");

    client.request("PUT", "/v2/email/account/sending", &off);
    assert_eq!(
        client.send(&mail(1)).error(),
        (400, "SendingPausedException")
    );
    client.settings(&json!({"enforcement": "SHUTDOWN"}));
    assert_eq!(
        client.send(&mail(1)).error(),
        (400, "AccountSuspendedException")
    );

    let unknown = client.request("GET", "/v2/email/identities", "");
    assert_eq!(unknown.error(), (404, "UnknownOperationException"));
    let method = client.request("DELETE", "/v2/email/account", "");
    assert_eq!(method.error(), (404, "UnknownOperationException"));

    let outcomes: Vec<_> = client
        .record()
        .iter()
        .map(|line| line["outcome"].clone())
        .collect();
    assert_eq!(
        outcomes,
        [
            "invalid",
            "invalid",
            "invalid",
            "unknown_set",
            "set_paused",
            "over_quota",
            "accepted",
            "throttled",
            "account_paused",
            "account_suspended",
        ]
    );
}

#[test]
fn configuration_sets_live_through_the_api() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let sets = "/v2/email/configuration-sets";
    for name in ["b", "a"] {
        let body = json!({"ConfigurationSetName": name, "Tags": []}).to_string();
        assert_eq!(client.request("POST", sets, &body).status, 200);
        let again = client.request("POST", sets, &body);
        assert_eq!(again.error(), (400, "AlreadyExistsException"));
    }
    // The Rust SDK leaves a false out.
    let body = json!({"ConfigurationSetName": "off", "SendingOptions": {}}).to_string();
    assert_eq!(client.request("POST", sets, &body).status, 200);

    let all = json!({"ConfigurationSets": ["a", "b", "off"]});
    assert_eq!(client.request("GET", sets, "").json(), all);
    let listed = client.request("POST", "/v2/email/list-configuration-sets", "{}");
    assert_eq!(listed.json(), all);

    let mut sending = |name: &str| {
        let answer = client.request("GET", &format!("{sets}/{name}"), "").json();
        assert_eq!(answer["ConfigurationSetName"], name);
        answer["SendingOptions"]["SendingEnabled"]
            .as_bool()
            .unwrap()
    };
    assert!(sending("a"));
    assert!(!sending("off"));

    assert_eq!(
        client.request("DELETE", &format!("{sets}/a"), "").status,
        200
    );
    for (method, path) in [("GET", "a"), ("DELETE", "a"), ("PUT", "a/sending")] {
        let gone = client.request(method, &format!("{sets}/{path}"), "{}");
        assert_eq!(gone.error(), (404, "NotFoundException"), "{method} {path}");
    }
}

#[test]
fn get_account_tells_the_settings_and_what_was_sent() {
    let server = Server::start(&[
        "--rate",
        "11.2",
        "--daily",
        "-1",
        "--production-access",
        "false",
    ]);
    let mut client = server.connect();
    client.send(&mail(5));
    let mut simulated = mail(0);
    simulated["Destination"]["ToAddresses"] = json!(["success@simulator.amazonses.com"]);
    assert_eq!(client.send(&simulated).status, 200);
    let account = client.request("GET", "/v2/email/account", "").json();
    assert_eq!(
        account["SendQuota"],
        json!({"MaxSendRate": 11.2, "Max24HourSend": -1, "SentLast24Hours": 5})
    );
    assert_eq!(account["ProductionAccessEnabled"], false);
    assert_eq!(account["SendingEnabled"], true);
    assert_eq!(account["EnforcementStatus"], "HEALTHY");
}

#[test]
fn settings_change_in_part_or_not_at_all() {
    let server = Server::start(&["--rate", "7"]);
    let mut client = server.connect();
    let before = client.request("GET", "/_simulator/settings", "").json();
    assert_eq!(before["rate"], 7.0);

    let changed = client.settings(&json!({"daily": 9, "model": "window"}));
    assert_eq!(changed.status, 200);
    let mut expected = before;
    expected["daily"] = json!(9);
    expected["model"] = json!("window");
    assert_eq!(changed.json(), expected);

    for (wrong, message) in [
        (r#"{"daily": 1, "rate": -1}"#, "rate: expected"),
        (r#"{"speed": 1}"#, "unknown setting"),
        ("[]", "must be a JSON object"),
        ("{", "not JSON"),
    ] {
        let refused = client.request("PUT", "/_simulator/settings", wrong);
        assert_eq!(refused.status, 400);
        let text = refused.json()["message"].clone();
        assert!(text.as_str().unwrap().contains(message), "{wrong}: {text}");
    }
    assert_eq!(
        client.request("GET", "/_simulator/settings", "").json(),
        expected
    );
}

/// Sends from many connections as fast as they can, in both models; the record alone must show
/// that the limit held, and that it let through what it should.
#[test]
fn the_limit_holds_under_many_connections() {
    const RATE: usize = 50;
    const LASTED: Duration = Duration::from_millis(2500);
    for model in ["bucket", "window"] {
        let server = Server::start(&["--model", model, "--rate", "50"]);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut client = server.connect();
                    let end = Instant::now() + LASTED;
                    while Instant::now() < end {
                        client.send(&mail(1));
                        thread::sleep(Duration::from_millis(5));
                    }
                });
            }
        });
        let record = server.connect().record();
        let times: Vec<f64> = record
            .iter()
            .map(|line| line["at_ms"].as_f64().unwrap())
            .collect();
        assert!(times.is_sorted(), "the record is in order of arrival");
        let accepted = record.iter().filter(|line| line["outcome"] == "accepted");
        let ids: HashSet<_> = accepted
            .clone()
            .map(|line| line["message_id"].to_string())
            .collect();
        let sent: Vec<f64> = accepted
            .map(|line| line["at_ms"].as_f64().unwrap())
            .collect();
        assert_eq!(ids.len(), sent.len(), "message ids are unique");
        assert!(record.len() > sent.len(), "some were throttled");

        assert!(sent.len() > 2 * RATE, "{model}: only {} went", sent.len());

        let busiest = (0..sent.len())
            .map(|first| sent[first..].partition_point(|&at| at < sent[first] + 1000.0))
            .max();
        // A full bucket goes at once, and as much again while it refills.
        let allowed = if model == "bucket" { 2 * RATE } else { RATE };
        assert!(
            busiest.unwrap() <= allowed,
            "{model}: {busiest:?} in a second"
        );
    }
}

#[test]
fn an_arrival_is_before_its_latency() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.settings(&json!({"latency_median_ms": 1000, "latency_p99_ms": 1000}));
    let before = unix_ms();
    assert_eq!(client.send(&mail(1)).status, 200);
    let took = unix_ms() - before;
    let at = client.record()[0]["at_ms"].as_f64().unwrap();
    assert!(took >= 1000.0, "answered after {took} ms");
    assert!(
        at < before + 900.0,
        "arrived {} ms after it was sent",
        at - before
    );
}

#[test]
fn stopping_finishes_what_is_under_way() {
    let path = record_file("stopping");
    let server = Server::start(&["--record", path.to_str().unwrap()]);
    let mut client = server.connect();
    client.settings(&json!({"latency_median_ms": 1000, "latency_p99_ms": 1000}));
    let _idle = server.connect();
    client
        .write("POST", "/v2/email/outbound-emails", &mail(1).to_string())
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while lines(&path).is_empty() {
        assert!(Instant::now() < deadline, "never arrived");
        thread::sleep(Duration::from_millis(5));
    }
    let told = Instant::now();
    assert!(server.terminate().success());
    assert!(
        told.elapsed() < Duration::from_millis(2500),
        "idle connections held it up"
    );
    assert_eq!(client.read().unwrap().status, 200);
    assert_eq!(lines(&path).len(), 1);
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_start_that_fails_says_why() {
    let cases = [
        (vec!["--rate", "0"], "rate: expected"),
        (
            vec!["--record", "/nowhere/record.jsonl"],
            "failed to open record /nowhere/record.jsonl",
        ),
        (
            vec!["--listen", "127.0.0.1:x"],
            "failed to listen on 127.0.0.1:x",
        ),
        (
            vec!["--configuration-set", "a b"],
            "configuration set \"a b\"",
        ),
    ];
    for (flags, expected) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_ses-simulator"))
            .args(&flags)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{flags:?}");
        assert!(
            text.starts_with("ses-simulator: ") && text.contains(expected),
            "{flags:?}: {text}"
        );
    }
}
