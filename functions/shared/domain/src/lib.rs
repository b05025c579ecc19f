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

pub mod adaptive;
pub mod budget;
pub mod guard;
pub mod lane;
pub mod line;
pub mod outcome;
pub mod schedule;
pub mod tenant;
pub mod units;
pub mod window;

pub use budget::Budget;
pub use lane::Lane;
pub use tenant::{SendId, TenantName};
pub use units::{Cell, Millis, Moment, Rate};
