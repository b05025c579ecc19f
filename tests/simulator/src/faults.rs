//! Faults on purpose: rules that say which requests fail, and how.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::calls::Operation;

/// An hour: longer is a mistyped unit.
const MAX_MS: f64 = 3_600_000.0;
const MAX_RETRY_AFTER_S: u32 = 86_400;
const MAX_RULES: usize = 100;

/// How a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Refused as if over the rate.
    Throttle,
    /// Refused as if the caller lacked the permission.
    Denied,
    /// Answered 500, not accepted.
    ErrorBefore,
    /// Accepted, then answered 500.
    ErrorAfter,
    /// Not accepted; no answer, and the connection is closed in the end.
    HangBefore,
    /// Accepted; no answer, and the connection is closed in the end.
    HangAfter,
    /// Not accepted; the connection is reset without an answer.
    ResetBefore,
    /// Accepted; the connection is reset without an answer.
    ResetAfter,
    /// Accepted and answered, late.
    Slow,
    /// Accepted; the answer is changed.
    Patch,
}

const KINDS: &str = "one of throttle, denied, error_before, error_after, hang_before, \
                     hang_after, reset_before, reset_after, slow and patch";
const OPERATIONS: &str = "an operation's name, such as GetAccount";
const PATCH: &str = "an object to merge into an answer, for kind patch alone and not for SendEmail";

impl Kind {
    /// Whether it hits before the request is looked at, so that nothing is accepted.
    #[must_use]
    pub fn is_before(self) -> bool {
        match self {
            Self::Throttle
            | Self::Denied
            | Self::ErrorBefore
            | Self::HangBefore
            | Self::ResetBefore => true,
            Self::ErrorAfter | Self::HangAfter | Self::ResetAfter | Self::Slow | Self::Patch => {
                false
            }
        }
    }

