//! Where single mails are: what is noted of them on their way, and taking them off it.

use redis::{FromRedisValue, Value};
use sendslot_domain::{Cell, Lane, Millis, Moment, SendId, TenantName};

use crate::{Schedule, ScheduleError, script::Named};

/// What can be said of one mail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The moment that this is of.
    pub now: Moment,
    /// What its claim says; nothing if there is none.
    pub claim: Option<Mark>,
    /// The lane it was last noted in.
    pub lane: Option<Lane>,
    /// Its recipients, when it was last noted.
    pub cost: Option<u32>,
    /// What was noted of it, oldest first; of a long way only the begin and the end.
    pub steps: Vec<Step>,
}

/// What a claim says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A worker is sending it, until then at most.
    Sending {
        /// When its lease ends.
        until: Moment,
    },
    /// Nobody knows whether it was sent.
    Uncertain {
        /// Since when.
        since: Moment,
    },
    /// It has ended.
    Ended {
        /// `sent`, `rejected`, `expired` or `cancelled`; another version may know others.
        how: String,
        /// When.
        at: Moment,
    },
    /// It says what this version doesn't know.
    Unreadable,
}

impl Mark {
    /// Whether the mail is never sent again.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }
}

/// One step of a mail's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub at: Moment,
    /// What.
    pub what: What,
}

/// What happened to a mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It has a slot.
    Booked {
        /// The slot.
        slot: Moment,
        /// Its recipients, cell by cell.
        cells: Vec<(Cell, u32)>,
    },
    /// It waits for its turn and asks again then.
    Waiting {
        /// When.
        until: Moment,
    },
    /// It waits far ahead of its time, and asks for a slot then.
    Scheduled {
        /// When.
        until: Moment,
    },
    /// It is set aside.
    Parked {
        /// When it first reached us.
        first_seen: Moment,
        /// Why: a word.
        reason: String,
    },
    /// It was dead-lettered.
    Dead {
        /// Why: a word.
        reason: String,
    },
    /// None of its recipients may be sent to.
    Suppressed,
    /// Somebody took it off its way.
    Cancelled,
    /// What another version noted.
    Other(String),
}

/// What is to be noted of a mail. [`What::Booked`], [`What::Waiting`] and [`What::Cancelled`] are noted by the scripts themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whose mail it is.
    pub tenant: TenantName,
    /// Its send id.
    pub send_id: SendId,
    /// The lane it travels in.
    pub lane: Lane,
    /// Its recipients.
    pub cost: u32,
    /// What happened to it.
    pub what: What,
}

/// What came of a cancellation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It won't be sent (again). What was known of it before tells what it was; the cells of its booking, if it has one, are given back by whoever asked.
    Done(Found),
    /// It is too late: it is being sent, or has ended.
    TooLate(Found),
}

/// What there is of a tenant in one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standings {
    /// Recipients with a slot ahead.
    pub booked: u64,
    /// Recipients in line for one.
    pub waiting: u64,
    /// Recipients sent to in the last four quarters of an hour, the present one included. What a worker sent that died before it said so is missing.
    pub sent_hour: u64,
    /// The same of the last 96.
    pub sent_day: u64,
    /// Mails of which nobody knows whether they were sent, and that are neither parked nor dead-lettered.
    pub uncertain: u64,
}

/// How Redis is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Its version.
    pub version: Option<String>,
    /// For how long it has been running, s.
    pub uptime_seconds: Option<u64>,
    /// Memory that it uses, bytes.
    pub used_memory: Option<u64>,
    /// Memory that it may use, bytes; nothing is without limit.
    pub max_memory: Option<u64>,
    /// What it does when that is used up.
    pub eviction: Option<String>,
}

