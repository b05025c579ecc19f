//! Which requests are taken, and why the others are refused.
#![allow(clippy::expect_used, reason = "a test that expects in vain has failed")]

use base64::{Engine, prelude::BASE64_STANDARD};
use proptest::prelude::*;
use sendslot_domain::{Lane, Moment};
use sendslot_mail::{Content, Refusal, SCHEMA, SendRequest, request};
use serde_json::{Value, json};

/// 2026-11-30 17:30 UTC.
const NOW: Moment = Moment(1_796_059_800_000);

fn simple() -> Value {
    json!({
        "send_id": "order-1",
        "tenant": "acme",
        "from": "Shop <shop@example.com>",
        "to": ["bob@example.com"],
        "content": { "simple": { "subject": "Hello", "text": "Text." } },
    })
}

/// The request above with the value at a JSON pointer set, or removed when it is null.
fn with(pointer: &str, value: Value) -> String {
    let mut request = simple();
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let parent = request
        .pointer_mut(parent)
        .expect("a parent")
        .as_object_mut()
        .expect("an object");
    match value {
        Value::Null => parent.remove(key),
        value => parent.insert(key.to_owned(), value),
    };
    request.to_string()
}

fn refused(text: &str) -> Refusal {
    SendRequest::parse(text, NOW).expect_err(text)
}

/// Code and text of a refusal.
fn told(pointer: &str, value: Value) -> (&'static str, String) {
    let refusal = refused(&with(pointer, value));
    (refusal.code(), refusal.to_string())
}

fn addresses(count: usize) -> Value {
    (0..count).map(|n| format!("user{n}@example.com")).collect()
}

fn raw(message: &str) -> Value {
    json!({ "raw": { "data": BASE64_STANDARD.encode(message) } })
}

#[test]
fn takes_simple_template_and_raw_content() {
    let request = SendRequest::parse(&simple().to_string(), NOW).expect("simple");
    assert_eq!(
        (request.send_id.as_str(), request.tenant.as_str()),
        ("order-1", "acme")
    );
    assert_eq!(
        (request.lane, request.expires_at, request.mail.cost()),
        (None, None, 1)
    );

    let template = json!({ "template": { "name": "welcome", "data": { "n": 1 }, "headers": [
        { "name": "List-Unsubscribe", "value": "<https://example.com/u>" },
    ] } });
    let request = SendRequest::parse(&with("/content", template), NOW).expect("template");
    assert!(matches!(request.mail.content, Content::Template(_)));

    let mime = raw("From: a@example.com\r\nSubject: long\r\n line\r\n\r\nText.");
    let request = SendRequest::parse(&with("/content", mime), NOW).expect("raw");
    assert!(matches!(request.mail.content, Content::Raw(_)));
}

#[test]
fn template_data_stays_as_it_was_written() {
    let data = r#"{"b": 1.10, "id": 123456789012345678901234567890, "a": "\u00e9"}"#;
    let text = with(
        "/content",
        json!({ "template": { "name": "t", "data": 0 } }),
    );
    let text = text.replace("\"data\":0", &format!("\"data\":{data}"));
    let request = SendRequest::parse(&text, NOW).expect("a request");
    let envelope = request.into_envelope(Lane::Bulk, NOW, Vec::new(), NOW);
    assert!(envelope.to_json().expect("JSON").contains(data));
}

#[test]
fn recipients_are_counted_together() {
    assert!(SendRequest::parse(&with("/to", addresses(50)), NOW).is_ok());
    assert_eq!(
        told("/to", addresses(51)),
        (
            "too_many_recipients",
            "/to: 51 recipients in to, cc and bcc: split the mail, 50 are allowed".into(),
        )
    );
    assert_eq!(told("/bcc", addresses(50)).0, "too_many_recipients");
    assert_eq!(told("/to", json!([])).0, "no_recipients");
    assert_eq!(told("/to", Value::Null).0, "no_recipients");
}

