//! From a row of the file to what goes onto the queue, or why it doesn't.

use std::{borrow::Cow, fmt};

use sendslot_domain::{Lane, Moment};
use sendslot_mail::{Refusal, SendRequest};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// How the file is written.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values, the names of the columns first.
    Csv,
    /// JSON Lines: a send request a line.
    Jsonl,
}

impl Format {
    /// Its word.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
        }
    }
}

/// What a row doesn't say itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Defaults {
    pub tenant: Option<String>,
    pub from: Option<String>,
    pub template: Option<String>,
    pub campaign: Option<String>,
}

impl Defaults {
    const fn any(&self) -> bool {
        self.tenant.is_some()
            || self.from.is_some()
            || self.template.is_some()
            || self.campaign.is_some()
    }
}

/// A row that is not handed in: why, without anything of the mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The line of the file that it begins on, from 1.
    pub line: u64,
    /// Why, as a stable code.
    pub code: String,
    /// Why, and what to do.
    pub message: String,
}

/// A row that may leave: what goes onto the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The line of the file that it begins on, from 1.
    pub line: u64,
    /// Its tenant, by which the queue is fair.
    pub group: String,
    /// The send request.
    pub body: String,
}

/// Checks a request's text as reserve will.
pub(super) fn check(
    line: u64,
    body: Cow<'_, str>,
    lane: Lane,
    now: Moment,
) -> Result<Entry, Refused> {
    let request = SendRequest::parse(&body, now).and_then(|request| {
        request.lane_on(Some(lane))?;
        Ok(request)
    });
    match request {
        Ok(request) => Ok(Entry {
            line,
            group: request.tenant.to_string(),
            body: body.into_owned(),
        }),
        Err(refusal) => Err(Refused {
            line,
            code: refusal.code().to_owned(),
            message: match refusal {
                // The row is a line of the file, so the line within it says nothing.
                Refusal::MalformedJson { column, .. } => {
                    format!("no JSON from column {column} on: give one JSON object a line")
                }
                Refusal::WrongLane { asked, .. } => {
                    format!(
                        "/lane: \"{asked}\", but this goes to {lane}: hand it in with --lane {asked}, or leave it out"
                    )
                }
                other => other.to_string(),
            },
        }),
    }
}

/// A line of JSON Lines with what it doesn't say itself.
pub(super) fn fill<'a>(text: &'a str, line: u64, defaults: &Defaults) -> Cow<'a, str> {
    if !defaults.any() {
        return Cow::Borrowed(text);
    }
    // What is no object is refused with its place a step later.
    let Ok(Entries(mut entries)) = serde_json::from_str(text) else {
        return Cow::Borrowed(text);
    };
    let has = |entries: &[(String, Cow<'_, str>)], name: &str| {
        entries.iter().any(|(key, _)| key.as_str() == name)
    };
    let before = entries.len();
    let data = entries.iter().position(|(key, _)| key == "data");
    if let Some(template) = &defaults.template
        && !has(&entries, "content")
    {
        let data = data.map_or(Cow::Borrowed("{}"), |place| entries.remove(place).1);
        let name = json(template);
        let content = format!(r#"{{"template":{{"name":{name},"data":{data}}}}}"#);
        entries.push(("content".to_owned(), Cow::Owned(content)));
    }
    let campaign = defaults.campaign.as_ref().map(|name| send_id(name, line));
    for (name, value) in [
        ("from", &defaults.from),
        ("tenant", &defaults.tenant),
        ("send_id", &campaign),
    ] {
        if let Some(value) = value
            && !has(&entries, name)
        {
            entries.insert(0, (name.to_owned(), Cow::Owned(json(value))));
        }
    }
    if entries.len() == before && data.is_none() {
        return Cow::Borrowed(text);
    }
    let mut filled = String::with_capacity(text.len() + 200);
    for (key, value) in &entries {
        filled.push(if filled.is_empty() { '{' } else { ',' });
        filled.push_str(&json(key));
        filled.push(':');
        filled.push_str(value);
    }
    filled.push('}');
    Cow::Owned(filled)
}

/// The send id of a campaign's row.
fn send_id(campaign: &str, line: u64) -> String {
    format!("{campaign}-{line}")
}

/// A text as JSON.
fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// An object's keys and values, in order and each as often as it is there: another step refuses those that are there twice.
struct Entries<'a>(Vec<(String, Cow<'a, str>)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some((key, value)) = from.next_entry::<String, &RawValue>()? {
                    entries.push((key, Cow::Borrowed(value.get())));
                }
                Ok(Entries(entries))
            }
        }
        from.deserialize_map(Object)
    }
}

