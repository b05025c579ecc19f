//! What is fuzzed, and on what.

mod auto_pause;
mod control;
mod feedback;
mod outside;
mod quota_refresh;
mod reserve;
mod send;

use serde_json::{Value, json};

/// A function on what stands in for the outside.
pub(crate) trait Target {
    /// Hands it an event: what came of that, in a word or two.
    ///
    /// # Panics
    /// When it did something that it must not do.
    fn run(&mut self, input: &str) -> &'static str;
}

/// All functions.
pub(crate) const ALL: [&str; 6] = [
    "auto-pause",
    "control",
    "feedback",
    "quota-refresh",
    "reserve",
    "send",
];

/// A function by its name.
pub(crate) fn named(name: &str) -> Option<Box<dyn Target>> {
    Some(match name {
        "auto-pause" => Box::new(auto_pause::AutoPause::new()),
        "control" => Box::new(control::Requests::new()),
        "feedback" => Box::new(feedback::Feed::new()),
        "quota-refresh" => Box::new(quota_refresh::QuotaRefresh::new()),
        "reserve" => Box::new(reserve::Requests::new()),
        "send" => Box::new(send::Envelopes::new()),
        _ => return None,
    })
}

/// Another event that is made of one: a queue's requests, handed in directly.
pub(crate) fn made_of(name: &str, event: &str) -> Option<String> {
    if name != "reserve" {
        return None;
    }
    let event: Value = serde_json::from_str(event).ok()?;
    let bodies = event["Records"].as_array()?.iter();
    let bodies = bodies.filter_map(|record| record["body"].as_str());
    let requests: Vec<Value> = bodies
        .filter_map(|body| serde_json::from_str(body).ok())
        .collect();
    Some(json!({ "messages": requests }).to_string())
}

/// The URL of the queue that a variable names: `SENDSLOT_BULK_INTAKE_QUEUE_URL` is `sendslot-bulk-intake`.
fn queue_url(variable: &str) -> Option<String> {
    let name = variable.strip_prefix("SENDSLOT_")?.strip_suffix("_URL")?;
    let name = name.replace("_QUEUE", "").replace('_', "-").to_lowercase();
    Some(format!("http://sqs/000000000000/sendslot-{name}"))
}

/// Whether anything was put somewhere.
fn accepts(outside: &outside::Shared) -> bool {
    outside.ledger().has_any_out()
}
