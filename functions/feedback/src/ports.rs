//! What a batch needs from outside, one narrow trait each, so that its tests run without AWS or Redis.
//! Tenants are asked for through [`sendslot_runtime::AskTenants`], configuration sets switched through
//! [`sendslot_runtime::switch::Switch`].

use std::future::Future;

use sendslot_domain::{Millis, TenantName};
use sendslot_schedule::{Counted, Fed, Schedule, ScheduleError};

/// Who remembers what was told.
pub trait Events: Sync {
    /// Takes in a batch in one round trip, one answer each, as [`Schedule::feed`] does.
    fn feed(
        &self,
        memory: Millis,
        events: &[Fed],
    ) -> impl Future<Output = Result<Vec<(bool, Option<Counted>)>, ScheduleError>> + Send;
}

/// Who may not send.
pub trait Pauses: Sync {
    /// The tenants that may not send until somebody resumes them.
    fn paused(&self) -> impl Future<Output = Result<Vec<TenantName>, ScheduleError>> + Send;

    /// Lets a tenant send nothing until it is resumed, as [`Schedule::pause`] does.
    fn pause(
        &self,
        tenant: &TenantName,
        reason: &str,
    ) -> impl Future<Output = Result<(), ScheduleError>> + Send;
}

impl Events for Schedule {
    async fn feed(
        &self,
        memory: Millis,
        events: &[Fed],
    ) -> Result<Vec<(bool, Option<Counted>)>, ScheduleError> {
        Self::feed(self, memory, events).await
    }
}

impl Pauses for Schedule {
    async fn paused(&self) -> Result<Vec<TenantName>, ScheduleError> {
        let standing = self.look().await?.paused.into_iter();
        let until_resumed = standing.filter(|pause| pause.until.is_none());
        Ok(until_resumed.map(|pause| pause.tenant).collect())
    }

    async fn pause(&self, tenant: &TenantName, reason: &str) -> Result<(), ScheduleError> {
        Self::pause(self, tenant, None, reason).await
    }
}
