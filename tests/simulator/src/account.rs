//! The simulated account: its settings, limits, configuration sets and record.
//!
//! [`Account::send`] decides all that will happen to a request, at the moment it arrived; the
//! HTTP layer carries the [`Plan`] out. Whatever is to go wrong on purpose belongs in the plan.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value};

use crate::calls::{self, Call, CallOutcome, ControlLimit, Operation};
use crate::clock::Micros;
use crate::errors::{ApiError, ErrorKind};
use crate::events::{self, Event, Fate};
use crate::faults::{Fault, Faults, Hit, Kind};
use crate::latency::Latency;
use crate::limits::{Limits, Verdict};
use crate::record::{Arrival, Outcome, Record};
use crate::request::{Addresses, Received, Summary, is_word, mailbox};
use crate::settings::{Enforcement, Settings, SettingsError};
use crate::suppression::Suppressions;

const MAX_SET_NAME: usize = 64;

/// What will happen to one request.
#[derive(Debug)]
pub struct Plan {
    /// How long its answer, or its end without one, takes.
    pub latency: Duration,
    /// The answer: the message id, or the error.
    pub answer: Result<String, ApiError>,
    /// How the connection ends instead of the answer.
    pub cut: Option<Cut>,
    /// What SES publishes of it.
    pub events: Vec<Event>,
}

/// What will happen to one call other than `SendEmail`.
#[derive(Debug)]
pub struct CallPlan {
    /// How long its answer, or its end without one, takes.
    pub latency: Duration,
    /// The answer.
    pub answer: Result<Value, ApiError>,
    /// How the connection ends instead of the answer.
    pub cut: Option<Cut>,
}

/// How a connection ends without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// In order: the client reads its end.
    Close,
    /// By a reset: the client reads an error.
    Reset,
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
    control: ControlLimit,
    latency: Latency,
    faults: Faults,
    sets: BTreeMap<String, ConfigurationSet>,
    record: Record,
    calls: Record,
    arrivals: u64,
    suppressions: Suppressions,
    /// How late each event is.
    spread: StdRng,
}

impl Account {
    /// An account that has not sent yet.
    #[must_use]
    pub fn new(settings: Settings, record: Record, now: Micros) -> Self {
        Self {
            limits: Limits::new(settings.quota(), now),
            control: ControlLimit::new(settings.control_limit(), now),
            latency: Latency::new(settings.latency(), settings.seed),
            faults: Faults::new(Vec::new(), settings.seed),
            spread: StdRng::seed_from_u64(settings.seed),
            settings,
            sets: BTreeMap::new(),
            record,
            calls: Record::default(),
            arrivals: 0,
            suppressions: Suppressions::default(),
        }
    }

    /// Decides on a request that arrived now, and records it.
    pub fn send(&mut self, now: Micros, received: Received) -> Plan {
        // Every arrival draws, so that an outcome does not shift the latencies and faults after it.
        let latency = self.latency.draw();
        let drawn = self.faults.draw(Operation::SendEmail);
        self.arrivals += 1;
        let id = message_id(now, self.arrivals);

        let Received {
            summary,
            addresses,
            defect,
        } = received;
        let before = drawn.as_ref().filter(|hit| hit.fault.kind.is_before());
        let decision = match before {
            Some(hit) => Err(failure(&hit.fault)),
            None => self.decide(now, &summary, defect),
        };
        let fault = self.hit(drawn, decision.is_ok());
        let (outcome, answer) = match decision {
            Ok(()) => (Outcome::Accepted, Ok(id)),
            Err((outcome, error)) => (outcome, Err(error)),
        };

        let mut arrival = Arrival::new(now, &summary, outcome, answer.as_deref().ok());
        arrival.fault = fault.as_ref().map(|fault| fault.kind);
        if let Err(error) = self.record.push(&arrival) {
            return Plan {
                latency,
                answer: Err(unrecorded(&error)),
                cut: None,
                events: Vec::new(),
            };
        }
        let events = match &answer {
            Ok(id) => self.publish(now, &summary, &addresses, id),
            Err(_) => Vec::new(),
        };
        Plan {
            latency: fault.as_ref().and_then(Fault::lasts).unwrap_or(latency),
            answer: match fault.as_ref().map(|fault| fault.kind) {
                Some(Kind::ErrorAfter) => Err(failed()),
                _ => answer,
            },
            cut: fault.and_then(|fault| cut(fault.kind)),
            events,
        }
    }

