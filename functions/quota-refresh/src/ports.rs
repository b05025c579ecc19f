//! What a refresh needs from outside, one narrow trait each, so that its tests run without AWS. Whoever calls these bounds the time;
//! a call that is given up may have been done.

use std::{fmt, future::Future};

use aws_sdk_sesv2::{
    config::http::HttpResponse,
    error::{ProvideErrorMetadata, SdkError},
};
use sendslot_domain::Millis;
use sendslot_runtime::control::{self, Failure};

use crate::event::ResponseUrl;

/// Why a call came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct CallError {
    /// AWS's code, such as `AccessDeniedException`, or a word of ours: `timeout`, `no_connection`, `no_answer`, `unreadable`.
    pub code: String,
    /// For people.
    pub message: String,
    /// What to make of it.
    pub kind: Kind,
}

/// What to make of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Refused as too many: surely not done, and not to be tried again at once.
    Busy,
    /// What was named isn't there.
    Missing,
    /// Anything else. It may have been done.
    Other,
}

impl CallError {
    /// A failure of which nothing more is known.
    #[must_use]
    pub fn other(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
            kind: Kind::Other,
        }
    }

    /// No answer in the time that there was.
    #[must_use]
    pub fn timeout() -> Self {
        Self::other("timeout", "no answer in the time that there was")
    }
}

impl<E: ProvideErrorMetadata> From<SdkError<E, HttpResponse>> for CallError {
    fn from(error: SdkError<E, HttpResponse>) -> Self {
        let status = error.raw_response().map(|answer| answer.status().as_u16());
        let unsaid = match &error {
            SdkError::TimeoutError(_) => return Self::timeout(),
            SdkError::DispatchFailure(failure) if failure.is_timeout() => return Self::timeout(),
            SdkError::DispatchFailure(_) => "no_connection",
            SdkError::ResponseError(_) => "unreadable",
            // How the SDK tells that it took the answer for one, and could not read it.
            _ if status.is_some_and(|status| status < 300) => "unreadable",
            _ => "no_answer",
        };
        let code = error.code().unwrap_or(unsaid).to_owned();
        let kind = match code.as_str() {
            "TooManyRequestsException" | "ThrottlingException" | "Throttling" => Kind::Busy,
            _ if status == Some(429) => Kind::Busy,
            "NotFoundException" | "ResourceNotFoundException" => Kind::Missing,
            _ => Kind::Other,
        };
        let status = status.map_or_else(String::new, |status| format!("status {status}"));
        Self {
            message: error.message().map_or(status, str::to_owned),
            code,
            kind,
        }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self {
            code: error.code,
            message: error.message,
        }
    }
}

/// What SES says of the account.
pub trait Account: Sync {
    /// Asks once.
    fn account(&self) -> impl Future<Output = Result<control::Account, CallError>> + Send;
}

/// The tenants' settings.
pub trait Parameters: Sync {
    /// One page of the parameters directly under a path: the first, or the one that the last named.
    fn page(
        &self,
        path: &str,
        token: Option<String>,
    ) -> impl Future<Output = Result<Page, CallError>> + Send;
}

/// One page of parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Each one's whole name, and its value.
    pub parameters: Vec<(String, String)>,
    /// What names the next page; nothing if this was the last.
    pub next: Option<String>,
}

/// The function that has Redis.
pub trait Control: Sync {
    /// Asks it once, in JSON, and gives its answer's JSON. That [`Kind::Busy`] wasn't started.
    fn ask(&self, request: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, CallError>> + Send;
}

/// SES configuration sets.
pub trait Sets: Sync {
    /// Whether one may send; `None` if SES didn't say.
    fn sends(&self, set: &str) -> impl Future<Output = Result<Option<bool>, CallError>> + Send;
}

/// Whom SES lets nobody send to.
pub trait Suppression: Sync {
    /// One page of the account's suppression list: of those that were added after a moment (ms since the Unix epoch) or of all, the
    /// first or the one that the last named.
    fn suppressed(
        &self,
        since_ms: Option<u64>,
        token: Option<String>,
    ) -> impl Future<Output = Result<SuppressionPage, CallError>> + Send;
}

/// One page of the suppression list.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SuppressionPage {
    /// Each address, and SES's word for why it is on the list: `BOUNCE` or `COMPLAINT`.
    pub addresses: Vec<(String, String)>,
    /// What names the next page; nothing if this was the last.
    pub next: Option<String>,
}

impl fmt::Debug for SuppressionPage {
    /// Shows no address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.addresses.len();
        write!(
            f,
            "SuppressionPage({count} addresses, next: {:?})",
            self.next
        )
    }
}

/// How long invocations take.
pub trait Durations: Sync {
    /// The mean of a function's last quarter of an hour; `None` if there were no invocations.
    fn mean(
        &self,
        function: &str,
    ) -> impl Future<Output = Result<Option<Millis>, CallError>> + Send;
}

/// Event source mappings.
pub trait Mappings: Sync {
    /// What one is set to.
    fn mapping(&self, uuid: &str) -> impl Future<Output = Result<Mapping, CallError>> + Send;

    /// Sets its `MaximumConcurrency`, and nothing else.
    fn scale(
        &self,
        uuid: &str,
        concurrency: u32,
    ) -> impl Future<Output = Result<(), CallError>> + Send;
}

/// What an event source mapping is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its `MaximumConcurrency`, if it has one.
    pub concurrency: Option<u32>,
    /// Whether Lambda is about to change it: it can't be changed meanwhile.
    pub in_motion: bool,
}

/// CloudFormation, waiting for a custom resource.
pub trait Respond: Sync {
    /// Puts an answer there, once. The same again is the same.
    ///
    /// # Errors
    /// What went wrong, without a word of the URL: whoever has it can answer in this function's place.
    fn put(&self, url: &ResponseUrl, body: &str)
    -> impl Future<Output = Result<(), String>> + Send;
}

/// All of it.
pub trait Outside:
    Account
    + Parameters
    + Control
    + Sets
    + Suppression
    + Durations
    + Mappings
    + Respond
    + Send
    + 'static
{
}

impl<T> Outside for T where
    T: Account
        + Parameters
        + Control
        + Sets
        + Suppression
        + Durations
        + Mappings
        + Respond
        + Send
        + 'static
{
}
