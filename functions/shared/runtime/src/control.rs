//! What `control` is asked and what it answers, as JSON: the words it shares with `quota-refresh` and with operators.
//!
//! - **Old and new versions talk to each other** during a deployment or after it was taken back: unknown fields are
//!   ignored, and whatever may be missing has a default.
//! - **Bad input is answered, not failed**: `{"error": {"code": …, "message": …}}`. A function error is left for what
//!   nobody thought of.
//! - Times are milliseconds since the Unix epoch on the Redis clock (`…_ms`), rates are texts such as `11.2/s`, counts are
//!   recipients.

use std::collections::BTreeMap;

use sendslot_domain::account::{self, Enforcement};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

mod mail;

pub use mail::{
    Cancel, Cancelled, Find, Found, Happened, LeftMail, MOST_LISTED, Redrive, Redriven,
};

/// The most configuration sets that one answer names in [`Refreshed::verify`]: at one a second they are read within a minute.
pub const MOST_TO_VERIFY: usize = 50;

/// What is asked of `control`, by `action`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Request {
    /// Make the budget follow the account. Answered by [`Refreshed`].
    Refresh(Refresh),
    /// Let a tenant send nothing until it is resumed. Answered by [`Paused`].
    Pause(Pause),
    /// Let a tenant send again. Answered by [`Resumed`].
    Resume(Resume),
    /// Have parked mail go again. Answered by [`Replayed`].
    Replay(Replay),
    /// Release parked mail. Answered by [`Released`].
    Release(Release),
    /// Take in whom nobody may be sent to. Answered by [`Suppressed`].
    Suppress(Suppress),
    /// Say what there is. Answered by [`Status`].
    Status(Ask),
    /// Say where a mail is. Answered by [`Found`].
    Find(Find),
    /// Don't send a mail. Answered by [`Cancelled`].
    Cancel(Cancel),
    /// Have dead-lettered or parked mail go again at a rate. Answered by [`Redriven`].
    Redrive(Redrive),
}

/// A request that isn't one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No JSON, or something that isn't an object with an `action`.
    #[error(
        "not a request: {0}; give an object with \"action\": \"refresh\", \"pause\", \"resume\", \"replay\", \"release\", \"suppress\", \"status\", \"find\", \"cancel\" or \"redrive\""
    )]
    Shape(String),
    /// An action that isn't known.
    #[error(
        "unknown action {0:?}: give \"refresh\", \"pause\", \"resume\", \"replay\", \"release\", \"suppress\", \"status\", \"find\", \"cancel\" or \"redrive\""
    )]
    Action(String),
    /// A field that is missing or of another type.
    #[error("{action}: {problem}")]
    Field {
        /// The action.
        action: String,
        /// Which field, and what is wrong with it.
        problem: String,
    },
}

