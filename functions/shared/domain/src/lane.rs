//! Classes of service inside a budget.

use std::{fmt, str::FromStr};

/// A class of service inside a budget. Each lane has its own intake queue, send queue and
/// dead-letter queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// Passcodes and resets: may use every cell, and has a reserved part of each.
    Priority,
    /// Everything else: may use what the priority reserve leaves.
    Bulk,
}

impl Lane {
    /// Both lanes, the urgent one first.
    pub const ALL: [Self; 2] = [Self::Priority, Self::Bulk];

    /// The lane's name in requests, envelopes, keys and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Priority => "priority",
            Self::Bulk => "bulk",
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text names no lane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown lane {0:?}: use \"priority\" or \"bulk\"")]
pub struct UnknownLane(pub String);

impl FromStr for Lane {
    type Err = UnknownLane;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "priority" => Ok(Self::Priority),
            "bulk" => Ok(Self::Bulk),
            other => Err(UnknownLane(other.to_owned())),
        }
    }
}
