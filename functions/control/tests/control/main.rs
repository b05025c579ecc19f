//! The control function on a Redis of the test's own, with a clock that the test sets. What is judged is what Redis holds
//! then, and what can be booked and claimed. Parked mail goes through fakes of S3 and SQS, and through one of the schedule where a test
//! decides what is booked or how long that takes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that expects in vain has failed"
)]

mod account;
mod count;
mod deadline;
mod empty;
mod events;
mod fakes;
mod mails;
mod pauses;
mod redrive;
mod release;
mod replay;
mod requests;
mod rig;
mod s3;
mod suppress;
mod tenants;
