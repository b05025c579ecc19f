//! The calls other than `SendEmail`: their names, their limit and their line in the record.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::Micros;
use crate::errors::{ApiError, ErrorKind};
use crate::faults::Kind;
use crate::limits::{Limits, Model, Quota, Rate, Verdict};
use crate::record::unix_ms;
use crate::request::is_word;

/// SES v2's operations that the simulator knows, by their names in the SDKs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Operation {
    /// The one that the sending limits are about. All others share the control plane's.
    #[default]
    SendEmail,
    /// Quotas, what was sent, the switches.
    GetAccount,
    /// The account's sending switch.
    PutAccountSendingAttributes,
    /// Makes a configuration set.
    CreateConfigurationSet,
    /// Its sending switch, as it is.
    GetConfigurationSet,
    /// Removes it.
    DeleteConfigurationSet,
    /// The names of all.
    ListConfigurationSets,
    /// Its sending switch.
    PutConfigurationSetSendingOptions,
    /// A page of the suppression list.
    ListSuppressedDestinations,
    /// Why and since when an address is on it.
    GetSuppressedDestination,
    /// Puts an address on it.
    PutSuppressedDestination,
    /// Takes it off.
    DeleteSuppressedDestination,
}

impl Operation {
    /// How many there are.
    pub const COUNT: usize = 12;

    /// Whether it is the default, which faults leave out; by reference for serde.
    #[must_use]
    pub fn is_send_email(&self) -> bool {
        *self == Self::SendEmail
    }

    /// Its place among all, from 0 for `SendEmail`.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// Done, whatever became of the answer.
    Done,
    /// Over the control plane's limit.
    Throttled,
    /// Not a valid request, or about what does not exist.
    Refused,
    /// Failed on purpose before it was looked at.
    Failed,
}

/// One line of the record of calls.
#[derive(Debug, Serialize)]
pub struct Call<'a> {
    /// When the call arrived, in Unix milliseconds to the microsecond.
    pub at_ms: f64,
    /// Which one.
    pub operation: Operation,
    /// The configuration set that it names.
    pub configuration_set: Option<&'a str>,
    /// What became of it.
    pub outcome: CallOutcome,
    /// The exception that it was answered with; it is there too where a fault spoils the answer
    /// of a call that was done.
    pub error: Option<&'static str>,
    /// The fault that hit it; absent where none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Kind>,
}

impl<'a> Call<'a> {
    /// The line for a call at this time about this set.
    #[must_use]
    pub fn new(at: Micros, operation: Operation, set: Option<&'a str>) -> Self {
        Self {
            at_ms: unix_ms(at),
            operation,
            configuration_set: set.filter(|name| is_word(name)),
            outcome: CallOutcome::Done,
            error: None,
            fault: None,
        }
    }
}

/// The limit that all calls but `SendEmail` share: a bucket of one second's worth, at least one.
///
/// SES v1's reference allows such operations once a second, each by itself (as `GetSendQuota`);
/// v2's names no figure. Who keeps to one a second in all keeps to either reading.
#[derive(Debug)]
pub struct ControlLimit {
    limits: Limits,
    limited: bool,
}

impl ControlLimit {
    /// A limit that nothing was taken from; none: unlimited.
    #[must_use]
    pub fn new(rate: Option<Rate>, now: Micros) -> Self {
        Self {
            limits: Limits::new(quota(rate), now),
            limited: rate.is_some(),
        }
    }

    /// Changes it; what was taken stays so.
    pub fn set(&mut self, rate: Option<Rate>, now: Micros) {
        self.limits.set_quota(now, quota(rate));
        self.limited = rate.is_some();
    }

    /// Takes one call's worth if there is one.
    ///
    /// # Errors
    /// There is none, and the call is to be refused with this.
    pub fn take(&mut self, now: Micros) -> Result<(), ApiError> {
        if !self.limited || self.limits.offer(now, 1, 0) == Verdict::Accepted {
            return Ok(());
        }
        Err(too_many())
    }
}

fn quota(rate: Option<Rate>) -> Quota {
    Quota {
        rate: rate.unwrap_or(Rate::DEFAULT),
        model: Model::Bucket,
        daily: None,
        elsewhere: 0,
    }
}

/// The control plane's throttle.
pub(crate) fn too_many() -> ApiError {
    ApiError::new(ErrorKind::TooManyRequests, "Rate exceeded")
}

/// Merges a patch into an answer as RFC 7396 says: objects field by field, null removes, anything
/// else takes the place of what was there.
pub fn merge(answer: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        answer.clone_from(patch);
        return;
    };
    if !answer.is_object() {
        *answer = Value::Object(Map::new());
    }
    let Value::Object(fields) = answer else {
        return;
    };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Micros = 1_790_000_000_000_000;
    const SECOND: Micros = 1_000_000;

    #[test]
    fn one_a_second_is_one_a_second() {
        let mut limit = ControlLimit::new(Rate::per_second(1.0), NOW);
        let mut taken = |at: Micros| limit.take(NOW + at).is_ok();
        assert!(taken(0));
        assert!(!taken(0));
        assert!(!taken(SECOND - 1));
        assert!(taken(SECOND), "refusals took nothing");
        assert!(taken(9 * SECOND));
        assert!(!taken(9 * SECOND), "a long pause saves up no more than one");
    }

    #[test]
    fn without_a_limit_all_go() {
        let mut limit = ControlLimit::new(None, NOW);
        assert!((0..1000).all(|_| limit.take(NOW).is_ok()));
        limit.set(Rate::per_second(0.5), NOW);
        assert!(limit.take(NOW).is_ok());
        assert!(limit.take(NOW + 2 * SECOND - 1).is_err());
        assert!(limit.take(NOW + 2 * SECOND).is_ok());
        limit.set(None, NOW + 2 * SECOND);
        assert!(limit.take(NOW + 2 * SECOND).is_ok());
    }

    /// The examples of RFC 7396, appendix A, that can be told apart.
    #[test]
    fn a_merge_is_that_of_the_rfc() {
        for (before, patch, after) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c", "d": 1}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d", "d": 1}}),
            ),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (
                json!({"e": null}),
                json!({"a": 1}),
                json!({"e": null, "a": 1}),
            ),
            (
                json!([1, 2]),
                json!({"a": "b", "c": null}),
                json!({"a": "b"}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            let mut answer = before.clone();
            merge(&mut answer, &patch);
            assert_eq!(answer, after, "{before} {patch}");
        }
    }

    #[test]
    fn a_call_names_no_set_that_cannot_be_one() {
        let line = Call::new(NOW, Operation::GetConfigurationSet, Some("a@example.com"));
        assert_eq!(
            serde_json::to_value(&line).unwrap(),
            json!({
                "at_ms": 1_790_000_000_000.0, "operation": "GetConfigurationSet",
                "configuration_set": null, "outcome": "done", "error": null,
            })
        );
    }

    #[test]
    fn all_operations_have_their_own_place() {
        assert_eq!(Operation::SendEmail.index(), 0);
        let last = Operation::DeleteSuppressedDestination;
        assert_eq!(last.index() + 1, Operation::COUNT);
    }
}
