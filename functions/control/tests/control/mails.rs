//! One mail in each state: what find and status say of it, and what it takes to cancel it. The states come about as they do in the
//! functions: by the schedule's own calls, and by the bucket.

use sendslot_domain::{Lane, Millis, SendId};
use sendslot_runtime::parking::Reason;
use sendslot_schedule::{
    Ask, Booking, ClaimAsk, End, Ending, Fed, Note, Purpose, Standing, Terms, Told, What,
};
use serde_json::{Value, json};

use crate::{
    fakes::{envelope, key_of, locked},
    rig::{MINUTE, Rig, START, account, settings, tenant},
};

const MEMORY: Millis = Millis::from_secs(15 * 86_400);
const LEASE: Millis = MINUTE;

fn id(name: &str) -> SendId {
    name.parse().unwrap()
}

/// An account of 14/s, acme's.
async fn rig() -> Rig {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    rig
}

impl Rig {
    async fn book_mail(&self, name: &str, cost: u32) -> Booking {
        let ask = Ask {
            tenant: tenant("acme"),
            cost,
            standing: Standing::New,
        };
        let (asks, ids) = ([ask], [Some(id(name))]);
        let booked = self.schedule().book_mail(Lane::Bulk, &asks, &ids, &[]);
        booked.await.unwrap().0.remove(0)
    }

    async fn claim_mail(&self, name: &str, purpose: Purpose) {
        let ask = ClaimAsk {
            tenant: tenant("acme"),
            send_id: id(name),
            fingerprint: "f".into(),
            cost: 2,
            slot: self.now,
            suspect_since: None,
            void: None,
            purpose,
        };
        let terms = Terms {
            lane: Lane::Bulk,
            lease: LEASE,
            longest_wait: Millis::from_secs(3),
            memory: MEMORY,
            resend_after: None,
        };
        self.schedule()
            .claim("worker", terms, &[ask])
            .await
            .unwrap();
    }

    async fn end_mail(&self, name: &str, how: Ending) {
        let end = End {
            tenant: tenant("acme"),
            send_id: id(name),
            how,
            cost: 2,
        };
        let ends = [end];
        let commit = self.schedule().commit("worker", Lane::Bulk, MEMORY, &ends);
        commit.await.unwrap();
    }

    async fn note(&self, name: &str, what: What) {
        let note = Note {
            tenant: tenant("acme"),
            send_id: id(name),
            lane: Lane::Bulk,
            cost: 2,
            what,
        };
        self.schedule().trace(&[note], MEMORY).await.unwrap();
    }

    async fn find(&mut self, name: &str) -> Value {
        self.ask(json!({ "action": "find", "tenant": "acme", "send_id": name }))
            .await
    }

    /// What status says of acme's bulk mail.
    async fn bulk(&mut self) -> Value {
        let status = self.ask(json!({ "action": "status" })).await;
        let acme = status["tenants"].as_array().unwrap().iter();
        let acme = acme
            .clone()
            .find(|tenant| tenant["tenant"] == "acme")
            .unwrap();
        // There is nobody else.
        let lane = &status["lanes"][1];
        for (field, value) in acme["lanes"]["bulk"].as_object().unwrap() {
            assert_eq!(lane[field], *value, "{field}");
        }
        assert_eq!(acme["lanes"]["priority"]["booked"], 0);
        acme["lanes"]["bulk"].clone()
    }

    /// The code of the failure to cancel it, or the answer.
    async fn cancel(&mut self, name: &str) -> Result<Value, String> {
        let request =
            json!({ "action": "cancel", "tenant": "acme", "send_id": name, "caller": "me" });
        let (answer, _) = self.handle(&request.to_string()).await;
        match answer["error"]["code"].as_str() {
            Some(code) => Err(code.to_owned()),
            None => Ok(answer),
        }
    }
}

/// What status counts, all others being 0.
fn only(counts: &[(&str, u64)]) -> Value {
    let mut all = json!({
        "booked": 0, "waiting": 0, "sent_1h": 0, "sent_24h": 0, "uncertain": 0, "parked": 0, "parked_uncertain": 0,
    });
    for (field, count) in counts {
        all[field] = json!(count);
    }
    all
}

