//! Parked mail on its way again: `{"release": {"tenant": "acme", "reason": "paused", "most": 100}}`.
//!
//! The oldest goes first, and only what gets a slot within the horizon leaves the bucket, so that the bucket is the waiting
//! line: whoever releases asks again after `retry_after_ms` while anything is `left`. What can't be released as it is (its
//! code is in `reasons`) stays where it is, and what is behind it is looked at; when a call has looked at enough, its answer
//! says in `after` where the next may go on.
//!
//! A mail leaves the bucket after its send queue has it; cut short between the two, it is released twice and sent once. Should a
//! worker be so fast that it parks the mail anew before, the new one stays: only what was read is removed. Releasing what is
//! paused resumes its tenant; releasing what is uncertain has it sent although it may have been.

use std::{collections::BTreeMap, pin::pin};

use futures_util::{StreamExt, stream};
use sendslot_domain::{Lane, Millis, TenantName};
use sendslot_mail::{Envelope, Refusal};
use sendslot_runtime::{
    ByLane,
    parking::{ParkedKey, Reason},
    queue::{self, Message, NotSent, SendBatch},
};
use sendslot_schedule::{Ask, Booking, Standing};
use serde::{Deserialize, Serialize};
use tokio::time::timeout_at;

use crate::{
    booking::{self, LATE, Undone, book_lane, in_time},
    deadline::Deadline,
    error::HandlerError,
    handler::{Reserve, seconds},
    ports::{Book, Parked, ParkedMail, Removed},
};

/// How many mails one call releases unless it says otherwise.
const USUALLY: usize = 100;
/// How many it may.
pub const MAX_RELEASE: usize = 1000;
/// How many mails one call looks at, at least. With the one that tells whether there are more, that is a page of S3's.
pub const LOOKED_AT: usize = 999;
/// How many mails go at a time: reading, booking, queueing and removing so many takes a second or two.
const ROUND: usize = 200;
/// How many objects are read or removed at a time.
const AT_ONCE: usize = 16;
/// After so many bytes no more is read at a time: what is read is held several times over.
const MAX_BYTES: usize = 32 * 1024 * 1024;
/// The longest delay that SQS takes.
const MAX_DELAY: Millis = Millis::from_secs(queue::MAX_DELAY_SECONDS as u64);

/// What is to be released.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    tenant: String,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    most: Option<usize>,
    #[serde(default)]
    after: Option<String>,
}

/// The same, checked.
struct Wanted {
    tenant: TenantName,
    reason: Reason,
    most: usize,
    after: Option<ParkedKey>,
}

/// What was.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Released {
    /// Mails that are on their send queue now.
    pub released: usize,
    /// Mails that were looked at and stay parked, since they can't be released as they are.
    pub refused: usize,
    /// Why: how many, by code. The log names each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<&'static str, usize>,
    /// Whether another call may release more of what is parked for this reason.
    pub left: bool,
    /// When to ask again, ms from now, if anything is left.
    pub retry_after_ms: u64,
    /// What to give as `after` then, so that what was refused isn't looked at again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

impl Released {
    fn refuse(&mut self, code: &'static str) {
        self.refused += 1;
        *self.reasons.entry(code).or_default() += 1;
    }
}

/// A mail out of the bucket.
struct Mail {
    key: ParkedKey,
    tag: String,
    envelope: Envelope,
}

impl TryFrom<Release> for Wanted {
    type Error = HandlerError;

    fn try_from(ask: Release) -> Result<Self, HandlerError> {
        let bad = HandlerError::BadRelease;
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
        let key = |after: &String| {
            after
                .parse()
                .ok()
                .filter(|k: &ParkedKey| k.tenant == tenant)
        };
        let after = match &ask.after {
            None => None,
            Some(after) => Some(key(after).ok_or_else(|| {
                bad(format!(
                    "after {after:?}: give what an answer gave for the tenant, or leave it out"
                ))
            })?),
        };
        Ok(Self {
            tenant,
            reason,
            most,
            after,
        })
    }
}

