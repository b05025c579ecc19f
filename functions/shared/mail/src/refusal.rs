//! Why a request is refused.

use sendslot_domain::{Lane, TenantName, tenant::NameError};

use crate::{
    address::AddressError,
    request::{MAX_AHEAD_DAYS, MAX_RECIPIENTS},
};

/// Why a request is refused: what, where (a JSON pointer into the request), what to do. No text holds
/// an address, a subject or anything else of the mail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The body can't be read.
    #[error("no JSON from line {line}, column {column} on: send one JSON object")]
    MalformedJson {
        /// Where, from 1.
        line: usize,
        /// Where, from 1.
        column: usize,
    },
    /// Two values under one key.
    #[error("{at}: the key is there twice: give it once")]
    DuplicateKey {
        /// Where.
        at: String,
    },
    /// A field that means nothing, perhaps a misspelt one.
    #[error("{at}: unknown field: correct its name or leave it out")]
    UnknownField {
        /// Where.
        at: String,
    },
    /// A field that is needed.
    #[error("{at}: missing: add it")]
    MissingField {
        /// Where.
        at: String,
    },
    /// Something else that the schema forbids.
    #[error("{at}: {problem}")]
    BadValue {
        /// Where.
        at: String,
        /// What and what to do.
        problem: String,
    },
    /// The send id can't travel as a message tag.
    #[error("/send_id: {0}")]
    BadSendId(NameError),
    /// Two mails under one send id.
    #[error("/send_id: used for another mail in the same batch: give each mail its own")]
    Conflict,
    /// The tenant's name can't be one.
    #[error("/tenant: {0}")]
    BadTenant(NameError),
    /// The budget has no such tenant.
    #[error(
        "/tenant: \"{0}\" is not set up: correct it, or give it settings (deploy infra/tenant.yaml, or name it in Tenants)"
    )]
    UnknownTenant(TenantName),
    /// The tenant may send nothing, and nothing of the mail is here that could be kept for it.
    #[error("/tenant: paused: ask again when it is resumed")]
    Paused,
    /// The lane is neither of the two.
    #[error("/lane: unknown lane: use \"priority\" or \"bulk\", or leave it out")]
    UnknownLane,
    /// The lane is not that of the queue.
    #[error(
        "/lane: \"{asked}\" came through the {queue} lane's queue: use the other queue, or leave it out"
    )]
    WrongLane {
        /// What the request says.
        asked: Lane,
        /// The lane whose queue it came through.
        queue: Lane,
    },
    /// An address that SES would refuse, or read as another one.
    #[error("{at}: {problem}")]
    BadAddress {
        /// Where.
        at: String,
        /// What and what to do.
        problem: AddressError,
    },
    /// Nobody to send to.
    #[error("/to: no recipients in to, cc and bcc: give 1 to {MAX_RECIPIENTS}")]
    NoRecipients,
    /// More recipients than SES takes in one mail.
    #[error(
        "/to: {count} recipients in to, cc and bcc: split the mail, {MAX_RECIPIENTS} are allowed"
    )]
    TooManyRecipients {
        /// How many there are.
        count: usize,
    },
    /// It costs more than a cap of the budget or of its tenant: it could never go.
    #[error(
        "costs more recipients than may be sent in an hour or a day: split it, or raise the cap"
    )]
    OverCap,
    /// The expiry is no moment.
    #[error("/expires_at: no moment: write it as in 2030-01-31T12:00:00Z (RFC 3339)")]
    BadExpiry,
    /// The time to send at is no moment.
    #[error("/send_at: no moment: write it as in 2030-01-31T12:00:00Z (RFC 3339)")]
    BadSendAt,
    /// The time to send at is further ahead than anything is kept.
    #[error("/send_at: more than {MAX_AHEAD_DAYS} days ahead: hand it in later")]
    TooFarAhead,
    /// It would be of no more use when it is to be sent.
    #[error("/expires_at: not after send_at: the mail could never go")]
    ExpiresFirst,
    /// The expiry is past.
    #[error("/expires_at: past: the mail is of no more use")]
    Expired,
    /// The message has waited longer than the stack keeps any.
    #[error(
        "first seen longer ago than the greatest message age: send it anew if it still matters"
    )]
    TooOld,
    /// Nothing to send, or more than one thing.
    #[error("{at}: {problem}")]
    BadContent {
        /// Where.
        at: String,
        /// What and what to do.
        problem: &'static str,
    },
    /// A header that can't be set.
    #[error("{at}: {problem}")]
    BadHeader {
        /// Where.
        at: String,
        /// What and what to do.
        problem: &'static str,
    },
    /// A message tag that SES would refuse.
    #[error("/tags: {problem}")]
    BadTag {
        /// What and what to do.
        problem: &'static str,
    },
    /// More than a queue carries.
    #[error(
        "{bytes} bytes with its envelope: {max} fit; shorten it, or keep the content in a template"
    )]
    TooLarge {
        /// What it would weigh.
        bytes: usize,
        /// What fits.
        max: usize,
    },
}

impl Refusal {
    /// The code of [`Refusal::UnknownTenant`].
    pub const UNKNOWN_TENANT: &'static str = "unknown_tenant";

    /// The reason's stable name, for dead-letter attributes, logs and direct callers.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::MalformedJson { .. } => "malformed_json",
            Self::DuplicateKey { .. } => "duplicate_key",
            Self::UnknownField { .. } => "unknown_field",
            Self::MissingField { .. } => "missing_field",
            Self::BadValue { .. } => "bad_value",
            Self::BadSendId(_) => "bad_send_id",
            Self::Conflict => "conflict",
            Self::BadTenant(_) => "bad_tenant",
            Self::UnknownTenant(_) => Self::UNKNOWN_TENANT,
            Self::Paused => "paused",
            Self::UnknownLane => "unknown_lane",
            Self::WrongLane { .. } => "wrong_lane",
            Self::BadAddress { .. } => "bad_address",
            Self::NoRecipients => "no_recipients",
            Self::TooManyRecipients { .. } => "too_many_recipients",
            Self::OverCap => "over_cap",
            Self::BadExpiry => "bad_expiry",
            Self::BadSendAt => "bad_send_at",
            Self::TooFarAhead => "too_far_ahead",
            Self::ExpiresFirst => "expires_first",
            Self::Expired | Self::TooOld => "expired",
            Self::BadContent { .. } => "bad_content",
            Self::BadHeader { .. } => "bad_header",
            Self::BadTag { .. } => "bad_tag",
            Self::TooLarge { .. } => "too_large",
        }
    }
}
