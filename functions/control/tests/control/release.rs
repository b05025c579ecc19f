//! What becomes of parked mail that is released.

use std::{
    io,
    sync::{Arc, Mutex},
};

use control::Releaser;
use sendslot_domain::{Lane, Millis};
use sendslot_runtime::{
    ControlSettings,
    control::{Failure, Release, Released},
    parking::{ParkedKey, Reason},
    queue::{Failed, Message},
};
use sendslot_schedule::{Ask, Booking, Standing, Wait};
use serde_json::{Value, json};

use crate::{
    fakes::{
        self, Diary, FakeBucket, FakeQueues, FakeSchedule, envelope, failed, key_of, locked, slot,
        unused,
    },
    rig::{START, settings, within},
};

/// How long an invocation has.
const TIME: Millis = Millis::from_secs(30);

/// The engine with its fakes.
pub(crate) struct Rig {
    pub(crate) schedule: FakeSchedule,
    pub(crate) queues: FakeQueues,
    pub(crate) bucket: FakeBucket,
    pub(crate) diary: Diary,
    pub(crate) settings: ControlSettings,
    pub(crate) time: Millis,
}

impl Rig {
    /// Every message is booked a second ahead of the one before, beginning in a second.
    pub(crate) fn new() -> Self {
        let diary = Diary::default();
        Self {
            schedule: FakeSchedule::new(&diary),
            queues: FakeQueues::new(&diary),
            bucket: FakeBucket::new(&diary),
            diary,
            settings: settings(&[]),
            time: TIME,
        }
    }

    pub(crate) fn booking(
        mut self,
        answer: impl Fn(usize, Lane, &Ask) -> Booking + Send + Sync + 'static,
    ) -> Self {
        self.schedule = self.schedule.booking(answer);
        self
    }

    pub(crate) fn answering(
        mut self,
        answer: impl Fn(&str, usize, &[&Message]) -> Result<Vec<Failed>, String> + Send + Sync + 'static,
    ) -> Self {
        self.queues = self.queues.answering(answer);
        self
    }

    fn down(mut self, lanes: &[Lane]) -> Self {
        self.schedule.down = lanes.to_vec();
        self
    }

    fn without(mut self, what: &'static str) -> Self {
        self.bucket = self.bucket.without(what);
        self
    }

    pub(crate) fn engine(&self) -> Releaser<'_, FakeSchedule, FakeQueues, FakeBucket> {
        Releaser::new(&self.schedule, &self.queues, &self.bucket, &self.settings)
    }

    pub(crate) async fn ask(&self, ask: Value) -> Result<Released, Failure> {
        let ask: Release = serde_json::from_value(ask).unwrap();
        self.engine().release(&ask, within(self.time)).await
    }

    /// The same, as the answer is written.
    async fn release(&self, ask: Value) -> Result<Value, Failure> {
        let released = self.ask(ask).await?;
        Ok(serde_json::to_value(released).unwrap())
    }

    fn park(&self, key: &ParkedKey, body: Option<&str>) {
        self.bucket.park_bytes(key, body.map(str::as_bytes));
    }

    pub(crate) fn parked(&self) -> Vec<String> {
        self.bucket.parked()
    }

    /// What was done since the last look, but for looking who may send.
    fn steps(&self) -> Vec<String> {
        let mut steps = self.diary.steps();
        steps.retain(|step| step != "look");
        steps
    }

    fn asked(&self) -> Vec<(Lane, Vec<Ask>)> {
        locked(&self.schedule.calls).clone()
    }

    fn released(&self) -> Vec<fakes::Release> {
        locked(&self.schedule.released).clone()
    }
}

/// acme's mail that is parked for this reason; `age` ms old.
fn key(send_id: &str, reason: Reason, lane: Lane, age: u64) -> ParkedKey {
    key_of("acme", send_id, reason, lane, age)
}

/// Parks mail; answers with its key.
fn park(rig: &Rig, key: ParkedKey) -> ParkedKey {
    rig.bucket.park(&key, &envelope(&key));
    key
}

fn paused(rig: &Rig, send_id: &str, lane: Lane, age: u64) -> ParkedKey {
    park(rig, key(send_id, Reason::Paused, lane, age))
}

