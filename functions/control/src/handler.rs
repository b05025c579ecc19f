//! What is asked, and by whom.

use sendslot_domain::TenantName;
use sendslot_runtime::{
    ControlSettings, Metrics,
    control::{Answer, Failure, Pause, Paused, Request, Resume, Resumed},
};
use sendslot_schedule::{Look, Schedule, ScheduleError};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{notes::Notes, refresh, status, tenants};

/// The longest reason for a pause, in characters.
const LONGEST_REASON: usize = 200;
/// So much of a caller's name is logged, in characters.
const LONGEST_CALLER: usize = 100;

/// The function.
pub struct Control {
    pub(crate) schedule: Schedule,
    pub(crate) settings: ControlSettings,
}

impl Control {
    /// Works on this schedule with these settings.
    #[must_use]
    pub const fn new(schedule: Schedule, settings: ControlSettings) -> Self {
        Self { schedule, settings }
    }

    /// Does what is asked: the answer, an [`Answer`] as JSON, and a refresh's metrics.
    pub async fn handle(&self, request: &str) -> (Value, Option<Metrics>) {
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
        tracing::info!(action, caller, "asked");
        let mut metrics = None;
        let answer = match &request {
            Request::Refresh(asked) => refresh::refresh(self, asked, &caller).await.map(|done| {
                metrics = Some(done.1);
                answer(&done.0)
            }),
            Request::Pause(asked) => self.pause(asked, &caller).await.map(|done| answer(&done)),
            Request::Resume(asked) => self.resume(asked, &caller).await.map(|done| answer(&done)),
            Request::Replay(_) | Request::Release(_) | Request::Suppress(_) => Err(Failure {
                code: "unknown_action".to_owned(),
                message: format!("{action}: not there yet"),
            }),
            Request::Status(_) => status::status(&self.schedule)
                .await
                .map(|done| answer(&done)),
        };
        let answer = answer.unwrap_or_else(|failure| {
            let Failure { code, message } = &failure;
            tracing::error!(action, caller, code, error = message, "not done");
            failed(failure)
        });
        (answer, metrics)
    }

    async fn pause(&self, asked: &Pause, caller: &str) -> Result<Paused, Failure> {
        let reason = asked.reason.trim();
        let length = reason.chars().count();
        if length == 0 || length > LONGEST_REASON || reason.chars().any(char::is_control) {
            return Err(Failure {
                code: "bad_field".to_owned(),
                message: format!(
                    "pause: reason: give 1 to {LONGEST_REASON} characters in one line that say why, such as \
                     \"complaints\""
                ),
            });
        }
        let look = self.schedule.look().await.map_err(redis_failure)?;
        let tenant = self.known(&asked.tenant, &look)?;
        let standing = look.paused.iter().find(|pause| pause.tenant == tenant);
        if let Some(pause) = standing.filter(|pause| pause.until.is_none()) {
            tracing::info!(%tenant, caller, reason, since_ms = pause.since.0, "is paused already");
            return Ok(Paused {
                tenants: vec![tenant.to_string()],
                already: true,
                since_ms: pause.since.0,
                reason: pause.reason.clone(),
                ..Paused::default()
            });
        }
        let paused = self.schedule.pause(&tenant, None, reason).await;
        paused.map_err(redis_failure)?;
        tracing::warn!(%tenant, caller, reason, "paused");
        Ok(Paused {
            tenants: vec![tenant.to_string()],
            already: false,
            since_ms: look.now.0,
            reason: reason.to_owned(),
            ..Paused::default()
        })
    }

    async fn resume(&self, asked: &Resume, caller: &str) -> Result<Resumed, Failure> {
        let look = self.schedule.look().await.map_err(redis_failure)?;
        let tenant = self.known(&asked.tenant, &look)?;
        let was_paused = self.schedule.resume(&tenant).await.map_err(redis_failure)?;
        tracing::warn!(%tenant, caller, was_paused, "resumed");
        Ok(Resumed {
            tenant: tenant.to_string(),
            was_paused,
            ..Resumed::default()
        })
    }

    /// The tenant by its name: one as deployed, one with a parameter, or one that is gone and still paused.
    fn known(&self, name: &str, look: &Look) -> Result<TenantName, Failure> {
        let tenant: TenantName = name.parse().map_err(|error| Failure {
            code: "bad_field".to_owned(),
            message: format!("tenant {name:?}: {error}"),
        })?;
        let notes = Notes::read(look);
        let told = notes.tenants.clone().unwrap_or_default();
        let is_known = look.paused.iter().any(|pause| pause.tenant == tenant)
            || tenants::is_known(&tenant, &self.settings.tenants, &told)
            // Nobody knows who is one; a pause that nobody needs does no harm.
            || notes.tenants.is_none();
        if is_known {
            return Ok(tenant);
        }
        Err(Failure {
            code: "unknown_tenant".to_owned(),
            message: format!(
                "tenant {name:?} isn't one of this deployment: check the spelling, or give it settings (in the \
                 function's SENDSLOT_TENANTS or in a parameter of its own) and refresh first"
            ),
        })
    }
}

/// Why Redis didn't do it.
#[expect(clippy::needless_pass_by_value, reason = "it is for `map_err`")]
pub(crate) fn redis_failure(error: ScheduleError) -> Failure {
    if error.is_unavailable() {
        return Failure {
            code: "redis_unavailable".to_owned(),
            message: format!("{error}; ask again when redis can be reached"),
        };
    }
    Failure {
        code: "redis_failed".to_owned(),
        message: error.to_string(),
    }
}

fn answer(done: &impl Serialize) -> Value {
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