impl Schedule {
    /// Says what there is of these tenants, by lane in the order of [`Lane::ALL`]. `memory` is how long a mark lives: longer than any message.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn tally(
        &self,
        tenants: &[TenantName],
        memory: Millis,
    ) -> Result<Vec<[Standings; 2]>, ScheduleError> {
        let script = &self.scripts.tally;
        let mut call = script.prepare();
        call.key(&self.keys.uncertain).arg(memory.0);
        for tenant in tenants {
            call.key(self.keys.tenant(tenant))
                .key(self.keys.sent(tenant))
                .arg(tenant.as_str());
        }
        let answer: Vec<Vec<u64>> = Named::call(&call, &self.connection, &self.keys.budget).await?;
        let lane = |row: &[u64; 5]| {
            let [booked, waiting, sent_hour, sent_day, uncertain] = *row;
            Standings {
                booked,
                waiting,
                sent_hour,
                sent_day,
                uncertain,
            }
        };
        let rows = answer.iter().map(|row| match row.as_chunks::<5>() {
            ([priority, bulk], []) => Some([lane(priority), lane(bulk)]),
            _ => None,
        });
        rows.collect::<Option<Vec<_>>>()
            .filter(|rows| rows.len() == tenants.len())
            .ok_or_else(|| script.unreadable(&answer))
    }

    /// How Redis is, as it says itself; what it doesn't say is missing.
    ///
    /// # Errors
    /// When Redis can't be reached, or doesn't tell this user.
    pub async fn health(&self) -> Result<Health, ScheduleError> {
        let mut link = self.connection.clone();
        let mut command = redis::cmd("INFO");
        let text: String = self
            .connection
            .bound(command.arg("server").arg("memory").query_async(&mut link))
            .await
            .map_err(ScheduleError::Redis)?;
        let field = |names: &[&str]| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            let found = lines.find(|(name, _)| names.contains(name));
            found.map(|(_, value)| value.trim().to_owned())
        };
        let number = |name| field(&[name]).and_then(|value| value.parse().ok());
        Ok(Health {
            // Valkey tells Redis's version as well, for those who ask for it.
            version: field(&["valkey_version"]).or_else(|| field(&["redis_version"])),
            uptime_seconds: number("uptime_in_seconds"),
            used_memory: number("used_memory"),
            max_memory: number("maxmemory").filter(|most| *most > 0),
            eviction: field(&["maxmemory_policy"]),
        })
    }

    /// Says what is known of these mails, one answer each, in one round trip.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn find(&self, mails: &[(TenantName, SendId)]) -> Result<Vec<Found>, ScheduleError> {
        if mails.is_empty() {
            return Ok(Vec::new());
        }
        let script = &self.scripts.find;
        let mut call = script.prepare();
        for (tenant, send_id) in mails {
            call.key(self.keys.claim(tenant, send_id))
                .key(self.keys.trace(tenant, send_id));
        }
        let answer: Vec<Value> = Named::call(&call, &self.connection, &self.keys.budget).await?;
        found_all(mails.len(), &answer).ok_or_else(|| script.unreadable(&answer))
    }

    /// Notes what happened to mails, for [`Schedule::find`], in one round trip. It is remembered for `memory`.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn trace(&self, notes: &[Note], memory: Millis) -> Result<(), ScheduleError> {
        if notes.is_empty() {
            return Ok(());
        }
        let mut call = self.scripts.trace.prepare();
        call.key(&self.keys.uncertain).arg(memory.0);
        for note in notes {
            call.key(self.keys.trace(&note.tenant, &note.send_id));
            call.arg(format!("{}:{}", note.tenant, note.send_id))
                .arg(note.lane.as_str())
                .arg(note.cost);
            match &note.what {
                What::Parked { first_seen, reason } => {
                    call.arg("parked").arg(format!("{},{reason}", first_seen.0))
                }
                What::Dead { reason } => call.arg("dead").arg(reason),
                What::Scheduled { until } => call.arg("scheduled").arg(until.0),
                What::Waiting { until } => call.arg("waiting").arg(until.0),
                What::Booked { slot, .. } => call.arg("booked").arg(slot.0),
                What::Suppressed => call.arg("suppressed").arg(""),
                What::Cancelled => call.arg("cancelled").arg(""),
                What::Other(word) => call.arg(word).arg(""),
            };
        }
        Named::call(&call, &self.connection, &self.keys.budget).await
    }

    /// Has a mail never be sent (again), unless it is being sent just now or has ended. That lasts for `memory`: longer than any message lives.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn cancel(
        &self,
        tenant: &TenantName,
        send_id: &SendId,
        memory: Millis,
    ) -> Result<Cancelled, ScheduleError> {
        let script = &self.scripts.cancel;
        let mut call = script.prepare();
        call.key(self.keys.claim(tenant, send_id))
            .key(self.keys.trace(tenant, send_id))
            .key(&self.keys.uncertain)
            .arg(memory.0)
            .arg(format!("{tenant}:{send_id}"));
        let answer: Vec<Value> = Named::call(&call, &self.connection, &self.keys.budget).await?;
        let read = || {
            let [done, answer @ ..] = &answer[..] else {
                return None;
            };
            let found = found_all(1, answer)?.pop()?;
            Some(match u8::from_redis_value_ref(done).ok()? {
                1 => Cancelled::Done(found),
                _ => Cancelled::TooLate(found),
            })
        };
        read().ok_or_else(|| script.unreadable(&answer))
    }
}

