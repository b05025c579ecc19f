//! What whoever keeps the budget, and people, want to know of it.

use std::collections::BTreeMap;

use redis::{FromRedisValue, Value};
use sendslot_domain::{Cell, Millis, Moment, TenantName, budget::FACTOR_ONE};

use crate::{
    Schedule, ScheduleError,
    feed::{Counted, counted},
    script::Named,
};

/// What there is in Redis at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The moment.
    pub now: Moment,
    /// By minute since the epoch: recipients sent in the last 24 hours and two minutes, granted and not given back, and slots
    /// only. What was given back in another minute than it was granted may make a minute negative.
    pub sent: BTreeMap<u64, i64>,
    /// Recipients booked ahead, by lane in the order of [`sendslot_domain::Lane::ALL`].
    pub booked: [u64; 2],
    /// The same by minute since the epoch, after the present second.
    pub booked_in: BTreeMap<u64, [u64; 2]>,
    /// The first second with nothing booked in it or after.
    pub booked_until: Cell,
    /// Recipients refused as too many in the last 10 seconds.
    pub refused: u64,
    /// The budget in words: `source`, `limit`, `daily_quota`, … Empty if there is none.
    pub budget: BTreeMap<String, String>,
    /// Tenants that may not send.
    pub paused: Vec<Pause>,
    /// What was noted of the account.
    pub account: BTreeMap<String, String>,
}

/// That a tenant may not send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The tenant.
    pub tenant: TenantName,
    /// Until when; nothing: until it is resumed.
    pub until: Option<Moment>,
    /// Since when.
    pub since: Moment,
    /// Why: a word.
    pub reason: String,
}

impl Look {
    /// Recipients sent from this minute on, as [`sendslot_domain::reconcile`] adds them up.
    #[must_use]
    pub fn sent_since(&self, minute: u64) -> u64 {
        let sent: i64 = self.sent.range(minute..).map(|(_, sent)| sent).sum();
        u64::try_from(sent).unwrap_or_default()
    }

    /// [`FACTOR_ONE`]ths of the rate that may be used.
    #[must_use]
    pub fn factor(&self) -> u64 {
        let factor = self.budget.get("factor");
        factor
            .and_then(|factor| factor.parse().ok())
            .unwrap_or(FACTOR_ONE)
    }

    /// When Redis was last found empty, if it holds a budget.
    #[must_use]
    pub fn generation(&self) -> Option<Moment> {
        Some(Moment(self.budget.get("generation")?.parse().ok()?))
    }

    /// For how long nobody may send yet, and why: a word.
    #[must_use]
    pub fn blocked(&self) -> Option<(Millis, &str)> {
        let (until, rest) = self.budget.get("blocked")?.split_once('|')?;
        let (_, reason) = rest.split_once('|')?;
        let left = self.now.until(Moment(until.parse().ok()?));
        (left > Millis(0)).then_some((left, reason))
    }
}

impl Schedule {
    /// Looks at all there is.
    ///
    /// # Errors
    /// When Redis can't be reached. That it holds no budget is none.
    pub async fn look(&self) -> Result<Look, ScheduleError> {
        let script = &self.scripts.look;
        let mut call = script.prepare();
        call.key(&self.keys.budget)
            .key(&self.keys.schedule)
            .key(&self.keys.guard)
            .key(&self.keys.paused)
            .key(&self.keys.throttled)
            .key(&self.keys.account);
        let answer: Vec<Value> = Named::call(&call, &self.connection, &self.keys.budget).await?;
        read(&answer).ok_or_else(|| script.unreadable(&answer))
    }

    /// Notes what is known of the account: fields with their values; those that aren't named stay, an empty value removes.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn note(&self, fields: &[(&str, String)]) -> Result<(), ScheduleError> {
        let mut call = self.scripts.note.prepare();
        call.key(&self.keys.account);
        for (field, value) in fields {
            call.arg(*field).arg(value);
        }
        Named::call(&call, &self.connection, &self.keys.budget).await
    }

    /// Writes the settings of every tenant, each a JSON text. Tenants that aren't named are no longer there.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn write_tenants(
        &self,
        tenants: &[(TenantName, String)],
    ) -> Result<(), ScheduleError> {
        let mut call = self.scripts.tenants.prepare();
        call.key(&self.keys.tenants);
        for (tenant, settings) in tenants {
            call.arg(tenant.as_str()).arg(settings);
        }
        Named::call(&call, &self.connection, &self.keys.budget).await
    }

    /// The settings of these tenants as they were written; `None` where the tenant isn't known.
    ///
    /// # Errors
    /// When Redis can't be reached, or was emptied and not filled again ([`ScheduleError::NoBudget`]).
    pub async fn tenants(
        &self,
        tenants: &[TenantName],
    ) -> Result<Vec<Option<String>>, ScheduleError> {
        if tenants.is_empty() {
            return Ok(Vec::new());
        }
        let mut call = self.scripts.tenant.prepare();
        call.key(&self.keys.tenants);
        for tenant in tenants {
            call.arg(tenant.as_str());
        }
        Named::call(&call, &self.connection, &self.keys.budget).await
    }

    /// What the provider told of these tenants' mail, one each.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn counts(&self, tenants: &[TenantName]) -> Result<Vec<Counted>, ScheduleError> {
        if tenants.is_empty() {
            return Ok(Vec::new());
        }
        let script = &self.scripts.counts;
        let mut call = script.prepare();
        for tenant in tenants {
            call.key(self.keys.counts(tenant));
        }
        let answer: Vec<Vec<u64>> = Named::call(&call, &self.connection, &self.keys.budget).await?;
        let counts = answer.iter().map(|sums| counted(sums));
        let counts = counts.collect::<Option<Vec<_>>>();
        counts
            .filter(|counts| counts.len() == tenants.len())
            .ok_or_else(|| script.unreadable(&answer))
    }
}

fn read(answer: &[Value]) -> Option<Look> {
    let [
        now,
        sent,
        priority,
        bulk,
        upto,
        refused,
        budget,
        paused,
        account,
        ahead,
    ] = answer
    else {
        return None;
    };
    let number = |value| i64::from_redis_value_ref(value).ok();
    let count = |value| Some(u64::try_from(number(value)?.max(0)).unwrap_or_default());
    let pairs = |value| BTreeMap::<String, String>::from_redis_value_ref(value).ok();
    let paused = pairs(paused)?;
    let ahead = Vec::<u64>::from_redis_value_ref(ahead).ok()?;
    let minutes = ahead.as_chunks::<3>().0.iter();
    Some(Look {
        now: Moment(count(now)?),
        sent: BTreeMap::from_redis_value_ref(sent).ok()?,
        booked: [count(priority)?, count(bulk)?],
        booked_in: minutes
            .map(|[at, priority, bulk]| (*at, [*priority, *bulk]))
            .collect(),
        booked_until: Cell(count(upto)?),
        refused: count(refused)?,
        budget: pairs(budget)?,
        paused: paused
            .iter()
            .filter_map(|(tenant, value)| pause(tenant, value))
            .collect(),
        account: pairs(account)?,
    })
}

/// Reads `1|<until>|<since>|<reason>`.
fn pause(tenant: &str, value: &str) -> Option<Pause> {
    let mut parts = value.splitn(4, '|');
    if parts.next() != Some("1") {
        return None;
    }
    let until: u64 = parts.next()?.parse().ok()?;
    Some(Pause {
        tenant: tenant.parse().ok()?,
        until: Some(Moment(until)).filter(|until| until.0 > 0),
        since: Moment(parts.next()?.parse().ok()?),
        reason: parts.next()?.to_owned(),
    })
}
