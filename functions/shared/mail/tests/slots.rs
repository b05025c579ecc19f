//! Which slot requests are taken. What is said of the others: `functions/reserve/tests/reserve/slots.rs`.
#![allow(clippy::expect_used, reason = "a test that expects in vain has failed")]

use proptest::prelude::*;
use sendslot_domain::Lane;
use sendslot_mail::{SlotRequest, request::MAX_RECIPIENTS, slot::SCHEMA};
use serde_json::{Value, json};

#[test]
fn all_but_the_tenant_may_be_left_out() {
    let least = SlotRequest::parse(r#"{"tenant": "acme"}"#).expect("a request");
    assert_eq!(
        (least.tenant.as_str(), least.lane, least.recipients),
        ("acme", Lane::Bulk, 1)
    );
    assert_eq!(least.send_id, None);
    let most = json!({ "tenant": "acme", "lane": "priority", "recipients": 50, "send_id": "n-1" });
    let most = SlotRequest::parse(&most.to_string()).expect("a request");
    assert_eq!((most.lane, most.recipients), (Lane::Priority, 50));
    assert_eq!(most.send_id.expect("a label").as_str(), "n-1");
}

#[test]
fn the_schema_is_valid_and_says_what_we_take() {
    let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
    jsonschema::meta::validate(&schema).expect("a valid schema");
    let fields = &schema["properties"];
    assert_eq!(fields["recipients"]["maximum"], MAX_RECIPIENTS);
    // What is left out is as the schema says.
    let least = SlotRequest::parse(r#"{"tenant": "acme"}"#).expect("a request");
    assert_eq!(fields["recipients"]["default"], least.recipients);
    assert_eq!(fields["lane"]["default"], least.lane.as_str());
}

/// A word that marks what a caller wrote.
const PERSONAL: &str = "zqpersonalqz";

proptest! {
    #[test]
    fn what_is_taken_fits_the_schema_and_no_refusal_repeats_anything(
        tenant in prop_oneof![Just(json!("acme")), Just(json!(PERSONAL)), any::<bool>().prop_map(Value::from)],
        recipients in prop_oneof![(-9_i64..60).prop_map(Value::from), any::<f64>().prop_map(Value::from)],
        lane in prop_oneof![Just(json!("bulk")), Just(json!(PERSONAL)), Just(Value::Null)],
        key in prop_oneof![4 => Just("send_id".to_owned()), 1 => Just(format!("{PERSONAL}@example.com"))],
        label in prop_oneof![4 => Just("n-1".to_owned()), 1 => Just(format!("{PERSONAL}@example.com"))],
    ) {
        let request = json!({
            "tenant": tenant, "recipients": recipients, "lane": lane, key: label,
        });
        match SlotRequest::parse(&request.to_string()) {
            Ok(_) => {
                let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
                prop_assert!(jsonschema::is_valid(&schema, &request));
            }
            Err(refusal) => {
                let told = format!("{} {refusal}", refusal.code());
                prop_assert!(!told.contains(PERSONAL), "{told}");
            }
        }
    }

    #[test]
    fn no_text_panics(text in ".*") {
        let _refused = SlotRequest::parse(&text);
    }
}
