//! Every sample event is read and run.

use std::{collections::BTreeMap, fs, path::Path};

use crate::rig::{self, Rig};
use sendslot_domain::Lane;
use serde_json::Value;

#[tokio::test]
async fn every_sample_event_runs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events/reserve");
    let mut seen = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("the folder of events") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_stem()
            .and_then(|name| name.to_str())
            .expect("a name")
            .to_owned();
        // The samples name the queues as a stack would; the lane is all that matters.
        let event = fs::read_to_string(&path).expect("text");
        let event = event.replace(":sendslot-bulk-intake", ":bulk-intake");
        let event = event.replace(":sendslot-priority-intake", ":priority-intake");
        let rig = Rig::new();
        let (answer, _) = rig
            .run(&event)
            .await
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let dead: Vec<_> = rig
            .on("bulk-intake-dlq")
            .iter()
            .filter_map(|message| rig::attribute(message, "SendslotReason"))
            .collect();
        let statuses: Vec<_> = answer["results"].as_array().into_iter().flatten().collect();
        let statuses = statuses
            .iter()
            .filter_map(|result| result["status"].as_str());
        let mut told: Vec<_> = statuses.map(str::to_owned).collect();
        told.extend(dead);
        if let Some(failures) = answer.get("batchItemFailures") {
            assert_eq!(failures, &Value::Array(Vec::new()), "{name}");
        }
        seen.insert(
            name,
            (Lane::ALL.map(|lane| rig.sent(lane).len()), told.join(" ")),
        );
    }
    // How many are sent with priority and in bulk, and what else is told: a new sample is added here.
    let expected = [
        ("batch", ([0, 3], "")),
        ("direct", ([1, 1], "booked booked refused")),
        (
            "invalid",
            (
                [0, 1],
                "malformed_json too_many_recipients unknown_lane wrong_lane bad_address expired",
            ),
        ),
        ("priority", ([1, 0], "")),
        ("slots-only", ([0, 0], "slot slot refused")),
        ("waiting", ([0, 1], "")),
    ];
    let expected = expected.map(|(name, (sent, told))| (name.to_owned(), (sent, told.to_owned())));
    assert_eq!(seen, BTreeMap::from(expected));
}
