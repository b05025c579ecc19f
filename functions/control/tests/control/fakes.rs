//! Queues, a bucket, configuration sets, and a schedule that decides as a test says, all kept in memory. Clones share what they hold.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use control::ports::{Book, DeadLetters, Depths, Letter, Parked, ParkedMail, Removed, Schedules};
use sendslot_domain::{Lane, Millis, Moment, SendId, TenantName};
use sendslot_mail::{Envelope, SendRequest};
use sendslot_runtime::{
    Queue,
    control::QueueStatus,
    parking::{ParkedKey, Reason, prefix},
    queue::{Failed, Message, SendBatch},
    switch::{Switch, SwitchError},
};
use sendslot_schedule::{
    Ask, Booking, Found, Look, Mark, Pause, ScheduleError, Slot, Standing, Unused,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::rig::START;

type Booked = dyn Fn(usize, Lane, &Ask) -> Booking + Send + Sync;
type Sent = dyn Fn(&str, usize, &[&Message]) -> Result<Vec<Failed>, String> + Send + Sync;
/// What a fake and its test both look at.
type Shared<T> = Arc<Mutex<T>>;

/// One release: its lane, and the slots.
pub(crate) type Release = (Lane, Vec<Unused>);
/// Parked mail by its key, as a bucket lists it, and how manieth it is that was parked. Nothing in place of a body is gone when
/// it is fetched.
type Objects = Arc<Mutex<BTreeMap<String, (Option<Vec<u8>>, usize)>>>;

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What was done, in order, over all fakes; and how long each kind of call takes, by its name: `look`, `book`, `release`, `draw`,
/// `end`, `put`, `tenants`, `list`, `fetch`, `remove` or `switch`.
#[derive(Clone, Default)]
pub(crate) struct Diary {
    steps: Arc<Mutex<Vec<String>>>,
    takes: Arc<Mutex<HashMap<&'static str, Duration>>>,
}

impl Diary {
    async fn pass(&self, what: &'static str) {
        let takes = locked(&self.takes).get(what).copied();
        if let Some(takes) = takes {
            sleep(takes).await;
        }
    }

    fn note(&self, step: String) {
        locked(&self.steps).push(step);
    }

    /// What was done since the last look, in order.
    pub(crate) fn steps(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.steps))
    }

    /// Such a call takes so long.
    pub(crate) fn takes(&self, what: &'static str, long: Duration) {
        locked(&self.takes).insert(what, long);
    }
}

/// Keeps what each call was given. Answers by a function of queue, call number and messages.
#[derive(Clone)]
pub(crate) struct FakeQueues {
    answer: Arc<Sent>,
    diary: Diary,
    /// Each call: the queue's name, its messages, and when.
    pub(crate) calls: Shared<Vec<(String, Vec<Message>, Instant)>>,
    /// Dead letters by queue, and whether each is hidden.
    letters: Shared<BTreeMap<String, Vec<(Letter, bool)>>>,
    /// Whether deleting fails.
    pub(crate) keeps_letters: Shared<bool>,
}

impl FakeQueues {
    pub(crate) fn new(diary: &Diary) -> Self {
        Self {
            answer: Arc::new(|_, _, _| Ok(Vec::new())),
            diary: diary.clone(),
            calls: Arc::default(),
            letters: Arc::default(),
            keeps_letters: Arc::default(),
        }
    }

    pub(crate) fn answering(
        mut self,
        answer: impl Fn(&str, usize, &[&Message]) -> Result<Vec<Failed>, String> + Send + Sync + 'static,
    ) -> Self {
        self.answer = Arc::new(answer);
        self
    }

    /// What is on the queue with this name, over all calls, and when it came.
    pub(crate) fn timed(&self, queue: &str) -> Vec<(Message, Instant)> {
        let calls = locked(&self.calls);
        let here = calls.iter().filter(|(name, ..)| name == queue);
        here.flat_map(|(_, messages, at)| messages.iter().map(|message| (message.clone(), *at)))
            .collect()
    }

