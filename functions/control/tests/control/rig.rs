//! A server, a clock, and the function on them.

use std::{collections::BTreeMap, time::Duration};

use control::{Control, Deadline};
use sendslot_domain::{Lane, Millis, Moment, TenantName};
use sendslot_runtime::{ControlSettings, Metrics, TenantSettings};
use sendslot_schedule::{
    Ask, Booking, Claim, ClaimAsk, Keys, Purpose, Schedule, ScheduleError, Standing, Terms,
    testing::{Clocked, PrivateServer},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fakes::{Diary, FakeBucket, FakeQueues, FakeSchedules, FakeSets};

/// When every test begins: 2026-11-30 17:30 UTC.
pub(crate) const START: Moment = Moment(1_796_059_800_000);
pub(crate) const MINUTE: Millis = Millis::from_secs(60);

pub(crate) struct Rig {
    pub(crate) server: PrivateServer,
    clocked: Clocked,
    pub(crate) control: Control<FakeQueues, FakeBucket, FakeSets, FakeSchedules>,
    pub(crate) queues: FakeQueues,
    pub(crate) bucket: FakeBucket,
    pub(crate) sets: FakeSets,
    pub(crate) schedules: FakeSchedules,
    pub(crate) diary: Diary,
    pub(crate) now: Moment,
    claims: usize,
    pub(crate) metrics: Option<Metrics>,
    /// Whether Redis has been told who has parameters: where a test says nothing of them, nobody has.
    tenants_told: bool,
}

/// Settings of a deployment without a limit, with two tenants of which one has a configuration set, changed so.
pub(crate) fn settings(changes: &[(&str, &str)]) -> ControlSettings {
    let set = [
        ("POWERTOOLS_SERVICE_NAME", "control"),
        ("SENDSLOT_REDIS_URL", "redis://127.0.0.1:6379"),
        ("SENDSLOT_BUDGET", "test"),
        ("SENDSLOT_TENANTS", "acme,beta"),
        ("SENDSLOT_SLICE", "0"),
        ("SENDSLOT_PARKING_BUCKET", "parked"),
        (
            "SENDSLOT_PRIORITY_SEND_QUEUE_URL",
            "http://sqs/0/priority-send",
        ),
        ("SENDSLOT_BULK_SEND_QUEUE_URL", "http://sqs/0/bulk-send"),
        (
            "SENDSLOT_PRIORITY_INTAKE_QUEUE_URL",
            "http://sqs/0/priority-intake",
        ),
        ("SENDSLOT_BULK_INTAKE_QUEUE_URL", "http://sqs/0/bulk-intake"),
        (
            "SENDSLOT_PRIORITY_INTAKE_DLQ_URL",
            "http://sqs/0/priority-intake-dlq",
        ),
        (
            "SENDSLOT_BULK_INTAKE_DLQ_URL",
            "http://sqs/0/bulk-intake-dlq",
        ),
        (
            "SENDSLOT_PRIORITY_SEND_DLQ_URL",
            "http://sqs/0/priority-send-dlq",
        ),
        ("SENDSLOT_BULK_SEND_DLQ_URL", "http://sqs/0/bulk-send-dlq"),
    ];
    let read = ControlSettings::read(|name| {
        let found = changes.iter().chain(&set).find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    });
    read.unwrap_or_else(|error| panic!("{error}"))
}

/// What a healthy account says.
pub(crate) fn account(rate: f64, quota: f64, sent: u64) -> Value {
    json!({
        "max_send_rate": rate, "max_24_hour_send": quota, "sent_last_24_hours": sent,
        "sending_enabled": true, "enforcement": "HEALTHY", "production": true,
    })
}

/// An invocation has so much time.
pub(crate) fn within(time: Millis) -> Deadline {
    Deadline::at(Instant::now() + Duration::from_millis(time.0))
}

pub(crate) fn tenant(name: &str) -> TenantName {
    name.parse().unwrap()
}

impl Rig {
    pub(crate) async fn new(changes: &[(&str, &str)]) -> Self {
        let server = PrivateServer::start();
        let mut clocked = Clocked::new(&server, Keys::of("test").unwrap()).await;
        clocked.set(START).await.unwrap();
        let diary = Diary::default();
        let (queues, bucket, sets) = (
            FakeQueues::new(&diary),
            FakeBucket::new(&diary),
            FakeSets::new(&diary),
        );
        let schedules = FakeSchedules::default();
        let control = Control::new(
            clocked.schedule.clone(),
            queues.clone(),
            bucket.clone(),
            sets.clone(),
            schedules.clone(),
            settings(changes),
        );
        Self {
            server,
            clocked,
            control,
            queues,
            bucket,
            sets,
            schedules,
            diary,
            now: START,
            claims: 0,
            metrics: None,
            tenants_told: false,
        }
    }

    pub(crate) fn schedule(&self) -> &Schedule {
        &self.clocked.schedule
    }

    /// The same Redis after a deployment with other settings.
    pub(crate) fn redeploy(&mut self, changes: &[(&str, &str)]) {
        self.control = self.on(self.clocked.schedule.clone(), changes);
    }

    /// The function on this schedule, with the same fakes.
    pub(crate) fn on(
        &self,
        schedule: Schedule,
        changes: &[(&str, &str)],
    ) -> Control<FakeQueues, FakeBucket, FakeSets, FakeSchedules> {
        let (queues, bucket) = (self.queues.clone(), self.bucket.clone());
        Control::new(
            schedule,
            queues,
            bucket,
            self.sets.clone(),
            self.schedules.clone(),
            settings(changes),
        )
    }

    /// The function with these queues in place of its own.
    pub(crate) fn with_queues(
        &self,
        queues: FakeQueues,
    ) -> Control<FakeQueues, FakeBucket, FakeSets, FakeSchedules> {
        Control::new(
            self.clocked.schedule.clone(),
            queues,
            self.bucket.clone(),
            self.sets.clone(),
            self.schedules.clone(),
            settings(&[]),
        )
    }

    /// What is answered, and what is metered.
    pub(crate) async fn handle(&self, request: &str) -> (Value, Option<Metrics>) {
        self.control.handle(request, within(MINUTE)).await
    }

    pub(crate) async fn pass(&mut self, time: Millis) {
        self.now = self.now + time;
        self.clocked.set(self.now).await.unwrap();
    }

    /// Redis loses everything but the clock.
    pub(crate) async fn flush(&mut self) {
        self.clocked.flush().await.unwrap();
        self.tenants_told = false;
        self.clocked.set(self.now).await.unwrap();
    }

    /// Asks, and has an answer that isn't an error.
    pub(crate) async fn ask(&mut self, request: Value) -> Value {
        let (answer, metrics) = self.handle(&request.to_string()).await;
        assert_eq!(answer.get("error"), None, "{request}");
        self.metrics = metrics;
        answer
    }

    /// A refresh with these fields.
    pub(crate) async fn refresh(&mut self, fields: Value) -> Value {
        let mut request = json!({ "action": "refresh", "caller": "test" });
        if !self.tenants_told {
            request["tenants"] = json!([]);
            self.tenants_told = true;
        }
        for (name, value) in fields.as_object().unwrap() {
            request[name] = value.clone();
        }
        self.ask(request).await
    }

    /// A refresh a minute later, with this account.
    pub(crate) async fn follow(&mut self, account: Value) -> Value {
        self.pass(MINUTE).await;
        self.refresh(json!({ "account": account })).await
    }

    /// A metric of the last refresh.
    pub(crate) fn metric(&self, name: &str) -> Value {
        let line = self.metrics.as_ref().and_then(|metrics| metrics.line(0));
        let line: Value = serde_json::from_str(&line.expect("metrics")).unwrap();
        assert_eq!(
            line["_aws"]["CloudWatchMetrics"][0]["Dimensions"],
            json!([["service"]])
        );
        line.get(name).cloned().unwrap_or_default()
    }

    /// A hash in Redis, bytes as they are.
    pub(crate) async fn hash(&self, key: &str) -> BTreeMap<String, Vec<u8>> {
        self.server
            .run(&["HGETALL", &format!("sendslot:{{test}}:{key}")])
            .await
    }

    /// All that Redis holds but the clock, by key.
    pub(crate) async fn everything(&self) -> BTreeMap<String, Vec<u8>> {
        let keys: Vec<String> = self.server.run(&["KEYS", "sendslot:{test}:*"]).await;
        let mut all = BTreeMap::new();
        for key in keys.into_iter().filter(|key| !key.ends_with(":clock")) {
            let value = self.server.run(&["DUMP", &key]).await;
            all.insert(key, value);
        }
        all
    }

    /// A tenant's settings as the other functions read them; nothing if nobody knows it.
    pub(crate) async fn told(&self, name: &str) -> Option<TenantSettings> {
        let told = self.schedule().tenants(&[tenant(name)]).await.unwrap();
        let told = told.into_iter().next().unwrap();
        told.map(|told| TenantSettings::from_json(&told).unwrap())
    }

    /// One key is gone.
    pub(crate) async fn lose(&self, key: &str) {
        let key = format!("sendslot:{{test}}:{key}");
        let lost: u64 = self.server.run(&["DEL", &key]).await;
        assert_eq!(lost, 1);
    }

    /// A word of the budget in Redis.
    pub(crate) async fn word(&self, field: &str) -> String {
        let value = self.hash("budget").await.remove(field);
        value.map_or_else(String::new, |value| String::from_utf8(value).unwrap())
    }

    /// Limit, day's quota and source as Redis holds them.
    pub(crate) async fn budget(&self) -> [String; 3] {
        [
            self.word("limit").await,
            self.word("daily_quota").await,
            self.word("source").await,
        ]
    }

    pub(crate) async fn try_book(
        &self,
        name: &str,
        count: usize,
    ) -> Result<Vec<Booking>, ScheduleError> {
        let ask = Ask {
            tenant: tenant(name),
            cost: 1,
            standing: Standing::New,
        };
        self.schedule()
            .book(Lane::Priority, &vec![ask; count])
            .await
    }

    /// How many of so many single mails have a slot within the horizon of a minute.
    pub(crate) async fn booked(&self, name: &str, count: usize) -> usize {
        let bookings = self.try_book(name, count).await.unwrap();
        let has_slot = |booking: &&Booking| matches!(booking, Booking::Slot(_));
        bookings.iter().filter(has_slot).count()
    }

    /// The same for bookings that nothing booked before stands in the way of: what the budget as Redis holds it gives out.
    pub(crate) async fn booked_anew(&self, name: &str, count: usize) -> usize {
        for key in [
            "schedule",
            "ends:priority",
            "asked:priority",
            &format!("tenant:{name}"),
        ] {
            let key = format!("sendslot:{{test}}:{key}");
            let _removed: usize = self.server.run(&["DEL", &key]).await;
        }
        self.booked(name, count).await
    }

    /// One claim of a mail that is due.
    pub(crate) async fn claim(&mut self, name: &str, cost: u32) -> Claim {
        self.claims += 1;
        let ask = ClaimAsk {
            tenant: tenant(name),
            send_id: format!("m-{}", self.claims).parse().unwrap(),
            fingerprint: "f".into(),
            cost,
            slot: self.now,
            suspect_since: None,
            void: None,
            purpose: Purpose::Send,
        };
        let terms = Terms {
            lane: Lane::Priority,
            lease: MINUTE,
            longest_wait: Millis::from_secs(3),
            memory: Millis::from_secs(86_400),
            resend_after: None,
        };
        let claims = self.schedule().claim("worker", terms, &[ask]).await;
        claims.unwrap().remove(0)
    }

    /// Sends to so many recipients at ten a second through the schedule; time passes.
    pub(crate) async fn send(&mut self, recipients: u32) {
        for _ in 0..recipients / 10 {
            let claim = self.claim("acme", 10).await;
            assert!(matches!(claim, Claim::Go { .. }), "{claim:?}");
            self.pass(Millis::from_secs(1)).await;
        }
    }
}
