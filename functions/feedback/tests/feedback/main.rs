//! Batches on fakes with a paused clock, the sample events, and a real server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod batch;
mod fakes;
mod pauses;
mod samples;
mod valkey;
