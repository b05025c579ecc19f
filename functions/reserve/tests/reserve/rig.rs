//! A schedule and queues that are kept in memory, and a function that works on them.

use std::sync::{Mutex, MutexGuard};

use reserve::{Answer, Event, HandlerError, Reserve, ports::Book};
use sendslot_domain::{Lane, Millis, Moment};
use sendslot_mail::Envelope;
use sendslot_runtime::{
    Metrics, Queue, ReserveSettings,
    queue::{Failed, Message, SendBatch, Value as AttributeValue},
};
use sendslot_schedule::{Ask, Booking, ScheduleError, Slot, Unused};
use serde_json::{Value, json};

type Booked = dyn Fn(usize, Lane, &Ask) -> Booking + Send + Sync;
type Sent = dyn Fn(&str, usize, &[&Message]) -> Result<Vec<Failed>, String> + Send + Sync;
/// One release: its lane, and the slots.
pub(crate) type Release = (Lane, Vec<Unused>);

/// The moment of every test: 2026-11-30 17:30 UTC.
pub(crate) const NOW: Moment = Moment(1_796_059_800_000);

/// Decides each booking by a function of its number and its ask.
pub(crate) struct FakeSchedule {
    answer: Box<Booked>,
    /// The lanes that can't be booked.
    pub(crate) down: Mutex<Vec<Lane>>,
    /// The asks of each call.
    pub(crate) calls: Mutex<Vec<(Lane, Vec<Ask>)>>,
    /// What was released.
    pub(crate) released: Mutex<Vec<Release>>,
}

impl Book for &FakeSchedule {
    async fn book(&self, lane: Lane, asks: &[Ask]) -> Result<Vec<Booking>, ScheduleError> {
        if locked(&self.down).contains(&lane) {
            return Err(ScheduleError::NoBudget("{ses}".into()));
        }
        let mut calls = locked(&self.calls);
        let before: usize = calls.iter().map(|(_, asks)| asks.len()).sum();
        calls.push((lane, asks.to_vec()));
        let answers = asks.iter().enumerate();
        Ok(answers
            .map(|(index, ask)| (self.answer)(before + index, lane, ask))
            .collect())
    }

    async fn release(&self, lane: Lane, unused: &[Unused]) -> Result<(), ScheduleError> {
        locked(&self.released).push((lane, unused.to_vec()));
        Ok(())
    }
}

/// Keeps what each call was given. Answers by a function of queue, call number and messages.
pub(crate) struct FakeQueues {
    answer: Box<Sent>,
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
        let mut calls = locked(&self.calls);
        let number = calls.len();
        let kept = messages.iter().map(|message| (*message).clone()).collect();
        calls.push((queue.name().to_owned(), kept));
        (self.answer)(queue.name(), number, messages)
    }
}

/// A function with its fakes.
pub(crate) struct Rig {
    pub(crate) schedule: FakeSchedule,
    pub(crate) queues: FakeQueues,
    slots_only: bool,
}

impl Rig {
    /// Every message is booked a second ahead of the one before, beginning in a second.
    pub(crate) fn new() -> Self {
        Self {
            schedule: FakeSchedule {
                answer: Box::new(|number, _, ask| {
                    slot(Millis::from_secs(number as u64 + 1), ask.cost)
                }),
                down: Mutex::default(),
                calls: Mutex::default(),
                released: Mutex::default(),
            },
            queues: FakeQueues {
                answer: Box::new(|_, _, _| Ok(Vec::new())),
                calls: Mutex::default(),
            },
            slots_only: true,
        }
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
        let settings = settings(self.slots_only);
        let reserve = Reserve::new(&self.schedule, &self.queues, settings);
        let (answer, metrics): (Answer, _) = reserve.handle(event, NOW).await?;
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

fn settings(slots_only: bool) -> ReserveSettings {
    let read = ReserveSettings::read(|name| {
        let value = match name {
            "POWERTOOLS_SERVICE_NAME" => "reserve".into(),
            "SENDSLOT_REDIS_URL" => "redis://127.0.0.1:1".into(),
            "SENDSLOT_LIMIT" => "100/s".into(),
            "SENDSLOT_TENANTS" => "acme".into(),
            "SENDSLOT_SLOTS_ONLY" => if slots_only { "on" } else { "off" }.into(),
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
