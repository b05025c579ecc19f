//! A schedule, queues and a bucket that are kept in memory, and a function that works on them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use reserve::{Answer, Deadline, Event, HandlerError, Reserve, ports::Book};
use sendslot_domain::{Lane, Millis, Moment, SendId, TenantName, suppression::AddressDigest};
use sendslot_mail::{Envelope, digest};
use sendslot_runtime::{
    AskTenants, Metrics, Queue, ReserveSettings,
    bucket::Parking,
    parking::ParkedKey,
    queue::{Failed, Message, SendBatch, Value as AttributeValue},
};
use sendslot_schedule::{Ask, Booking, Note, ScheduleError, Slot, Unused};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

type Booked = dyn Fn(usize, Lane, &Ask) -> Booking + Send + Sync;
type Sent = dyn Fn(&str, usize, &[&Message]) -> Result<Vec<Failed>, String> + Send + Sync;
/// One release: its lane, and the slots.
pub(crate) type Release = (Lane, Vec<Unused>);
/// What was done, in order, over all fakes.
type Steps = Arc<Mutex<Vec<String>>>;
/// How long a call takes, by its name: `book`, `release`, `tenants`, `put` or `park`.
type Takes = Arc<Mutex<HashMap<&'static str, Duration>>>;
/// The moment of every test: 2026-11-30 17:30 UTC.
pub(crate) const NOW: Moment = Moment(1_796_059_800_000);

/// Decides each booking by a function of its number and its ask.
pub(crate) struct FakeSchedule {
    answer: Box<Booked>,
    steps: Steps,
    takes: Takes,
    /// The lanes that can't be booked. With both, Redis can't be used at all.
    pub(crate) down: Mutex<Vec<Lane>>,
    /// Whom nobody may be sent to.
    suppressed: Vec<AddressDigest>,
    /// What Redis knows of tenants, by name.
    tenants: HashMap<&'static str, &'static str>,
    /// How many addresses each call asked about.
    pub(crate) looked_up: Mutex<Vec<usize>>,
    /// The asks of each call.
    pub(crate) calls: Mutex<Vec<(Lane, Vec<Ask>)>>,
    /// The send ids of each ask, over all calls.
    pub(crate) ids: Mutex<Vec<Option<SendId>>>,
    /// What was noted.
    pub(crate) notes: Mutex<Vec<Note>>,
    /// What was released.
    pub(crate) released: Mutex<Vec<Release>>,
}

impl Book for &FakeSchedule {
    async fn trace(&self, notes: &[Note], memory: Millis) -> Result<(), ScheduleError> {
        locked(&self.steps).push("trace".to_owned());
        pass(&self.takes, "trace").await;
        assert!(memory > Millis(86_400_000));
        locked(&self.notes).extend_from_slice(notes);
        Ok(())
    }

    async fn book_mail(
        &self,
        lane: Lane,
        asks: &[Ask],
        ids: &[Option<SendId>],
        addresses: &[AddressDigest],
    ) -> Result<(Vec<Booking>, Vec<usize>), ScheduleError> {
        assert!(ids.is_empty() || ids.len() == asks.len());
        locked(&self.ids).extend_from_slice(ids);
        if locked(&self.down).contains(&lane) {
            return Err(ScheduleError::NoBudget("{ses}".into()));
        }
        locked(&self.steps).push(format!("book {lane}"));
        pass(&self.takes, "book").await;
        let mut calls = locked(&self.calls);
        let before: usize = calls.iter().map(|(_, asks)| asks.len()).sum();
        calls.push((lane, asks.to_vec()));
        locked(&self.looked_up).push(addresses.len());
        let answers = asks.iter().enumerate();
        let answers = answers.map(|(index, ask)| (self.answer)(before + index, lane, ask));
        let found = addresses.iter().enumerate();
        let found = found.filter(|(_, address)| self.suppressed.contains(address));
        Ok((answers.collect(), found.map(|(index, _)| index).collect()))
    }

    async fn release(&self, lane: Lane, unused: &[Unused]) -> Result<(), ScheduleError> {
        pass(&self.takes, "release").await;
        locked(&self.released).push((lane, unused.to_vec()));
        Ok(())
    }
}

impl AskTenants for &FakeSchedule {
    async fn tenants(&self, tenants: &[TenantName]) -> Result<Vec<Option<String>>, ScheduleError> {
        locked(&self.steps).push("tenants".to_owned());
        pass(&self.takes, "tenants").await;
        let known = tenants
            .iter()
            .map(|tenant| self.tenants.get(tenant.as_str()));
        Ok(known
            .map(|text| text.map(|text| (*text).to_owned()))
            .collect())
    }
}

