//! control: nobody is paused, resumed or released but who is named, by the action that does it. It works on a real Redis.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use control::{
    Control, Deadline,
    ports::{DeadLetters, Depths, Letter, Parked, ParkedMail, Removed, Schedules},
};
use redis::aio::MultiplexedConnection;
use sendslot_domain::{Lane, Moment, SendId, TenantName};
use sendslot_mail::SendRequest;
use sendslot_runtime::{
    ControlSettings, Queue,
    control::QueueStatus,
    parking::{ParkedKey, Reason},
    queue::{Failed, Message, SendBatch},
    switch::{Switch, SwitchError},
};
use sendslot_schedule::{
    Keys, Look, Schedule,
    testing::{Clocked, PrivateServer},
};
use serde_json::{Value, json};
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};

use super::{Target, outside::NOW};
use crate::weather::{Weather, locked};

/// Replay and release take nothing more on when less than 6 s are left: they have 20 ms.
const TIME: Duration = Duration::from_millis(6_020);
/// Who there is, and their configuration sets.
const TENANTS: [(&str, &str); 3] = [
    ("tenant-1", "tenant-1-set"),
    ("acme", "acme-set"),
    ("beta", "beta-set"),
];
/// Who is paused before each event.
const PAUSED: &str = "beta";

#[derive(Default)]
struct Did {
    switched: Vec<(String, bool)>,
    /// Whose mail was put on a queue.
    put: Vec<String>,
    removed: Vec<String>,
}

struct World {
    weather: Weather,
    parked: BTreeMap<String, (ParkedKey, String)>,
    did: Mutex<Did>,
}

/// What stands for the bucket, the queues and SES, event by event.
#[derive(Clone)]
struct Outside(Arc<Mutex<Arc<World>>>);

impl Outside {
    fn world(&self) -> Arc<World> {
        locked(&self.0).clone()
    }
}

impl World {
    fn did(&self) -> MutexGuard<'_, Did> {
        locked(&self.did)
    }

    /// Nothing here takes any time: the clock is a real one.
    fn fails(&self) -> Result<(), String> {
        if self.weather.fails_once_in(8) {
            return Err("status 500".to_owned());
        }
        Ok(())
    }
}

impl Parked for Outside {
    async fn tenants(&self) -> Result<Vec<TenantName>, String> {
        let world = self.world();
        world.fails()?;
        let names: BTreeSet<&TenantName> =
            world.parked.values().map(|(key, _)| &key.tenant).collect();
        Ok(names.into_iter().cloned().collect())
    }

    async fn oldest(
        &self,
        tenant: &TenantName,
        reason: Option<Reason>,
        after: Option<&ParkedKey>,
        most: usize,
    ) -> Result<Vec<ParkedKey>, String> {
        let world = self.world();
        world.fails()?;
        let after = after.map(ToString::to_string).unwrap_or_default();
        let removed = world.did().removed.clone();
        let here = world.parked.iter().filter(|(name, (key, _))| {
            key.tenant == *tenant
                && **name > after
                && reason.is_none_or(|reason| key.reason == reason)
                && !removed.contains(name)
        });
        Ok(here.take(most).map(|(_, (key, _))| key.clone()).collect())
    }

    async fn fetch(&self, key: &ParkedKey) -> Result<Option<ParkedMail>, String> {
        let world = self.world();
        world.fails()?;
        let found = world.parked.get(&key.to_string());
        Ok(found.map(|(_, body)| ParkedMail {
            body: body.clone().into_bytes(),
            tag: "1".to_owned(),
        }))
    }

    async fn remove(&self, key: &ParkedKey, _: &str) -> Result<Removed, String> {
        let world = self.world();
        world.fails()?;
        world.did().removed.push(key.to_string());
        Ok(Removed::Gone)
    }
}

impl SendBatch for Outside {
    async fn send_batch(&self, _: &Queue, messages: &[&Message]) -> Result<Vec<Failed>, String> {
        let world = self.world();
        world.fails()?;
        for message in messages {
            let envelope: Value = serde_json::from_str(&message.body).unwrap_or_default();
            let tenant = envelope["tenant"].as_str().unwrap_or_default();
            world.did().put.push(tenant.to_owned());
        }
        Ok(Vec::new())
    }
}

impl Depths for Outside {
    async fn depth(&self, _: &Queue) -> Result<QueueStatus, String> {
        self.world().fails()?;
        Ok(QueueStatus::default())
    }
}