    /// What becomes of an accepted mail: who gets on the suppression list, and the events, if any are published.
    fn publish(
        &mut self,
        now: Micros,
        summary: &Summary,
        addresses: &Addresses,
        id: &str,
    ) -> Vec<Event> {
        let then = now + self.settings.event_delay();
        let mut fates = Vec::with_capacity(addresses.to.len());
        for address in &addresses.to {
            // The mailbox simulator's never are on the list.
            if mailbox(address).is_some() {
                fates.push(Fate::of(address));
                continue;
            }
            let listed = self.suppressions.reason(address, now);
            fates.push(listed.map_or_else(|| Fate::of(address), Fate::Suppressed));
        }
        let whole = |fate: &Fate| matches!(fate, Fate::Rejected | Fate::NotRendered);
        if !fates.iter().any(whole) {
            for (address, fate) in addresses.to.iter().zip(&fates) {
                if let Some(reason) = fate.suppresses().filter(|_| mailbox(address).is_none()) {
                    self.suppressions.add(address, reason, then);
                }
            }
        }
        if self.settings.events_endpoint.is_empty() {
            return Vec::new();
        }
        let events = events::of(summary, addresses, &fates, id, now, then);
        let (spread, times) = (
            self.settings.event_spread(),
            1 + usize::from(self.settings.events_twice),
        );
        let copies = events.into_iter().flat_map(|event| vec![event; times]);
        let late = copies.map(|event| Event {
            at: event.at
                + if spread == 0 {
                    0
                } else {
                    self.spread.random_range(0..=spread)
                },
            ..event
        });
        late.collect()
    }

    /// Decides on a call other than `SendEmail` that arrived now, about this configuration set if
    /// any, and records it. `act` does it, unless a fault or the control plane's limit is before.
    pub fn call(
        &mut self,
        now: Micros,
        operation: Operation,
        set: Option<&str>,
        act: impl FnOnce(&mut Self) -> Result<Value, ApiError>,
    ) -> CallPlan {
        let drawn = self.faults.draw(operation);
        let before = drawn.as_ref().filter(|hit| hit.fault.kind.is_before());
        let decision = match before {
            Some(hit) => Err(call_failure(&hit.fault)),
            None => match self.control.take(now) {
                Ok(()) => act(self).map_err(|error| (CallOutcome::Refused, error)),
                Err(error) => Err((CallOutcome::Throttled, error)),
            },
        };
        let fault = self.hit(drawn, decision.is_ok());
        let mut line = Call::new(now, operation, set);
        let mut answer = decision.map_err(|(outcome, error)| {
            line.outcome = outcome;
            error
        });
        match (&mut answer, &fault) {
            (Ok(answer), Some(fault)) if fault.kind == Kind::Patch => {
                calls::merge(answer, fault.patch.as_ref().unwrap_or(&Value::Null));
            }
            (Ok(_), Some(fault)) if fault.kind == Kind::ErrorAfter => answer = Err(failed()),
            _ => {}
        }
        line.error = answer.as_ref().err().map(|error| error.kind.name());
        line.fault = fault.as_ref().map(|fault| fault.kind);
        if let Err(error) = self.calls.push(&line) {
            answer = Err(unrecorded(&error));
        }
        CallPlan {
            latency: fault.as_ref().and_then(Fault::lasts).unwrap_or_default(),
            answer,
            cut: fault.and_then(|fault| cut(fault.kind)),
        }
    }

    /// Counts what was drawn if it hits, and tells it: kinds that do not come before only hit what
    /// was accepted.
    fn hit(&mut self, drawn: Option<Hit>, accepted: bool) -> Option<Fault> {
        let hit = drawn.filter(|hit| accepted || hit.fault.kind.is_before())?;
        self.faults.count(&hit);
        Some(hit.fault)
    }

    fn decide(
        &mut self,
        now: Micros,
        summary: &Summary,
        defect: Option<ApiError>,
    ) -> Result<(), (Outcome, ApiError)> {
        if let Some(defect) = defect {
            return Err((Outcome::Invalid, defect));
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
            Verdict::Throttled => Err((Outcome::Throttled, throttled())),
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
        self.control.set(self.settings.control_limit(), now);
        self.latency.set_shape(self.settings.latency());
        if changes.contains_key("seed") {
            self.latency = Latency::new(self.settings.latency(), self.settings.seed);
            self.faults.reseed(self.settings.seed);
            self.spread = StdRng::seed_from_u64(self.settings.seed);
        }
        Ok(())
    }

    /// The faults on purpose.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        self.faults.rules()
    }

