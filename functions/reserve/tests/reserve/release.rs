//! What becomes of parked mail that is released.

use crate::rig::{self, NOW, Rig, body, failed, request, slot, unused};
use reserve::HandlerError;
use sendslot_domain::{Lane, Millis, Moment};
use sendslot_mail::{Envelope, SendRequest};
use sendslot_runtime::parking::{ParkedKey, Reason};
use sendslot_schedule::{Ask, Booking, Standing, Wait};
use serde_json::{Value, json};

/// acme's mail that is parked for this reason; `age` ms old.
fn key(send_id: &str, reason: Reason, lane: Lane, age: u64) -> ParkedKey {
    ParkedKey {
        tenant: "acme".parse().expect("a name"),
        first_seen: Moment(NOW.0 - age),
        reason,
        lane,
        send_id: send_id.parse().expect("a send id"),
    }
}

/// It has been through a lot.
fn envelope(key: &ParkedKey) -> Envelope {
    let mut request = request(key.send_id.as_str());
    request["tenant"] = key.tenant.as_str().into();
    let request = SendRequest::parse(&request.to_string(), NOW).expect("a request");
    let (old, cells) = (Moment(1_796_000_000_000), Vec::new());
    let mut envelope = request.into_envelope(key.lane, old, cells, key.first_seen);
    envelope.cells = vec![(old.cell(), 1)];
    (envelope.attempts, envelope.holds) = (7, 3);
    envelope.suspect_since = Some(Moment(1_796_000_000_500));
    envelope.uncertain = key.reason == Reason::Uncertain;
    envelope.void = Some("worker-1".into());
    envelope
}

/// Parks mail; answers with its key.
fn park(rig: &Rig, key: ParkedKey) -> ParkedKey {
    let body = envelope(&key).to_json().expect("JSON");
    rig.park(&key, Some(&body));
    key
}

fn paused(rig: &Rig, send_id: &str, lane: Lane, age: u64) -> ParkedKey {
    park(rig, key(send_id, Reason::Paused, lane, age))
}

fn release(reason: &str, most: usize) -> Value {
    json!({ "tenant": "acme", "reason": reason, "most": most })
}

fn answer(released: usize, refused: usize, left: bool, retry_after_ms: u64) -> Value {
    json!({ "released": released, "refused": refused, "left": left, "retry_after_ms": retry_after_ms })
}

/// The same, with these reasons of what was refused.
fn because(mut answer: Value, reasons: &Value) -> Value {
    answer["reasons"] = reasons.clone();
    answer
}

/// The same, to go on after this.
fn after(mut answer: Value, key: &ParkedKey) -> Value {
    answer["after"] = key.to_string().into();
    answer
}

/// Releases after what an answer said.
async fn go_on(rig: &Rig, mut ask: Value, told: &Value) -> Value {
    ask["after"] = told["after"].clone();
    rig.release(ask).await.expect("an answer")
}

fn waits(delay: u64, place: u64) -> Booking {
    Booking::Wait(Wait {
        delay: Millis(delay),
        place,
        estimate: Millis(delay * 2),
    })
}

/// Answers as this function does, and lets places be left.
fn booking(answer: impl Fn(usize, &Ask) -> Booking + Send + Sync + 'static) -> Rig {
    Rig::new().booking(move |n, _, ask| match ask.standing {
        Standing::Left { .. } => Booking::Left,
        _ => answer(n, ask),
    })
}