impl DeadLetters for Outside {
    async fn receive(&self, _: &Queue, _: u16) -> Result<Vec<Letter>, String> {
        self.world().fails()?;
        Ok(Vec::new())
    }

    async fn delete(&self, _: &Queue, _: &[&str]) -> Result<Vec<usize>, String> {
        self.world().fails()?;
        Ok(Vec::new())
    }

    async fn show(&self, _: &Queue, _: &[&str]) -> Result<(), String> {
        self.world().fails()
    }
}

impl Schedules for Outside {
    async fn forget(&self, _: &TenantName, _: &SendId) -> Result<(), String> {
        self.world().fails()
    }
}

impl Switch for Outside {
    async fn switch(&self, set: &str, sending: bool) -> Result<(), SwitchError> {
        let world = self.world();
        world.did().switched.push((set.to_owned(), sending));
        if world.weather.fails_once_in(16) {
            return Err(SwitchError::Missing);
        }
        world.fails().map_err(SwitchError::Failed)
    }
}

pub(crate) struct Requests {
    runtime: Runtime,
    control: Control<Outside, Outside, Outside, Outside>,
    schedule: Schedule,
    outside: Outside,
    parked: BTreeMap<String, (ParkedKey, String)>,
    connection: MultiplexedConnection,
    /// All that Redis holds before each event.
    before: Vec<(String, Vec<u8>)>,
    /// Ends with this.
    _server: PrivateServer,
}

impl Requests {
    pub(crate) fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
        let server = PrivateServer::start();
        let outside = Outside(Arc::new(Mutex::new(world("", BTreeMap::new()))));
        let all = || outside.clone();
        let (schedule, connection, control, before) = runtime.block_on(async {
            let keys = Keys::of("test").unwrap_or_else(|error| panic!("{error}"));
            let mut clocked = Clocked::new(&server, keys).await;
            done(clocked.set(NOW).await);
            let schedule = clocked.schedule.clone();
            let control = Control::new(schedule.clone(), all(), all(), all(), all(), settings());
            set_up(&control).await;
            let before = dump(&server).await;
            (schedule, server.connection().await, control, before)
        });
        Self {
            runtime,
            control,
            schedule,
            outside,
            parked: parked(),
            connection,
            before,
            _server: server,
        }
    }
}

fn done<T, E: std::fmt::Display>(done: Result<T, E>) -> T {
    done.unwrap_or_else(|error| panic!("{error}"))
}

fn world(input: &str, parked: BTreeMap<String, (ParkedKey, String)>) -> Arc<World> {
    Arc::new(World {
        weather: Weather::of(input),
        parked,
        did: Mutex::default(),
    })
}

fn settings() -> ControlSettings {
    let read = ControlSettings::read(|name| {
        let value = match name {
            "POWERTOOLS_SERVICE_NAME" => "control",
            "SENDSLOT_REDIS_URL" => "redis://127.0.0.1:1",
            "SENDSLOT_BUDGET" => "test",
            "SENDSLOT_TENANTS" => "tenant-1=tenant-1-set,acme=acme-set,beta=beta-set",
            "SENDSLOT_PARKING_BUCKET" => "parked",
            "SENDSLOT_PRIORITY_SEND_QUEUE_URL" => "http://sqs/0/priority-send",
            "SENDSLOT_BULK_SEND_QUEUE_URL" => "http://sqs/0/bulk-send",
            "SENDSLOT_PRIORITY_INTAKE_QUEUE_URL" => "http://sqs/0/priority-intake",
            "SENDSLOT_BULK_INTAKE_QUEUE_URL" => "http://sqs/0/bulk-intake",
            "SENDSLOT_PRIORITY_INTAKE_DLQ_URL" => "http://sqs/0/priority-intake-dlq",
            "SENDSLOT_BULK_INTAKE_DLQ_URL" => "http://sqs/0/bulk-intake-dlq",
            "SENDSLOT_PRIORITY_SEND_DLQ_URL" => "http://sqs/0/priority-send-dlq",
            "SENDSLOT_BULK_SEND_DLQ_URL" => "http://sqs/0/bulk-send-dlq",
            _ => return None,
        };
        Some(value.to_owned())
    });
    done(read)
}

