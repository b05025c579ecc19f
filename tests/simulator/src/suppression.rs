//! The account's suppression list: whom SES lets nobody send to, since mail to them bounced or they complained.

use std::collections::BTreeMap;
use std::ops::Bound;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::clock::Micros;
use crate::errors::{ApiError, ErrorKind};

/// The most addresses on a page, and how many there are if nothing is said. SES documents neither; it gives 1,000.
const MOST_ON_PAGE: usize = 1000;

/// Why an address is on the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Reason {
    /// Mail to it bounced for good.
    Bounce,
    /// Its owner complained.
    Complaint,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    reason: Reason,
    /// When it came on the list, or was put there again. It may be to come: until then it isn't on it.
    since: Micros,
}

/// Which part of the list is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Only for these reasons; none: for any.
    reasons: Vec<Reason>,
    /// Only what came on the list then or later.
    start: Option<Micros>,
    /// Only what came on it before.
    end: Option<Micros>,
    size: Option<usize>,
    /// The last address of the page before.
    after: Option<String>,
}

/// The list, by address in lower case.
#[derive(Debug, Default)]
pub struct Suppressions(BTreeMap<String, Entry>);

impl Suppressions {
    /// Puts an address on the list from then on. One that is on it has its reason and time replaced.
    pub fn put(&mut self, address: &str, reason: Reason, since: Micros) {
        let entry = Entry { reason, since };
        self.0.insert(address.to_lowercase(), entry);
    }

    /// Puts an address on the list from then on, unless it is or will be.
    pub fn add(&mut self, address: &str, reason: Reason, since: Micros) {
        let entry = Entry { reason, since };
        self.0.entry(address.to_lowercase()).or_insert(entry);
    }

    /// Why an address is on the list now, if it is.
    #[must_use]
    pub fn reason(&self, address: &str, now: Micros) -> Option<Reason> {
        self.get(address, now).map(|entry| entry.reason)
    }

    fn get(&self, address: &str, now: Micros) -> Option<Entry> {
        let entry = self.0.get(&address.to_lowercase()).copied();
        entry.filter(|entry| entry.since <= now)
    }

    /// Takes an address off the list.
    ///
    /// # Errors
    /// It isn't on it.
    pub fn delete(&mut self, address: &str, now: Micros) -> Result<(), ApiError> {
        self.get(address, now).ok_or_else(missing)?;
        self.0.remove(&address.to_lowercase());
        Ok(())
    }

    /// What `GetSuppressedDestination` answers.
    ///
    /// # Errors
    /// The address isn't on the list.
    pub fn shown(&self, address: &str, now: Micros) -> Result<Value, ApiError> {
        let entry = self.get(address, now).ok_or_else(missing)?;
        Ok(json!({ "SuppressedDestination": summary(&address.to_lowercase(), entry) }))
    }

    /// What `ListSuppressedDestinations` answers.
    #[must_use]
    pub fn page(&self, query: &Query, now: Micros) -> Value {
        let size = query.size.unwrap_or(MOST_ON_PAGE);
        let from = query.after.as_ref();
        let from = from.map_or(Bound::Unbounded, |after| Bound::Excluded(after.as_str()));
        let asked = self.0.range::<str, _>((from, Bound::Unbounded));
        let mut asked = asked.filter(|(_, entry)| entry.since <= now && query.takes(**entry));
        let page: Vec<_> = asked.by_ref().take(size).collect();
        let next = asked
            .next()
            .and(page.last())
            .map(|(last, _)| BASE64.encode(last));
        let page = page
            .iter()
            .map(|(address, entry)| summary(address, **entry));
        let mut answer = json!({ "SuppressedDestinationSummaries": page.collect::<Vec<_>>() });
        if let Some(next) = next {
            answer["NextToken"] = next.into();
        }
        answer
    }
}