#[tokio::test]
async fn a_wrong_release_is_told_what_is_wrong_and_does_nothing() {
    let rig = Rig::new();
    paused(&rig, "m", Lane::Bulk, 9);
    for (wrong, told) in [
        (
            json!({ "tenant": "a b" }),
            "release: tenant \"a b\": holds ' '",
        ),
        (json!({ "tenant": "" }), "release: tenant \"\": "),
        (
            json!({ "tenant": "acme", "reason": "lost" }),
            "release: reason \"lost\": give paused or uncertain",
        ),
        (
            json!({ "tenant": "acme", "most": 0 }),
            "release: most 0: give 1 to 1000",
        ),
        (
            json!({ "tenant": "acme", "most": 1001 }),
            "release: most 1001: give 1 to 1000",
        ),
        (
            json!({ "tenant": "acme", "after": "acme/1.json" }),
            "release: after \"acme/1.json\": give what",
        ),
        (
            json!({ "tenant": "acme", "after": "parked/beta/1-paused-bulk-a.json" }),
            "release: after \"parked/beta/1-paused-bulk-a.json\": give what",
        ),
    ] {
        let error: HandlerError = rig.release(wrong).await.expect_err(told);
        let error = error.to_string();
        assert!(error.starts_with(told), "{error}");
    }
    for beside in ["messages", "Records"] {
        let event = json!({ "release": { "tenant": "acme" }, beside: [] });
        let error = rig.run(&event.to_string()).await.expect_err(beside);
        assert!(error.to_string().starts_with("unknown event"), "{error}");
    }
    assert!(rig.steps().is_empty());
    assert_eq!(rig.parked(), ["m"]);
}

#[test]
fn a_release_that_can_not_be_read_is_no_event() {
    for wrong in [
        json!({}),
        json!({ "tenant": 7 }),
        json!({ "tenant": "acme", "most": -1 }),
        json!({ "tenant": "acme", "lane": "bulk" }),
        json!("acme"),
    ] {
        let event = json!({ "release": wrong }).to_string();
        let error = serde_json::from_str::<reserve::Event>(&event).expect_err("an error");
        let told = error.to_string();
        assert!(told.starts_with("not an event of this function"), "{told}");
    }
}

#[tokio::test]
async fn the_oldest_go_first_and_no_more_than_was_said() {
    let rig = Rig::new();
    for (send_id, age) in [
        ("third", 3_000),
        ("first", 1_700_000_000_000),
        ("fifth", 1),
        ("second", 4_000),
        ("fourth", 2_000),
    ] {
        paused(&rig, send_id, Lane::Bulk, age);
    }
    // Another's, and what is parked for another reason.
    park(&rig, key("unsure", Reason::Uncertain, Lane::Bulk, 9_999));
    let beta = ParkedKey {
        tenant: "beta".parse().expect("a name"),
        ..key("betas", Reason::Paused, Lane::Bulk, 9_999)
    };
    park(&rig, beta);

    let told = rig.release(release("paused", 2)).await.expect("an answer");
    assert_eq!(told, answer(2, 0, true, 0), "three are left");
    let ids = |rig: &Rig| -> Vec<String> {
        let sent = rig.sent(Lane::Bulk);
        sent.iter().map(|e| e.send_id.to_string()).collect()
    };
    assert_eq!(ids(&rig), ["first", "second"]);
    assert_eq!(rig.parked().len(), 5);
    let told = rig.release(release("paused", 3)).await.expect("an answer");
    assert_eq!(told, answer(3, 0, false, 0), "just as many as there were");
    assert_eq!(ids(&rig)[2..], ["third", "fourth", "fifth"]);
    let told = rig.release(release("paused", 3)).await.expect("an answer");
    assert_eq!(told, answer(0, 0, false, 0));
    assert_eq!(rig.parked(), ["unsure", "betas"]);
}

#[tokio::test]
async fn unless_it_says_otherwise_a_release_is_of_a_hundred_paused() {
    let rig = Rig::new();
    for n in 0..101 {
        paused(&rig, &format!("m{n:03}"), Lane::Bulk, 1000 - n);
    }
    park(&rig, key("unsure", Reason::Uncertain, Lane::Bulk, 9_999));
    let told = rig.release(json!({ "tenant": "acme" })).await;
    assert_eq!(told.expect("an answer"), answer(100, 0, true, 0));
    assert_eq!(rig.parked(), ["unsure", "m100"]);
    assert_eq!(rig.asked().len(), 1, "one round trip for a lane");
    assert_eq!(rig.asked()[0].1.len(), 100);
}

