//! The simulated account: its settings, limits, configuration sets and record.
//!
//! [`Account::send`] decides all that will happen to a request, at the moment it arrived; the
//! HTTP layer carries the [`Plan`] out. Whatever is to go wrong on purpose belongs in the plan.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::clock::Micros;
use crate::errors::{ApiError, ErrorKind};
use crate::latency::Latency;
use crate::limits::{Limits, Verdict};
use crate::record::{Arrival, Outcome, Record};
use crate::request::{Received, Summary, is_word};
use crate::settings::{Enforcement, Settings, SettingsError};

const MAX_SET_NAME: usize = 64;

/// What will happen to one request.
#[derive(Debug)]
pub struct Plan {
    /// How long its answer takes.
    pub latency: Duration,
    /// The answer: the message id, or the error.
    pub answer: Result<String, ApiError>,
}

/// A configuration set: of all its options, the sending switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigurationSet {
    /// Whether messages that name it may be sent.
    pub sending_enabled: bool,
}

/// The state of the account.
#[derive(Debug)]
pub struct Account {
    settings: Settings,
    limits: Limits,
    latency: Latency,
    sets: BTreeMap<String, ConfigurationSet>,
    record: Record,
    arrivals: u64,
}

impl Account {
    /// An account that has not sent yet.
    #[must_use]
    pub fn new(settings: Settings, record: Record, now: Micros) -> Self {
        Self {
            limits: Limits::new(settings.quota(), now),
            latency: Latency::new(settings.latency(), settings.seed),
            settings,
            sets: BTreeMap::new(),
            record,
            arrivals: 0,
        }
    }

    /// Decides on a request that arrived now, and records it.
    pub fn send(&mut self, now: Micros, received: Received) -> Plan {
        // Every arrival draws, so that an outcome does not shift the latencies after it.
        let latency = self.latency.draw();
        self.arrivals += 1;
        let id = message_id(now, self.arrivals);

        let Received { summary, fault } = received;
        let refusal = self.decide(now, &summary, fault).err();
        let (outcome, answer) = match refusal {
            None => (Outcome::Accepted, Ok(id)),
            Some((outcome, error)) => (outcome, Err(error)),
        };
        let message_id = answer.as_deref().ok();
        let arrival = Arrival::new(now, &summary, outcome, message_id);
        let answer = match self.record.push(&arrival) {
            Ok(()) => answer,
            Err(error) => Err(unrecorded(&error)),
        };
        Plan { latency, answer }
    }

    fn decide(
        &mut self,
        now: Micros,
        summary: &Summary,
        fault: Option<ApiError>,
    ) -> Result<(), (Outcome, ApiError)> {
        if let Some(fault) = fault {
            return Err((Outcome::Invalid, fault));
        }
        if self.settings.enforcement == Enforcement::Shutdown {
            return Err((
                Outcome::AccountSuspended,
                ApiError::new(
                    ErrorKind::AccountSuspended,
                    "The account's ability to send email has been permanently restricted.",
                ),
            ));
        }
        if !self.settings.sending_enabled {
            return Err((
                Outcome::AccountPaused,
                ApiError::new(ErrorKind::SendingPaused, "Sending paused for this account."),
            ));
        }
        if let Some(name) = &summary.configuration_set {
            let set = self.set(name).map_err(|e| (Outcome::UnknownSet, e))?;
            if !set.sending_enabled {
                return Err((
                    Outcome::SetPaused,
                    ApiError::new(
                        ErrorKind::SendingPaused,
                        format!("Sending is paused for configuration set <{name}>."),
                    ),
                ));
            }
        }
        match self.limits.offer(now, summary.recipients, summary.counted) {
            Verdict::Accepted => Ok(()),
            Verdict::Throttled => Err((
                Outcome::Throttled,
                ApiError::new(ErrorKind::TooManyRequests, "Maximum sending rate exceeded."),
            )),
            Verdict::OverQuota => Err((
                Outcome::OverQuota,
                ApiError::new(
                    self.settings.daily_error.into(),
                    "Daily message quota exceeded",
                ),
            )),
        }
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes some settings, all or none.
    ///
    /// # Errors
    /// As [`Settings::with`].
    pub fn change(
        &mut self,
        now: Micros,
        changes: &Map<String, Value>,
    ) -> Result<(), SettingsError> {
        self.settings = self.settings.with(changes)?;
        self.limits.set_quota(now, self.settings.quota());
        self.latency.set_shape(self.settings.latency());
        if changes.contains_key("seed") {
            self.latency = Latency::new(self.settings.latency(), self.settings.seed);
        }
        Ok(())
    }

    /// Sets the account's sending switch.
    pub fn set_sending(&mut self, enabled: bool) {
        self.settings.sending_enabled = enabled;
    }

    /// Recipients that count against the daily quota and were accepted in the last 24 hours.
    pub fn sent_last_24_hours(&mut self, now: Micros) -> u64 {
        self.limits.sent_last_24_hours(now)
    }

    /// Makes a configuration set.
    ///
    /// # Errors
    /// Its name is not 1 to 64 of `A-Za-z0-9_-`, or taken.
    pub fn create_set(&mut self, name: &str, set: ConfigurationSet) -> Result<(), ApiError> {
        if !is_word(name) || name.len() > MAX_SET_NAME {
            return Err(ApiError::new(
                ErrorKind::BadRequest,
                "ConfigurationSetName must be 1 to 64 alphanumeric ASCII characters, '_' and '-'",
            ));
        }
        if self.sets.contains_key(name) {
            return Err(ApiError::new(
                ErrorKind::AlreadyExists,
                format!("Configuration set <{name}> already exists."),
            ));
        }
        self.sets.insert(name.to_owned(), set);
        Ok(())
    }

    /// The configuration set of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn set(&self, name: &str) -> Result<ConfigurationSet, ApiError> {
        self.sets.get(name).copied().ok_or_else(|| no_set(name))
    }

