//! The schedule, seeded from the settings while nothing else sets the budget.

use sendslot_schedule::{Schedule, ScheduleError, Seed};
use tokio::sync::OnceCell;

use crate::Settings;

/// A schedule that has been seeded when it is called.
///
/// The first call of a function's process seeds it, so that a deployment with other numbers takes
/// effect; a later one does when it finds Redis empty. What another source has set stays.
pub struct Seeded {
    schedule: Schedule,
    seed: Seed,
    once: OnceCell<()>,
}

impl Seeded {
    /// The schedule of these settings. Nothing is sent before the first call.
    ///
    /// # Errors
    /// When the URL can't be one of Redis.
    pub fn connect(settings: &Settings) -> Result<Self, ScheduleError> {
        Ok(Self {
            schedule: settings.schedule()?,
            seed: settings.seed.seed(),
            once: OnceCell::new(),
        })
    }

    /// Makes a call; once more if Redis has lost its budget.
    ///
    /// # Errors
    /// The call's, or the seeding's.
    pub async fn call<T, F>(&self, call: impl Fn(Schedule) -> F) -> Result<T, ScheduleError>
    where
        F: Future<Output = Result<T, ScheduleError>>,
    {
        self.once.get_or_try_init(|| self.ensure_budget()).await?;
        match call(self.schedule.clone()).await {
            Err(ScheduleError::NoBudget(_)) => {
                self.ensure_budget().await?;
                call(self.schedule.clone()).await
            }
            answer => answer,
        }
    }

    async fn ensure_budget(&self) -> Result<(), ScheduleError> {
        if self.schedule.seed(&self.seed).await? {
            tracing::info!(source = self.seed.source, "budget written");
        }
        Ok(())
    }
}