impl RequestError {
    /// For [`Failure::code`].
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Shape(_) => "bad_request",
            Self::Action(_) => "unknown_action",
            Self::Field { .. } => "bad_field",
        }
    }
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// When it isn't one: what is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let shape = |what: &str| RequestError::Shape(what.to_owned());
        let value: Value = serde_json::from_str(text).map_err(|error| {
            RequestError::Shape(format!(
                "no JSON (line {}, column {})",
                error.line(),
                error.column()
            ))
        })?;
        let action = match value.get("action") {
            Some(Value::String(action)) => action.clone(),
            Some(_) => return Err(shape("its action is no text")),
            None if value.is_object() => return Err(shape("it has no action")),
            None => return Err(shape("it is no object")),
        };
        match action.as_str() {
            "refresh" => read(&action, value).map(Self::Refresh),
            "pause" => read(&action, value).map(Self::Pause),
            "resume" => read(&action, value).map(Self::Resume),
            "replay" => read(&action, value).map(Self::Replay),
            "release" => read(&action, value).map(Self::Release),
            "suppress" => read(&action, value).map(Self::Suppress),
            "status" => read(&action, value).map(Self::Status),
            "find" => read(&action, value).map(Self::Find),
            "cancel" => read(&action, value).map(Self::Cancel),
            "redrive" => read(&action, value).map(Self::Redrive),
            _ => Err(RequestError::Action(action)),
        }
    }

    /// Its `action`.
    #[must_use]
    pub const fn action(&self) -> &'static str {
        match self {
            Self::Refresh(_) => "refresh",
            Self::Pause(_) => "pause",
            Self::Resume(_) => "resume",
            Self::Replay(_) => "replay",
            Self::Release(_) => "release",
            Self::Suppress(_) => "suppress",
            Self::Status(_) => "status",
            Self::Find(_) => "find",
            Self::Cancel(_) => "cancel",
            Self::Redrive(_) => "redrive",
        }
    }

    /// Who asks, as far as that was said.
    #[must_use]
    pub fn caller(&self) -> &str {
        let caller = match self {
            Self::Refresh(refresh) => &refresh.caller,
            Self::Pause(pause) => &pause.caller,
            Self::Resume(resume) => &resume.caller,
            Self::Replay(replay) => &replay.caller,
            Self::Release(release) => &release.caller,
            Self::Suppress(suppress) => &suppress.caller,
            Self::Status(status) => &status.caller,
            Self::Find(find) => &find.caller,
            Self::Cancel(cancel) => &cancel.caller,
            Self::Redrive(redrive) => &redrive.caller,
        };
        let caller = caller.as_deref().filter(|caller| !caller.is_empty());
        caller.unwrap_or("unknown")
    }
}

/// Reads the fields of an action; an error names the field.
fn read<T: DeserializeOwned>(action: &str, value: Value) -> Result<T, RequestError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner();
        RequestError::Field {
            action: action.to_owned(),
            problem: if path == "." {
                problem.to_string()
            } else {
                format!("{path}: {problem}")
            },
        }
    })
}

/// A refresh. What is `None` isn't known, and what is there of it stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refresh {
    /// Who asks.
    pub caller: Option<String>,
    /// What `GetAccount` answered; nothing if it failed (then with `error`), or wasn't asked.
    pub account: Option<Account>,
    /// Why `GetAccount` didn't answer: a code, such as `ThrottlingException` or `timeout`. Nothing with no `account` either
    /// means that it wasn't asked: nothing is judged.
    pub error: Option<String>,
    /// All tenants with a parameter of their own; an empty list is that there are none.
    pub tenants: Option<Vec<TenantParameter>>,
    /// Whether configuration sets may send: those of [`Refreshed::verify`] that could be read.
    pub sets: Option<Vec<SetSwitch>>,
    /// Nothing more is read of what `verify` named: the budget is written now, whatever is missing.
    #[serde(rename = "final")]
    pub is_final: bool,
}

/// What `GetAccount` answered; whatever it left out is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// Recipients per second.
    pub max_send_rate: Option<f64>,
    /// Recipients in any 24 hours; −1 is without limit.
    pub max_24_hour_send: Option<f64>,
    /// Recipients in the last 24 hours.
    pub sent_last_24_hours: Option<f64>,
    /// Whether sending is switched on for the account in this Region.
    pub sending_enabled: Option<bool>,
    /// SES's word for it: `HEALTHY`, `PROBATION`, `SHUTDOWN`.
    pub enforcement: Option<String>,
    /// Whether it is out of the sandbox.
    pub production: Option<bool>,
}

impl From<&Account> for account::Account {
    fn from(told: &Account) -> Self {
        Self {
            max_send_rate: told.max_send_rate,
            max_24_hour_send: told.max_24_hour_send,
            sent_last_24_hours: told.sent_last_24_hours,
            sending_enabled: told.sending_enabled,
            enforcement: told.enforcement.as_deref().map(Enforcement::named),
            production: told.production,
        }
    }
}

