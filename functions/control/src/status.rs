//! What there is, for people: of Redis, of the queues and of the bucket.
//!
//! Redis is asked for numbers, not for messages; queues and bucket are asked beside it, and where one doesn't answer in time, what it would have
//! said is missing and all else is told. Parked mail is counted in the bucket itself, up to some thousands of each tenant.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::{StreamExt, future::join_all, stream};
use sendslot_domain::{
    Lane, Millis, Moment, Rate, TenantName,
    budget::FACTOR_ONE,
    reconcile::{BLOCK, block},
};
use sendslot_runtime::{
    ControlSettings, Queue,
    control::{
        Blocked, Booked, BookedMinute, BudgetStatus, Failure, LaneStatus, PausedTenant,
        QueueStatus, RedisState, Status, TenantLane, TenantStatus,
    },
    parking::Reason,
    tenant::TenantSettings,
};
use sendslot_schedule::{Counted, Health, Look, Pause, Schedule, Standings, Tenant};
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    failure::redis_failure,
    notes::Notes,
    ports::{Depths, Parked},
};

/// Of so many tenants at most it is told what there is.
const MOST_TENANTS: usize = 1000;
/// Of so many it is asked in one call.
const AT_ONCE: usize = 200;
/// So much parked mail is counted of each tenant.
const MOST_PARKED: usize = 5000;
/// So many tenants' parked mail is counted at a time.
const COUNTS_AT_ONCE: usize = 8;
/// Queues and bucket have answered within so long, or aren't told of.
const ELSEWHERE: Duration = Duration::from_secs(5);
/// How long marks live that are counted, beyond a message's own life.
const MORE: Millis = Millis::from_secs(86_400);

/// Looks. That Redis can't be used is an answer as well.
pub(crate) async fn status(
    schedule: &Schedule,
    queues: &impl Depths,
    parked: &impl Parked,
    settings: &ControlSettings,
) -> Result<Status, Failure> {
    let ((depths, parked), look) = tokio::join!(
        async { tokio::join!(depths(queues, settings), count_parked(parked)) },
        schedule.look()
    );
    let mut lanes: Vec<LaneStatus> = Lane::ALL.into_iter().zip(depths).map(lane_status).collect();
    let look = match look {
        Ok(look) => look,
        Err(error) if error.is_unavailable() => {
            return Ok(Status {
                redis: RedisState {
                    ok: false,
                    error: Some(error.to_string()),
                    ..RedisState::default()
                },
                lanes,
                ..Status::default()
            });
        }
        Err(error) => return Err(redis_failure(error)),
    };
    let notes = Notes::read(&look);
    let told = notes.tenants.as_ref();
    let told = told.into_iter().flat_map(BTreeMap::keys);
    let told = told.filter_map(|name| name.parse().ok());
    let known = settings.tenants.iter().map(|tenant| tenant.name.clone());
    let known: BTreeSet<TenantName> = known.chain(told).chain(parked.keys().cloned()).collect();
    let weights = settings.tenants.iter();
    let weights = weights.map(|tenant| (tenant.name.to_string(), tenant.weight));
    let mut weights: BTreeMap<String, u32> = weights.collect();
    for (name, settings) in notes.tenants.iter().flatten() {
        let weight = settings.get("weight").and_then(Value::as_u64);
        let weight = weight.and_then(|weight| u32::try_from(weight).ok());
        weights.insert(name.clone(), weight.unwrap_or(Tenant::default().weight));
    }
    let memory = Millis(settings.max_message_age.0 + MORE.0);
    let tenants = tenants(schedule, known, &parked, &weights, memory).await?;
    for lane in &mut lanes {
        let own = tenants
            .iter()
            .filter_map(|tenant| tenant.lanes.get(&lane.lane));
        own.for_each(|own| add(&mut lane.all, own));
    }
    let [priority, bulk] = look.booked;
    Ok(Status {
        redis: health(schedule).await,
        now_ms: look.now.0,
        budget: budget(&look),
        booked: Booked { priority, bulk },
        minutes: minutes(&look),
        lanes,
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
    })
}

fn lane_status((lane, queues): (Lane, BTreeMap<String, QueueStatus>)) -> LaneStatus {
    LaneStatus {
        lane: lane.to_string(),
        queues,
        ..LaneStatus::default()
    }
}

/// How Redis is. That it doesn't say so is no reason to say nothing.
async fn health(schedule: &Schedule) -> RedisState {
    let health = schedule.health().await.unwrap_or_else(|error| {
        tracing::warn!(%error, "redis doesn't tell how it is");
        Health::default()
    });
    let Health {
        version,
        uptime_seconds,
        used_memory,
        max_memory,
        eviction,
    } = health;
    RedisState {
        ok: true,
        error: None,
        version,
        uptime_seconds,
        used_memory,
        max_memory,
        eviction,
    }
}

