//! Pausing: in Redis, by `control`, and at SES.

use sendslot_runtime::{
    control::{Answer, Failure, Pause, Paused, Request},
    switch::{Switch, SwitchError},
};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use tracing::{error, info, warn};

use crate::{
    aws::CALL,
    event::{Alarm, Of},
    handler::Shared,
    notice::{self, Notice},
    ports::{CallError, Control, Outside},
    verify::{Confirmed, within},
};

/// Who pauses, in reasons and logs.
const CALLER: &str = "auto-pause";
/// The most characters of a reason that `control` takes.
const LONGEST_REASON: usize = 200;
/// What `control` says of a configuration set that no tenant of ours has. That is said again a minute later, as it is said of any set
/// while Redis, just lost, wasn't told yet who there is.
const NOT_OURS: [&str; 2] = ["unknown_set", "unknown_tenant"];

/// What a message came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// It changes nothing.
    Ignored { why: String },
    /// It isn't so.
    NotConfirmed { why: String },
    /// The configuration set is none of ours, for all that is known now.
    NotOurs,
    /// These are paused.
    Paused {
        tenants: Vec<String>,
        already: bool,
        switched: bool,
    },
    /// Nobody is paused in Redis, but SES lets nothing through this configuration set.
    SwitchedOff { configuration_set: String },
    /// The account is over, and that pauses nobody.
    AccountOver,
    /// Everybody is paused: by SES, by us, or both.
    AccountPaused,
    /// Nothing could be done.
    Failed,
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    /// Tenants that weren't paused before.
    pub(crate) tenants_paused: usize,
    /// Switches of SES that should be off, and aren't for all we know.
    pub(crate) not_switched: usize,
    /// What is to be done again.
    pub(crate) failures: Vec<String>,
}

impl Done {
    pub(crate) const fn with(outcome: Outcome) -> Self {
        Self {
            outcome,
            tenants_paused: 0,
            not_switched: 0,
            failures: Vec::new(),
        }
    }

    pub(crate) fn failed(why: String) -> Self {
        let mut done = Self::with(Outcome::Failed);
        done.failures.push(why);
        done
    }
}

/// Does what a confirmed alarm asks for.
pub(crate) async fn pause<O: Outside>(
    shared: &Shared<O>,
    alarm: &Alarm,
    confirmed: Confirmed,
    end: Instant,
) -> Done {
    let reason = reason(alarm, confirmed);
    match &alarm.of {
        Of::Set(set) => set_over(shared, set, &reason, end).await,
        Of::Account if shared.settings.pause_account => account_stop(shared, &reason, end).await,
        Of::Account => account_over(shared, &reason, end).await,
    }
}

/// Why, for people: one line. The alarm's name may be longer than a reason.
fn reason(alarm: &Alarm, confirmed: Confirmed) -> String {
    let (metric, name) = (alarm.metric.as_str(), &alarm.name);
    let [highest, threshold] = [confirmed.highest, confirmed.threshold].map(ratio);
    let with = |name: &str| format!("{metric} is {highest}, the alarm {name} is at {threshold}");
    let room = LONGEST_REASON.saturating_sub(with("").chars().count());
    let name = name.chars().filter(|c| !c.is_control()).take(room);
    with(&name.collect::<String>())
}

