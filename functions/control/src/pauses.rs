//! Who may not send, by whose word: pause and resume.
//!
//! A pause is in Redis, which keeps the tenant's mail back at once, and at SES: its configuration set is switched off, which SES remembers
//! when Redis is lost, and which stops what gets past us. Whoever pauses does Redis first; whoever resumes switches the set on first, as a
//! tenant that books while its set is off only has its mail refused. A set that others send through as well stays on until they are all
//! paused: nobody is stopped for another's mail.

use std::collections::BTreeMap;

use sendslot_domain::{Millis, Rate, TenantName, warm_up::Date};
use sendslot_runtime::{
    ControlSettings, Metrics,
    control::{Failure, Pause, Paused, Resume, Resumed},
    switch::{Switch, SwitchError},
};
use sendslot_schedule::{Look, Schedule};

use crate::{
    failure::{bad_field, redis_failure},
    notes::Notes,
    refresh::BLOCKED,
    replay, status,
    tenants::{self, Tenants},
};

/// The longest reason, in characters.
const LONGEST_REASON: usize = 200;
/// Why nobody may send while the account is paused: a refresh that finds it may send lifts that.
const ACCOUNT_PAUSED: &str = "sending_disabled";

/// Pauses and resumes tenants.
pub(crate) struct Pauses<'a, W> {
    pub(crate) schedule: &'a Schedule,
    pub(crate) switches: &'a W,
    pub(crate) settings: &'a ControlSettings,
    pub(crate) caller: &'a str,
}