#[test]
fn says_what_is_wrong_where_and_what_to_do() {
    let header = |name: &str, value: &str| json!({ "subject": "s", "text": "t", "headers": [{ "name": name, "value": value }] });
    let cases = [
        (
            "/send_id",
            Value::Null,
            "missing_field",
            "/send_id: missing",
        ),
        (
            "/send_id",
            json!("a b"),
            "bad_send_id",
            "/send_id: holds ' '",
        ),
        (
            "/send_id",
            json!("x".repeat(257)),
            "bad_send_id",
            "/send_id: 257 characters long",
        ),
        (
            "/send_id",
            json!(7),
            "bad_value",
            "/send_id: wrong type: give string",
        ),
        ("/tenant", json!(""), "bad_tenant", "/tenant: empty"),
        (
            "/tenant",
            json!("x".repeat(65)),
            "bad_tenant",
            "/tenant: 65 characters long",
        ),
        (
            "/lane",
            json!("express"),
            "unknown_lane",
            "/lane: unknown lane: use \"priority\"",
        ),
        (
            "/subject",
            json!("s"),
            "unknown_field",
            "/subject: unknown field",
        ),
        (
            "/bob@example.com",
            json!(1),
            "unknown_field",
            "/*: unknown field",
        ),
        ("/from", json!("shop"), "bad_address", "/from: no address"),
        ("/from", json!(""), "bad_value", "/from: too short"),
        (
            "/to",
            json!(["bob@example.com", "a@b.org\r\nBcc: c@d.org"]),
            "bad_address",
            "/to/1: holds a control",
        ),
        (
            "/to",
            json!("bob@example.com"),
            "bad_value",
            "/to: wrong type: give array",
        ),
        (
            "/reply_to",
            json!(["José <j@example.com>"]),
            "bad_address",
            "/reply_to/0: the display name is not ASCII",
        ),
        (
            "/expires_at",
            json!("tomorrow"),
            "bad_expiry",
            "/expires_at: no moment",
        ),
        (
            "/expires_at",
            json!("1960-01-01T00:00:00Z"),
            "expired",
            "/expires_at: past",
        ),
        (
            "/expires_at",
            json!("2026-11-30T18:30:00+01:00"),
            "expired",
            "/expires_at: past",
        ),
        (
            "/tags",
            json!({ "a b": "c" }),
            "bad_tag",
            "/tags: give an object",
        ),
        (
            "/tags",
            json!({ "a": "b c" }),
            "bad_tag",
            "/tags: give an object",
        ),
        (
            "/tags",
            json!({ "slot_ms": "1" }),
            "bad_tag",
            "/tags: send_id, tenant",
        ),
        (
            "/content",
            json!({}),
            "bad_content",
            "/content: give exactly one",
        ),
        (
            "/content",
            json!({ "raw": {}, "simple": {} }),
            "bad_content",
            "/content: give exactly one",
        ),
        (
            "/content/simple",
            json!({ "subject": "s" }),
            "bad_content",
            "/content/simple: no body",
        ),
        (
            "/content/simple",
            json!({ "text": "t" }),
            "missing_field",
            "/content/simple/subject: missing",
        ),
        (
            "/content",
            json!({ "template": { "name": "t", "data": [] } }),
            "bad_value",
            "/content/template/data: wrong type: give an object",
        ),
        (
            "/content/simple",
            header("Bcc", "x@example.com"),
            "bad_header",
            "/content/simple/headers/0/name: this header is set",
        ),
        (
            "/content/simple",
            header("x-ses-tenant", "other"),
            "bad_header",
            "/content/simple/headers/0/name: this header is set",
        ),
        (
            "/content/simple",
            header("DKIM-Signature", "v=1"),
            "bad_header",
            "/content/simple/headers/0/name: this header is set",
        ),
        (
            "/content/simple",
            header("X:Y", "z"),
            "bad_header",
            "/content/simple/headers/0/name: no header name",
        ),
        (
            "/content/simple",
            header(&"x".repeat(127), "z"),
            "bad_header",
            "/content/simple/headers/0/name: no header name",
        ),
        (
            "/content/simple",
            header("X", "a\nBcc: b"),
            "bad_header",
            "/content/simple/headers/0/value: no header value",
        ),
        (
            "/content/simple",
            header("X", &"z".repeat(871)),
            "bad_header",
            "/content/simple/headers/0/value: no header value",
        ),
        (
            "/content",
            json!({ "raw": { "data": "a b" } }),
            "bad_content",
            "/content/raw/data: no base64",
        ),
        (
            "/content",
            raw("no header"),
            "bad_content",
            "/content/raw/data: no MIME message",
        ),
        (
            "/content",
            raw("\r\nText."),
            "bad_content",
            "/content/raw/data: no MIME message",
        ),
        (
            "/content",
            raw(" folded: first\n\nText."),
            "bad_content",
            "/content/raw/data: no MIME message",
        ),
        (
            "/content",
            raw("From: a@b.org\nx-Ses-Configuration-Set: theirs\n\n"),
            "bad_content",
            "/content/raw/data: an X-SES- header",
        ),
    ];
    for (pointer, value, code, text) in cases {
        let (found, told) = told(pointer, value.clone());
        assert_eq!(found, code, "{pointer} {value}: {told}");
        assert!(told.starts_with(text), "{pointer} {value}: {told}");
    }
}

