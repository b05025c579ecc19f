//! The events that the simulator publishes, received by a small EventBridge.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Client, PATIENCE, Server, mail};

/// One `PutEvents` as it arrived.
struct Put {
    head: String,
    entries: Vec<Value>,
}

/// An EventBridge that answers what its list says, in order, and then success. Null hangs up.
struct Bus {
    url: String,
    puts: Receiver<Put>,
}

impl Bus {
    fn start(answers: Vec<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, puts) = channel();
        thread::spawn(move || serve(&listener, &sender, answers));
        Self { url, puts }
    }

    /// The next so many events, in order of arrival.
    fn events(&self, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            let put = self.puts.recv_timeout(PATIENCE).unwrap();
            assert!((1..=10).contains(&put.entries.len()));
            events.extend(put.entries);
        }
        events
    }
}

/// One request per connection.
fn serve(listener: &TcpListener, puts: &Sender<Put>, answers: Vec<Value>) {
    let mut answers = answers.into_iter();
    while let Ok((mut stream, _)) = listener.accept() {
        let Some(put) = read(&stream) else { continue };
        let results = vec![json!({"EventId": "e"}); put.entries.len()];
        let success = json!({"FailedEntryCount": 0, "Entries": results});
        let answer = answers.next().unwrap_or(success);
        let _ = puts.send(put);
        if answer.is_null() {
            continue;
        }
        let body = answer.to_string();
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
    }
}

fn read(stream: &TcpStream) -> Option<Put> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_ascii_lowercase();
    let (_, length) = head.split_once("content-length: ")?;
    let mut body = vec![0; length.lines().next()?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let body: Value = serde_json::from_slice(&body).ok()?;
    let entries = body["Entries"].as_array()?.clone();
    Some(Put { head, entries })
}

fn start(bus: &Bus, flags: &[&str]) -> Server {
    let always = [
        "--configuration-set",
        "acme-set",
        "--events-endpoint",
        &bus.url,
    ];
    Server::start(&[&always, flags].concat())
}

fn mail_to(to: &str) -> Value {
    let mut request = mail(0);
    request["Destination"]["ToAddresses"] = json!([to]);
    request["ConfigurationSetName"] = json!("acme-set");
    request
}

fn detail(event: &Value) -> Value {
    serde_json::from_str(event["Detail"].as_str().unwrap()).unwrap()
}

/// Waits until no event waits; then what became of all.
fn settled(client: &mut Client) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let counts = client.request("GET", "/_simulator/events", "").json();
        if counts["waiting"] == 0 {
            return counts;
        }
        assert!(Instant::now() < deadline, "{counts}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_mail_publishes_in_the_form_of_ses() {
    let bus = Bus::start(Vec::new());
    let server = start(&bus, &[]);
    let mut client = server.connect();
    let id = client.send(&mail_to("someone@example.com")).json()["MessageId"].clone();

    let put = bus.puts.recv_timeout(PATIENCE).unwrap();
    assert!(put.head.starts_with("post / http/1.1\r\n"), "{}", put.head);
    assert!(put.head.contains("x-amz-target: awsevents.putevents\r\n"));
    assert!(
        put.head
            .contains("content-type: application/x-amz-json-1.1\r\n")
    );
    let [sent, delivered] = &put.entries[..] else {
        panic!("{:?}", put.entries)
    };
    let set = "arn:aws:ses:us-east-1:000000000000:configuration-set/acme-set";
    for (event, kind, name) in [
        (sent, "Email Sent", "Send"),
        (delivered, "Email Delivered", "Delivery"),
    ] {
        assert_eq!(event["Source"], "aws.ses");
        assert_eq!(event["DetailType"], kind);
        assert_eq!(event["Resources"], json!([set]));
        assert!(event["Time"].is_u64());
        assert_eq!(event.get("EventBusName"), None, "the default bus");
        let detail = detail(event);
        assert_eq!(detail["eventType"], name);
        let mail = &detail["mail"];
        assert_eq!(mail["messageId"], id);
        assert_eq!(mail["source"], "shop@example.com");
        assert_eq!(mail["destination"], json!(["someone@example.com"]));
        assert_eq!(mail["tags"]["ses:configuration-set"], json!(["acme-set"]));
        assert_eq!(mail["tags"]["send_id"], json!(["order-1"]));
        assert_eq!(mail["tags"]["tenant"], json!(["acme"]));
    }
    assert_eq!(detail(sent)["send"], json!({}));
    let recipients = detail(delivered)["delivery"]["recipients"].clone();
    assert_eq!(recipients, json!(["someone@example.com"]));
    let expected = json!({"waiting": 0, "published": 2, "lost": 0, "last_error": null});
    assert_eq!(settled(&mut client), expected);
}

