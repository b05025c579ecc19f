//! Dead letters and parked mail that go again: on a Redis with its own clock standing still, or beside one that a test decides.

use std::time::Duration;

use sendslot_domain::{Lane, Millis, Moment};
use sendslot_mail::Envelope;
use sendslot_runtime::{parking::Reason, queue::Failed};
use sendslot_schedule::{ClaimAsk, End, Ending, Purpose, Terms};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    fakes::{envelope, key_of, locked, request},
    rig::{MINUTE, Rig, START, account, tenant, within},
};

const DEAD: &str = "bulk-send-dlq";
const REFUSED: &str = "bulk-intake-dlq";

/// An account of 100/s: of it, 90 may be sent. Redis's clock stands still.
async fn still() -> Rig {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(100.0, 5_000_000.0, 0) }))
        .await;
    rig
}

/// The same with a clock that runs.
async fn rig() -> Rig {
    let rig = still().await;
    let mut connection = rig.server.connection().await;
    tokio::spawn(async move {
        let began = Instant::now();
        loop {
            sleep(Duration::from_millis(50)).await;
            let passed = u64::try_from(began.elapsed().as_millis()).unwrap();
            let mut set = redis::cmd("SET");
            set.arg("sendslot:{test}:clock").arg(START.0 + passed);
            if set.exec_async(&mut connection).await.is_err() {
                break; // the test is over
            }
        }
    });
    rig
}

/// A mail of acme's as it stands on a send queue.
fn mail(send_id: &str) -> Envelope {
    let mut mail = envelope(&key_of("acme", send_id, Reason::Paused, Lane::Bulk, 60_000));
    (mail.attempts, mail.uncertain, mail.resend) = (10, false, false);
    (mail.suspect_since, mail.expires_at) = (None, None);
    mail
}

fn body(mail: &Envelope) -> String {
    mail.to_json().unwrap()
}

impl Rig {
    fn dead_mails(&self, ids: &[&str], reason: Option<&str>) {
        for id in ids {
            self.queues.dead(DEAD, body(&mail(id)), reason);
        }
    }

    async fn redrive(&mut self, fields: Value) -> Value {
        let mut request =
            json!({ "action": "redrive", "rate": "80/s", "seconds": 3, "caller": "me" });
        for (name, value) in fields.as_object().unwrap() {
            request[name] = value.clone();
        }
        self.ask(request).await
    }

    /// Redrives until all is done, and adds up what went.
    async fn redrive_all(&mut self, fields: Value) -> (u64, Value) {
        let mut all = 0;
        for _ in 0..10 {
            let told = self.redrive(fields.clone()).await;
            all += told["redriven"].as_u64().unwrap();
            if told["done"] == true {
                return (all, told);
            }
        }
        panic!("it doesn't end");
    }

    async fn claim_as(&self, id: &str, how: Ending) {
        let ask = ClaimAsk {
            tenant: tenant("acme"),
            send_id: id.parse().unwrap(),
            fingerprint: "f".into(),
            cost: 1,
            slot: self.now,
            suspect_since: None,
            void: None,
            purpose: Purpose::Send,
        };
        let terms = Terms {
            lane: Lane::Bulk,
            lease: MINUTE,
            longest_wait: Millis::from_secs(3),
            memory: Millis::from_secs(86_400),
            resend_after: None,
        };
        self.schedule()
            .claim("worker", terms, &[ask])
            .await
            .unwrap();
        let ends = [End {
            tenant: tenant("acme"),
            send_id: id.parse().unwrap(),
            how,
            cost: 1,
        }];
        let memory = Millis::from_secs(86_400);
        self.schedule()
            .commit("worker", Lane::Bulk, memory, &ends)
            .await
            .unwrap();
    }

    fn here(&self, queue: &str) -> Vec<String> {
        let letters = self.queues.letters(queue).into_iter();
        let bodies = letters.map(|(letter, visible)| {
            assert!(visible, "it is hidden yet: {letter:?}");
            let body: Value = serde_json::from_str(&letter.body).unwrap_or_default();
            body["send_id"].as_str().unwrap_or("?").to_owned()
        });
        bodies.collect()
    }
}