#[tokio::test]
async fn both_lanes_go_each_on_its_own_queue_with_its_own_slots() {
    let rig = booking(|n, ask| slot(Millis::from_secs(n as u64 + 1), ask.cost));
    paused(&rig, "b1", Lane::Bulk, 50);
    paused(&rig, "p1", Lane::Priority, 40);
    paused(&rig, "b2", Lane::Bulk, 30);
    let mut moved = envelope(&key("p2", Reason::Paused, Lane::Bulk, 20));
    moved.lane = Lane::Bulk;
    let p2 = key("p2", Reason::Paused, Lane::Priority, 20);
    rig.park(&p2, Some(&moved.to_json().expect("JSON")));
    let told = rig.release(release("paused", 9)).await.expect("an answer");
    assert_eq!(told, answer(4, 0, false, 0));
    let sent = |lane| -> Vec<_> {
        let delays = rig.on(&format!("{lane}-send"));
        let delays = delays.iter().map(|message| message.delay_seconds);
        let sent = rig.sent(lane).into_iter().zip(delays);
        sent.map(|(e, delay)| {
            assert_eq!(e.lane, lane, "as its key says");
            assert_eq!(e.cells, [(e.slot.cell(), 1)]);
            assert_eq!(u64::from(delay), NOW.until(e.slot).whole_secs());
            (e.send_id.to_string(), u64::from(delay))
        })
        .collect()
    };
    let named = |id: &str, slot: u64| (id.to_owned(), slot);
    assert_eq!(sent(Lane::Priority), [named("p1", 1), named("p2", 2)]);
    assert_eq!(sent(Lane::Bulk), [named("b1", 3), named("b2", 4)]);
    for (lane, asks) in rig.asked() {
        assert_eq!(asks.len(), 2, "{lane}");
        let new = |ask: &Ask| ask.standing == Standing::New && ask.cost == 1;
        assert!(asks.iter().all(new), "{lane}");
    }
    assert!(rig.parked().is_empty());
}

#[tokio::test]
async fn what_was_paused_resumes_its_tenant_and_starts_anew() {
    let rig = Rig::new();
    let parked = paused(&rig, "m", Lane::Bulk, 9_000);
    rig.release(release("paused", 5)).await.expect("an answer");
    let steps = rig.steps();
    assert_eq!(
        steps,
        [
            "list acme",
            "resume acme",
            "fetch m",
            "book bulk",
            "put bulk-send",
            "remove m"
        ],
        "resumed before it is booked, removed when its queue has it"
    );
    let before = envelope(&parked);
    let sent = rig.sent(Lane::Bulk).remove(0);
    assert_eq!((sent.attempts, sent.holds), (0, 0));
    assert_eq!(sent.first_seen, parked.first_seen);
    assert_eq!(sent.suspect_since, before.suspect_since);
    assert_eq!(
        (sent.void, sent.fingerprint),
        (before.void, before.fingerprint)
    );
    assert!(!sent.resend && !sent.uncertain);
    assert!(rig.on("bulk-send")[0].attributes.is_empty());
}

#[tokio::test]
async fn what_was_uncertain_is_sent_although_it_may_have_been() {
    let rig = Rig::new();
    let parked = key("m", Reason::Uncertain, Lane::Priority, 9_000);
    park(&rig, parked.clone());
    let told = rig.release(release("uncertain", 5)).await;
    assert_eq!(told.expect("an answer"), answer(1, 0, false, 0));
    let sent = rig.sent(Lane::Priority).remove(0);
    assert!(sent.resend && !sent.uncertain);
    assert_eq!(sent.suspect_since, None, "it is known to be");
    assert_eq!((sent.attempts, sent.holds), (0, 0));
    assert_eq!(sent.first_seen, parked.first_seen);
    let resumed = rig.steps().iter().any(|step| step.starts_with("resume"));
    assert!(!resumed, "its tenant may be paused all the same");
}

#[tokio::test]
async fn with_nothing_parked_a_paused_tenant_is_resumed_all_the_same() {
    let rig = Rig::new();
    let told = rig.release(release("paused", 5)).await;
    assert_eq!(told.expect("an answer"), answer(0, 0, false, 0));
    assert_eq!(rig.steps(), ["list acme", "resume acme"]);
    let told = rig.release(release("uncertain", 5)).await;
    assert_eq!(told.expect("an answer"), answer(0, 0, false, 0));
    assert_eq!(rig.steps(), ["list acme"]);
}

