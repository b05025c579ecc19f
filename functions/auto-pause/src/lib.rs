//! Pauses the tenant whose reputation alarm fires.
//!
//! CloudWatch tells the stack's topic that an alarm on SES's reputation metrics has fired, and SNS tells this function. It is outside the
//! VPC, where CloudWatch, SES and Lambda can be called without endpoints of their own; `control`, inside, has Redis.
//!
//! # The way of one message
//! 1. **Read** ([`event`]): it comes from our topic and tells of an alarm of this account on `Reputation.BounceRate` or
//!    `Reputation.ComplaintRate`, in state `ALARM`. Whatever else comes is logged and changes nothing; an `OK` resumes nobody.
//! 2. **Confirmed** (`verify`): whoever may write to the topic can claim anything, so CloudWatch is asked. The alarm is there as told, it
//!    tells our topic, and its metric really is over its threshold.
//! 3. **Paused** (`pause`): by `control` in Redis, where it counts at once, then at SES, where it holds when Redis is lost. Either is
//!    done though the other fails. `control` knows whose configuration sets there are: one that it doesn't know is never switched
//!    off. An alarm without a configuration set is one on the whole account; then somebody is told, and everybody is paused only if the
//!    settings want that.
//! 4. **Told** (`notice`): people hear who was paused, why, and how to resume it. Nobody hears twice of a tenant that is paused already.
//!
//! # Again
//! SNS hands a message over by an asynchronous invocation. When a call failed, the invocation fails, after all other messages were
//! dealt with, and Lambda makes it again: after one minute, and after two more. All of it may be done again: what is paused stays
//! paused, what is off stays off. What fails the last time, too, is dropped by Lambda, which counts that as `AsyncEventsDropped`.
//!
//! # Layout
//! - [`event`]: what the function is invoked with.
//! - [`handler`]: an invocation.
//! - [`ports`]: what is needed from outside, one narrow trait each.
//! - [`settings`]: the environment.
//! - [`aws`]: all of the outside, as `main` wires it: `cloudwatch`, `lambda`, `ses`, `sns`.

pub mod aws;
mod cloudwatch;
pub mod event;
pub mod handler;
mod lambda;
mod notice;
mod pause;
pub mod ports;
mod ses;
pub mod settings;
mod sns;
mod verify;

pub use handler::Handler;
pub use settings::Settings;
