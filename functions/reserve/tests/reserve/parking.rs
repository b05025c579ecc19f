//! Mail of tenants that may not send, and of people whom nobody may be sent to.

use std::time::Duration;

use sendslot_domain::{Lane, Millis};
use sendslot_runtime::parking::{ParkedKey, Reason};
use sendslot_schedule::{Booking, Standing, Wait};
use serde_json::json;
use tokio::time::Instant;

use crate::rig::{NOW, Rig, again, body, locked, record, request, slot, unused};

const ACME: [&str; 3] = ["ann@example.com", "bob@example.com", "cid@example.com"];

/// Those whose send ids begin so are paused.
fn pausing(tenant: &'static str) -> Rig {
    Rig::new().booking(move |number, _, ask| {
        if ask.tenant.as_str() == tenant {
            Booking::Paused
        } else {
            slot(Millis::from_secs(number as u64 + 1), ask.cost)
        }
    })
}

fn of(tenant: &str, send_id: &str) -> String {
    let mut request = request(send_id);
    request["tenant"] = tenant.into();
    request.to_string()
}

/// A request to these.
fn to(send_id: &str, to: &[&str], cc: &[&str], bcc: &[&str]) -> String {
    let mut request = request(send_id);
    (request["to"], request["cc"], request["bcc"]) = (json!(to), json!(cc), json!(bcc));
    request.to_string()
}

#[tokio::test]
async fn mail_of_a_paused_tenant_is_parked_and_its_neighbours_are_booked() {
    let rig = pausing("bad");
    let received = NOW.0 - 600_000;
    let records = [
        record(Lane::Bulk, &body("a")),
        again(
            record(Lane::Bulk, &of("bad", "b")),
            sendslot_domain::Moment(received),
        ),
        record(Lane::Bulk, &of("bad", "c")),
    ];
    let (back, metrics) = rig.records(&records).await;
    assert_eq!(back, [0; 0]);
    assert_eq!(rig.sent(Lane::Bulk).len(), 1);
    assert!(rig.on("bulk-intake").is_empty() && rig.on("bulk-intake-dlq").is_empty());
    let parked = rig.parked();
    let key = |send_id: &str| ParkedKey {
        tenant: "bad".parse().expect("a name"),
        first_seen: sendslot_domain::Moment(NOW.0 - 250),
        reason: Reason::Paused,
        lane: Lane::Bulk,
        send_id: send_id.parse().expect("a send id"),
    };
    let keys: Vec<_> = parked.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, [key("b").to_string(), key("c").to_string()]);
    let (_, first) = &parked[0];
    assert!(first.cells.is_empty(), "nothing was booked");
    assert!(first.suspect_since.is_some(), "it was received before");
    let counts = ["Accepted", "Booked", "Parked", "EnqueueFailed"];
    assert_eq!(
        counts.map(|name| metrics[0].get(name)),
        [Some(3), Some(1), Some(2), Some(0)]
    );
}

