//! The budget follows the account.

use std::collections::BTreeMap;

use sendslot_domain::{
    Millis, TenantName,
    account::{self, Decision, Kept, Sending, judge},
    reconcile::{self, first_counted, first_under_way, reconcile},
    warm_up::Date,
};
use sendslot_runtime::{
    ControlSettings, Metrics,
    control::{Budget, Failure, InvalidTenant, LastRefresh, Refresh, Refreshed, Walk, Was},
};
use sendslot_schedule::{Look, Schedule, Seed};

use crate::{
    failure::redis_failure,
    notes::{self, Notes, Verified},
    numbers::{self, Numbers},
    status,
    tenants::{self, Tenants},
};

/// For how long nobody may send after a refresh that found the account unable to: two refreshes.
pub(crate) const BLOCKED: Millis = Millis::from_secs(120);
/// So often a much shorter list of tenants isn't believed: a wrong path reads like one without tenants.
const DOUBTED: u32 = 2;
/// Why a tenant is paused whose configuration set may not send.
const SET_PAUSED: &str = "set_paused";

/// How many warnings an answer holds; the log has all of them.
const MOST_WARNINGS: usize = 20;

/// What a refresh works on.
pub(crate) struct Keeper<'a> {
    pub(crate) schedule: &'a Schedule,
    pub(crate) settings: &'a ControlSettings,
}

/// What a refresh found out before it writes anything.
struct Found {
    decision: Option<Decision>,
    /// Whether the provider's count was taken.
    counted: bool,
    /// Tenants whose parameter wasn't taken; `None` if none were handed in.
    invalid: Option<Vec<InvalidTenant>>,
    /// Whether a list of tenants wasn't believed.
    doubted: bool,
    /// Tenants and fields of their parameters that nobody knows.
    unknown_fields: Vec<(String, String)>,
    tenants: Tenants,
}

/// What a refresh did.
struct Done {
    paused: Vec<String>,
    pending: bool,
    /// The budget in Redis.
    budget: Option<Budget>,
    warnings: Vec<String>,
}

/// One refresh: what came of it, and its metrics.
///
/// # Errors
/// When Redis can't be used, or the settings make no budget. What was written until then stands; the next refresh does
/// it all again.
pub(crate) async fn refresh(
    control: &Keeper<'_>,
    asked: &Refresh,
    caller: &str,
) -> Result<(Refreshed, Metrics), Failure> {
    let schedule = control.schedule;
    let before = schedule.look().await.map_err(redis_failure)?;
    let mut notes = Notes::read(&before);
    let noted_generation = notes.verified.generation_ms;
    // What the first call of this refresh has noted is gone.
    let is_second = asked.is_final && asked.account.is_none() && asked.error.is_none();
    let is_lost = is_second && notes.last.is_none();
    let found = find(control, asked, &before, &mut notes);
    note_refresh(asked, caller, &before, found.decision.as_ref(), &mut notes);

    if let Some(reason) = found.decision.and_then(|decision| decision.blocked()) {
        let left = schedule.block(BLOCKED, BLOCKED, reason).await;
        let left = left.map_err(redis_failure)?;
        tracing::error!(
            reason,
            left_ms = left.0,
            "the account may not send: nobody sends"
        );
    }
    let mut done = Done {
        paused: pause(schedule, asked, &found.tenants, &before, &mut notes).await?,
        pending: false,
        budget: None,
        warnings: Vec::new(),
    };
    unblock(schedule, &found, &before).await?;
    if found.doubted {
        done.warnings.push(
            "much fewer tenants have parameters than before: the list is believed if it is the same in three refreshes in a row"
                .to_owned(),
        );
    }
    let used = found.tenants.sets();
    let is_empty = !before.budget.contains_key("source");
    let never_told = is_lost || notes.tenants.is_none();
    done.pending = never_told
        || is_empty
            && !asked.is_final
            && notes.verified.is_incomplete(&used)
            && notes.verified.waits(before.now);
    if never_told {
        // Who isn't known would be refused.
        let warning = "nobody has told who has parameters since redis was emptied: the budget waits until that is known";
        tracing::error!("{warning}");
        done.warnings.push(warning.to_owned());
    } else if done.pending {
        tracing::warn!("redis is empty: the budget waits until the configuration sets were read");
    } else {
        notes.verified.pending_since_ms = None;
        write(control, &found.tenants, &before, &notes, &mut done).await?;
    }
    let verify = if asked.is_final {
        Vec::new() // nothing more is read in this refresh
    } else {
        notes.verified.ask(&used)
    };

    let after = schedule.look().await.map_err(redis_failure)?;
    let generation = after.generation().map(|generation| generation.0);
    if done.budget.is_some() {
        if !is_empty && before.generation() != after.generation() {
            // Emptied meanwhile: what was counted and read is of a Redis that is no more.
            (notes.count, notes.verified) = (None, Verified::default());
        }
        notes.verified.generation_ms = generation;
    }
    let walk = note(schedule, &notes, &after).await?;
    let changed = done.budget.is_some() && noted_generation != generation;
    let empty_found = is_empty || noted_generation != generation;
    let metrics = metrics(
        control,
        &found,
        &notes,
        &after,
        done.budget.is_some(),
        changed,
        done.paused.len(),
    );
    let blocked = after.blocked();
    let refreshed = Refreshed {
        budget: done.budget,
        pending: done.pending,
        kept: kept(found.decision.as_ref()).map(str::to_owned),
        factor: after.factor(),
        generation_ms: generation,
        empty_found,
        verify,
        unscheduled: notes.count.map_or(0, |count| count.unscheduled),
        sent_24h: status::sent_24h(&after),
        booked_ahead: after.booked.iter().sum(),
        refused_10s: after.refused,
        blocked_ms: blocked.map_or(0, |(left, _)| left.0),
        blocked: blocked.map(|(_, reason)| reason.to_owned()),
        invalid_tenants: found.invalid.unwrap_or_default(),
        paused: done.paused,
        walk,
        warnings: warnings(done.warnings, &found.unknown_fields),
    };
    Ok((refreshed, metrics))
}