    /// Sets a configuration set's sending switch.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn set_set_sending(&mut self, name: &str, enabled: bool) -> Result<(), ApiError> {
        let set = self.sets.get_mut(name).ok_or_else(|| no_set(name))?;
        set.sending_enabled = enabled;
        Ok(())
    }

    /// Removes a configuration set.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn delete_set(&mut self, name: &str) -> Result<(), ApiError> {
        let removed = self.sets.remove(name);
        removed.map(|_| ()).ok_or_else(|| no_set(name))
    }

    /// The names of all configuration sets, in order.
    pub fn set_names(&self) -> impl Iterator<Item = &str> {
        self.sets.keys().map(String::as_str)
    }

    /// The record.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Forgets the record. The limits keep what was sent.
    ///
    /// # Errors
    /// As [`Record::clear`].
    pub fn clear_record(&mut self) -> io::Result<()> {
        self.record.clear()
    }
}

/// An id of SES's form, unique by time and count.
fn message_id(now: Micros, count: u64) -> String {
    format!(
        "0100{:012x}-{:08x}-0000-4000-8000-{count:012x}-000000",
        now / 1000,
        now % 1_000_000
    )
}

fn no_set(name: &str) -> ApiError {
    ApiError::new(
        ErrorKind::NotFound,
        format!("Configuration set <{name}> does not exist."),
    )
}

