//! An outside that answers as told, hangs or panics where told, and keeps what it was asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    future::pending,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use auto_pause::{
    Handler, Settings,
    handler::Unfinished,
    ports::{Account, Alarms, CallError, Control, Described, Notify, Readings},
    settings::Topic,
};
use sendslot_runtime::{
    Metrics,
    switch::{Switch, SwitchError},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// How long a call takes that doesn't hang.
pub(crate) const LATENCY: Duration = Duration::from_millis(80);
/// The function's timeout as deployed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:sendslot-reputation";
pub(crate) const PEOPLE: &str = "arn:aws:sns:eu-west-1:123456789012:ops";
/// The alarms of the sample events.
pub(crate) const BOUNCES: &str = "sendslot-acme-bounces";
pub(crate) const COMPLAINTS: &str = "sendslot-acme-complaints";
pub(crate) const ACCOUNT: &str = "sendslot-account-bounces";
/// 2026-11-30T12:10:43Z
pub(crate) const SINCE_MS: u64 = 1_796_040_643_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Port {
    Alarm,
    Reading,
    Control,
    Switch,
    Stop,
    Notify,
}

impl Port {
    pub(crate) const ALL: [Self; 6] = [
        Self::Alarm,
        Self::Reading,
        Self::Control,
        Self::Switch,
        Self::Stop,
        Self::Notify,
    ];
}

/// What was asked for: the metric, its dimensions, the period and the window.
pub(crate) type Reading = (String, Vec<(String, String)>, Duration, Duration);

/// What it answers, and what it was asked.
pub(crate) struct State {
    /// Calls there hang, if they name this (or anything, if this is nothing).
    pub(crate) hangs: BTreeSet<(Port, &'static str)>,
    pub(crate) panics: Option<(Port, &'static str)>,
    pub(crate) alarms: BTreeMap<&'static str, Described>,
    pub(crate) alarm_fails: Option<CallError>,
    /// By metric.
    pub(crate) highest: BTreeMap<&'static str, Result<Option<f64>, CallError>>,
    pub(crate) control: Result<Value, CallError>,
    pub(crate) switch: Result<(), SwitchError>,
    pub(crate) stop: Result<(), CallError>,
    pub(crate) notify: Result<(), CallError>,
    /// What was called, in order.
    pub(crate) calls: Vec<Port>,
    pub(crate) read: Vec<Reading>,
    pub(crate) asked: Vec<Value>,
    pub(crate) switched: Vec<(String, bool)>,
    pub(crate) told: Vec<(String, String, String)>,
}

#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

/// What came of an invocation.
pub(crate) struct Handled {
    pub(crate) answer: Result<Value, Unfinished>,
    pub(crate) metrics: Metrics,
    pub(crate) took: Duration,
}

impl Handled {
    /// `TenantsPaused`, `NotSwitched`, `NotConfirmed`, `Ignored`, `AccountPaused`: all of them are always counted.
    pub(crate) fn counts(&self) -> [u64; 5] {
        [
            "TenantsPaused",
            "NotSwitched",
            "NotConfirmed",
            "Ignored",
            "AccountPaused",
        ]
        .map(|name| self.metrics.get(name).unwrap())
    }

    /// What the messages came to, in order.
    pub(crate) fn outcomes(&self) -> Vec<String> {
        let answer = self.answer.as_ref().unwrap();
        let messages = answer["messages"].as_array().unwrap().iter();
        messages
            .map(|message| message["outcome"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Why the first one changed nothing.
    pub(crate) fn why(&self) -> String {
        let answer = self.answer.as_ref().unwrap();
        answer["messages"][0]["why"].as_str().unwrap().to_owned()
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        self.answer.as_ref().unwrap_err().why.clone()
    }
}

pub(crate) fn call_error(code: &str) -> CallError {
    CallError::new(code, "why")
}

/// An alarm as CloudWatch has it; those of the sample events.
pub(crate) fn described(name: &str, metric: &str, set: Option<&str>, threshold: f64) -> Described {
    let dimension = |set: &str| ("ses:configuration-set".to_owned(), set.to_owned());
    Described {
        arn: format!("arn:aws:cloudwatch:eu-west-1:123456789012:alarm:{name}"),
        state: "ALARM".into(),
        namespace: "AWS/SES".into(),
        metric: metric.into(),
        dimensions: set.into_iter().map(dimension).collect(),
        acts: true,
        actions: vec![PEOPLE.into(), TOPIC.into()],
        comparison: "GreaterThanOrEqualToThreshold".into(),
        threshold: Some(threshold),
        period: Duration::from_mins(5),
        evaluation_periods: 1,
    }
}

/// What control answers of a pause.
pub(crate) fn paused(tenants: &[&str], already: bool) -> Value {
    json!({ "tenants": tenants, "already": already, "since_ms": SINCE_MS, "reason": "as it was (auto-pause)", "not_switched": [] })
}

pub(crate) fn refused(code: &str) -> Value {
    json!({ "error": { "code": code, "message": "why" } })
}

impl Default for World {
    /// Alarms have fired, and everything does as it is asked.
    fn default() -> Self {
        let (bounces, complaints) = ("Reputation.BounceRate", "Reputation.ComplaintRate");
        let alarms = [
            (BOUNCES, described(BOUNCES, bounces, Some("acme"), 0.05)),
            (
                COMPLAINTS,
                described(COMPLAINTS, complaints, Some("acme"), 0.001),
            ),
            (ACCOUNT, described(ACCOUNT, bounces, None, 0.05)),
        ];
        Self(Arc::new(Mutex::new(State {
            hangs: BTreeSet::new(),
            panics: None,
            alarms: alarms.into(),
            alarm_fails: None,
            highest: [(bounces, Ok(Some(0.072))), (complaints, Ok(Some(0.001)))].into(),
            control: Ok(paused(&["acme"], false)),
            switch: Ok(()),
            stop: Ok(()),
            notify: Ok(()),
            calls: Vec::new(),
            read: Vec::new(),
            asked: Vec::new(),
            switched: Vec::new(),
            told: Vec::new(),
        })))
    }
}

impl World {
    pub(crate) fn with(change: impl FnOnce(&mut State)) -> Self {
        let world = Self::default();
        change(&mut world.state());
        world
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn calls(&self) -> Vec<Port> {
        self.state().calls.clone()
    }

    pub(crate) async fn run(&self, event: &Value) -> Handled {
        self.run_as(event, settings()).await
    }

    pub(crate) async fn run_as(&self, event: &Value, settings: Settings) -> Handled {
        invoke(&self.handler(settings), event).await
    }

    pub(crate) fn handler(&self, settings: Settings) -> Handler<Self> {
        Handler::new(self.clone(), settings)
    }

    /// A call comes in, and takes its time.
    async fn called(&self, port: Port, of: &str) {
        let is =
            |told: &(Port, &'static str)| told.0 == port && (told.1.is_empty() || told.1 == of);
        let (hangs, panics) = {
            let mut state = self.state();
            state.calls.push(port);
            (state.hangs.iter().any(is), state.panics.iter().any(is))
        };
        assert!(!panics, "as told");
        if hangs {
            pending::<()>().await;
        }
        sleep(LATENCY).await;
    }
}

/// Invokes a function that may have been invoked before.
pub(crate) async fn invoke(handler: &Handler<World>, event: &Value) -> Handled {
    let start = Instant::now();
    let (answer, metrics) = handler.handle(event, start + TIMEOUT).await;
    Handled {
        answer,
        metrics,
        took: start.elapsed(),
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        service: "auto-pause".into(),
        namespace: "Sendslot".into(),
        control_function: "stack-control".into(),
        alarm_topic: Topic::of(TOPIC).unwrap(),
        notify_topic: Topic::of(PEOPLE),
        pause_account: false,
    }
}

pub(crate) fn with_pause_account() -> Settings {
    Settings {
        pause_account: true,
        ..settings()
    }
}

pub(crate) fn samples() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../events/auto-pause").into()
}

/// A sample event, by its name.
pub(crate) fn sample(name: &str) -> Value {
    let text = fs::read_to_string(samples().join(name).with_extension("json"));
    serde_json::from_str(&text.unwrap()).unwrap()
}

/// One event with the messages of several.
pub(crate) fn together(names: &[&str]) -> Value {
    let records = |name: &&str| sample(name)["Records"].as_array().unwrap().clone();
    json!({ "Records": names.iter().flat_map(records).collect::<Vec<_>>() })
}

/// A sample event whose message is changed.
pub(crate) fn changed(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut event = sample(name);
    let text = &mut event["Records"][0]["Sns"]["Message"];
    let mut message = serde_json::from_str(text.as_str().unwrap()).unwrap();
    change(&mut message);
    *text = message.to_string().into();
    event
}

impl Alarms for World {
    async fn alarm(&self, name: &str) -> Result<Option<Described>, CallError> {
        self.called(Port::Alarm, name).await;
        let state = self.state();
        match &state.alarm_fails {
            Some(error) => Err(error.clone()),
            None => Ok(state.alarms.get(name).cloned()),
        }
    }
}

impl Readings for World {
    async fn highest(
        &self,
        metric: &str,
        dimensions: &[(String, String)],
        period: Duration,
        window: Duration,
    ) -> Result<Option<f64>, CallError> {
        let asked = (metric.to_owned(), dimensions.to_vec(), period, window);
        self.state().read.push(asked);
        self.called(Port::Reading, metric).await;
        self.state().highest[metric].clone()
    }
}

impl Control for World {
    async fn ask(&self, request: Vec<u8>) -> Result<Vec<u8>, CallError> {
        let request = serde_json::from_slice(&request).unwrap();
        self.state().asked.push(request);
        self.called(Port::Control, "").await;
        let answer = self.state().control.clone();
        answer.map(|answer| answer.to_string().into_bytes())
    }
}

impl Switch for World {
    async fn switch(&self, set: &str, sending: bool) -> Result<(), SwitchError> {
        self.state().switched.push((set.to_owned(), sending));
        self.called(Port::Switch, set).await;
        self.state().switch.clone()
    }
}

impl Account for World {
    async fn stop(&self) -> Result<(), CallError> {
        self.called(Port::Stop, "").await;
        self.state().stop.clone()
    }
}

impl Notify for World {
    async fn notify(&self, topic: &str, subject: &str, text: &str) -> Result<(), CallError> {
        let told = (topic.to_owned(), subject.to_owned(), text.to_owned());
        self.state().told.push(told);
        self.called(Port::Notify, topic).await;
        self.state().notify.clone()
    }
}