    pub(crate) fn on(&self, queue: &str) -> Vec<Message> {
        let messages = self.timed(queue).into_iter();
        messages.map(|(message, _)| message).collect()
    }

    /// The envelopes on a lane's send queue.
    pub(crate) fn sent(&self, lane: Lane) -> Vec<Envelope> {
        let messages = self.on(&format!("{lane}-send")).into_iter();
        messages
            .map(|message| Envelope::from_json(&message.body).expect("an envelope"))
            .collect()
    }

    /// The send ids on both send queues, in order.
    pub(crate) fn ids(&self) -> Vec<String> {
        let calls = locked(&self.calls);
        let messages = calls.iter().flat_map(|(_, messages, _)| messages);
        messages
            .map(|message| Envelope::from_json(&message.body).expect("an envelope"))
            .map(|envelope| envelope.send_id.to_string())
            .collect()
    }
}

impl SendBatch for FakeQueues {
    async fn send_batch(
        &self,
        queue: &Queue,
        messages: &[&Message],
    ) -> Result<Vec<Failed>, String> {
        let bytes: usize = messages.iter().map(|message| message.bytes()).sum();
        let count = messages.len();
        assert!((1..=10).contains(&count), "{count} messages in one call");
        assert!(bytes <= 1_048_576, "{bytes} bytes in one call");
        assert!(messages.iter().all(|message| message.delay_seconds <= 900));
        self.diary.note(format!("put {}", queue.name()));
        self.diary.pass("put").await;
        let number = {
            let mut calls = locked(&self.calls);
            let kept = messages.iter().map(|message| (*message).clone()).collect();
            calls.push((queue.name().to_owned(), kept, Instant::now()));
            calls.len() - 1
        };
        (self.answer)(queue.name(), number, messages)
    }
}

impl FakeQueues {
    /// Puts a letter on a queue of dead letters.
    pub(crate) fn dead(&self, queue: &str, body: impl Into<String>, reason: Option<&str>) {
        let mut letters = locked(&self.letters);
        let number = letters.values().map(Vec::len).sum::<usize>();
        let letter = Letter {
            id: format!("id-{number}"),
            receipt: format!("receipt-{number}"),
            body: body.into(),
            reason: reason.map(str::to_owned),
            detail: reason
                .map(|reason| format!("because of {reason}"))
                .unwrap_or_default(),
            first_seen: None,
            sent: START,
        };
        letters
            .entry(queue.to_owned())
            .or_default()
            .push((letter, false));
    }

    /// What is there, and whether it can be received.
    pub(crate) fn letters(&self, queue: &str) -> Vec<(Letter, bool)> {
        let letters = locked(&self.letters);
        let here = letters.get(queue).into_iter().flatten();
        here.map(|(letter, hidden)| (letter.clone(), !hidden))
            .collect()
    }

    /// Somebody purges a queue.
    pub(crate) fn empty(&self, queue: &str) {
        locked(&self.letters).remove(queue);
    }

    /// Whatever is hidden can be received again, as after its visibility timeout.
    pub(crate) fn reveal(&self) {
        for (_, hidden) in locked(&self.letters).values_mut().flatten() {
            *hidden = false;
        }
    }
}

impl Depths for FakeQueues {
    /// As many are visible as were put there.
    async fn depth(&self, queue: &Queue) -> Result<QueueStatus, String> {
        self.diary.pass("depth").await;
        let letters = self.letters(queue.name());
        let hidden = letters.iter().filter(|(_, visible)| !visible).count();
        let visible = self.on(queue.name()).len() + letters.len() - hidden;
        Ok(QueueStatus {
            visible: visible as u64,
            delayed: 0,
            in_flight: hidden as u64,
        })
    }
}

impl DeadLetters for FakeQueues {
    async fn receive(&self, queue: &Queue, hidden_seconds: u16) -> Result<Vec<Letter>, String> {
        assert_eq!(hidden_seconds, 90);
        self.diary.pass("receive").await;
        let mut letters = locked(&self.letters);
        let here = letters.entry(queue.name().to_owned()).or_default();
        let ten = here.iter_mut().filter(|(_, hidden)| !hidden).take(10);
        let ten = ten.map(|(letter, hidden)| {
            *hidden = true;
            letter.clone()
        });
        Ok(ten.collect())
    }

