//! What is asked, and by whom.

use std::time::Duration;

use sendslot_runtime::{
    ControlSettings, Metrics,
    control::{Answer, Failure, Refresh, Refreshed, Release, Replay, Request},
    queue::SendBatch,
    switch::Switch,
};
use sendslot_schedule::Schedule;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    deadline::Deadline, pauses::Pauses, ports::Parked, refresh, release::Releaser, status, suppress,
};

/// So much of a caller's name is logged, in characters.
const LONGEST_CALLER: usize = 100;
/// All but replay and release answer within so long: `quota-refresh` waits 12 s.
const SHORT: Duration = Duration::from_secs(10);

/// The function: a schedule, the send queues, the bucket of parked mail, and SES's switches.
pub struct Control<Q, S, W> {
    pub(crate) schedule: Schedule,
    queues: Q,
    parked: S,
    switches: W,
    pub(crate) settings: ControlSettings,
}

impl<Q: SendBatch, S: Parked, W: Switch> Control<Q, S, W> {
    /// Works on these with these settings.
    #[must_use]
    pub const fn new(
        schedule: Schedule,
        queues: Q,
        parked: S,
        switches: W,
        settings: ControlSettings,
    ) -> Self {
        Self {
            schedule,
            queues,
            parked,
            switches,
            settings,
        }
    }

    /// Does what is asked before the deadline: the answer, an [`Answer`] as JSON, and the metrics, if there are any.
    pub async fn handle(&self, request: &str, deadline: Deadline) -> (Value, Option<Metrics>) {
        let request = match Request::parse(request) {
            Ok(request) => request,
            Err(error) => {
                let (code, message) = (error.code().to_owned(), error.to_string());
                tracing::warn!(code, error = message, "request refused");
                return (failed(Failure { code, message }), None);
            }
        };
        let action = request.action();
        let caller: String = request.caller().chars().take(LONGEST_CALLER).collect();
        let caller = caller.replace(char::is_control, " ");
        tracing::info!(action, caller, "asked");
        let mut metrics = Metrics::new(&self.settings.namespace, &self.settings.service, None);
        let pauses = Pauses {
            schedule: &self.schedule,
            switches: &self.switches,
            settings: &self.settings,
            caller: &caller,
        };
        let answer = match &request {
            Request::Refresh(asked) => soon(self.refresh(asked, &caller, &mut metrics)).await,
            Request::Pause(asked) => soon(pauses.pause(asked, &mut metrics)).await,
            Request::Resume(asked) => soon(pauses.resume(asked, &mut metrics)).await,
            // On the heap, as they are large.
            Request::Replay(asked) => Box::pin(self.replay(asked, deadline, &mut metrics)).await,
            Request::Release(asked) => Box::pin(self.release(asked, deadline, &mut metrics)).await,
            Request::Suppress(asked) => {
                soon(suppress::suppress(&self.schedule, asked, &caller)).await
            }
            Request::Status(_) => {
                soon(status::status(&self.schedule, &self.settings.tenants)).await
            }
            Request::Find(_) | Request::Cancel(_) | Request::Redrive(_) => Err(Failure {
                code: "not_built".to_owned(),
                message: "not built yet".to_owned(),
            }),
        };
        let answer = answer.unwrap_or_else(|failure| {
            let Failure { code, message } = &failure;
            tracing::error!(action, caller, code, error = message, "not done");
            failed(failure)
        });
        let has_any = metrics.line(0).is_some();
        (answer, has_any.then_some(metrics))
    }

    async fn refresh(
        &self,
        asked: &Refresh,
        caller: &str,
        metrics: &mut Metrics,
    ) -> Result<Refreshed, Failure> {
        let keeper = refresh::Keeper {
            schedule: &self.schedule,
            settings: &self.settings,
        };
        let (done, of_it) = refresh::refresh(&keeper, asked, caller).await?;
        *metrics = of_it;
        Ok(done)
    }

    async fn replay(
        &self,
        asked: &Replay,
        deadline: Deadline,
        metrics: &mut Metrics,
    ) -> Result<Value, Failure> {
        let (done, parked) = self.releaser().replay(asked, deadline).await?;
        let tenants = done.tenants.iter();
        let (released, expired) = tenants.fold((0, 0), |(released, expired), tenant| {
            (released + tenant.released, expired + tenant.expired)
        });
        metrics.count("Replayed", released);
        metrics.count("Expired", expired);
        if let Some(parked) = parked {
            metrics.count("ParkedTenants", parked);
            metrics.gauge(
                "OldestParkedSeconds",
                "Seconds",
                seconds(done.oldest_seconds),
            );
        }
        Ok(answer(done))
    }

    async fn release(
        &self,
        asked: &Release,
        deadline: Deadline,
        metrics: &mut Metrics,
    ) -> Result<Value, Failure> {
        let done = self.releaser().release(asked, deadline).await?;
        metrics.count("Replayed", done.released);
        metrics.count("Expired", done.expired);
        Ok(answer(done))
    }

    const fn releaser(&self) -> Releaser<'_, Schedule, Q, S> {
        Releaser::new(&self.schedule, &self.queues, &self.parked, &self.settings)
    }
}

/// An answer that comes soon, or none.
async fn soon<T: Serialize>(
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<Value, Failure> {
    match timeout(SHORT, call).await {
        Ok(done) => done.map(answer),
        Err(_) => Err(Failure {
            code: "timeout".to_owned(),
            message: format!(
                "it took more than {} s and may be done in part: ask again",
                SHORT.as_secs()
            ),
        }),
    }
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
const fn seconds(seconds: u64) -> f64 {
    seconds as f64
}

fn answer(done: impl Serialize) -> Value {
    serde_json::to_value(done).unwrap_or_else(|error| {
        failed(Failure {
            code: "bad_answer".to_owned(),
            message: format!("it was done, and the answer can't be written: {error}"),
        })
    })
}

fn failed(error: Failure) -> Value {
    json!(Answer::<()>::Failed { error })
}