#[tokio::test]
async fn nobody_has_heard_of_it() {
    let mut rig = rig().await;
    let found = rig.find("m").await;
    let expected = json!({
        "tenant": "acme", "send_id": "m", "state": "unknown", "since_ms": null, "lane": null, "recipients": null, "due_ms": null,
        "reason": null, "history": [],
    });
    assert_eq!(found, expected);
    assert_eq!(rig.bulk().await, only(&[]));
    // It is cancelled should it come.
    let done = rig.cancel("m").await.unwrap();
    assert_eq!(
        (&done["was"], &done["released"]),
        (&json!("unknown"), &json!(false))
    );
    assert_eq!(rig.book_mail("m", 2).await, Booking::Cancelled);
    assert_eq!(rig.find("m").await["state"], "cancelled");
}

#[tokio::test]
async fn it_is_booked() {
    let mut rig = rig().await;
    rig.pass(Millis(100)).await;
    let (mut ahead, mut last) = (0, None);
    for name in [
        "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9", "m10", "m",
    ] {
        let Booking::Slot(slot) = rig.book_mail(name, 2).await else {
            panic!("there is room");
        };
        let cells = slot.cells.iter().filter(|(cell, _)| *cell > rig.now.cell());
        ahead += cells.map(|(_, recipients)| recipients).sum::<u32>();
        last = Some(slot);
    }
    let slot = last.unwrap();
    assert!(slot.at > rig.now);
    let found = rig.find("m").await;
    let expected = json!({
        "tenant": "acme", "send_id": "m", "state": "booked", "since_ms": rig.now.0, "lane": "bulk", "recipients": 2, "due_ms": slot.at.0,
        "reason": null, "history": [{ "at_ms": rig.now.0, "what": "booked", "due_ms": slot.at.0 }],
    });
    assert_eq!(found, expected);
    assert_eq!(rig.bulk().await, only(&[("booked", 22)]));
    let status = rig.ask(json!({ "action": "status" })).await;
    let minute = rig.now.0 / 60_000 * 60_000;
    assert_eq!(
        status["minutes"],
        json!([{ "at_ms": minute, "priority": 0, "bulk": ahead }])
    );

    let done = rig.cancel("m").await.unwrap();
    assert_eq!(
        (&done["was"], &done["released"]),
        (&json!("booked"), &json!(true))
    );
    assert_eq!(
        rig.bulk().await,
        only(&[("booked", 20)]),
        "whoever books next has its slot"
    );
    // Asked again, it is so already, and nothing more is given back.
    let done = rig.cancel("m").await.unwrap();
    assert_eq!(
        (&done["was"], &done["released"]),
        (&json!("cancelled"), &json!(false))
    );
    assert_eq!(rig.bulk().await, only(&[("booked", 20)]));
    let found = rig.find("m").await;
    let what: Vec<&Value> = found["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["what"])
        .collect();
    assert_eq!(what, ["booked", "cancelled"]);
}

#[tokio::test]
async fn it_waits() {
    let mut rig = rig().await;
    let mut booked = 0;
    let wait = loop {
        match rig.book_mail("m", 2).await {
            Booking::Slot(_) => booked += 2,
            Booking::Wait(wait) => break wait,
            other => panic!("{other:?}"),
        }
    };
    let found = rig.find("m").await;
    assert_eq!(
        (&found["state"], &found["due_ms"]),
        (&json!("waiting"), &json!((rig.now + wait.delay).0))
    );
    assert_eq!(
        rig.bulk().await,
        only(&[("booked", booked), ("waiting", 2)])
    );
    let done = rig.cancel("m").await.unwrap();
    assert_eq!(
        (&done["was"], &done["released"]),
        (&json!("waiting"), &json!(false))
    );
}

#[tokio::test]
async fn it_is_being_sent_and_was_sent() {
    let mut rig = rig().await;
    let Booking::Slot(slot) = rig.book_mail("m", 2).await else {
        panic!("there is room");
    };
    rig.claim_mail("m", Purpose::Send).await;
    let found = rig.find("m").await;
    assert_eq!(
        (&found["state"], &found["lane"]),
        (&json!("sending"), &json!("bulk"))
    );
    assert_eq!(rig.cancel("m").await, Err("too_late".to_owned()));
    rig.pass(Millis::from_secs(2)).await;
    rig.end_mail("m", Ending::Sent).await;
    let found = rig.find("m").await;
    assert_eq!(
        (&found["state"], &found["since_ms"]),
        (&json!("sent"), &json!(rig.now.0))
    );
    let history = json!([
        { "at_ms": START.0, "what": "booked", "due_ms": slot.at.0 }, { "at_ms": rig.now.0, "what": "sent" },
    ]);
    assert_eq!(found["history"], history);
    assert_eq!(rig.bulk().await, only(&[("sent_1h", 2), ("sent_24h", 2)]));
    assert_eq!(rig.cancel("m").await, Err("too_late".to_owned()));
}

#[tokio::test]
async fn it_was_rejected() {
    let mut rig = rig().await;
    rig.claim_mail("m", Purpose::Send).await;
    rig.end_mail("m", Ending::Rejected).await;
    // Its message is in a dead-letter queue, too.
    let reason = "message_rejected".to_owned();
    rig.note("m", What::Dead { reason }).await;
    assert_eq!(rig.find("m").await["state"], "rejected");
    assert_eq!(rig.bulk().await, only(&[]));
    assert_eq!(rig.cancel("m").await, Err("too_late".to_owned()));
}

#[tokio::test]
async fn it_has_expired() {
    let mut rig = rig().await;
    rig.claim_mail("m", Purpose::Expire).await;
    assert_eq!(rig.find("m").await["state"], "expired");
    assert_eq!(rig.cancel("m").await, Err("too_late".to_owned()));
}

#[tokio::test]
async fn nobody_knows_whether_it_was_sent() {
    let mut rig = rig().await;
    rig.book_mail("m", 2).await;
    rig.claim_mail("m", Purpose::Send).await;
    rig.end_mail("m", Ending::Uncertain).await;
    let found = rig.find("m").await;
    assert_eq!(
        (&found["state"], &found["since_ms"]),
        (&json!("uncertain"), &json!(rig.now.0))
    );
    // The worker of another died.
    rig.claim_mail("died", Purpose::Send).await;
    rig.pass(LEASE).await;
    assert_eq!(rig.find("died").await["state"], "uncertain");
    rig.claim_mail("died", Purpose::Send).await; // who has its message next finds that out
    assert_eq!(rig.bulk().await, only(&[("uncertain", 2)]));
    // The provider tells of one, and an operator takes the other.
    let told = Fed {
        id: "1".into(),
        tenant: tenant("acme"),
        send_id: id("died"),
        told: Told::Sent,
        recipients: 2,
        sent_at: START,
        suppress: None,
    };
    rig.schedule().feed(MEMORY, &[told]).await.unwrap();
    assert_eq!(rig.find("died").await["state"], "sent");
    let done = rig.cancel("m").await.unwrap();
    assert_eq!(
        (&done["was"], &done["may_have_been_sent"]),
        (&json!("uncertain"), &json!(true))
    );
    assert_eq!(
        (&done["released"], &rig.bulk().await),
        (&json!(false), &only(&[]))
    );
}

#[tokio::test]
async fn it_is_parked() {
    for (reason, maybe) in [(Reason::Paused, 0), (Reason::Uncertain, 1)] {
        let mut rig = rig().await;
        let key = key_of("acme", "m", reason, Lane::Bulk, 5_000);
        rig.bucket.park(&key, &envelope(&key));
        let parked = What::Parked {
            first_seen: key.first_seen,
            reason: reason.as_str().to_owned(),
        };
        if reason == Reason::Uncertain {
            rig.claim_mail("m", Purpose::Send).await;
            rig.end_mail("m", Ending::Uncertain).await;
        }
        rig.note("m", parked).await;
        // As it was noted; and when Redis has lost that, as the bucket has it.
        for _ in 0..2 {
            let found = rig.find("m").await;
            let [state, lane, why] = ["state", "lane", "reason"].map(|field| found[field].clone());
            assert_eq!(
                (state, lane, why),
                (json!("parked"), json!("bulk"), json!(reason.as_str()))
            );
            let counts = only(&[("parked", 1), ("parked_uncertain", maybe)]);
            assert_eq!(rig.bulk().await, counts);
            let trace: u64 = rig
                .server
                .run(&["DEL", "sendslot:{test}:trace:acme:m"])
                .await;
            assert!(trace < 2);
        }
        let done = rig.cancel("m").await.unwrap();
        assert_eq!(
            (&done["was"], &done["may_have_been_sent"]),
            (&json!("parked"), &json!(maybe == 1))
        );
        assert_eq!(rig.bucket.parked(), Vec::<String>::new());
        assert_eq!(rig.find("m").await["state"], "cancelled");
        assert_eq!(rig.bulk().await, only(&[]));
    }
}

#[tokio::test]
async fn it_was_parked_and_somebody_took_it_by_hand() {
    let mut rig = rig().await;
    let parked = What::Parked {
        first_seen: START,
        reason: "paused".to_owned(),
    };
    rig.note("m", parked).await;
    let found = rig.find("m").await;
    assert_eq!(found["state"], "unknown");
    assert_eq!(found["history"][0]["what"], "parked");
}

#[tokio::test]
async fn it_was_dead_lettered_and_goes_again() {
    let mut rig = rig().await;
    let reason = "unknown_tenant".to_owned();
    rig.note("m", What::Dead { reason }).await;
    let found = rig.find("m").await;
    assert_eq!(
        (&found["state"], &found["reason"]),
        (&json!("dead_lettered"), &json!("unknown_tenant"))
    );
    rig.book_mail("m", 2).await;
    assert_eq!(rig.find("m").await["state"], "booked");
    let done = rig.cancel("m").await.unwrap();
    assert_eq!(done["was"], "booked");
}

#[tokio::test]
async fn nobody_of_it_may_be_sent_to() {
    let mut rig = rig().await;
    rig.note("m", What::Suppressed).await;
    assert_eq!(rig.find("m").await["state"], "suppressed");
}

#[tokio::test]
async fn it_is_far_ahead() {
    let mut rig = rig().await;
    let until = START + Millis::from_secs(40 * 86_400);
    rig.note("m", What::Scheduled { until }).await;
    locked(&rig.schedules.there).insert(("acme".into(), "m".into()));
    let found = rig.find("m").await;
    assert_eq!(
        (&found["state"], &found["due_ms"]),
        (&json!("scheduled"), &json!(until.0))
    );
    let done = rig.cancel("m").await.unwrap();
    assert_eq!(done["was"], "scheduled");
    assert!(locked(&rig.schedules.there).is_empty());
    // Should it come all the same, it is known yet that it was cancelled.
    let left: u64 = rig
        .server
        .run(&["PTTL", "sendslot:{test}:claim:acme:m"])
        .await;
    assert!(left > 40 * 86_400_000 + longest_age());
}

/// How long a message may live, ms.
fn longest_age() -> u64 {
    settings(&[]).max_message_age.0
}

#[tokio::test]
async fn of_whom_and_which_is_said_when_it_is_wrong() {
    let rig = rig().await;
    for action in ["find", "cancel"] {
        for (tenant, send_id, word) in [
            ("a b", "m", "tenant"),
            ("acme", "", "send_id"),
            ("acme", "a:b", "send_id"),
        ] {
            let request = json!({ "action": action, "tenant": tenant, "send_id": send_id });
            let (answer, _) = rig.handle(&request.to_string()).await;
            assert_eq!(answer["error"]["code"], "bad_field");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(
                message.starts_with(&format!("{action}: {word} ")),
                "{message}"
            );
        }
    }
}
