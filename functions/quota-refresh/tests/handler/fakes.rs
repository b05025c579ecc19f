//! An outside that answers as told, hangs or panics where told, and keeps what it was asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use quota_refresh::{
    Event, Handler, Settings,
    event::ResponseUrl,
    handler::Unanswered,
    ports::{
        Account, CallError, Control, Durations, Kind, Mapping, Mappings, Page, Parameters, Respond,
        Sets, Suppression, SuppressionPage,
    },
    settings::Scaling,
};
use sendslot_domain::Millis;
use sendslot_runtime::{ByLane, Metrics, control};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// How long a call takes that doesn't hang.
pub(crate) const LATENCY: Duration = Duration::from_millis(80);
/// The function's timeout as deployed.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
pub(crate) const URL: &str = "https://s3.example/answer?X-Amz-Signature=hunter2";
pub(crate) const PRIORITY: &str = "11111111-1111-1111-1111-111111111111";
pub(crate) const BULK: &str = "22222222-2222-2222-2222-222222222222";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Port {
    Account,
    Parameters,
    Control,
    Sets,
    Suppression,
    Durations,
    Mapping,
    Scale,
    Respond,
}

impl Port {
    pub(crate) const ALL: [Self; 9] = [
        Self::Account,
        Self::Parameters,
        Self::Control,
        Self::Sets,
        Self::Suppression,
        Self::Durations,
        Self::Mapping,
        Self::Scale,
        Self::Respond,
    ];
}

/// What it answers, and what it was asked.
pub(crate) struct State {
    pub(crate) hangs: BTreeSet<Port>,
    pub(crate) panics: Option<Port>,
    pub(crate) account: Result<control::Account, CallError>,
    /// Page by page; the last again and again.
    pub(crate) pages: Vec<Result<Page, CallError>>,
    /// Answer by answer; the last again and again.
    pub(crate) control: Vec<Result<Vec<u8>, CallError>>,
    pub(crate) sets: BTreeMap<String, Result<Option<bool>, CallError>>,
    /// Page by page; the last again and again.
    pub(crate) suppressed: Vec<Result<SuppressionPage, CallError>>,
    /// What each page was asked for by: since when, and the token.
    pub(crate) walked: Vec<(Option<u64>, Option<String>)>,
    pub(crate) mean: Result<Option<Millis>, CallError>,
    pub(crate) mappings: BTreeMap<String, Result<Mapping, CallError>>,
    pub(crate) scale: Result<(), CallError>,
    /// How many answers CloudFormation doesn't take.
    pub(crate) refused: usize,
    /// When each call began, and ended.
    pub(crate) calls: Vec<(Port, Instant, Option<Instant>)>,
    pub(crate) tokens: Vec<Option<String>>,
    pub(crate) asked: Vec<Value>,
    pub(crate) scaled: Vec<(String, u32)>,
    pub(crate) put: Vec<Value>,
}

#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

/// What came of an invocation.
pub(crate) struct Handled {
    pub(crate) answer: Result<Value, Unanswered>,
    pub(crate) metrics: Metrics,
    pub(crate) took: Duration,
}

impl Handled {
    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        self.metrics.get(name)
    }

    /// The code of a refresh that failed; nothing of one that didn't.
    pub(crate) fn failure(&self) -> Option<String> {
        let answer = self.answer.as_ref().unwrap();
        let code = answer["error"]["code"].as_str().map(str::to_owned);
        assert_eq!(answer["refreshed"], json!(code.is_none()), "{answer}");
        assert_eq!(self.count("RefreshFailed"), Some(u64::from(code.is_some())));
        code
    }
}

pub(crate) fn call_error(code: &str, kind: Kind) -> CallError {
    CallError {
        code: code.into(),
        message: "why".into(),
        kind,
    }
}

pub(crate) fn busy() -> CallError {
    call_error("TooManyRequestsException", Kind::Busy)
}

/// What control answers when all is well; with some of it otherwise.
pub(crate) fn refreshed(changes: &Value) -> Vec<u8> {
    let budget = json!({
        "limit": "14/s", "daily_quota": 50_000, "source": "account", "changed": true,
        "was": { "limit": "10/s", "daily_quota": null },
    });
    let mut answer = json!({ "budget": budget, "factor": 1024, "sent_24h": 123 });
    for (name, value) in changes.as_object().unwrap() {
        answer[name] = value.clone();
    }
    answer.to_string().into_bytes()
}

pub(crate) fn page(parameters: &[(&str, &str)], next: Option<&str>) -> Page {
    let own =
        |(name, value): &(&str, &str)| (format!("/stack/tenants/{name}"), (*value).to_owned());
    Page {
        parameters: parameters.iter().map(own).collect(),
        next: next.map(str::to_owned),
    }
}

