//! The rules of the schedule and the guard, pure: no I/O, no clock, no AWS, no Redis.
//!
//! # Layout
//! - [`units`]: moments, durations, cells, rates. Types carry their units.
//! - [`lane`], [`tenant`]: who a message is for and how urgent it is.
//! - [`budget`]: what one provider account may send, and the numbers that follow from it.
//! - [`schedule`]: the model that books cells; the Lua in `sendslot-schedule` is held against it.
//! - [`line`]: whose turn it is when many tenants wait.
//! - [`window`]: caps of an hour and a day.
//! - [`guard`]: the model that grants the moment of each send; likewise.
//! - [`adaptive`]: how much slower both are after the provider refused sends as too many.
//! - [`outcome`]: what a provider's answer means for a message.
//! - [`account`]: what the provider says the account may send, and whether to believe it.
//! - [`warm_up`]: a tenant's cap by the day since it began to warm up.
//! - [`reconcile`]: the provider's count of a day against ours, so what was sent past the schedule.
//! - [`reputation`]: when a tenant's bounces and complaints are too many.
//! - [`suppression`]: whom nobody may be sent to.
//! - [`concurrency`]: how many batches may be worked on at once, by Little's law.

pub mod account;
pub mod adaptive;
pub mod budget;
pub mod concurrency;
pub mod guard;
pub mod lane;
pub mod line;
pub mod outcome;
pub mod reconcile;
pub mod reputation;
pub mod schedule;
pub mod suppression;
pub mod tenant;
pub mod units;
pub mod warm_up;
pub mod window;

pub use budget::Budget;
pub use lane::Lane;
pub use tenant::{SendId, TenantName};
pub use units::{Cell, Millis, Moment, Rate};