/// Keeps what each call was given. Answers by a function of queue, call number and messages.
pub(crate) struct FakeQueues {
    answer: Box<Sent>,
    steps: Steps,
    takes: Takes,
    /// Each call: the queue's name, and its messages.
    pub(crate) calls: Mutex<Vec<(String, Vec<Message>)>>,
}

impl SendBatch for &FakeQueues {
    async fn send_batch(
        &self,
        queue: &Queue,
        messages: &[&Message],
    ) -> Result<Vec<Failed>, String> {
        let bytes: usize = messages.iter().map(|message| message.bytes()).sum();
        assert!(
            (1..=10).contains(&messages.len()),
            "{} messages in one call",
            messages.len()
        );
        assert!(bytes <= 1_048_576, "{bytes} bytes in one call");
        assert!(messages.iter().all(|message| message.delay_seconds <= 900));
        locked(&self.steps).push(format!("put {}", queue.name()));
        pass(&self.takes, "put").await;
        let mut calls = locked(&self.calls);
        let number = calls.len();
        let kept = messages.iter().map(|message| (*message).clone()).collect();
        calls.push((queue.name().to_owned(), kept));
        (self.answer)(queue.name(), number, messages)
    }
}

/// Keeps parked mail.
pub(crate) struct FakeBucket {
    steps: Steps,
    takes: Takes,
    objects: Mutex<BTreeMap<String, String>>,
    /// Of which send ids nothing can be parked.
    fails: Vec<&'static str>,
}

impl Parking for &FakeBucket {
    async fn park(&self, key: String, body: String) -> Result<(), String> {
        let parked: ParkedKey = key.parse().expect("a key");
        locked(&self.steps).push(format!("park {}", parked.send_id));
        pass(&self.takes, "park").await;
        if self.fails.contains(&parked.send_id.as_str()) {
            return Err("no parking today".to_owned());
        }
        locked(&self.objects).insert(key, body);
        Ok(())
    }
}

/// A function with its fakes.
pub(crate) struct Rig {
    pub(crate) schedule: FakeSchedule,
    pub(crate) queues: FakeQueues,
    bucket: FakeBucket,
    steps: Steps,
    takes: Takes,
    /// How much time each invocation has.
    pub(crate) time: Duration,
    slots_only: bool,
    redis_down: &'static str,
    source: &'static str,
}

impl Rig {
    /// Every message is booked a second ahead of the one before, beginning in a second.
    pub(crate) fn new() -> Self {
        let (steps, takes) = (Steps::default(), Takes::default());
        Self {
            schedule: FakeSchedule {
                steps: steps.clone(),
                takes: takes.clone(),
                answer: Box::new(|number, _, ask| {
                    slot(Millis::from_secs(number as u64 + 1), ask.cost)
                }),
                down: Mutex::default(),
                suppressed: Vec::new(),
                tenants: HashMap::new(),
                looked_up: Mutex::default(),
                calls: Mutex::default(),
                released: Mutex::default(),
                ids: Mutex::default(),
                notes: Mutex::default(),
            },
            queues: FakeQueues {
                answer: Box::new(|_, _, _| Ok(Vec::new())),
                steps: steps.clone(),
                takes: takes.clone(),
                calls: Mutex::default(),
            },
            bucket: FakeBucket {
                steps: steps.clone(),
                takes: takes.clone(),
                objects: Mutex::default(),
                fails: Vec::new(),
            },
            steps,
            takes,
            time: Duration::from_secs(30),
            slots_only: true,
            redis_down: "hold",
            source: "deploy",
        }
    }

    /// While Redis is away, mail goes without a slot.
    pub(crate) fn capped(mut self) -> Self {
        self.redis_down = "capped";
        self
    }

    /// Redis can't be used for these lanes.
    pub(crate) fn down(self, lanes: &[Lane]) -> Self {
        *locked(&self.schedule.down) = lanes.to_vec();
        self
    }

    /// Nothing can be parked under these send ids.
    pub(crate) fn not_parking(mut self, send_ids: &[&'static str]) -> Self {
        self.bucket.fails = send_ids.to_vec();
        self
    }

    /// Nobody may be sent to at these addresses.
    pub(crate) fn suppressing(mut self, addresses: &[&str]) -> Self {
        self.schedule.suppressed = addresses.iter().map(|address| digest(address)).collect();
        self
    }

    /// Redis knows these tenants, with their settings as JSON.
    pub(crate) fn knowing(mut self, tenants: &[(&'static str, &'static str)]) -> Self {
        self.source = "account";
        self.schedule.tenants = tenants.iter().copied().collect();
        self
    }

    /// Such a call takes so long.
    pub(crate) fn taking(self, what: &'static str, long: Duration) -> Self {
        locked(&self.takes).insert(what, long);
        self
    }

    /// An invocation has so much time.
    pub(crate) fn within(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// What is parked, by key.
    pub(crate) fn parked(&self) -> Vec<(String, Envelope)> {
        let objects = locked(&self.bucket.objects);
        let objects = objects.iter();
        objects
            .map(|(key, body)| {
                let envelope = Envelope::from_json(body).expect("an envelope");
                (key.clone(), envelope)
            })
            .collect()
    }

    /// What was done since the last look, in order.
    pub(crate) fn steps(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.steps))
    }

