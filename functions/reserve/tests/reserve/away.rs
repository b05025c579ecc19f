//! What becomes of mail while Redis can't be used.

use crate::rig::{
    self, NOW, Rig, back, body, body_of, carried, carrying, failed, record, request, slot, unused,
};
use reserve::HandlerError;
use sendslot_domain::{Lane, Millis, Moment, outcome::hold_for};
use sendslot_schedule::{Booking, Standing, Wait};
use serde_json::{Value, json};

/// When it first reached us, as a record says that has no attributes.
const SENT: u64 = NOW.0 - 250;

fn waits(place: u64) -> Booking {
    Booking::Wait(Wait {
        delay: Millis(2000),
        place,
        estimate: Millis(32_000),
    })
}

fn expired(send_id: &str) -> String {
    let mut expired = request(send_id);
    expired["expires_at"] = "2026-11-30T17:30:00Z".into();
    expired.to_string()
}

#[tokio::test]
async fn the_good_are_put_back_with_all_they_carry_and_the_bad_are_dead_lettered() {
    let rig = Rig::new().down(&[Lane::Bulk]);
    let numbers = [
        ("SendslotFirstSeen", 1_796_059_000_000),
        ("SendslotPlace", 71),
        ("SendslotHolds", 2),
        ("SendslotSuspectSince", 1_796_059_100_000),
    ];
    let woken = carrying(record(Lane::Bulk, &body("woken")), &numbers);
    let records = [
        record(Lane::Bulk, &body("new")),
        record(Lane::Bulk, "nonsense"),
        woken,
        carrying(
            record(Lane::Bulk, &expired("late")),
            &[("SendslotPlace", 7)],
        ),
    ];
    let (again, metrics) = rig.records(&records).await;
    assert_eq!(again, [0; 0], "a failure would spend a receive");

    let held = rig.on("bulk-intake");
    let bodies: Vec<_> = held.iter().map(|message| &message.body).collect();
    assert_eq!(bodies, [&body("new"), &body("woken")]);
    let text = |(name, number): (&'static str, u64)| (name, number.to_string());
    let new = [("SendslotFirstSeen", SENT), ("SendslotHolds", 1)];
    assert_eq!(carried(&held[0]), new.map(text).into());
    let woken = numbers.map(|(name, number)| match name {
        "SendslotHolds" => (name, 3),
        _ => (name, number),
    });
    assert_eq!(carried(&held[1]), woken.map(text).into());
    assert_eq!(rig.on("bulk-intake-dlq").len(), 2);
    assert!(rig.sent(Lane::Bulk).is_empty() && rig.released().is_empty());

    let told = [
        "RedisDown",
        "Accepted",
        "Refused",
        "Waiting",
        "EnqueueFailed",
    ];
    let told = told.map(|name| metrics[0].get(name));
    assert_eq!(told, [2, 1, 2, 0, 0].map(Some));
}

#[tokio::test]
async fn each_time_it_is_held_twice_as_long_up_to_900_seconds_and_half_at_least() {
    for (holds, longest) in [
        (0, 5),
        (1, 10),
        (2, 20),
        (5, 160),
        (7, 640),
        (8, 900),
        (9, 900),
        (4_294_967_295, 900),
        (u64::MAX, 900),
    ] {
        let rig = Rig::new().down(&Lane::ALL);
        let held = |n: u64| {
            let new = record(Lane::Priority, &body(&format!("m{n}")));
            carrying(new, &[("SendslotHolds", holds)])
        };
        let records: Vec<_> = (0..40).map(held).collect();
        assert_eq!(rig.records(&records).await.0, [0; 0]);
        let copies = rig.on("priority-intake");
        assert_eq!(copies.len(), 40);
        // Messages are delayed by whole seconds, rounded down.
        let delays: Vec<_> = copies.iter().map(|copy| copy.delay_seconds).collect();
        let within = longest / 2..=longest;
        assert!(delays.iter().all(|delay| within.contains(delay)), "{holds}");
        let spread = delays.iter().any(|delay| *delay != delays[0]);
        assert!(spread, "they would all come back at once: {delays:?}");
        let counted = (holds + u64::from(holds < 9_000)).min(4_294_967_295);
        let counted = Some(counted.to_string());
        let count = |copy| rig::attribute(copy, "SendslotHolds");
        assert!(copies.iter().all(|copy| count(copy) == counted), "{holds}");
    }
    assert_eq!(hold_for(0), Millis::from_secs(5));
}

#[tokio::test]
async fn however_long_it_lasts_it_is_accepted_once_and_holds_start_anew_with_redis() {
    let rig = Rig::new().booking(|_, _, _| waits(9)).down(&[Lane::Bulk]);
    let mut next = record(Lane::Bulk, &body("m"));
    for round in 0..50_usize {
        let (again, metrics) = rig.records(&[next]).await;
        assert_eq!(again, [0; 0]);
        let counts = ["RedisDown", "Accepted"].map(|name| metrics[0].get(name));
        assert_eq!(counts, [1, u64::from(round == 0)].map(Some));
        next = back(Lane::Bulk, &rig.on("bulk-intake")[round]);
    }
    let rig = rig.down(&[]);
    assert_eq!(rig.records(&[next]).await.0, [0; 0]);
    let waiting = rig.on("bulk-intake").remove(50);
    let carried = carried(&waiting);
    assert_eq!(carried["SendslotFirstSeen"], SENT.to_string());
    assert_eq!(carried["SendslotPlace"], "9");
    assert!(!carried.contains_key("SendslotHolds"), "{carried:?}");

    let rig = rig.down(&[Lane::Bulk]);
    rig.records(&[back(Lane::Bulk, &waiting)]).await;
    let held = rig.on("bulk-intake").remove(51);
    assert!((2..=5).contains(&held.delay_seconds));
    let booked = rig.booking(|_, _, ask| slot(Millis(1000), ask.cost));
    let booked = booked.down(&[]);
    let (_, metrics) = booked.records(&[back(Lane::Bulk, &held)]).await;
    let counts = ["Booked", "Accepted", "RedisDown"].map(|name| metrics[0].get(name));
    assert_eq!(counts, [1, 0, 0].map(Some));
    let envelope = booked.sent(Lane::Bulk).remove(0);
    assert_eq!((envelope.holds, envelope.first_seen), (0, Moment(SENT)));
    let asked = booked.asked().pop().expect("a call").1;
    assert_eq!(asked[0].standing, Standing::Waited { place: 9 });
}

#[tokio::test]
async fn what_was_dead_lettered_and_is_put_back_by_hand_is_accepted() {
    let rig = Rig::new();
    let mut redriven = carrying(
        record(Lane::Bulk, &body("m")),
        &[("SendslotFirstSeen", SENT - 9)],
    );
    let reason = json!({ "stringValue": "unknown_tenant", "dataType": "String" });
    redriven["messageAttributes"]["SendslotReason"] = reason;
    let (_, metrics) = rig.records(&[redriven]).await;
    assert_eq!(metrics[0].get("Accepted"), Some(1));
    assert_eq!(rig.sent(Lane::Bulk)[0].first_seen.0, SENT - 9);
}

#[tokio::test]
async fn one_lane_down_is_redis_down_and_nothing_of_the_other_stays_booked() {
    let rig = Rig::new()
        .booking(|n, _, ask| match (ask.standing, n) {
            (Standing::Left { .. }, _) => Booking::Left,
            (_, 0) => slot(Millis(1000), ask.cost),
            _ => waits(9),
        })
        .down(&[Lane::Bulk]);
    let woken = carrying(
        record(Lane::Priority, &body("m2")),
        &[("SendslotPlace", 5), ("SendslotFirstSeen", SENT)],
    );
    let records = [
        record(Lane::Priority, &body("m0")),
        record(Lane::Priority, &body("m1")),
        woken,
        record(Lane::Bulk, &body("m3")),
    ];
    let (again, metrics) = rig.records(&records).await;
    assert_eq!(again, [0; 0]);
    let counts: Vec<_> = metrics.iter().map(|m| m.get("RedisDown")).collect();
    assert_eq!(counts, [Some(3), Some(1)]);
    let places: Vec<_> = rig
        .on("priority-intake")
        .iter()
        .map(|message| rig::attribute(message, "SendslotPlace"))
        .collect();
    assert_eq!(places, [None, None, Some("5".into())], "as they came");
    assert_eq!(rig.on("bulk-intake").len(), 1);
    assert_eq!(
        rig.released(),
        [(Lane::Priority, vec![unused(Millis(1000), 1)])]
    );
    let standings: Vec<_> = rig
        .asked()
        .iter()
        .map(|(lane, asks)| (*lane, asks.len(), asks[0].standing))
        .collect();
    let left = Standing::Left { place: 9 };
    assert_eq!(
        standings,
        [
            (Lane::Priority, 3, Standing::New),
            (Lane::Priority, 1, left)
        ]
    );
    assert!(Lane::ALL.iter().all(|lane| rig.sent(*lane).is_empty()));

    // A batch of the lane that works is booked.
    let (_, metrics) = rig.records(&records[..2]).await;
    assert_eq!(metrics[0].get("RedisDown"), Some(0));
}

#[tokio::test]
async fn a_copy_that_its_queue_does_not_take_comes_again() {
    let rig = Rig::new()
        .down(&[Lane::Bulk])
        .answering(|_, _, _| Ok(vec![failed(1, true)]));
    let bodies = ["m0", "m1", "m2"].map(body);
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [1]);
}

