//! Makes the budget follow what SES says of the account.
//!
//! It is outside the VPC, where SES, SSM and Lambda can be called without endpoints of their own; `control` is inside, where
//! Redis is. This one asks AWS, that one decides.
//!
//! # Layout
//! - [`event`]: what it is invoked with: each minute by a schedule, at each deployment by CloudFormation, or by hand.
//! - [`handler`]: an invocation; CloudFormation gets its answer in time whatever hangs.
//! - `refresh`, `switches`, `scaling`, `walk`: the way of one refresh; which configuration sets may send; how many batches are sent at
//!   once; whom SES lets nobody send to.
//! - `times`: what the invocation's time is spent on.
//! - [`ports`]: what is needed from outside, one narrow trait each.
//! - [`settings`]: the environment.
//! - [`aws`]: all of the outside, as `main` wires it: [`ses`], [`ssm`], [`lambda`], [`cloudwatch`], [`put`].

pub mod aws;
pub mod cloudwatch;
pub mod event;
pub mod handler;
pub mod lambda;
pub mod ports;
pub mod put;
mod refresh;
mod scaling;
pub mod ses;
pub mod settings;
pub mod ssm;
mod switches;
mod times;
mod walk;

pub use event::Event;
pub use handler::Handler;
pub use settings::Settings;