#[tokio::test]
async fn a_letter_gets_a_new_slot_and_keeps_its_name() {
    let mut rig = rig().await;
    rig.dead_mails(&["m-1", "m-2"], Some("attempts_exhausted"));
    let (went, told) = rig.redrive_all(json!({})).await;
    assert_eq!(
        (went, &told["left"], &told["remaining"]),
        (2, &json!({}), &json!(0))
    );
    assert_eq!(rig.here(DEAD), Vec::<String>::new());
    let sent = rig.queues.sent(Lane::Bulk);
    let ids: Vec<&str> = sent.iter().map(|mail| mail.send_id.as_str()).collect();
    assert_eq!(ids, ["m-1", "m-2"]);
    for mail in &sent {
        assert_eq!((mail.attempts, mail.holds, mail.resend), (0, 0, false));
        assert!(mail.slot >= rig.now && !mail.cells.is_empty());
        // Should Redis have lost its claim since, it is uncertain, not new.
        assert_eq!(mail.suspect_since, Some(mail.first_seen));
        assert_eq!(mail.first_seen, Moment(START.0 - 60_000));
        let found = rig
            .ask(json!({ "action": "find", "tenant": "acme", "send_id": mail.send_id.as_str() }))
            .await;
        assert_eq!(
            (&found["state"], &found["due_ms"]),
            (&json!("booked"), &json!(mail.slot.0))
        );
    }
    assert_eq!(
        rig.ask(json!({ "action": "redrive", "rate": "1/s", "seconds": 1 }))
            .await["done"],
        true
    );
}

#[tokio::test]
async fn what_has_ended_is_taken_off_and_what_is_uncertain_stays() {
    let mut rig = rig().await;
    rig.dead_mails(
        &["sent", "maybe", "free", "gone"],
        Some("attempts_exhausted"),
    );
    let mut uncertain = mail("said-so");
    uncertain.uncertain = true;
    rig.queues.dead(DEAD, body(&uncertain), None);
    rig.claim_as("sent", Ending::Sent).await;
    rig.claim_as("maybe", Ending::Uncertain).await;
    rig.claim_as("free", Ending::Free).await;
    rig.ask(json!({ "action": "cancel", "tenant": "acme", "send_id": "gone" }))
        .await;
    let (went, told) = rig.redrive_all(json!({})).await;
    assert_eq!((went, &told["left"]), (1, &json!({ "uncertain": 2 })));
    assert_eq!(rig.queues.ids(), ["free"]);
    assert_eq!(rig.here(DEAD), ["maybe", "said-so"]);
    // Said so, it goes; what has ended doesn't for all that.
    rig.dead_mails(&["sent"], None);
    let (went, told) = rig.redrive_all(json!({ "resend": true })).await;
    assert_eq!((went, &told["left"]), (2, &json!({})));
    let sent = rig.queues.sent(Lane::Bulk);
    let again = sent.iter().filter(|mail| mail.resend && !mail.uncertain);
    let again: Vec<&str> = again.map(|mail| mail.send_id.as_str()).collect();
    assert_eq!(again, ["maybe", "said-so"]);
    assert_eq!(rig.here(DEAD), Vec::<String>::new());
}

#[tokio::test]
async fn what_can_never_succeed_is_told_and_left() {
    let mut rig = rig().await;
    let mut expired = mail("late");
    expired.expires_at = Some(START);
    rig.queues
        .dead(DEAD, body(&expired), Some("attempts_exhausted"));
    rig.queues.dead(DEAD, "no envelope", Some("bad_envelope"));
    rig.queues.dead(DEAD, "{\"v\": 99}", None);
    rig.dead_mails(&["twice"], Some("send_id_conflict"));
    rig.queues.dead(
        REFUSED,
        "{\"to\": 1, \"send_id\": \"r-1\", \"tenant\": \"acme\"}",
        Some("missing_field"),
    );
    rig.queues.dead(REFUSED, "not json", None);
    rig.dead_mails(&["good"], None);
    let (went, told) = rig.redrive_all(json!({})).await;
    assert_eq!(went, 1);
    let left = json!({
        "bad_envelope": 2, "expired": 1, "malformed_json": 1, "missing_field": 1, "send_id_conflict": 1,
    });
    assert_eq!(told["left"], left);
    assert_eq!(told["remaining"], 6);
    let listed = told["listed"].as_array().unwrap();
    assert_eq!(listed.len(), 6);
    let named = |reason: &str| listed.iter().find(|one| one["reason"] == reason).unwrap();
    let twice = json!({
        "lane": "bulk", "tenant": "acme", "send_id": "twice", "reason": "send_id_conflict", "detail": "because of send_id_conflict",
    });
    assert_eq!(named("send_id_conflict"), &twice);
    assert_eq!(named("missing_field")["send_id"], "r-1");
    assert_eq!(rig.queues.ids(), ["good"]);
    assert_eq!((rig.here(DEAD).len(), rig.here(REFUSED).len()), (4, 2));
}

