//! The way of one refresh.
//!
//! 1. SES is asked what the account may send, once: an answer to be doubted must come three times in a row
//!    ([`sendslot_domain::account`]), and three at once would say nothing more. Meanwhile the tenants' settings are read.
//! 2. `control` is told, and makes a budget of it.
//! 3. It names configuration sets whose switches want reading. They are read at SES's pace, as time allows, and `control` is told those.
//! 4. How many batches are sent at once follows the rate.
//! 5. If `control` says that SES's suppression list is to be read, so it is, as far as time allows; not while CloudFormation waits.
//!
//! What can't be had is told as not known, and what was known of it stays.

use std::time::Duration;

use sendslot_domain::Rate;
use sendslot_runtime::control::{
    self, Answer, Failure, Refresh, Refreshed, Request, TenantParameter,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{error, info, warn};

use crate::{
    event::RESOURCE,
    ports::{CallError, Kind, Outside, Parameters},
    scaling::{self, Scaled},
    settings::Settings,
    switches,
    times::{CALL, Times},
    walk::{self, Walked},
};

/// Between two pages of parameters. SSM gives 40 of these a second to the whole account (AWS General Reference, "Systems Manager
/// endpoints and quotas"), and a deployment reads parameters, too.
const BETWEEN_PAGES: Duration = Duration::from_millis(50);
/// The pauses before `control` is asked again that was busy. It wasn't started then, so the account isn't told it twice.
const BUSY: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// What came of a refresh.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    /// What `control` answered last, or why the budget doesn't follow the account.
    pub(crate) outcome: Result<Refreshed, Failure>,
    /// SES didn't say what the account may send.
    pub(crate) account_failed: bool,
    /// The tenants' settings weren't read, or not all of them.
    pub(crate) tenants_failed: bool,
    /// What became of the concurrency; nothing if it isn't managed.
    pub(crate) scaled: Option<Scaled>,
    /// How far the suppression list was read; nothing if that wasn't asked for.
    pub(crate) walked: Option<Walked>,
}

impl Report {
    /// Of a refresh that ended without one.
    pub(crate) fn failed(code: &str, message: &str) -> Self {
        Self {
            outcome: Err(failure(code, message)),
            account_failed: false,
            tenants_failed: false,
            scaled: None,
            walked: None,
        }
    }
}

pub(crate) fn failure(code: &str, message: &str) -> Failure {
    Failure {
        code: code.to_owned(),
        message: message.to_owned(),
    }
}

/// Makes one refresh, and reads the suppression list if it `walks`. Every call is bounded, and all of it is over at the end that `times` names.
pub(crate) async fn refresh(
    outside: &impl Outside,
    settings: &Settings,
    times: Times,
    walks: bool,
) -> Report {
    let ((account, asked), tenants) = tokio::join!(
        account(outside, times),
        tenants(outside, &settings.tenants_path, times.tenants_by())
    );
    let (account_failed, tenants_failed) = (account.is_err(), tenants.is_none());
    let (account, error) = match account {
        Ok(account) => (Some(account), None),
        Err(error) => (None, Some(error.code)),
    };
    let told = Refresh {
        account,
        error,
        tenants,
        ..Refresh::default()
    };
    let (outcome, asked) = control(outside, told, asked, times).await;
    let rate = outcome.as_ref().ok().and_then(|refreshed| {
        let budget = refreshed.budget.as_ref()?;
        // While nobody may send, batches say nothing of how long sending takes.
        if refreshed.blocked_ms > 0 {
            return None;
        }
        budget.limit.parse::<Rate>().ok()
    });
    let scaled = match (&settings.scaling, rate) {
        (Some(scaling), Some(rate)) => Some(scaling::follow(outside, scaling, rate, times).await),
        _ => None,
    };
    let walk = outcome.as_ref().ok().filter(|_| walks);
    let walked = match walk.and_then(|refreshed| refreshed.walk.clone()) {
        Some(walk) => Some(walk::read(outside, walk, asked, times).await),
        None => None,
    };
    Report {
        outcome,
        account_failed,
        tenants_failed,
        scaled,
        walked,
    }
}

/// What SES says, and when it was last asked.
async fn account(
    outside: &impl Outside,
    times: Times,
) -> (Result<control::Account, CallError>, Instant) {
    let answer = timeout_at(times.account_by(), outside.account()).await;
    let answer = answer.unwrap_or_else(|_| Err(CallError::timeout()));
    if let Err(CallError { code, message, .. }) = &answer {
        error!(
            code,
            error = message,
            "SES didn't say what the account may send: what is known stays"
        );
    }
    (answer, Instant::now())
}