/// Whom a pause is of.
enum Whom<'a> {
    Tenant(&'a str),
    Set(&'a str),
    Account,
}

impl<W: Switch> Pauses<'_, W> {
    /// Pauses. The same again changes nothing, and tries again to switch off what wasn't.
    pub(crate) async fn pause(
        &self,
        asked: &Pause,
        metrics: &mut Metrics,
    ) -> Result<Paused, Failure> {
        let whom = whom(asked)?;
        let reason = format!("{} ({})", line("pause", &asked.reason, 1)?, self.caller);
        let look = self.schedule.look().await.map_err(redis_failure)?;
        let (all, notes) = self.tenants(&look);
        let (paused, set) = match whom {
            Whom::Account => {
                let paused = self.pause_account(&look, reason).await?;
                metrics.count("TenantsPaused", 0);
                return Ok(paused);
            }
            Whom::Tenant(name) => {
                let tenant = self.known(name, &look, &notes)?;
                let set = all.set(&tenant).map(str::to_owned);
                (vec![tenant], set)
            }
            Whom::Set(set) => {
                let tenants: Vec<TenantName> = all.through(set).cloned().collect();
                if tenants.is_empty() {
                    return Err(unknown_set(set, &notes));
                }
                (tenants, Some(set.to_owned()))
            }
        };
        let mut answer = self.pause_all(&paused, reason, &look, metrics).await?;
        metrics.count("NotSwitched", 0);
        if let Some(set) = set.filter(|_| !asked.switched) {
            let others = all.through(&set).filter(|other| !paused.contains(other));
            let sends = others
                .filter(|other| !is_paused_for_good(&look, other))
                .count();
            if !self.switch_off(&set, sends, metrics).await {
                answer.not_switched.push(set);
            }
        }
        Ok(answer)
    }

    /// Switches a configuration set off that so many others send through. Answers whether it is.
    async fn switch_off(&self, set: &str, others: usize, metrics: &mut Metrics) -> bool {
        let caller = self.caller;
        if others > 0 {
            tracing::warn!(
                set,
                others,
                caller,
                "set not switched off: others send through it"
            );
            return false;
        }
        match self.switches.switch(set, false).await {
            Ok(()) => true,
            Err(error @ SwitchError::Missing) => {
                tracing::warn!(set, %error, caller, "nothing goes through a set that isn't there");
                true
            }
            Err(error) => {
                tracing::error!(set, %error, caller, "set not switched");
                metrics.count("NotSwitched", 1);
                false
            }
        }
    }

    /// Pauses these tenants in Redis.
    async fn pause_all(
        &self,
        tenants: &[TenantName],
        reason: String,
        look: &Look,
        metrics: &mut Metrics,
    ) -> Result<Paused, Failure> {
        let caller = self.caller;
        let mut new = 0;
        let mut stands: Option<&sendslot_schedule::Pause> = None;
        for tenant in tenants {
            let standing = look.paused.iter().find(|pause| pause.tenant == *tenant);
            if let Some(pause) = standing.filter(|pause| pause.until.is_none()) {
                let (since_ms, was) = (pause.since.0, &pause.reason);
                tracing::info!(%tenant, caller, reason, since_ms, was, "is paused already");
                if stands.is_none_or(|first| pause.since < first.since) {
                    stands = Some(pause);
                }
                continue;
            }
            let paused = self.schedule.pause(tenant, None, &reason).await;
            paused.map_err(redis_failure)?;
            tracing::warn!(%tenant, caller, reason, at_ms = look.now.0, "paused");
            new += 1;
        }
        metrics.count("TenantsPaused", new);
        let stands = stands.filter(|_| new == 0);
        Ok(Paused {
            tenants: tenants.iter().map(ToString::to_string).collect(),
            already: new == 0,
            since_ms: stands.map_or(look.now, |pause| pause.since).0,
            reason: stands.map_or(reason, |pause| pause.reason.clone()),
            not_switched: Vec::new(),
        })
    }

    /// Lets nobody send for a while.
    async fn pause_account(&self, look: &Look, reason: String) -> Result<Paused, Failure> {
        let already = look.blocked().is_some();
        let left = self.schedule.block(BLOCKED, BLOCKED, ACCOUNT_PAUSED).await;
        let Millis(left_ms) = left.map_err(redis_failure)?;
        tracing::error!(
            caller = self.caller,
            reason,
            left_ms,
            at_ms = look.now.0,
            "the account is paused: nobody sends"
        );
        Ok(Paused {
            tenants: Vec::new(),
            already,
            since_ms: look.now.0,
            reason,
            not_switched: Vec::new(),
        })
    }

    /// Resumes. If its set can't be switched on, nothing is resumed.
    pub(crate) async fn resume(
        &self,
        asked: &Resume,
        metrics: &mut Metrics,
    ) -> Result<Resumed, Failure> {
        let rate = asked.rate.as_deref().map(rate).transpose()?;
        let reason = line("resume", asked.reason.as_deref().unwrap_or_default(), 0)?;
        let look = self.schedule.look().await.map_err(redis_failure)?;
        let (all, notes) = self.tenants(&look);
        let tenant = self.known(&asked.tenant, &look, &notes)?;
        if notes.tenants.is_none()
            && !tenants::is_known(&tenant, &self.settings.tenants, &BTreeMap::new())
        {
            return Err(Failure {
                code: "unknown_tenant".to_owned(),
                message: format!(
                    "nobody has told of tenant {tenant} since redis was emptied, so its configuration set isn't known: \
                     resume it after the next refresh"
                ),
            });
        }
        let set = all.set(&tenant);
        metrics.count("NotSwitched", 0);
        match set {
            None => {}
            Some(set) => match self.switches.switch(set, true).await {
                Ok(()) => {}
                Err(error @ SwitchError::Missing) => {
                    tracing::warn!(%tenant, set, %error, "resumed all the same: its mail will be refused");
                }
                Err(error) => {
                    tracing::error!(%tenant, set, %error, caller = self.caller, "set not switched: nothing is resumed");
                    metrics.count("NotSwitched", 1);
                    return Err(Failure {
                        code: "set_not_switched".to_owned(),
                        message: format!(
                            "configuration set {set:?} can't be switched on, so tenant {tenant} isn't resumed; ask again: {error}"
                        ),
                    });
                }
            },
        }
        let most = status::effective_rate(&look);
        let rate = match rate {
            Some(rate) => most.map_or(rate, |most| rate.min(most)),
            None => replay::usual_rate(&look),
        };
        let was = look.paused.iter().find(|pause| pause.tenant == tenant);
        let was_paused = self.schedule.resume(&tenant).await.map_err(redis_failure)?;
        let set_rate = self.schedule.set_replay(&tenant, rate).await;
        set_rate.map_err(redis_failure)?;
        let (was, since_ms) = (
            was.map(|pause| pause.reason.as_str()),
            was.map(|pause| pause.since.0),
        );
        tracing::warn!(%tenant, caller = self.caller, reason, was_paused, was, since_ms, set, rate, at_ms = look.now.0, "resumed");
        Ok(Resumed {
            tenant: tenant.to_string(),
            was_paused,
            rate,
        })
    }

    /// All tenants, and what is noted of them.
    fn tenants(&self, look: &Look) -> (Tenants, Notes) {
        let notes = Notes::read(look);
        let none = BTreeMap::new();
        let told = notes.tenants.as_ref().unwrap_or(&none);
        let all = Tenants::of(&self.settings.tenants, told, Date::of(look.now));
        (all, notes)
    }

    /// The tenant by its name: one as deployed, one with a parameter, or one that is gone and still paused.
    fn known(&self, name: &str, look: &Look, notes: &Notes) -> Result<TenantName, Failure> {
        let tenant: TenantName = name
            .parse()
            .map_err(|error| bad_field(format!("tenant {name:?}: {error}")))?;
        let none = BTreeMap::new();
        let told = notes.tenants.as_ref().unwrap_or(&none);
        let is_known = look.paused.iter().any(|pause| pause.tenant == tenant)
            || tenants::is_known(&tenant, &self.settings.tenants, told)
            // Nobody knows who is one; a pause that nobody needs does no harm.
            || notes.tenants.is_none();
        if is_known {
            return Ok(tenant);
        }
        Err(Failure {
            code: "unknown_tenant".to_owned(),
            message: format!(
                "tenant {name:?} isn't one of this deployment: check the spelling, or give it settings (in the \
                 function's SENDSLOT_TENANTS or in a parameter of its own) and refresh first"
            ),
        })
    }
}

