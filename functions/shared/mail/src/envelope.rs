//! What travels on a send queue. A stored format: a deploy or a rollback replaces the functions while
//! mail waits, so each version reads what the one before and the one after it write. Fields may be
//! added, never renamed, and a reader ignores those it doesn't know. Any other change needs a new
//! version number.

use std::io;

use sendslot_domain::{Cell, Lane, Moment, SendId, TenantName};
use serde::{Deserialize, Serialize};

use crate::{Mail, wire};

/// A mail with its slot.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Envelope {
    /// The producer's idempotency key, scoped by tenant.
    #[serde(with = "wire::text")]
    pub send_id: SendId,
    /// On whose behalf it goes.
    #[serde(with = "wire::text")]
    pub tenant: TenantName,
    /// The lane it travels in.
    #[serde(with = "wire::text")]
    pub lane: Lane,
    /// When it may go.
    #[serde(rename = "slot_ms", with = "wire::ms")]
    pub slot: Moment,
    /// The recipients booked, cell by cell, so that they can be released.
    #[serde(with = "wire::cells")]
    pub cells: Vec<(Cell, u32)>,
    /// How often it was tried and failed.
    #[serde(default)]
    pub attempts: u32,
    /// How often it was held for no fault of its own: Redis or the provider could not be reached.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub holds: u32,
    /// Since when somebody may have claimed a message that this is a copy of, if somebody may: it had been received before.
    #[serde(
        default,
        rename = "suspect_since_ms",
        with = "wire::ms_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub suspect_since: Option<Moment>,
    /// Whether it may have been sent: it waits for the provider's event that says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncertain: bool,
    /// Whose claims of it surely sent nothing, though Redis may not know: at most [`Envelope::MOST_VOID`], with commas between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
    /// Whether an operator has said that it is to be sent although it may have been.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resend: bool,
    /// When it reached the intake queue, or the direct caller's request reached us.
    #[serde(rename = "first_seen_ms", with = "wire::ms")]
    pub first_seen: Moment,
    /// When it is of no more use.
    #[serde(
        default,
        rename = "expires_at_ms",
        with = "wire::ms_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub expires_at: Option<Moment>,
    /// [`Mail::fingerprint`], made once.
    pub fingerprint: String,
    /// The mail.
    pub mail: Mail,
}

/// The text is no envelope that this version can read.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// Another version wrote it, and not one next to this.
    #[error(
        "envelope version {0}, this function reads version {version}: deploy the version that wrote it",
        version = Envelope::VERSION
    )]
    Version(u64),
    /// It is damaged, or no envelope at all.
    #[error("no envelope: {category} at line {line}, column {column}")]
    Malformed {
        /// `syntax`, `data` (a field is missing or wrong) or `eof` (it ends too early).
        category: &'static str,
        /// Where, from 1.
        line: usize,
        /// Where, from 1.
        column: usize,
    },
}

impl From<serde_json::Error> for EnvelopeError {
    /// Keeps where, not what: serde quotes what it found, which may be personal.
    fn from(error: serde_json::Error) -> Self {
        use serde_json::error::Category;
        Self::Malformed {
            category: match error.classify() {
                Category::Data => "data",
                Category::Eof => "eof",
                Category::Syntax | Category::Io => "syntax",
            },
            line: error.line(),
            column: error.column(),
        }
    }
}

#[derive(Serialize)]
struct Versioned<'a> {
    v: u64,
    #[serde(flatten)]
    envelope: &'a Envelope,
}

#[derive(Deserialize)]
struct VersionOnly {
    v: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Envelope {
    /// The version that this code writes and reads.
    pub const VERSION: u64 = 1;
    /// How many void claims are named: Redis would have to fail as often between a claim and its answer.
    pub const MOST_VOID: usize = 8;

    /// The body of a message.
    ///
    /// # Errors
    /// Never for a mail that was read from JSON.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut json = serde_json::to_string(&self.versioned())?;
        // SQS refuses a body that holds one of these two; as escapes they pass.
        for (character, escape) in [('\u{fffe}', "\\ufffe"), ('\u{ffff}', "\\uffff")] {
            if json.contains(character) {
                json = json.replace(character, escape);
            }
        }
        Ok(json)
    }

    /// Reads the body of a message.
    ///
    /// # Errors
    /// When it is of another version, or no envelope.
    pub fn from_json(text: &str) -> Result<Self, EnvelopeError> {
        // The version first: whatever else another one changed, this says what is the matter.
        match serde_json::from_str::<VersionOnly>(text)?.v {
            Self::VERSION => Ok(serde_json::from_str(text)?),
            other => Err(EnvelopeError::Version(other)),
        }
    }

    /// How long [`Envelope::to_json`] is, without making it.
    pub(crate) fn json_bytes(&self) -> Result<usize, serde_json::Error> {
        let mut counter = Counter(0);
        serde_json::to_writer(&mut counter, &self.versioned())?;
        Ok(counter.0)
    }

    fn versioned(&self) -> Versioned<'_> {
        Versioned {
            v: Self::VERSION,
            envelope: self,
        }
    }
}

/// Counts what is written to it.
struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
