//! Every sample event is one that Lambda may hand over, and does what its name says.

use std::fs;

use aws_lambda_events::sns::SnsEvent;

use crate::fakes::{Port, World, sample, samples, settings};

const PAUSES: [Port; 5] = [
    Port::Alarm,
    Port::Reading,
    Port::Control,
    Port::Switch,
    Port::Notify,
];

#[tokio::test(start_paused = true)]
async fn every_sample_event_does_what_its_name_says() {
    let mut seen = Vec::new();
    for entry in fs::read_dir(samples()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let event = sample(&name);
        let read: SnsEvent = serde_json::from_value(event.clone()).unwrap();
        let (outcomes, counts, calls): (&[&str], _, &[Port]) = match name.as_str() {
            "alarm-bounce" | "alarm-complaint" => (&["paused"], [1, 0, 0, 0, 0], &PAUSES),
            "ok" | "insufficient-data" | "composite" | "foreign-topic" => {
                (&["ignored"], [0, 0, 0, 1, 0], &[])
            }
            "account" => (
                &["account_over"],
                [0; 5],
                &[Port::Alarm, Port::Reading, Port::Notify],
            ),
            "forged" => (&["not_confirmed"], [0, 0, 1, 0, 0], &[Port::Alarm]),
            // Three messages that can't be read, and a neighbour.
            "broken" => (
                &["ignored", "ignored", "ignored", "paused"],
                [1, 0, 0, 3, 0],
                &PAUSES,
            ),
            other => panic!("{other} is in no test"),
        };
        assert_eq!(read.records.len(), outcomes.len(), "{name}");
        let world = World::default();
        let handled = world.run_as(&event, settings()).await;
        assert_eq!(handled.outcomes(), outcomes, "{name}");
        assert_eq!(handled.counts(), counts, "{name}");
        assert_eq!(world.calls(), calls, "{name}");
        seen.push(name);
    }
    seen.sort();
    let expected = [
        "account",
        "alarm-bounce",
        "alarm-complaint",
        "broken",
        "composite",
        "forged",
        "foreign-topic",
        "insufficient-data",
        "ok",
    ];
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(seen, expected);
}
