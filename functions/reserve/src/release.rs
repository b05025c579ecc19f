//! Parked mail on its way again: `{"release": {"tenant": "acme", "reason": "paused", "most": 100}}`.
//!
//! The oldest goes first, and only what gets a slot within the horizon leaves the bucket, so that the bucket is the waiting
//! line: whoever releases asks again after `retry_after_ms` while anything is `left`. A mail leaves the bucket after its send
//! queue has it; cut short between the two, it is released twice and sent once. Releasing what is paused resumes its tenant;
//! releasing what is uncertain has it sent although it may have been.

use std::pin::pin;

use futures_util::{StreamExt, future::join_all, stream};
use sendslot_domain::{Lane, Millis, TenantName};
use sendslot_mail::Envelope;
use sendslot_runtime::{
    ByLane,
    parking::{ParkedKey, Reason},
    queue::{self, Message, SendBatch},
};
use sendslot_schedule::{Ask, Booking, Standing};
use serde::{Deserialize, Serialize};

use crate::{
    booking::{self, Undone},
    error::HandlerError,
    handler::{Reserve, seconds},
    ports::{Book, Parked},
};

/// How many mails one call releases unless it says otherwise.
const USUALLY: usize = 100;
/// How many it may.
pub const MAX_RELEASE: usize = 1000;
/// How many objects are read or removed at a time.
const AT_ONCE: usize = 16;
/// The least delay of a released mail: longer than removing all objects of a call takes.
const LEAST_DELAY_SECONDS: u16 = 15;
/// After so many bytes no more is read in one call: what is read is held several times over.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// What is to be released.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    tenant: String,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    most: Option<usize>,
}

/// What was.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Released {
    /// Mails that are on their send queue now.
    pub released: usize,
    /// Mails of this call that stay parked, since they can't be read or the schedule refuses them: the log says why.
    pub refused: usize,
    /// Whether more is parked for this reason.
    pub left: bool,
    /// When to ask again, ms from now, if anything is left.
    pub retry_after_ms: u64,
}

/// A mail out of the bucket.
struct Mail {
    key: ParkedKey,
    envelope: Envelope,
}

impl<B: Book, Q: SendBatch, S: Parked> Reserve<B, Q, S> {
    /// Releases a tenant's oldest parked mail.
    ///
    /// # Errors
    /// When the request is wrong, or bucket or schedule can't be used. What was not released then is still parked.
    pub(crate) async fn release(&self, ask: Release) -> Result<Released, HandlerError> {
        let bad = |what: String| HandlerError::BadRelease(what);
        let tenant: TenantName = ask
            .tenant
            .parse()
            .map_err(|e| bad(format!("tenant {:?}: {e}", ask.tenant)))?;
        let reason = ask.reason.as_deref().unwrap_or(Reason::Paused.as_str());
        let reason: Reason = reason
            .parse()
            .map_err(|_| bad(format!("reason {reason:?}: give paused or uncertain")))?;
        let most = ask.most.unwrap_or(USUALLY);
        if !(1..=MAX_RELEASE).contains(&most) {
            return Err(bad(format!("most {most}: give 1 to {MAX_RELEASE}")));
        }
        let parked = |why| HandlerError::Parking(why);
        let mut keys = self
            .parked
            .oldest(&tenant, reason, most + 1)
            .await
            .map_err(parked)?;
        let mut done = Released {
            left: keys.len() > most,
            ..Released::default()
        };
        keys.truncate(most);
        if reason == Reason::Paused {
            let resumed = self.schedule.resume(&tenant).await;
            resumed.map_err(|why| HandlerError::Schedule(why.to_string()))?;
        }
        let mails = self.read(keys, &mut done).await?;
        let mut by_lane = ByLane::<Vec<Mail>>::default();
        for mail in mails {
            by_lane.get_mut(mail.key.lane).push(mail);
        }
        let ByLane { priority, bulk } = by_lane;
        for (lane, mails) in [(Lane::Priority, priority), (Lane::Bulk, bulk)] {
            self.send_on(lane, mails, reason, &mut done).await?;
        }
        tracing::info!(%tenant, reason = reason.as_str(), released = done.released, refused = done.refused, left = done.left, "release");
        Ok(done)
    }

