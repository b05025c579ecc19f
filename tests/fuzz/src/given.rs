//! An event as the checks read it.

use aws_lambda_events::sqs::SqsMessage;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// Messages of a queue, or requests of a direct caller.
#[derive(Deserialize)]
pub(crate) struct Given<'a> {
    #[serde(rename = "Records", default)]
    records: Option<Vec<SqsMessage>>,
    #[serde(borrow, default)]
    messages: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    enqueue: Option<bool>,
}

impl<'a> Given<'a> {
    /// Reads an event that the function has read.
    ///
    /// # Panics
    /// When that can't be.
    pub(crate) fn read(input: &'a str) -> Self {
        serde_json::from_str(input)
            .unwrap_or_else(|error| panic!("the checks can't read it: {error}"))
    }

    /// The messages of a queue: id and body of each.
    pub(crate) fn records(&self) -> Vec<(&str, &str)> {
        let records = self.records.as_deref().unwrap_or_default().iter();
        let both = records.map(|record| {
            (
                record.message_id.as_deref().unwrap_or_default(),
                record.body.as_deref().unwrap_or_default(),
            )
        });
        both.collect()
    }

    pub(crate) fn messages(&self) -> &[&'a RawValue] {
        self.messages.as_deref().unwrap_or_default()
    }

    /// Whether only slots are asked for.
    pub(crate) fn is_of_slots(&self) -> bool {
        self.enqueue == Some(false)
    }
}

/// Reads JSON. Where a number is too large, which a function that has no use for it doesn't see, it is made smaller.
pub(crate) fn json(text: &str) -> Option<Value> {
    let smaller = || text.replace("e+308", "e+300").replace("e308", "e300");
    let read = serde_json::from_str(text);
    read.or_else(|_| serde_json::from_str(&smaller())).ok()
}