/// What a column of CSV holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Column {
    /// A field of the request.
    Field(&'static str),
    /// Addresses, with `;` between them.
    Addresses(&'static str),
    /// Part of a simple content.
    Content(&'static str),
    /// A value of the template's data, by its name.
    Data(String),
}

/// What the columns of a CSV file hold, by their names.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    columns: Vec<Column>,
    defaults: Defaults,
}

const FIELDS: [&str; 5] = ["send_id", "tenant", "from", "expires_at", "send_at"];
const ADDRESSES: [&str; 4] = ["to", "cc", "bcc", "reply_to"];
const CONTENT: [&str; 3] = ["subject", "text", "html"];

impl Columns {
    /// Reads the first record.
    ///
    /// # Errors
    /// When a column has no meaning, is there twice, or is missing, so that no row could leave.
    pub(super) fn read(names: &[&str], defaults: &Defaults) -> Result<Self, String> {
        let mut columns: Vec<Column> = Vec::with_capacity(names.len());
        for (place, name) in names.iter().enumerate() {
            // Excel begins its UTF-8 with a mark.
            let name = name.trim_start_matches('\u{feff}').trim();
            let within =
                |known: &[&'static str]| known.iter().copied().find(|known| *known == name);
            let column = if name.is_empty() {
                return Err(format!(
                    "column {} has no name: give it one, or remove it",
                    place + 1
                ));
            } else if let Some(field) = within(&FIELDS) {
                Column::Field(field)
            } else if let Some(field) = within(&ADDRESSES) {
                Column::Addresses(field)
            } else if defaults.template.is_some() {
                Column::Data(name.to_owned())
            } else if let Some(field) = within(&CONTENT) {
                Column::Content(field)
            } else {
                return Err(unknown(place, name, names));
            };
            if columns.contains(&column) {
                return Err(format!("the column {name:?} is there twice: remove one"));
            }
            columns.push(column);
        }
        let it = Self {
            columns,
            defaults: defaults.clone(),
        };
        it.complete().map(|()| it)
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.columns.len()
    }

    fn complete(&self) -> Result<(), String> {
        let has = |name| {
            let is = |column: &Column| matches!(column, Column::Field(field) | Column::Addresses(field) | Column::Content(field) if *field == name);
            self.columns.iter().any(is)
        };
        let Defaults {
            tenant,
            from,
            template,
            campaign,
        } = &self.defaults;
        let missing = |what: &str, option: &str| {
            Err(format!(
                "there is no column {what}: add it, or give {option}"
            ))
        };
        if !has("send_id") && campaign.is_none() {
            missing(
                "\"send_id\"",
                "--campaign NAME, which makes send ids of it and the line's number",
            )
        } else if !has("tenant") && tenant.is_none() {
            missing("\"tenant\"", "--tenant NAME")
        } else if !has("from") && from.is_none() {
            missing("\"from\"", "--from ADDRESS")
        } else if !["to", "cc", "bcc"].into_iter().any(has) {
            Err(
                "there is no column \"to\", \"cc\" or \"bcc\": add one with the recipients"
                    .to_owned(),
            )
        } else if template.is_none() && !(has("subject") && (has("text") || has("html"))) {
            missing(
                "\"subject\" with \"text\" or \"html\"",
                "--template NAME, whose data all other columns then are",
            )
        } else {
            Ok(())
        }
    }

    /// A row as a request's text. Empty cells are left out, but for a template's data.
    pub(super) fn request(&self, line: u64, cells: &[&str]) -> String {
        let mut fields: Vec<String> = Vec::with_capacity(8);
        let (mut content, mut has_id) = (Vec::new(), false);
        let mut said: Vec<&str> = Vec::new();
        for (column, &cell) in self.columns.iter().zip(cells) {
            has_id |= *column == Column::Field("send_id");
            match column {
                Column::Data(name) => content.push(pair(name, &json(cell))),
                _ if cell.is_empty() => {}
                Column::Field(name) => {
                    said.push(name);
                    fields.push(pair(name, &json(cell)));
                }
                Column::Addresses(name) => {
                    let list: Vec<String> = addresses(cell).map(json).collect();
                    fields.push(pair(name, &format!("[{}]", list.join(","))));
                }
                Column::Content(name) => content.push(pair(name, &json(cell))),
            }
        }
        let campaign = self.defaults.campaign.as_ref().filter(|_| !has_id);
        let campaign = campaign.map(|name| send_id(name, line));
        for (name, value) in [
            ("send_id", &campaign),
            ("tenant", &self.defaults.tenant),
            ("from", &self.defaults.from),
        ] {
            if let Some(value) = value
                && !said.contains(&name)
            {
                fields.push(pair(name, &json(value)));
            }
        }
        let content = content.join(",");
        fields.push(self.defaults.template.as_ref().map_or_else(
            || format!(r#""content":{{"simple":{{{content}}}}}"#),
            |name| {
                let name = json(name);
                format!(r#""content":{{"template":{{"name":{name},"data":{{{content}}}}}}}"#)
            },
        ));
        format!("{{{}}}", fields.join(","))
    }
}

fn pair(name: &str, value: &str) -> String {
    format!("{}:{value}", json(name))
}

/// Why a column can't stay. Its name is the file's own, so no more of it is shown than a name has.
fn unknown(place: usize, name: &str, names: &[&str]) -> String {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    let what = format!(
        "column {} is {shown:?}, which means nothing here",
        place + 1
    );
    if name == "lane" {
        format!("{what}: remove it, and say the lane of the whole file with --lane")
    } else if names.len() == 1 && name.contains([';', '\t']) {
        format!("{what}: put commas between the columns")
    } else if name.contains('@') {
        "the first line must have the names of the columns, and seems to have an address".to_owned()
    } else {
        format!(
            "{what}: remove it, or give --template NAME, whose data it then is; columns are {}, {}, {}",
            FIELDS.join(", "),
            ADDRESSES.join(", "),
            CONTENT.join(", ")
        )
    }
}

/// Addresses with `;` between them; one within quotes belongs to a name.
fn addresses(cell: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let parts = cell.split(move |c| {
        quoted ^= c == '"';
        c == ';' && !quoted
    });
    parts.map(str::trim).filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(1_800_000_000_000);

    fn defaults(template: Option<&str>) -> Defaults {
        Defaults {
            tenant: Some("acme".to_owned()),
            from: Some("Shop <shop@example.com>".to_owned()),
            template: template.map(str::to_owned),
            campaign: Some("xmas".to_owned()),
        }
    }

    #[test]
    fn a_line_is_filled_and_not_overwritten() {
        let full = r#"{"send_id":"a","tenant":"t","from":"f@x.org","to":["b@x.org"],"content":{"simple":{"subject":"s","text":"t"}}}"#;
        assert_eq!(fill(full, 7, &defaults(None)), full);
        assert_eq!(fill(full, 7, &Defaults::default()), full);
        let filled = fill(
            r#"{"to":["b@x.org"],"data":{"n":1.0000000000000000001}}"#,
            7,
            &defaults(Some("hi")),
        );
        assert_eq!(
            filled,
            r#"{"send_id":"xmas-7","tenant":"acme","from":"Shop <shop@example.com>","to":["b@x.org"],"content":{"template":{"name":"hi","data":{"n":1.0000000000000000001}}}}"#
        );
        check(7, filled, Lane::Bulk, NOW).unwrap();
        // A key that is there twice is still there twice.
        let twice = fill(r#"{"to":[],"to":["b@x.org"]}"#, 1, &defaults(Some("hi")));
        assert_eq!(
            check(1, twice, Lane::Bulk, NOW).unwrap_err().code,
            "duplicate_key"
        );
    }

    #[test]
    fn what_is_refused_says_why_and_nothing_of_the_mail() {
        let refused = |text: &str| check(3, Cow::Borrowed(text), Lane::Bulk, NOW).unwrap_err();
        assert_eq!(
            refused("{\"a\" 1}").message,
            "no JSON from column 6 on: give one JSON object a line"
        );
        let other = refused(
            r#"{"send_id":"a","tenant":"t","lane":"priority","from":"f@x.org","to":["b@x.org"],"content":{"simple":{"subject":"s","text":"t"}}}"#,
        );
        assert_eq!((other.code.as_str(), other.line), ("wrong_lane", 3));
        let bad = refused(
            r#"{"send_id":"a","tenant":"t","from":"f@x.org","to":["jane@x@y"],"content":{"simple":{"subject":"s","text":"t"}}}"#,
        );
        assert_eq!(bad.code, "bad_address");
        assert!(!bad.message.contains("jane"), "{}", bad.message);
    }

    #[test]
    fn columns_become_requests() {
        let names = ["\u{feff}to", "cc", "name", "subject", "expires_at"];
        let columns = Columns::read(&names, &defaults(Some("hi"))).unwrap();
        let text = columns.request(
            12,
            &[
                "b@x.org; \"Doe; J\" <c@x.org>;",
                "",
                "",
                "Hi \"you\"\n",
                "2100-01-01T00:00:00Z",
            ],
        );
        let request: serde_json::Value = serde_json::from_str(&text).unwrap();
        let expected = serde_json::json!({
            "send_id": "xmas-12", "tenant": "acme", "from": "Shop <shop@example.com>",
            "to": ["b@x.org", "\"Doe; J\" <c@x.org>"], "expires_at": "2100-01-01T00:00:00Z",
            "content": { "template": { "name": "hi", "data": { "name": "", "subject": "Hi \"you\"\n" } } },
        });
        assert_eq!(request, expected);
        check(12, Cow::Owned(text), Lane::Bulk, NOW).unwrap();
    }

    #[test]
    fn a_row_goes_before_the_options() {
        let names = ["send_id", "tenant", "from", "to", "subject", "html"];
        let columns = Columns::read(&names, &defaults(None)).unwrap();
        let text = columns.request(2, &["a", "t", "f@x.org", "b@x.org", "s", "<p>"]);
        let request: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(request["send_id"], "a");
        assert_eq!(
            (&request["tenant"], &request["from"]),
            (&"t".into(), &"f@x.org".into())
        );
        assert_eq!(
            request["content"]["simple"],
            serde_json::json!({ "subject": "s", "html": "<p>" })
        );
        // A send id that is missing in its column is missed, not made up.
        let text = columns.request(2, &["", "", "", "b@x.org", "s", "t"]);
        let refused = check(2, Cow::Owned(text), Lane::Bulk, NOW).unwrap_err();
        assert_eq!(
            (refused.code.as_str(), refused.message.as_str()),
            ("missing_field", "/send_id: missing: add it")
        );
    }

    #[test]
    fn columns_that_cant_be_are_named() {
        let read = |names: &[&str]| Columns::read(names, &Defaults::default()).unwrap_err();
        let all = ["send_id", "tenant", "from", "to", "subject", "text"];
        assert!(Columns::read(&all, &Defaults::default()).is_ok());
        assert!(read(&["send_id", "colour"]).contains("column 2 is \"colour\""));
        assert!(read(&["send_id", "lane"]).contains("--lane"));
        assert!(read(&["send_id;to"]).contains("commas"));
        assert!(read(&["to", "to"]).contains("\"to\" is there twice"));
        assert!(read(&["to", ""]).contains("column 2 has no name"));
        assert!(!read(&["jane@example.org"]).contains("jane"));
        for missing in 0..all.len() {
            let mut names = all.to_vec();
            let name = names.remove(missing);
            let why = read(&names);
            assert!(why.contains(&format!("{name:?}")), "{name}: {why}");
        }
    }
}