    /// Reads mails, in order. What can't be read stays.
    async fn read(
        &self,
        keys: Vec<ParkedKey>,
        done: &mut Released,
    ) -> Result<Vec<Mail>, HandlerError> {
        let mut bodies = pin!(
            stream::iter(keys)
                .map(async |key| {
                    let body = self.parked.fetch(&key).await;
                    (key, body)
                })
                .buffered(AT_ONCE)
        );
        let (mut mails, mut bytes) = (Vec::new(), 0);
        while let Some((key, body)) = bodies.next().await {
            let Some(body) = body.map_err(HandlerError::Parking)? else {
                continue; // released by another call
            };
            bytes += body.len();
            match Envelope::from_json(&body) {
                Ok(envelope) => mails.push(Mail { key, envelope }),
                Err(error) => {
                    tracing::error!(send_id = %key.send_id, %error, "a parked mail can't be read");
                    done.refused += 1;
                }
            }
            if bytes > MAX_BYTES {
                done.left = true;
                break;
            }
        }
        Ok(mails)
    }

    /// Gives each of a lane's mails a slot and puts it on its send queue.
    async fn send_on(
        &self,
        lane: Lane,
        mails: Vec<Mail>,
        reason: Reason,
        done: &mut Released,
    ) -> Result<(), HandlerError> {
        if mails.is_empty() {
            return Ok(());
        }
        let asks: Vec<Ask> = mails.iter().map(ask).collect();
        let booked = self.schedule.book(lane, &asks).await;
        let bookings = booked.map_err(|why| HandlerError::Schedule(why.to_string()))?;
        let (mut undone, mut messages, mut on_their_way) =
            (Undone::default(), Vec::new(), Vec::new());
        for ((mail, ask), booking) in mails.into_iter().zip(asks).zip(bookings) {
            let wait = match &booking {
                Booking::Slot(slot) => {
                    match message(mail.envelope, lane, slot, reason) {
                        Ok(message) => {
                            messages.push(message);
                            on_their_way.push((mail.key, ask, booking));
                        }
                        Err(error) => {
                            tracing::error!(send_id = %mail.key.send_id, %error, "writing an envelope failed");
                            undone.add(&ask, &booking);
                            done.refused += 1;
                        }
                    }
                    continue;
                }
                Booking::Wait(wait) => wait.delay,
                Booking::Blocked(left) => *left,
                Booking::UnknownTenant | Booking::OverCap | Booking::Left => {
                    tracing::error!(send_id = %mail.key.send_id, ?booking, "a parked mail gets no slot");
                    done.refused += 1;
                    continue;
                }
            };
            undone.add(&ask, &booking);
            done.left = true;
            done.retry_after_ms = done.retry_after_ms.max(wait.0);
        }
        let queue = self.settings.common.send_queues.get(lane);
        let put = queue::send_all(&self.queues, queue, &messages).await;
        let mut gone = Vec::new();
        for ((key, ask, booking), put) in on_their_way.into_iter().zip(put) {
            match put {
                Ok(()) => gone.push(key),
                Err(error) => {
                    tracing::error!(send_id = %key.send_id, %error, "a parked mail stays");
                    undone.add(&ask, &booking);
                    done.left = true;
                }
            }
        }
        done.released += gone.len();
        let removals = gone.chunks(AT_ONCE);
        for part in removals {
            let removed = join_all(part.iter().map(|key| self.parked.remove(key))).await;
            for (key, error) in part
                .iter()
                .zip(removed)
                .filter_map(|(k, r)| Some((k, r.err()?)))
            {
                tracing::warn!(send_id = %key.send_id, error, "a mail that was released is still parked: it goes once");
            }
        }
        booking::undo(&self.schedule, lane, &undone).await;
        Ok(())
    }
}

/// It was booked before, but its slot is long gone: it asks as new mail does.
fn ask(mail: &Mail) -> Ask {
    Ask {
        tenant: mail.envelope.tenant.clone(),
        cost: mail.envelope.mail.cost(),
        standing: Standing::New,
    }
}

fn message(
    mut envelope: Envelope,
    lane: Lane,
    slot: &sendslot_schedule::Slot,
    reason: Reason,
) -> Result<Message, serde_json::Error> {
    envelope.lane = lane;
    envelope.slot = slot.at;
    envelope.cells.clone_from(&slot.cells);
    (envelope.attempts, envelope.holds) = (0, 0);
    if reason == Reason::Uncertain {
        (envelope.uncertain, envelope.suspect_since) = (false, None);
        envelope.resend = true;
    }
    Ok(Message {
        body: envelope.to_json()?,
        // Not before its object is removed: parked anew meanwhile, it would be removed with it.
        delay_seconds: seconds(slot.delay.min(Millis::from_secs(900))).max(LEAST_DELAY_SECONDS),
        attributes: Vec::new(),
    })
}
