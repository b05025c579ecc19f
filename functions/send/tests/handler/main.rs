//! The handler: batches on fakes with a paused clock, the sample events, and SES over HTTP.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod batch;
mod events;
mod fakes;
mod ses;
