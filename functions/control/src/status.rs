//! What there is, for people.

use std::collections::{BTreeMap, BTreeSet};

use sendslot_domain::{
    Millis, Moment, Rate, TenantName,
    budget::FACTOR_ONE,
    reconcile::{BLOCK, block},
};
use sendslot_runtime::{
    control::{
        Blocked, Booked, BudgetStatus, Failure, PausedTenant, RedisState, Status, TenantStatus,
    },
    settings::Tenant as Deployed,
};
use sendslot_schedule::{Counted, Look, Pause, Schedule};

use crate::{failure::redis_failure, notes::Notes};

/// Of so many tenants at most it is told what the provider said of them.
const MOST_TENANTS: usize = 1000;
/// Of so many it is asked in one call.
const AT_ONCE: usize = 200;

/// Looks. That Redis can't be used is an answer as well.
pub(crate) async fn status(schedule: &Schedule, deployed: &[Deployed]) -> Result<Status, Failure> {
    let look = match schedule.look().await {
        Ok(look) => look,
        Err(error) if error.is_unavailable() => {
            return Ok(Status {
                redis: RedisState {
                    ok: false,
                    error: Some(error.to_string()),
                    ..RedisState::default()
                },
                ..Status::default()
            });
        }
        Err(error) => return Err(redis_failure(error)),
    };
    let notes = Notes::read(&look);
    let told = notes.tenants.as_ref();
    let told = told.into_iter().flat_map(BTreeMap::keys);
    let told = told.filter_map(|name| name.parse().ok());
    let known = deployed.iter().map(|tenant| tenant.name.clone());
    let known: BTreeSet<TenantName> = known.chain(told).collect();
    let tenants = counts(schedule, known).await?;
    let [priority, bulk] = look.booked;
    Ok(Status {
        redis: RedisState {
            ok: true,
            ..RedisState::default()
        },
        now_ms: look.now.0,
        budget: budget(&look),
        booked: Booked { priority, bulk },
        booked_ahead_seconds: ahead_seconds(&look),
        sent_24h: sent_24h(&look),
        unscheduled: notes.count.map_or(0, |count| count.unscheduled),
        refused_10s: look.refused,
        blocked: look.blocked().map(|(left, reason)| Blocked {
            left_ms: left.0,
            reason: reason.to_owned(),
        }),
        paused: paused(&look),
        tenants,
        generation_ms: look.generation().map(|generation| generation.0),
        last_refresh: notes.last,
        ..Status::default()
    })
}

/// What the provider told of each of these tenants, as far as that is asked for.
async fn counts(
    schedule: &Schedule,
    known: BTreeSet<TenantName>,
) -> Result<Vec<TenantStatus>, Failure> {
    let known: Vec<TenantName> = known.into_iter().take(MOST_TENANTS).collect();
    let mut all = Vec::with_capacity(known.len());
    for part in known.chunks(AT_ONCE) {
        let counts = schedule.counts(part).await.map_err(redis_failure)?;
        all.extend(part.iter().zip(counts).map(|(tenant, counted)| {
            let Counted { hour, day } = counted;
            TenantStatus {
                tenant: tenant.to_string(),
                sent_1h: hour.sent,
                bounced_1h: hour.bounced,
                complained_1h: hour.complained,
                sent_24h: day.sent,
                bounced_24h: day.bounced,
                complained_24h: day.complained,
                ..TenantStatus::default()
            }
        }));
    }
    Ok(all)
}

/// The budget that Redis holds.
pub(crate) fn budget(look: &Look) -> Option<BudgetStatus> {
    let source = look.budget.get("source")?;
    let limit = look.budget.get("limit").cloned().unwrap_or_default();
    Some(BudgetStatus {
        effective_rate: effective_rate(look).unwrap_or_default(),
        daily_quota: daily_quota(look),
        limit,
        source: source.clone(),
        factor: look.factor(),
    })
}

/// The day's quota that Redis holds; nothing is none.
pub(crate) fn daily_quota(look: &Look) -> Option<u64> {
    look.budget.get("daily_quota")?.parse().ok()
}

/// What new bookings go by, recipients per second.
#[expect(clippy::cast_precision_loss, reason = "factors are below 2^11")]
pub(crate) fn effective_rate(look: &Look) -> Option<f64> {
    let limit: Rate = look.budget.get("limit")?.parse().ok()?;
    let headroom: f64 = look.budget.get("headroom")?.parse().ok()?;
    let factor = look.factor() as f64 / FACTOR_ONE as f64;
    // To millionths: 14 × 0.9 isn't 12.6 in floating-point numbers.
    Some((limit.per_second() * headroom * factor * 1e6).round() / 1e6)
}

/// Seconds until the first with nothing booked in it or after.
pub(crate) fn ahead_seconds(look: &Look) -> u64 {
    look.booked_until.0.saturating_sub(look.now.cell().0)
}

/// Recipients sent in the last 24 hours, to the minute.
pub(crate) fn sent_24h(look: &Look) -> u64 {
    const DAY: Millis = Millis::from_secs(86_400);
    let since = Moment(look.now.0.saturating_sub(DAY.0 - BLOCK.0));
    look.sent_since(block(since))
}

/// Who may not send now: a pause that has ended stands for nothing.
pub(crate) fn standing(look: &Look) -> impl Iterator<Item = &Pause> {
    let holds = |pause: &&Pause| pause.until.is_none_or(|until| until > look.now);
    look.paused.iter().filter(holds)
}

/// Whether a tenant may not send now.
pub(crate) fn is_paused(look: &Look, tenant: &TenantName) -> bool {
    standing(look).any(|pause| pause.tenant == *tenant)
}

fn paused(look: &Look) -> Vec<PausedTenant> {
    let told = |pause: &Pause| PausedTenant {
        tenant: pause.tenant.to_string(),
        since_ms: pause.since.0,
        until_ms: pause.until.map(|until| until.0),
        reason: pause.reason.clone(),
    };
    standing(look).map(told).collect()
}
