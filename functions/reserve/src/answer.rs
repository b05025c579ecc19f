//! What became of each request, as SQS and direct callers are told.

use aws_lambda_events::sqs::{BatchItemFailure, SqsBatchResponse};
use sendslot_domain::{Lane, Millis, Moment, SendId, TenantName};
use sendslot_mail::Refusal;
use sendslot_runtime::{parking::Reason, queue::NotSent};
use serde::{Serialize, Serializer, ser::Error};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::error::HandlerError;

/// Which request an outcome is of.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// Its send id, when one could be made out.
    pub(crate) send_id: Option<SendId>,
    /// Its tenant, likewise.
    pub(crate) tenant: Option<TenantName>,
    /// Its recipients, when it could be read.
    pub(crate) cost: u32,
    /// When it first reached us.
    pub(crate) first_seen: Moment,
    /// Its lane; that of the default when it has none.
    pub(crate) lane: Lane,
    /// Whether it comes for the first time: it was not put back on its queue.
    pub(crate) fresh: bool,
    /// Which of its recipients were left out, as nobody may be sent to: JSON pointers into the request.
    pub(crate) suppressed: Vec<String>,
}

/// What an invocation answers.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// To Lambda's poller: which messages must come again. It deletes the others.
    Queued(SqsBatchResponse),
    /// To a direct caller: one result per request, in order.
    Direct {
        /// The results.
        results: Vec<DirectResult>,
    },
}

/// What a direct caller is told of one request.
#[derive(Debug, Serialize)]
pub struct DirectResult {
    /// Its send id, when one could be made out.
    #[serde(serialize_with = "name")]
    pub send_id: Option<SendId>,
    /// What became of it.
    #[serde(flatten)]
    pub status: Status,
    /// Which of its recipients were left out, as mail to them bounced or they complained: JSON pointers into the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suppressed: Vec<String>,
}

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Status {
    /// It is on its send queue.
    Booked {
        /// When it may go.
        #[serde(serialize_with = "rfc3339")]
        slot: Moment,
        /// The same in Unix milliseconds.
        slot_ms: u64,
        /// How long until then.
        wait_ms: u64,
    },
    /// It is on its intake queue and asks again.
    Waiting {
        /// How long until it asks.
        wait_ms: u64,
        /// How long until its slot, about.
        estimate_ms: u64,
    },
    /// The caller may send it then, by itself.
    Slot {
        /// When it may go.
        #[serde(serialize_with = "rfc3339")]
        slot: Moment,
        /// The same in Unix milliseconds.
        slot_ms: u64,
        /// How long until then.
        wait_ms: u64,
    },
    /// There is no slot for the caller yet, and none is kept: ask again.
    RetryAfter {
        /// How long until it should ask.
        retry_after_ms: u64,
    },
    /// Its tenant may not send. It is kept, and goes when the tenant is resumed.
    Parked {
        /// Why: `paused`.
        reason: &'static str,
    },
    /// Nobody is left that it may be sent to: it has ended.
    Suppressed,
    /// Somebody cancelled it: it has ended.
    Cancelled,
    /// It will never be sent as it is.
    Refused {
        /// A [`Refusal::code`].
        reason: &'static str,
        /// The same in words.
        message: String,
    },
    /// It is nowhere: hand it in again.
    Failed {
        /// What failed.
        message: String,
    },
}

/// What became of one request, with what is needed to tell.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Booked {
        slot: Moment,
        delay: Millis,
    },
    /// Redis can't be used: it waits, or is on its send queue without a slot.
    Held {
        delay: Millis,
    },
    Unbooked {
        now: Moment,
    },
    Waiting {
        delay: Millis,
        estimate: Millis,
    },
    Slot {
        slot: Moment,
        delay: Millis,
    },
    RetryAfter {
        delay: Millis,
    },
    /// Its time hasn't come, and won't for so long.
    Ahead {
        at: Moment,
        delay: Millis,
        left: Millis,
    },
    Parked,
    Suppressed,
    Cancelled,
    Refused(Refusal),
    Failed(Failure),
}

