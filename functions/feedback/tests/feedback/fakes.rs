//! Everything outside a batch: it counts as Redis would, answers as a test says and writes down what it was asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use feedback::{
    Feedback,
    ports::{Events, Pauses},
};
use sendslot_domain::{Millis, Moment, TenantName, reputation::Counts};
use sendslot_runtime::{
    AskTenants, FeedbackSettings, Metrics,
    switch::{Switch, SwitchError},
};
use sendslot_schedule::{Counted, Fed, ScheduleError, Told};
use serde_json::{Value, json};
use tokio::time::sleep;

/// 2026-11-30 17:30:02 UTC: two seconds after the mail of [`body`] was sent.
pub(crate) const NOW: Moment = Moment(1_796_059_802_000);
const HANGS: Duration = Duration::from_hours(24);

#[derive(Default)]
pub(crate) struct World {
    /// Calls that fail: "tenants", "feed", "paused", "pause", "switch"; with "hangs-" before, those that never answer.
    pub(crate) fails: BTreeSet<String>,
    /// Settings of tenants, as JSON.
    pub(crate) tenants: BTreeMap<&'static str, String>,
    pub(crate) counts: BTreeMap<TenantName, Counts>,
    pub(crate) paused: BTreeSet<TenantName>,
    seen: BTreeSet<String>,
    /// What was taken in, batch by batch.
    pub(crate) fed: Vec<Vec<Fed>>,
    pub(crate) pauses: Vec<(String, String)>,
    pub(crate) switched: Vec<(String, bool)>,
}

#[derive(Clone)]
pub(crate) struct Fake(Arc<Mutex<World>>);

impl Fake {
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    async fn call(&self, name: &str) -> Result<(), ScheduleError> {
        let (fails, hangs) = {
            let fails = &self.world().fails;
            (
                fails.contains(name),
                fails.contains(&format!("hangs-{name}")),
            )
        };
        if hangs {
            sleep(HANGS).await;
        }
        if fails {
            return Err(ScheduleError::NoBudget("test".to_owned()));
        }
        Ok(())
    }
}

impl Events for Fake {
    async fn feed(
        &self,
        _: Millis,
        events: &[Fed],
    ) -> Result<Vec<(bool, Option<Counted>)>, ScheduleError> {
        self.call("feed").await?;
        let mut world = self.world();
        world.fed.push(events.to_vec());
        let mut new = Vec::new();
        for event in events {
            let is_new = world.seen.insert(event.id.clone());
            new.push(is_new);
            let counts = world.counts.entry(event.tenant.clone()).or_default();
            let more = if is_new { event.recipients.into() } else { 0 };
            match event.told {
                Told::Sent => counts.sent += more,
                Told::Bounced => counts.bounced += more,
                Told::Complained => counts.complained += more,
                Told::Else => {}
            }
        }
        let sums = |event: &Fed| {
            let of = world.counts[&event.tenant];
            let (hour, day) = (of, of);
            matches!(event.told, Told::Bounced | Told::Complained).then_some(Counted { hour, day })
        };
        let answers = new.into_iter().zip(events);
        Ok(answers.map(|(is_new, of)| (is_new, sums(of))).collect())
    }
}

impl Pauses for Fake {
    async fn paused(&self) -> Result<Vec<TenantName>, ScheduleError> {
        self.call("paused").await?;
        Ok(self.world().paused.iter().cloned().collect())
    }

    async fn pause(&self, tenant: &TenantName, reason: &str) -> Result<(), ScheduleError> {
        self.call("pause").await?;
        let mut world = self.world();
        world.paused.insert(tenant.clone());
        world.pauses.push((tenant.to_string(), reason.to_owned()));
        Ok(())
    }
}

impl AskTenants for Fake {
    async fn tenants(&self, names: &[TenantName]) -> Result<Vec<Option<String>>, ScheduleError> {
        self.call("tenants").await?;
        let world = self.world();
        let of = |name: &TenantName| world.tenants.get(name.as_str()).cloned();
        Ok(names.iter().map(of).collect())
    }
}

impl Switch for Fake {
    async fn switch(&self, set: &str, sending: bool) -> Result<(), SwitchError> {
        let failed = self.call("switch").await;
        failed.map_err(|_| SwitchError::Failed("refused".to_owned()))?;
        self.world().switched.push((set.to_owned(), sending));
        Ok(())
    }
}

