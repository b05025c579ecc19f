//! Every sample event is run, as `make invoke` would run it: against the clock of the day.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use sendslot_domain::Moment;

use crate::fakes::{TIME, World};

#[tokio::test(start_paused = true)]
async fn every_sample_event_does_what_its_name_says() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = Moment(u64::try_from(since.as_millis()).unwrap());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../events/send");
    let mut seen = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let event = serde_json::from_str(&fs::read_to_string(&path).unwrap());
        let event = event.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let handled = World::default().run(event, now, TIME).await;
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let counts = ["Sent", "Expired", "DeadLettered"].map(|count| handled.count(count));
        let expected = match name.as_str() {
            "batch" => [3, 0, 0],
            "priority" => [1, 0, 0],
            "bad-envelope" => [1, 0, 1],
            "expired" => [0, 2, 0],
            other => panic!("say here what events/send/{other}.json should come to"),
        };
        assert_eq!(counts, expected, "{name}");
        assert_eq!(handled.failed, [""; 0], "{name}");
        seen.push(name);
    }
    seen.sort();
    assert_eq!(seen, ["bad-envelope", "batch", "expired", "priority"]);
}
