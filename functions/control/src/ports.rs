//! What pausing and parked mail need from outside, one narrow trait each, so that their tests run without AWS. Putting messages on queues
//! is [`sendslot_runtime::queue::SendBatch`], and switching configuration sets [`sendslot_runtime::switch::Switch`].

use std::future::Future;

use sendslot_domain::{Lane, Moment, SendId, TenantName};
use sendslot_runtime::{
    Queue,
    control::QueueStatus,
    parking::{ParkedKey, Reason},
};
use sendslot_schedule::{Ask, Booking, Found, Look, Schedule, ScheduleError, Unused};

/// The schedule, as far as parked mail needs it. Each does what [`Schedule`]'s method of this name does.
pub trait Book: Sync {
    /// Looks at all there is.
    fn look(&self) -> impl Future<Output = Result<Look, ScheduleError>> + Send;

    /// Books in one round trip, one answer each, and notes what became of the mails with these send ids: [`Schedule::book_mail`].
    fn book(
        &self,
        lane: Lane,
        asks: &[Ask],
        ids: &[Option<SendId>],
    ) -> impl Future<Output = Result<Vec<Booking>, ScheduleError>> + Send;

    /// What is known of mails.
    fn find(
        &self,
        mails: &[(TenantName, SendId)],
    ) -> impl Future<Output = Result<Vec<Found>, ScheduleError>> + Send;

    /// How many recipients of a lane's dead letters may go now.
    fn draw_dead(
        &self,
        lane: Lane,
        wanted: u32,
        beyond: i64,
        rate: f64,
    ) -> impl Future<Output = Result<u32, ScheduleError>> + Send;

    /// Sets the rate of a tenant's replay.
    fn set_replay(
        &self,
        tenant: &TenantName,
        rate: f64,
    ) -> impl Future<Output = Result<(), ScheduleError>> + Send;

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

    async fn book(
        &self,
        lane: Lane,
        asks: &[Ask],
        ids: &[Option<SendId>],
    ) -> Result<Vec<Booking>, ScheduleError> {
        let booked = self.book_mail(lane, asks, ids, &[]).await;
        booked.map(|(bookings, _)| bookings)
    }

    async fn find(&self, mails: &[(TenantName, SendId)]) -> Result<Vec<Found>, ScheduleError> {
        Self::find(self, mails).await
    }

    async fn draw_dead(
        &self,
        lane: Lane,
        wanted: u32,
        beyond: i64,
        rate: f64,
    ) -> Result<u32, ScheduleError> {
        Self::draw_dead(self, lane, wanted, beyond, rate).await
    }

    async fn set_replay(&self, tenant: &TenantName, rate: f64) -> Result<(), ScheduleError> {
        Self::set_replay(self, tenant, rate).await
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

/// Far-ahead mail that a scheduler of the provider's holds.
pub trait Schedules: Sync {
    /// Has a mail's schedule never fire, and what it points at be gone; that there is none is no error.
    ///
    /// # Errors
    /// What went wrong.
    fn forget(
        &self,
        tenant: &TenantName,
        send_id: &SendId,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

/// What queues hold.
pub trait Depths: Sync {
    /// What one holds, as SQS estimates it.
    ///
    /// # Errors
    /// What went wrong.
    fn depth(&self, queue: &Queue) -> impl Future<Output = Result<QueueStatus, String>> + Send;
}

/// A dead letter, as it was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Letter {
    /// What tells it from all others on its queue.
    pub id: String,
    /// What it is deleted and shown with.
    pub receipt: String,
    /// What it says.
    pub body: String,
    /// Why it was dead-lettered: a word. SQS itself gives none.
    pub reason: Option<String>,
    /// The same in words.
    pub detail: String,
    /// When it first reached us, as it says itself.
    pub first_seen: Option<Moment>,
    /// When it came to this queue, by SQS's clock.
    pub sent: Moment,
}

/// Queues of dead letters.
pub trait DeadLetters: Sync {
    /// Up to ten letters, which nobody else receives for so many seconds. None: all have been received by somebody.
    ///
    /// # Errors
    /// What went wrong.
    fn receive(
        &self,
        queue: &Queue,
        hidden_seconds: u16,
    ) -> impl Future<Output = Result<Vec<Letter>, String>> + Send;

    /// Removes up to ten letters. Answers with those that are still there, by index.
    ///
    /// # Errors
    /// What went wrong with all of them.
    fn delete(
        &self,
        queue: &Queue,
        receipts: &[&str],
    ) -> impl Future<Output = Result<Vec<usize>, String>> + Send;

    /// Lets others receive up to ten letters at once. One that is gone meanwhile is no error.
    ///
    /// # Errors
    /// What went wrong with all of them.
    fn show(
        &self,
        queue: &Queue,
        receipts: &[&str],
    ) -> impl Future<Output = Result<(), String>> + Send;
}