    async fn delete(&self, queue: &Queue, receipts: &[&str]) -> Result<Vec<usize>, String> {
        assert!((1..=10).contains(&receipts.len()));
        self.diary.note(format!("delete {}", queue.name()));
        self.diary.pass("delete").await;
        if *locked(&self.keeps_letters) {
            return Ok((0..receipts.len()).collect());
        }
        let mut letters = locked(&self.letters);
        let here = letters.entry(queue.name().to_owned()).or_default();
        here.retain(|(letter, _)| !receipts.contains(&letter.receipt.as_str()));
        Ok(Vec::new())
    }

    async fn show(&self, queue: &Queue, receipts: &[&str]) -> Result<(), String> {
        assert!((1..=10).contains(&receipts.len()));
        self.diary.pass("show").await;
        let mut letters = locked(&self.letters);
        for (letter, hidden) in letters.entry(queue.name().to_owned()).or_default() {
            *hidden &= !receipts.contains(&letter.receipt.as_str());
        }
        Ok(())
    }
}

/// Far-ahead mail that has a schedule: its tenant and send id.
#[derive(Clone, Default)]
pub(crate) struct FakeSchedules {
    pub(crate) there: Shared<BTreeSet<(String, String)>>,
}

impl Schedules for FakeSchedules {
    async fn forget(&self, tenant: &TenantName, send_id: &SendId) -> Result<(), String> {
        locked(&self.there).remove(&(tenant.to_string(), send_id.to_string()));
        Ok(())
    }
}

/// Lists, gives and removes parked mail.
#[derive(Clone)]
pub(crate) struct FakeBucket {
    diary: Diary,
    objects: Objects,
    /// What can't be done: `tenants`, `list`, `fetch` or `remove`.
    fails: &'static str,
}

impl FakeBucket {
    pub(crate) fn new(diary: &Diary) -> Self {
        Self {
            diary: diary.clone(),
            objects: Objects::default(),
            fails: "",
        }
    }

    pub(crate) fn without(mut self, what: &'static str) -> Self {
        self.fails = what;
        self
    }

    /// Parks an object; with nothing in it, it is listed but gone.
    pub(crate) fn park_bytes(&self, key: &ParkedKey, body: Option<&[u8]>) {
        let mut objects = locked(&self.objects);
        let number = objects.values().map(|(_, number)| number + 1).max();
        let body = body.map(<[u8]>::to_vec);
        objects.insert(key.to_string(), (body, number.unwrap_or_default()));
    }

    /// Parks mail.
    pub(crate) fn park(&self, key: &ParkedKey, envelope: &Envelope) {
        let body = envelope.to_json().expect("JSON");
        self.park_bytes(key, Some(body.as_bytes()));
    }

    /// What is parked under this key.
    pub(crate) fn object(&self, key: &ParkedKey) -> Option<String> {
        let (body, _) = locked(&self.objects).get(&key.to_string()).cloned()?;
        body.map(|body| String::from_utf8(body).expect("text"))
    }

    /// The send ids of what is parked, by key.
    pub(crate) fn parked(&self) -> Vec<String> {
        let objects = locked(&self.objects);
        let keys = objects.keys().map(|key| key.parse::<ParkedKey>());
        keys.map(|key| key.expect("a key").send_id.to_string())
            .collect()
    }

    async fn step(&self, what: &'static str, of: &str) -> Result<(), String> {
        if self.fails == what {
            return Err(format!("no {what} today"));
        }
        self.diary.note(format!("{what} {of}"));
        self.diary.pass(what).await;
        Ok(())
    }
}