    /// Nobody may book slots only.
    pub(crate) fn without_slots_only(mut self) -> Self {
        self.slots_only = false;
        self
    }

    pub(crate) fn booking(
        mut self,
        answer: impl Fn(usize, Lane, &Ask) -> Booking + Send + Sync + 'static,
    ) -> Self {
        self.schedule.answer = Box::new(answer);
        self
    }

    pub(crate) fn answering(
        mut self,
        answer: impl Fn(&str, usize, &[&Message]) -> Result<Vec<Failed>, String> + Send + Sync + 'static,
    ) -> Self {
        self.queues.answer = Box::new(answer);
        self
    }

    /// Runs one event, read as the Lambda runtime reads it.
    pub(crate) async fn run(&self, event: &str) -> Result<(Value, Vec<Metrics>), HandlerError> {
        let from = &mut serde_json::Deserializer::from_str(event);
        let event: Event = serde_path_to_error::deserialize(from).expect("an event");
        let settings = settings(self.slots_only, self.redis_down, self.source);
        let reserve = Reserve::new(&self.schedule, &self.queues, &self.bucket, settings);
        let deadline = Deadline::at(Instant::now() + self.time);
        let (answer, metrics): (Answer, _) = reserve.handle(event, NOW, deadline).await?;
        Ok((serde_json::to_value(answer).expect("JSON"), metrics))
    }

    /// Runs requests as messages of a lane's intake queue; answers with the indices that come again.
    pub(crate) async fn queued(&self, lane: Lane, bodies: &[String]) -> Vec<usize> {
        self.records(
            &bodies
                .iter()
                .map(|body| record(lane, body))
                .collect::<Vec<_>>(),
        )
        .await
        .0
    }

    pub(crate) async fn records(&self, records: &[Value]) -> (Vec<usize>, Vec<Metrics>) {
        let mut records = records.to_vec();
        for (index, record) in records.iter_mut().enumerate() {
            record["messageId"] = index.to_string().into();
        }
        let event = json!({ "Records": records }).to_string();
        let (answer, metrics) = self.run(&event).await.expect("an answer");
        let failures = answer["batchItemFailures"]
            .as_array()
            .expect("failures")
            .iter();
        let ids = failures.map(|f| {
            f["itemIdentifier"]
                .as_str()
                .expect("an id")
                .parse()
                .expect("a number")
        });
        (ids.collect(), metrics)
    }

    /// Runs requests of a direct caller; answers with the results.
    pub(crate) async fn direct(&self, requests: &[String]) -> Vec<Value> {
        let event = format!("{{\"messages\":[{}]}}", requests.join(","));
        let (answer, _) = self.run(&event).await.expect("an answer");
        answer["results"].as_array().expect("results").clone()
    }

    /// Runs requests for slots only; answers with the results and the metrics.
    pub(crate) async fn slots(&self, requests: &[String]) -> (Vec<Value>, Vec<Metrics>) {
        let event = format!(
            "{{\"enqueue\":false,\"messages\":[{}]}}",
            requests.join(",")
        );
        let (answer, metrics) = self.run(&event).await.expect("an answer");
        let results = answer["results"].as_array().expect("results");
        (results.clone(), metrics)
    }

    /// What is on the queue with this name, over all calls.
    pub(crate) fn on(&self, queue: &str) -> Vec<Message> {
        let calls = locked(&self.queues.calls);
        let here = calls.iter().filter(|(name, _)| name == queue);
        here.flat_map(|(_, messages)| messages.clone()).collect()
    }

    /// The envelopes on a lane's send queue.
    pub(crate) fn sent(&self, lane: Lane) -> Vec<Envelope> {
        let messages = self.on(&format!("{lane}-send"));
        messages
            .iter()
            .map(|message| Envelope::from_json(&message.body).expect("an envelope"))
            .collect()
    }

    pub(crate) fn released(&self) -> Vec<Release> {
        locked(&self.schedule.released).clone()
    }