#[tokio::test]
async fn a_refused_request_goes_as_it_came() {
    let mut rig = rig().await;
    let text = request("acme", "r-1").to_string();
    rig.queues.dead(REFUSED, &text, Some("unknown_tenant"));
    let (went, _) = rig.redrive_all(json!({})).await;
    assert_eq!(went, 1);
    let messages = rig.queues.on("bulk-intake");
    assert_eq!((messages.len(), &messages[0].body), (1, &text));
    let names: Vec<&str> = messages[0].attributes.iter().map(|one| one.name).collect();
    assert_eq!(
        names,
        ["SendslotFirstSeen"],
        "with no reason it is as one that waits"
    );
    assert_eq!(messages[0].group.as_deref(), Some("acme"));
    assert!(rig.here(REFUSED).is_empty());
}

#[tokio::test]
async fn only_what_is_asked_for_goes() {
    let mut rig = rig().await;
    let all = |rig: &Rig| {
        rig.dead_mails(&["a-1"], Some("attempts_exhausted"));
        let mut other = mail("b-1");
        (other.tenant, other.first_seen) = (tenant("beta"), Moment(START.0 - 7_200_000));
        rig.queues.dead(DEAD, body(&other), Some("over_cap"));
        let mut urgent = mail("p-1");
        urgent.lane = Lane::Priority;
        rig.queues.dead("priority-send-dlq", body(&urgent), None);
    };
    for (asked, ids, passed) in [
        (json!({ "tenant": "beta" }), vec!["b-1"], 2),
        (json!({ "reason": "attempts_exhausted" }), vec!["a-1"], 2),
        (json!({ "reason": "received_too_often" }), vec!["p-1"], 2),
        (json!({ "lane": "priority" }), vec!["p-1"], 0),
        (json!({ "older_than_seconds": 3600 }), vec!["b-1"], 2),
        (
            json!({ "younger_than_seconds": 3600 }),
            vec!["p-1", "a-1"],
            1,
        ),
    ] {
        let before = rig.queues.ids().len();
        all(&rig);
        let dry = rig.redrive_all(with(&asked, "dry_run", json!(true))).await;
        assert_eq!(
            (dry.0, rig.queues.ids().len()),
            (ids.len() as u64, before),
            "{asked}"
        );
        let (went, told) = rig.redrive_all(asked.clone()).await;
        assert_eq!(
            (went, &told["passed"]),
            (ids.len() as u64, &json!(passed)),
            "{asked}"
        );
        assert_eq!(rig.queues.ids()[before..], ids, "{asked}");
        rig.redrive_all(json!({})).await;
        assert!(rig.here(DEAD).is_empty() && rig.here("priority-send-dlq").is_empty());
    }
}

fn with(fields: &Value, name: &str, value: Value) -> Value {
    let mut fields = fields.clone();
    fields[name] = value;
    fields
}

#[tokio::test]
async fn killed_between_two_queues_a_letter_goes_twice_and_is_sent_once() {
    let mut rig = rig().await;
    rig.dead_mails(&["m-1"], Some("attempts_exhausted"));
    *locked(&rig.queues.keeps_letters) = true;
    rig.redrive(json!({ "seconds": 1 })).await;
    assert_eq!(rig.queues.ids(), ["m-1"]);
    // Whoever was killed shows nothing: it comes back by itself. Meanwhile it was sent.
    rig.queues.reveal();
    *locked(&rig.queues.keeps_letters) = false;
    rig.claim_as("m-1", Ending::Sent).await;
    let (went, told) = rig.redrive_all(json!({})).await;
    assert_eq!((went, &told["ended"]), (0, &json!(1)));
    assert_eq!(rig.queues.ids(), ["m-1"]);
    assert!(rig.here(DEAD).is_empty());
}