/// Why a request is nowhere.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("booking: {0}")]
    Schedule(String),
    #[error("writing the envelope: {0}")]
    Envelope(String),
    #[error("putting it on the send queue: {0}")]
    Enqueue(NotSent),
    #[error("putting it back on the intake queue: {0}")]
    Wait(NotSent),
    #[error("putting it on the dead-letter queue: {0}")]
    DeadLetter(NotSent),
    #[error("parking it: {0}")]
    Park(String),
    #[error("no time left before the function times out")]
    NoTime,
}

impl Outcome {
    /// Whether something would be there twice, or a slot lost, if the request were handed in again.
    const fn is_booked(&self) -> bool {
        match self {
            Self::Booked { .. }
            | Self::Held { .. }
            | Self::Unbooked { .. }
            | Self::Waiting { .. }
            | Self::Slot { .. }
            | Self::Ahead { .. }
            | Self::Parked => true,
            Self::RetryAfter { .. }
            | Self::Suppressed
            | Self::Cancelled
            | Self::Refused(_)
            | Self::Failed(_) => false,
        }
    }
}

impl From<Outcome> for Status {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Booked { slot, delay } => Self::Booked {
                slot,
                slot_ms: slot.0,
                wait_ms: delay.0,
            },
            Outcome::Unbooked { now } => Self::Booked {
                slot: now,
                slot_ms: now.0,
                wait_ms: 0,
            },
            Outcome::Held { delay } => Self::Waiting {
                wait_ms: delay.0,
                estimate_ms: delay.0,
            },
            Outcome::Waiting { delay, estimate } => Self::Waiting {
                wait_ms: delay.0,
                estimate_ms: estimate.0,
            },
            Outcome::Slot { slot, delay } => Self::Slot {
                slot,
                slot_ms: slot.0,
                wait_ms: delay.0,
            },
            Outcome::RetryAfter { delay } => Self::RetryAfter {
                retry_after_ms: delay.0,
            },
            Outcome::Parked => Self::Parked {
                reason: Reason::Paused.as_str(),
            },
            Outcome::Suppressed => Self::Suppressed,
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Ahead { delay, left, .. } => Self::Waiting {
                wait_ms: delay.0,
                estimate_ms: left.0,
            },
            Outcome::Refused(refusal) => Self::Refused {
                reason: refusal.code(),
                message: refusal.to_string(),
            },
            Outcome::Failed(failure) => Self::Failed {
                message: failure.to_string(),
            },
        }
    }
}

impl Answer {
    /// Names the messages that must come again.
    pub(crate) fn queued(outcomes: impl Iterator<Item = (String, Outcome)>) -> Self {
        let mut response = SqsBatchResponse::default();
        for (id, outcome) in outcomes {
            if matches!(outcome, Outcome::Failed(_)) {
                let mut failure = BatchItemFailure::default();
                failure.item_identifier = id;
                response.batch_item_failures.push(failure);
            }
        }
        Self::Queued(response)
    }

    /// Tells what became of each; an error when nothing could be booked for any.
    pub(crate) fn direct(outcomes: Vec<(Ticket, Outcome)>) -> Result<Self, HandlerError> {
        let not_booked = outcomes.iter().find_map(|(_, outcome)| match outcome {
            Outcome::Failed(Failure::Schedule(why)) => Some(why),
            _ => None,
        });
        // Where some were booked before the schedule failed, the others say so themselves.
        if let Some(why) = not_booked
            && !outcomes.iter().any(|(_, outcome)| outcome.is_booked())
        {
            return Err(HandlerError::Schedule(why.clone()));
        }
        let results = outcomes.into_iter().map(|(ticket, outcome)| DirectResult {
            send_id: ticket.send_id,
            status: outcome.into(),
            suppressed: ticket.suppressed,
        });
        Ok(Self::Direct {
            results: results.collect(),
        })
    }
}

#[expect(clippy::ref_option, reason = "serde's signature")]
fn name<S: Serializer>(name: &Option<SendId>, to: S) -> Result<S::Ok, S::Error> {
    name.as_ref().map(SendId::as_str).serialize(to)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn rfc3339<S: Serializer>(at: &Moment, to: S) -> Result<S::Ok, S::Error> {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1_000_000);
    let text = at
        .map_err(S::Error::custom)?
        .format(&Rfc3339)
        .map_err(S::Error::custom)?;
    to.serialize_str(&text)
}