impl Parked for FakeBucket {
    async fn tenants(&self) -> Result<Vec<TenantName>, String> {
        self.step("tenants", "").await?;
        let objects = locked(&self.objects);
        let keys = objects
            .keys()
            .map(|key| key.parse::<ParkedKey>().expect("a key"));
        let names: BTreeSet<TenantName> = keys.map(|key| key.tenant).collect();
        Ok(names.into_iter().collect())
    }

    async fn oldest(
        &self,
        tenant: &TenantName,
        reason: Option<Reason>,
        after: Option<&ParkedKey>,
        most: usize,
    ) -> Result<Vec<ParkedKey>, String> {
        self.step("list", tenant.as_str()).await?;
        let objects = locked(&self.objects);
        let after = after.map(ToString::to_string).unwrap_or_default();
        let here = objects
            .keys()
            .filter(|key| **key > after && key.starts_with(&prefix(tenant)));
        let keys = here.map(|key| key.parse::<ParkedKey>().expect("a key"));
        let keys = keys.filter(|key| reason.is_none_or(|reason| key.reason == reason));
        Ok(keys.take(most).collect())
    }

    async fn fetch(&self, key: &ParkedKey) -> Result<Option<ParkedMail>, String> {
        self.step("fetch", key.send_id.as_str()).await?;
        let found = locked(&self.objects).get(&key.to_string()).cloned();
        Ok(found.and_then(|(body, number)| {
            let tag = number.to_string();
            body.map(|body| ParkedMail { body, tag })
        }))
    }

    async fn remove(&self, key: &ParkedKey, tag: &str) -> Result<Removed, String> {
        self.step("remove", key.send_id.as_str()).await?;
        let mut objects = locked(&self.objects);
        let key = key.to_string();
        match objects.get(&key) {
            None => Ok(Removed::NotThere),
            Some((_, number)) if number.to_string() != tag => Ok(Removed::ParkedAnew),
            Some(_) => {
                objects.remove(&key);
                Ok(Removed::Gone)
            }
        }
    }
}

/// Configuration sets: all of them are there, and switched on, unless a test says otherwise.
#[derive(Clone, Default)]
pub(crate) struct FakeSets {
    /// Those that are switched off.
    pub(crate) off: Arc<Mutex<BTreeSet<String>>>,
    /// Each call.
    pub(crate) calls: Arc<Mutex<Vec<(String, bool)>>>,
    /// What a call comes to instead.
    pub(crate) fails: Arc<Mutex<Option<SwitchError>>>,
    diary: Diary,
}

impl FakeSets {
    pub(crate) fn new(diary: &Diary) -> Self {
        Self {
            diary: diary.clone(),
            ..Self::default()
        }
    }

    /// The calls since the last look.
    pub(crate) fn calls(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut *locked(&self.calls))
    }

    pub(crate) fn fail(&self, error: Option<SwitchError>) {
        *locked(&self.fails) = error;
    }

    pub(crate) fn is_off(&self, set: &str) -> bool {
        locked(&self.off).contains(set)
    }
}

impl Switch for FakeSets {
    async fn switch(&self, set: &str, sending: bool) -> Result<(), SwitchError> {
        locked(&self.calls).push((set.to_owned(), sending));
        self.diary.pass("switch").await;
        if let Some(error) = locked(&self.fails).clone() {
            return Err(error);
        }
        let mut off = locked(&self.off);
        if sending {
            off.remove(set);
        } else {
            off.insert(set.to_owned());
        }
        Ok(())
    }
}

/// Decides each booking by a function of its number and its ask.
#[derive(Clone)]
pub(crate) struct FakeSchedule {
    answer: Arc<Booked>,
    diary: Diary,
    began: Instant,
    /// The lanes that can't be booked. With both, Redis can't be used at all.
    pub(crate) down: Vec<Lane>,
    /// Who may not send.
    pub(crate) paused: Arc<Mutex<Vec<Pause>>>,
    /// The asks of each call.
    pub(crate) calls: Shared<Vec<(Lane, Vec<Ask>)>>,
    /// What was released.
    pub(crate) released: Arc<Mutex<Vec<Release>>>,
    /// Of each tenant's replay: rate, how many may go, and when that was so.
    pub(crate) replays: Shared<BTreeMap<String, (f64, f64, Instant)>>,
    /// What claims say, by send id.
    pub(crate) marks: Shared<BTreeMap<String, Mark>>,
    /// What may be sent, as the budget's words say it: recipients per second.
    pub(crate) limit: &'static str,
}

