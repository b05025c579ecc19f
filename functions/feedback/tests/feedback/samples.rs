//! Every sample event is run.

use std::{collections::BTreeSet, fs};

use crate::fakes::Rig;

#[tokio::test(start_paused = true)]
async fn every_sample_event_does_what_its_name_says() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../events/feedback");
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let event = serde_json::from_str(&fs::read_to_string(&path).unwrap());
        let event = event.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        // Where an event says so, the mail was sent, to one or two.
        let expected: &[(&str, u64)] = match name.as_str() {
            "send" => &[("Sent", 2)],
            "delivery" => &[("Delivered", 1), ("Sent", 2)],
            "bounce-permanent" => &[("Bounced", 1), ("Sent", 1)],
            "bounce-transient" => &[("BouncedTransient", 1), ("Sent", 1)],
            "bounce-suppressed" => &[("BouncedSuppressed", 2)],
            "complaint" => &[("Complained", 1), ("Sent", 2)],
            "reject" => &[("Rejected", 1)],
            "rendering-failure" => &[("RenderingFailed", 1)],
            "delivery-delay" => &[("Delayed", 1), ("Sent", 2)],
            "open" => &[],
            "unknown" => &[("Unknown", 2)],
            "foreign" => &[("Unknown", 3)],
            "broken" => &[("Unknown", 3), ("Sent", 2)],
            other => panic!("say here what events/feedback/{other}.json should come to"),
        };
        let handled = Rig::new().handle(event).await;
        for count in feedback::handler::COUNTS {
            let of = expected.iter().find(|(known, _)| *known == count);
            assert_eq!(
                handled.count(count),
                of.map_or(0, |of| of.1),
                "{name}: {count}"
            );
        }
        assert_eq!(handled.back, [""; 0], "{name}");
        seen.insert(name);
    }
    assert_eq!(seen.len(), 13, "{seen:?}");
}
