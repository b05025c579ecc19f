//! Mail that is to be sent later, mail that was cancelled, and what is noted of mail that nothing is booked for.

use sendslot_domain::{Lane, Millis, Moment, SendId};
use sendslot_schedule::{Booking, Standing, What};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::rig::{NOW, Rig, body, carrying, locked, record, slot};

fn send_id(name: &str) -> SendId {
    name.parse().expect("a send id")
}

/// A request with more fields.
fn with(name: &str, fields: &Value) -> String {
    let mut request: Value = serde_json::from_str(&body(name)).expect("JSON");
    for (field, value) in fields.as_object().expect("fields") {
        request[field] = value.clone();
    }
    request.to_string()
}

/// A moment as a producer writes it.
fn text(at: Moment) -> String {
    let nanos = i128::from(at.0) * 1_000_000;
    let at = OffsetDateTime::from_unix_timestamp_nanos(nanos).expect("a moment");
    at.format(&Rfc3339).expect("a text")
}

fn due(name: &str, at: Moment) -> String {
    with(name, &json!({ "send_at": text(at) }))
}

/// What was noted: whose, and what.
fn notes(rig: &Rig) -> Vec<(String, What)> {
    let notes = std::mem::take(&mut *locked(&rig.schedule.notes));
    notes
        .into_iter()
        .map(|note| (note.send_id.to_string(), note.what))
        .collect()
}

#[tokio::test]
async fn mail_asks_for_its_slot_when_its_time_has_come() {
    let rig = Rig::new();
    let at = NOW + Millis(5_400);
    let far = NOW + Millis::from_secs(86_400);
    let past = NOW + Millis(0);
    let bodies = [
        due("soon", at),
        due("far", far),
        due("past", past),
        body("now"),
    ];
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0; 0]);
    let waiting = rig.on("bulk-intake");
    let delays: Vec<u16> = waiting
        .iter()
        .map(|message| message.delay_seconds)
        .collect();
    assert_eq!(delays, [6, 900], "never before its time");
    assert_eq!(waiting[0].body, bodies[0], "as it came");
    let names: Vec<&str> = waiting[0].attributes.iter().map(|one| one.name).collect();
    assert_eq!(names, ["SendslotFirstSeen"], "it stands in no line");
    let sent: Vec<String> = rig
        .sent(Lane::Bulk)
        .iter()
        .map(|mail| mail.send_id.to_string())
        .collect();
    assert_eq!(sent, ["past", "now"]);
    assert_eq!(rig.asked()[0].1.len(), 2, "nothing is asked for the others");
    let told = |until| What::Scheduled { until };
    assert_eq!(
        notes(&rig),
        [("soon".to_owned(), told(at)), ("far".to_owned(), told(far))]
    );
}

#[tokio::test]
async fn a_direct_caller_is_told_how_long_it_waits() {
    let rig = Rig::new();
    let results = rig.direct(&[due("soon", NOW + Millis(5_400))]).await;
    assert_eq!(results[0]["status"], "waiting");
    assert_eq!(
        (&results[0]["wait_ms"], &results[0]["estimate_ms"]),
        (&json!(6_000), &json!(5_400))
    );
}

#[tokio::test]
async fn its_age_counts_from_when_it_is_to_be_sent() {
    let rig = Rig::new();
    // Handed in a month ago, to be sent an hour ago.
    let at = Moment(NOW.0 - 3_600_000);
    let seen = [("SendslotFirstSeen", NOW.0 - 30 * 86_400_000)];
    let old = carrying(record(Lane::Bulk, &due("old", at)), &seen);
    let stale = carrying(record(Lane::Bulk, &body("stale")), &seen);
    assert_eq!(rig.records(&[old, stale]).await.0, [0; 0]);
    let sent = rig.sent(Lane::Bulk);
    assert_eq!((sent.len(), sent[0].first_seen), (1, at));
    let dead = What::Dead {
        reason: "expired".to_owned(),
    };
    assert_eq!(notes(&rig), [("stale".to_owned(), dead)]);
}

