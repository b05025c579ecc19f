//! An invocation: every message is dealt with, whatever its neighbours come to, and within the time that there is.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sendslot_runtime::Metrics;
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};
use tracing::{Instrument, Span, error, info, warn};

use crate::{
    event::{self, Alarm, Ignored},
    pause::{Done, Outcome, pause},
    ports::Outside,
    settings::Settings,
    verify::confirm,
};

/// What is kept of the invocation's time for metrics and the answer.
const CLOSING: Duration = Duration::from_secs(2);
/// A message is done by itself in time; what isn't so long after that never will be.
const GRACE: Duration = Duration::from_millis(100);

/// The function.
pub struct Handler<O> {
    shared: Arc<Shared<O>>,
}

/// What all messages need.
pub(crate) struct Shared<O> {
    pub(crate) outside: O,
    pub(crate) settings: Settings,
    /// Where people are told.
    pub(crate) notify_topic: Option<String>,
    /// Of which pauses they couldn't be told. It lives as long as this environment of Lambda's, which mostly has the next try, too.
    owed: Mutex<BTreeSet<String>>,
}

/// Not everything could be done. Lambda invokes the function again, which tries anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{failed} of {messages} messages are to be dealt with again: {}", .why.join("; "))]
pub struct Unfinished {
    /// So many messages.
    pub failed: usize,
    /// Of so many.
    pub messages: usize,
    /// What went wrong.
    pub why: Vec<String>,
}

impl<O> Shared<O> {
    pub(crate) fn owed(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O: Outside> Handler<O> {
    /// The function with these settings. People are never told by the topic that it listens to.
    pub fn new(outside: O, settings: Settings) -> Self {
        let topic = settings.notify_topic.as_ref();
        let notify_topic = topic.filter(|topic| **topic != settings.alarm_topic);
        if topic.is_some() && notify_topic.is_none() {
            warn!(
                "nobody is told of pauses: SENDSLOT_NOTIFY_TOPIC_ARN is the topic of the alarms; give another one"
            );
        }
        Self {
            shared: Arc::new(Shared {
                outside,
                notify_topic: notify_topic.map(|topic| topic.arn().to_owned()),
                settings,
                owed: Mutex::default(),
            }),
        }
    }

    /// Handles an invocation that is cut short at `deadline`. The answer says what each message came to, in order.
    pub async fn handle(
        &self,
        event: &Value,
        deadline: Instant,
    ) -> (Result<Value, Unfinished>, Metrics) {
        let Settings {
            namespace, service, ..
        } = &self.shared.settings;
        let mut metrics = Metrics::new(namespace, service, None);
        let left = deadline.saturating_duration_since(Instant::now());
        let end = Instant::now() + left.saturating_sub(CLOSING.min(left / 2));
        let told = event::read(event, &self.shared.settings.alarm_topic);
        let all = self.all(told, end).await;
        for done in &all {
            let is = |known: bool| usize::from(known);
            let outcome = &done.outcome;
            metrics.count("TenantsPaused", done.tenants_paused);
            metrics.count("NotSwitched", done.not_switched);
            let unconfirmed = matches!(outcome, Outcome::NotConfirmed { .. });
            metrics.count("NotConfirmed", is(unconfirmed));
            let ignored = matches!(outcome, Outcome::Ignored { .. } | Outcome::NotOurs);
            metrics.count("Ignored", is(ignored));
            let account = matches!(outcome, Outcome::AccountPaused);
            metrics.count("AccountPaused", is(account));
        }
        let failed = all.iter().filter(|done| !done.failures.is_empty()).count();
        if failed > 0 {
            let unfinished = Unfinished {
                failed,
                messages: all.len(),
                why: all.into_iter().flat_map(|done| done.failures).collect(),
            };
            return (Err(unfinished), metrics);
        }
        let outcomes: Vec<_> = all.into_iter().map(|done| done.outcome).collect();
        (Ok(json!({ "messages": outcomes })), metrics)
    }

    /// Deals with all messages at once, each in a task of its own: neither that one hangs nor that it panics keeps others from being dealt
    /// with.
    async fn all(&self, told: Vec<Result<Alarm, Ignored>>, end: Instant) -> Vec<Done> {
        let mut all: Vec<_> = told
            .iter()
            .map(|_| Done::failed("it had no end in time, or panicked".to_owned()))
            .collect();
        let mut tasks = JoinSet::new();
        for (number, told) in told.into_iter().enumerate() {
            let shared = self.shared.clone();
            let task = async move { (number, one(&shared, told, end).await) };
            tasks.spawn(task.instrument(Span::current()));
        }
        while let Ok(Some(ended)) = timeout_at(end + GRACE, tasks.join_next()).await {
            match ended {
                Ok((number, done)) => all[number] = done,
                Err(problem) => error!(error = %problem, "a message was not dealt with"),
            }
        }
        all
    }
}

/// Deals with a message.
async fn one<O: Outside>(shared: &Shared<O>, told: Result<Alarm, Ignored>, end: Instant) -> Done {
    let alarm = match told {
        Ok(alarm) => alarm,
        Err(ignored) => {
            let why = ignored.to_string();
            if ignored.is_usual() {
                info!(why, "a message changes nothing");
            } else {
                warn!(why, "a message changes nothing");
            }
            return Done::with(Outcome::Ignored { why });
        }
    };
    let name = alarm.name.as_str();
    match confirm(&shared.outside, &alarm, &shared.settings.alarm_topic, end).await {
        Ok(Ok(confirmed)) => pause(shared, &alarm, confirmed, end).await,
        Ok(Err(reason)) => {
            let why = reason.to_string();
            warn!(alarm = name, why, "not confirmed: nobody is paused");
            Done::with(Outcome::NotConfirmed { why })
        }
        Err(error) => {
            error!(
                alarm = name,
                code = error.code,
                error = error.message,
                "CloudWatch can't be asked about an alarm: nobody is paused yet"
            );
            Done::failed(format!("CloudWatch: {error}"))
        }
    }
}
