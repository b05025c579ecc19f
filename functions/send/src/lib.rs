//! Sends each mail at its slot, once.
//!
//! One invocation takes a batch from a send queue the way [`batch`] says: one claim for all of it,
//! every mail at its moment beside the others, one commit, and then each message's end on the queues.
//!
//! # Layout
//! - [`batch`]: the way of a batch, without AWS or Redis.
//! - `message`, `go`, `away`, `settle`: parts of it: what is known of a message; from the grant to the provider's answer; Redis
//!   can't be used; what SQS and S3 are told.
//! - [`ports`]: what a batch needs from outside, one narrow trait each; those of Redis are met there.
//! - [`ses`]: mail to SES, and its answers back. [`shadow`]: no mail to anybody, and what it would have been.
//! - [`sqs`]: what SQS must do beside taking messages.

mod away;
pub mod batch;
mod go;
mod message;
pub mod ports;
pub mod ses;
mod settle;
pub mod shadow;
pub mod sqs;

pub use batch::{Invocation, Sender};