    fn needs_ms(self) -> bool {
        matches!(self, Self::HangBefore | Self::HangAfter | Self::Slow)
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fault {
    /// The requests that it may hit.
    #[serde(skip_serializing_if = "Operation::is_send_email")]
    pub operation: Operation,
    /// How the requests fail that it hits.
    pub kind: Kind,
    /// The share of requests that it hits, 0 to 1.
    pub share: f64,
    /// At most so many hits; none: no limit.
    pub count: Option<u64>,
    /// How long a hang or a slow answer lasts, in milliseconds.
    pub ms: Option<f64>,
    /// The `Retry-After` of a throttle, in seconds.
    pub retry_after_s: Option<u32>,
    /// What a patch merges into the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<Value>,
}

impl Fault {
    /// How long the request waits for its end, of the kinds that say so.
    #[must_use]
    pub fn lasts(&self) -> Option<Duration> {
        let ms = self.ms.filter(|_| self.kind.needs_ms())?;
        Some(Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default())
    }
}

/// Faults that were refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FaultsError {
    /// There is no field of this name.
    #[error("unknown field {0:?}")]
    Unknown(String),
    /// The value is not one that the field takes.
    #[error("{field}: expected {expected}, got {got}")]
    Value {
        /// The field, as a path.
        field: String,
        /// What it takes.
        expected: &'static str,
        /// What was given, as JSON, or `nothing`.
        got: String,
    },
}

impl FaultsError {
    fn value(field: &str, expected: &'static str, got: Option<&Value>) -> Self {
        Self::Value {
            field: field.to_owned(),
            expected,
            got: got.map_or_else(|| "nothing".to_owned(), Value::to_string),
        }
    }
}

/// Reads `{"faults": [...]}`.
///
/// # Errors
/// The first field that is unknown, missing, of the wrong kind or out of range.
pub fn parse(body: &Map<String, Value>) -> Result<Vec<Fault>, FaultsError> {
    if let Some(unknown) = body.keys().find(|key| *key != "faults") {
        return Err(FaultsError::Unknown(unknown.clone()));
    }
    let list = body.get("faults");
    let rules = list.and_then(Value::as_array);
    let rules = rules.filter(|rules| rules.len() <= MAX_RULES);
    let rules =
        rules.ok_or_else(|| FaultsError::value("faults", "a list of at most 100 objects", list))?;
    let rules = rules.iter().enumerate();
    rules
        .map(|(index, rule)| rule_at(&format!("faults[{index}]"), rule))
        .collect()
}

const FIELDS: [&str; 7] = [
    "operation",
    "kind",
    "share",
    "count",
    "ms",
    "retry_after_s",
    "patch",
];

fn rule_at(path: &str, value: &Value) -> Result<Fault, FaultsError> {
    let Some(fields) = value.as_object() else {
        return Err(FaultsError::value(path, "an object", Some(value)));
    };
    if let Some(unknown) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        return Err(FaultsError::Unknown(format!("{path}.{unknown}")));
    }
    let wrong = |name: &str, expected| {
        FaultsError::value(&format!("{path}.{name}"), expected, fields.get(name))
    };
    let operation = optional(fields.get("operation"), |_: &Operation| true)
        .ok_or_else(|| wrong("operation", OPERATIONS))?
        .unwrap_or_default();
    let kind = read::<Kind>(fields.get("kind")).ok_or_else(|| wrong("kind", KINDS))?;
    let share = optional(fields.get("share"), |n| (0.0..=1.0).contains(n))
        .ok_or_else(|| wrong("share", "a number from 0 to 1"))?;
    let count = optional(fields.get("count"), |_: &u64| true)
        .ok_or_else(|| wrong("count", "a whole number from 0, or null for no limit"))?;
    let ms = optional(fields.get("ms"), |n| (0.0..=MAX_MS).contains(n))
        .filter(|ms| ms.is_some() || !kind.needs_ms())
        .ok_or_else(|| wrong("ms", "milliseconds, 0 to 3600000"))?;
    let retry_after_s = optional(fields.get("retry_after_s"), |&n| n <= MAX_RETRY_AFTER_S)
        .ok_or_else(|| wrong("retry_after_s", "whole seconds, 0 to 86400, or null"))?;
    let patches = kind == Kind::Patch;
    let patch = optional(fields.get("patch"), Value::is_object)
        .filter(|patch| patch.is_some() == patches && !(patches && operation.is_send_email()))
        .ok_or_else(|| wrong("patch", PATCH))?;
    Ok(Fault {
        operation,
        kind,
        share: share.unwrap_or(1.0),
        count,
        ms,
        retry_after_s,
        patch,
    })
}

fn read<'a, T: Deserialize<'a>>(value: Option<&'a Value>) -> Option<T> {
    T::deserialize(value?).ok()
}

/// Some of none for what is absent or null; none for what is wrong.
#[expect(
    clippy::option_option,
    reason = "the outer one says whether it is right"
)]
fn optional<'a, T: Deserialize<'a>>(
    value: Option<&'a Value>,
    is_legal: impl FnOnce(&T) -> bool,
) -> Option<Option<T>> {
    match value {
        None | Some(Value::Null) => Some(None),
        Some(_) => read(value).filter(is_legal).map(Some),
    }
}

/// A rule that hits an arrival.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The rule.
    pub fault: Fault,
    index: usize,
}

/// The rules in force, with their hits so far, and the sequences that decide.
#[derive(Debug)]
pub struct Faults {
    rules: Vec<Fault>,
    hits: Vec<u64>,
    /// One for each operation, so that none shifts what is drawn for another.
    random: [StdRng; Operation::COUNT],
}

fn sequences(seed: u64) -> [StdRng; Operation::COUNT] {
    let mut next = seed;
    std::array::from_fn(|_| {
        let sequence = StdRng::seed_from_u64(next);
        next = next.wrapping_add(1);
        sequence
    })
}

impl Faults {
    /// These rules, without hits yet, and the sequences of this seed from their beginning.
    #[must_use]
    pub fn new(rules: Vec<Fault>, seed: u64) -> Self {
        Self {
            hits: vec![0; rules.len()],
            rules,
            random: sequences(seed),
        }
    }

