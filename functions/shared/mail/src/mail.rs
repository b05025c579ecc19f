//! The mail itself, as requests and envelopes carry it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use sha2::{Digest, Sha256};

/// One mail: who it is from and to, and what it says.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Mail {
    /// The sender, with or without a display name.
    pub from: String,
    /// Recipients that all see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// Recipients of a copy, that all see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cc: Vec<String>,
    /// Recipients of a copy, that none see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bcc: Vec<String>,
    /// Where answers go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reply_to: Vec<String>,
    /// The producer's own message tags; they come back in the provider's events.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// What it says.
    pub content: Content,
}

/// What a mail says.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// A subject and a body.
    Simple(Simple),
    /// A template that the provider keeps, and its data.
    Template(Template),
    /// A whole MIME message.
    Raw(Raw),
}

/// A subject and a body as text, HTML or both.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Simple {
    /// The subject.
    pub subject: String,
    /// The body as plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The body as HTML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// Headers beside those that the provider sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<Header>,
}

/// A template that the provider keeps.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// A JSON object, in the producer's own text: it reaches the provider as it was written, long
    /// numbers included.
    pub data: Box<RawValue>,
    /// Headers beside those that the provider sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<Header>,
}

/// A whole MIME message.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Raw {
    /// The message, in base64.
    pub data: String,
}

/// One header.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl Mail {
    /// Recipients, which is what quotas count: to, cc and bcc together.
    #[must_use]
    pub fn cost(&self) -> u32 {
        u32::try_from(self.recipients().count()).unwrap_or(u32::MAX)
    }

    /// Everyone it goes to.
    pub fn recipients(&self) -> impl Iterator<Item = &str> {
        [&self.to, &self.cc, &self.bcc]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    /// Leaves recipients out, by their places among [`Mail::recipients`]; answers where each stood, as JSON pointers into the request. The
    /// order of the places doesn't matter, and what is no place is left.
    pub fn leave_out(&mut self, places: &[usize]) -> Vec<String> {
        let mut pointers = Vec::with_capacity(places.len());
        let mut before = 0;
        let lists = [
            ("to", &mut self.to),
            ("cc", &mut self.cc),
            ("bcc", &mut self.bcc),
        ];
        for (name, list) in lists {
            let mut index = 0;
            let count = list.len();
            list.retain(|_| {
                let stays = !places.contains(&(before + index));
                if !stays {
                    pointers.push(format!("/{name}/{index}"));
                }
                index += 1;
                stays
            });
            before += count;
        }
        pointers
    }

    /// A digest of all of it: two requests under one send id are the same mail when these are equal.
    /// The order of keys and the spacing of template data make no difference.
    ///
    /// # Errors
    /// Never for a mail that was read from JSON.
    pub fn fingerprint(&self) -> Result<String, serde_json::Error> {
        let mut canonical = String::new();
        write_sorted(&serde_json::to_value(self)?, &mut canonical);
        let digest = Sha256::digest(canonical);
        let half = digest[..16]
            .iter()
            .fold(0_u128, |half, byte| (half << 8) | u128::from(*byte));
        Ok(format!("{half:032x}"))
    }
}

/// Writes JSON without spaces and with sorted keys, whatever order the map type keeps.
fn write_sorted(value: &Value, to: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            to.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    to.push(',');
                }
                to.push_str(&Value::from(key.as_str()).to_string());
                to.push(':');
                write_sorted(value, to);
            }
            to.push('}');
        }
        Value::Array(items) => {
            to.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    to.push(',');
                }
                write_sorted(item, to);
            }
            to.push(']');
        }
        scalar => to.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mail(json: &str) -> Mail {
        serde_json::from_str(json).unwrap_or_else(|e| panic!("{json}: {e}"))
    }

    fn fingerprint(json: &str) -> String {
        mail(json)
            .fingerprint()
            .unwrap_or_else(|e| panic!("{json}: {e}"))
    }

    #[test]
    fn every_recipient_costs_one() {
        let mail = mail(
            r#"{"from":"a@x.org","to":["b@x.org","c@x.org"],"cc":["d@x.org"],"bcc":["e@x.org"],
                "content":{"raw":{"data":""}}}"#,
        );
        assert_eq!(mail.cost(), 4);
    }

    #[test]
    fn who_is_left_out_is_named_by_place() {
        let mut mail = mail(
            r#"{"from":"a@x.org","to":["b@x.org","c@x.org"],"cc":["d@x.org"],"bcc":["e@x.org"],
                "content":{"raw":{"data":""}}}"#,
        );
        assert_eq!(mail.leave_out(&[3, 0, 9]), ["/to/0", "/bcc/0"]);
        assert_eq!(
            mail.recipients().collect::<Vec<_>>(),
            ["c@x.org", "d@x.org"]
        );
        assert_eq!(mail.leave_out(&[]), [""; 0]);
    }

    #[test]
    fn the_fingerprint_is_the_mails_whatever_its_spelling() {
        let one = fingerprint(
            r#"{"from":"a@x.org","to":["b@x.org"],"tags":{"x":"1","y":"2"},
                "content":{"template":{"name":"t","data":{"b":[1,{"d":1,"c":2}],"a":1}}}}"#,
        );
        let same = fingerprint(
            r#"{"content":{"template":{"data":{"a":1, "b":[1, {"c":2,"d":1}]},"name":"t"}},
                "tags":{"y":"2","x":"1"},"to":["b@x.org"],"cc":[],"from":"a@x.org"}"#,
        );
        assert_eq!(one, same);
        for other in [
            r#"{"from":"a@x.org","to":["b@x.org"],"tags":{"x":"1","y":"2"},
                "content":{"template":{"name":"t","data":{"b":[1,{"d":1,"c":3}],"a":1}}}}"#,
            r#"{"from":"a@x.org","cc":["b@x.org"],"tags":{"x":"1","y":"2"},
                "content":{"template":{"name":"t","data":{"b":[1,{"d":1,"c":2}],"a":1}}}}"#,
        ] {
            assert_ne!(fingerprint(other), one, "{other}");
        }
    }

    #[test]
    fn the_fingerprint_is_a_stored_format() {
        // Marks of sent mail hold it for two weeks: another value would send mail again.
        let json = r#"{"from":"a@x.org","to":["b@x.org"],"content":{"simple":{"subject":"s","text":"t"}}}"#;
        assert_eq!(fingerprint(json), "2d2e5bd2474f085d44cd46df2909e3db");
    }
}
