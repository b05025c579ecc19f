//! Puts a batch onto the queue, and again what failed on the way.

use std::{
    future::Future,
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

use aws_sdk_sqs::{
    Client,
    config::retry::RetryConfig,
    error::{ProvideErrorMetadata, SdkError},
    types::SendMessageBatchRequestEntry,
};
use tokio::time::sleep;

use super::rows::{Entry, Refused};
use crate::error::{self, Error, Place};

/// The first pause before another try; it doubles, up to [`LONGEST`].
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// An entry that the queue failed within a call that it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Its place in the call.
    pub index: usize,
    /// Whether the entry is to blame: sending it again is no use then.
    pub sender_fault: bool,
    /// The queue's code.
    pub code: String,
}

/// Why a whole call failed.
#[derive(Debug)]
pub struct CallFailed {
    /// Whether the same call may succeed a little later.
    pub passes: bool,
    /// What it was.
    pub error: Error,
}

/// The queue.
pub trait Queue {
    /// Makes one call of ten entries at most; answers the entries that failed.
    fn send(&self, entries: &[&Entry]) -> impl Future<Output = Result<Vec<Failed>, CallFailed>>;
}

/// Hands in a batch; answers the entries that the queue will never take. What fails for a while is tried `tries` times in all,
/// with growing pauses.
///
/// # Errors
/// When no try succeeded, or none can.
pub(super) async fn send(
    queue: &impl Queue,
    entries: &[Entry],
    tries: u32,
) -> Result<Vec<Refused>, Error> {
    let mut refused = Vec::new();
    let mut part: Vec<&Entry> = entries.iter().collect();
    let mut tried = 0;
    while !part.is_empty() {
        tried += 1;
        let failed = match queue.send(&part).await {
            Ok(failed) => failed,
            Err(failed) if failed.passes && tried < tries => {
                sleep(pause(tried)).await;
                continue;
            }
            Err(failed) => return Err(failed.error),
        };
        let (never, again): (Vec<_>, Vec<_>) = failed
            .into_iter()
            .partition(|failed| failed.sender_fault && !throttles(&failed.code));
        refused.extend(
            never
                .iter()
                .filter_map(|failed| Some(never_taken(part.get(failed.index)?, &failed.code))),
        );
        if let Some(first) = again.first()
            && tried >= tries
        {
            return Err(Error::Other(format!(
                "the queue failed {} of a batch's entries with {}, {tries} times\n  do: see whether the queue is throttled, or AWS's own status page knows of it",
                again.len(),
                first.code
            )));
        }
        let mut indices: Vec<usize> = again.iter().map(|failed| failed.index).collect();
        indices.sort_unstable();
        indices.dedup();
        part = indices
            .into_iter()
            .filter_map(|index| part.get(index).copied())
            .collect();
        if !part.is_empty() {
            sleep(pause(tried)).await;
        }
    }
    refused.sort_by_key(|refused| refused.line);
    Ok(refused)
}

fn never_taken(entry: &Entry, code: &str) -> Refused {
    let code: String = code
        .chars()
        .filter(|c| !c.is_whitespace() && !c.is_control())
        .collect();
    Refused {
        line: entry.line,
        message: format!(
            "the queue doesn't take it ({code}): see whether it has characters that XML 1.0 doesn't"
        ),
        code,
    }
}

/// Whether a code asks for patience.
fn throttles(code: &str) -> bool {
    code.contains("Throttl") || code.contains("TooManyRequests") || code == "OverLimit"
}

/// How long before another try: doubled each time, and between half of it and all of it, so that those that failed
/// together don't come back together.
fn pause(tried: u32) -> Duration {
    let whole = PAUSE
        .saturating_mul(1 << tried.saturating_sub(1).min(10))
        .min(LONGEST);
    let random = RandomState::new().build_hasher().finish() % 1000;
    whole / 2 + whole.mul_f64(f64::from(u32::try_from(random).unwrap_or(0)) / 2000.0)
}

/// SQS.
#[derive(Clone, Debug)]
pub struct Sqs {
    client: Client,
    url: String,
}

impl Sqs {
    /// The queue of this URL. Its calls are tried here, not by the SDK as well.
    #[must_use]
    pub fn new(client: &Client, url: &str) -> Self {
        let config = client
            .config()
            .to_builder()
            .retry_config(RetryConfig::disabled());
        Self {
            client: Client::from_conf(config.build()),
            url: url.to_owned(),
        }
    }

    fn place(&self) -> Place {
        let region = self.client.config().region().map(ToString::to_string);
        Place::new(region.unwrap_or_default(), None, None)
    }
}

impl Queue for Sqs {
    async fn send(&self, entries: &[&Entry]) -> Result<Vec<Failed>, CallFailed> {
        let built = entries.iter().enumerate().map(|(index, entry)| {
            SendMessageBatchRequestEntry::builder()
                .id(index.to_string())
                .message_body(&entry.body)
                .message_group_id(&entry.group)
                .build()
        });
        let built: Result<Vec<_>, _> = built.collect();
        let built = built.map_err(|error| CallFailed {
            passes: false,
            error: Error::Other(error.to_string()),
        })?;
        let call = self.client.send_message_batch().queue_url(&self.url);
        let call = call.set_entries(Some(built));
        let answer = call.send().await.map_err(|error| {
            let status = error
                .raw_response()
                .map(|response| response.status().as_u16());
            let unanswered = matches!(
                error,
                SdkError::ResponseError(_) | SdkError::TimeoutError(_)
            );
            let code = error.code().unwrap_or_default();
            let busy =
                status.is_some_and(|status| status >= 500 || status == 429) || throttles(code);
            let error = error::aws(&error, "sqs:SendMessage", &self.url, &self.place());
            CallFailed {
                passes: busy || unanswered || error.passes(),
                error,
            }
        })?;
        let failed = answer.failed().iter().map(|failed| Failed {
            index: failed.id().parse().unwrap_or(usize::MAX),
            sender_fault: failed.sender_fault(),
            code: failed.code().to_owned(),
        });
        Ok(failed.collect())
    }
}
