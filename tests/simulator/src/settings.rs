//! What can be set, by flag at start and by request while running: one table for both.

use axum::http::Uri;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::Micros;
use crate::errors::ErrorKind;
use crate::latency::Shape;
use crate::limits::{Model, Quota, Rate};

/// The account as the simulator presents it, and how its answers are timed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Settings {
    /// `MaxSendRate`, recipients per second.
    pub rate: Rate,
    /// How the rate is enforced.
    pub model: Model,
    /// `Max24HourSend`, recipients in a rolling 24 hours; -1 is unlimited.
    pub daily: i64,
    /// Recipients that others sent through the account in the last 24 hours: they are in
    /// `SentLast24Hours`, and use up the daily quota.
    pub sent_elsewhere: u64,
    /// Calls other than `SendEmail`, per second, all together; -1 is unlimited.
    pub control_rate: f64,
    /// The exception for the daily quota.
    pub daily_error: DailyError,
    /// The account's sending switch.
    pub sending_enabled: bool,
    /// Out of the sandbox, as `GetAccount` says.
    pub production_access: bool,
    /// `GetAccount`'s `EnforcementStatus`.
    pub enforcement: Enforcement,
    /// The median latency of a `SendEmail` answer, ms.
    pub latency_median_ms: f64,
    /// Its 99th percentile, ms.
    pub latency_p99_ms: f64,
    /// What determines the latencies and faults; setting it starts their sequences anew.
    pub seed: u64,
    /// The EventBridge that events are published to; empty: none are.
    pub events_endpoint: String,
    /// How long after the arrival they happen, ms.
    pub event_delay_ms: f64,
    /// The most that an event is late on top, ms: each draws, so that they come out of order.
    pub event_spread_ms: f64,
    /// Whether each event is published twice.
    pub events_twice: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rate: Rate::DEFAULT,
            model: Model::Bucket,
            daily: 50_000,
            sent_elsewhere: 0,
            control_rate: -1.0,
            daily_error: DailyError::TooManyRequests,
            sending_enabled: true,
            production_access: true,
            enforcement: Enforcement::Healthy,
            latency_median_ms: 80.0,
            latency_p99_ms: 250.0,
            seed: 1,
            events_endpoint: String::new(),
            event_delay_ms: 50.0,
            event_spread_ms: 0.0,
            events_twice: false,
        }
    }
}

/// The exception that tells of a used-up daily quota: AWS does not say which SES v2 raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DailyError {
    /// Status 429.
    #[serde(rename = "TooManyRequestsException")]
    TooManyRequests,
    /// Status 400.
    #[serde(rename = "LimitExceededException")]
    LimitExceeded,
    /// Status 400.
    #[serde(rename = "ThrottlingException")]
    Throttling,
}

impl From<DailyError> for ErrorKind {
    fn from(error: DailyError) -> Self {
        match error {
            DailyError::TooManyRequests => Self::TooManyRequests,
            DailyError::LimitExceeded => Self::LimitExceeded,
            DailyError::Throttling => Self::Throttling,
        }
    }
}

/// The standing of the account with SES.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Enforcement {
    /// Nothing is wrong.
    Healthy,
    /// Under review; still sends.
    Probation,
    /// Shut down: every send is refused.
    Shutdown,
}

/// An hour: longer latencies are a mistyped unit.
const MAX_LATENCY_MS: f64 = 3_600_000.0;

/// A million million: exact in a float, which is how `GetAccount` tells it.
const MAX_ELSEWHERE: u64 = 1_000_000_000_000;

/// A setting that was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SettingsError {
    /// There is no setting of this name.
    #[error("unknown setting {0:?}")]
    Unknown(String),
    /// The value is not one that the setting takes.
    #[error("{name}: expected {expected}, got {got}")]
    Value {
        /// The setting.
        name: String,
        /// What it takes.
        expected: &'static str,
        /// What was given, as JSON.
        got: String,
    },
    /// The two latencies contradict each other.
    #[error("latency_p99_ms ({p99}) must not be below latency_median_ms ({median})")]
    Latency {
        /// The 99th percentile, ms.
        p99: String,
        /// The median, ms.
        median: String,
    },
}

