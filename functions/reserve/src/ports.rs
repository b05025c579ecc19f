//! What a batch needs from outside, so that its tests run without AWS or Redis. Putting messages on
//! queues is [`sendslot_runtime::queue::SendBatch`], parking mail [`sendslot_runtime::bucket::Parking`], and tenants are asked for by
//! [`sendslot_runtime::AskTenants`].

use std::future::Future;

use sendslot_domain::{Lane, Millis, SendId, suppression::AddressDigest};
use sendslot_runtime::Seeded;
use sendslot_schedule::{Ask, Booking, Note, ScheduleError, Unused};

/// Books slots and gives them back.
pub trait Book: Sync {
    /// Books in one round trip, one answer each, as [`sendslot_schedule::Schedule::book_mail`] does: what becomes of the mails with these
    /// send ids is noted; and says which of these addresses, by index, nobody may be sent to.
    fn book_mail(
        &self,
        lane: Lane,
        asks: &[Ask],
        ids: &[Option<SendId>],
        addresses: &[AddressDigest],
    ) -> impl Future<Output = Result<(Vec<Booking>, Vec<usize>), ScheduleError>> + Send;

    /// Books without asking about addresses, and without a note.
    fn book(
        &self,
        lane: Lane,
        asks: &[Ask],
    ) -> impl Future<Output = Result<Vec<Booking>, ScheduleError>> + Send
    where
        Self: Sized,
    {
        async move {
            let (bookings, _) = self.book_mail(lane, asks, &[], &[]).await?;
            Ok(bookings)
        }
    }

    /// Notes what became of mails that nothing is booked for, as [`sendslot_schedule::Schedule::trace`] does.
    fn trace(
        &self,
        notes: &[Note],
        memory: Millis,
    ) -> impl Future<Output = Result<(), ScheduleError>> + Send;

    /// Gives slots back, as [`sendslot_schedule::Schedule::release`] does.
    fn release(
        &self,
        lane: Lane,
        unused: &[Unused],
    ) -> impl Future<Output = Result<(), ScheduleError>> + Send;
}

impl Book for Seeded {
    async fn book_mail(
        &self,
        lane: Lane,
        asks: &[Ask],
        ids: &[Option<SendId>],
        addresses: &[AddressDigest],
    ) -> Result<(Vec<Booking>, Vec<usize>), ScheduleError> {
        self.checked(|schedule| async move { schedule.book_mail(lane, asks, ids, addresses).await })
            .await
    }

    async fn trace(&self, notes: &[Note], memory: Millis) -> Result<(), ScheduleError> {
        self.call(|schedule| async move { schedule.trace(notes, memory).await })
            .await
    }

    async fn release(&self, lane: Lane, unused: &[Unused]) -> Result<(), ScheduleError> {
        self.call(|schedule| async move { schedule.release(lane, unused).await })
            .await
    }
}