/// One tenant's parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantParameter {
    /// The tenant: the parameter's name without its path.
    pub name: String,
    /// The parameter's JSON. A parameter that holds none is handed over as a text, and is refused by `control` with the
    /// tenant's name.
    #[serde(default)]
    pub settings: Value,
}

/// Whether a configuration set may send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetSwitch {
    /// The configuration set.
    pub set: String,
    /// Its `SendingOptions.SendingEnabled`.
    pub sending: bool,
}

/// A request to pause tenants: exactly one of `tenant`, `configuration_set` and `account` says whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The tenant; empty if another field says whom.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// All tenants whose mail goes through this configuration set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration_set: Option<String>,
    /// Everyone, since the account's sending was switched off: for two minutes, and for as long as refreshes find it off.
    #[serde(default)]
    pub account: bool,
    /// Why, for people: 1 to 200 characters.
    pub reason: String,
    /// Whether the caller has switched the configuration set off already.
    #[serde(default)]
    pub switched: bool,
    /// Who asks.
    #[serde(default)]
    pub caller: Option<String>,
}

/// A request to let a tenant send again, its parked mail first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The tenant.
    pub tenant: String,
    /// How fast its parked mail goes, such as `20/s`; nothing is a quarter of what may be sent.
    #[serde(default)]
    pub rate: Option<String>,
    /// Why, for people: up to 200 characters.
    #[serde(default)]
    pub reason: Option<String>,
    /// Who asks.
    #[serde(default)]
    pub caller: Option<String>,
}

/// A request to have parked mail go again of those tenants that may send: the oldest first, each tenant's at its rate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Replay {
    /// One tenant only.
    pub tenant: Option<String>,
    /// For how long to go on, at most 50 s; nothing is 50 s.
    pub seconds: Option<u64>,
    /// Who asks.
    pub caller: Option<String>,
}

/// A request to release a tenant's oldest parked mail as fast as there are slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// The tenant.
    pub tenant: String,
    /// `paused` or `uncertain`; nothing is `paused`.
    #[serde(default)]
    pub reason: Option<String>,
    /// How many mails, 1 to 1,000; nothing is 100.
    #[serde(default)]
    pub most: Option<usize>,
    /// What the last answer gave.
    #[serde(default)]
    pub after: Option<String>,
    /// Who asks.
    #[serde(default)]
    pub caller: Option<String>,
}

/// A page of SES's suppression list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Suppress {
    /// Whom nobody may be sent to.
    pub entries: Vec<SuppressedAddress>,
    /// What [`Walk`] this page is of.
    pub walk: Walk,
    /// What names the page after this one; nothing if it was the last.
    pub next: Option<String>,
    /// Who asks.
    pub caller: Option<String>,
}

/// Somebody whom nobody may be sent to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuppressedAddress {
    /// [`sendslot_domain::suppression::AddressDigest`], in hexadecimal digits.
    pub digest: String,
    /// `bounce` or `complaint`.
    pub cause: String,
}

/// One reading of SES's suppression list, page by page, over as many refreshes as it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Walk {
    /// When it began: this tells it from others.
    pub began_ms: u64,
    /// It is of those that were added since then; nothing is of all.
    pub since_ms: Option<u64>,
    /// What names its next page; nothing is its first.
    pub token: Option<String>,
}

/// A request with nothing to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ask {
    /// Who asks.
    pub caller: Option<String>,
}

/// What `control` answers: what was asked for, or why not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer<T> {
    /// It wasn't done.
    Failed {
        /// Why.
        error: Failure,
    },
    /// It was.
    Done(T),
}