fn release(reason: &str, most: usize) -> Value {
    json!({ "tenant": "acme", "reason": reason, "most": most })
}

fn answer(released: usize, refused: usize, left: bool, retry_after_ms: u64) -> Value {
    json!({
        "released": released, "expired": 0, "refused": refused, "left": left, "retry_after_ms": retry_after_ms,
    })
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
    Rig::new().booking(move |n, _, ask| answer(n, ask))
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
        let error = rig.release(wrong).await.expect_err(told);
        assert_eq!(error.code, "bad_field");
        assert!(error.message.starts_with(told), "{error}");
    }
    assert!(rig.steps().is_empty());
    assert_eq!(rig.parked(), ["m"]);
}

#[tokio::test]
async fn the_oldest_go_first_and_no_more_than_was_said() {
    let rig = Rig::new();
    for (send_id, age) in [
        ("third", 3_000),
        ("first", 1_000_000_000),
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
        let sent = rig.queues.sent(Lane::Bulk);
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
        let delays = rig.queues.on(&format!("{lane}-send"));
        let delays = delays.iter().map(|message| message.delay_seconds);
        let sent = rig.queues.sent(lane).into_iter().zip(delays);
        sent.map(|(e, delay)| {
            assert_eq!(e.lane, lane, "as its key says");
            assert_eq!(e.cells, [(e.slot.cell(), 1)]);
            assert_eq!(u64::from(delay), START.until(e.slot).whole_secs());
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
async fn what_was_paused_starts_anew() {
    let rig = Rig::new();
    let parked = paused(&rig, "m", Lane::Bulk, 9_000);
    rig.release(release("paused", 5)).await.expect("an answer");
    let steps = rig.steps();
    assert_eq!(
        steps,
        [
            "list acme",
            "fetch m",
            "book bulk",
            "put bulk-send",
            "remove m"
        ],
        "removed when its queue has it"
    );
    let before = envelope(&parked);
    let sent = rig.queues.sent(Lane::Bulk).remove(0);
    assert_eq!((sent.attempts, sent.holds), (0, 0));
    assert_eq!(sent.first_seen, parked.first_seen);
    assert_eq!(sent.suspect_since, before.suspect_since);
    assert_eq!(
        (sent.void, sent.fingerprint),
        (before.void, before.fingerprint)
    );
    assert!(!sent.resend && !sent.uncertain);
    let message = rig.queues.on("bulk-send").remove(0);
    assert!(message.attributes.is_empty());
    assert_eq!(message.group.as_deref(), Some("acme"));
}

#[tokio::test]
async fn what_was_uncertain_is_sent_although_it_may_have_been() {
    let rig = Rig::new();
    let parked = key("m", Reason::Uncertain, Lane::Priority, 9_000);
    park(&rig, parked.clone());
    let told = rig.release(release("uncertain", 5)).await;
    assert_eq!(told.expect("an answer"), answer(1, 0, false, 0));
    let sent = rig.queues.sent(Lane::Priority).remove(0);
    assert!(sent.resend && !sent.uncertain);
    assert_eq!(sent.suspect_since, None, "it is known to be");
    assert_eq!((sent.attempts, sent.holds), (0, 0));
    assert_eq!(sent.first_seen, parked.first_seen);
}

#[tokio::test]
async fn a_tenant_that_is_paused_is_resumed_first() {
    let rig = Rig::new();
    rig.schedule.pause("acme", None);
    paused(&rig, "m", Lane::Bulk, 9);
    let error = rig.release(release("paused", 5)).await.unwrap_err();
    assert_eq!(error.code, "tenant_paused");
    assert!(error.message.contains("acme"), "{error}");
    assert!(rig.steps().is_empty());
    // A pause that has ended stands for nothing, and another's is no matter.
    let rig = Rig::new();
    rig.schedule.pause("acme", Some(START));
    rig.schedule.pause("beta", None);
    paused(&rig, "m", Lane::Bulk, 9);
    let told = rig.release(release("paused", 5)).await;
    assert_eq!(told.expect("an answer"), answer(1, 0, false, 0));

    // Paused between the look and the booking: what was parked for whatever reason stays.
    for reason in [Reason::Paused, Reason::Uncertain] {
        let rig = booking(|_, _| Booking::Paused);
        park(&rig, key("m", reason, Lane::Bulk, 9));
        let error = rig.release(release(reason.as_str(), 5)).await.unwrap_err();
        assert_eq!(error.code, "tenant_paused");
        assert_eq!(rig.parked(), ["m"]);
        assert!(locked(&rig.queues.calls).is_empty());
    }
    // Then what has gone has gone.
    let rig = booking(|n, ask| match n {
        0 => slot(Millis(1000), ask.cost),
        _ => Booking::Paused,
    });
    for n in 0..3 {
        paused(&rig, &format!("m{n}"), Lane::Bulk, 100 - n);
    }
    let told = rig.release(release("paused", 5)).await.expect("an answer");
    assert_eq!(told, answer(1, 0, true, 0));
    assert_eq!(rig.parked(), ["m1", "m2"]);
}

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        locked(&self.0).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_end_is_logged_by_its_send_id_and_nothing_personal_is() {
    let log = Log::default();
    let writer = log.clone();
    let logger = lambda_runtime::tracing::subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing::subscriber::set_default(logger);
    let rig = Rig::new();
    paused(&rig, "old", Lane::Bulk, 14 * 86_400_000);
    paused(&rig, "young", Lane::Bulk, 9);
    rig.release(release("paused", 5)).await.expect("an answer");
    drop(guard);
    let text = String::from_utf8(locked(&log.0).clone()).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for (id, outcome) in [("old", "expired"), ("young", "released")] {
        let line = lines
            .iter()
            .find(|line| line["outcome"] == outcome)
            .expect(outcome);
        assert_eq!(
            (&line["send_id"], &line["tenant"]),
            (&json!(id), &json!("acme"))
        );
    }
    assert!(
        !text.contains("example.com") && !text.contains("Hello"),
        "{text}"
    );
}

#[tokio::test]
async fn what_has_expired_ends() {
    let mut rig = Rig::new();
    rig.settings.max_message_age = Millis::from_secs(60);
    let mut wait = envelope(&key("of-its-own", Reason::Paused, Lane::Bulk, 9_000));
    wait.expires_at = Some(START);
    let own = key("of-its-own", Reason::Paused, Lane::Bulk, 9_000);
    rig.bucket.park(&own, &wait);
    wait.expires_at = Some(START + Millis(1));
    wait.send_id = "not-yet".parse().unwrap();
    let not_yet = key("not-yet", Reason::Paused, Lane::Bulk, 8_000);
    rig.bucket.park(&not_yet, &wait);
    paused(&rig, "old", Lane::Priority, 60_000);
    paused(&rig, "young", Lane::Bulk, 59_999);
    park(&rig, key("unsure", Reason::Uncertain, Lane::Bulk, 60_000));
    for (reason, ended, sent) in [
        ("paused", 2, vec!["young", "not-yet"]),
        ("uncertain", 1, vec![]),
    ] {
        let told = rig.release(release(reason, 5)).await.expect("an answer");
        let mut expected = answer(sent.len(), 0, false, 0);
        expected["expired"] = ended.into();
        assert_eq!(told, expected);
        let ids: Vec<_> = rig.queues.ids();
        assert_eq!(ids, ["young", "not-yet"]);
    }
    assert!(rig.parked().is_empty());

    // What can't be removed isn't ended, nor sent.
    let rig = Rig::new().without("remove");
    let old = Millis::from_secs(14 * 86_400);
    paused(&rig, "old", Lane::Bulk, old.0);
    let told = rig.release(release("paused", 5)).await.expect("an answer");
    let expected = because(answer(0, 1, false, 0), &json!({ "not_removed": 1 }));
    assert_eq!(told, expected);
    assert!(rig.queues.ids().is_empty());

    // What is parked anew at that moment is another's.
    let rig = Rig::new();
    rig.diary
        .takes("remove", std::time::Duration::from_millis(50));
    let old = paused(&rig, "old", Lane::Bulk, old.0);
    let (ask, bucket) = (release("paused", 5), rig.bucket.clone());
    let anew = async {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        bucket.park_bytes(&old, Some(b"the new one"));
    };
    let (told, ()) = tokio::join!(rig.release(ask), anew);
    assert_eq!(told.expect("an answer"), answer(0, 0, false, 0));
    assert_eq!(rig.bucket.object(&old).as_deref(), Some("the new one"));
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
    assert!(
        rig.queues.on("bulk-intake").is_empty(),
        "the bucket is the line"
    );
}

#[tokio::test]
async fn while_nobody_may_send_all_of_it_stays() {
    let rig = booking(|_, _| Booking::Blocked(Millis(45_000)));
    paused(&rig, "m0", Lane::Bulk, 9);
    paused(&rig, "m1", Lane::Priority, 8);
    let told = rig.release(release("paused", 9)).await.expect("an answer");
    assert_eq!(told, answer(0, 0, true, 45_000));
    assert_eq!(rig.parked(), ["m0", "m1"]);
    assert!(locked(&rig.queues.calls).is_empty());
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
    rig.bucket.park_bytes(&bytes, Some(b"{\"v\": 1, \xff}"));
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
    let sent = rig.queues.sent(Lane::Bulk);
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
    let rig = Rig::new();
    let (bucket, anew) = (rig.bucket.clone(), again.clone());
    let rig = rig.answering(move |_, _, _| {
        bucket.park_bytes(&anew, Some(b"the new one"));
        Ok(Vec::new())
    });
    paused(&rig, "m", Lane::Bulk, 9);
    let told = rig.release(release("paused", 9)).await.expect("an answer");
    assert_eq!(told, answer(1, 0, false, 0));
    assert_eq!(rig.bucket.object(&again).as_deref(), Some("the new one"));
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
    rig.park(
        &request,
        Some(&fakes::request("acme", "request").to_string()),
    );
    rig.park(&key("gone", Reason::Paused, Lane::Bulk, 20), None);
    paused(&rig, "good", Lane::Bulk, 10);
    let told = rig.release(release("paused", 9)).await.expect("an answer");
    let expected = because(answer(1, 3, false, 0), &json!({ "unreadable": 3 }));
    assert_eq!(told, expected);
    assert_eq!(rig.parked(), ["damaged", "newer", "request", "gone"]);
    assert_eq!(rig.queues.sent(Lane::Bulk)[0].send_id.as_str(), "good");
}

#[tokio::test]
async fn a_slot_past_the_longest_delay_is_cut_to_it() {
    let rig = booking(|_, ask| slot(Millis(905_500), ask.cost));
    paused(&rig, "m", Lane::Bulk, 9);
    let told = rig.release(release("paused", 9)).await.expect("an answer");
    assert_eq!(told, answer(1, 0, false, 0));
    assert_eq!(rig.queues.on("bulk-send")[0].delay_seconds, 900);
    assert_eq!(rig.queues.sent(Lane::Bulk)[0].slot, START + Millis(905_500));
}

#[tokio::test]
async fn without_the_bucket_the_call_fails_and_says_so() {
    for what in ["list", "fetch"] {
        let rig = Rig::new().without(what);
        paused(&rig, "m", Lane::Bulk, 9);
        let error = rig.release(release("paused", 9)).await.expect_err(what);
        assert_eq!(
            error.to_string(),
            format!("bucket_failed: parked mail can't be had: no {what} today")
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
async fn without_redis_the_call_fails_and_what_was_not_released_stays() {
    let rig = Rig::new().down(&Lane::ALL);
    paused(&rig, "b", Lane::Bulk, 9);
    let error = rig.release(release("paused", 9)).await.expect_err("down");
    assert_eq!(error.code, "redis_failed");
    assert!(rig.steps().is_empty());

    let rig = Rig::new().down(&[Lane::Bulk]);
    paused(&rig, "b", Lane::Bulk, 9);
    paused(&rig, "p", Lane::Priority, 8);
    let error = rig.release(release("paused", 9)).await.expect_err("down");
    assert_eq!(error.code, "redis_failed");
    assert_eq!(rig.queues.sent(Lane::Priority).len(), 1);
    assert_eq!(rig.parked(), ["b"]);
    assert!(rig.released().is_empty());
}