#[tokio::test]
async fn what_cannot_be_parked_comes_again_and_direct_callers_are_told() {
    let rig = pausing("acme").not_parking(&["b"]);
    assert_eq!(rig.queued(Lane::Bulk, &[body("a"), body("b")]).await, [1]);
    let told = rig.direct(&[body("b"), body("d"), body("d")]).await;
    let parked = json!({ "send_id": "d", "status": "parked", "reason": "paused" });
    assert_eq!(
        json!(told),
        json!([
            { "send_id": "b", "status": "failed", "message": "parking it: no parking today" },
            parked,
            parked,
        ])
    );
    assert_eq!(rig.parked().len(), 2, "a and d");
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_hangs_makes_nothing_late() {
    let rig = pausing("bad")
        .within(Duration::from_secs(10))
        .taking("park", Duration::from_hours(24));
    let bodies: Vec<_> = (0..40).map(|n| of("bad", &format!("m{n}"))).collect();
    let start = Instant::now();
    let back = rig.queued(Lane::Bulk, &bodies).await;
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(back, (0..40).collect::<Vec<_>>());
}

#[tokio::test]
async fn slots_of_a_paused_tenant_are_refused() {
    let rig = pausing("acme");
    let (told, _) = rig.slots(&[json!({ "tenant": "acme" }).to_string()]).await;
    assert_eq!(
        (&told[0]["status"], &told[0]["reason"]),
        (&json!("refused"), &json!("paused"))
    );
}

#[tokio::test]
async fn who_is_suppressed_is_left_out_and_the_rest_takes_a_slot_for_fewer() {
    let rig = Rig::new().suppressing(&[ACME[1]]);
    let bodies = [
        body("none").replace("bob@", "dan@"),
        to("some", &[ACME[0]], &["Bob <BOB@Example.com>"], &[ACME[2]]),
        to("all", &[ACME[1]], &[], &[]),
    ];
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0; 0]);
    let asked = rig.asked();
    let costs = |call: usize| -> Vec<u32> { asked[call].1.iter().map(|ask| ask.cost).collect() };
    assert_eq!((costs(0), costs(1)), (vec![1, 3, 1], vec![2]));
    assert_eq!(asked[1].1[0].standing, Standing::Again, "it was in turn");
    assert_eq!(asked.len(), 2);
    assert_eq!(*locked(&rig.schedule.looked_up), [5, 0]);
    // What was booked for too many is given back.
    assert_eq!(
        rig.released(),
        [(
            Lane::Bulk,
            vec![unused(Millis(2000), 3), unused(Millis(3000), 1)]
        )]
    );
    let sent = rig.sent(Lane::Bulk);
    let some = sent
        .iter()
        .find(|one| one.send_id.as_str() == "some")
        .expect("sent");
    assert_eq!(
        some.mail.recipients().collect::<Vec<_>>(),
        [ACME[0], ACME[2]]
    );
    let whole = sendslot_mail::SendRequest::parse(&bodies[1], NOW).expect("a request");
    assert_eq!(some.fingerprint, whole.fingerprint, "it is the same mail");
    assert_eq!(sent.len(), 2);
    assert!(rig.on("bulk-intake").is_empty() && rig.on("bulk-intake-dlq").is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_cant_be_booked_for_fewer_fails_alone() {
    // The first booking takes all of the time.
    let rig = Rig::new().suppressing(&[ACME[1]]);
    let rig = rig.taking("book", Duration::from_secs(20));
    let some = to("some", &[ACME[0], ACME[1]], &[], &[]);
    let told = rig
        .direct(&[body("whole").replace("bob@", "dan@"), some.clone()])
        .await;
    assert_eq!(told[0]["status"], "booked");
    assert_eq!(told[1]["status"], "failed");
    assert_eq!(told[1]["message"], "booking: no answer in time");
    let sent = rig.sent(Lane::Bulk);
    let ids: Vec<_> = sent.iter().map(|one| one.send_id.as_str()).collect();
    assert_eq!(ids, ["whole"]);

    // Where nothing else was booked, nothing was: the call fails as a whole.
    let event = format!("{{\"messages\":[{some}]}}");
    let error = rig.run(&event).await.expect_err("no time");
    assert!(
        error.to_string().starts_with("nothing was booked"),
        "{error}"
    );
}

#[tokio::test]
async fn direct_callers_are_told_by_place_and_no_address_is_repeated() {
    let rig = Rig::new().suppressing(&[ACME[1], ACME[2]]);
    let told = rig
        .direct(&[
            to("some", &[ACME[1], ACME[0]], &[], &[ACME[2]]),
            to("all", &[ACME[2]], &[], &[ACME[1]]),
            to("some", &[ACME[1], ACME[0]], &[], &[ACME[2]]),
        ])
        .await;
    assert_eq!(told[0]["status"], "booked");
    assert_eq!(told[0]["suppressed"], json!(["/to/0", "/bcc/0"]));
    assert_eq!(
        told[1],
        json!({ "send_id": "all", "status": "suppressed", "suppressed": ["/to/0", "/bcc/0"] })
    );
    assert_eq!(told[2], told[0], "a copy is told the same");
    assert!(!json!(told).to_string().contains('@'));
}

#[tokio::test]
async fn metrics_tell_mails_from_recipients() {
    let rig = Rig::new().suppressing(&[ACME[1]]);
    let bodies = [
        to("some", &[ACME[0]], &[ACME[1]], &[]),
        to("all", &[ACME[1]], &[], &[]),
    ];
    let records: Vec<_> = bodies.iter().map(|body| record(Lane::Bulk, body)).collect();
    let (_, metrics) = rig.records(&records).await;
    let counts = ["Accepted", "Booked", "Suppressed", "SuppressedRecipients"];
    assert_eq!(
        counts.map(|name| metrics[0].get(name)),
        [Some(2), Some(1), Some(1), Some(2)]
    );
}

#[tokio::test]
async fn who_waits_is_kept_as_it_came_unless_nobody_is_left() {
    let rig = Rig::new().suppressing(&[ACME[1]]).booking(|_, _, _| {
        Booking::Wait(Wait {
            delay: Millis::from_secs(60),
            place: 7,
            estimate: Millis::from_secs(90),
        })
    });
    let some = to("some", &[ACME[0], ACME[1]], &[], &[]);
    let told = rig
        .direct(&[some.clone(), to("all", &[ACME[1]], &[], &[])])
        .await;
    assert_eq!(
        (&told[0]["status"], &told[0]["suppressed"]),
        (&json!("waiting"), &json!(null))
    );
    assert_eq!(told[1]["status"], "suppressed");
    let waiting = rig.on("bulk-intake");
    assert_eq!(
        waiting
            .iter()
            .map(|one| one.body.as_str())
            .collect::<Vec<_>>(),
        [some]
    );
    // Its place is left, so that nobody waits for it.
    let asked = rig.asked();
    assert_eq!(asked[1].1[0].standing, Standing::Left { place: 7 });
}

#[tokio::test]
async fn a_paused_tenants_mail_is_parked_without_those_who_are_suppressed() {
    let rig = Rig::new()
        .suppressing(&[ACME[1]])
        .booking(|_, _, _| Booking::Paused);
    let bodies = [
        to("some", &[ACME[0], ACME[1]], &[], &[]),
        to("all", &[ACME[1]], &[], &[]),
    ];
    assert_eq!(rig.queued(Lane::Bulk, &bodies).await, [0; 0]);
    let parked = rig.parked();
    assert_eq!(parked.len(), 1);
    assert_eq!(parked[0].1.mail.recipients().collect::<Vec<_>>(), [ACME[0]]);
    assert!(rig.released().is_empty(), "nothing was booked");
}

#[tokio::test]
async fn without_redis_nobody_is_asked_for() {
    let rig = Rig::new().suppressing(&[ACME[1]]).capped().down(&Lane::ALL);
    let mail = to("all", &[ACME[1]], &[], &[]);
    assert_eq!(rig.queued(Lane::Bulk, &[mail]).await, [0; 0]);
    assert_eq!(
        rig.sent(Lane::Bulk)[0].mail.cost(),
        1,
        "SES's own list holds"
    );
}

#[tokio::test]
async fn every_message_is_of_its_tenants_group() {
    let rig = Rig::new().booking(|_, lane, ask| match lane {
        Lane::Priority => slot(Millis(1000), ask.cost),
        Lane::Bulk => Booking::Wait(Wait {
            delay: Millis::from_secs(60),
            place: 7,
            estimate: Millis::from_secs(90),
        }),
    });
    rig.queued(
        Lane::Priority,
        &[body("a"), "{".to_owned(), of("acme", "a b")],
    )
    .await;
    rig.queued(Lane::Bulk, &[of("beta", "b")]).await;
    let groups =
        |queue: &str| -> Vec<_> { rig.on(queue).into_iter().map(|one| one.group).collect() };
    let group = |name: &str| Some(name.to_owned());
    assert_eq!(groups("priority-send"), [group("acme")]);
    assert_eq!(groups("bulk-intake"), [group("beta")]);
    assert_eq!(
        groups("priority-intake-dlq"),
        [None, group("acme")],
        "whose it is, where that can be read"
    );
}

#[tokio::test]
async fn a_direct_request_without_a_lane_goes_by_its_tenants() {
    let rig = Rig::new().knowing(&[("acme", "{\"lane\":\"priority\"}"), ("beta", "{}")]);
    let mut bulk = request("c");
    bulk["lane"] = "bulk".into();
    rig.direct(&[body("a"), of("beta", "b"), bulk.to_string()])
        .await;
    let ids = |lane| -> Vec<String> {
        let sent = rig.sent(lane).into_iter();
        sent.map(|one| one.send_id.to_string()).collect()
    };
    assert_eq!(
        (ids(Lane::Priority), ids(Lane::Bulk)),
        (vec!["a".to_owned()], vec!["b".to_owned(), "c".to_owned()])
    );
    assert_eq!(
        rig.steps().iter().filter(|step| *step == "tenants").count(),
        1
    );
    // Those of a queue have its lane, and nobody is asked.
    rig.queued(Lane::Bulk, &[body("d")]).await;
    assert_eq!(
        rig.steps().iter().filter(|step| *step == "tenants").count(),
        0
    );
    assert_eq!(ids(Lane::Bulk), ["b", "c", "d"]);
}

#[tokio::test]
async fn parked_mail_is_released_by_another_function() {
    let error = Rig::new()
        .run(&json!({ "release": { "tenant": "acme" } }).to_string())
        .await
        .expect_err("none of ours");
    assert!(error.to_string().contains("control"), "{error}");
}
