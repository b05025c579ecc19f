//! Parked mail on its way again: the action `release`, and what it shares with a replay.
//!
//! The oldest goes first, and only what gets a slot within the horizon leaves the bucket, so that the bucket is the waiting
//! line: whoever releases asks again after `retry_after_ms` while anything is `left`. What can't be released as it is (its
//! code is in `reasons`) stays where it is, and what is behind it is looked at; when a call has looked at enough, its answer
//! says in `after` where the next may go on. What has expired ends here: it is removed, and the log says so.
//!
//! A mail leaves the bucket after its send queue has it; cut short between the two, it is released twice and sent once. Should a
//! worker be so fast that it parks the mail anew before, the new one stays: only what was read is removed. Releasing what is
//! uncertain has it sent although it may have been.

use std::{
    collections::{BTreeMap, HashSet},
    pin::pin,
};

use futures_util::{StreamExt, stream};
use sendslot_domain::{Lane, Millis, Moment, TenantName};
use sendslot_mail::{Envelope, Refusal};
use sendslot_runtime::{
    ByLane, ControlSettings, Queue,
    control::{Failure, Release, Released},
    parking::{ParkedKey, Reason},
    queue::{self, Message, NotSent, SendBatch},
};
use sendslot_schedule::{Ask, Booking, Slot, Standing};
use tokio::time::timeout_at;

use crate::{
    booking::{self, Undone, book, in_time},
    deadline::Deadline,
    failure::{bad_field, bucket_failed, has_budget, listed},
    ports::{Book, Parked, ParkedMail, Removed},
    status,
};

/// How many mails one call releases unless it says otherwise.
const USUALLY: usize = 100;
/// How many it may.
pub const MAX_RELEASE: usize = 1000;
/// How many mails one call looks at, at least. With the one that tells whether there are more, that is a page of S3's.
pub const LOOKED_AT: usize = 999;
/// How many mails go at a time: reading, booking, queueing and removing so many takes a second or two.
pub(crate) const ROUND: usize = 200;
/// How many objects are read or removed at a time.
pub(crate) const AT_ONCE: usize = 16;
/// After so many bytes no more is read at a time: what is read is held several times over.
const MAX_BYTES: usize = 32 * 1024 * 1024;
/// The longest delay that SQS takes.
const MAX_DELAY: Millis = Millis::from_secs(queue::MAX_DELAY_SECONDS as u64);

/// What parked mail goes through on its way again.
pub struct Releaser<'a, B, Q, S> {
    pub(crate) schedule: &'a B,
    queues: &'a Q,
    pub(crate) parked: &'a S,
    send_queues: &'a ByLane<Queue>,
    max_message_age: Millis,
}

/// What is to be released, checked.
struct Wanted {
    tenant: TenantName,
    reason: Reason,
    most: usize,
    after: Option<ParkedKey>,
}

/// What became of mails that were looked at.
#[derive(Default)]
pub(crate) struct Tally {
    /// They are on their send queue.
    pub(crate) released: usize,
    /// Their recipients.
    pub(crate) recipients: u64,
    /// They have ended.
    pub(crate) expired: usize,
    /// They stay parked.
    pub(crate) refused: usize,
    /// Why.
    pub(crate) reasons: BTreeMap<&'static str, usize>,
    /// The keys of all that needn't be looked at again: of these, and of what somebody else has taken.
    pub(crate) settled: HashSet<String>,
    /// When those that have to wait may ask again.
    pub(crate) wait: Millis,
    /// Nobody may send.
    pub(crate) blocked: bool,
    /// Their tenant may not send.
    pub(crate) paused: bool,
    /// Nobody knows their tenant.
    pub(crate) unknown: bool,
}

impl Tally {
    fn refuse(&mut self, key: &ParkedKey, code: &'static str) {
        self.refused += 1;
        *self.reasons.entry(code).or_default() += 1;
        self.settled.insert(key.to_string());
    }
}

/// How much is read at a time.
#[derive(Clone, Copy)]
pub(crate) struct Portion {
    /// Until the mails have so many recipients.
    pub(crate) recipients: u64,
    /// After so many bytes no more.
    pub(crate) bytes: usize,
}

/// A mail out of the bucket.
pub(crate) struct Mail {
    pub(crate) key: ParkedKey,
    tag: String,
    envelope: Envelope,
}