#[tokio::test]
async fn what_its_next_queue_does_not_take_stays() {
    let rig = rig().await;
    let queues = rig.queues.clone().answering(|_, _, messages| {
        let refused = messages
            .iter()
            .enumerate()
            .filter(|(_, one)| one.body.contains("m-2"));
        Ok(refused
            .map(|(index, _)| Failed {
                index,
                sender_fault: true,
                code: "No".into(),
            })
            .collect())
    });
    rig.dead_mails(&["m-1", "m-2", "m-3"], None);
    let control = rig.with_queues(queues);
    let request = json!({ "action": "redrive", "rate": "80/s", "seconds": 2 });
    let (told, _) = control.handle(&request.to_string(), within(MINUTE)).await;
    assert_eq!(
        (&told["redriven"], &told["left"]),
        (&json!(2), &json!({ "not_queued": 1 }))
    );
    assert_eq!(rig.here(DEAD), ["m-2"]);
}

#[tokio::test]
async fn of_a_paused_tenant_nothing_goes_and_nobody_else_notices() {
    let mut rig = rig().await;
    rig.dead_mails(&["a-1"], None);
    let mut other = mail("b-1");
    other.tenant = tenant("beta");
    rig.queues.dead(DEAD, body(&other), None);
    rig.ask(json!({ "action": "pause", "tenant": "acme", "reason": "complaints" }))
        .await;
    let (went, told) = rig.redrive_all(json!({})).await;
    assert_eq!((went, &told["left"]), (1, &json!({ "tenant_paused": 1 })));
    assert_eq!(rig.queues.ids(), ["b-1"]);
    assert_eq!(rig.here(DEAD), ["a-1"]);
    rig.ask(json!({ "action": "resume", "tenant": "acme" }))
        .await;
    assert_eq!(rig.redrive_all(json!({})).await.0, 1);
}

#[tokio::test]
async fn while_nobody_may_send_nothing_goes() {
    let mut rig = still().await;
    rig.dead_mails(&["m-1"], None);
    let block = rig.schedule().block(Millis(9_000), Millis(9_000), "denied");
    block.await.unwrap();
    let told = rig.redrive(json!({})).await;
    assert_eq!(
        (&told["redriven"], &told["done"], &told["retry_after_ms"]),
        (&json!(0), &json!(false), &json!(9_000))
    );
    assert_eq!(rig.here(DEAD), ["m-1"]);
}

#[tokio::test]
async fn a_queue_that_somebody_empties_meanwhile_is_fine() {
    let rig = rig().await;
    let ids: Vec<String> = (0..30).map(|n| format!("m-{n}")).collect();
    rig.dead_mails(&ids.iter().map(String::as_str).collect::<Vec<_>>(), None);
    let queues = rig.queues.clone();
    let emptied = async {
        sleep(Duration::from_millis(1_200)).await;
        queues.empty(DEAD);
    };
    let request = json!({ "action": "redrive", "rate": "5/s", "seconds": 9 }).to_string();
    let ((told, _), ()) = tokio::join!(rig.handle(&request), emptied);
    // What it had received goes: whoever emptied the queue didn't have it.
    assert_eq!(
        (&told["done"], &told["remaining"]),
        (&json!(true), &json!(0))
    );
    let went = rig.queues.ids().len();
    assert_eq!(told["redriven"], went);
    assert!(rig.here(DEAD).is_empty());
}