/// A healthy account, no tenants but the deployed ones, and one of them paused.
async fn set_up(control: &Control<Outside, Outside, Outside, Outside>) {
    let account = json!({
        "max_send_rate": 100.0, "max_24_hour_send": 1_000_000.0, "sent_last_24_hours": 0.0,
        "sending_enabled": true, "enforcement": "HEALTHY", "production": true,
    });
    let sets: Vec<Value> = TENANTS
        .iter()
        .map(|(_, set)| json!({ "set": set, "sending": true }))
        .collect();
    for request in [
        json!({ "action": "refresh", "account": account, "tenants": [] }),
        json!({ "action": "refresh", "sets": sets, "final": true }),
        json!({ "action": "pause", "tenant": PAUSED, "reason": "before", "switched": true }),
    ] {
        let (answer, _) = control.handle(&request.to_string(), deadline()).await;
        assert_eq!(answer.get("error"), None, "{request}");
    }
}

async fn dump(server: &PrivateServer) -> Vec<(String, Vec<u8>)> {
    let keys: Vec<String> = server.run(&["KEYS", "*"]).await;
    let mut all = Vec::new();
    for key in keys {
        let value = server.run(&["DUMP", &key]).await;
        all.push((key, value));
    }
    all
}

/// One mail of each tenant for each reason, and one that has expired.
fn parked() -> BTreeMap<String, (ParkedKey, String)> {
    let mut all = BTreeMap::new();
    for (tenant, _) in TENANTS {
        let day = 86_400_000;
        for (reason, age) in [
            (Reason::Paused, 1_000),
            (Reason::Uncertain, 1_000),
            (Reason::Paused, 90 * day),
        ] {
            let send_id = format!("m-{}-{age}", reason.as_str());
            let request = json!({
                "send_id": send_id, "tenant": tenant, "from": "shop@example.com", "to": ["bob@example.com"],
                "content": { "simple": { "subject": "Hello", "text": "Hi" } },
            });
            let request = done(SendRequest::parse(&request.to_string(), NOW));
            let first_seen = Moment(NOW.0 - age);
            let key = ParkedKey {
                tenant: request.tenant.clone(),
                first_seen,
                reason,
                lane: Lane::Bulk,
                send_id: request.send_id.clone(),
            };
            let envelope = request.into_envelope(Lane::Bulk, NOW, Vec::new(), first_seen);
            let body = done(envelope.to_json());
            all.insert(key.to_string(), (key, body));
        }
    }
    all
}

fn deadline() -> Deadline {
    Deadline::at(Instant::now() + TIME)
}

impl Target for Requests {
    fn run(&mut self, input: &str) -> &'static str {
        // The runtime hands it JSON.
        let Ok(request) = serde_json::from_str::<Value>(input) else {
            return "no JSON";
        };
        let world = world(input, self.parked.clone());
        *locked(&self.outside.0) = world.clone();
        let (answer, look) = self.runtime.block_on(async {
            let mut restore = redis::pipe();
            restore.cmd("FLUSHALL").ignore();
            for (key, value) in &self.before {
                restore.cmd("RESTORE").arg(key).arg(0).arg(value).ignore();
            }
            done(restore.query_async::<()>(&mut self.connection).await);
            let (answer, _) = self.control.handle(input, deadline()).await;
            (answer, done(self.schedule.look().await))
        });
        check(&request, &look, &world.did());
        let is_done = answer.get("error").is_none();
        let known = [
            "refresh", "pause", "resume", "replay", "release", "suppress", "status", "find",
            "cancel", "redrive",
        ];
        let action = known.into_iter().find(|known| request["action"] == **known);
        assert!(action.is_some() || !is_done, "an answer to no request");
        match (action, is_done) {
            (Some(action), true) => action,
            (Some(_), false) => "refused",
            (None, _) => "no request",
        }
    }
}