    /// Replaces all faults. Their counts and their sequence start anew.
    pub fn set_faults(&mut self, rules: Vec<Fault>) {
        self.faults = Faults::new(rules, self.settings.seed);
    }

    /// Whom SES lets nobody send to.
    #[must_use]
    pub fn suppressions(&self) -> &Suppressions {
        &self.suppressions
    }

    /// The same, to be changed.
    pub fn suppressions_mut(&mut self) -> &mut Suppressions {
        &mut self.suppressions
    }

    /// Sets the account's sending switch.
    pub fn set_sending(&mut self, enabled: bool) {
        self.settings.sending_enabled = enabled;
    }

    /// Recipients that count against the daily quota and were sent in the last 24 hours, here and
    /// elsewhere.
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

    /// The calls other than `SendEmail`.
    #[must_use]
    pub fn calls(&self) -> &Record {
        &self.calls
    }

    /// Forgets the calls. Their limit keeps what was taken.
    ///
    /// # Errors
    /// As [`Record::clear`].
    pub fn clear_calls(&mut self) -> io::Result<()> {
        self.calls.clear()
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

fn throttled() -> ApiError {
    ApiError::new(ErrorKind::TooManyRequests, "Maximum sending rate exceeded.")
}

fn failed() -> ApiError {
    ApiError::new(ErrorKind::InternalFailure, "simulator: failed on purpose")
}

/// What a fault before acceptance makes of a request.
fn failure(fault: &Fault) -> (Outcome, ApiError) {
    match fault.kind {
        Kind::Throttle => (Outcome::Throttled, retry_after(throttled(), fault)),
        Kind::Denied => (Outcome::Failed, denied()),
        _ => (Outcome::Failed, failed()),
    }
}

/// The same for a call other than `SendEmail`.
fn call_failure(fault: &Fault) -> (CallOutcome, ApiError) {
    match fault.kind {
        Kind::Throttle => (
            CallOutcome::Throttled,
            retry_after(calls::too_many(), fault),
        ),
        Kind::Denied => (CallOutcome::Failed, denied()),
        _ => (CallOutcome::Failed, failed()),
    }
}

fn retry_after(mut error: ApiError, fault: &Fault) -> ApiError {
    error.retry_after_s = fault.retry_after_s;
    error
}

fn denied() -> ApiError {
    ApiError::new(
        ErrorKind::AccessDenied,
        "simulator: not authorized, on purpose",
    )
}

fn cut(kind: Kind) -> Option<Cut> {
    match kind {
        Kind::HangBefore | Kind::HangAfter => Some(Cut::Close),
        Kind::ResetBefore | Kind::ResetAfter => Some(Cut::Reset),
        Kind::Throttle
        | Kind::Denied
        | Kind::ErrorBefore
        | Kind::ErrorAfter
        | Kind::Slow
        | Kind::Patch => None,
    }
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
    use crate::faults;

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
            addresses: Addresses {
                from: Some("shop@example.com".to_owned()),
                to: vec!["a@example.com".to_owned()],
            },
            defect: None,
        }
    }

    fn last(account: &Account) -> Value {
        let lines: Value = serde_json::from_slice(&account.record().to_json_array()).unwrap();
        lines.as_array().unwrap().last().unwrap().clone()
    }

    fn refusal(account: &mut Account, received: Received) -> (&'static str, Value) {
        let error = account.send(NOW, received).answer.unwrap_err();
        (error.kind.name(), last(account)["outcome"].clone())
    }

    fn set_faults(account: &mut Account, rules: &Value) {
        let body = json!({ "faults": rules });
        account.set_faults(faults::parse(body.as_object().unwrap()).unwrap());
    }