#[tokio::test]
async fn only_what_gets_a_slot_leaves_and_the_others_keep_no_place() {
    let rig = booking(|n, ask| match n {
        0 | 2 => slot(Millis(1000), ask.cost),
        n => waits(n as u64 * 2000, 70 + n as u64),
    });
    for n in 0..5 {
        paused(&rig, &format!("m{n}"), Lane::Bulk, 100 - n);
    }
    let told = rig.release(release("paused", 9)).await.expect("an answer");
    assert_eq!(told, answer(2, 0, true, 8000), "when the last may ask");
    assert_eq!(rig.parked(), ["m1", "m3", "m4"]);
    let asked = rig.asked();
    assert_eq!(asked.len(), 2);
    let left: Vec<_> = asked[1].1.iter().map(|ask| ask.standing).collect();
    let place = |place| Standing::Left { place };
    assert_eq!(left, [place(71), place(73), place(74)]);
    assert_eq!(asked[1].0, Lane::Bulk);
    assert!(rig.released().is_empty());
    assert!(rig.on("bulk-intake").is_empty(), "the bucket is the line");
}

#[tokio::test]
async fn while_nobody_may_send_all_of_it_stays() {
    let rig = booking(|_, _| Booking::Blocked(Millis(45_000)));
    paused(&rig, "m0", Lane::Bulk, 9);
    paused(&rig, "m1", Lane::Priority, 8);
    let told = rig.release(release("paused", 9)).await.expect("an answer");
    assert_eq!(told, answer(0, 0, true, 45_000));
    assert_eq!(rig.parked(), ["m0", "m1"]);
    assert!(rig::locked(&rig.queues.calls).is_empty());
    assert_eq!(rig.asked().len(), 2, "there is nothing to undo");
}

#[tokio::test]
async fn what_the_schedule_refuses_stays_and_is_counted() {
    let rig = booking(|n, ask| match n {
        0 => Booking::UnknownTenant,
        1 => Booking::OverCap,
        _ => slot(Millis(1000), ask.cost),
    });
    for n in 0..3 {
        paused(&rig, &format!("m{n}"), Lane::Bulk, 100 - n);
    }
    let told = rig.release(release("paused", 9)).await.expect("an answer");
    let reasons = json!({ "unknown_tenant": 1, "over_cap": 1 });
    assert_eq!(told, because(answer(1, 2, false, 0), &reasons));
    assert_eq!(rig.parked(), ["m0", "m1"]);
}

/// The schedule refuses whoever costs more than one.
fn costly(ask: &Ask) -> Booking {
    if ask.cost > 1 {
        Booking::OverCap
    } else {
        slot(Millis(1000), ask.cost)
    }
}

/// acme's mail that costs two.
fn for_two(rig: &Rig, send_id: &str, age: u64) -> ParkedKey {
    let key = key(send_id, Reason::Paused, Lane::Bulk, age);
    let mut envelope = envelope(&key);
    envelope.mail.cc.push("ann@example.com".into());
    rig.park(&key, Some(&envelope.to_json().expect("JSON")));
    key
}

#[tokio::test]
async fn what_stays_refused_is_got_past_in_one_call() {
    let rig = booking(|_, ask| costly(ask));
    for n in 0..30 {
        for_two(&rig, &format!("costly{n}"), 1000 - n);
    }
    rig.park(&key("damaged", Reason::Paused, Lane::Bulk, 500), Some("{"));
    let bytes = key("bytes", Reason::Paused, Lane::Bulk, 499);
    rig.park_bytes(&bytes, b"{\"v\": 1, \xff}");
    let large = key("large", Reason::Paused, Lane::Bulk, 498);
    let mut envelope = envelope(&large);
    envelope.fingerprint = "f".repeat(1_048_576);
    rig.park(&large, Some(&envelope.to_json().expect("JSON")));
    for n in 0..3 {
        paused(&rig, &format!("good{n}"), Lane::Bulk, 100 - n);
    }
    let told = rig.release(release("paused", 2)).await.expect("an answer");
    let reasons = json!({ "over_cap": 30, "unreadable": 2, "too_large": 1 });
    let second = key("good1", Reason::Paused, Lane::Bulk, 99);
    let expected = because(answer(2, 33, true, 0), &reasons);
    assert_eq!(told, after(expected, &second));
    let sent = rig.sent(Lane::Bulk);
    let ids: Vec<_> = sent.iter().map(|e| e.send_id.as_str()).collect();
    assert_eq!(ids, ["good0", "good1"]);

    // The next call goes on there, and says where, too.
    rig.steps();
    let told = go_on(&rig, release("paused", 2), &told).await;
    assert_eq!(told, answer(1, 0, false, 0));
    let fetched = |step: &String| step.starts_with("fetch");
    let looked = rig.steps().into_iter().filter(fetched).count();
    assert_eq!(looked, 1, "what was refused isn't looked at again");
    assert_eq!(rig.parked().len(), 33);
}