/// What a request may do, by its fields, whatever else is in it.
fn check(request: &Value, look: &Look, did: &Did) {
    let action = request["action"].as_str().unwrap_or_default();
    let tenant = request["tenant"].as_str().unwrap_or_default();
    let set = request["configuration_set"].as_str().unwrap_or_default();
    let for_good = look.paused.iter().filter(|pause| pause.until.is_none());
    let paused: BTreeSet<&str> = for_good.map(|pause| pause.tenant.as_str()).collect();

    for name in paused.iter().filter(|name| **name != PAUSED) {
        let (_, its) = TENANTS
            .iter()
            .find(|(known, _)| known == name)
            .unwrap_or(&("", ""));
        let may = match action {
            // Unless somebody else is told to be paused, it is who is named.
            "pause" => !its.is_empty() && (tenant == *name || tenant.is_empty() && set == *its),
            // A set that may not send pauses its tenant.
            "refresh" => request["sets"].is_array(),
            _ => false,
        };
        assert!(may, "a wrong pause of {name:?}");
    }
    let resumed = !paused.contains(PAUSED);
    let may = action == "resume" && tenant == PAUSED;
    assert!(may || !resumed, "a wrong resume");
    let blocks = match action {
        "pause" => request["account"] == true,
        "refresh" => request["account"].is_object(),
        _ => false,
    };
    assert!(blocks || look.blocked().is_none(), "nobody sends");

    for (switched, sending) in &did.switched {
        let whose = TENANTS.iter().find(|(_, its)| its == switched);
        let (name, its) = whose.unwrap_or_else(|| panic!("a foreign set {switched:?}"));
        let may = match action {
            "pause" => !sending && (tenant == *name || set == *its),
            "resume" => *sending && tenant == *name,
            _ => false,
        };
        assert!(may, "a wrong switch of {switched:?}");
    }
    let releases = matches!(action, "release" | "replay");
    // A replay that names nobody is of all; nobody's who is paused goes by itself.
    let is_of_all = action == "replay" && request["tenant"].is_null();
    for name in &did.put {
        let may = releases && (tenant == name || is_of_all);
        assert!(may, "a wrong release of {name:?}");
        assert!(
            action == "release" || name != PAUSED,
            "who is paused is replayed"
        );
    }
    assert!(releases || did.removed.is_empty(), "mail was removed");
}

#[cfg(test)]
mod tests {
    use sendslot_schedule::Pause;

    use super::*;

    /// Paused then, besides nothing else.
    fn look(paused: &[&str]) -> Look {
        let pause = |name: &&str| Pause {
            tenant: name.parse().unwrap(),
            until: None,
            since: NOW,
            reason: String::new(),
        };
        Look {
            now: NOW,
            paused: paused.iter().map(pause).collect(),
            ..Look::default()
        }
    }

    fn is_right(request: &Value, paused: &[&str], did: Did) -> bool {
        std::panic::catch_unwind(move || check(request, &look(paused), &did)).is_ok()
    }

    #[test]
    fn whoever_is_paused_or_resumed_is_named() {
        let all = [PAUSED, "acme"];
        for (request, paused, right) in [
            (
                json!({ "action": "pause", "tenant": "acme" }),
                &all[..],
                true,
            ),
            (
                json!({ "action": "pause", "configuration_set": "acme-set" }),
                &all,
                true,
            ),
            (
                json!({ "action": "pause", "tenant": "tenant-1" }),
                &all,
                false,
            ),
            (
                json!({ "action": "pause", "configuration_set": "beta-set" }),
                &all,
                false,
            ),
            (json!({ "action": "status", "tenant": "acme" }), &all, false),
            (json!(["pause", "acme"]), &all, false),
            (json!({ "action": "resume", "tenant": PAUSED }), &[], true),
            (json!({ "action": "resume", "tenant": "acme" }), &[], false),
            (json!({ "action": "pause", "tenant": PAUSED }), &[], false),
        ] {
            assert_eq!(
                is_right(&request, paused, Did::default()),
                right,
                "{request}"
            );
        }
    }

    #[test]
    fn whose_mail_goes_or_whose_set_is_switched_is_named() {
        let put = |name: &str| Did {
            put: vec![name.to_owned()],
            ..Did::default()
        };
        let switched = |sending| Did {
            switched: vec![("acme-set".to_owned(), sending)],
            ..Did::default()
        };
        for (request, did, right) in [
            (
                json!({ "action": "release", "tenant": PAUSED }),
                put(PAUSED),
                true,
            ),
            (
                json!({ "action": "release", "tenant": PAUSED }),
                put("acme"),
                false,
            ),
            (json!({ "action": "replay" }), put("acme"), true),
            (json!({ "action": "replay" }), put(PAUSED), false),
            (
                json!({ "action": "replay", "tenant": "tenant-1" }),
                put("acme"),
                false,
            ),
            (json!({ "action": "status" }), put("acme"), false),
            (
                json!({ "action": "pause", "tenant": "acme" }),
                switched(false),
                true,
            ),
            (
                json!({ "action": "pause", "tenant": "acme" }),
                switched(true),
                false,
            ),
            (
                json!({ "action": "resume", "tenant": "acme" }),
                switched(true),
                true,
            ),
            (
                json!({ "action": "resume", "tenant": "tenant-1" }),
                switched(true),
                false,
            ),
        ] {
            assert_eq!(is_right(&request, &[PAUSED], did), right, "{request}");
        }
    }
}