impl TryFrom<&Release> for Wanted {
    type Error = Failure;

    fn try_from(ask: &Release) -> Result<Self, Failure> {
        let bad = |what: String| bad_field(format!("release: {what}"));
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

impl<'a, B: Book, Q: SendBatch, S: Parked> Releaser<'a, B, Q, S> {
    /// Books on this schedule, puts on these queues, and takes out of this bucket.
    #[must_use]
    pub const fn new(
        schedule: &'a B,
        queues: &'a Q,
        parked: &'a S,
        settings: &'a ControlSettings,
    ) -> Self {
        Self {
            schedule,
            queues,
            parked,
            send_queues: &settings.send_queues,
            max_message_age: settings.max_message_age,
        }
    }

    /// Releases a tenant's oldest parked mail.
    ///
    /// # Errors
    /// When the request is wrong, the tenant may not send, or bucket or schedule can't be used. What was not released then is still
    /// parked.
    pub async fn release(&self, ask: &Release, deadline: Deadline) -> Result<Released, Failure> {
        let wanted = Wanted::try_from(ask)?;
        let Wanted {
            tenant,
            reason,
            most,
            after,
        } = &wanted;
        let look = in_time(deadline.take_by(), self.schedule.look()).await?;
        has_budget(&look)?;
        if *reason == Reason::Paused && status::is_paused(&look, tenant) {
            return Err(tenant_paused(tenant));
        }
        let at_most = LOOKED_AT.max(*most);
        let list = self
            .parked
            .oldest(tenant, Some(*reason), after.as_ref(), at_most + 1);
        let mut keys = listed(timeout_at(deadline.take_by(), list).await)?;
        let more = keys.len() > at_most;
        keys.truncate(at_most);
        let mut tally = Tally::default();
        // What is before it is released or refused.
        let mut at = 0;
        while at < keys.len() && tally.released < *most && !deadline.is_near() {
            let end = keys.len().min(at + ROUND.min(most - tally.released));
            let portion = Portion {
                recipients: u64::MAX,
                bytes: MAX_BYTES,
            };
            let (mails, looked) = self
                .read(&keys[at..end], portion, look.now, &mut tally, deadline)
                .await?;
            let standing = Standing::New; // as fast as there are slots, and behind all who wait
            self.send_on(mails, *reason, standing, &mut tally, deadline)
                .await?;
            let stays = |key: &ParkedKey| !tally.settled.contains(&key.to_string());
            if keys[at..at + looked].iter().any(stays) {
                break; // some of these have to wait, and what is behind them likewise
            }
            at += looked;
        }
        if tally.paused && tally.released + tally.expired == 0 {
            return Err(tenant_paused(tenant));
        }
        let Tally {
            released,
            expired,
            refused,
            ..
        } = tally;
        let left = more || at < keys.len();
        let passed = at.checked_sub(1).map(|last| &keys[last]).or(after.as_ref());
        let after = passed.filter(|_| left && (after.is_some() || refused > 0));
        tracing::info!(%tenant, reason = reason.as_str(), released, expired, refused, left, "release");
        let reasons = tally.reasons.into_iter();
        Ok(Released {
            released,
            expired,
            refused,
            reasons: reasons
                .map(|(code, mails)| (code.to_owned(), mails))
                .collect(),
            left,
            retry_after_ms: tally.wait.0,
            after: after.map(ToString::to_string),
        })
    }

    /// Reads mails, in order, as many as there is time and room for; answers with how many were looked at, too. What can't be
    /// read stays, and what has expired ends.
    pub(crate) async fn read(
        &self,
        keys: &[ParkedKey],
        portion: Portion,
        now: Moment,
        tally: &mut Tally,
        deadline: Deadline,
    ) -> Result<(Vec<Mail>, usize), Failure> {
        let mut bodies = pin!(
            stream::iter(keys)
                .map(async |key| (key, self.parked.fetch(key).await))
                .buffered(AT_ONCE)
        );
        let (mut mails, mut expired) = (Vec::new(), Vec::new());
        let (mut looked, mut recipients, mut bytes) = (0, 0, 0);
        while bytes <= portion.bytes
            && recipients < portion.recipients
            && let Ok(Some((key, fetched))) = timeout_at(deadline.take_by(), bodies.next()).await
        {
            looked += 1;
            let Some(ParkedMail { body, tag }) = fetched.map_err(bucket_failed)? else {
                tally.settled.insert(key.to_string()); // released by another call
                continue;
            };
            let envelope = str::from_utf8(&body)
                .map_err(|error| error.to_string())
                .and_then(|text| Envelope::from_json(text).map_err(|error| error.to_string()));
            match envelope {
                Ok(envelope) if self.is_expired(&envelope, now) => {
                    expired.push((key.clone(), tag));
                }
                Ok(envelope) => {
                    bytes += body.len();
                    recipients += u64::from(envelope.mail.cost());
                    mails.push(Mail {
                        key: key.clone(),
                        tag,
                        envelope,
                    });
                }
                Err(error) => {
                    tracing::error!(send_id = %key.send_id, tenant = %key.tenant, error, "a parked mail can't be read");
                    tally.refuse(key, "unreadable");
                }
            }
        }
        self.end(&expired, tally, deadline).await;
        Ok((mails, looked))
    }

    /// Ends mails that are of no more use, as far as there is time.
    async fn end(&self, expired: &[(ParkedKey, String)], tally: &mut Tally, deadline: Deadline) {
        let mut removals = pin!(
            stream::iter(expired)
                .map(async |(key, tag)| (key, self.parked.remove(key, tag).await))
                .buffer_unordered(AT_ONCE)
        );
        while let Ok(Some((key, removed))) = timeout_at(deadline.remove_by(), removals.next()).await
        {
            let ParkedKey {
                send_id,
                tenant,
                lane,
                ..
            } = key;
            match removed {
                Ok(Removed::Gone) => {
                    tracing::info!(%send_id, %tenant, %lane, outcome = "expired");
                    tally.expired += 1;
                    tally.settled.insert(key.to_string());
                }
                Ok(Removed::NotThere | Removed::ParkedAnew) => {
                    tally.settled.insert(key.to_string());
                }
                Err(error) => {
                    tracing::warn!(%send_id, %tenant, error, "a mail that has expired is still parked");
                    tally.refuse(key, "not_removed");
                }
            }
        }
    }

    /// Whether a mail is of no more use.
    fn is_expired(&self, envelope: &Envelope, now: Moment) -> bool {
        let oldest = envelope.first_seen + self.max_message_age;
        now >= envelope.expires_at.map_or(oldest, |at| at.min(oldest))
    }

    /// Gives each of these mails a slot and puts it on its lane's send queue. What isn't `settled` then has to wait.
    pub(crate) async fn send_on(
        &self,
        mails: Vec<Mail>,
        reason: Reason,
        standing: Standing,
        tally: &mut Tally,
        deadline: Deadline,
    ) -> Result<(), Failure> {
        let mut by_lane = ByLane::<Vec<Mail>>::default();
        for mail in mails {
            by_lane.get_mut(mail.key.lane).push(mail);
        }
        let ByLane { priority, bulk } = by_lane;
        for (lane, mails) in [(Lane::Priority, priority), (Lane::Bulk, bulk)] {
            if !mails.is_empty() {
                self.send_lane(lane, mails, reason, standing, tally, deadline)
                    .await?;
            }
        }
        Ok(())
    }

    async fn send_lane(
        &self,
        lane: Lane,
        mails: Vec<Mail>,
        reason: Reason,
        standing: Standing,
        tally: &mut Tally,
        deadline: Deadline,
    ) -> Result<(), Failure> {
        let asks: Vec<Ask> = mails.iter().map(|mail| ask(mail, standing)).collect();
        let ids: Vec<_> = mails
            .iter()
            .map(|mail| Some(mail.key.send_id.clone()))
            .collect();
        let bookings = book(self.schedule, lane, &asks, &ids, deadline.book_by()).await?;
        let (mut undone, mut messages, mut on_their_way) =
            (Undone::default(), Vec::new(), Vec::new());
        let mut cancelled = Vec::new();
        for ((mail, ask), booking) in mails.into_iter().zip(asks).zip(bookings) {
            let Mail { key, tag, envelope } = mail;
            if let Booking::Slot(slot) = &booking {
                match message(envelope, lane, slot, reason) {
                    Ok(message) => {
                        messages.push(message);
                        on_their_way.push((key, tag, ask, booking));
                    }
                    Err(error) => {
                        tracing::error!(send_id = %key.send_id, %error, "writing an envelope failed");
                        undone.add(&ask, &booking);
                        tally.refuse(&key, "unwritable");
                    }
                }
            } else if booking == Booking::Cancelled {
                let ParkedKey {
                    send_id, tenant, ..
                } = &key;
                tracing::info!(%send_id, %tenant, %lane, outcome = "cancelled");
                tally.settled.insert(key.to_string());
                cancelled.push((key, tag));
            } else {
                undone.add(&ask, &booking);
                has_no_slot(&key, &booking, tally);
            }
        }
        self.remove(&cancelled, deadline).await;
        let queue = self.send_queues.get(lane);
        let put = queue::send_all(self.queues, queue, &messages, deadline.put_by()).await;
        let mut gone = Vec::new();
        for ((key, tag, ask, booking), put) in on_their_way.into_iter().zip(put) {
            match put {
                Ok(()) => {
                    let ParkedKey {
                        send_id, tenant, ..
                    } = &key;
                    tracing::info!(%send_id, %tenant, %lane, outcome = "released");
                    tally.recipients += u64::from(ask.cost);
                    tally.settled.insert(key.to_string());
                    gone.push((key, tag));
                }
                Err(error) => {
                    tracing::error!(send_id = %key.send_id, %error, "a parked mail stays");
                    undone.add(&ask, &booking);
                    match error {
                        NotSent::TooLarge { .. } => tally.refuse(&key, "too_large"),
                        NotSent::Refused { .. } => tally.refuse(&key, "not_queued"),
                        NotSent::Call(_) | NotSent::NoTime => {}
                    }
                }
            }
        }
        tally.released += gone.len();
        self.remove(&gone, deadline).await;
        booking::undo(self.schedule, lane, &undone, deadline.undo_by()).await;
        Ok(())
    }

    /// Removes what is on its send queue, as far as there is time.
    async fn remove(&self, gone: &[(ParkedKey, String)], deadline: Deadline) {
        let removals = stream::iter(gone).for_each_concurrent(AT_ONCE, async |(key, tag)| {
            let send_id = &key.send_id;
            match self.parked.remove(key, tag).await {
                Ok(Removed::Gone | Removed::NotThere) => {}
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

/// Notes why a mail has no slot.
fn has_no_slot(key: &ParkedKey, booking: &Booking, tally: &mut Tally) {
    match booking {
        Booking::Wait(wait) => tally.wait = tally.wait.max(wait.delay),
        Booking::Blocked(left) => {
            tally.wait = tally.wait.max(*left);
            tally.blocked = true;
        }
        Booking::Paused => tally.paused = true,
        Booking::Slot(_)
        | Booking::UnknownTenant
        | Booking::OverCap
        | Booking::Left
        | Booking::Cancelled => {
            tracing::error!(send_id = %key.send_id, tenant = %key.tenant, ?booking, "a parked mail gets no slot");
            tally.unknown |= *booking == Booking::UnknownTenant;
            let code = match booking {
                Booking::UnknownTenant => Refusal::UNKNOWN_TENANT,
                Booking::OverCap => Refusal::OverCap.code(),
                _ => "no_slot",
            };
            tally.refuse(key, code);
        }
    }
}

/// That a tenant's mail can't go.
pub(crate) fn tenant_paused(tenant: &TenantName) -> Failure {
    Failure {
        code: "tenant_paused".to_owned(),
        message: format!("tenant {tenant} may not send: resume it first"),
    }
}

fn ask(mail: &Mail, standing: Standing) -> Ask {
    Ask {
        tenant: mail.envelope.tenant.clone(),
        cost: mail.envelope.mail.cost(),
        standing,
    }
}

fn message(
    mut envelope: Envelope,
    lane: Lane,
    slot: &Slot,
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
    let delay = slot.delay.min(MAX_DELAY).whole_secs();
    Ok(Message {
        body: envelope.to_json()?,
        delay_seconds: u16::try_from(delay).unwrap_or(queue::MAX_DELAY_SECONDS),
        attributes: Vec::new(),
        group: Some(envelope.tenant.to_string()),
    })
}