/// All that an operator should know, as much of it as an answer holds.
fn warnings(mut warnings: Vec<String>, unknown_fields: &[(String, String)]) -> Vec<String> {
    for (tenant, field) in unknown_fields {
        tracing::warn!(
            tenant,
            field,
            "a tenant's parameter has a field that isn't known"
        );
        warnings.push(format!(
            "tenant {tenant}: its parameter has a field {field:?} that isn't known, and is of no effect: check the spelling"
        ));
    }
    warnings.truncate(MOST_WARNINGS);
    warnings
}

/// Writes the notes, as far as they differ. Answers which walk over SES's suppression list is due.
async fn note(schedule: &Schedule, notes: &Notes, look: &Look) -> Result<Option<Walk>, Failure> {
    let mut walks = notes::walks(look);
    let generation = look.generation().map(|generation| generation.0);
    let walk = walks.due(look.now, generation);
    let mut changes = notes.changes(look);
    changes.extend(notes::walks_changes(&walks, look));
    if !changes.is_empty() {
        schedule.note(&changes).await.map_err(redis_failure)?;
    }
    Ok(walk)
}

/// Judges what was handed in. What wasn't stays as it was noted.
fn find(control: &Keeper<'_>, asked: &Refresh, look: &Look, notes: &mut Notes) -> Found {
    let account = asked.account.as_ref().map(account::Account::from);
    let was_asked = asked.account.is_some() || asked.error.is_some();
    let decision = was_asked.then(|| judge(notes.known.as_ref(), account.as_ref()));
    if let Some(decision) = decision {
        notes.known = decision.known;
    }
    // An answer that isn't believed has no count to believe either.
    let believed =
        decision.is_some_and(|decision| matches!(decision.kept, None | Some(Kept::Blocked)));
    let provider = account
        .and_then(|account| account.sent())
        .filter(|_| believed);
    if let Some(provider) = provider {
        let counts = reconcile::Look {
            now: look.now,
            provider,
            ours: look.sent_since(first_counted(look.now)),
            under_way: look.sent_since(first_under_way(look.now)),
        };
        let state = notes.count.map(|count| count.state());
        notes.count = Some(reconcile(state, &counts).into());
    }
    let (mut doubted, mut unknown_fields) = (false, Vec::new());
    let invalid = asked.tenants.as_ref().map(|parameters| {
        let last = notes.tenants.take().unwrap_or_default();
        let (good, invalid) = tenants::taken(parameters, &last);
        for (name, settings) in &good {
            let unknown = tenants::unknown_fields(settings);
            unknown_fields.extend(unknown.into_iter().map(|field| (name.clone(), field)));
        }
        doubted = last.len() > 1 && good.len() * 2 < last.len() && notes.shorter < DOUBTED;
        notes.shorter = if doubted { notes.shorter + 1 } else { 0 };
        notes.tenants = Some(if doubted { last } else { good });
        invalid
    });
    let today = Date::of(look.now);
    Found {
        decision,
        counted: provider.is_some(),
        invalid,
        doubted,
        unknown_fields,
        tenants: Tenants::of(
            &control.settings.tenants,
            notes.tenants.as_ref().unwrap_or(&BTreeMap::new()),
            today,
        ),
    }
}