/// What the queues of each lane hold, those that answer.
async fn depths(
    queues: &impl Depths,
    settings: &ControlSettings,
) -> [BTreeMap<String, QueueStatus>; 2] {
    let of = |lane: Lane| {
        let all: [(&str, &Queue); 4] = [
            ("intake", settings.intake_queues.get(lane)),
            ("send", settings.send_queues.get(lane)),
            ("intake_dead", settings.intake_dlqs.get(lane)),
            ("send_dead", settings.send_dlqs.get(lane)),
        ];
        let asked = all.map(|(name, queue)| async move {
            let error = match timeout(ELSEWHERE, queues.depth(queue)).await {
                Ok(Ok(depth)) => return Some((name.to_owned(), depth)),
                Ok(Err(error)) => error,
                Err(_) => "no answer in time".to_owned(),
            };
            tracing::warn!(
                queue = queue.name(),
                error,
                "it isn't known what a queue holds"
            );
            None
        });
        async { join_all(asked).await.into_iter().flatten().collect() }
    };
    let [priority, bulk] = Lane::ALL.map(of);
    tokio::join!(priority, bulk).into()
}

/// What is parked of a tenant, by lane: all, and of it uncertain; and whether there is more.
#[derive(Clone, Copy, Default)]
struct ParkedCount {
    mails: [[u64; 2]; 2],
    more: bool,
}

/// What is parked, as far as that is counted in time.
async fn count_parked(parked: &impl Parked) -> BTreeMap<TenantName, ParkedCount> {
    let until = Instant::now() + ELSEWHERE;
    let tenants = match timeout_at(until, parked.tenants()).await {
        Ok(Ok(tenants)) => tenants,
        failed => {
            let error = failed.map_or("no answer in time".to_owned(), |answer| {
                answer.err().unwrap_or_default()
            });
            tracing::warn!(error, "it isn't known what is parked");
            return BTreeMap::new();
        }
    };
    let counts = stream::iter(tenants).map(async |tenant| {
        let list = parked.oldest(&tenant, None, None, MOST_PARKED + 1);
        let mut count = ParkedCount::default();
        match timeout_at(until, list).await {
            Ok(Ok(keys)) => {
                count.more = keys.len() > MOST_PARKED;
                for key in keys.iter().take(MOST_PARKED) {
                    let mails = &mut count.mails[key.lane as usize];
                    mails[0] += 1;
                    mails[1] += u64::from(key.reason == Reason::Uncertain);
                }
            }
            _ => count.more = true,
        }
        (tenant, count)
    });
    counts.buffer_unordered(COUNTS_AT_ONCE).collect().await
}

fn add(sum: &mut TenantLane, own: &TenantLane) {
    sum.booked += own.booked;
    sum.waiting += own.waiting;
    sum.sent_1h += own.sent_1h;
    sum.sent_24h += own.sent_24h;
    sum.uncertain += own.uncertain;
    sum.parked += own.parked;
    sum.parked_uncertain += own.parked_uncertain;
}

/// What there is of each of these tenants, as far as that is asked for.
async fn tenants(
    schedule: &Schedule,
    known: BTreeSet<TenantName>,
    parked: &BTreeMap<TenantName, ParkedCount>,
    weights: &BTreeMap<String, u32>,
    memory: Millis,
) -> Result<Vec<TenantStatus>, Failure> {
    let known: Vec<TenantName> = known.into_iter().take(MOST_TENANTS).collect();
    let mut all = Vec::with_capacity(known.len());
    for part in known.chunks(AT_ONCE) {
        let (counts, tally, held) = tokio::join!(
            schedule.counts(part),
            schedule.tally(part, memory),
            schedule.tenants(part)
        );
        let (counts, tally) = (
            counts.map_err(redis_failure)?,
            tally.map_err(redis_failure)?,
        );
        let held = held.unwrap_or_default(); // with no budget nobody is known
        for (index, tenant) in part.iter().enumerate() {
            let held = held.get(index).and_then(Option::as_deref);
            let own = held.and_then(|text| serde_json::from_str::<TenantSettings>(text).ok());
            let parked = parked.get(tenant).copied().unwrap_or_default();
            let mut one = tenant_status(tenant, counts[index], tally[index], parked);
            one.configuration_set = own.and_then(|own| own.configuration_set);
            one.weight = weights.get(tenant.as_str()).copied().unwrap_or_default();
            all.push(one);
        }
    }
    Ok(all)
}

fn tenant_status(
    tenant: &TenantName,
    counted: Counted,
    tally: [Standings; 2],
    parked: ParkedCount,
) -> TenantStatus {
    let Counted { hour, day } = counted;
    let lanes = Lane::ALL.into_iter().map(|lane| {
        let Standings {
            booked,
            waiting,
            sent_hour,
            sent_day,
            uncertain,
        } = tally[lane as usize];
        let [mails, maybe] = parked.mails[lane as usize];
        let own = TenantLane {
            booked,
            waiting,
            sent_1h: sent_hour,
            sent_24h: sent_day,
            uncertain,
            parked: mails,
            parked_uncertain: maybe,
        };
        (lane.to_string(), own)
    });
    TenantStatus {
        tenant: tenant.to_string(),
        sent_1h: hour.sent,
        bounced_1h: hour.bounced,
        complained_1h: hour.complained,
        sent_24h: day.sent,
        bounced_24h: day.bounced,
        complained_24h: day.complained,
        lanes: lanes.collect(),
        more_parked: parked.more,
        ..TenantStatus::default()
    }
}

/// Recipients booked by minute.
fn minutes(look: &Look) -> Vec<BookedMinute> {
    let minute = |(at, [priority, bulk]): (&u64, &[u64; 2])| BookedMinute {
        at_ms: at * 60_000,
        priority: *priority,
        bulk: *bulk,
    };
    look.booked_in.iter().map(minute).collect()
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