impl FakeSchedule {
    /// Every message is booked a second ahead of the one before, beginning in a second.
    pub(crate) fn new(diary: &Diary) -> Self {
        Self {
            answer: Arc::new(|number, _, ask| slot(Millis::from_secs(number as u64 + 1), ask.cost)),
            diary: diary.clone(),
            began: Instant::now(),
            down: Vec::new(),
            paused: Arc::default(),
            calls: Arc::default(),
            released: Arc::default(),
            replays: Arc::default(),
            marks: Arc::default(),
            limit: "40/s",
        }
    }

    /// Answers as this function does.
    pub(crate) fn booking(
        mut self,
        answer: impl Fn(usize, Lane, &Ask) -> Booking + Send + Sync + 'static,
    ) -> Self {
        self.answer = Arc::new(move |number, lane, ask| match ask.standing {
            Standing::Left { .. } => Booking::Left,
            _ => answer(number, lane, ask),
        });
        self
    }

    pub(crate) fn pause(&self, name: &str, until: Option<Moment>) {
        locked(&self.paused).push(Pause {
            tenant: name.parse().expect("a name"),
            until,
            since: START,
            reason: "complaints (test)".into(),
        });
    }

    fn check(&self) -> Result<(), ScheduleError> {
        if self.down.len() == Lane::ALL.len() {
            return Err(ScheduleError::NoBudget("{ses}".into()));
        }
        Ok(())
    }
}

impl Book for FakeSchedule {
    async fn look(&self) -> Result<Look, ScheduleError> {
        self.check()?;
        self.diary.note("look".into());
        self.diary.pass("look").await;
        let passed = u64::try_from(self.began.elapsed().as_millis()).expect("little time");
        let words = [
            ("source", "account"),
            ("limit", self.limit),
            ("headroom", "1"),
        ];
        Ok(Look {
            now: START + Millis(passed),
            budget: words.map(|(of, word)| (of.into(), word.into())).into(),
            paused: locked(&self.paused).clone(),
            ..Look::default()
        })
    }

    async fn book(
        &self,
        lane: Lane,
        asks: &[Ask],
        _: &[Option<SendId>],
    ) -> Result<Vec<Booking>, ScheduleError> {
        if self.down.contains(&lane) {
            return Err(ScheduleError::NoBudget("{ses}".into()));
        }
        self.diary.note(format!("book {lane}"));
        self.diary.pass("book").await;
        let mut calls = locked(&self.calls);
        let before: usize = calls.iter().map(|(_, asks)| asks.len()).sum();
        calls.push((lane, asks.to_vec()));
        let answers = asks.iter().enumerate();
        Ok(answers
            .map(|(index, ask)| (self.answer)(before + index, lane, ask))
            .collect())
    }

    async fn release(&self, lane: Lane, unused: &[Unused]) -> Result<(), ScheduleError> {
        self.diary.pass("release").await;
        locked(&self.released).push((lane, unused.to_vec()));
        Ok(())
    }