impl Default for World {
    /// All is well, and the mappings are far from what the budget needs.
    fn default() -> Self {
        let mapping = |concurrency| {
            Ok(Mapping {
                concurrency: Some(concurrency),
                in_motion: false,
            })
        };
        Self(Arc::new(Mutex::new(State {
            hangs: BTreeSet::new(),
            panics: None,
            account: Ok(control::Account {
                max_send_rate: Some(14.0),
                max_24_hour_send: Some(50_000.0),
                sent_last_24_hours: None,
                sending_enabled: Some(true),
                enforcement: Some("HEALTHY".into()),
                production: Some(true),
            }),
            pages: vec![Ok(page(&[("acme", r#"{"version":1}"#)], None))],
            control: vec![Ok(refreshed(&json!({})))],
            sets: BTreeMap::new(),
            suppressed: vec![Ok(SuppressionPage::default())],
            walked: Vec::new(),
            mean: Ok(None),
            mappings: BTreeMap::from([(PRIORITY.into(), mapping(10)), (BULK.into(), mapping(30))]),
            scale: Ok(()),
            refused: 0,
            calls: Vec::new(),
            tokens: Vec::new(),
            asked: Vec::new(),
            scaled: Vec::new(),
            put: Vec::new(),
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

    /// How often it was called there.
    pub(crate) fn calls(&self, port: Port) -> usize {
        let state = self.state();
        state.calls.iter().filter(|call| call.0 == port).count()
    }

    pub(crate) async fn run(&self, event: Value) -> Handled {
        self.run_within(event, TIMEOUT).await
    }

    pub(crate) async fn run_within(&self, event: Value, timeout: Duration) -> Handled {
        self.run_as(event, timeout, settings()).await
    }

    pub(crate) async fn run_as(
        &self,
        event: Value,
        timeout: Duration,
        settings: Settings,
    ) -> Handled {
        let start = Instant::now();
        let handler = Handler::new(self.clone(), settings);
        let event = Event::read(&event).unwrap();
        let (answer, metrics) = handler.handle(event, start + timeout).await;
        Handled {
            answer,
            metrics,
            took: start.elapsed(),
        }
    }

    /// A call comes in, and takes its time.
    async fn called(&self, port: Port) {
        let (number, hangs) = {
            let mut state = self.state();
            state.calls.push((port, Instant::now(), None));
            (state.calls.len() - 1, state.hangs.contains(&port))
        };
        assert_ne!(self.state().panics, Some(port), "as told");
        if hangs {
            pending::<()>().await;
        }
        sleep(LATENCY).await;
        self.state().calls[number].2 = Some(Instant::now());
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        service: "quota-refresh".into(),
        namespace: "Sendslot".into(),
        control_function: "stack-control".into(),
        tenants_path: "/stack/tenants".into(),
        scaling: Some(Scaling {
            function: "stack-send".into(),
            mappings: ByLane {
                priority: Some(PRIORITY.into()),
                bulk: Some(BULK.into()),
            },
            reserved: None,
        }),
    }
}

impl Account for World {
    async fn account(&self) -> Result<control::Account, CallError> {
        self.called(Port::Account).await;
        self.state().account.clone()
    }
}

impl Parameters for World {
    async fn page(&self, path: &str, token: Option<String>) -> Result<Page, CallError> {
        assert_eq!(path, "/stack/tenants");
        self.state().tokens.push(token);
        self.called(Port::Parameters).await;
        let mut state = self.state();
        if state.pages.len() > 1 {
            return state.pages.remove(0);
        }
        state.pages[0].clone()
    }
}

impl Control for World {
    async fn ask(&self, request: Vec<u8>) -> Result<Vec<u8>, CallError> {
        let request = serde_json::from_slice(&request).unwrap();
        self.state().asked.push(request);
        self.called(Port::Control).await;
        let mut state = self.state();
        if state.control.len() > 1 {
            return state.control.remove(0);
        }
        state.control[0].clone()
    }
}

impl Sets for World {
    async fn sends(&self, set: &str) -> Result<Option<bool>, CallError> {
        self.called(Port::Sets).await;
        self.state().sets[set].clone()
    }
}

impl Suppression for World {
    async fn suppressed(
        &self,
        since_ms: Option<u64>,
        token: Option<String>,
    ) -> Result<SuppressionPage, CallError> {
        self.state().walked.push((since_ms, token));
        self.called(Port::Suppression).await;
        let mut state = self.state();
        if state.suppressed.len() > 1 {
            return state.suppressed.remove(0);
        }
        state.suppressed[0].clone()
    }
}

impl Durations for World {
    async fn mean(&self, function: &str) -> Result<Option<Millis>, CallError> {
        assert_eq!(function, "stack-send");
        self.called(Port::Durations).await;
        self.state().mean.clone()
    }
}

impl Mappings for World {
    async fn mapping(&self, uuid: &str) -> Result<Mapping, CallError> {
        self.called(Port::Mapping).await;
        self.state().mappings[uuid].clone()
    }

    async fn scale(&self, uuid: &str, concurrency: u32) -> Result<(), CallError> {
        self.called(Port::Scale).await;
        let mut state = self.state();
        state.scaled.push((uuid.to_owned(), concurrency));
        state.scale.clone()
    }
}

impl Respond for World {
    async fn put(&self, url: &ResponseUrl, body: &str) -> Result<(), String> {
        assert_eq!(url, &ResponseUrl::of(URL));
        self.state().put.push(serde_json::from_str(body).unwrap());
        self.called(Port::Respond).await;
        let mut state = self.state();
        if state.refused > 0 {
            state.refused -= 1;
            return Err("status 503".into());
        }
        Ok(())
    }
}
