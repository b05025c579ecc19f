//! Gives every mail its send slot before it reaches a worker.
//!
//! One invocation takes requests from an intake queue or from a direct caller, checks each, books all
//! of them in one round trip per lane, and puts each on its lane's send queue with the delay that its
//! slot asks for. What finds no slot before the booking horizon goes back to the intake queue to wait;
//! what is wrong goes to the dead-letter queue with its reason; what could not be put on a queue gives
//! its slot back and is reported. A direct caller who sends by itself can have slots alone.
//!
//! # Layout
//! - [`event`]: what an invocation is given.
//! - [`handler`]: the way of a batch, without AWS or Redis.
//! - `slots`: the way of slots only, for mail that somebody else sends.
//! - `parking`: mail of tenants that may not send.
//! - [`deadline`]: how an invocation's time is shared out.
//! - `booking`: slots from the schedule, one call per lane, and back to it.
//! - [`answer`]: what became of each request, as SQS and direct callers are told.
//! - `report`: what is logged and counted of a batch.
//! - [`error`]: why an invocation fails as a whole.
//! - [`ports`]: what a batch needs from outside.

pub mod answer;
mod booking;
pub mod deadline;
pub mod error;
pub mod event;
pub mod handler;
mod parking;
pub mod ports;
mod report;
mod slots;

pub use answer::Answer;
pub use deadline::Deadline;
pub use error::HandlerError;
pub use event::Event;
pub use handler::Reserve;
