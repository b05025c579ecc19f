//! What an invocation is given: messages of an intake queue, or requests of a direct caller, for mail or
//! for slots only.

use std::collections::HashMap;

use aws_lambda_events::sqs::{SqsMessage, SqsMessageAttribute};
use sendslot_domain::{Lane, Moment};
use sendslot_runtime::{ByLane, Queue, queue::received_before};
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::value::RawValue;

use crate::error::HandlerError;

/// How many requests a direct caller may hand in at once. Lambda takes 6 MB a call anyway.
pub const MAX_DIRECT: usize = 1000;

/// A waiting message's place in its line.
pub const PLACE: &str = "SendslotPlace";
/// How often a message was held because Redis could not be used.
pub const HOLDS: &str = "SendslotHolds";
/// Since when somebody may have worked on a message that this is a copy of, in Unix milliseconds.
pub const SUSPECT: &str = "SendslotSuspectSince";
/// When a waiting or dead-lettered message reached us, in Unix milliseconds.
pub const FIRST_SEEN: &str = "SendslotFirstSeen";
/// Why a message is dead-lettered: a [`sendslot_mail::Refusal::code`].
pub const REASON: &str = "SendslotReason";
/// The same in words.
pub const DETAIL: &str = "SendslotDetail";

/// One of `{"Records": […]}`, as Lambda hands over messages of a queue; and `{"messages": […]}`, with
/// `"enqueue": false` for slots only.
///
/// The Lambda runtime answers and logs why one can't be read, and serde would quote what it found, which
/// may be an address: the error says where it stands and nothing else.
#[derive(Debug)]
pub struct Event(Form);

#[derive(Debug, Deserialize)]
struct Form {
    #[serde(rename = "Records")]
    records: Option<Vec<SqsMessage>>,
    /// As text: a request is read strictly, and may have to wait on a queue as it is.
    messages: Option<Vec<Box<RawValue>>>,
    enqueue: Option<bool>,
    /// What another version did here, and `control` does now.
    release: Option<serde::de::IgnoredAny>,
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // Any JSON first: what is none fails here, with a place and no quote.
        let text = Box::<RawValue>::deserialize(from)?;
        serde_json::from_str(text.get()).map(Self).map_err(|error| {
            D::Error::custom(format_args!(
                "not an event of this function (line {}, column {}): give {{\"messages\": [...]}}, or connect an intake queue",
                error.line(),
                error.column()
            ))
        })
    }
}

/// A request, not read yet.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    /// Its JSON.
    pub(crate) text: String,
    /// The lane of the queue it came through.
    pub(crate) queue: Option<Lane>,
    /// Its place in its line, if it has waited.
    pub(crate) place: Option<u64>,
    /// When it first reached us.
    pub(crate) first_seen: Moment,
    /// Whether it is a copy that was put back on its queue: it was accepted when it came first.
    pub(crate) put_back: bool,
    /// How often it was held because Redis could not be used.
    pub(crate) holds: u32,
    /// Since when somebody may have put it on its send queue before.
    pub(crate) suspect_since: Option<Moment>,
    /// Since when another may be at it: SQS has handed it over before.
    pub(crate) received_before: Option<Moment>,
}

/// An event, told apart.
pub(crate) enum Batch {
    /// Messages of a queue, by message id.
    Queued(Vec<(String, Incoming)>),
    /// Requests of a direct caller.
    Direct(Vec<Incoming>),
    /// Requests of a direct caller for slots only, as JSON.
    SlotsOnly(Vec<String>),
}

impl Event {
    pub(crate) fn into_batch(
        self,
        intake: &ByLane<Queue>,
        now: Moment,
    ) -> Result<Batch, HandlerError> {
        let Self(Form {
            records,
            messages,
            enqueue,
            release,
        }) = self;
        if release.is_some() {
            return Err(HandlerError::Release);
        }
        match (records, messages) {
            (Some(records), None) => {
                let records = records
                    .into_iter()
                    .map(|record| queued(record, intake, now));
                Ok(Batch::Queued(records.collect::<Result<_, _>>()?))
            }
            (None, Some(messages)) if messages.len() > MAX_DIRECT => {
                Err(HandlerError::TooManyMessages(messages.len()))
            }
            (None, Some(messages)) if enqueue == Some(false) => {
                let texts = messages
                    .into_iter()
                    .map(|message| String::from(Box::<str>::from(message)));
                Ok(Batch::SlotsOnly(texts.collect()))
            }
            (None, Some(messages)) => {
                let direct = |message: Box<RawValue>| Incoming {
                    text: queueable(message),
                    queue: None,
                    place: None,
                    first_seen: now,
                    put_back: false,
                    holds: 0,
                    suspect_since: None,
                    received_before: None,
                };
                Ok(Batch::Direct(messages.into_iter().map(direct).collect()))
            }
            (None, None) | (Some(_), Some(_)) => Err(HandlerError::UnknownEvent),
        }
    }
}

/// A direct caller's request as SQS takes it. SQS refuses a call whose text holds U+FFFE or U+FFFF, and
/// a request may have to wait on a queue; JSON has them only in strings, where an escape is the same.
/// Done before anything is read, so that size and fingerprint are those it has when it comes back.
fn queueable(request: Box<RawValue>) -> String {
    let mut text: String = Box::<str>::from(request).into();
    for (character, escape) in [('\u{fffe}', "\\ufffe"), ('\u{ffff}', "\\uffff")] {
        if text.contains(character) {
            text = text.replace(character, escape);
        }
    }
    text
}

fn queued(
    record: SqsMessage,
    intake: &ByLane<Queue>,
    now: Moment,
) -> Result<(String, Incoming), HandlerError> {
    // Without an id a failure could not be named, and Lambda would delete the message.
    let id = record.message_id.ok_or(HandlerError::NoMessageId)?;
    let lane = intake.lane_of(record.event_source_arn.as_deref().unwrap_or_default())?;
    let sent = record
        .attributes
        .get("SentTimestamp")
        .and_then(|text| text.parse().ok());
    let seen_before = number(&record.message_attributes, FIRST_SEEN);
    // What was dead-lettered has a first seen, too, and was not accepted then.
    let put_back = seen_before.is_some() && !record.message_attributes.contains_key(REASON);
    let first_seen = seen_before.or(sent).unwrap_or(now.0);
    let received_before = received_before(&record.attributes);
    let known = number(&record.message_attributes, SUSPECT).map(Moment);
    let holds = number(&record.message_attributes, HOLDS).unwrap_or_default();
    let incoming = Incoming {
        holds: u32::try_from(holds).unwrap_or(u32::MAX),
        put_back,
        suspect_since: received_before.into_iter().chain(known).min(),
        received_before,
        text: record.body.unwrap_or_default(),
        queue: Some(lane),
        place: number(&record.message_attributes, PLACE),
        first_seen: Moment(first_seen).min(now),
    };
    Ok((id, incoming))
}

fn number(attributes: &HashMap<String, SqsMessageAttribute>, name: &str) -> Option<u64> {
    attributes.get(name)?.string_value.as_deref()?.parse().ok()
}