fn note_refresh(
    asked: &Refresh,
    caller: &str,
    look: &Look,
    decision: Option<&Decision>,
    notes: &mut Notes,
) {
    let last = notes.last.take().unwrap_or_default();
    let taken = decision.is_some_and(|decision| decision.kept.is_none());
    notes.last = Some(LastRefresh {
        at_ms: look.now.0,
        caller: caller.to_owned(),
        taken_ms: if taken {
            Some(look.now.0)
        } else {
            last.taken_ms
        },
        kept: match decision {
            Some(_) => kept(decision).map(str::to_owned),
            None => last.kept,
        },
        error: match decision {
            Some(_) => asked.error.clone(),
            None => last.error,
        },
    });
    if let Some(kept) = kept(decision) {
        let error = asked.error.as_deref();
        tracing::warn!(
            caller,
            kept,
            error,
            "the account's numbers weren't taken: what is known holds"
        );
    }
}

fn kept(decision: Option<&Decision>) -> Option<&'static str> {
    decision?.kept.map(Kept::code)
}

/// Pauses the tenants of those sets that may not send, before anything else is written. Answers whom.
async fn pause(
    schedule: &Schedule,
    asked: &Refresh,
    tenants: &Tenants,
    look: &Look,
    notes: &mut Notes,
) -> Result<Vec<String>, Failure> {
    let used = tenants.sets();
    let mut paused = Vec::new();
    let stands = |tenant: &TenantName| {
        let pause = look.paused.iter().find(|pause| pause.tenant == *tenant);
        pause.is_some_and(|pause| pause.until.is_none())
    };
    for switch in asked.sets.iter().flatten() {
        if !used.contains(&switch.set) {
            continue; // its tenants are gone by now
        }
        if !switch.sending {
            for tenant in tenants
                .through(&switch.set)
                .filter(|tenant| !stands(tenant))
            {
                let done = schedule.pause(tenant, None, SET_PAUSED).await;
                done.map_err(redis_failure)?;
                tracing::warn!(%tenant, set = switch.set, reason = SET_PAUSED, "paused");
                paused.push(tenant.to_string());
            }
        }
        notes.verified.read(&switch.set);
    }
    Ok(paused)
}

/// Lets mail go again that was kept back because the account couldn't send, if it can.
async fn unblock(schedule: &Schedule, found: &Found, look: &Look) -> Result<(), Failure> {
    const REASONS: [&str; 4] = [
        "sending_disabled",
        "shutdown",
        "account_paused",
        "suspended",
    ];
    let allowed = found
        .decision
        .is_some_and(|decision| decision.kept.is_none() && decision.sending == Sending::Allowed);
    let is_blocked = look
        .blocked()
        .is_some_and(|(_, reason)| REASONS.contains(&reason));
    if allowed && is_blocked && schedule.unblock(&REASONS).await.map_err(redis_failure)? {
        tracing::info!("the account may send again");
    }
    Ok(())
}

