//! The handler on fakes with a paused clock, the sample events, and AWS over HTTP.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aws;
mod deploy;
mod events;
mod fakes;
mod put;
mod refresh;
mod scaling;
mod server;
mod switches;
mod walk;