#[test]
fn the_text_itself_can_be_wrong() {
    assert_eq!(refused("").code(), "malformed_json");
    assert_eq!(refused("{\"send_id\": ").code(), "malformed_json");
    assert_eq!(
        refused("[]").to_string(),
        "the request: wrong type: give an object"
    );
    let twice = simple()
        .to_string()
        .replace("\"text\":", "\"text\":\"one\",\"text\":");
    assert_eq!(
        refused(&twice).to_string(),
        "/content/simple/text: the key is there twice: give it once"
    );
}

#[test]
fn what_fits_is_measured_with_the_envelope() {
    let of = |bytes: usize| with("/content/simple/text", "x".repeat(bytes).into());
    let overhead = of(0).len();
    // Above what a queue takes, and above what it takes with the envelope.
    assert_eq!(
        refused(&of(request::MAX_BYTES - overhead + 1)).code(),
        "too_large"
    );
    let largest = (0..2000).map(|less| request::MAX_BYTES - less);
    let largest = largest
        .map(of)
        .find_map(|text| SendRequest::parse(&text, NOW).ok());
    let mut envelope = largest.expect("one that fits").into_envelope(
        Lane::Priority,
        Moment(9_999_999_999_999),
        vec![(sendslot_domain::Cell(9_999_999_999), 1)],
        Moment(9_999_999_999_999),
    );
    // With all that its copies may ever carry it just fits.
    (envelope.attempts, envelope.holds) = (u32::MAX, u32::MAX);
    (envelope.uncertain, envelope.resend) = (true, true);
    envelope.suspect_since = Some(Moment(9_999_999_999_999));
    let owner = "01234567-89ab-cdef-0123-456789abcdef";
    envelope.void = Some([owner; sendslot_mail::Envelope::MOST_VOID].join(","));
    assert_eq!(envelope.to_json().expect("JSON").len(), request::MAX_BYTES);
}

#[test]
fn the_queue_decides_the_lane() {
    let asking = |lane: Value| SendRequest::parse(&with("/lane", lane), NOW).expect("a request");
    assert_eq!(asking(Value::Null).lane_on(None), Ok(Lane::Bulk));
    assert_eq!(
        asking(Value::Null).lane_on(Some(Lane::Priority)),
        Ok(Lane::Priority)
    );
    assert_eq!(asking("priority".into()).lane_on(None), Ok(Lane::Priority));
    assert_eq!(
        asking("bulk".into()).lane_on(Some(Lane::Bulk)),
        Ok(Lane::Bulk)
    );
    let wrong = asking("priority".into())
        .lane_on(Some(Lane::Bulk))
        .expect_err("another queue");
    assert_eq!(wrong.code(), "wrong_lane");
}

#[test]
fn a_send_id_is_found_in_what_is_refused() {
    let found = request::send_id_of(r#"{"to": 3, "send_id": "order-1", "x": []}"#);
    assert_eq!(found.expect("an id").as_str(), "order-1");
    assert_eq!(
        request::send_id_of(r#"{"send_id": "bob@example.com"}"#),
        None
    );
    assert_eq!(request::send_id_of("{"), None);
}

#[test]
fn the_schema_is_valid_and_alone_takes_what_we_take() {
    let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
    jsonschema::meta::validate(&schema).expect("a valid schema");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    assert!(validator.is_valid(&simple()));
}

/// Words that mark what a producer wrote.
const PERSONAL: &str = "zqpersonalqz";

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(Value::from(PERSONAL)),
        Just(Value::from(format!("{PERSONAL} <{PERSONAL}@example.com>"))),
        Just(Value::from(format!("{PERSONAL}@@example.com"))),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let key = prop_oneof![
            Just("name".to_owned()),
            Just("data".to_owned()),
            Just("headers".to_owned()),
            Just(format!("{PERSONAL}@example.com")),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    /// Whatever is in a request, no refusal repeats it.
    #[test]
    fn refusals_repeat_nothing(value in any_json(), at in 0_usize..9) {
        let pointer = [
            "/send_id", "/tenant", "/lane", "/from", "/to", "/tags", "/content", "/expires_at", "/content/template",
        ][at];
        if let Err(refusal) = SendRequest::parse(&with(pointer, value), NOW) {
            let told = format!("{} {refusal}", refusal.code());
            prop_assert!(!told.contains(PERSONAL), "{told}");
        }
    }

    #[test]
    fn no_text_panics(text in ".*") {
        let _refused = SendRequest::parse(&text, NOW);
    }
}