impl<B: Book, Q: SendBatch, S: Parked> Reserve<B, Q, S> {
    /// Releases a tenant's oldest parked mail.
    ///
    /// # Errors
    /// When the request is wrong, or bucket or schedule can't be used. What was not released then is still parked.
    pub(crate) async fn release(
        &self,
        ask: Release,
        deadline: Deadline,
    ) -> Result<Released, HandlerError> {
        let wanted = Wanted::try_from(ask)?;
        let Wanted {
            tenant,
            reason,
            most,
            after,
        } = &wanted;
        let look = LOOKED_AT.max(*most);
        let list = self
            .parked
            .oldest(tenant, *reason, after.as_ref(), look + 1);
        let mut keys = match timeout_at(deadline.take_by(), list).await {
            Ok(keys) => keys.map_err(HandlerError::Parking)?,
            Err(_) => return Err(HandlerError::Parking(LATE.to_owned())),
        };
        let more = keys.len() > look;
        keys.truncate(look);
        if *reason == Reason::Paused {
            let resumed = in_time(deadline.book_by(), self.schedule.resume(tenant)).await;
            resumed.map_err(HandlerError::Schedule)?;
        }
        let mut done = Released::default();
        // What is before it is released or refused.
        let mut at = 0;
        while at < keys.len() && done.released < *most && !deadline.is_near() {
            let end = keys.len().min(at + ROUND.min(most - done.released));
            let (mails, looked) = self.read(&keys[at..end], &mut done, deadline).await?;
            let mut by_lane = ByLane::<Vec<Mail>>::default();
            for mail in mails {
                by_lane.get_mut(mail.key.lane).push(mail);
            }
            let ByLane { priority, bulk } = by_lane;
            let mut all = true;
            for (lane, mails) in [(Lane::Priority, priority), (Lane::Bulk, bulk)] {
                all &= self
                    .send_on(lane, mails, *reason, &mut done, deadline)
                    .await?;
            }
            if !all {
                break; // some of these have to wait, and what is behind them likewise
            }
            at += looked;
        }
        done.left = more || at < keys.len();
        if done.left && (after.is_some() || done.refused > 0) {
            let passed = at.checked_sub(1).map(|last| &keys[last]).or(after.as_ref());
            done.after = passed.map(ToString::to_string);
        }
        tracing::info!(%tenant, reason = reason.as_str(), released = done.released, refused = done.refused, left = done.left, "release");
        Ok(done)
    }

    /// Reads mails, in order, as many as there is time and room for; answers with how many were looked at, too. What can't be
    /// read stays.
    async fn read(
        &self,
        keys: &[ParkedKey],
        done: &mut Released,
        deadline: Deadline,
    ) -> Result<(Vec<Mail>, usize), HandlerError> {
        let mut bodies = pin!(
            stream::iter(keys)
                .map(async |key| (key, self.parked.fetch(key).await))
                .buffered(AT_ONCE)
        );
        let (mut mails, mut looked, mut bytes) = (Vec::new(), 0, 0);
        while bytes <= MAX_BYTES
            && let Ok(Some((key, fetched))) = timeout_at(deadline.take_by(), bodies.next()).await
        {
            looked += 1;
            let Some(ParkedMail { body, tag }) = fetched.map_err(HandlerError::Parking)? else {
                continue; // released by another call
            };
            bytes += body.len();
            let envelope = str::from_utf8(&body)
                .map_err(|error| error.to_string())
                .and_then(|text| Envelope::from_json(text).map_err(|error| error.to_string()));
            match envelope {
                Ok(envelope) => mails.push(Mail {
                    key: key.clone(),
                    tag,
                    envelope,
                }),
                Err(error) => {
                    tracing::error!(send_id = %key.send_id, error, "a parked mail can't be read");
                    done.refuse("unreadable");
                }
            }
        }
        Ok((mails, looked))
    }