fn unrecorded(error: &io::Error) -> ApiError {
    ApiError::new(
        ErrorKind::InternalFailure,
        format!("simulator: failed to write the record file: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Micros = 1_790_000_000_000_000;
    const SENDING: ConfigurationSet = ConfigurationSet {
        sending_enabled: true,
    };

    fn account(changes: &Value) -> Account {
        let settings = Settings::default()
            .with(changes.as_object().unwrap())
            .unwrap();
        Account::new(settings, Record::default(), NOW)
    }

    fn mail(recipients: u32, set: Option<&str>) -> Received {
        Received {
            summary: Summary {
                recipients,
                counted: recipients,
                configuration_set: set.map(str::to_owned),
                tags: Vec::new(),
            },
            fault: None,
        }
    }

    fn refusal(account: &mut Account, received: Received) -> (&'static str, Value) {
        let error = account.send(NOW, received).answer.unwrap_err();
        let lines: Value = serde_json::from_slice(&account.record().to_json_array()).unwrap();
        let last = lines.as_array().unwrap().last().unwrap().clone();
        (error.kind.name(), last["outcome"].clone())
    }

    #[test]
    fn each_refusal_has_its_exception_and_outcome() {
        let mut account = account(&json!({"rate": 2, "daily": 3}));
        account.create_set("paused", SENDING).unwrap();
        account.set_set_sending("paused", false).unwrap();

        let fault = ApiError::new(ErrorKind::BadRequest, "x");
        let cases = [
            (
                Received::unreadable(fault),
                "BadRequestException",
                "invalid",
            ),
            (mail(1, Some("nobody")), "NotFoundException", "unknown_set"),
            (
                mail(1, Some("paused")),
                "SendingPausedException",
                "set_paused",
            ),
            (mail(4, None), "TooManyRequestsException", "over_quota"),
        ];
        for (received, kind, outcome) in cases {
            assert_eq!(refusal(&mut account, received), (kind, json!(outcome)));
        }
        assert!(
            account.send(NOW, mail(2, None)).answer.is_ok(),
            "none took allowance"
        );
        assert_eq!(
            refusal(&mut account, mail(1, None)),
            ("TooManyRequestsException", json!("throttled"))
        );
        account.set_sending(false);
        assert_eq!(
            refusal(&mut account, mail(1, None)),
            ("SendingPausedException", json!("account_paused"))
        );
        let shutdown = json!({"enforcement": "SHUTDOWN"});
        account.change(NOW, shutdown.as_object().unwrap()).unwrap();
        assert_eq!(
            refusal(&mut account, mail(1, None)),
            ("AccountSuspendedException", json!("account_suspended"))
        );
    }

    #[test]
    fn the_daily_exception_can_be_chosen() {
        for name in [
            "TooManyRequestsException",
            "LimitExceededException",
            "ThrottlingException",
        ] {
            let mut account = account(&json!({"daily": 0, "daily_error": name}));
            assert_eq!(
                refusal(&mut account, mail(1, None)),
                (name, json!("over_quota"))
            );
        }
    }

    #[test]
    fn message_ids_are_unique_within_a_microsecond() {
        let mut account = account(&json!({}));
        let first = account.send(NOW, mail(1, None)).answer.unwrap();
        assert_ne!(account.send(NOW, mail(1, None)).answer.unwrap(), first);
    }

    #[test]
    fn latencies_follow_the_order_of_arrival_whatever_the_outcome() {
        let mut sending = account(&json!({}));
        let mut paused = account(&json!({"sending_enabled": false}));
        for _ in 0..10 {
            let expected = sending.send(NOW, mail(1, None)).latency;
            assert_eq!(paused.send(NOW, mail(1, None)).latency, expected);
        }
    }

    #[test]
    fn setting_the_seed_starts_the_latencies_anew() {
        let mut account = account(&json!({}));
        let first = account.send(NOW, mail(1, None)).latency;
        assert_ne!(account.send(NOW, mail(1, None)).latency, first);
        let seed = json!({"seed": 1});
        account.change(NOW, seed.as_object().unwrap()).unwrap();
        assert_eq!(account.send(NOW, mail(1, None)).latency, first);
    }

    #[test]
    fn a_refused_change_changes_nothing() {
        let mut account = account(&json!({}));
        let changes = json!({"rate": 5, "seed": "x"});
        assert!(account.change(NOW, changes.as_object().unwrap()).is_err());
        assert_eq!(account.settings(), &Settings::default());
    }

    #[test]
    fn configuration_sets_come_and_go() {
        let mut account = account(&json!({}));
        account.create_set("b", SENDING).unwrap();
        account.create_set("a", SENDING).unwrap();
        assert_eq!(account.set_names().collect::<Vec<_>>(), ["a", "b"]);
        let taken = account.create_set("a", SENDING).unwrap_err();
        assert_eq!(taken.kind, ErrorKind::AlreadyExists);
        for name in ["", "a b", &"a".repeat(65)] {
            let illegal = account.create_set(name, SENDING).unwrap_err();
            assert_eq!(illegal.kind, ErrorKind::BadRequest);
        }
        account.delete_set("a").unwrap();
        assert_eq!(
            account.delete_set("a").unwrap_err().kind,
            ErrorKind::NotFound
        );
        assert_eq!(account.set("a").unwrap_err().kind, ErrorKind::NotFound);
        assert_eq!(account.set("b"), Ok(SENDING));
    }
}
