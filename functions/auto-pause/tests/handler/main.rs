//! The handler on fakes with a paused clock, the sample events, and AWS over HTTP.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod account;
mod aws;
mod cbor;
mod confirm;
mod events;
mod fakes;
mod pause;
mod read;
mod server;
mod times;
