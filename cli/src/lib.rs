//! The operator's command, `sendslot`.
//!
//! # Layout
//! - [`args`]: the command line.
//! - [`commands`]: a file a command.
//! - [`stack`]: which stack, by CloudFormation's outputs.
//! - [`invoke`]: invokes its function `control` and reads the answer.
//! - [`health`]: what isn't well, and what to run next.
//! - [`enqueue`], [`plan`], [`prices`]: hands in a file of mail; what it will take, and cost.
//! - [`error`], [`exit`]: what went wrong, and exit codes.
//! - [`output`], [`text`]: JSON or text; tables, numbers and times.
//! - [`stop`] waits for Ctrl-C.

pub mod args;
pub mod commands;
pub mod enqueue;
pub mod error;
pub mod exit;
pub mod health;
pub mod invoke;
pub mod output;
pub mod plan;
pub mod prices;
pub mod stack;
pub mod stop;
pub mod text;
