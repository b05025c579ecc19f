//! What pausing and parked mail need from outside, one narrow trait each, so that their tests run without AWS. Putting messages on queues
//! is [`sendslot_runtime::queue::SendBatch`], and switching configuration sets [`sendslot_runtime::switch::Switch`].

use std::future::Future;

use sendslot_domain::{Lane, TenantName};
use sendslot_runtime::parking::{ParkedKey, Reason};
use sendslot_schedule::{Ask, Booking, Look, Schedule, ScheduleError, Unused};

/// The schedule, as far as parked mail needs it. Each does what [`Schedule`]'s method of this name does.
pub trait Book: Sync {
    /// Looks at all there is.
    fn look(&self) -> impl Future<Output = Result<Look, ScheduleError>> + Send;

    /// Books in one round trip, one answer each.
    fn book(
        &self,
        lane: Lane,
        asks: &[Ask],
    ) -> impl Future<Output = Result<Vec<Booking>, ScheduleError>> + Send;

    /// Gives slots back.
    fn release(
        &self,
        lane: Lane,
        unused: &[Unused],
    ) -> impl Future<Output = Result<(), ScheduleError>> + Send;

    /// How many recipients of a tenant's parked mail may go now.
    fn draw(
        &self,
        tenant: &TenantName,
        wanted: u32,
        beyond: i64,
        usually: f64,
    ) -> impl Future<Output = Result<u32, ScheduleError>> + Send;

    /// Forgets the rate of a tenant's replay.
    fn end_replay(
        &self,
        tenant: &TenantName,
    ) -> impl Future<Output = Result<(), ScheduleError>> + Send;
}

impl Book for Schedule {
    async fn look(&self) -> Result<Look, ScheduleError> {
        Self::look(self).await
    }

    async fn book(&self, lane: Lane, asks: &[Ask]) -> Result<Vec<Booking>, ScheduleError> {
        Self::book(self, lane, asks).await
    }

    async fn release(&self, lane: Lane, unused: &[Unused]) -> Result<(), ScheduleError> {
        Self::release(self, lane, unused).await
    }

    async fn draw(
        &self,
        tenant: &TenantName,
        wanted: u32,
        beyond: i64,
        usually: f64,
    ) -> Result<u32, ScheduleError> {
        Self::draw(self, tenant, wanted, beyond, usually).await
    }

    async fn end_replay(&self, tenant: &TenantName) -> Result<(), ScheduleError> {
        Self::end_replay(self, tenant).await
    }
}

/// Where mail is parked.
pub trait Parked: Sync {
    /// Every tenant that has parked mail, by name.
    ///
    /// # Errors
    /// What went wrong.
    fn tenants(&self) -> impl Future<Output = Result<Vec<TenantName>, String>> + Send;

    /// The keys of a tenant's mail that is parked for this reason, or for any, oldest first, so many at most; those after this key.
    ///
    /// # Errors
    /// What went wrong.
    fn oldest(
        &self,
        tenant: &TenantName,
        reason: Option<Reason>,
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
    /// Somebody else has removed it.
    NotThere,
    /// It was parked anew since it was fetched, and stays.
    ParkedAnew,
}