/// Reads `{ now, claim, trace, claim, trace, … }`.
fn found_all(mails: usize, answer: &[Value]) -> Option<Vec<Found>> {
    let (now, pairs) = answer.split_first()?;
    let now = Moment(u64::from_redis_value_ref(now).ok()?);
    if pairs.len() != 2 * mails {
        return None;
    }
    let text = |value| String::from_redis_value_ref(value).ok();
    pairs
        .chunks(2)
        .map(|pair| {
            let (claim, trace) = (text(&pair[0])?, text(&pair[1])?);
            let mut found = Found {
                now,
                claim: mark(&claim, now),
                ..Found::default()
            };
            read_trace(&trace, &mut found);
            Some(found)
        })
        .collect()
}

/// Reads `1|<state>|<ms>|<fingerprint>|<owner>`.
fn mark(claim: &str, now: Moment) -> Option<Mark> {
    if claim.is_empty() {
        return None;
    }
    let mut parts = claim.split('|');
    let (version, state, at) = (parts.next(), parts.next(), parts.next());
    let at = at.and_then(|at| at.parse().ok()).map(Moment);
    Some(match (version, state, at) {
        (Some("1"), Some("claimed"), Some(until)) if until > now => Mark::Sending { until },
        (Some("1"), Some("claimed" | "uncertain"), Some(since)) => Mark::Uncertain { since },
        (Some("1"), Some(how), Some(at)) => Mark::Ended {
            how: how.to_owned(),
            at,
        },
        _ => Mark::Unreadable,
    })
}

/// Reads `1|<lane>|<recipients>|<step>;<step>;…`, each step `<what>,<ms>,…`. What can't be read is left out.
fn read_trace(trace: &str, found: &mut Found) {
    let mut parts = trace.splitn(4, '|');
    if parts.next() != Some("1") {
        return;
    }
    found.lane = parts.next().and_then(|lane| lane.parse().ok());
    found.cost = parts.next().and_then(|cost| cost.parse().ok());
    let steps = parts.next().unwrap_or_default().split(';');
    found.steps = steps.filter_map(step).collect();
}

fn step(text: &str) -> Option<Step> {
    let mut parts = text.splitn(3, ',');
    let (word, at) = (parts.next()?, Moment(parts.next()?.parse().ok()?));
    let rest = parts.next().unwrap_or_default();
    let moment = |text: &str| text.parse().ok().map(Moment);
    let what = match word {
        "booked" => {
            let (slot, cells) = rest.split_once(',').unwrap_or((rest, ""));
            let cells = cells.split('+').filter_map(|cell| {
                let (cell, count) = cell.split_once('.')?;
                Some((Cell(cell.parse().ok()?), count.parse().ok()?))
            });
            What::Booked {
                slot: moment(slot)?,
                cells: cells.collect(),
            }
        }
        "waiting" => What::Waiting {
            until: moment(rest)?,
        },
        "scheduled" => What::Scheduled {
            until: moment(rest)?,
        },
        "parked" => {
            let (first_seen, reason) = rest.split_once(',')?;
            What::Parked {
                first_seen: moment(first_seen)?,
                reason: reason.to_owned(),
            }
        }
        "dead" => What::Dead {
            reason: rest.to_owned(),
        },
        "suppressed" => What::Suppressed,
        "cancelled" => What::Cancelled,
        other => What::Other(other.to_owned()),
    };
    Some(Step { at, what })
}
