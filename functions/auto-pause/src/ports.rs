//! What pausing needs from outside, one narrow trait each, so that its tests run without AWS. Whoever calls these bounds the time; a
//! call that is given up may have been done, and all of them may be made again.

use std::{future::Future, time::Duration};

use aws_sdk_cloudwatch::{
    config::http::HttpResponse,
    error::{ProvideErrorMetadata, SdkError},
};
use sendslot_runtime::switch::Switch;

/// Why a call came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct CallError {
    /// AWS's code, such as `AccessDenied`, or a word of ours: `timeout`, `no_connection`, `no_answer`, `unreadable`.
    pub code: String,
    /// For people.
    pub message: String,
}

impl CallError {
    /// A failure with this code.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
        }
    }

    /// No answer in the time that there was.
    #[must_use]
    pub fn timeout() -> Self {
        Self::new("timeout", "no answer in the time that there was")
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
        let status = status.map_or_else(String::new, |status| format!("status {status}"));
        Self {
            code: error.code().unwrap_or(unsaid).to_owned(),
            message: error.message().map_or(status, str::to_owned),
        }
    }
}

/// CloudWatch's alarms.
pub trait Alarms: Sync {
    /// The metric alarm of this name; nothing if there is none.
    fn alarm(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Option<Described>, CallError>> + Send;
}

/// A metric alarm, as CloudWatch describes it; what it leaves out is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Described {
    /// Its ARN.
    pub arn: String,
    /// `OK`, `ALARM` or `INSUFFICIENT_DATA`.
    pub state: String,
    /// The namespace of its metric.
    pub namespace: String,
    /// Its metric.
    pub metric: String,
    /// The metric's dimensions, names and values.
    pub dimensions: Vec<(String, String)>,
    /// Whether its actions are carried out.
    pub acts: bool,
    /// What is done when it fires: ARNs.
    pub actions: Vec<String>,
    /// How a value compares with the threshold for it to fire, such as `GreaterThanThreshold`.
    pub comparison: String,
    /// The threshold; a ratio, for reputation metrics.
    pub threshold: Option<f64>,
    /// Over how long a value is taken.
    pub period: Duration,
    /// Of how many values it is made up.
    pub evaluation_periods: u32,
}

/// CloudWatch's metrics.
pub trait Readings: Sync {
    /// The greatest value of a metric of SES in the last `window`, each taken over `period`; nothing if there was no value.
    fn highest(
        &self,
        metric: &str,
        dimensions: &[(String, String)],
        period: Duration,
        window: Duration,
    ) -> impl Future<Output = Result<Option<f64>, CallError>> + Send;
}

/// The sending switch of the account, in this Region.
pub trait Account: Sync {
    /// Lets nobody send.
    fn stop(&self) -> impl Future<Output = Result<(), CallError>> + Send;
}

/// The function that has Redis.
pub trait Control: Sync {
    /// Asks it in JSON, and gives its answer's JSON.
    fn ask(&self, request: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, CallError>> + Send;
}

/// People.
pub trait Notify: Sync {
    /// Tells them, by a topic of SNS. The subject has 1 to 100 characters of ASCII.
    fn notify(
        &self,
        topic: &str,
        subject: &str,
        text: &str,
    ) -> impl Future<Output = Result<(), CallError>> + Send;
}

/// All of it.
pub trait Outside:
    Alarms + Readings + Switch + Account + Control + Notify + Send + Sync + 'static
{
}

impl<T> Outside for T where
    T: Alarms + Readings + Switch + Account + Control + Notify + Send + Sync + 'static
{
}
