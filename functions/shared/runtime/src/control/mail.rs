//! What `control` is asked about single mails, and to have dead-lettered or parked mail go again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The most mails that [`Redriven::listed`] names.
pub const MOST_LISTED: usize = 100;

/// A request to say what is known of one mail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Find {
    /// Whose mail it is.
    pub tenant: String,
    /// Its send id.
    pub send_id: String,
    /// Who asks.
    #[serde(default)]
    pub caller: Option<String>,
}

/// Where a mail is, and how it got there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Found {
    /// As asked.
    pub tenant: String,
    /// As asked.
    pub send_id: String,
    /// `unknown`, `scheduled` (far ahead), `waiting`, `booked`, `sending`, `uncertain`, `parked`, or how it ended: `sent`, `rejected`, `suppressed`,
    /// `expired`, `cancelled`, `dead_lettered`.
    pub state: String,
    /// Since when, as far as that is known.
    pub since_ms: Option<u64>,
    /// The lane it travels in.
    pub lane: Option<String>,
    /// Its recipients.
    pub recipients: Option<u32>,
    /// The slot of what is booked, or when what waits or is scheduled asks for one.
    pub due_ms: Option<u64>,
    /// Why it is parked or dead-lettered: a word.
    pub reason: Option<String>,
    /// What happened to it, oldest first, as far as that is remembered: a day.
    pub history: Vec<Happened>,
}

/// One thing that happened to a mail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Happened {
    /// When.
    pub at_ms: u64,
    /// A state as in [`Found::state`].
    pub what: String,
    /// As [`Found::due_ms`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_ms: Option<u64>,
    /// As [`Found::reason`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A request not to send a mail that isn't sent yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    /// Whose mail it is.
    pub tenant: String,
    /// Its send id.
    pub send_id: String,
    /// Who asks.
    #[serde(default)]
    pub caller: Option<String>,
}

/// What came of a [`Cancel`]. What is being sent or has ended isn't cancelled: the failure `too_late` says how it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cancelled {
    /// As asked.
    pub tenant: String,
    /// As asked.
    pub send_id: String,
    /// Its state before, as in [`Found::state`]. `unknown`: it will be cancelled if it comes.
    pub was: String,
    /// Whether it may have been sent before: it was `uncertain`, and isn't sent again.
    pub may_have_been_sent: bool,
    /// Whether its slot was given back, for whoever books next.
    pub released: bool,
}

/// A request to have dead-lettered or parked mail go again, at a rate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redrive {
    /// `dead` (dead-letter queues) or `parked`; nothing is `dead`.
    #[serde(default)]
    pub from: Option<String>,
    /// One lane only.
    #[serde(default)]
    pub lane: Option<String>,
    /// One tenant only. What is parked needs one.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Only what was dead-lettered or parked for this reason: a word, as [`Redriven::left`] counts them.
    #[serde(default)]
    pub reason: Option<String>,
    /// Only what reached us so long ago or longer, seconds.
    #[serde(default)]
    pub older_than_seconds: Option<u64>,
    /// Only what reached us so long ago at most, seconds.
    #[serde(default)]
    pub younger_than_seconds: Option<u64>,
    /// How fast, such as `20/s`: below what may be sent now. All redrives of a lane share it: the last one's counts.
    pub rate: String,
    /// For how long to go on, 1 to 50 s; nothing is 20 s.
    #[serde(default)]
    pub seconds: Option<u64>,
    /// Whether mail goes again that may have been sent (reason `uncertain`).
    #[serde(default)]
    pub resend: bool,
    /// Looks, and changes nothing: [`Redriven::redriven`] is then what would go.
    #[serde(default)]
    pub dry_run: bool,
    /// Who asks.
    #[serde(default)]
    pub caller: Option<String>,
}

/// What came of a [`Redrive`]: mails, of this call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Redriven {
    /// They go again.
    pub redriven: u64,
    /// They had ended already (sent, mostly), and were taken off the queue.
    pub ended: u64,
    /// They stay where they are since they can't succeed, by reason.
    pub left: BTreeMap<String, u64>,
    /// They weren't asked for.
    pub passed: u64,
    /// Of those in `left`: the first [`MOST_LISTED`].
    pub listed: Vec<LeftMail>,
    /// About how many messages the dead-letter queues of the asked lanes hold now, or how many mails the bucket: these and others.
    pub remaining: u64,
    /// Whether all was looked at and nothing that was asked for is left to go. If not, ask again, after `retry_after_ms`.
    pub done: bool,
    /// When to ask again, ms from now.
    pub retry_after_ms: u64,
}

/// A mail that a redrive left where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftMail {
    /// Its lane.
    pub lane: String,
    /// Whose it is, if that can be made out.
    pub tenant: Option<String>,
    /// Its send id, if that can be made out.
    pub send_id: Option<String>,
    /// Why it was dead-lettered or parked: a word.
    pub reason: String,
    /// The same in words, without anything personal.
    pub detail: String,
}