#[tokio::test]
async fn the_rate_holds_whoever_redrives() {
    let rig = rig().await;
    let ids: Vec<String> = (0..60).map(|n| format!("m-{n}")).collect();
    rig.dead_mails(&ids.iter().map(String::as_str).collect::<Vec<_>>(), None);
    let request = json!({ "action": "redrive", "rate": "5/s", "seconds": 4 }).to_string();
    let ((one, _), (two, _)) = tokio::join!(rig.handle(&request), rig.handle(&request));
    let went = one["redriven"].as_u64().unwrap() + two["redriven"].as_u64().unwrap();
    // One second's worth at the begin, and then the rate over the five seconds it lasts.
    assert!((12..=30).contains(&went), "{went}");
    let mut sent = rig.queues.ids();
    sent.sort();
    sent.dedup();
    assert_eq!(sent.len() as u64, went, "none went twice");
    assert_eq!(rig.here(DEAD).len() as u64, 60 - went);
}

#[tokio::test]
async fn parked_mail_goes_at_the_rate_that_is_asked_for() {
    let mut rig = rig().await;
    for (id, reason, lane) in [
        ("a", Reason::Paused, Lane::Bulk),
        ("u", Reason::Uncertain, Lane::Bulk),
        ("p", Reason::Paused, Lane::Priority),
    ] {
        let key = key_of("acme", id, reason, lane, 60_000);
        let mut mail = envelope(&key);
        mail.expires_at = None;
        rig.bucket.park(&key, &mail);
    }
    let (went, _) = rig
        .redrive_all(json!({ "from": "parked", "tenant": "acme", "lane": "bulk", "dry_run": true }))
        .await;
    assert_eq!((went, rig.bucket.parked().len()), (1, 3));
    let (went, told) = rig
        .redrive_all(json!({ "from": "parked", "tenant": "acme", "lane": "bulk" }))
        .await;
    assert_eq!((went, &told["passed"]), (1, &json!(1)));
    assert_eq!(rig.queues.ids(), ["a"]);
    let asked =
        json!({ "from": "parked", "tenant": "acme", "reason": "uncertain", "resend": true });
    assert_eq!(rig.redrive_all(asked).await.0, 1);
    assert_eq!(rig.queues.ids(), ["a", "u"]);
    assert_eq!(rig.bucket.parked().len(), 1);
    // What a released mail is found as.
    assert_eq!(
        rig.ask(json!({ "action": "find", "tenant": "acme", "send_id": "a" }))
            .await["state"],
        "booked"
    );
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let rig = rig().await;
    for (fields, says) in [
        (json!({}), "rate"),
        (json!({ "rate": "fast" }), "rate \"fast\""),
        (json!({ "rate": "0/s" }), "above 0"),
        (json!({ "rate": "90/s" }), "90/s may be sent now"),
        (
            json!({ "rate": "20/s", "from": "else" }),
            "give dead or parked",
        ),
        (
            json!({ "rate": "20/s", "lane": "slow" }),
            "give priority or bulk",
        ),
        (json!({ "rate": "20/s", "tenant": "a b" }), "tenant \"a b\""),
        (
            json!({ "rate": "20/s", "from": "parked" }),
            "whose parked mail",
        ),
        (
            json!({ "rate": "20/s", "from": "parked", "tenant": "acme", "reason": "lost" }),
            "paused or uncertain",
        ),
        (
            json!({ "rate": "20/s", "from": "parked", "tenant": "acme", "reason": "uncertain" }),
            "resend",
        ),
        (json!({ "rate": "20/s", "seconds": 0 }), "give 1 to 50"),
        (json!({ "rate": "20/s", "seconds": 51 }), "give 1 to 50"),
    ] {
        let mut request = fields.clone();
        request["action"] = json!("redrive");
        let (answer, _) = rig.handle(&request.to_string()).await;
        assert_eq!(answer["error"]["code"], "bad_field", "{request}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(says), "{request}: {message}");
    }
    // The tenant's own pause stands in the way of all its parked mail.
    rig.schedule()
        .pause(&tenant("acme"), None, "test")
        .await
        .unwrap();
    let request =
        json!({ "action": "redrive", "rate": "20/s", "from": "parked", "tenant": "acme" });
    let (answer, _) = rig.handle(&request.to_string()).await;
    assert_eq!(answer["error"]["code"], "tenant_paused");
    let empty = Rig::new(&[]).await;
    let (answer, _) = empty
        .handle("{\"action\": \"redrive\", \"rate\": \"20/s\"}")
        .await;
    assert_eq!(answer["error"]["code"], "no_budget");
}