    /// Starts the sequences anew; the hits stay.
    pub fn reseed(&mut self, seed: u64) {
        self.random = sequences(seed);
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Fault] {
        &self.rules
    }

    /// The first rule that hits the next request for this operation. It is counted only by
    /// [`Faults::count`].
    pub fn draw(&mut self, operation: Operation) -> Option<Hit> {
        let mut first = None;
        let random = &mut self.random[operation.index()];
        let rules = self.rules.iter().enumerate();
        // Every request draws for every rule of its operation, so that no hit shifts the draws
        // after it.
        for (index, fault) in rules.filter(|(_, fault)| fault.operation == operation) {
            let drawn: f64 = random.random();
            let left = fault.count.is_none_or(|most| self.hits[index] < most);
            if first.is_none() && left && drawn < fault.share {
                let fault = fault.clone();
                first = Some(Hit { fault, index });
            }
        }
        first
    }

    /// Counts a hit of these rules.
    pub fn count(&mut self, hit: &Hit) {
        if let Some(hits) = self.hits.get_mut(hit.index) {
            *hits += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(body: &Value) -> Result<Vec<Fault>, FaultsError> {
        parse(body.as_object().unwrap())
    }

    fn faults(rules: &Value) -> Faults {
        Faults::new(parsed(&json!({ "faults": rules })).unwrap(), 1)
    }

    fn hits(faults: &mut Faults, arrivals: usize) -> Vec<Option<Kind>> {
        let mut draw = || {
            let hit = faults.draw(Operation::SendEmail)?;
            faults.count(&hit);
            Some(hit.fault.kind)
        };
        (0..arrivals).map(|_| draw()).collect()
    }

    #[test]
    fn what_is_shown_can_be_set_back() {
        let all = json!({"faults": [
            {"kind": "throttle", "share": 0.5, "count": 3, "ms": null, "retry_after_s": 2},
            {"kind": "slow", "share": 1.0, "count": null, "ms": 1500.0, "retry_after_s": null},
            {"operation": "GetAccount", "kind": "patch", "share": 1.0, "count": 2, "ms": null,
             "retry_after_s": null, "patch": {"SendQuota": {"MaxSendRate": 0}}},
        ]});
        let rules = parsed(&all).unwrap();
        assert_eq!(json!({ "faults": rules }), all);
    }

    #[test]
    fn all_but_the_kind_has_a_default() {
        let expected = Fault {
            operation: Operation::SendEmail,
            kind: Kind::ResetAfter,
            share: 1.0,
            count: None,
            ms: None,
            retry_after_s: None,
            patch: None,
        };
        let rules = parsed(&json!({"faults": [{"kind": "reset_after"}]}));
        assert_eq!(rules, Ok(vec![expected]));
    }

    #[test]
    fn wrong_faults_are_named() {
        let one = |field: &str, value: Value| {
            let mut rule = json!({"kind": "slow", "ms": 5});
            rule[field] = value;
            json!({ "faults": [{"kind": "throttle"}, rule] })
        };
        let cases = [
            (
                json!({}),
                "faults: expected a list of at most 100 objects, got nothing",
            ),
            (json!({"faults": {}}), "faults: expected a list"),
            (
                json!({"faults": vec![json!({"kind": "throttle"}); 101]}),
                "at most 100",
            ),
            (json!({"faults": [], "lane": 1}), r#"unknown field "lane""#),
            (
                json!({"faults": [3]}),
                "faults[0]: expected an object, got 3",
            ),
            (
                one("lane", json!("bulk")),
                r#"unknown field "faults[1].lane""#,
            ),
            (
                one("kind", json!("explode")),
                "faults[1].kind: expected one of throttle, ",
            ),
            (one("kind", json!(null)), r"got null"),
            (
                one("operation", json!("GetQuota")),
                "faults[1].operation: expected an operation's name",
            ),
            (one("patch", json!({})), "faults[1].patch: expected"),
            (
                json!({"faults": [{"kind": "patch", "patch": {}}]}),
                "faults[0].patch: expected an object to merge into an answer, for kind patch",
            ),
            (
                json!({"faults": [{"operation": "GetAccount", "kind": "patch"}]}),
                "faults[0].patch: expected an object",
            ),
            (
                json!({"faults": [{"operation": "GetAccount", "kind": "patch", "patch": 3}]}),
                "faults[0].patch: expected an object",
            ),
            (
                one("share", json!(1.1)),
                "faults[1].share: expected a number from 0 to 1, got 1.1",
            ),
            (one("share", json!("all")), r#"got "all""#),
            (
                one("count", json!(-1)),
                "faults[1].count: expected a whole number from 0",
            ),
            (one("count", json!(1.5)), "faults[1].count: expected"),
            (
                one("ms", json!(null)),
                "faults[1].ms: expected milliseconds, 0 to 3600000, got null",
            ),
            (one("ms", json!(-1)), "faults[1].ms: expected"),
            (one("ms", json!(4e6)), "faults[1].ms: expected"),
            (
                one("retry_after_s", json!(0.5)),
                "faults[1].retry_after_s: expected whole seconds",
            ),
            (
                one("retry_after_s", json!(86_401)),
                "faults[1].retry_after_s: expected",
            ),
            (
                json!({"faults": [{"kind": "hang_after"}]}),
                "faults[0].ms: expected milliseconds, 0 to 3600000, got nothing",
            ),
        ];
        for (body, expected) in cases {
            let message = parsed(&body).unwrap_err().to_string();
            assert!(message.contains(expected), "{body}: {message}");
        }
    }

    #[test]
    fn a_rule_hits_its_operation_alone_and_shifts_no_other() {
        let half = json!({"kind": "throttle", "share": 0.5});
        let mut with = half.clone();
        with["operation"] = json!("GetAccount");
        let alone = hits(&mut faults(&json!([half])), 100);
        let mut both = faults(&json!([with, half]));
        let mut mixed = Vec::new();
        let mut of_account = 0;
        for _ in 0..100 {
            of_account += u32::from(both.draw(Operation::GetAccount).is_some());
            assert_eq!(both.draw(Operation::GetConfigurationSet), None);
            mixed.extend(hits(&mut both, 1));
        }
        assert_eq!(mixed, alone);
        assert!((30..70).contains(&of_account), "{of_account}");
    }

    #[test]
    fn a_share_hits_about_so_many() {
        let mut faults = faults(&json!([{"kind": "throttle", "share": 0.2}]));
        let hit = hits(&mut faults, 10_000).iter().flatten().count();
        assert!((1850..2150).contains(&hit), "{hit}");
    }

    #[test]
    fn a_count_ends_and_the_next_rule_takes_over() {
        let mut faults = faults(&json!([
            {"kind": "throttle", "count": 2},
            {"kind": "slow", "ms": 1, "share": 0},
            {"kind": "error_after", "count": 1},
        ]));
        let throttle = Some(Kind::Throttle);
        let expected = [throttle, throttle, Some(Kind::ErrorAfter), None];
        assert_eq!(hits(&mut faults, 4), expected);
    }

    #[test]
    fn what_is_not_counted_is_left() {
        let mut faults = faults(&json!([{"kind": "error_after", "count": 1}]));
        assert!(faults.draw(Operation::SendEmail).is_some());
        assert!(faults.draw(Operation::SendEmail).is_some());
    }

    #[test]
    fn the_seed_determines_the_hits_whatever_rules_ran_out() {
        let half = json!({"kind": "throttle", "share": 0.5});
        let limited = json!({"kind": "reset_before", "count": 5});
        let mut alone = faults(&json!([limited, half]));
        let first = hits(&mut alone, 100);
        alone.reseed(1);
        let again = hits(&mut alone, 100);
        assert_eq!(first[5..], again[5..], "the limited rule had run out");
        assert_ne!(first[..5], again[..5]);
        alone.reseed(2);
        assert_ne!(hits(&mut alone, 100), again);
    }
}