#[test]
fn the_mailbox_simulator_decides_what_happens() {
    let bus = Bus::start(Vec::new());
    let server = start(&bus, &["--event-delay-ms", "0"]);
    let mut client = server.connect();
    for (name, expected) in [
        ("success", vec!["Send", "Delivery"]),
        ("bounce+x", vec!["Send", "Bounce"]),
        ("complaint", vec!["Send", "Delivery", "Complaint"]),
        ("reject", vec!["Reject"]),
    ] {
        client.send(&mail_to(&format!("{name}@simulator.amazonses.com")));
        let events = bus.events(expected.len());
        let types: Vec<_> = events
            .iter()
            .map(|e| detail(e)["eventType"].clone())
            .collect();
        assert_eq!(types, expected, "{name}");
    }
}

#[test]
fn events_are_published_twice_if_asked() {
    let bus = Bus::start(Vec::new());
    let flags = ["--events-twice", "true", "--event-spread-ms", "100"];
    let server = start(&bus, &flags);
    let mut client = server.connect();
    client.send(&mail_to("bounce@bounces.example"));
    let mut types: Vec<_> = bus
        .events(4)
        .iter()
        .map(|event| event["DetailType"].as_str().unwrap().to_owned())
        .collect();
    types.sort();
    let expected = ["Email Bounced", "Email Bounced", "Email Sent", "Email Sent"];
    assert_eq!(types, expected);
    assert_eq!(settled(&mut client)["published"], 4);
}

#[test]
fn what_is_not_accepted_or_names_no_set_publishes_nothing() {
    let bus = Bus::start(Vec::new());
    let server = start(&bus, &["--daily", "1", "--event-delay-ms", "0"]);
    let mut client = server.connect();
    client.faults(&json!([{"kind": "error_before", "count": 1}]));
    let request = mail_to("someone@example.com");
    assert_eq!(client.send(&request).status, 500);
    client.faults(&json!([{"kind": "error_after", "count": 1}]));
    assert_eq!(client.send(&request).status, 500);
    assert_eq!(client.send(&request).status, 429);
    client.settings(&json!({"daily": -1}));
    assert_eq!(client.send(&mail(1)).status, 200);

    let accepted = client.record()[1]["message_id"].clone();
    for event in bus.events(2) {
        assert_eq!(detail(&event)["mail"]["messageId"], accepted);
    }
    assert_eq!(settled(&mut client)["published"], 2);
}

#[test]
fn a_burst_goes_in_batches_and_no_send_waits_for_it() {
    // It takes connections, and reads nothing from them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let deaf = format!("http://{}", listener.local_addr().unwrap());
    let bus = Bus::start(Vec::new());
    let server = start(&bus, &["--rate", "1000", "--event-delay-ms", "200"]);
    let mut client = server.connect();
    let started = Instant::now();
    for _ in 0..40 {
        assert_eq!(client.send(&mail_to("someone@example.com")).status, 200);
    }
    let burst = started.elapsed();
    let events = bus.events(80);
    assert!(started.elapsed() >= Duration::from_millis(200), "delayed");
    let mut ids: Vec<_> = events
        .iter()
        .map(|event| detail(event)["mail"]["messageId"].to_string())
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 40);

    client.settings(&json!({"events_endpoint": deaf, "event_delay_ms": 0}));
    let started = Instant::now();
    for _ in 0..40 {
        assert_eq!(client.send(&mail_to("someone@example.com")).status, 200);
    }
    let allowed = burst + Duration::from_secs(2);
    assert!(started.elapsed() < allowed, "{:?}", started.elapsed());
    let told = Instant::now();
    assert!(server.terminate().success());
    assert!(
        told.elapsed() < Duration::from_secs(2),
        "{:?}",
        told.elapsed()
    );
}

#[test]
fn only_what_failed_is_tried_again() {
    let refused = json!({"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"});
    let partly = json!({"FailedEntryCount": 1, "Entries": [{"EventId": "e"}, refused]});
    let bus = Bus::start(vec![Value::Null, partly]);
    let server = start(&bus, &[]);
    let mut client = server.connect();
    client.send(&mail_to("someone@example.com"));
    let types = || {
        let put = bus.puts.recv_timeout(PATIENCE).unwrap();
        let entries = put.entries.into_iter();
        let types = entries.map(|entry| entry["DetailType"].clone());
        types.collect::<Vec<_>>()
    };
    assert_eq!(types(), ["Email Sent", "Email Delivered"]);
    assert_eq!(types(), ["Email Sent", "Email Delivered"]);
    assert_eq!(types(), ["Email Delivered"]);
    let counts = settled(&mut client);
    assert_eq!(
        (&counts["published"], &counts["lost"]),
        (&json!(2), &json!(0))
    );
    assert_eq!(counts["last_error"], "ThrottlingException: slow down");
}

#[test]
fn what_nobody_takes_is_lost_and_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let server = Server::start(&[
        "--configuration-set",
        "acme-set",
        "--events-endpoint",
        &nobody,
    ]);
    let mut client = server.connect();
    client.send(&mail_to("someone@example.com"));
    let counts = settled(&mut client);
    assert_eq!(
        (&counts["published"], &counts["lost"]),
        (&json!(0), &json!(2))
    );
    let error = counts["last_error"].as_str().unwrap();
    assert!(error.contains(&nobody), "{error}");
}
