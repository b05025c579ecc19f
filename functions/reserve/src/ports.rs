//! What a batch needs from outside, so that its tests run without AWS or Redis. Putting messages on
//! queues is [`sendslot_runtime::queue::SendBatch`].

use std::future::Future;

use sendslot_domain::Lane;
use sendslot_runtime::Seeded;
use sendslot_schedule::{Ask, Booking, ScheduleError, Unused};

/// Books slots and gives them back.
pub trait Book: Sync {
    /// Books in one round trip, one answer each, as [`sendslot_schedule::Schedule::book`] does.
    fn book(
        &self,
        lane: Lane,
        asks: &[Ask],
    ) -> impl Future<Output = Result<Vec<Booking>, ScheduleError>> + Send;

    /// Gives slots back, as [`sendslot_schedule::Schedule::release`] does.
    fn release(
        &self,
        lane: Lane,
        unused: &[Unused],
    ) -> impl Future<Output = Result<(), ScheduleError>> + Send;
}

impl Book for Seeded {
    async fn book(&self, lane: Lane, asks: &[Ask]) -> Result<Vec<Booking>, ScheduleError> {
        self.call(|schedule| async move { schedule.book(lane, asks).await })
            .await
    }

    async fn release(&self, lane: Lane, unused: &[Unused]) -> Result<(), ScheduleError> {
        self.call(|schedule| async move { schedule.release(lane, unused).await })
            .await
    }
}
