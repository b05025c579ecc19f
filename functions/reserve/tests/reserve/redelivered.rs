//! What becomes of messages that SQS has handed over before: another may be at it, or have booked it.

use crate::rig::{NOW, Rig, again, back, body, carried, carrying, record};
use sendslot_domain::{Lane, Millis, Moment};

/// How far the clocks of SQS and Redis may differ, ms.
const SKEW: u64 = 5000;
/// The horizon of 60 s, and 60 s more, ms.
const SETTLED: u64 = 120_000;

fn ago(ms: u64) -> Moment {
    Moment(NOW.0 - ms)
}

#[tokio::test]
async fn it_waits_until_what_another_may_have_booked_has_gone() {
    for (received_ago, delay) in [
        (0, 115),
        (1000, 114),
        (85_000, 30),
        (SETTLED - SKEW - 1, 1), // at least a second
    ] {
        let rig = Rig::new();
        let twice = again(record(Lane::Bulk, &body("m")), ago(received_ago));
        let (failures, metrics) = rig.records(&[twice]).await;
        assert_eq!(failures, [0; 0]);
        let waiting = rig.on("bulk-intake");
        assert_eq!(waiting.len(), 1, "{received_ago}");
        assert_eq!(waiting[0].delay_seconds, delay, "{received_ago}");
        assert_eq!(waiting[0].body, body("m"));
        let suspect = ago(received_ago).0 - SKEW;
        let carries = [
            ("SendslotFirstSeen", (NOW.0 - 250).to_string()),
            ("SendslotSuspectSince", suspect.to_string()),
        ];
        assert_eq!(carried(&waiting[0]), carries.into());
        assert!(rig.asked().is_empty() && rig.sent(Lane::Bulk).is_empty());
        let counts = ["Waiting", "Booked", "EnqueueFailed"];
        let counts = counts.map(|name| metrics[0].get(name));
        assert_eq!(counts, [1, 0, 0].map(Some));

        // The copy is handed over for the first time: it is booked, and says what may have been.
        assert_eq!(
            rig.records(&[back(Lane::Bulk, &waiting[0])]).await.0,
            [0; 0]
        );
        let sent = rig.sent(Lane::Bulk);
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].suspect_since, Some(Moment(suspect)));
        assert_eq!(sent[0].first_seen.0, NOW.0 - 250);
    }
}

#[tokio::test]
async fn it_keeps_its_place_its_holds_and_the_earliest_suspicion() {
    let rig = Rig::new();
    let carries = [
        ("SendslotFirstSeen", NOW.0 - 900_000),
        ("SendslotPlace", 71),
        ("SendslotHolds", 3),
        ("SendslotSuspectSince", NOW.0 - 800_000),
    ];
    let woken = carrying(record(Lane::Priority, &body("m")), &carries);
    assert_eq!(rig.records(&[again(woken, ago(10))]).await.0, [0; 0]);
    let waiting = rig.on("priority-intake");
    let carries = carries.map(|(name, number)| (name, number.to_string()));
    assert_eq!(carried(&waiting[0]), carries.into());
    assert!(rig.asked().is_empty());
}

#[tokio::test]
async fn what_came_long_ago_is_booked_at_once_and_its_envelope_says_since_when_it_is_suspect() {
    for (received, suspect) in [
        (ago(SETTLED - SKEW), ago(SETTLED)),
        (ago(300_000), ago(300_000 + SKEW)),
        (Moment(0), Moment(1)),
    ] {
        let rig = Rig::new();
        let twice = again(record(Lane::Bulk, &body("m")), received);
        assert_eq!(rig.records(&[twice]).await.0, [0; 0]);
        let sent = rig.sent(Lane::Bulk);
        assert_eq!(sent.len(), 1, "{received:?}");
        assert_eq!(sent[0].suspect_since, Some(suspect));
        assert!(rig.on("bulk-intake").is_empty());
    }
    // A count without a moment says enough.
    let rig = Rig::new();
    let mut twice = again(record(Lane::Bulk, &body("m")), NOW);
    let attributes = twice["attributes"].as_object_mut().expect("attributes");
    attributes.remove("ApproximateFirstReceiveTimestamp");
    assert_eq!(rig.records(&[twice]).await.0, [0; 0]);
    assert_eq!(rig.sent(Lane::Bulk)[0].suspect_since, Some(Moment(1)));
}

#[tokio::test]
async fn what_comes_for_the_first_time_is_no_suspect_but_a_copy_of_a_suspect_is_one() {
    let rig = Rig::new();
    let mut first = record(Lane::Bulk, &body("first"));
    first["attributes"]["ApproximateReceiveCount"] = "1".into();
    first["attributes"]["ApproximateFirstReceiveTimestamp"] = NOW.0.to_string().into();
    let since = NOW.0 - 800_000;
    let copy = record(Lane::Bulk, &body("copy"));
    let copy = carrying(copy, &[("SendslotSuspectSince", since)]);
    assert_eq!(rig.records(&[first, copy]).await.0, [0; 0]);
    let sent = rig.sent(Lane::Bulk);
    let suspects: Vec<_> = sent.iter().map(|e| e.suspect_since).collect();
    assert_eq!(suspects, [None, Some(Moment(since))]);
}

#[tokio::test]
async fn it_waits_whether_redis_is_there_or_not() {
    // It waits before Redis is asked, so that it is neither held nor sent unbooked.
    for rig in [Rig::new(), Rig::new().capped()] {
        let rig = rig.down(&[Lane::Bulk]);
        let twice = again(record(Lane::Bulk, &body("m")), NOW);
        let (failures, metrics) = rig.records(&[twice]).await;
        assert_eq!(failures, [0; 0]);
        let counts = ["Waiting", "RedisDown"].map(|name| metrics[0].get(name));
        assert_eq!(counts, [1, 0].map(Some));
        assert_eq!(rig.on("bulk-intake")[0].delay_seconds, 115);
        assert!(rig.sent(Lane::Bulk).is_empty());
    }
}

#[tokio::test]
async fn its_neighbours_are_booked_and_its_copy_in_the_batch_waits_with_it() {
    let rig = Rig::new();
    let records = [
        record(Lane::Bulk, &body("new")),
        again(record(Lane::Bulk, &body("twice")), NOW),
        record(Lane::Bulk, &body("twice")),
        again(record(Lane::Bulk, "nonsense"), NOW),
    ];
    let (failures, metrics) = rig.records(&records).await;
    assert_eq!(failures, [0; 0]);
    let sent = rig.sent(Lane::Bulk);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].cells, [((NOW + Millis(1000)).cell(), 1)]);
    assert_eq!(rig.on("bulk-intake").len(), 1);
    assert_eq!(rig.on("bulk-intake-dlq").len(), 1, "what is wrong stays so");
    let counts = ["Booked", "Waiting", "Refused"].map(|name| metrics[0].get(name));
    assert_eq!(counts, [1, 2, 1].map(Some));
}