impl<T: DeserializeOwned> Answer<T> {
    /// Reads an answer; one that can't be read is a failure with the code `bad_answer`.
    ///
    /// # Errors
    /// When `control` says that it failed, or nothing that this version understands.
    pub fn parse(text: &[u8]) -> Result<T, Failure> {
        match serde_json::from_slice(text) {
            Ok(Self::Done(answer)) => Ok(answer),
            Ok(Self::Failed { error }) => Err(error),
            Err(error) => Err(Failure {
                code: "bad_answer".to_owned(),
                message: format!("control's answer can't be read: {error}"),
            }),
        }
    }
}

/// Why something wasn't done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
#[serde(default)]
pub struct Failure {
    /// For programs: `bad_request`, `unknown_action`, `bad_field`, `unknown_tenant`, `unknown_set`, `tenant_paused`,
    /// `set_not_switched`, `too_late`, `redis_unavailable`, `redis_failed`, `bucket_failed`, `queue_failed`, `no_budget`, `bad_budget`, `timeout`.
    pub code: String,
    /// For people: what is wrong, and what to do.
    pub message: String,
}

/// What came of a [`Refresh`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refreshed {
    /// What holds now; nothing if no budget is known yet, or it is `pending`.
    pub budget: Option<Budget>,
    /// Redis was empty, and nothing is written until the sets in `verify` were read: ask again with `sets` and `final`.
    pub pending: bool,
    /// Why the account's numbers weren't taken: `failed`, `missing`, `zero`, `absurd`, `below_tenth` or `blocked`.
    pub kept: Option<String>,
    /// 1024ths of the rate that may be used.
    pub factor: u64,
    /// When Redis was last found empty.
    pub generation_ms: Option<u64>,
    /// Whether Redis held no budget, or one that was written after it was found empty since the last refresh.
    pub empty_found: bool,
    /// Configuration sets whose switch wants reading, at most [`MOST_TO_VERIFY`].
    pub verify: Vec<String>,
    /// At least so many recipients of the last 24 hours were sent past the schedule.
    pub unscheduled: u64,
    /// Recipients that went through the schedule in the last 24 hours.
    pub sent_24h: u64,
    /// Recipients booked ahead, in both lanes.
    pub booked_ahead: u64,
    /// Recipients refused as too many in the last 10 seconds.
    pub refused_10s: u64,
    /// For how long nobody may send yet.
    pub blocked_ms: u64,
    /// Why, if so.
    pub blocked: Option<String>,
    /// Tenants whose parameter wasn't taken.
    pub invalid_tenants: Vec<InvalidTenant>,
    /// Tenants that were paused because their configuration set may not send.
    pub paused: Vec<String>,
    /// Which reading of SES's suppression list is to go on; nothing if none is due.
    pub walk: Option<Walk>,
    /// What an operator should know: settings that were cut, for example, or fields of a tenant's parameter that nobody knows. At
    /// most 20; the log has all.
    pub warnings: Vec<String>,
}

/// The budget that Redis holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Recipients per second, such as `14/s`: read it as a [`sendslot_domain::Rate`].
    pub limit: String,
    /// Recipients in any 24 hours that go through the schedule: the account's quota less what others use of it; nothing is
    /// without limit.
    pub daily_quota: Option<u64>,
    /// `account`, or `settings` while the account was never known.
    pub source: String,
    /// Whether limit or quota changed by this.
    pub changed: bool,
    /// What they were; nothing if there was no budget.
    pub was: Option<Was>,
}

/// A budget that was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Was {
    /// As in [`Budget`].
    pub limit: String,
    /// As in [`Budget`].
    pub daily_quota: Option<u64>,
}

/// A tenant's parameter that wasn't taken: its last good settings hold, if it had any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InvalidTenant {
    /// The parameter's name.
    pub name: String,
    /// What is wrong with it.
    pub problem: String,
    /// Whether earlier settings of it hold on.
    pub kept: bool,
}

