//! The control function on a Redis of the test's own, with a clock that the test sets. What is judged is what Redis holds
//! then, and what can be booked and claimed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that expects in vain has failed"
)]

mod account;
mod count;
mod empty;
mod events;
mod requests;
mod rig;
mod tenants;
