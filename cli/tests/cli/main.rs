//! The command as people and scripts run it, against a server that answers as AWS would.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aws;
mod credentials;
mod errors;
mod mails;
mod redrive;
mod run;
mod stands;
mod usage;