    #[test]
    fn each_refusal_has_its_exception_and_outcome() {
        let mut account = account(&json!({"rate": 2, "daily": 3}));
        account.create_set("paused", SENDING).unwrap();
        account.set_set_sending("paused", false).unwrap();

        let defect = ApiError::new(ErrorKind::BadRequest, "x");
        let cases = [
            (
                Received::unreadable(defect),
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
    fn each_fault_has_its_plan_and_line() {
        const INTERNAL: Result<(), &str> = Err("InternalFailure");
        const THROTTLED: Result<(), &str> = Err("TooManyRequestsException");
        let ms = |ms| Duration::from_millis(ms);
        let cases = [
            ("throttle", 0, THROTTLED, None, "throttled"),
            ("denied", 0, Err("AccessDeniedException"), None, "failed"),
            ("error_before", 0, INTERNAL, None, "failed"),
            ("error_after", 0, INTERNAL, None, "accepted"),
            ("hang_before", 700, INTERNAL, Some(Cut::Close), "failed"),
            ("hang_after", 700, Ok(()), Some(Cut::Close), "accepted"),
            ("reset_before", 0, INTERNAL, Some(Cut::Reset), "failed"),
            ("reset_after", 0, Ok(()), Some(Cut::Reset), "accepted"),
            ("slow", 700, Ok(()), None, "accepted"),
        ];
        for (kind, latency, answer, cut, outcome) in cases {
            let mut account =
                account(&json!({"rate": 1, "latency_median_ms": 0, "latency_p99_ms": 0}));
            set_faults(
                &mut account,
                &json!([{"kind": kind, "ms": 700, "count": 1}]),
            );
            let plan = account.send(NOW, mail(1, None));
            assert_eq!(plan.latency, ms(latency), "{kind}");
            let answered = plan.answer.map(|_| ()).map_err(|error| error.kind.name());
            assert_eq!(answered, answer, "{kind}");
            assert_eq!(plan.cut, cut, "{kind}");
            let line = last(&account);
            assert_eq!(line["outcome"], outcome, "{kind}");
            assert_eq!(line["fault"], kind);
            assert_eq!(line["message_id"].is_string(), outcome == "accepted");

            let next = account.send(NOW, mail(1, None)).answer;
            let free = outcome != "accepted";
            assert_eq!(
                next.is_ok(),
                free,
                "{kind}: only what is accepted takes allowance"
            );
            assert_eq!(last(&account).get("fault"), None);
        }
    }

    #[test]
    fn a_fault_after_acceptance_spares_what_is_refused() {
        let mut account = account(&json!({"daily": 1}));
        set_faults(&mut account, &json!([{"kind": "error_after", "count": 1}]));
        let refused = refusal(&mut account, mail(2, None));
        assert_eq!(refused, ("TooManyRequestsException", json!("over_quota")));
        assert_eq!(last(&account).get("fault"), None);
        let hit = refusal(&mut account, mail(1, None));
        assert_eq!(
            hit,
            ("InternalFailure", json!("accepted")),
            "the count was left"
        );
    }

    #[test]
    fn only_a_throttle_tells_when_to_retry() {
        let mut account = account(&json!({}));
        for (kind, expected) in [("throttle", Some(3)), ("error_before", None)] {
            set_faults(&mut account, &json!([{"kind": kind, "retry_after_s": 3}]));
            let error = account.send(NOW, mail(1, None)).answer.unwrap_err();
            assert_eq!(error.retry_after_s, expected);
        }
    }

    #[test]
    fn setting_faults_or_the_seed_starts_the_faults_anew() {
        let rules = json!([{"kind": "throttle", "share": 0.5}]);
        let mut account = account(&json!({"rate": 1_000_000, "daily": -1}));
        let mut hits = |prepare: &dyn Fn(&mut Account)| -> Vec<bool> {
            prepare(&mut account);
            let mut send = || account.send(NOW, mail(1, None)).answer.is_err();
            (0..50).map(|_| send()).collect()
        };
        let seed = json!({"seed": 1});
        let first = hits(&|account| set_faults(account, &rules));
        assert_ne!(hits(&|_| {}), first);
        assert_eq!(hits(&|account| set_faults(account, &rules)), first);
        let reseed =
            |account: &mut Account| account.change(NOW, seed.as_object().unwrap()).unwrap();
        assert_eq!(hits(&reseed), first);
    }

    #[test]
    fn what_is_accepted_has_events_also_when_its_answer_fails() {
        let on = json!({"events_endpoint": "http://localhost", "event_delay_ms": 20});
        for (rules, settings, set, expected) in [
            (json!([]), &on, Some("s"), 2),
            (json!([{"kind": "error_after"}]), &on, Some("s"), 2),
            (json!([{"kind": "reset_after"}]), &on, Some("s"), 2),
            (json!([{"kind": "error_before"}]), &on, Some("s"), 0),
            (json!([]), &on, None, 0),
            (json!([]), &json!({}), Some("s"), 0),
        ] {
            let mut account = account(settings);
            account.create_set("s", SENDING).unwrap();
            set_faults(&mut account, &rules);
            let events = account.send(NOW, mail(1, set)).events;
            assert_eq!(events.len(), expected, "{rules} {settings} {set:?}");
            let id = last(&account)["message_id"].clone();
            for event in events {
                assert_eq!(event.at, NOW + 20_000);
                assert_eq!(event.detail["mail"]["messageId"], id);
            }
        }
    }

    fn types_to(account: &mut Account, at: Micros, to: &str) -> Vec<String> {
        let mut received = mail(1, Some("s"));
        received.addresses.to = vec![to.to_owned()];
        let events = account.send(at, received).events;
        let shown = |event: Event| {
            let detail = event.detail;
            let subtype = detail["bounce"]["bounceSubType"].as_str();
            let subtype = subtype.or(detail["complaint"]["complaintSubType"].as_str());
            let kind = detail["eventType"].as_str().unwrap().to_owned();
            subtype.map_or(kind.clone(), |subtype| format!("{kind} {subtype}"))
        };
        events.into_iter().map(shown).collect()
    }

    #[test]
    fn who_bounced_or_complained_is_not_sent_to_again() {
        let on = json!({"events_endpoint": "http://localhost", "event_delay_ms": 20});
        let mut account = account(&on);
        account.create_set("s", SENDING).unwrap();
        let (bounce, later) = ("Bounce1@bounces.example", NOW + 20_000);
        assert_eq!(
            types_to(&mut account, NOW, bounce),
            ["Send", "Bounce General"]
        );
        // The event, and so the list, takes its time.
        assert_eq!(
            types_to(&mut account, NOW + 1, bounce),
            ["Send", "Bounce General"]
        );
        let listed = ["Send", "Bounce OnAccountSuppressionList"];
        assert_eq!(
            types_to(&mut account, later, &bounce.to_lowercase()),
            listed
        );
        let complaint = "complaint@bounces.example";
        let first = types_to(&mut account, NOW, complaint);
        assert_eq!(first, ["Send", "Delivery", "Complaint"]);
        let second = types_to(&mut account, later, complaint);
        assert_eq!(second, ["Send", "Complaint OnAccountSuppressionList"]);
        account.suppressions_mut().delete(bounce, later).unwrap();
        assert_eq!(
            types_to(&mut account, later, bounce),
            ["Send", "Bounce General"]
        );

        for never in [
            "bounce@simulator.amazonses.com",
            "complaint@simulator.amazonses.com",
            "suppressionlist@simulator.amazonses.com",
            "softbounce@bounces.example",
            "delay@bounces.example",
            "renderfail@bounces.example",
        ] {
            let first = types_to(&mut account, NOW, never);
            assert_eq!(types_to(&mut account, later, never), first, "{never}");
            assert_eq!(account.suppressions().reason(never, later), None, "{never}");
        }
        // Whether or not anybody is told.
        let off = json!({"events_endpoint": ""});
        account.change(NOW, off.as_object().unwrap()).unwrap();
        assert_eq!(
            types_to(&mut account, NOW, "bounce2@bounces.example"),
            [""; 0]
        );
        assert!(
            account
                .suppressions()
                .reason("bounce2@bounces.example", later)
                .is_some()
        );
    }

    #[test]
    fn a_mail_that_is_refused_puts_nobody_on_the_list() {
        let mut account = account(&json!({"daily": 0}));
        let mut received = mail(1, None);
        received.addresses.to = vec!["bounce@bounces.example".to_owned()];
        assert!(account.send(NOW, received).answer.is_err());
        let later = NOW + 1_000_000;
        assert_eq!(
            account
                .suppressions()
                .reason("bounce@bounces.example", later),
            None
        );
    }

    #[test]
    fn events_come_twice_and_out_of_order_if_asked() {
        let on = json!({
            "events_endpoint": "http://localhost", "events_twice": true, "event_spread_ms": 1000,
            "rate": 1000, "daily": -1,
        });
        let run = || {
            let mut account = account(&on);
            account.create_set("s", SENDING).unwrap();
            let sent = (0..50).flat_map(|_| account.send(NOW, mail(1, Some("s"))).events);
            sent.collect::<Vec<_>>()
        };
        let events = run();
        assert_eq!(events.len(), 200);
        for pair in events.chunks(2) {
            assert_eq!(pair[0].detail, pair[1].detail);
        }
        let due = NOW + 50_000;
        assert!(
            events
                .iter()
                .all(|event| (due..=due + 1_000_000).contains(&event.at))
        );
        assert!(!events.is_sorted_by_key(|event| event.at));
        assert_eq!(run(), events, "the seed determines it");
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