/// All tenants' settings, or nothing: a part would read as if the rest were gone.
async fn tenants(
    parameters: &impl Parameters,
    path: &str,
    by: Instant,
) -> Option<Vec<TenantParameter>> {
    let (mut tenants, mut token) = (Vec::new(), None);
    loop {
        let until = (Instant::now() + CALL).min(by);
        let page = timeout_at(until, parameters.page(path, token)).await;
        let page = match page.unwrap_or_else(|_| Err(CallError::timeout())) {
            Ok(page) => page,
            Err(CallError { code, message, .. }) => {
                let read = tenants.len();
                error!(
                    code,
                    error = message,
                    read,
                    "the tenants' settings can't be read: those that are known stay"
                );
                return None;
            }
        };
        tenants.extend(page.parameters.into_iter().map(parameter));
        token = page.next;
        if token.is_none() {
            return Some(tenants);
        }
        if Instant::now() + BETWEEN_PAGES >= by {
            let read = tenants.len();
            error!(
                read,
                "too many tenants' settings for the time that there is: those that are known stay"
            );
            return None;
        }
        sleep(BETWEEN_PAGES).await;
    }
}

/// A parameter by its tenant. What isn't JSON goes as the text that it is: `control` says whose it is.
fn parameter((name, value): (String, String)) -> TenantParameter {
    let settings = serde_json::from_str(&value).unwrap_or(Value::String(value));
    let name = name.rsplit('/').next().unwrap_or_default().to_owned();
    TenantParameter { name, settings }
}

/// Tells `control`, and once more what it asks for. Answers also when SES was last asked.
async fn control(
    outside: &impl Outside,
    told: Refresh,
    asked: Instant,
    times: Times,
) -> (Result<Refreshed, Failure>, Instant) {
    let first = match tell(outside, told, times).await {
        Ok(first) => first,
        Err(failure) => return (Err(failure), asked),
    };
    if first.empty_found {
        let (generation_ms, sets) = (first.generation_ms, first.verify.len());
        warn!(generation_ms, sets, "Redis was found empty");
    }
    let by = times.switches_by();
    let (sets, asked) = switches::read(outside, &first.verify, asked, by).await;
    let last = if first.pending || !sets.is_empty() {
        let told = Refresh {
            sets: Some(sets),
            is_final: true,
            ..Refresh::default()
        };
        match tell(outside, told, times).await {
            Ok(last) => last,
            Err(failure) => return (Err(failure), asked),
        }
    } else {
        first
    };
    if last.budget.is_none() {
        let unknown = failure(
            "no_budget",
            "nothing is known of the account yet: see why SES doesn't say, or set a limit at deploy",
        );
        return (Err(unknown), asked);
    }
    (Ok(last), asked)
}

/// Tells `control`, and logs what it answers.
async fn tell(outside: &impl Outside, told: Refresh, times: Times) -> Result<Refreshed, Failure> {
    let request = Request::Refresh(Refresh {
        caller: Some(RESOURCE.to_owned()),
        ..told
    });
    let request =
        serde_json::to_vec(&request).map_err(|error| failure("bad_request", &error.to_string()))?;
    let answer = ask(outside, request, times).await?;
    logged(&answer);
    Ok(answer)
}

/// Asks `control` once; again only while it is busy. An answer that is lost isn't asked for again: it would count what SES said of
/// the account twice.
pub(crate) async fn ask<T: DeserializeOwned>(
    outside: &impl Outside,
    request: Vec<u8>,
    times: Times,
) -> Result<T, Failure> {
    let by = times.control_by();
    let mut pauses = BUSY.into_iter();
    loop {
        let answer = timeout_at(by, outside.ask(request.clone())).await;
        match answer.unwrap_or_else(|_| Err(CallError::timeout())) {
            Ok(answer) => return Answer::<T>::parse(&answer),
            Err(error) => match pauses.next().filter(|_| error.kind == Kind::Busy) {
                Some(pause) if Instant::now() + pause < by => sleep(pause).await,
                _ => return Err(error.into()),
            },
        }
    }
}

/// Says what has changed, and what an operator should know.
fn logged(answer: &Refreshed) {
    if let Some(budget) = answer.budget.as_ref().filter(|budget| budget.changed) {
        let was = budget.was.as_ref();
        info!(
            limit = budget.limit,
            daily_quota = budget.daily_quota,
            was_limit = was.map(|was| was.limit.as_str()),
            was_daily_quota = was.and_then(|was| was.daily_quota),
            source = budget.source,
            "the budget has changed"
        );
    }
    if let Some(reason) = &answer.kept {
        warn!(
            reason,
            "what SES said of the account wasn't taken: the last numbers hold"
        );
    }
    if answer.empty_found {
        warn!(
            answer.generation_ms,
            answer.pending, "Redis was found empty"
        );
    }
    for tenant in &answer.invalid_tenants {
        let control::InvalidTenant {
            name,
            problem,
            kept,
        } = tenant;
        error!(
            tenant = name,
            problem, kept, "a tenant's settings weren't taken"
        );
    }
}