#[tokio::test]
async fn the_largest_request_has_room_for_all_that_a_copy_carries() {
    let rig = Rig::new().down(&[Lane::Bulk]);
    let largest = [
        "SendslotFirstSeen",
        "SendslotPlace",
        "SendslotHolds",
        "SendslotSuspectSince",
    ]
    .map(|name| (name, u64::MAX));
    // The fake refuses a call above 1 MiB. This one's envelope just fits.
    let large = carrying(record(Lane::Bulk, &body_of("large", 1_046_900)), &largest);
    assert_eq!(rig.records(&[large]).await.0, [0; 0]);
    let held = rig.on("bulk-intake");
    assert_eq!((held.len(), carried(&held[0]).len()), (1, 4));
    assert!(rig.on("bulk-intake-dlq").is_empty());
}

#[tokio::test]
async fn the_same_mail_twice_is_held_once() {
    let rig = Rig::new().down(&[Lane::Bulk]);
    let bodies = ["twice", "twice"].map(body);
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0; 0]);
    assert_eq!(rig.on("bulk-intake").len(), 1);
}

#[tokio::test]
async fn a_direct_caller_is_told_while_mail_is_held_and_nothing_is_put_anywhere() {
    let rig = Rig::new().down(&Lane::ALL);
    let event = json!({ "messages": [request("m"), { "send_id": "bad" }] });
    let error: HandlerError = rig.run(&event.to_string()).await.expect_err("no Redis");
    let told = error.to_string();
    assert!(
        told.starts_with("nothing was booked, hand the messages in again"),
        "{told}"
    );
    assert!(rig.steps().is_empty());
}