/// Whether a tenant is paused until it is resumed.
fn is_paused_for_good(look: &Look, tenant: &TenantName) -> bool {
    let mut paused = look.paused.iter();
    paused.any(|pause| pause.tenant == *tenant && pause.until.is_none())
}

fn whom(asked: &Pause) -> Result<Whom<'_>, Failure> {
    let tenant = Some(asked.tenant.as_str()).filter(|tenant| !tenant.is_empty());
    let set = asked
        .configuration_set
        .as_deref()
        .filter(|set| !set.is_empty());
    match (tenant, set, asked.account) {
        (Some(tenant), None, false) => Ok(Whom::Tenant(tenant)),
        (None, Some(set), false) => Ok(Whom::Set(set)),
        (None, None, true) => Ok(Whom::Account),
        _ => Err(bad_field(
            "pause: give exactly one of tenant, configuration_set and \"account\": true: it says whom".to_owned(),
        )),
    }
}

/// A reason: one line of text.
fn line<'a>(action: &str, text: &'a str, least: usize) -> Result<&'a str, Failure> {
    let text = text.trim();
    let length = text.chars().count();
    if (least..=LONGEST_REASON).contains(&length) && !text.chars().any(char::is_control) {
        return Ok(text);
    }
    Err(bad_field(format!(
        "{action}: reason: give {least} to {LONGEST_REASON} characters in one line that say why, such as \"complaints\""
    )))
}

/// How fast parked mail goes, recipients per second.
fn rate(text: &str) -> Result<f64, Failure> {
    let rate: Rate = text
        .parse()
        .map_err(|error| bad_field(format!("resume: rate: {error}")))?;
    // The least that is kept of it.
    if rate.per_second() < 0.001 {
        return Err(bad_field(format!(
            "resume: rate: {text:?} is less than 0.001/s: give more, such as \"20/s\""
        )));
    }
    Ok(rate.per_second())
}

fn unknown_set(set: &str, notes: &Notes) -> Failure {
    let when = if notes.tenants.is_none() {
        "; nobody has told who there is since redis was emptied: the next refresh does, and reads the set's switch"
    } else {
        ""
    };
    Failure {
        code: "unknown_set".to_owned(),
        message: format!(
            "no tenant's mail goes through configuration set {set:?}: check the spelling, or name the tenant{when}"
        ),
    }
}