impl Query {
    /// Reads a URL's query, as the SDKs write it.
    ///
    /// # Errors
    /// What is wrong, without its value; a token that isn't one has an exception of its own.
    pub fn read(query: &str) -> Result<Self, ApiError> {
        let mut read = Self::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = decoded(value).ok_or_else(|| bad(name))?;
            match name {
                "StartDate" => read.start = Some(moment(&value).ok_or_else(|| bad(name))?),
                "EndDate" => read.end = Some(moment(&value).ok_or_else(|| bad(name))?),
                "Reason" => {
                    let reason = serde_json::from_value(value.into());
                    read.reasons.push(reason.map_err(|_| bad(name))?);
                }
                "PageSize" => {
                    let size = value.parse().ok();
                    let size = size.filter(|size| (1..=MOST_ON_PAGE).contains(size));
                    read.size = Some(size.ok_or_else(|| bad(name))?);
                }
                "NextToken" => read.after = Some(token(&value)?),
                _ => {}
            }
        }
        Ok(read)
    }

    fn takes(&self, entry: Entry) -> bool {
        (self.reasons.is_empty() || self.reasons.contains(&entry.reason))
            && self.start.is_none_or(|start| entry.since >= start)
            && self.end.is_none_or(|end| entry.since < end)
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of this age fit")]
fn summary(address: &str, entry: Entry) -> Value {
    json!({
        "EmailAddress": address,
        "Reason": entry.reason,
        "LastUpdateTime": entry.since as f64 / 1e6,
    })
}

/// An ISO 8601 time as the SDKs write it in a URL, or seconds since the Unix epoch as the reference has it.
fn moment(text: &str) -> Option<Micros> {
    if let Ok(seconds) = text.parse::<u64>() {
        return seconds.checked_mul(1_000_000);
    }
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    Micros::try_from(time.unix_timestamp_nanos() / 1000).ok()
}

fn token(text: &str) -> Result<String, ApiError> {
    let address = BASE64.decode(text).ok();
    let address = address.and_then(|address| String::from_utf8(address).ok());
    address.ok_or_else(|| {
        ApiError::new(
            ErrorKind::InvalidNextToken,
            "The specified request includes an invalid or expired token.",
        )
    })
}

/// `%41` is `A`; nothing else has a meaning.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let digits = str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

fn bad(name: &str) -> ApiError {
    ApiError::new(ErrorKind::BadRequest, format!("{name} is not valid."))
}

fn missing() -> ApiError {
    ApiError::new(
        ErrorKind::NotFound,
        "The email address does not exist on your suppression list.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;
    const NOW: Micros = 1_790_000_000 * SECOND;

    /// `a0` to `a4`, one a second up to now; the odd ones complained.
    fn five() -> Suppressions {
        let mut list = Suppressions::default();
        for n in 0..5 {
            let reason = [Reason::Bounce, Reason::Complaint][usize::from(n % 2 == 1)];
            list.put(&format!("a{n}@example.com"), reason, NOW - (4 - n) * SECOND);
        }
        list
    }

    fn listed(list: &Suppressions, query: &str) -> (Vec<String>, Option<String>) {
        let page = list.page(&Query::read(query).unwrap(), NOW);
        let all = page["SuppressedDestinationSummaries"].as_array().unwrap();
        let all = all.iter().map(|one| one["EmailAddress"].as_str().unwrap());
        let next = page
            .get("NextToken")
            .map(|next| next.as_str().unwrap().to_owned());
        (all.map(|address| address[..2].to_owned()).collect(), next)
    }

    #[test]
    fn pages_follow_each_other_and_the_last_names_none() {
        let mut list = five();
        let (first, next) = listed(&list, "PageSize=2");
        assert_eq!(first, ["a0", "a1"]);
        // Who comes or goes meanwhile doesn't shift what follows.
        list.delete("a1@example.com", NOW).unwrap();
        list.put("a00@example.com", Reason::Bounce, NOW);
        let (second, next) = listed(&list, &format!("NextToken={}&PageSize=2", next.unwrap()));
        assert_eq!(second, ["a2", "a3"]);
        let (third, next) = listed(&list, &format!("PageSize=1&NextToken={}", next.unwrap()));
        assert_eq!((third, next), (vec!["a4".to_owned()], None));
        assert_eq!(listed(&Suppressions::default(), ""), (vec![], None));
    }

    #[test]
    fn a_part_can_be_asked_for() {
        let list = five();
        for (query, expected) in [
            ("", &["a0", "a1", "a2", "a3", "a4"] as &[_]),
            ("Reason=COMPLAINT", &["a1", "a3"]),
            (
                "Reason=COMPLAINT&Reason=BOUNCE&StartDate=1789999999",
                &["a3", "a4"],
            ),
            ("StartDate=2026-09-21T14%3A13%3A19Z", &["a3", "a4"]),
            ("EndDate=2026-09-21T14:13:17.5Z", &["a0", "a1"]),
            ("StartDate=1789999997&EndDate=1789999998", &["a1"]),
        ] {
            assert_eq!(listed(&list, query).0, expected, "{query}");
        }
    }

    #[test]
    fn what_is_no_query_is_refused() {
        for (query, kind) in [
            ("PageSize=0", ErrorKind::BadRequest),
            ("PageSize=1001", ErrorKind::BadRequest),
            ("StartDate=yesterday", ErrorKind::BadRequest),
            ("Reason=WHIM", ErrorKind::BadRequest),
            ("EndDate=%4", ErrorKind::BadRequest),
            ("NextToken=%21", ErrorKind::InvalidNextToken),
        ] {
            assert_eq!(Query::read(query).unwrap_err().kind, kind, "{query}");
        }
    }

    #[test]
    fn an_address_is_on_the_list_from_its_time_on_whatever_its_case() {
        let mut list = Suppressions::default();
        list.add("Ann@Example.com", Reason::Bounce, NOW);
        list.add("ann@example.com", Reason::Complaint, NOW + 5);
        assert_eq!(list.reason("ann@example.com", NOW - 1), None);
        assert_eq!(
            list.shown("ann@example.com", NOW - 1).unwrap_err().kind,
            ErrorKind::NotFound
        );
        assert!(list.delete("ann@example.com", NOW - 1).is_err());
        assert_eq!(
            list.page(&Query::default(), NOW - 1)["SuppressedDestinationSummaries"],
            json!([])
        );
        assert_eq!(list.reason("ANN@example.com", NOW), Some(Reason::Bounce));
        let shown = list.shown("ANN@example.com", NOW).unwrap();
        let expected = json!({"SuppressedDestination": {
            "EmailAddress": "ann@example.com", "Reason": "BOUNCE", "LastUpdateTime": 1_790_000_000.0,
        }});
        assert_eq!(shown, expected);
        list.put("ann@example.com", Reason::Complaint, NOW);
        assert_eq!(list.reason("ann@example.com", NOW), Some(Reason::Complaint));
        list.delete("Ann@example.com", NOW).unwrap();
        assert!(list.delete("Ann@example.com", NOW).is_err());
    }
}
