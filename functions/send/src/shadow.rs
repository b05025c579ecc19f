//! The provider of a deployment that only books and records: no mail leaves it.
//!
//! # What is the same as ever
//! Everything up to the moment of the send and from there on: slots, claims, grants, waits, marks. The request is made as SES would
//! get it, so that a mail of which none can be made is refused here as well; then it is dropped, and a line of the log says what would have gone when.
//!
//! # What isn't
//! - **SES isn't asked**, neither to send nor whether the account may. So nothing is throttled, refused or lost, and no event
//!   comes: nothing waits for one. A mail whose worker died in the middle goes through once more, whatever its policy, as nothing was sent.
//! - **The mark that it was sent is left all the same.** Whoever hands in a mail in shadow sends it by itself, so its send id is
//!   used up: it must not go a second time once the deployment sends.
//! - **It counts as sent in the guard**, in place of that other send: the account's day holds each mail once, and what SES
//!   counted beyond is mail that nobody handed in here.

use sendslot_domain::outcome::Outcome;
use tracing::info;

use crate::{
    ports::{Outgoing, Provider, Reply},
    ses,
};

/// Who takes the mail of a deployment.
#[derive(Clone, Debug)]
pub enum Door<P> {
    /// A provider, who sends it.
    Open(P),
    /// Nobody (`SENDSLOT_SHADOW` is `on`).
    Shadow,
}

impl<P: Provider> Provider for Door<P> {
    async fn send(&self, mail: &Outgoing<'_>) -> Reply {
        match self {
            Self::Open(provider) => provider.send(mail).await,
            Self::Shadow => record(mail),
        }
    }

    async fn account_sends(&self) -> Option<bool> {
        match self {
            Self::Open(provider) => provider.account_sends().await,
            Self::Shadow => None,
        }
    }
}

/// Says what would have been sent, without its addresses and content.
fn record(mail: &Outgoing<'_>) -> Reply {
    if let Err(error) = ses::request(mail) {
        return ses::unsendable(&error);
    }
    let outcome = Outcome::Shadowed;
    let envelope = mail.envelope;
    info!(
        send_id = %envelope.send_id,
        tenant = %envelope.tenant,
        lane = %mail.lane,
        attempts = envelope.attempts,
        outcome = outcome.code(),
        recipients = envelope.mail.cost(),
        slot_ms = envelope.slot.0,
        grant_ms = mail.grant.0,
        configuration_set = mail.tenant.configuration_set.as_deref(),
    );
    Reply {
        outcome,
        id: None,
        said: None,
    }
}
