//! What travels on the queues: send requests, envelopes, and what makes them valid.
//!
//! # Layout
//! - [`mail`]: the mail itself, as both carry it, its cost and its fingerprint.
//! - [`request`]: what producers put on an intake queue, read and checked; the JSON Schema beside it
//!   is the published part of the rules.
//! - [`slot`]: what a service asks for that sends by itself; it stays off the queues.
//! - [`refusal`]: why a request is refused, as a stable code and a text.
//! - [`envelope`]: what travels on a send queue, a stored format with a version.

pub mod envelope;
pub mod mail;
pub mod refusal;
pub mod request;
pub mod slot;

mod address;
mod json;
mod wire;

pub use address::digest;
pub use envelope::{Envelope, EnvelopeError};
pub use mail::{Content, Header, Mail, Raw, Simple, Template};
pub use refusal::Refusal;
pub use request::SendRequest;
pub use slot::SlotRequest;

/// The JSON Schema (draft 2020-12) of a send request. What a schema can't say is in [`request`].
pub const SCHEMA: &str = include_str!("../schema/send-request.v1.json");