    /// Gives each of a lane's mails a slot and puts it on its send queue. Answers whether that is all of them but those that stay
    /// refused; the others have to wait.
    async fn send_on(
        &self,
        lane: Lane,
        mails: Vec<Mail>,
        reason: Reason,
        done: &mut Released,
        deadline: Deadline,
    ) -> Result<bool, HandlerError> {
        if mails.is_empty() {
            return Ok(true);
        }
        let mut all = true;
        let asks: Vec<Ask> = mails.iter().map(ask).collect();
        let booked = book_lane(&self.schedule, lane, &asks, deadline.book_by()).await;
        let bookings = booked.map_err(HandlerError::Schedule)?;
        let (mut undone, mut messages, mut on_their_way) =
            (Undone::default(), Vec::new(), Vec::new());
        for ((mail, ask), booking) in mails.into_iter().zip(asks).zip(bookings) {
            let Mail { key, tag, envelope } = mail;
            let wait = match &booking {
                Booking::Slot(slot) => {
                    match message(envelope, lane, slot, reason) {
                        Ok(message) => {
                            messages.push(message);
                            on_their_way.push((key, tag, ask, booking));
                        }
                        Err(error) => {
                            tracing::error!(send_id = %key.send_id, %error, "writing an envelope failed");
                            undone.add(&ask, &booking);
                            done.refuse("unwritable");
                        }
                    }
                    continue;
                }
                Booking::Wait(wait) => wait.delay,
                Booking::Blocked(left) => *left,
                Booking::UnknownTenant | Booking::OverCap | Booking::Paused | Booking::Left => {
                    tracing::error!(send_id = %key.send_id, ?booking, "a parked mail gets no slot");
                    done.refuse(match booking {
                        Booking::UnknownTenant => Refusal::UnknownTenant.code(),
                        Booking::OverCap => Refusal::OverCap.code(),
                        Booking::Paused => Refusal::Paused.code(),
                        _ => "no_slot",
                    });
                    continue;
                }
            };
            undone.add(&ask, &booking);
            all = false;
            done.retry_after_ms = done.retry_after_ms.max(wait.0);
        }
        let queue = self.settings.common.send_queues.get(lane);
        let put = queue::send_all(&self.queues, queue, &messages, deadline.put_by()).await;
        let mut gone = Vec::new();
        for ((key, tag, ask, booking), put) in on_their_way.into_iter().zip(put) {
            match put {
                Ok(()) => gone.push((key, tag)),
                Err(error) => {
                    tracing::error!(send_id = %key.send_id, %error, "a parked mail stays");
                    undone.add(&ask, &booking);
                    match error {
                        NotSent::TooLarge { .. } => done.refuse("too_large"),
                        NotSent::Refused { .. } => done.refuse("not_queued"),
                        NotSent::Call(_) | NotSent::NoTime => all = false,
                    }
                }
            }
        }
        done.released += gone.len();
        self.remove(&gone, deadline).await;
        booking::undo(&self.schedule, lane, &undone, deadline.undo_by()).await;
        Ok(all)
    }

    /// Removes what is on its send queue, as far as there is time.
    async fn remove(&self, gone: &[(ParkedKey, String)], deadline: Deadline) {
        let removals = stream::iter(gone).for_each_concurrent(AT_ONCE, async |(key, tag)| {
            let send_id = &key.send_id;
            match self.parked.remove(key, tag).await {
                Ok(Removed::Gone) => {}
                Ok(Removed::ParkedAnew) => tracing::info!(%send_id, "released, and parked anew"),
                Err(error) => {
                    tracing::warn!(%send_id, error, "a mail that was released is still parked: it goes once");
                }
            }
        });
        if timeout_at(deadline.remove_by(), removals).await.is_err() {
            tracing::warn!("mails that were released are still parked: they go once");
        }
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
        delay_seconds: seconds(slot.delay.min(MAX_DELAY)),
        attributes: Vec::new(),
        group: None,
    })
}
