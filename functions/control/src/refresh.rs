//! The budget follows the account.

use sendslot_domain::{
    Millis, TenantName,
    account::{self, Decision, Kept, judge},
    reconcile::{self, first_counted, first_under_way, reconcile},
    warm_up::Date,
};
use sendslot_runtime::{
    Metrics,
    control::{Budget, Failure, InvalidTenant, LastRefresh, Refresh, Refreshed, Was},
};
use sendslot_schedule::{Look, Schedule, Seed};

use crate::{
    Control,
    handler::redis_failure,
    notes::Notes,
    numbers::{self, Numbers},
    status,
    tenants::{self, Tenants},
};

/// For how long nobody may send after a refresh that found the account unable to: two refreshes.
const BLOCKED: Millis = Millis::from_secs(120);
/// Why a tenant is paused whose configuration set may not send.
const SET_PAUSED: &str = "set_paused";

/// What a refresh found out before it writes anything.
struct Found {
    decision: Option<Decision>,
    /// Whether the provider's count was taken.
    counted: bool,
    /// Tenants whose parameter wasn't taken; `None` if none were handed in.
    invalid: Option<Vec<InvalidTenant>>,
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
    control: &Control,
    asked: &Refresh,
    caller: &str,
) -> Result<(Refreshed, Metrics), Failure> {
    let schedule = &control.schedule;
    let before = schedule.look().await.map_err(redis_failure)?;
    let mut notes = Notes::read(&before);
    let noted_generation = notes.verified.generation_ms;
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
    let used = found.tenants.sets();
    let is_empty = !before.budget.contains_key("source");
    done.pending = is_empty
        && !asked.is_final
        && notes.verified.is_incomplete(&used)
        && notes.verified.waits(before.now);
    if done.pending {
        tracing::warn!("redis is empty: the budget waits until the configuration sets were read");
    } else {
        notes.verified.pending_since_ms = None;
        write(control, &found.tenants, &before, &mut notes, &mut done).await?;
    }
    let verify = if asked.is_final {
        Vec::new() // nothing more is read in this refresh
    } else {
        notes.verified.ask(&used)
    };

    let after = schedule.look().await.map_err(redis_failure)?;
    let generation = after.generation().map(|generation| generation.0);
    if done.budget.is_some() {
        notes.verified.generation_ms = generation;
    }
    let changes = notes.changes(&after);
    if !changes.is_empty() {
        schedule.note(&changes).await.map_err(redis_failure)?;
    }
    let changed = done.budget.is_some() && noted_generation != generation;
    let empty_found = is_empty || noted_generation != generation;
    let metrics = metrics(
        control,
        &found,
        &notes,
        &after,
        done.budget.is_some(),
        changed,
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
        warnings: done.warnings,
    };
    Ok((refreshed, metrics))
}

/// Judges what was handed in. What wasn't stays as it was noted.
fn find(control: &Control, asked: &Refresh, look: &Look, notes: &mut Notes) -> Found {
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
    let invalid = asked.tenants.as_ref().map(|parameters| {
        let (good, invalid) = tenants::taken(parameters, &notes.tenants);
        notes.tenants = good;
        invalid
    });
    let today = Date::of(look.now);
    Found {
        decision,
        counted: provider.is_some(),
        invalid,
        tenants: Tenants::of(&control.settings.tenants, &notes.tenants, today),
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

/// Writes the configuration sets and the budget, where they differ. The sets come first: whoever can be booked has one.
async fn write(
    control: &Control,
    tenants: &Tenants,
    look: &Look,
    notes: &mut Notes,
    done: &mut Done,
) -> Result<(), Failure> {
    let numbers = numbers::numbers(
        &control.settings,
        notes.known.as_ref(),
        notes.count.as_ref(),
    );
    let numbers = numbers.map_err(|error| Failure {
        code: "bad_budget".to_owned(),
        message: format!("the settings make no budget, the last one stays: {error}"),
    })?;
    let sets = tenants.by_name();
    if notes.sets.as_ref() != Some(&sets) {
        let of =
            |(name, (_, set)): (&TenantName, &(_, Option<String>))| (name.clone(), set.clone());
        let all: Vec<_> = tenants.0.iter().map(of).collect();
        let written = control.schedule.write_sets(&all).await;
        written.map_err(redis_failure)?;
        notes.sets = Some(sets);
    }
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
    control: &Control,
    found: &Found,
    notes: &Notes,
    look: &Look,
    has_budget: bool,
    generation_changed: bool,
) -> Metrics {
    let settings = &control.settings;
    let mut metrics = Metrics::new(&settings.namespace, &settings.service, None);
    if let Some(decision) = found.decision {
        metrics.count("BudgetKept", usize::from(decision.kept.is_some()));
    }
    metrics.count("RedisGenerationChanged", usize::from(generation_changed));
    if let Some(invalid) = &found.invalid {
        metrics.count("TenantsInvalid", invalid.len());
    }
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
