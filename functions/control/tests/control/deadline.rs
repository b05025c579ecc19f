//! What is done when time runs out.

use std::time::Duration;

use control::deadline::CLOSING;
use sendslot_domain::{Lane, Millis};
use sendslot_runtime::parking::Reason;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    fakes::{envelope, key_of, locked},
    release::Rig,
};

/// How long a call takes that never answers.
const HANGS: Duration = Duration::from_hours(24);
/// What an invocation has.
const TIME: Millis = Millis::from_secs(10);

/// Parks so many mails of acme's.
fn park(rig: &Rig, count: u64) {
    for n in 0..count {
        let id = format!("m{n:04}");
        let key = key_of("acme", &id, Reason::Paused, Lane::Bulk, 9_000 - n);
        rig.bucket.park(&key, &envelope(&key));
    }
}

fn rig(time: Millis) -> Rig {
    let mut rig = Rig::new();
    rig.time = time;
    rig
}

fn release(most: u64) -> Value {
    json!({ "tenant": "acme", "most": most })
}

#[tokio::test(start_paused = true)]
async fn with_its_end_near_a_release_takes_nothing_on() {
    let closing = Millis(u64::try_from(CLOSING.as_millis()).unwrap());
    let near = rig(closing);
    park(&near, 2);
    let told = near.ask(release(9)).await.unwrap();
    assert_eq!((told.released, told.left), (0, true));
    assert!(locked(&near.schedule.calls).is_empty());
    assert!(locked(&near.queues.calls).is_empty());
    assert_eq!(near.parked().len(), 2);

    let far = rig(Millis(closing.0 + 1));
    park(&far, 2);
    let told = far.ask(release(9)).await.unwrap();
    assert_eq!((told.released, told.left), (2, false));
}

#[tokio::test(start_paused = true)]
async fn a_release_ends_in_time_whatever_hangs() {
    for (what, expected) in [
        ("look", None),
        ("list", None),
        ("fetch", Some((0, true, 3))),
        ("book", None),
        ("put", Some((0, true, 3))),
        // They are on their way, and released again later.
        ("remove", Some((3, false, 3))),
    ] {
        let rig = rig(TIME);
        rig.diary.takes(what, HANGS);
        park(&rig, 3);
        let start = Instant::now();
        let told = rig.ask(release(9)).await;
        assert!(
            start.elapsed() < Duration::from_millis(TIME.0),
            "{what}: {:?}",
            start.elapsed()
        );
        let code = told.as_ref().err().map(|error| error.code.clone());
        assert_eq!(
            code,
            expected.is_none().then(|| "timeout".to_owned()),
            "{what}"
        );
        let told = told.ok().map(|told| (told.released, told.left));
        assert_eq!(
            told,
            expected.map(|(released, left, _)| (released, left)),
            "{what}"
        );
        assert_eq!(
            rig.parked().len(),
            expected.map_or(3, |(_, _, parked)| parked),
            "{what}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_goes_on_as_long_as_there_is_time() {
    // 200 at a time take 20 calls, of which 8 run at a time: 3 s.
    let rig = rig(TIME);
    rig.diary.takes("put", Duration::from_secs(1));
    park(&rig, 1000);
    let start = Instant::now();
    let told = rig.ask(release(1000)).await.unwrap();
    assert!(
        start.elapsed() < Duration::from_millis(TIME.0),
        "{:?}",
        start.elapsed()
    );
    assert_eq!((told.released, told.left), (400, true));
    assert_eq!(rig.parked().len(), 600);
}