#[tokio::test]
async fn capped_mail_goes_on_its_send_queue_without_a_slot() {
    let rig = Rig::new().capped().down(&Lane::ALL);
    let numbers = [
        ("SendslotFirstSeen", 1_796_059_000_000),
        ("SendslotPlace", 71),
        ("SendslotHolds", 2),
        ("SendslotSuspectSince", 1_796_059_100_000),
    ];
    let records = [
        record(Lane::Bulk, &body("new")),
        carrying(record(Lane::Bulk, &body("woken")), &numbers),
        record(Lane::Bulk, "nonsense"),
        record(Lane::Priority, &body("urgent")),
    ];
    let (again, metrics) = rig.records(&records).await;
    assert_eq!(again, [0; 0]);
    let sent: Vec<_> = rig
        .sent(Lane::Bulk)
        .iter()
        .map(|e| {
            assert_eq!((e.slot, e.attempts, e.holds), (NOW, 0, 0));
            assert!(e.cells.is_empty() && !e.uncertain && !e.resend);
            (e.send_id.to_string(), e.first_seen.0, e.suspect_since)
        })
        .collect();
    let suspect = Some(Moment(1_796_059_100_000));
    assert_eq!(
        sent,
        [
            ("new".to_owned(), SENT, None),
            ("woken".to_owned(), 1_796_059_000_000, suspect)
        ]
    );
    let messages = rig.on("bulk-send");
    assert!(messages.iter().all(|message| message.delay_seconds == 0));
    assert_eq!(rig.sent(Lane::Priority).len(), 1);
    assert_eq!(rig.on("bulk-intake-dlq").len(), 1);
    assert!(rig.on("bulk-intake").is_empty() && rig.on("priority-intake").is_empty());
    let told = ["RedisDown", "Accepted", "Booked", "Refused"];
    let told = |lane: usize| told.map(|name| metrics[lane].get(name));
    assert_eq!(told(0), [1, 1, 0, 0].map(Some));
    assert_eq!(told(1), [2, 1, 0, 1].map(Some));
}