#[tokio::test]
async fn what_a_producer_gets_wrong_is_said() {
    let rig = Rig::new();
    let too_far = text(NOW + Millis::from_secs(367 * 86_400));
    let at = text(NOW + Millis::from_secs(60));
    for (fields, reason) in [
        (json!({ "send_at": "tomorrow" }), "bad_send_at"),
        (json!({ "send_at": 5 }), "bad_value"),
        (json!({ "send_at": too_far }), "too_far_ahead"),
        (json!({ "send_at": at, "expires_at": at }), "expires_first"),
    ] {
        let results = rig.direct(&[with("m", &fields)]).await;
        assert_eq!(
            (&results[0]["status"], &results[0]["reason"]),
            (&json!("refused"), &json!(reason)),
            "{fields}"
        );
    }
    assert_eq!(
        notes(&rig),
        [],
        "a direct caller was told, and nothing is here"
    );
}

#[tokio::test]
async fn what_was_cancelled_is_dropped_and_its_neighbours_are_booked() {
    let rig = Rig::new().booking(|number, _, ask| match ask.standing {
        Standing::Left { .. } => Booking::Left,
        _ if number == 1 => Booking::Cancelled,
        _ => slot(Millis::from_secs(1), ask.cost),
    });
    let records = [
        record(Lane::Bulk, &body("a")),
        carrying(record(Lane::Bulk, &body("b")), &[("SendslotPlace", 7)]),
        record(Lane::Bulk, &body("c")),
    ];
    let (back, metrics) = rig.records(&records).await;
    assert_eq!(back, [0; 0]);
    let counts = ["Booked", "Cancelled", "EnqueueFailed", "Refused"];
    assert_eq!(
        counts.map(|name| metrics[0].get(name)),
        [Some(2), Some(1), Some(0), Some(0)]
    );
    assert!(rig.on("bulk-intake").is_empty() && rig.on("bulk-intake-dlq").is_empty());
    // Others have its turn.
    let left = rig.asked()[1].1[0].standing;
    assert_eq!(left, Standing::Left { place: 7 });
    // Each mail is asked for by its name.
    let ids = ["a", "b", "c"].map(|name| Some(send_id(name)));
    assert_eq!(locked(&rig.schedule.ids)[..3], ids);
    let results = Rig::new()
        .booking(|_, _, _| Booking::Cancelled)
        .direct(&[body("d")])
        .await;
    assert_eq!(results[0], json!({ "send_id": "d", "status": "cancelled" }));
}

#[tokio::test]
async fn what_is_refused_parked_or_suppressed_is_noted() {
    let rig =
        Rig::new()
            .suppressing(&["nobody@example.com"])
            .booking(|number, _, ask| match number {
                0 => Booking::UnknownTenant,
                1 => Booking::Paused,
                _ => slot(Millis::from_secs(1), ask.cost),
            });
    let nobody = with(
        "nobody",
        &json!({ "to": ["nobody@example.com"], "cc": [], "bcc": [] }),
    );
    let bad = with("bad", &json!({ "to": [] }));
    let bodies = [
        body("lost"),
        body("aside"),
        nobody,
        bad,
        "not JSON".to_owned(),
        body("good"),
    ];
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0; 0]);
    let dead = |reason: &str| What::Dead {
        reason: reason.to_owned(),
    };
    let parked = What::Parked {
        first_seen: Moment(NOW.0 - 250),
        reason: "paused".to_owned(),
    };
    let expected = [
        ("lost", dead("unknown_tenant")),
        ("aside", parked),
        ("nobody", What::Suppressed),
        ("bad", dead("no_recipients")),
    ];
    let told = notes(&rig);
    for (told, (name, what)) in told.iter().zip(&expected) {
        assert_eq!((told.0.as_str(), &told.1), (*name, what));
    }
    assert_eq!(told.len(), 4);
    // Of another mail under a send id that is taken nothing is noted: the first is on its way.
    let other = with("twice", &json!({ "to": ["other@example.com"] }));
    rig.queued(Lane::Bulk, &[body("twice"), other]).await;
    assert_eq!(notes(&rig), []);
}
