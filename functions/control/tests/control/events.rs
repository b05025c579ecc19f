//! Every sample event is read and run.

use std::{collections::BTreeMap, fs, path::Path};

use sendslot_domain::Lane;
use sendslot_runtime::{
    control::{
        Answer, Cancelled, Found, Paused, Redriven, Refreshed, Released, Replayed, Request,
        Resumed, Status, Suppressed,
    },
    parking::Reason,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    fakes::{envelope, key_of},
    rig::{Rig, account},
};

/// Reads it as a caller would.
fn read<T: DeserializeOwned>(answer: &Value) -> T {
    Answer::parse(answer.to_string().as_bytes()).unwrap_or_else(|failure| panic!("{failure}"))
}

#[tokio::test]
async fn every_sample_event_does_what_its_name_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events/control");
    let mut seen = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("the folder of events") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let event = fs::read_to_string(&path).expect("text");
        let request = Request::parse(&event).unwrap_or_else(|error| panic!("{name}: {error}"));
        let action = name.split('-').next().unwrap_or_default();
        assert_eq!(request.action(), action);
        // What a caller in this workspace writes is read back the same.
        let written = serde_json::to_string(&request).unwrap();
        assert_eq!(Request::parse(&written), Ok(request.clone()));

        let mut rig = Rig::new(&[("SENDSLOT_TENANTS", "tenant-1=tenant-1-set")]).await;
        let parked = key_of("tenant-1", "m", Reason::Uncertain, Lane::Bulk, 5_000);
        rig.bucket.park(&parked, &envelope(&parked));
        rig.refresh(json!({ "account": account(1.0, 200.0, 0), "final": true }))
            .await;
        let (answer, _) = rig.handle(&event).await;
        let told = match action {
            "refresh" => {
                let refreshed: Refreshed = read(&answer);
                let budget = refreshed.budget.expect("a budget");
                format!(
                    "{} {:?} {}",
                    budget.limit, budget.daily_quota, budget.changed
                )
            }
            "pause" => {
                let paused: Paused = read(&answer);
                format!("{:?} {}", paused.tenants, paused.reason)
            }
            "resume" => {
                let resumed: Resumed = read(&answer);
                format!("{} {}", resumed.was_paused, resumed.rate)
            }
            "replay" => {
                let replayed: Replayed = read(&answer);
                format!("{} {}", replayed.tenants.len(), replayed.oldest_seconds)
            }
            "release" => {
                let released: Released = read(&answer);
                format!("{} {}", released.released, released.left)
            }
            "suppress" => {
                let suppressed: Suppressed = read(&answer);
                format!("{} {:?}", suppressed.new, suppressed.walk.is_some())
            }
            "status" => {
                let status: Status = read(&answer);
                assert!(status.redis.ok);
                format!("{}", status.budget.expect("a budget").effective_rate)
            }
            "find" => {
                let found: Found = read(&answer);
                format!("{} {}", found.send_id, found.state)
            }
            "cancel" => {
                let cancelled: Cancelled = read(&answer);
                format!("{} {}", cancelled.send_id, cancelled.was)
            }
            "redrive" => {
                let redriven: Redriven = read(&answer);
                format!("{} {}", redriven.redriven, redriven.done)
            }
            other => panic!("say here what events/control/{other}.json should come to"),
        };
        seen.insert(name, (request.caller().to_owned(), told));
    }
    let expected = [
        // 123 of SES's count aren't ours.
        ("refresh", ("quota-refresh", "14/s Some(49877) true")),
        (
            "pause",
            ("operator", "[\"tenant-1\"] complaints (operator)"),
        ),
        (
            "pause-set",
            (
                "auto-pause",
                "[\"tenant-1\"] bounce rate 0.061 (auto-pause)",
            ),
        ),
        (
            "pause-account",
            ("auto-pause", "[] complaint rate 0.002 (auto-pause)"),
        ),
        ("resume", ("operator", "false 0.5")),
        ("replay", ("schedule", "1 5")),
        ("release", ("operator", "1 false")),
        ("suppress", ("quota-refresh", "2 true")),
        ("status", ("operator", "0.9")),
        ("find", ("operator", "order-4711 unknown")),
        ("cancel", ("operator", "order-4711 unknown")),
        ("redrive", ("operator", "0 true")),
    ];
    let expected = expected
        .map(|(name, (caller, told))| (name.to_owned(), (caller.to_owned(), told.to_owned())));
    assert_eq!(seen, BTreeMap::from(expected));
}

#[test]
fn an_answer_of_another_version_is_read_or_refused_in_words() {
    let newer = json!({ "budget": { "limit": "14/s", "more": 1 }, "more": {} });
    let refreshed: Refreshed = read(&newer);
    assert_eq!(refreshed.budget.unwrap().limit, "14/s");
    let failed =
        Answer::<Refreshed>::parse(br#"{"error":{"code":"redis_unavailable","message":"gone"}}"#);
    assert_eq!(failed.unwrap_err().to_string(), "redis_unavailable: gone");
    // What the Lambda service says of a function that crashed is no answer.
    let crashed = Answer::<Refreshed>::parse(b"\"?\"");
    assert_eq!(crashed.unwrap_err().code, "bad_answer");
}