/// What came of a [`Pause`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Paused {
    /// Who is paused now; nobody where the account was.
    pub tenants: Vec<String>,
    /// Whether all of them were paused before, until resumed: then those pauses stand, with their reasons.
    pub already: bool,
    /// Since when: the first of those that stand.
    pub since_ms: u64,
    /// Why, and who said so: `<reason> (<caller>)`.
    pub reason: String,
    /// Configuration sets that are not switched off, since that failed or others send through them: SES lets mail through them that we
    /// didn't hold back.
    pub not_switched: Vec<String>,
}

/// What came of a [`Resume`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resumed {
    /// The tenant.
    pub tenant: String,
    /// Whether it was paused.
    pub was_paused: bool,
    /// How fast its parked mail goes, recipients per second.
    pub rate: f64,
}

/// What came of a [`Replay`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Replayed {
    /// Each tenant that has parked mail, paused or not.
    pub tenants: Vec<ReplayedTenant>,
    /// How old the oldest parked mail is, of whatever reason; 0 if there is none.
    pub oldest_seconds: u64,
}

/// What came of a [`Replay`] for one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplayedTenant {
    /// The tenant.
    pub tenant: String,
    /// Whether it may not send: nothing was released then.
    pub paused: bool,
    /// Mails that are on their send queue now.
    pub released: usize,
    /// Mails that had expired: they have ended.
    pub expired: usize,
    /// Mails that stay parked, since they can't be released as they are.
    pub refused: usize,
    /// Whether more is parked that a replay may release.
    pub left: bool,
}

/// What came of a [`Release`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Released {
    /// Mails that are on their send queue now.
    pub released: usize,
    /// Mails that had expired: they have ended.
    pub expired: usize,
    /// Mails that were looked at and stay parked, since they can't be released as they are.
    pub refused: usize,
    /// Why: how many, by code. The log names each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, usize>,
    /// Whether another call may release more of what is parked for this reason.
    pub left: bool,
    /// When to ask again, ms from now, if anything is left.
    pub retry_after_ms: u64,
    /// What to give as `after` then, so that what was refused isn't looked at again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// What came of a [`Suppress`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Suppressed {
    /// How many were not known before.
    pub new: u64,
    /// Where to go on; nothing if all was read for now.
    pub walk: Option<Walk>,
}

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Whether Redis answers. Nothing else is known if it doesn't.
    pub redis: RedisState,
    /// The moment that all this is of.
    pub now_ms: u64,
    /// The budget; nothing if Redis holds none.
    pub budget: Option<BudgetStatus>,
    /// Recipients booked ahead.
    pub booked: Booked,
    /// The same by minute, from this one on, as far as any are booked.
    pub minutes: Vec<BookedMinute>,
    /// Each lane.
    pub lanes: Vec<LaneStatus>,
    /// Seconds until the first with nothing booked in it or after.
    pub booked_ahead_seconds: u64,
    /// Recipients that went through the schedule in the last 24 hours.
    pub sent_24h: u64,
    /// At least so many recipients of the last 24 hours were sent past the schedule, by the last refresh.
    pub unscheduled: u64,
    /// Recipients refused as too many in the last 10 seconds.
    pub refused_10s: u64,
    /// That nobody may send.
    pub blocked: Option<Blocked>,
    /// Tenants that may not send.
    pub paused: Vec<PausedTenant>,
    /// What the provider told of each known tenant's mail: the first 1,000 by name.
    pub tenants: Vec<TenantStatus>,
    /// When Redis was last found empty.
    pub generation_ms: Option<u64>,
    /// The last refresh; nothing if there was none.
    pub last_refresh: Option<LastRefresh>,
}

/// Whether Redis answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RedisState {
    /// Whether it does.
    pub ok: bool,
    /// Why not.
    pub error: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// For how long it has been running, s.
    pub uptime_seconds: Option<u64>,
    /// Memory that it uses, bytes.
    pub used_memory: Option<u64>,
    /// Memory that it may use, bytes; nothing is without limit.
    pub max_memory: Option<u64>,
    /// What it does when that is used up: it must be `noeviction`.
    pub eviction: Option<String>,
}

