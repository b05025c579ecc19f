//! What every function's `main` needs: settings, AWS clients, queues, logs and metrics.
//!
//! # Layout
//! - [`settings`]: the environment, read once, every problem reported together.
//! - [`lanes`]: one of something per lane; queues, and which lane a queue belongs to.
//! - [`control`]: what the function `control` is asked and answers.
//! - [`aws`]: the SDK's configuration, with one HTTP client for all its clients.
//! - [`queue`]: many messages to one SQS queue, cut into calls by count and bytes.
//! - `bucket` (feature `bucket`): parking mail in S3.
//! - [`parking`]: what the name of a parked mail says.
//! - [`redis_auth`]: how the functions prove to Redis who they are.
//! - [`seeded`]: the schedule, seeded from the settings while nothing else sets the budget.
//! - [`tenant`]: a tenant's settings as the functions know them.
//! - `switch` (feature `switch`): the sending switch of a configuration set.
//! - [`tenants`]: whose mail may go, as Redis says, for a minute.
//! - [`logs`]: JSON lines with Powertools' keys.
//! - [`metrics`]: metrics in a log line, one an invocation and lane.

pub mod aws;
#[cfg(feature = "bucket")]
pub mod bucket;
pub mod control;
pub mod lanes;
pub mod logs;
pub mod metrics;
pub mod parking;
pub mod queue;
pub mod redis_auth;
pub mod seeded;
pub mod settings;
#[cfg(feature = "switch")]
pub mod switch;
pub mod tenant;
pub mod tenants;

pub use lanes::{ByLane, Queue};
pub use metrics::Metrics;
pub use seeded::Seeded;
pub use settings::{
    ControlSettings, FeedbackSettings, RedisDown, RedisLogin, ReserveSettings, SendSettings,
    Settings, SettingsError, UncertainPolicy,
};
pub use tenant::TenantSettings;
pub use tenants::{AskTenants, Known, Tenants};
