//! A message under way, and what SQS has to do with it.

use std::sync::Arc;

use aws_lambda_events::sqs::SqsMessage;
use sendslot_domain::{Millis, Moment};
use sendslot_mail::Envelope;
use sendslot_runtime::{
    TenantSettings, UncertainPolicy,
    parking::Reason,
    queue::{self, MAX_DELAY_SECONDS},
};
use sendslot_schedule::{ClaimAsk, Note, Purpose, Unused, What};

/// A message as SQS handed it over.
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) receipt: String,
    pub(crate) body: String,
    /// When it was first received, if this isn't the first time: somebody may have claimed it then.
    pub(crate) received_before: Option<Moment>,
    /// Whose it is, if its body could be read: the group of whatever takes its place on a queue.
    pub(crate) group: Option<String>,
}

impl From<SqsMessage> for Record {
    fn from(message: SqsMessage) -> Self {
        Self {
            received_before: queue::received_before(&message.attributes),
            id: message.message_id.unwrap_or_default(),
            receipt: message.receipt_handle.unwrap_or_default(),
            body: message.body.unwrap_or_default(),
            group: None,
        }
    }
}

/// A message that could be read.
pub(crate) struct Message {
    pub(crate) record: Record,
    pub(crate) envelope: Envelope,
    /// Whether it is of no more use.
    pub(crate) expired: bool,
    /// The settings of its tenant.
    pub(crate) tenant: Arc<TenantSettings>,
    /// What is done with it when it may have been sent.
    pub(crate) uncertain: UncertainPolicy,
}

impl Message {
    /// Reads a record's envelope; what SQS says of earlier receives is in it then. Of its tenant nothing is known yet.
    pub(crate) fn new(
        mut record: Record,
        mut envelope: Envelope,
        expired: bool,
        uncertain: UncertainPolicy,
    ) -> Self {
        record.group = Some(envelope.tenant.to_string());
        if let Some(before) = record.received_before {
            let known = envelope.suspect_since.unwrap_or(before);
            envelope.suspect_since = Some(known.min(before));
            // That was leave for one send, which may have begun.
            envelope.resend = false;
        }
        Self {
            record,
            envelope,
            expired,
            tenant: Arc::default(),
            uncertain,
        }
    }

    /// Whether somebody may have claimed it before.
    pub(crate) fn is_suspect(&self) -> bool {
        self.envelope.uncertain || self.envelope.suspect_since.is_some()
    }

    /// What a worker claims it with.
    pub(crate) fn claim_ask(&self) -> ClaimAsk {
        let envelope = &self.envelope;
        ClaimAsk {
            tenant: envelope.tenant.clone(),
            send_id: envelope.send_id.clone(),
            fingerprint: envelope.fingerprint.clone(),
            cost: envelope.mail.cost(),
            slot: envelope.slot,
            // Since time began: it is uncertain whatever Redis has lost.
            suspect_since: if envelope.uncertain {
                Some(Moment(0))
            } else {
                envelope.suspect_since
            },
            void: envelope.void.clone(),
            purpose: match (self.expired, envelope.resend, self.uncertain) {
                (true, ..) => Purpose::Expire,
                (false, true, _) => Purpose::Resend,
                (false, false, UncertainPolicy::Resend) => Purpose::Send,
                (false, false, UncertainPolicy::Park) => Purpose::Once,
            },
        }
    }

    /// Its slot, for whoever books next; nothing when it was put back without one.
    pub(crate) fn unused(&self) -> Option<Unused> {
        unused(&self.envelope)
    }
}

/// Notes in a copy that the claim of this owner surely sent nothing, beside those noted before.
pub(crate) fn add_void(envelope: &mut Envelope, owner: &str) {
    let known = envelope.void.take().unwrap_or_default();
    let mut owners: Vec<&str> = known.split(',').filter(|known| !known.is_empty()).collect();
    owners.push(owner);
    let first = owners.len().saturating_sub(Envelope::MOST_VOID);
    envelope.void = Some(owners[first..].join(","));
}

/// An envelope's slot, for whoever books next.
pub(crate) fn unused(envelope: &Envelope) -> Option<Unused> {
    (!envelope.cells.is_empty()).then(|| Unused {
        tenant: envelope.tenant.clone(),
        goes: envelope.slot.cell(),
        cells: envelope.cells.clone(),
        slot_only: false,
    })
}

/// What happened to a mail, for whoever looks for it.
pub(crate) fn note(envelope: &Envelope, what: What) -> Note {
    Note {
        tenant: envelope.tenant.clone(),
        send_id: envelope.send_id.clone(),
        lane: envelope.lane,
        cost: envelope.mail.cost(),
        what,
    }
}

/// What SQS has to do with a message.
pub(crate) enum Fate {
    /// It is done with.
    Delete,
    /// Put it on the dead-letter queue.
    DeadLetter {
        reason: &'static str,
        detail: String,
        /// What to give back then.
        unused: Option<Unused>,
        /// What is known of it, if it was claimed: should that claim be left standing, the dead letter must say so.
        claimed: Option<Box<Envelope>>,
        /// What to note of it then.
        note: Option<Note>,
    },
    /// Put `message` on the send queue in its place.
    Again {
        message: queue::Message,
        count: &'static str,
        /// What to give back then: its old slot.
        unused: Option<Unused>,
        /// What to give back otherwise: its new slot.
        booked: Option<Unused>,
    },
    /// Put it into the bucket of parked mail.
    Park {
        envelope: Box<Envelope>,
        reason: Reason,
        unused: Option<Unused>,
    },
    /// Let it come back after so many seconds.
    Back { seconds: u16 },
    /// Let it come back at the end of its visibility timeout.
    Keep,
}

/// What SQS takes as a delay: whole seconds, so that a message surfaces rather early than late.
pub(crate) fn delay_seconds(delay: Millis) -> u16 {
    u16::try_from(delay.whole_secs())
        .map_or(MAX_DELAY_SECONDS, |seconds| seconds.min(MAX_DELAY_SECONDS))
}

/// A duration of up to so long.
pub(crate) fn up_to(longest: Millis) -> Millis {
    Millis(rand::random_range(0..=longest.0))
}