/// Recipients booked in one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BookedMinute {
    /// When it begins.
    pub at_ms: u64,
    /// With priority.
    pub priority: u64,
    /// In bulk.
    pub bulk: u64,
}

/// What there is of one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LaneStatus {
    /// `priority` or `bulk`.
    pub lane: String,
    /// Recipients of all tenants, as in [`TenantLane`].
    #[serde(flatten)]
    pub all: TenantLane,
    /// What its queues hold, messages: `intake`, `send`, `intake_dead`, `send_dead`. Missing where SQS didn't say.
    pub queues: BTreeMap<String, QueueStatus>,
}

/// What a queue holds, as SQS estimates it: messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueStatus {
    /// They can be received.
    pub visible: u64,
    /// They can't yet: they wait for their slot, or for their turn.
    pub delayed: u64,
    /// A function has them.
    pub in_flight: u64,
}

/// What there is of a lane, in all or of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantLane {
    /// Recipients with a slot ahead.
    pub booked: u64,
    /// Recipients in line for one.
    pub waiting: u64,
    /// Recipients sent to in the last hour, to the quarter of an hour.
    pub sent_1h: u64,
    /// Recipients sent to in the last 24 hours, likewise.
    pub sent_24h: u64,
    /// Mails of which nobody knows yet whether they were sent, and that aren't parked.
    pub uncertain: u64,
    /// Mails that are parked, for whatever reason.
    pub parked: u64,
    /// Of these, as they may have been sent.
    pub parked_uncertain: u64,
}

/// The budget, for people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetStatus {
    /// As in [`Budget`].
    pub limit: String,
    /// As in [`Budget`].
    pub daily_quota: Option<u64>,
    /// `account`, `settings`, or `deploy`: what the functions brought along before the first refresh.
    pub source: String,
    /// 1024ths of the rate that may be used.
    pub factor: u64,
    /// What new bookings go by, recipients per second: limit × headroom × factor.
    pub effective_rate: f64,
}

/// Recipients booked ahead, by lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Booked {
    /// With priority.
    pub priority: u64,
    /// In bulk.
    pub bulk: u64,
}

/// That nobody may send.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Blocked {
    /// For how long yet, ms.
    pub left_ms: u64,
    /// Why: a word.
    pub reason: String,
}

/// A tenant that may not send.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PausedTenant {
    /// The tenant.
    pub tenant: String,
    /// Since when.
    pub since_ms: u64,
    /// Until when; nothing: until it is resumed.
    pub until_ms: Option<u64>,
    /// Why.
    pub reason: String,
}

/// What the provider told of a tenant's mail of the last hour and the last 24, by when it was sent, recipients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantStatus {
    /// The tenant.
    pub tenant: String,
    /// Sent to in the last hour.
    pub sent_1h: u64,
    /// Of these, bounced.
    pub bounced_1h: u64,
    /// Of these, complained.
    pub complained_1h: u64,
    /// Sent to in the last 24 hours.
    pub sent_24h: u64,
    /// Of these, bounced.
    pub bounced_24h: u64,
    /// Of these, complained.
    pub complained_24h: u64,
    /// By lane: `priority` and `bulk`.
    pub lanes: BTreeMap<String, TenantLane>,
    /// Its configuration set, if it has one.
    pub configuration_set: Option<String>,
    /// Its weight among those that wait.
    pub weight: u32,
    /// Whether there was more parked mail than was counted.
    pub more_parked: bool,
}

/// The last refresh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastRefresh {
    /// When.
    pub at_ms: u64,
    /// Who asked for it.
    pub caller: String,
    /// When the account's numbers were last taken.
    pub taken_ms: Option<u64>,
    /// Why they weren't at the last refresh that had asked for them, as in [`Refreshed::kept`].
    pub kept: Option<String>,
    /// What `GetAccount` failed with then.
    pub error: Option<String>,
}
