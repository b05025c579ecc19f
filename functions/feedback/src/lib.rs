//! Takes in what SES tells of each mail: marks, counts and suppression, and pauses a tenant whose mail bounces or is complained of too
//! often.
//!
//! SES hands its events to EventBridge, and a rule puts those of mail on a queue. One invocation takes a batch of them.
//!
//! # What holds
//! - **Each event counts once**, however often it is handed over, and in whatever order: it is counted with the minute in which its mail was sent.
//! - **A pause takes seconds.** It is decided here, at the event that crosses the threshold. If Redis fails between the count and the pause, the
//!   event comes back and the verdict is made again.
//! - **Nobody is paused for another's mail**: an event is counted for the tenant that its mail's own tag names, and for known tenants only.
//! - **What can't be read holds nothing up.** It is counted and deleted; its neighbours don't notice.
//! - **No address leaves this function**, but as a digest to Redis: not in logs, not in metrics, not in errors.
//!
//! # Layout
//! - [`event`]: from a message's body to what it tells.
//! - [`handler`]: the way of a batch, without AWS or Redis.
//! - [`ports`]: what a batch needs from outside, one narrow trait each; those of Redis are met there.

pub mod event;
pub mod handler;
pub mod ports;

pub use event::Event;
pub use handler::Feedback;
