//! Many messages to one SQS queue: cut into calls by count and by bytes, a few calls at a time, each
//! message with an outcome of its own.

use std::{collections::HashMap, future::Future, hash::BuildHasher, ops::Range, time::Duration};

use aws_sdk_sqs::{
    Client,
    error::{DisplayErrorContext, SdkError},
    operation::send_message_batch::SendMessageBatchError,
    types::{MessageAttributeValue, SendMessageBatchRequestEntry},
};
use futures_util::{StreamExt, stream};
use sendslot_domain::{Millis, Moment};
use tokio::time::{Instant, sleep, timeout_at};

use crate::Queue;

/// What SQS takes at most: bytes of body and attributes, of one message as of one call.
pub const MAX_BYTES: usize = 1_048_576;
/// How many messages SQS takes in one call.
pub const MAX_ENTRIES: usize = 10;
/// The longest delay SQS takes, in seconds.
pub const MAX_DELAY_SECONDS: u16 = 900;

/// How many calls to one queue run at a time.
const CALLS_AT_ONCE: usize = 8;
/// How often a message that SQS failed is sent at most.
const ATTEMPTS: u32 = 3;
/// The pause before the second attempt; it doubles.
const PAUSE: Duration = Duration::from_millis(50);

/// How far SQS's clock and Redis' may differ.
const SKEW: Millis = Millis::from_secs(5);

/// Since when somebody may have worked on a message before, by its SQS attributes; nothing if it is received for the first time.
#[must_use]
pub fn received_before<S: BuildHasher>(attributes: &HashMap<String, String, S>) -> Option<Moment> {
    let number = |name: &str| -> Option<u64> { attributes.get(name)?.parse().ok() };
    number("ApproximateReceiveCount").filter(|count| *count > 1)?;
    let first = number("ApproximateFirstReceiveTimestamp").unwrap_or_default();
    Some(Moment(first.saturating_sub(SKEW.0).max(1)))
}

/// A message to put on a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Its body.
    pub body: String,
    /// Seconds until it can be received, at most [`MAX_DELAY_SECONDS`].
    pub delay_seconds: u16,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
    /// Its `MessageGroupId`, the tenant: SQS keeps one group's backlog from delaying the others (fair queues). Nothing is none.
    pub group: Option<String>,
}

/// An attribute of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub value: Value,
}

/// What an attribute holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// SQS's `Number`.
    Number(u64),
    /// SQS's `String`; never empty.
    Text(String),
}

impl Attribute {
    /// A `Number`.
    #[must_use]
    pub const fn number(name: &'static str, value: u64) -> Self {
        Self {
            name,
            value: Value::Number(value),
        }
    }

    /// A `String`.
    #[must_use]
    pub fn text(name: &'static str, value: impl Into<String>) -> Self {
        Self {
            name,
            value: Value::Text(value.into()),
        }
    }

    /// What it weighs in SQS's count: name, type and value.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let value = match &self.value {
            Value::Number(number) => number
                .checked_ilog10()
                .map_or(1, |digits| digits as usize + 1),
            Value::Text(text) => text.len(),
        };
        self.name.len() + "Number".len() + value
    }
}

impl Message {
    /// What it weighs in SQS's count: body and attributes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.body.len() + self.attributes.iter().map(Attribute::bytes).sum::<usize>()
    }
}

/// Why a message is not on the queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// Body and attributes together are more than SQS takes.
    #[error("{bytes} bytes with its attributes: SQS takes {MAX_BYTES}")]
    TooLarge {
        /// What it weighs.
        bytes: usize,
    },
    /// SQS took the call but not this message.
    #[error("refused by SQS with {code}")]
    Refused {
        /// SQS's code.
        code: String,
    },
    /// The call failed, so that nothing is known of its messages but that they may be there.
    #[error("calling SQS: {0}")]
    Call(String),
    /// Time was up before it was handed to SQS: it surely isn't there.
    #[error("not handed to SQS: no time left")]
    NoTime,
}

/// One message that SQS failed within a call that it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Its index in the call.
    pub index: usize,
    /// Whether the message is to blame: sending it again is no use then.
    pub sender_fault: bool,
    /// SQS's code.
    pub code: String,
}

/// Makes one `SendMessageBatch` call, of at most [`MAX_ENTRIES`] messages and [`MAX_BYTES`].
pub trait SendBatch: Send + Sync {
    /// The messages that SQS failed, or why the whole call did.
    fn send_batch(
        &self,
        queue: &Queue,
        messages: &[&Message],
    ) -> impl Future<Output = Result<Vec<Failed>, String>> + Send;
}

