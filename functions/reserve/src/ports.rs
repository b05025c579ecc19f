//! What a batch needs from outside, so that its tests run without AWS or Redis. Putting messages on
//! queues is [`sendslot_runtime::queue::SendBatch`].

use std::future::Future;

use sendslot_domain::{Lane, TenantName};
use sendslot_runtime::{
    Seeded,
    parking::{ParkedKey, Reason},
};
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

    /// Lets a tenant send again, as [`sendslot_schedule::Schedule::resume`] does.
    fn resume(&self, tenant: &TenantName)
    -> impl Future<Output = Result<(), ScheduleError>> + Send;
}

/// Where mail is parked.
pub trait Parked: Sync {
    /// The keys of a tenant's mail that is parked for this reason, oldest first, so many at most; those after this key.
    ///
    /// # Errors
    /// What went wrong.
    fn oldest(
        &self,
        tenant: &TenantName,
        reason: Reason,
        after: Option<&ParkedKey>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<ParkedKey>, String>> + Send;

    /// A parked mail; nothing if it is gone.
    ///
    /// # Errors
    /// What went wrong.
    fn fetch(
        &self,
        key: &ParkedKey,
    ) -> impl Future<Output = Result<Option<ParkedMail>, String>> + Send;

    /// Removes a parked mail, unless it isn't the one that was fetched under this tag any more.
    ///
    /// # Errors
    /// What went wrong.
    fn remove(
        &self,
        key: &ParkedKey,
        tag: &str,
    ) -> impl Future<Output = Result<Removed, String>> + Send;
}

/// A parked mail as it was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedMail {
    /// Its envelope, as JSON.
    pub body: Vec<u8>,
    /// What tells it from one that is parked in its place later: S3's `ETag`.
    pub tag: String,
}

/// What became of a mail that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// It is gone.
    Gone,
    /// It was parked anew since it was fetched, and stays.
    ParkedAnew,
}

impl Book for Seeded {
    async fn book(&self, lane: Lane, asks: &[Ask]) -> Result<Vec<Booking>, ScheduleError> {
        self.checked(|schedule| async move { schedule.book(lane, asks).await })
            .await
    }

    async fn release(&self, lane: Lane, unused: &[Unused]) -> Result<(), ScheduleError> {
        self.call(|schedule| async move { schedule.release(lane, unused).await })
            .await
    }

    async fn resume(&self, tenant: &TenantName) -> Result<(), ScheduleError> {
        let was = self
            .call(|schedule| async move { schedule.resume(tenant).await })
            .await?;
        if was {
            tracing::info!(%tenant, "resumed");
        }
        Ok(())
    }
}