/// A ratio to a millionth, without needless zeros.
fn ratio(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Pauses whoever sends through a configuration set: in Redis first, where it counts at once and where it is known whose the set is.
async fn set_over<O: Outside>(shared: &Shared<O>, set: &str, reason: &str, end: Instant) -> Done {
    let asked = Pause {
        configuration_set: Some(set.to_owned()),
        ..asked(reason)
    };
    let told = ask(&shared.outside, asked, end).await;
    let mut done = Done::with(Outcome::Failed);
    let paused = match told {
        Ok(paused) if paused.tenants.is_empty() => {
            error!(set, "control paused nobody: nothing is switched off");
            return Done::failed("control paused nobody".to_owned());
        }
        Ok(paused) => Some(paused),
        Err(Failure { code, message }) if NOT_OURS.contains(&code.as_str()) => {
            error!(
                set,
                why = message,
                "an alarm of ours watches a configuration set that isn't: nothing is switched off"
            );
            done.outcome = Outcome::NotOurs;
            done.failures.push(format!("control: {code}: {message}"));
            return done;
        }
        Err(Failure { code, message }) => {
            // Whose the set is can't be told, but an alarm that tells our topic watches it, and SES's switch outlives Redis.
            error!(
                set,
                code,
                error = message,
                "not paused in Redis: the set is switched off all the same"
            );
            done.failures.push(format!("control: {code}: {message}"));
            None
        }
    };
    let switched = switch(&shared.outside, set, end, &mut done).await;
    let notice = match &paused {
        Some(paused) => {
            let tenants = paused.tenants.join(",");
            let (already, since_ms) = (paused.already, paused.since_ms);
            if already {
                info!(set, tenants, since_ms, reason, "is paused already");
            } else {
                done.tenants_paused = paused.tenants.len();
                warn!(set, tenants, since_ms, reason, "paused");
            }
            (!already || shared.owes(set))
                .then(|| notice::paused(shared, set, reason, paused, switched))
        }
        None if switched => Some(notice::switched_off(shared, set, reason)),
        None => None,
    };
    // An answer that was lost may have been that it is paused: then the next try finds that, and must tell of it.
    let unknown = paused.is_none();
    done.outcome = match paused {
        Some(paused) => Outcome::Paused {
            tenants: paused.tenants,
            already: paused.already,
            switched,
        },
        None if switched => Outcome::SwitchedOff {
            configuration_set: set.to_owned(),
        },
        None => Outcome::Failed,
    };
    let told = match notice {
        Some(notice) => tell(shared, &notice, end, &mut done).await,
        None => true,
    };
    shared.owe(set, unknown || !told);
    done
}

/// Switches a configuration set off, and says whether it is. The same again changes nothing: one that couldn't be switched when its tenant
/// was paused is switched now.
async fn switch(outside: &impl Switch, set: &str, end: Instant, done: &mut Done) -> bool {
    let until = (Instant::now() + CALL).min(end);
    let switched = timeout_at(until, outside.switch(set, false)).await;
    let timeout = || Err(SwitchError::Failed(CallError::timeout().to_string()));
    let Err(error) = switched.unwrap_or_else(|_| timeout()) else {
        return true;
    };
    error!(set, error = %error, "set not switched");
    done.not_switched += 1;
    // What isn't there lets nothing through, and won't be there next time.
    if error != SwitchError::Missing {
        done.failures
            .push(format!("configuration set {set}: {error}"));
    }
    false
}

/// The account itself is over, and nobody is to be paused for it.
async fn account_over<O: Outside>(shared: &Shared<O>, reason: &str, end: Instant) -> Done {
    warn!(
        reason,
        "the account itself is over its threshold: nobody is paused, as SENDSLOT_PAUSE_ACCOUNT is off"
    );
    let mut done = Done::with(Outcome::AccountOver);
    let notice = notice::account_over(shared, reason);
    tell(shared, &notice, end, &mut done).await;
    done
}

/// The account itself is over, and everybody is to be paused: at SES first, as a pause in Redis ends by itself while the account
/// may send. People are told each time: that nobody may send already can have other reasons.
async fn account_stop<O: Outside>(shared: &Shared<O>, reason: &str, end: Instant) -> Done {
    let mut done = Done::with(Outcome::Failed);
    let stopped = within(end, shared.outside.stop()).await;
    if let Err(CallError { code, message }) = &stopped {
        error!(code, error = message, "account not switched");
        done.not_switched += 1;
        done.failures.push(format!("account: {code}: {message}"));
    }
    let asked = Pause {
        account: true,
        ..asked(reason)
    };
    let told = ask(&shared.outside, asked, end).await;
    if let Err(Failure { code, message }) = &told {
        error!(code, error = message, "the account's pause isn't in Redis");
        done.failures.push(format!("control: {code}: {message}"));
    }
    if stopped.is_err() && told.is_err() {
        return done;
    }
    done.outcome = Outcome::AccountPaused;
    error!(reason, "the account is paused: nobody sends");
    let notice = notice::account_paused(shared, reason, stopped.is_ok());
    tell(shared, &notice, end, &mut done).await;
    done
}

fn asked(reason: &str) -> Pause {
    Pause {
        reason: reason.to_owned(),
        // It is done right after.
        switched: true,
        caller: Some(CALLER.to_owned()),
        ..Pause::default()
    }
}

async fn ask(outside: &impl Control, asked: Pause, end: Instant) -> Result<Paused, Failure> {
    let failure = |CallError { code, message }| Failure { code, message };
    let request = serde_json::to_vec(&Request::Pause(asked))
        .map_err(|error| failure(CallError::new("bad_request", error.to_string())))?;
    let answer = within(end, outside.ask(request)).await.map_err(failure)?;
    Answer::<Paused>::parse(&answer)
}

/// Tells people, if that is wanted. Answers whether nothing is left to tell.
async fn tell<O: Outside>(
    shared: &Shared<O>,
    notice: &Notice,
    end: Instant,
    done: &mut Done,
) -> bool {
    let Some(topic) = &shared.notify_topic else {
        return true;
    };
    let call = shared.outside.notify(topic, &notice.subject, &notice.text);
    let Err(CallError { code, message }) = within(end, call).await else {
        return true;
    };
    error!(
        code,
        error = message,
        subject = notice.subject,
        "nobody could be told"
    );
    done.failures
        .push(format!("notification: {code}: {message}"));
    false
}

/// What people couldn't be told is owed to them: the next message finds the tenant paused already, and would tell nobody.
impl<O> Shared<O> {
    fn owes(&self, of: &str) -> bool {
        self.owed().contains(of)
    }

    fn owe(&self, of: &str, owed: bool) {
        let mut all = self.owed();
        if owed {
            all.insert(of.to_owned());
        } else {
            all.remove(of);
        }
    }
}
