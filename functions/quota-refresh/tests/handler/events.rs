//! Every sample event is read and run.

use std::fs;

use quota_refresh::{Event, event::RequestType};
use serde_json::{Value, json};

use crate::fakes::{Port, URL, World};

#[tokio::test(start_paused = true)]
async fn every_sample_event_does_what_its_name_says() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../events/quota-refresh");
    let mut seen = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let mut event: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let kind = match Event::read(&event).unwrap() {
            Event::Refresh { trigger } => trigger,
            Event::Custom(custom) => {
                assert!(
                    custom.stack.starts_with("arn:aws:cloudformation:"),
                    "{name}"
                );
                assert!(!custom.request.is_empty() && !custom.logical_id.is_empty());
                assert_eq!(custom.physical_id.is_none(), name == "create", "{name}");
                match custom.kind {
                    RequestType::Create => "create",
                    RequestType::Update => "update",
                    RequestType::Delete => "delete",
                    RequestType::Unknown(word) => panic!("{name}: {word:?}"),
                }
            }
        };
        assert_eq!(kind, name);
        let answers = event.get("ResponseURL").is_some();
        if answers {
            event["ResponseURL"] = URL.into();
        }
        let world = World::default();
        let handled = world.run(event).await;
        assert!(handled.answer.is_ok(), "{name}");
        let expected = (usize::from(name != "delete"), usize::from(answers));
        let calls = (world.calls(Port::Control), world.calls(Port::Respond));
        assert_eq!(calls, expected, "{name}");
        seen.push(name);
    }
    seen.sort();
    assert_eq!(seen, ["create", "delete", "manual", "schedule", "update"]);
}

#[test]
fn whatever_else_it_is_invoked_with_is_a_refresh_by_hand() {
    for event in [
        json!(null),
        json!([]),
        json!("x"),
        json!({ "trigger": 3 }),
        json!({ "source": "aws.events" }),
    ] {
        let manual = Event::Refresh { trigger: "manual" };
        assert_eq!(Event::read(&event), Ok(manual));
    }
}
