//! The handler: batches on fakes with a paused clock, the sample events, on a real Valkey, and SES and S3 over HTTP.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod away;
mod batch;
mod claims;
mod events;
mod fakes;
mod late;
mod outcomes;
mod s3;
mod ses;
mod shadow;
mod tenants;
mod traces;
mod valkey;
