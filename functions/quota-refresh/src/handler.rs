//! An invocation. CloudFormation gets its answer in time whatever hangs, and once.

use std::{sync::Arc, time::Duration};

use sendslot_runtime::{Metrics, control::Refreshed};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{Instrument, Span, error, info, warn};

use crate::{
    event::{Answer, Custom, Event, RequestType},
    ports::Outside,
    refresh::{Report, refresh},
    settings::Settings,
    times::{self, PUT, Times},
};

/// The pauses between tries to answer CloudFormation, and so their number less one.
const PUT_PAUSES: [Duration; 4] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// What triggers a refresh at a deployment.
const DEPLOY: &str = "deploy";

/// The function.
pub struct Handler<O> {
    outside: Arc<O>,
    settings: Arc<Settings>,
}

/// CloudFormation could not be answered. Lambda invokes the function again, which tries anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CloudFormation could not be answered: {0}")]
pub struct Unanswered(String);

impl<O: Outside + Sync> Handler<O> {
    /// The function with these settings.
    pub fn new(outside: O, settings: Settings) -> Self {
        Self {
            outside: Arc::new(outside),
            settings: Arc::new(settings),
        }
    }

    /// Handles an invocation that is cut short at `deadline`. A refresh that fails is no error: the next one is due within a minute, and a
    /// stack must not be rolled back because SES was slow. It is counted, and the answer says so.
    pub async fn handle(
        &self,
        event: Event,
        deadline: Instant,
    ) -> (Result<Value, Unanswered>, Metrics) {
        let mut metrics = Metrics::new(&self.settings.namespace, &self.settings.service, None);
        let answer = match event {
            Event::Refresh { trigger } => {
                let by = times::refresh_by(deadline);
                let outcome = self.refreshed(trigger, by, &mut metrics).await;
                Ok(match outcome {
                    Ok(refreshed) => json!({ "refreshed": true, "control": refreshed }),
                    Err(error) => json!({ "refreshed": false, "error": error }),
                })
            }
            Event::Custom(custom) => self.custom(&custom, deadline, &mut metrics).await,
        };
        (answer, metrics)
    }

    /// Does what CloudFormation asks for, and answers it.
    async fn custom(
        &self,
        custom: &Custom,
        deadline: Instant,
        metrics: &mut Metrics,
    ) -> Result<Value, Unanswered> {
        let (refresh_by, put_by) = times::respond_by(deadline);
        let answer = match &custom.kind {
            RequestType::Create | RequestType::Update => {
                let outcome = self.refreshed(DEPLOY, refresh_by, metrics).await;
                let data = data(outcome.as_ref().ok());
                let reason = outcome
                    .err()
                    .map(|error| format!("not refreshed yet: {error}"));
                custom.answer(true, &reason.unwrap_or_default(), data)
            }
            // There is nothing to undo, and control or Redis may be gone already.
            RequestType::Delete => custom.answer(true, "", json!({})),
            RequestType::Unknown(word) => {
                let reason = format!("unknown RequestType {word:?}: use Create, Update or Delete");
                custom.answer(false, &reason, json!({}))
            }
        };
        let put = self.put(custom, &answer, put_by).await;
        metrics.count("ResponseFailed", usize::from(put.is_err()));
        put.map_err(Unanswered)?;
        let Answer { status, data, .. } = answer;
        Ok(json!({ "status": status, "data": data }))
    }

    /// Makes a refresh, in a task of its own: neither that it hangs nor that it panics keeps the answer back.
    async fn refreshed(
        &self,
        trigger: &'static str,
        by: Instant,
        metrics: &mut Metrics,
    ) -> Result<Refreshed, sendslot_runtime::control::Failure> {
        let (outside, settings) = (self.outside.clone(), self.settings.clone());
        // A deployment doesn't wait for it: the schedule does it within a minute.
        let walks = trigger != DEPLOY;
        let task = async move { refresh(&*outside, &settings, Times::until(by), walks).await };
        let mut task = tokio::spawn(task.instrument(Span::current()));
        let report = match timeout_at(by + GRACE, &mut task).await {
            Ok(Ok(report)) => report,
            Ok(Err(_)) => Report::failed("panicked", "the refresh ended without an answer"),
            Err(_) => {
                task.abort();
                Report::failed("out_of_time", "the refresh had no end")
            }
        };
        let count = |failed: bool| usize::from(failed);
        metrics.count("RefreshFailed", count(report.outcome.is_err()));
        metrics.count("GetAccountFailed", count(report.account_failed));
        metrics.count("TenantsFailed", count(report.tenants_failed));
        if let Some(scaled) = report.scaled {
            metrics.count("ConcurrencyChanged", scaled.changed);
            metrics.count("ConcurrencyFailed", scaled.failed);
        }
        if let Some(walked) = report.walked {
            metrics.count("SuppressionPages", walked.pages);
            metrics.count("SuppressionFailed", count(walked.failed));
        }
        match &report.outcome {
            Ok(refreshed) => {
                let budget = refreshed.budget.as_ref();
                info!(
                    trigger,
                    limit = budget.map(|budget| budget.limit.as_str()),
                    daily_quota = budget.and_then(|budget| budget.daily_quota),
                    "refreshed"
                );
            }
            Err(failure) => error!(
                trigger,
                code = failure.code,
                error = failure.message,
                "the refresh failed: the budget may not follow the account"
            ),
        }
        report.outcome
    }

    /// Answers CloudFormation: the same answer until it is taken.
    async fn put(&self, custom: &Custom, answer: &Answer, by: Instant) -> Result<(), String> {
        let body = serde_json::to_string(answer).map_err(|error| error.to_string())?;
        let mut pauses = PUT_PAUSES.into_iter();
        loop {
            let until = (Instant::now() + PUT).min(by);
            let put = timeout_at(until, self.outside.put(&custom.url, &body)).await;
            let Err(error) = put.unwrap_or_else(|_| Err("no answer".to_owned())) else {
                let status = answer.status.as_str();
                info!(status, "CloudFormation is answered");
                return Ok(());
            };
            warn!(error, "CloudFormation didn't take the answer");
            match pauses.next() {
                Some(pause) if Instant::now() + pause < by => sleep(pause).await,
                _ => {
                    error!(error, "CloudFormation is not answered, and waits");
                    return Err(error);
                }
            }
        }
    }
}

/// A refresh ends by itself in time; what hasn't so long after that never will.
const GRACE: Duration = Duration::from_millis(100);

/// What a template may read of the resource. Always all of it: a stack whose template reads what isn't there is rolled back.
fn data(refreshed: Option<&Refreshed>) -> Value {
    let budget = refreshed.and_then(|refreshed| refreshed.budget.clone());
    let budget = budget.unwrap_or_default();
    let quota = budget.daily_quota.map(|quota| quota.to_string());
    json!({
        "Refreshed": refreshed.is_some().to_string(),
        "Limit": budget.limit,
        "DailyQuota": quota.unwrap_or_default(),
        "Source": budget.source,
    })
}
