//! The reserve function on queues and a schedule that are kept in memory.
#![allow(clippy::expect_used, reason = "a test that expects in vain has failed")]

mod ahead;
mod away;
mod batch;
mod blocked;
mod deadline;
mod direct;
mod events;
mod parking;
mod redelivered;
mod rig;
mod slots;