#[tokio::test]
async fn a_call_looks_at_so_many_and_the_next_goes_on_behind_them() {
    let rig = booking(|_, ask| costly(ask));
    for n in 0..1100 {
        for_two(&rig, &format!("costly{n}"), 10_000 - n);
    }
    let good = paused(&rig, "good", Lane::Bulk, 1);
    paused(&rig, "better", Lane::Bulk, 0);
    let told = rig.release(release("paused", 1)).await;
    let told = told.expect("an answer");
    assert_eq!(
        (&told["released"], &told["left"]),
        (&json!(0), &json!(true))
    );
    assert_eq!(
        (&told["refused"], &told["reasons"]),
        (&json!(999), &json!({ "over_cap": 999 }))
    );
    let told = go_on(&rig, release("paused", 1), &told).await;
    let expected = because(answer(1, 101, true, 0), &json!({ "over_cap": 101 }));
    assert_eq!(told, after(expected, &good));
    let told = go_on(&rig, release("paused", 1), &told).await;
    assert_eq!(told, answer(1, 0, false, 0));
    assert_eq!(rig.parked().len(), 1100);
}

#[tokio::test]
async fn what_has_to_wait_is_asked_for_again_though_some_before_it_are_refused() {
    let rig = booking(|n, ask| match n {
        0 | 1 => Booking::OverCap,
        3 => waits(7000, 70),
        _ => slot(Millis(1000), ask.cost),
    });
    let keys: Vec<_> = (0..5)
        .map(|n| paused(&rig, &format!("m{n}"), Lane::Bulk, 100 - n))
        .collect();
    // Two at a time: m0 and m1, m2 and m3.
    let told = rig.release(release("paused", 2)).await.expect("an answer");
    let expected = because(answer(1, 2, true, 7000), &json!({ "over_cap": 2 }));
    assert_eq!(told, after(expected, &keys[1]), "not after what waits");
    assert_eq!(rig.parked(), ["m0", "m1", "m3", "m4"]);
    let told = go_on(&rig, release("paused", 9), &told).await;
    assert_eq!(told, answer(2, 0, false, 0));
}

#[tokio::test]
async fn a_mail_that_is_parked_anew_before_its_object_is_removed_stays() {
    let again = key("m", Reason::Paused, Lane::Bulk, 9);
    let rig = Rig::new().parking_anew(&again, "the new one");
    paused(&rig, "m", Lane::Bulk, 9);
    let told = rig.release(release("paused", 9)).await.expect("an answer");
    assert_eq!(told, answer(1, 0, false, 0));
    assert_eq!(rig.object(&again).as_deref(), Some("the new one"));
    let steps = rig.steps();
    assert_eq!(steps.last().map(String::as_str), Some("remove m"));
}

#[tokio::test]
async fn what_its_queue_does_not_take_stays_and_gives_its_slot_back() {
    let rig = Rig::new().answering(|_, _, _| Ok(vec![failed(1, true)]));
    for n in 0..3 {
        paused(&rig, &format!("m{n}"), Lane::Bulk, 100 - n);
    }
    let told = rig.release(release("paused", 9)).await.expect("an answer");
    let expected = because(answer(2, 1, false, 0), &json!({ "not_queued": 1 }));
    assert_eq!(told, expected);
    assert_eq!(rig.parked(), ["m1"]);
    assert_eq!(
        rig.released(),
        [(Lane::Bulk, vec![unused(Millis(2000), 1)])]
    );
    let steps = rig.steps();
    let put = steps.iter().position(|step| step == "put bulk-send");
    let removed: Vec<_> = (steps.iter().enumerate())
        .filter(|(_, step)| step.starts_with("remove"))
        .collect();
    assert_eq!(removed.len(), 2);
    assert!(removed.iter().all(|(at, _)| Some(*at) > put), "{steps:?}");

    let rig = Rig::new().answering(|_, _, _| Err("unreachable".into()));
    paused(&rig, "m", Lane::Bulk, 9);
    let told = rig.release(release("paused", 9)).await.expect("an answer");
    assert_eq!(told, answer(0, 0, true, 0));
    assert_eq!((rig.parked().len(), rig.released().len()), (1, 1));
}

