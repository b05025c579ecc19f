//! What is asked, and by whom.

use std::time::Duration;

use sendslot_runtime::{
    ControlSettings, Metrics,
    control::{
        Answer, Cancel, Cancelled, Failure, Redrive, Refresh, Refreshed, Release, Replay, Request,
    },
    queue::SendBatch,
    switch::Switch,
};
use sendslot_schedule::Schedule;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    cancel::Canceller,
    deadline::Deadline,
    find,
    pauses::Pauses,
    ports::{DeadLetters, Depths, Parked, Schedules},
    redrive::Redriver,
    refresh,
    release::Releaser,
    status, suppress,
};

/// So much of a caller's name is logged, in characters.
const LONGEST_CALLER: usize = 100;
/// All but replay, release and redrive answer within so long: `quota-refresh` waits 12 s.
const SHORT: Duration = Duration::from_secs(10);

/// The function: a schedule, the queues, the bucket of parked mail, SES's switches, and what holds far-ahead mail.
pub struct Control<Q, S, W, F> {
    pub(crate) schedule: Schedule,
    queues: Q,
    parked: S,
    switches: W,
    schedules: F,
    pub(crate) settings: ControlSettings,
}

impl<Q: SendBatch + Depths + DeadLetters, S: Parked, W: Switch, F: Schedules> Control<Q, S, W, F> {
    /// Works on these with these settings.
    #[must_use]
    pub const fn new(
        schedule: Schedule,
        queues: Q,
        parked: S,
        switches: W,
        schedules: F,
        settings: ControlSettings,
    ) -> Self {
        Self {
            schedule,
            queues,
            parked,
            switches,
            schedules,
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
                let (queues, parked) = (&self.queues, &self.parked);
                let status = status::status(&self.schedule, queues, parked, &self.settings);
                Box::pin(soon(status)).await
            }
            Request::Find(asked) => soon(find::find(&self.schedule, &self.parked, asked)).await,
            Request::Cancel(asked) => soon(self.cancel(asked, &caller, &mut metrics)).await,
            Request::Redrive(asked) => {
                Box::pin(self.redrive(asked, &caller, deadline, &mut metrics)).await
            }
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

    async fn cancel(
        &self,
        asked: &Cancel,
        caller: &str,
        metrics: &mut Metrics,
    ) -> Result<Cancelled, Failure> {
        let canceller = Canceller {
            schedule: &self.schedule,
            parked: &self.parked,
            schedules: &self.schedules,
            max_message_age: self.settings.max_message_age,
            caller,
        };
        let done = canceller.cancel(asked).await?;
        metrics.count("Cancelled", 1);
        Ok(done)
    }

    async fn redrive(
        &self,
        asked: &Redrive,
        caller: &str,
        deadline: Deadline,
        metrics: &mut Metrics,
    ) -> Result<Value, Failure> {
        let redriver = Redriver {
            schedule: &self.schedule,
            queues: &self.queues,
            parked: &self.parked,
            settings: &self.settings,
            caller,
        };
        let done = redriver.redrive(asked, deadline).await?;
        if !asked.dry_run {
            metrics.count(
                "Redriven",
                usize::try_from(done.redriven).unwrap_or(usize::MAX),
            );
        }
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
