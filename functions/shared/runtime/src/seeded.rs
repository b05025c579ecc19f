//! The schedule, seeded from the settings unless the account is followed.

use std::sync::atomic::{AtomicBool, Ordering};

use aws_config::SdkConfig;
use sendslot_schedule::{Schedule, ScheduleError, Seed};

use crate::Settings;

/// A schedule that holds the settings' budget when it is called; or, where the account is followed, whatever `control` has set.
///
/// Without that:
/// A function's process makes sure with its first booking or claim, which fails if Redis holds another budget, so that a
/// deployment with other numbers takes effect; a later call that finds Redis empty seeds it, too. What another source
/// has set stays.
pub struct Seeded {
    schedule: Schedule,
    seed: Option<Seed>,
    checked: AtomicBool,
}

impl Seeded {
    /// The schedule of these settings. Nothing is sent, to Redis or AWS, before the first call.
    ///
    /// # Errors
    /// When the URL can't be one of Redis.
    pub fn connect(settings: &Settings, aws: &SdkConfig) -> Result<Self, ScheduleError> {
        Ok(Self {
            schedule: settings.schedule(aws)?,
            seed: (!settings.seed.follows_account).then(|| settings.seed.seed()),
            checked: AtomicBool::new(false),
        })
    }

    /// Makes a booking or a claim; once more if Redis had another budget, or none.
    ///
    /// # Errors
    /// The call's, or the seeding's.
    pub async fn checked<T, F>(&self, call: impl Fn(Schedule) -> F) -> Result<T, ScheduleError>
    where
        F: Future<Output = Result<T, ScheduleError>>,
    {
        let Some(seed) = &self.seed else {
            return call(self.schedule.clone()).await;
        };
        if self.checked.load(Ordering::Relaxed) {
            return self.call(call).await;
        }
        let answer = match call(self.schedule.expecting(seed)).await {
            Err(ScheduleError::NoBudget(_) | ScheduleError::Stale(_)) => {
                self.ensure_budget(seed).await?;
                call(self.schedule.clone()).await
            }
            answer => answer,
        }?;
        self.checked.store(true, Ordering::Relaxed);
        Ok(answer)
    }

    /// Makes any call; once more if Redis has lost its budget.
    ///
    /// # Errors
    /// The call's, or the seeding's.
    pub async fn call<T, F>(&self, call: impl Fn(Schedule) -> F) -> Result<T, ScheduleError>
    where
        F: Future<Output = Result<T, ScheduleError>>,
    {
        match (call(self.schedule.clone()).await, &self.seed) {
            (Err(ScheduleError::NoBudget(_)), Some(seed)) => {
                self.ensure_budget(seed).await?;
                call(self.schedule.clone()).await
            }
            (answer, _) => answer,
        }
    }

    async fn ensure_budget(&self, seed: &Seed) -> Result<(), ScheduleError> {
        if self.schedule.seed(seed).await? {
            tracing::info!(source = seed.source, "budget written");
        }
        Ok(())
    }
}