/// Writes the configuration sets and the budget, where that differs. The sets come first: whoever can be booked has one.
async fn write(
    control: &Keeper<'_>,
    tenants: &Tenants,
    look: &Look,
    notes: &Notes,
    done: &mut Done,
) -> Result<(), Failure> {
    let numbers = numbers::numbers(control.settings, notes.known.as_ref(), notes.count.as_ref());
    let numbers = numbers.map_err(|error| Failure {
        code: "bad_budget".to_owned(),
        message: format!("the settings make no budget, the last one stays: {error}"),
    })?;
    // Always: a Redis that was emptied since `look` has none.
    let written = control.schedule.write_tenants(&tenants.by_name()).await;
    written.map_err(redis_failure)?;
    if tenants.0.is_empty() {
        done.warnings.push(
            "there are no tenants, nobody can send: set SENDSLOT_TENANTS, or give one a parameter"
                .to_owned(),
        );
    }
    let Some(Numbers {
        budget,
        source,
        warnings,
    }) = numbers
    else {
        let warning = "the account was never known and SENDSLOT_LIMIT is not set: nothing was written, and nobody can \
                       send until a refresh succeeds";
        tracing::error!("{warning}");
        done.warnings.push(warning.to_owned());
        return Ok(());
    };
    done.warnings.extend(warnings);
    let seed = Seed {
        source: source.to_owned(),
        budget,
        tenants: tenants.seed(),
    };
    let written = control.schedule.seed(&seed).await.map_err(redis_failure)?;
    let was = look.budget.contains_key("source").then(|| Was {
        limit: look.budget.get("limit").cloned().unwrap_or_default(),
        daily_quota: status::daily_quota(look),
    });
    let now = Was {
        limit: budget.limit().to_string(),
        daily_quota: budget.caps().day,
    };
    let changed = was.as_ref() != Some(&now);
    if changed {
        log_change(look, &now, source, &done.warnings);
    } else if written {
        tracing::info!(source, "tenants or other settings of the budget written");
    }
    done.budget = Some(Budget {
        limit: now.limit,
        daily_quota: now.daily_quota,
        source: source.to_owned(),
        changed,
        was,
    });
    Ok(())
}

fn log_change(look: &Look, now: &Was, source: &str, warnings: &[String]) {
    let was = |word: &str| look.budget.get(word).map_or("nothing", String::as_str);
    tracing::info!(
        limit = now.limit,
        was_limit = was("limit"),
        daily_quota = now.daily_quota,
        was_daily_quota = was("daily_quota"),
        source,
        was_source = was("source"),
        "budget changed"
    );
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

/// What is metered of a refresh: what is the case, and of what was judged only what was handed in.
fn metrics(
    control: &Keeper<'_>,
    found: &Found,
    notes: &Notes,
    look: &Look,
    has_budget: bool,
    generation_changed: bool,
    paused: usize,
) -> Metrics {
    let settings = control.settings;
    let mut metrics = Metrics::new(&settings.namespace, &settings.service, None);
    if let Some(decision) = found.decision {
        metrics.count("BudgetKept", usize::from(decision.kept.is_some()));
    }
    metrics.count("RedisGenerationChanged", usize::from(generation_changed));
    if let Some(invalid) = &found.invalid {
        metrics.count("TenantsInvalid", invalid.len());
    }
    metrics.count("TenantsPaused", paused);
    metrics.count("BookedAhead", amount(look.booked.iter().sum()));
    metrics.gauge(
        "BookedAheadSeconds",
        "Seconds",
        number(status::ahead_seconds(look)),
    );
    if found.counted {
        let unscheduled = notes.count.map_or(0, |count| count.unscheduled);
        metrics.count("UnscheduledSends", amount(unscheduled));
    }
    if !has_budget {
        return metrics;
    }
    let limit = look
        .budget
        .get("limit")
        .and_then(|limit| limit.parse().ok());
    if let Some(limit) = limit.map(sendslot_domain::Rate::per_second) {
        metrics.gauge("SendRate", "Count/Second", limit);
    }
    if let Some(rate) = status::effective_rate(look) {
        metrics.gauge("EffectiveRate", "Count/Second", rate);
    }
    let known = notes.known.as_ref();
    if let Some(quota) = numbers::quota(settings, known) {
        metrics.count("DailyQuota", amount(quota));
    }
    let foreign = notes.count.map_or(0, |count| count.foreign);
    let ours = look.sent_since(first_counted(look.now));
    if let Some(percent) = numbers::used_percent(settings, known, ours, foreign) {
        metrics.gauge("QuotaUsedPercent", "Percent", percent);
    }
    metrics
}

fn amount(recipients: u64) -> usize {
    usize::try_from(recipients).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
const fn number(seconds: u64) -> f64 {
    seconds as f64
}
