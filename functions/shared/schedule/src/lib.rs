//! The schedule and the guard in Redis: one Lua file a command, and the crate that owns the keys.
//!
//! # Layout
//! - [`Schedule`]: the commands, one round trip each: seed, book, release, pause, resume, claim,
//!   renew, commit, slow, block, unblock, look, note, tenants, feed, counts, suppress, sweep, draw.
//! - [`Login`]: where the user and password of a connection come from, if not from the URL.
//! - [`Keys`]: every key there is. All carry the budget's hash tag, so they share one cluster slot.
//! - `lua/`: the scripts. Each file's header says what it guarantees, takes and returns.
//! - [`testing`] (feature `testing`): a private server for tests, and a clock that tests can set.
//!
//! The rules are those of `sendslot_domain`; tests hold the scripts against its model step by step.

mod book;
mod claim;
mod connection;
mod feed;
mod keys;
mod login;
mod look;
mod script;
mod seed;
#[cfg(feature = "testing")]
pub mod testing;
mod trace;

pub use book::{Ask, Booking, Unused};
pub use claim::{Claim, ClaimAsk, End, Ended, Ending, Purpose, Terms};
pub use feed::{Counted, Fed, Told};
pub use keys::Keys;
pub use login::{Asked, Credentials, Login, NoCredentials};
pub use look::{Look, Pause};
pub use seed::Seed;
pub use sendslot_domain::schedule::{Slot, Standing, Tenant, Wait};
pub use trace::{Cancelled, Found, Health, Mark, Note, Standings, Step, What};

use connection::Link;
use script::Scripts;

/// The schedule of one budget, in Redis. Cheap to clone; clones share one connection.
#[derive(Clone)]
pub struct Schedule {
    connection: Link,
    keys: Keys,
    scripts: std::sync::Arc<Scripts>,
    /// The digest of the budget that Redis should hold.
    expects: Option<std::sync::Arc<str>>,
}

/// Why a call to the schedule failed.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// The address is no Redis URL.
    #[error("redis URL is unusable ({0}): write redis://host:port or rediss://host:port")]
    Url(#[source] redis::RedisError),
    /// Redis can't be reached, or answered with an error of its own.
    #[error("redis call failed: {}", connection::told(.0))]
    Redis(#[source] redis::RedisError),
    /// Redis holds no budget: it is empty and nothing has seeded it.
    #[error("no budget in redis under {0:?}: seed it first")]
    NoBudget(String),
    /// Redis holds another budget than was expected.
    #[error("another budget in redis under {0:?} than expected: seed it first")]
    Stale(String),
    /// A script answered in a form that this version doesn't know.
    #[error("script {script} answered {answer}, which this version can't read")]
    Answer {
        /// The script's name.
        script: &'static str,
        /// What it said.
        answer: String,
    },
}

impl ScheduleError {
    /// Whether Redis can't be used at the moment: the same call may work later, with no change to this program or
    /// its settings. Not so an unusable URL, a missing budget, and what is wrong with a script.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Redis(error) => connection::is_unavailable(error),
            Self::Url(_) | Self::NoBudget(_) | Self::Stale(_) | Self::Answer { .. } => false,
        }
    }
}