impl Settings {
    /// These settings with some changed.
    ///
    /// # Errors
    /// The first that is unknown, of the wrong kind or out of range; or latencies that contradict
    /// each other once all are set.
    pub fn with(&self, changes: &Map<String, Value>) -> Result<Self, SettingsError> {
        let mut settings = self.clone();
        for (name, value) in changes {
            settings.set(name, value)?;
        }
        settings.check()?;
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<(), SettingsError> {
        // Each setting: what it takes, and whether this was that.
        let (expected, set) = match name {
            "rate" => (
                "recipients per second, 0.000001 to 1000000",
                assign(&mut self.rate, read(value).and_then(Rate::per_second)),
            ),
            "model" => (
                r#""bucket" or "window""#,
                assign(&mut self.model, read(value)),
            ),
            "daily" => (
                "recipients in 24 hours, a whole number, or -1 for no limit",
                assign(&mut self.daily, read(value).filter(|&n| n >= -1)),
            ),
            "sent_elsewhere" => (
                "recipients, a whole number from 0 to 1000000000000",
                assign(
                    &mut self.sent_elsewhere,
                    read(value).filter(|&n| n <= MAX_ELSEWHERE),
                ),
            ),
            "control_rate" => (
                "calls per second, 0.000001 to 1000000, or -1 for no limit",
                assign(
                    &mut self.control_rate,
                    read(value).filter(|&n| is_unlimited(n) || Rate::per_second(n).is_some()),
                ),
            ),
            "daily_error" => (
                r#""TooManyRequestsException", "LimitExceededException" or "ThrottlingException""#,
                assign(&mut self.daily_error, read(value)),
            ),
            "sending_enabled" => (
                "true or false",
                assign(&mut self.sending_enabled, read(value)),
            ),
            "production_access" => (
                "true or false",
                assign(&mut self.production_access, read(value)),
            ),
            "enforcement" => (
                r#""HEALTHY", "PROBATION" or "SHUTDOWN""#,
                assign(&mut self.enforcement, read(value)),
            ),
            "latency_median_ms" => (
                "milliseconds, 0 to 3600000",
                assign(&mut self.latency_median_ms, read(value).filter(is_latency)),
            ),
            "latency_p99_ms" => (
                "milliseconds, 0 to 3600000",
                assign(&mut self.latency_p99_ms, read(value).filter(is_latency)),
            ),
            "seed" => ("a whole number from 0", assign(&mut self.seed, read(value))),
            "events_endpoint" => (
                r#"an http:// URL, or "" for no events"#,
                assign(
                    &mut self.events_endpoint,
                    read(value).filter(|url: &String| url.is_empty() || is_http(url)),
                ),
            ),
            "event_delay_ms" => (
                "milliseconds, 0 to 3600000",
                assign(&mut self.event_delay_ms, read(value).filter(is_latency)),
            ),
            "event_spread_ms" => (
                "milliseconds, 0 to 3600000",
                assign(&mut self.event_spread_ms, read(value).filter(is_latency)),
            ),
            "events_twice" => ("true or false", assign(&mut self.events_twice, read(value))),
            _ => return Err(SettingsError::Unknown(name.to_owned())),
        };
        set.ok_or_else(|| SettingsError::Value {
            name: name.to_owned(),
            expected,
            got: value.to_string(),
        })
    }

    fn check(&self) -> Result<(), SettingsError> {
        if self.latency_p99_ms < self.latency_median_ms {
            return Err(SettingsError::Latency {
                p99: self.latency_p99_ms.to_string(),
                median: self.latency_median_ms.to_string(),
            });
        }
        Ok(())
    }

    /// The limits these settings ask for.
    #[must_use]
    pub fn quota(&self) -> Quota {
        Quota {
            rate: self.rate,
            model: self.model,
            daily: u64::try_from(self.daily).ok(),
            elsewhere: self.sent_elsewhere,
        }
    }

    /// How many calls per second the control plane takes; none: any number.
    #[must_use]
    pub fn control_limit(&self) -> Option<Rate> {
        Rate::per_second(self.control_rate)
    }

    /// How long after the arrival events happen.
    #[must_use]
    pub fn event_delay(&self) -> Micros {
        micros(self.event_delay_ms)
    }

    /// The most that an event is published later than that.
    #[must_use]
    pub fn event_spread(&self) -> Micros {
        micros(self.event_spread_ms)
    }

    /// The latency these settings ask for.
    #[must_use]
    pub fn latency(&self) -> Shape {
        Shape {
            median_ms: self.latency_median_ms,
            p99_ms: self.latency_p99_ms,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be 0 to an hour"
)]
fn micros(milliseconds: f64) -> Micros {
    (milliseconds * 1000.0) as Micros
}

fn assign<T>(place: &mut T, value: Option<T>) -> Option<()> {
    *place = value?;
    Some(())
}

fn read<'a, T: Deserialize<'a>>(value: &'a Value) -> Option<T> {
    T::deserialize(value).ok()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "a filter's signature")]
fn is_latency(milliseconds: &f64) -> bool {
    (0.0..=MAX_LATENCY_MS).contains(milliseconds)
}

/// -1, which is exact in a float.
#[expect(clippy::float_cmp, reason = "-1 is given, not computed")]
fn is_unlimited(rate: f64) -> bool {
    rate == -1.0
}

fn is_http(url: &str) -> bool {
    let url = url.parse::<Uri>().ok();
    url.is_some_and(|url| url.scheme_str() == Some("http") && url.host().is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(changes: &Value) -> Result<Settings, SettingsError> {
        Settings::default().with(changes.as_object().unwrap())
    }

    #[test]
    fn what_is_shown_can_be_set_back() {
        let all = json!({
            "rate": 11.2, "model": "window", "daily": -1, "daily_error": "ThrottlingException",
            "sent_elsewhere": 7, "control_rate": 0.5,
            "sending_enabled": false, "production_access": false, "enforcement": "SHUTDOWN",
            "latency_median_ms": 5.0, "latency_p99_ms": 9.0, "seed": 7,
            "events_endpoint": "http://localhost:4566",
            "event_delay_ms": 5.0, "event_spread_ms": 7.0, "events_twice": true,
        });
        let settings = changed(&all).unwrap();
        assert_eq!(serde_json::to_value(&settings).unwrap(), all);
        assert_eq!(settings.quota().daily, None);
        assert_eq!(settings.quota().elsewhere, 7);
        assert_eq!(settings.control_limit(), Rate::per_second(0.5));
        let unlimited = changed(&json!({"control_rate": -1})).unwrap();
        assert_eq!(unlimited.control_limit(), None);
    }

    #[test]
    fn what_is_not_named_stays() {
        let settings = changed(&json!({"rate": 14})).unwrap();
        let expected = Settings {
            rate: Rate::per_second(14.0).unwrap(),
            ..Settings::default()
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn wrong_settings_are_named() {
        let cases = [
            (json!({"speed": 1}), r#"unknown setting "speed""#),
            (
                json!({"rate": 0}),
                "rate: expected recipients per second, 0.000001 to 1000000, got 0",
            ),
            (json!({"rate": "fast"}), r#"got "fast""#),
            (
                json!({"model": "leaky"}),
                r#"model: expected "bucket" or "window", got "leaky""#,
            ),
            (json!({"daily": 1.5}), "daily: expected"),
            (json!({"daily": -2}), "daily: expected"),
            (json!({"sent_elsewhere": -1}), "sent_elsewhere: expected"),
            (
                json!({"sent_elsewhere": 1_000_000_000_001_u64}),
                "sent_elsewhere: expected",
            ),
            (json!({"control_rate": 0}), "control_rate: expected calls"),
            (json!({"control_rate": -2}), "control_rate: expected"),
            (json!({"control_rate": null}), "control_rate: expected"),
            (
                json!({"daily_error": "MessageRejected"}),
                "daily_error: expected",
            ),
            (
                json!({"sending_enabled": "no"}),
                "sending_enabled: expected true or false",
            ),
            (
                json!({"production_access": null}),
                "production_access: expected true or false",
            ),
            (json!({"enforcement": "healthy"}), "enforcement: expected"),
            (
                json!({"latency_median_ms": -1}),
                "latency_median_ms: expected",
            ),
            (json!({"latency_p99_ms": 4e6}), "latency_p99_ms: expected"),
            (json!({"seed": -1}), "seed: expected"),
            (
                json!({"events_endpoint": "https://localhost"}),
                r#"events_endpoint: expected an http:// URL, or "" for no events, got "https"#,
            ),
            (
                json!({"events_endpoint": "localhost:4566"}),
                "events_endpoint: expected",
            ),
            (
                json!({"events_endpoint": null}),
                "events_endpoint: expected",
            ),
            (json!({"event_delay_ms": -1}), "event_delay_ms: expected"),
            (json!({"event_spread_ms": -1}), "event_spread_ms: expected"),
            (
                json!({"events_twice": 2}),
                "events_twice: expected true or false",
            ),
            (
                json!({"latency_median_ms": 300}),
                "latency_p99_ms (250) must not be below latency_median_ms (300)",
            ),
        ];
        for (changes, expected) in cases {
            let message = changed(&changes).unwrap_err().to_string();
            assert!(message.contains(expected), "{changes}: {message}");
        }
        assert!(changed(&json!({"latency_median_ms": 300, "latency_p99_ms": 300})).is_ok());
    }
}