/// The function on fakes.
pub(crate) struct Rig {
    pub(crate) fake: Fake,
    pub(crate) feedback: Feedback<Fake, Fake>,
}

/// What became of a batch.
pub(crate) struct Handled {
    /// The messages that come back.
    pub(crate) back: Vec<String>,
    pub(crate) metrics: Metrics,
}

impl Handled {
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.metrics.get(name).unwrap_or(u64::MAX)
    }
}

impl Rig {
    pub(crate) fn new() -> Self {
        let set = r#"{"configuration_set":"tenant-1-set"}"#;
        let world = World {
            tenants: BTreeMap::from([("tenant-1", set.to_owned()), ("tenant-2", "{}".to_owned())]),
            ..World::default()
        };
        let fake = Fake(Arc::new(Mutex::new(world)));
        let feedback = Feedback::new(fake.clone(), fake.clone(), settings());
        Self { fake, feedback }
    }

    pub(crate) fn fail(&self, calls: &[&str]) {
        self.fake.world().fails = calls.iter().map(|&call| call.to_owned()).collect();
    }

    /// A tenant has sent to so many, of whom some bounced and some complained.
    pub(crate) fn had(&self, name: &str, sent: u64, bounced: u64, complained: u64) {
        let counts = Counts {
            sent,
            bounced,
            complained,
        };
        self.fake.world().counts.insert(tenant(name), counts);
    }

    pub(crate) async fn run(&self, bodies: &[String]) -> Handled {
        self.handle(batch(bodies)).await
    }

    pub(crate) async fn handle(&self, event: SqsEvent) -> Handled {
        let (response, metrics) = self.feedback.handle(event, NOW).await;
        let back = response.batch_item_failures.into_iter();
        Handled {
            back: back.map(|failure| failure.item_identifier).collect(),
            metrics,
        }
    }
}

pub(crate) fn settings() -> FeedbackSettings {
    let read = FeedbackSettings::read(|name| match name {
        "POWERTOOLS_SERVICE_NAME" => Some("feedback".to_owned()),
        "SENDSLOT_REDIS_URL" => Some("redis://127.0.0.1:6379".to_owned()),
        _ => None,
    });
    read.unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn tenant(name: &str) -> TenantName {
    name.parse().unwrap()
}

/// Messages with these bodies, named by their place: "0", "1", …
pub(crate) fn batch(bodies: &[String]) -> SqsEvent {
    let records = bodies.iter().enumerate().map(|(place, body)| {
        let mut message = SqsMessage::default();
        message.message_id = Some(place.to_string());
        message.body = Some(body.clone());
        message
    });
    let mut event = SqsEvent::default();
    event.records = records.collect();
    event
}

/// An event of a mail of tenant and send id to two recipients, with its own object under `own`.
pub(crate) fn event(tenant: &str, send_id: &str, name: &str, own: &str, object: &Value) -> Value {
    json!({
        "source": "aws.ses",
        "time": "2026-11-30T17:30:01Z",
        "detail": {
            "eventType": name,
            "mail": {
                "timestamp": "2026-11-30T17:30:00.012Z",
                "messageId": format!("m-{send_id}"),
                "destination": ["Ann@example.com", "bob@example.com"],
                "tags": {"tenant": [tenant], "send_id": [send_id], "lane": ["bulk"]},
            },
            own: object,
        },
    })
}

pub(crate) fn sent(tenant: &str, send_id: &str) -> String {
    event(tenant, send_id, "Send", "send", &json!({})).to_string()
}

/// A bounce of one recipient.
pub(crate) fn bounce(tenant: &str, send_id: &str, kind: &str, sub_type: &str) -> String {
    let object = json!({
        "feedbackId": format!("f-{send_id}"), "bounceType": kind, "bounceSubType": sub_type,
        "bouncedRecipients": [{"emailAddress": "ann@example.com"}],
    });
    event(tenant, send_id, "Bounce", "bounce", &object).to_string()
}

pub(crate) fn complaint(tenant: &str, send_id: &str, more: &Value) -> String {
    let mut object = json!({
        "feedbackId": format!("c-{send_id}"), "complaintFeedbackType": "abuse",
        "complainedRecipients": [{"emailAddress": "ann@example.com"}, {"emailAddress": "bob@example.com"}],
    });
    for (name, value) in more.as_object().unwrap() {
        object[name] = value.clone();
    }
    event(tenant, send_id, "Complaint", "complaint", &object).to_string()
}