    pub(crate) fn asked(&self) -> Vec<(Lane, Vec<Ask>)> {
        locked(&self.schedule.calls).clone()
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Takes as long as such a call takes.
async fn pass(takes: &Takes, what: &str) {
    let takes = locked(takes).get(what).copied();
    if let Some(takes) = takes {
        sleep(takes).await;
    }
}

/// A slot so far ahead of [`NOW`], all of it in one cell.
pub(crate) fn slot(delay: Millis, cost: u32) -> Booking {
    let at = NOW + delay;
    Booking::Slot(Slot {
        at,
        delay,
        cells: vec![(at.cell(), cost)],
    })
}

/// What is given back of acme's slot so far ahead of [`NOW`].
pub(crate) fn unused(delay: Millis, cost: u32) -> Unused {
    let cell = (NOW + delay).cell();
    Unused {
        tenant: "acme".parse().expect("a name"),
        goes: cell,
        cells: vec![(cell, cost)],
        slot_only: false,
    }
}

/// A valid request under this send id.
pub(crate) fn request(send_id: &str) -> Value {
    json!({
        "send_id": send_id,
        "tenant": "acme",
        "from": "Shop <shop@example.com>",
        "to": ["bob@example.com"],
        "content": { "simple": { "subject": "Hello", "text": "It is on its way." } },
    })
}

/// The same as text.
pub(crate) fn body(send_id: &str) -> String {
    request(send_id).to_string()
}

/// A request whose body is `bytes` long.
pub(crate) fn body_of(send_id: &str, bytes: usize) -> String {
    let mut request = request(send_id);
    request["content"]["simple"]["text"] = Value::from("");
    let padding = bytes - request.to_string().len();
    request["content"]["simple"]["text"] = Value::from("x".repeat(padding));
    request.to_string()
}

/// SQS doesn't take the message with this index in its call.
pub(crate) fn failed(index: usize, sender_fault: bool) -> Failed {
    Failed {
        index,
        sender_fault,
        code: "InternalError".into(),
    }
}

/// A record of a lane's intake queue.
pub(crate) fn record(lane: Lane, body: &str) -> Value {
    json!({
        "body": body,
        "attributes": { "SentTimestamp": (NOW.0 - 250).to_string() },
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": format!("arn:aws:sqs:eu-west-1:123456789012:{lane}-intake"),
    })
}

/// A record with these numbers as its message attributes.
pub(crate) fn carrying(mut record: Value, numbers: &[(&str, u64)]) -> Value {
    let attributes = numbers.iter().map(|(name, number)| {
        let value = json!({ "stringValue": number.to_string(), "dataType": "Number" });
        ((*name).to_owned(), value)
    });
    record["messageAttributes"] = Value::Object(attributes.collect());
    record
}

/// A record as SQS hands it over for the second time.
pub(crate) fn again(mut record: Value, first_received: Moment) -> Value {
    let attributes = &mut record["attributes"];
    attributes["ApproximateReceiveCount"] = "2".into();
    attributes["ApproximateFirstReceiveTimestamp"] = first_received.0.to_string().into();
    record
}

/// A copy on a queue as SQS hands it over for the first time.
pub(crate) fn back(lane: Lane, message: &Message) -> Value {
    let numbers: Vec<_> = message
        .attributes
        .iter()
        .filter_map(|attribute| match attribute.value {
            AttributeValue::Number(number) => Some((attribute.name, number)),
            AttributeValue::Text(_) => None,
        })
        .collect();
    carrying(record(lane, &message.body), &numbers)
}

/// What a message's attributes say, by name.
pub(crate) fn carried(message: &Message) -> BTreeMap<&'static str, String> {
    let names = message.attributes.iter().map(|attribute| attribute.name);
    names
        .filter_map(|name| Some((name, attribute(message, name)?)))
        .collect()
}

pub(crate) fn attribute(message: &Message, name: &str) -> Option<String> {
    let found = message
        .attributes
        .iter()
        .find(|attribute| attribute.name == name)?;
    Some(match &found.value {
        AttributeValue::Number(number) => number.to_string(),
        AttributeValue::Text(text) => text.clone(),
    })
}

fn settings(slots_only: bool, redis_down: &str, source: &str) -> ReserveSettings {
    let read = ReserveSettings::read(|name| {
        let value = match name {
            "POWERTOOLS_SERVICE_NAME" => "reserve".into(),
            "SENDSLOT_REDIS_URL" => "redis://127.0.0.1:1".into(),
            "SENDSLOT_LIMIT" => "100/s".into(),
            "SENDSLOT_TENANTS" => "acme".into(),
            "SENDSLOT_SLOTS_ONLY" => if slots_only { "on" } else { "off" }.into(),
            "SENDSLOT_REDIS_DOWN" => redis_down.into(),
            "SENDSLOT_PARKING_BUCKET" => "parked".into(),
            "SENDSLOT_BUDGET_SOURCE" => source.into(),
            // SENDSLOT_BULK_INTAKE_QUEUE_URL is the queue `bulk-intake`.
            url => {
                let name = url.strip_prefix("SENDSLOT_")?.strip_suffix("_URL")?;
                let name = name.replace("_QUEUE", "").replace('_', "-").to_lowercase();
                format!("http://sqs/000000000000/{name}")
            }
        };
        Some(value)
    });
    read.expect("settings")
}