#[tokio::test]
async fn capped_a_direct_caller_is_told_booked_now() {
    let rig = Rig::new()
        .capped()
        .down(&[Lane::Bulk])
        .answering(|_, _, messages| {
            let lost = messages
                .iter()
                .position(|message| message.body.contains("\"lost\""));
            Ok(lost.map(|index| failed(index, true)).into_iter().collect())
        });
    let bad = json!({ "send_id": "bad" }).to_string();
    let results = rig.direct(&[body("m"), bad, body("lost")]).await;
    let booked = json!({
        "send_id": "m", "status": "booked",
        "slot": "2026-11-30T17:30:00Z", "slot_ms": NOW.0, "wait_ms": 0,
    });
    assert_eq!(results[0], booked);
    assert_eq!(results[1]["status"], "refused");
    assert_eq!(results[2]["status"], "failed");
    let ids = rig.sent(Lane::Bulk);
    let ids: Vec<_> = ids.iter().map(|e| e.send_id.as_str()).collect();
    assert_eq!(ids, ["m", "lost"]);
    assert!(rig.released().is_empty(), "nothing was booked");
}

#[tokio::test]
async fn capped_what_one_lane_had_booked_is_given_back() {
    let rig = Rig::new().capped().down(&[Lane::Bulk]);
    let mut urgent = request("urgent");
    urgent["lane"] = "priority".into();
    let results = rig.direct(&[body("plain"), urgent.to_string()]).await;
    let slots: Vec<&Value> = results.iter().map(|result| &result["slot_ms"]).collect();
    assert_eq!(slots, [NOW.0, NOW.0]);
    assert!(rig.sent(Lane::Priority)[0].cells.is_empty());
    assert_eq!(
        rig.released(),
        [(Lane::Priority, vec![unused(Millis(1000), 1)])]
    );
}

#[tokio::test]
async fn capped_gives_no_slots_away() {
    let rig = Rig::new().capped().down(&[Lane::Bulk]);
    let event = json!({ "enqueue": false, "messages": [{ "tenant": "acme" }] });
    let error: HandlerError = rig.run(&event.to_string()).await.expect_err("no Redis");
    assert!(error.to_string().starts_with("nothing was booked"));
}

#[tokio::test]
async fn capped_is_of_no_account_while_redis_is_there() {
    let rig = Rig::new().capped();
    assert_eq!(rig.queued(Lane::Bulk, &[body("m")]).await, [0; 0]);
    assert_eq!(rig.sent(Lane::Bulk)[0].cells.len(), 1);
}
