//! What a batch needs from outside, one narrow trait each, so that its tests run without AWS or Redis.
//! Putting messages on queues is [`sendslot_runtime::queue::SendBatch`].

use std::future::Future;

use sendslot_domain::{Lane, Millis, Moment, SendId, TenantName, outcome::Outcome};
use sendslot_mail::Envelope;
pub use sendslot_runtime::bucket::Parking;
use sendslot_runtime::{Queue, Seeded, TenantSettings};
use sendslot_schedule::{
    Ask, Booking, Claim, ClaimAsk, End, Note, Schedule, ScheduleError, Terms, Unused,
};

/// The right to send.
pub trait Claims: Sync {
    /// Claims a batch in one round trip, one answer each, as [`sendslot_schedule::Schedule::claim`] does.
    fn claim(
        &self,
        owner: &str,
        terms: Terms,
        asks: &[ClaimAsk],
    ) -> impl Future<Output = Result<Vec<Claim>, ScheduleError>> + Send;

    /// Draws new grants, as [`sendslot_schedule::Schedule::renew`] does.
    fn renew(
        &self,
        owner: &str,
        terms: Terms,
        asks: &[ClaimAsk],
    ) -> impl Future<Output = Result<Vec<Claim>, ScheduleError>> + Send;

    /// Ends claims in one round trip, as [`sendslot_schedule::Schedule::commit`] does.
    fn commit(
        &self,
        owner: &str,
        lane: Lane,
        memory: Millis,
        ends: &[End],
    ) -> impl Future<Output = Result<(), ScheduleError>> + Send;
}

/// What one send says about all others.
pub trait Brakes: Sync {
    /// Recipients were refused as too many, as [`sendslot_schedule::Schedule::slow`] is told.
    fn slow(
        &self,
        granted: Moment,
        recipients: u32,
    ) -> impl Future<Output = Result<(), ScheduleError>> + Send;

    /// The account can't send, as [`sendslot_schedule::Schedule::block`] is told.
    fn block(
        &self,
        length: Millis,
        longest: Millis,
        reason: &str,
    ) -> impl Future<Output = Result<(), ScheduleError>> + Send;

    /// A tenant can't send, as [`sendslot_schedule::Schedule::pause`] is told.
    fn pause(
        &self,
        tenant: &TenantName,
        length: Millis,
        reason: &str,
    ) -> impl Future<Output = Result<(), ScheduleError>> + Send;
}

/// Slots for what has to go another time.
pub trait Slots: Sync {
    /// Books in one round trip for the mails with these send ids, one answer each, as [`sendslot_schedule::Schedule::book_mail`]
    /// does.
    fn book(
        &self,
        lane: Lane,
        asks: &[Ask],
        ids: &[Option<SendId>],
    ) -> impl Future<Output = Result<Vec<Booking>, ScheduleError>> + Send;

    /// Gives slots back, as [`sendslot_schedule::Schedule::release`] does.
    fn release(
        &self,
        lane: Lane,
        unused: &[Unused],
    ) -> impl Future<Output = Result<(), ScheduleError>> + Send;
}

impl Claims for Seeded {
    async fn claim(
        &self,
        owner: &str,
        terms: Terms,
        asks: &[ClaimAsk],
    ) -> Result<Vec<Claim>, ScheduleError> {
        self.checked(|schedule| async move { schedule.claim(owner, terms, asks).await })
            .await
    }

    async fn renew(
        &self,
        owner: &str,
        terms: Terms,
        asks: &[ClaimAsk],
    ) -> Result<Vec<Claim>, ScheduleError> {
        self.call(|schedule| async move { schedule.renew(owner, terms, asks).await })
            .await
    }

    async fn commit(
        &self,
        owner: &str,
        lane: Lane,
        memory: Millis,
        ends: &[End],
    ) -> Result<(), ScheduleError> {
        self.call(|schedule| async move { schedule.commit(owner, lane, memory, ends).await })
            .await
    }
}

impl Brakes for Seeded {
    async fn slow(&self, granted: Moment, recipients: u32) -> Result<(), ScheduleError> {
        let factor = self
            .call(|schedule| async move { schedule.slow(granted, recipients).await })
            .await?;
        tracing::warn!(
            factor,
            of = sendslot_domain::budget::FACTOR_ONE,
            "throttled: the rate will be cut by what was accepted"
        );
        Ok(())
    }

    async fn block(
        &self,
        length: Millis,
        longest: Millis,
        reason: &str,
    ) -> Result<(), ScheduleError> {
        let left = self
            .call(|schedule| async move { schedule.block(length, longest, reason).await })
            .await?;
        tracing::error!(reason, seconds = left.whole_secs(), "nobody sends");
        Ok(())
    }

    async fn pause(
        &self,
        tenant: &TenantName,
        length: Millis,
        reason: &str,
    ) -> Result<(), ScheduleError> {
        self.call(|schedule| async move { schedule.pause(tenant, Some(length), reason).await })
            .await?;
        tracing::warn!(%tenant, reason, seconds = length.whole_secs(), "taken to be paused");
        Ok(())
    }
}

impl Slots for Seeded {
    async fn book(
        &self,
        lane: Lane,
        asks: &[Ask],
        ids: &[Option<SendId>],
    ) -> Result<Vec<Booking>, ScheduleError> {
        let book =
            |schedule: Schedule| async move { schedule.book_mail(lane, asks, ids, &[]).await };
        let (bookings, _) = self.checked(book).await?;
        Ok(bookings)
    }

    async fn release(&self, lane: Lane, unused: &[Unused]) -> Result<(), ScheduleError> {
        self.call(|schedule| async move { schedule.release(lane, unused).await })
            .await
    }
}

/// What happened to mails, for whoever looks for one.
pub trait Traces: Sync {
    /// Notes it in one round trip, as [`sendslot_schedule::Schedule::trace`] does.
    fn trace(
        &self,
        notes: &[Note],
        memory: Millis,
    ) -> impl Future<Output = Result<(), ScheduleError>> + Send;
}

impl Traces for Seeded {
    async fn trace(&self, notes: &[Note], memory: Millis) -> Result<(), ScheduleError> {
        self.call(|schedule| async move { schedule.trace(notes, memory).await })
            .await
    }
}

/// Whoever delivers the mail.
pub trait Provider: Sync {
    /// Sends one mail, in one request, and answers within [`crate::batch::SEND_TIMEOUT`].
    fn send(&self, mail: &Outgoing<'_>) -> impl Future<Output = Reply> + Send;

    /// Whether the account may send at all, if that can be told.
    fn account_sends(&self) -> impl Future<Output = Option<bool>> + Send;
}

/// A mail that may go.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The mail, with what is known of it.
    pub envelope: &'a Envelope,
    /// The lane of the queue it came from.
    pub lane: Lane,
    /// When it was allowed to go.
    pub grant: Moment,
    /// What is set for its tenant.
    pub tenant: &'a TenantSettings,
}

/// What came of a send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What it means.
    pub outcome: Outcome,
    /// The provider's own id of the mail, when it took it.
    pub id: Option<String>,
    /// What the provider said, as a status and code: no text of its own, which may name addresses.
    pub said: Option<String>,
}

/// When received messages may be received again.
pub trait Visibility: Sync {
    /// Hides each message, named by its receipt, for so many seconds from now.
    ///
    /// # Errors
    /// The first thing that went wrong. Messages that it concerns stay hidden for the rest of the
    /// queue's visibility timeout.
    fn hide(
        &self,
        queue: &Queue,
        messages: &[(String, u16)],
    ) -> impl Future<Output = Result<(), String>> + Send;
}