#[tokio::test]
async fn what_can_not_be_read_stays_and_what_has_vanished_is_nothing() {
    let rig = Rig::new();
    let damaged = key("damaged", Reason::Paused, Lane::Bulk, 50);
    rig.park(&damaged, Some("{\"v\": 1"));
    let newer = key("newer", Reason::Paused, Lane::Bulk, 40);
    rig.park(&newer, Some(r#"{"v": 99, "to": ["bob@example.com"]}"#));
    let request = key("request", Reason::Paused, Lane::Bulk, 30);
    rig.park(&request, Some(&body("request")));
    rig.park(&key("gone", Reason::Paused, Lane::Bulk, 20), None);
    paused(&rig, "good", Lane::Bulk, 10);
    let told = rig.release(release("paused", 9)).await.expect("an answer");
    let expected = because(answer(1, 3, false, 0), &json!({ "unreadable": 3 }));
    assert_eq!(told, expected);
    assert_eq!(rig.parked(), ["damaged", "newer", "request", "gone"]);
    assert_eq!(rig.sent(Lane::Bulk)[0].send_id.as_str(), "good");
}

#[tokio::test]
async fn a_slot_past_the_longest_delay_is_cut_to_it() {
    let rig = booking(|_, ask| slot(Millis(905_500), ask.cost));
    paused(&rig, "m", Lane::Bulk, 9);
    let told = rig.release(release("paused", 9)).await.expect("an answer");
    assert_eq!(told, answer(1, 0, false, 0));
    assert_eq!(rig.on("bulk-send")[0].delay_seconds, 900);
    assert_eq!(rig.sent(Lane::Bulk)[0].slot, NOW + Millis(905_500));
}

#[tokio::test]
async fn without_the_bucket_the_call_fails_and_says_so() {
    for what in ["list", "fetch"] {
        let rig = Rig::new().without(what);
        paused(&rig, "m", Lane::Bulk, 9);
        let error = rig.release(release("paused", 9)).await.expect_err(what);
        assert_eq!(
            error.to_string(),
            format!("parked mail can't be had: no {what} today")
        );
        let steps = rig.steps();
        let worked = |step: &String| step.starts_with("book") || step.starts_with("put");
        assert!(!steps.iter().any(worked), "{steps:?}");
        assert_eq!(rig.parked(), ["m"]);
    }
    // What can't be removed is on its way all the same: it is released again and sent once.
    let rig = Rig::new().without("remove");
    paused(&rig, "m", Lane::Bulk, 9);
    let told = rig.release(release("paused", 9)).await.expect("an answer");
    assert_eq!(told, answer(1, 0, false, 0));
    assert_eq!(rig.parked(), ["m"]);
    assert!(rig.released().is_empty());
}

#[tokio::test]
async fn without_redis_the_call_fails_whatever_the_policy_and_what_was_not_released_stays() {
    for rig in [Rig::new(), Rig::new().capped()] {
        let rig = rig.down(&Lane::ALL);
        paused(&rig, "b", Lane::Bulk, 9);
        let error = rig.release(release("paused", 9)).await.expect_err("down");
        assert!(error.to_string().starts_with("nothing was booked"));
        assert_eq!(rig.steps(), ["list acme"], "not even resumed");

        let rig = rig.down(&[Lane::Bulk]);
        paused(&rig, "p", Lane::Priority, 8);
        let error = rig.release(release("paused", 9)).await.expect_err("down");
        assert!(matches!(error, HandlerError::Schedule(_)), "{error}");
        assert_eq!(rig.sent(Lane::Priority).len(), 1);
        assert_eq!(rig.parked(), ["b"]);
        assert!(rig.released().is_empty());
    }
}
