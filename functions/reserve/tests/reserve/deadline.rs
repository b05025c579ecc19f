//! What is done when time runs out.

use std::time::Duration;

use reserve::deadline::CLOSING;
use sendslot_domain::{Lane, Millis};
use serde_json::json;
use tokio::time::Instant;

use crate::rig::{Rig, body, failed, locked, record, unused};

/// How long a call takes that never answers.
const HANGS: Duration = Duration::from_hours(24);
/// The shortest time-out that the template lets a function have.
const TIME: Duration = Duration::from_secs(10);

fn bodies(count: usize) -> Vec<String> {
    (0..count).map(|n| body(&format!("m{n}"))).collect()
}

#[tokio::test(start_paused = true)]
async fn with_its_end_near_an_invocation_takes_nothing_on() {
    let rig = Rig::new().within(CLOSING);
    let records = [record(Lane::Bulk, &body("a")), record(Lane::Bulk, "{")];
    let (back, metrics) = rig.records(&records).await;
    assert_eq!(back, [0, 1], "also what can't be read");
    assert_eq!(metrics[0].get("EnqueueFailed"), Some(2));
    let told = rig.direct(&bodies(1)).await;
    let message = "no time left before the function times out";
    let expected = json!({ "send_id": "m0", "status": "failed", "message": message });
    assert_eq!(told, [expected]);
    assert!(rig.asked().is_empty());
    assert!(locked(&rig.queues.calls).is_empty());

    let rig = Rig::new().within(CLOSING + Duration::from_millis(1));
    assert_eq!(rig.queued(Lane::Bulk, &bodies(2)).await, [0; 0]);
    assert_eq!(rig.sent(Lane::Bulk).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_booking_that_hangs_leaves_time_to_hold_the_messages() {
    let rig = Rig::new().within(TIME).taking("book", HANGS);
    let start = Instant::now();
    assert_eq!(rig.queued(Lane::Bulk, &bodies(25)).await, [0; 0]);
    assert!(start.elapsed() < TIME, "{:?}", start.elapsed());
    assert_eq!(rig.on("bulk-intake").len(), 25);

    // Slots only.
    let start = Instant::now();
    let event = json!({ "enqueue": false, "messages": [{ "tenant": "acme" }] });
    let error = rig.run(&event.to_string()).await.expect_err("no slots");
    assert!(error.to_string().ends_with("no answer in time"), "{error}");
    assert!(start.elapsed() < TIME, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_its_queue_has_not_taken_in_time_comes_back() {
    // A call takes 10 messages and 3 s, and 8 run at a time: two times 8 have ended when the queues' time is up, 8 more have
    // begun, and 6 have not.
    let rig = Rig::new()
        .within(TIME)
        .taking("put", Duration::from_secs(3));
    let start = Instant::now();
    let back = rig.queued(Lane::Bulk, &bodies(300)).await;
    assert!(start.elapsed() < TIME, "{:?}", start.elapsed());
    assert_eq!(back, (160..300).collect::<Vec<_>>());
    assert_eq!(
        rig.steps()
            .iter()
            .filter(|step| *step == "put bulk-send")
            .count(),
        24
    );
    assert_eq!(rig.sent(Lane::Bulk).len(), 160);
    let [(Lane::Bulk, slots)] = &rig.released()[..] else {
        panic!("one call")
    };
    assert_eq!(slots.len(), 140);
    assert_eq!(slots[0], unused(Millis(161_000), 1));
}

#[tokio::test(start_paused = true)]
async fn nothing_that_hangs_makes_an_invocation_late() {
    for what in ["put", "release"] {
        let rig = Rig::new()
            .answering(|_, _, _| Ok(vec![failed(0, true)]))
            .within(TIME)
            .taking(what, HANGS);
        let start = Instant::now();
        let back = rig.queued(Lane::Bulk, &bodies(11)).await;
        assert!(start.elapsed() < TIME, "{what}: {:?}", start.elapsed());
        let expected: Vec<_> = if what == "put" {
            (0..11).collect()
        } else {
            vec![0, 10]
        };
        assert_eq!(back, expected);
    }
}
