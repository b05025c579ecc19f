//! The stored format: every envelope that any version has written is read, and what this version
//! writes is among them. Files in `envelopes/` are added when a field is, and never changed.
#![allow(clippy::expect_used, reason = "a test that expects in vain has failed")]

use std::{fs, path::Path};

use sendslot_domain::{Cell, Lane, Moment};
use sendslot_mail::{Content, Envelope, EnvelopeError, SendRequest};
use serde_json::Value;

fn stored(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/envelopes")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn read(name: &str) -> Envelope {
    Envelope::from_json(&stored(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn what_is_written_reads_as_what_was_stored() {
    for name in [
        "v1-simple.json",
        "v1-template.json",
        "v1-raw.json",
        "v1-copy.json",
    ] {
        let written = read(name).to_json().expect("JSON");
        assert_eq!(json(&written), json(&stored(name)), "{name}");
    }
}

#[test]
fn every_field_is_read() {
    let envelope = read("v1-simple.json");
    assert_eq!(
        (envelope.send_id.as_str(), envelope.tenant.as_str()),
        ("order-1", "acme")
    );
    assert_eq!(
        (envelope.lane, envelope.slot),
        (Lane::Priority, Moment(1_796_059_801_234))
    );
    assert_eq!(
        envelope.cells,
        [(Cell(1_796_059_800), 1), (Cell(1_796_059_801), 2)]
    );
    assert_eq!(
        (envelope.attempts, envelope.first_seen),
        (2, Moment(1_796_059_799_750))
    );
    assert_eq!(envelope.expires_at, Some(Moment(1_796_063_400_000)));
    let mail = &envelope.mail;
    assert_eq!(
        (mail.cost(), mail.reply_to.len(), mail.tags.len()),
        (3, 1, 1)
    );
    assert_eq!(
        envelope.fingerprint,
        mail.fingerprint().expect("a fingerprint")
    );
    let Content::Simple(simple) = &mail.content else {
        panic!("not simple")
    };
    assert_eq!(
        (simple.subject.as_str(), simple.headers.len()),
        ("Hello", 1)
    );
}

#[test]
fn a_reader_ignores_what_a_later_version_adds() {
    let later = read("v1-from-a-later-version.json");
    let now = read("v1-raw.json");
    assert_eq!(
        json(&later.to_json().expect("JSON")),
        json(&now.to_json().expect("JSON"))
    );
}

#[test]
fn fields_that_need_not_be_there_have_defaults() {
    let least = read("v1-least.json");
    assert_eq!((least.attempts, least.expires_at), (0, None));
    assert_eq!((least.holds, least.suspect_since), (0, None));
    assert_eq!(
        (least.uncertain, least.void, least.resend),
        (false, None, false)
    );
    assert_eq!(least.mail.cost(), 1);
}

/// The version before knows none of what a copy carries, and reads the rest.
#[test]
fn what_copies_carry_is_all_that_this_version_has_added() {
    let (copy, before) = (json(&stored("v1-copy.json")), json(&stored("v1-raw.json")));
    let (copy, before) = (
        copy.as_object().expect("an object"),
        before.as_object().expect("an object"),
    );
    let added: Vec<_> = copy
        .keys()
        .filter(|key| !before.contains_key(*key))
        .collect();
    assert_eq!(
        added,
        ["holds", "resend", "suspect_since_ms", "uncertain", "void"]
    );
    for (key, value) in before {
        assert_eq!(copy.get(key), Some(value), "{key}");
    }
}

#[test]
fn another_version_is_named_and_damage_is_located_without_its_content() {
    let other = stored("v1-raw.json").replacen("\"v\": 1", "\"v\": 2", 1);
    let error = Envelope::from_json(&other).expect_err("version 2");
    assert!(matches!(error, EnvelopeError::Version(2)), "{error}");
    assert!(
        error
            .to_string()
            .contains("version 2, this function reads version 1"),
        "{error}"
    );
    for damaged in [
        stored("v1-raw.json").replace("\"lane\": \"bulk\"", "\"lane\": \"bob@example.com\""),
        stored("v1-raw.json").replace("\"send_id\"", "\"sent_id\""),
        stored("v1-raw.json")[..80].to_owned(),
        "{}".to_owned(),
        String::new(),
    ] {
        let error = Envelope::from_json(&damaged).expect_err(&damaged);
        assert!(matches!(error, EnvelopeError::Malformed { .. }), "{error}");
        assert!(!error.to_string().contains("bob"), "{error}");
    }
}

#[test]
fn characters_that_sqs_refuses_travel_as_escapes() {
    let text = r#"{"send_id":"m","tenant":"acme","from":"a@x.org","to":["b@x.org"],
        "content":{"simple":{"subject":"s","text":"\uffff\ufffe\u0000"}}}"#;
    let request = SendRequest::parse(text, Moment(0)).expect("a request");
    let body = request
        .into_envelope(Lane::Bulk, Moment(0), Vec::new(), Moment(0))
        .to_json()
        .expect("JSON");
    assert!(!body.contains(['\u{fffe}', '\u{ffff}', '\0']));
    let back = Envelope::from_json(&body).expect("an envelope");
    let Content::Simple(simple) = back.mail.content else {
        panic!("not simple")
    };
    assert_eq!(simple.text.as_deref(), Some("\u{ffff}\u{fffe}\0"));
}