    /// As draw.lua does.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "small"
    )]
    async fn draw(
        &self,
        tenant: &TenantName,
        wanted: u32,
        beyond: i64,
        usually: f64,
    ) -> Result<u32, ScheduleError> {
        self.check()?;
        self.diary.pass("draw").await;
        let now = Instant::now();
        let mut replays = locked(&self.replays);
        let held = replays.entry(tenant.to_string());
        let (rate, may_go, at) = held.or_insert((usually, 1.0, now));
        let grown = *may_go + *rate * now.duration_since(*at).as_secs_f64();
        let may = grown.min(rate.max(1.0)) - beyond as f64;
        let given = may.floor().clamp(0.0, f64::from(wanted));
        (*may_go, *at) = (may - given, now);
        Ok(given as u32)
    }

    async fn find(&self, mails: &[(TenantName, SendId)]) -> Result<Vec<Found>, ScheduleError> {
        self.check()?;
        self.diary.pass("find").await;
        let marks = locked(&self.marks);
        let found = mails.iter().map(|(_, send_id)| Found {
            claim: marks.get(send_id.as_str()).cloned(),
            ..Found::default()
        });
        Ok(found.collect())
    }

    /// As [`FakeSchedule::draw`], at the rate that is given.
    async fn draw_dead(
        &self,
        lane: Lane,
        wanted: u32,
        beyond: i64,
        rate: f64,
    ) -> Result<u32, ScheduleError> {
        let name = format!("dead-{lane}");
        if let Some(held) = locked(&self.replays).get_mut(&name) {
            held.0 = rate;
        }
        let name = name.parse().expect("a name");
        self.draw(&name, wanted, beyond, rate).await
    }

    async fn set_replay(&self, tenant: &TenantName, rate: f64) -> Result<(), ScheduleError> {
        self.check()?;
        let held = (rate, 1.0, Instant::now());
        locked(&self.replays)
            .entry(tenant.to_string())
            .or_insert(held)
            .0 = rate;
        Ok(())
    }

    async fn end_replay(&self, tenant: &TenantName) -> Result<(), ScheduleError> {
        self.diary.note(format!("end {tenant}"));
        self.diary.pass("end").await;
        locked(&self.replays).remove(tenant.as_str());
        Ok(())
    }
}

/// A slot so far ahead of [`START`], all of it in one cell.
pub(crate) fn slot(delay: Millis, cost: u32) -> Booking {
    let at = START + delay;
    Booking::Slot(Slot {
        at,
        delay,
        cells: vec![(at.cell(), cost)],
    })
}

/// What is given back of acme's slot so far ahead of [`START`].
pub(crate) fn unused(delay: Millis, cost: u32) -> Unused {
    let cell = (START + delay).cell();
    Unused {
        tenant: "acme".parse().expect("a name"),
        goes: cell,
        cells: vec![(cell, cost)],
        slot_only: false,
    }
}

/// SQS doesn't take the message with this index in its call.
pub(crate) fn failed(index: usize, sender_fault: bool) -> Failed {
    Failed {
        index,
        sender_fault,
        code: "InternalError".into(),
    }
}

/// A valid request.
pub(crate) fn request(tenant: &str, send_id: &str) -> Value {
    json!({
        "send_id": send_id,
        "tenant": tenant,
        "from": "Shop <shop@example.com>",
        "to": ["bob@example.com"],
        "content": { "simple": { "subject": "Hello", "text": "It is on its way." } },
    })
}

/// A tenant's mail that is parked for this reason; `age` ms old at [`START`].
pub(crate) fn key_of(
    tenant: &str,
    send_id: &str,
    reason: Reason,
    lane: Lane,
    age: u64,
) -> ParkedKey {
    ParkedKey {
        tenant: tenant.parse().expect("a name"),
        first_seen: Moment(START.0 - age),
        reason,
        lane,
        send_id: send_id.parse().expect("a send id"),
    }
}

/// A mail that has been through a lot.
pub(crate) fn envelope(key: &ParkedKey) -> Envelope {
    let request = request(key.tenant.as_str(), key.send_id.as_str());
    let request = SendRequest::parse(&request.to_string(), START).expect("a request");
    let (old, cells) = (Moment(1_796_000_000_000), Vec::new());
    let mut envelope = request.into_envelope(key.lane, old, cells, key.first_seen);
    envelope.cells = vec![(old.cell(), 1)];
    (envelope.attempts, envelope.holds) = (7, 3);
    envelope.suspect_since = Some(Moment(1_796_000_000_500));
    envelope.uncertain = key.reason == Reason::Uncertain;
    envelope.void = Some("worker-1".into());
    envelope
}
