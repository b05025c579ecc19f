//! Far-ahead mail in EventBridge Scheduler.

use sendslot_domain::{SendId, TenantName};

use crate::ports::Schedules;

/// The schedules of far-ahead mail.
#[derive(Clone, Copy, Debug)]
pub struct FarAhead;

impl Schedules for FarAhead {
    async fn forget(&self, _: &TenantName, _: &SendId) -> Result<(), String> {
        Ok(())
    }
}
