//! One clock for limits and record.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since the Unix epoch.
pub type Micros = u64;

/// Unix time that never goes backwards: the wall clock is read once, and monotonic time added to
/// it, so that a step of the system's clock neither opens a limit nor reorders the record.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    wall: Micros,
    started: Instant,
}

impl Clock {
    /// A clock that agrees with the system's at this moment.
    #[must_use]
    pub fn start() -> Self {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            wall: micros(wall.as_micros()),
            started: Instant::now(),
        }
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.wall + micros(self.started.elapsed().as_micros())
    }
}

fn micros(value: u128) -> Micros {
    Micros::try_from(value).unwrap_or(Micros::MAX)
}
