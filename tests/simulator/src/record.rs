//! The record of arrivals: one JSON line each, in memory and in a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::clock::Micros;
use crate::faults::Kind;
use crate::request::{Summary, is_word};

/// What became of a `SendEmail` request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Sent, and counted against the limits. Every other outcome counts nothing.
    Accepted,
    /// Over `MaxSendRate`.
    Throttled,
    /// Over `Max24HourSend`.
    OverQuota,
    /// Not a valid request.
    Invalid,
    /// Names a configuration set that does not exist.
    UnknownSet,
    /// Its configuration set is paused.
    SetPaused,
    /// The account is paused.
    AccountPaused,
    /// The account is shut down.
    AccountSuspended,
    /// Failed on purpose before it was looked at.
    Failed,
}

/// One line of the record. It holds counts and tags, never an address or a content.
#[derive(Debug, Serialize)]
pub struct Arrival<'a> {
    /// When the request had been read, in Unix milliseconds to the microsecond.
    pub at_ms: f64,
    /// To, Cc and Bcc together.
    pub recipients: u32,
    /// What became of it.
    pub outcome: Outcome,
    /// SES's id, of an accepted message.
    pub message_id: Option<&'a str>,
    /// The tag of this name, as are the next four.
    pub send_id: Option<&'a str>,
    /// On whose behalf.
    pub tenant: Option<&'a str>,
    /// Its lane.
    pub lane: Option<&'a str>,
    /// The slot it was given, Unix milliseconds.
    pub slot_ms: Option<u64>,
    /// When it was granted, Unix milliseconds.
    pub grant_ms: Option<u64>,
    /// The configuration set named.
    pub configuration_set: Option<&'a str>,
    /// The fault that hit it; absent where none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Kind>,
}

impl<'a> Arrival<'a> {
    /// The line for a request with this summary.
    #[must_use]
    pub fn new(
        at: Micros,
        summary: &'a Summary,
        outcome: Outcome,
        message_id: Option<&'a str>,
    ) -> Self {
        let milliseconds = |name| summary.tag(name).and_then(|value| value.parse().ok());
        let set = summary.configuration_set.as_deref();
        Self {
            at_ms: unix_ms(at),
            recipients: summary.recipients,
            outcome,
            message_id,
            send_id: summary.tag("send_id"),
            tenant: summary.tag("tenant"),
            lane: summary.tag("lane"),
            slot_ms: milliseconds("slot_ms"),
            grant_ms: milliseconds("grant_ms"),
            configuration_set: set.filter(|name| is_word(name)),
            fault: None,
        }
    }
}

/// Unix milliseconds to the microsecond, as the records have them.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "exact for 285 years from 1970")]
pub fn unix_ms(at: Micros) -> f64 {
    at as f64 / 1000.0
}

/// All arrivals, or calls, since the start or the last clearing.
#[derive(Debug, Default)]
pub struct Record {
    lines: Vec<u8>,
    file: Option<File>,
}

impl Record {
    /// A record that is kept in this file too, which is made, or emptied.
    ///
    /// # Errors
    /// The file could not be opened for writing.
    pub fn in_file(path: &Path) -> io::Result<Self> {
        // Appending, so that after clearing the next line starts the file.
        let mut file = OpenOptions::new();
        let file = file.create(true).append(true).open(path)?;
        file.set_len(0)?;
        Ok(Self {
            lines: Vec::new(),
            file: Some(file),
        })
    }

    /// Adds one line. It goes to the file in one unbuffered write: a reader sees whole lines at
    /// once, and nothing is lost however the process ends.
    ///
    /// # Errors
    /// The file could not be written; the line is then in memory alone.
    pub fn push(&mut self, line: &impl Serialize) -> io::Result<()> {
        let start = self.lines.len();
        serde_json::to_writer(&mut self.lines, line)?;
        self.lines.push(b'\n');
        match &mut self.file {
            Some(file) => file.write_all(&self.lines[start..]),
            None => Ok(()),
        }
    }

    /// Forgets all arrivals, in the file too.
    ///
    /// # Errors
    /// The file could not be cut.
    pub fn clear(&mut self) -> io::Result<()> {
        self.lines.clear();
        self.file.as_ref().map_or(Ok(()), |file| file.set_len(0))
    }

    /// All lines as one JSON array.
    #[must_use]
    pub fn to_json_array(&self) -> Vec<u8> {
        let lines = self.lines.strip_suffix(b"\n").unwrap_or(&self.lines);
        let mut array = Vec::with_capacity(lines.len() + 2);
        array.push(b'[');
        // Inside a line, JSON escapes every line feed.
        array.extend(lines.iter().map(|&b| if b == b'\n' { b',' } else { b }));
        array.push(b']');
        array
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const AT: Micros = 1_790_000_000_123_457;

    fn summary() -> Summary {
        let tags = [
            ("send_id", "order-1"),
            ("slot_ms", "1790000000100"),
            ("grant_ms", "soon"),
        ];
        Summary {
            recipients: 3,
            counted: 3,
            configuration_set: Some("acme-set".to_owned()),
            tags: tags.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec(),
        }
    }

    fn array(record: &Record) -> Value {
        serde_json::from_slice(&record.to_json_array()).unwrap()
    }

    #[test]
    fn a_line_holds_all_fields() {
        let summary = summary();
        let mut record = Record::default();
        let arrival = Arrival::new(AT, &summary, Outcome::Accepted, Some("0100-1"));
        record.push(&arrival).unwrap();
        assert_eq!(
            array(&record),
            json!([{
                "at_ms": 1_790_000_000_123.457, "recipients": 3, "outcome": "accepted",
                "message_id": "0100-1", "send_id": "order-1", "tenant": null, "lane": null,
                "slot_ms": 1_790_000_000_100_u64, "grant_ms": null, "configuration_set": "acme-set",
            }])
        );
    }

    #[test]
    fn a_fault_is_named() {
        let summary = summary();
        let mut record = Record::default();
        let mut arrival = Arrival::new(AT, &summary, Outcome::Failed, None);
        arrival.fault = Some(Kind::ResetBefore);
        record.push(&arrival).unwrap();
        let line = &array(&record)[0];
        assert_eq!(line["outcome"], "failed");
        assert_eq!(line["fault"], "reset_before");
    }

    #[test]
    fn what_cannot_name_a_set_is_not_recorded_as_one() {
        let summary = Summary {
            configuration_set: Some("a@example.com".to_owned()),
            ..summary()
        };
        let arrival = Arrival::new(AT, &summary, Outcome::UnknownSet, None);
        assert_eq!(arrival.configuration_set, None);
    }

    #[test]
    fn an_array_of_none_one_and_more() {
        let summary = summary();
        let mut record = Record::default();
        for expected in 0..3 {
            assert_eq!(array(&record).as_array().unwrap().len(), expected);
            let arrival = Arrival::new(AT, &summary, Outcome::Throttled, None);
            record.push(&arrival).unwrap();
        }
        record.clear().unwrap();
        assert_eq!(array(&record), json!([]));
    }
}