/// Puts messages on a queue; one outcome each, in order, at the moment `by` at the latest. A failure that is not the
/// message's fault is tried again, twice at most. The SDK has retried failed calls already.
///
/// What SQS has not answered at that moment is given up as a call that failed; what it wasn't called for by then is
/// [`NotSent::NoTime`].
pub async fn send_all(
    sqs: &impl SendBatch,
    queue: &Queue,
    messages: &[Message],
    by: Instant,
) -> Vec<Result<(), NotSent>> {
    let mut outcomes = Vec::with_capacity(messages.len());
    let mut fitting = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        let bytes = message.bytes();
        if bytes <= MAX_BYTES {
            fitting.push((index, bytes));
            outcomes.push(Ok(()));
        } else {
            outcomes.push(Err(NotSent::TooLarge { bytes }));
        }
    }
    let calls = cut(fitting.iter().map(|(_, bytes)| *bytes));
    let mut done = stream::iter(calls)
        .map(|call| {
            let part: Vec<usize> = fitting[call].iter().map(|(index, _)| *index).collect();
            send_part(sqs, queue, messages, part, by)
        })
        .buffer_unordered(CALLS_AT_ONCE);
    while let Some(failures) = done.next().await {
        for (index, why) in failures {
            outcomes[index] = Err(why);
        }
    }
    outcomes
}

/// Sends one call's messages, given by index, and again those that failed; answers with those that
/// are not on the queue.
async fn send_part(
    sqs: &impl SendBatch,
    queue: &Queue,
    messages: &[Message],
    mut part: Vec<usize>,
    by: Instant,
) -> Vec<(usize, NotSent)> {
    let mut failures = Vec::new();
    for attempt in 1.. {
        if Instant::now() >= by {
            failures.extend(part.into_iter().map(|index| (index, NotSent::NoTime)));
            break;
        }
        let call: Vec<&Message> = part.iter().map(|index| &messages[*index]).collect();
        let late = |_| Err("no answer in time".to_owned());
        let answer = timeout_at(by, sqs.send_batch(queue, &call)).await;
        let failed = match answer.unwrap_or_else(late) {
            Ok(failed) => failed,
            Err(e) => {
                failures.extend(part.iter().map(|index| (*index, NotSent::Call(e.clone()))));
                break;
            }
        };
        let mut again = Vec::new();
        for Failed {
            index,
            sender_fault,
            code,
        } in failed
        {
            let Some(index) = part.get(index).copied() else {
                continue;
            };
            if sender_fault || attempt == ATTEMPTS {
                failures.push((index, NotSent::Refused { code }));
            } else {
                again.push(index);
            }
        }
        if again.is_empty() {
            break;
        }
        part = again;
        sleep(PAUSE * (1 << (attempt - 1))).await;
    }
    failures
}

/// Cuts messages of these sizes into calls, in order: a call ends where the next message would make
/// it too many or too large.
fn cut(sizes: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut calls: Vec<Range<usize>> = Vec::new();
    let mut total = 0;
    for (index, bytes) in sizes.enumerate() {
        match calls.last_mut() {
            Some(call) if call.len() < MAX_ENTRIES && total + bytes <= MAX_BYTES => {
                call.end += 1;
                total += bytes;
            }
            _ => {
                calls.push(index..index + 1);
                total = bytes;
            }
        }
    }
    calls
}

impl SendBatch for Client {
    async fn send_batch(
        &self,
        queue: &Queue,
        messages: &[&Message],
    ) -> Result<Vec<Failed>, String> {
        let entries = messages
            .iter()
            .enumerate()
            .map(|(index, message)| entry(index, message));
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        let answer = self
            .send_message_batch()
            .queue_url(queue.url())
            .set_entries(Some(entries))
            .send()
            .await
            .map_err(|e| describe(&e))?;
        let failed = answer.failed().iter().map(|failed| Failed {
            index: failed.id().parse().unwrap_or(usize::MAX),
            sender_fault: failed.sender_fault(),
            code: failed.code().to_owned(),
        });
        Ok(failed.collect())
    }
}

fn entry(index: usize, message: &Message) -> Result<SendMessageBatchRequestEntry, String> {
    let mut entry = SendMessageBatchRequestEntry::builder()
        .set_message_group_id(message.group.clone())
        .id(index.to_string())
        .message_body(&message.body)
        .delay_seconds(i32::from(message.delay_seconds));
    for attribute in &message.attributes {
        let (data_type, value) = match &attribute.value {
            Value::Number(number) => ("Number", number.to_string()),
            Value::Text(text) => ("String", text.clone()),
        };
        let value = MessageAttributeValue::builder()
            .data_type(data_type)
            .string_value(value);
        entry = entry.message_attributes(attribute.name, value.build().map_err(|e| e.to_string())?);
    }
    entry.build().map_err(|e| e.to_string())
}

/// The error with its causes. The SDK's errors quote SQS's text, never a message's body.
fn describe(error: &SdkError<SendMessageBatchError>) -> String {
    DisplayErrorContext(error).to_string()
}
