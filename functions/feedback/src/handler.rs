//! The way of a batch, without AWS or Redis.
//!
//! 1. Each body is read. What is no event of ours is counted and done with.
//! 2. Tenants are asked for, those that aren't known yet. Events of tenants that nobody could be asked for come back.
//! 3. One call takes all events in: marks, counts, whom nobody may be sent to.
//! 4. Tenants that events tell against are judged by what is counted now; whoever is over is paused in Redis, at once, and then at SES. Where
//!    Redis didn't take the pause, the events come back that led to it. They are duplicates by then, and judged all the same.
//!
//! All that takes, at its longest, a third of the function's timeout of 30 s: 0.5 s for the tenants, [`REDIS_TIMEOUT`] each for taking in, for who is
//! paused, and for the pauses, and [`SWITCH_TIMEOUT`] for the switches. Several tenants are paused beside one another.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use futures_util::future::join_all;
use sendslot_domain::{
    Millis, Moment, TenantName,
    reputation::{Breach, Verdict, judge},
};
use sendslot_runtime::{
    AskTenants, FeedbackSettings, Known, Metrics, TenantSettings, Tenants, switch::Switch,
};
use sendslot_schedule::{Counted, Fed, ScheduleError, Told};
use tokio::time::{error::Elapsed, timeout};
use tracing::{debug, error, info, warn};

use crate::{
    event::{Event, Kind},
    ports::{Events, Pauses},
};

/// The longest that one call to Redis may take.
pub const REDIS_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest that switching a configuration set may take.
pub const SWITCH_TIMEOUT: Duration = Duration::from_secs(3);
/// How much longer a mark lives than any message: as `send` has it.
const MEMORY_MARGIN: Millis = Millis::from_secs(86_400);
/// An event stands for the one that its mail was accepted for so long: that one is remembered for longer, and counted once.
const STANDS_FOR_SENT: Millis = Millis::from_secs(24 * 3600);

/// The counts of a batch; each is there in every batch, zero or not. Those of events are in recipients, and of new events only; `Duplicate` and
/// `Unknown` are in events, the others in tenants.
pub const COUNTS: [&str; 14] = [
    "Sent",
    "Delivered",
    "Bounced",
    "BouncedTransient",
    "BouncedSuppressed",
    "Complained",
    "Delayed",
    "Rejected",
    "RenderingFailed",
    "Duplicate",
    "Unknown",
    "TenantsPaused",
    "TenantsWarned",
    "NotSwitched",
];

/// The function.
pub struct Feedback<R, S> {
    redis: R,
    switches: S,
    settings: FeedbackSettings,
    tenants: Tenants,
}

/// An event under way, and the message it came in.
struct Taken {
    message: String,
    event: Event,
}

/// A tenant that is over a limit.
struct Over {
    tenant: TenantName,
    settings: Arc<TenantSettings>,
    breach: Breach,
}

/// What became of a pause.
struct Paused {
    tenant: TenantName,
    /// Whether Redis has it.
    stands: bool,
    /// Whether it wasn't there before.
    is_new: bool,
    /// Whether SES should have been told and wasn't.
    not_switched: bool,
}

impl<R: Events + Pauses + AskTenants, S: Switch> Feedback<R, S> {
    /// Works with these parts.
    pub fn new(redis: R, switches: S, settings: FeedbackSettings) -> Self {
        Self {
            redis,
            switches,
            settings,
            tenants: Tenants::asked(),
        }
    }

    /// Takes a batch in: the answer that SQS gets, which names the messages that come back, and the batch's metrics.
    pub async fn handle(&self, batch: SqsEvent, now: Moment) -> (SqsBatchResponse, Metrics) {
        let FeedbackSettings {
            namespace, service, ..
        } = &self.settings;
        let mut metrics = Metrics::new(namespace, service, None);
        for name in COUNTS {
            metrics.count(name, 0);
        }
        let mut response = SqsBatchResponse::default();

        let read = read(batch, now, &mut metrics);
        let tenants = read.iter().map(|taken| &taken.event.tenant);
        let known = self.tenants.of(&self.redis, tenants).await;
        let (mut ours, mut settings) = (Vec::with_capacity(read.len()), BTreeMap::new());
        for taken in read {
            let tenant = &taken.event.tenant;
            match known.get(tenant) {
                // Another stack of this account may have a tenant of the same name; its set is another.
                Some(Known::As(theirs)) if is_foreign(&taken.event, theirs) => {
                    metrics.count("Unknown", 1);
                    warn!(message_id = taken.message, %tenant, "through a configuration set that isn't its tenant's");
                }
                Some(Known::As(theirs)) => {
                    settings.insert(tenant.clone(), theirs.clone());
                    ours.push(taken);
                }
                Some(Known::Unknown) => {
                    metrics.count("Unknown", 1);
                    warn!(message_id = taken.message, %tenant, "of a tenant that nobody knows");
                }
                Some(Known::NotTold) | None => response.add_failure(taken.message),
            }
        }
        if ours.is_empty() {
            return (response, metrics);
        }
        match self.take_in(&ours, now, &mut metrics).await {
            Ok(counted) => {
                let stuck = self.judge(&settings, counted, &mut metrics).await;
                let tells = |taken: &&Taken| {
                    tells_against(taken.event.kind) && stuck.contains(&taken.event.tenant)
                };
                let back = ours.iter().filter(tells);
                back.for_each(|taken| response.add_failure(&taken.message));
            }
            Err(why) => {
                error!(
                    error = why,
                    events = ours.len(),
                    "not taken in: they come back"
                );
                for taken in &ours {
                    response.add_failure(&taken.message);
                }
            }
        }
        (response, metrics)
    }

    /// Has Redis take the events in. Answers what is counted by now of each tenant that one of them tells against.
    async fn take_in(
        &self,
        ours: &[Taken],
        now: Moment,
        metrics: &mut Metrics,
    ) -> Result<HashMap<TenantName, Counted>, String> {
        let mut fed = Vec::with_capacity(2 * ours.len());
        for Taken { event, .. } in ours {
            // Events may be lost, and come in any order: whatever happens to a mail later says that it was sent, too.
            if stands_for_sent(event, now) {
                fed.push(sent(event));
            }
            fed.push(own(event));
        }
        let memory = Millis(
            self.settings
                .max_message_age
                .0
                .saturating_add(MEMORY_MARGIN.0),
        );
        let answer = timeout(REDIS_TIMEOUT, self.redis.feed(memory, &fed)).await;
        let mut answers = match answer {
            Ok(Ok(answers)) if answers.len() == fed.len() => answers.into_iter(),
            other => return Err(failure(other)),
        };
        let mut counted = HashMap::new();
        for Taken { event, .. } in ours {
            if stands_for_sent(event, now) && answers.next().is_some_and(|(is_new, _)| is_new) {
                count(metrics, "Sent", event.addressed);
            }
            let Some((is_new, sums)) = answers.next() else {
                continue;
            };
            // All answers of a batch have the same sums of a tenant.
            counted.extend(sums.map(|sums| (event.tenant.clone(), sums)));
            note(event, is_new, now, metrics);
        }
        Ok(counted)
    }

    /// Pauses whoever is over a limit, and warns of whoever comes near one. Answers whom Redis didn't let be paused.
    async fn judge(
        &self,
        settings: &BTreeMap<TenantName, Arc<TenantSettings>>,
        counted: HashMap<TenantName, Counted>,
        metrics: &mut Metrics,
    ) -> Vec<TenantName> {
        let mut over = Vec::new();
        for (tenant, sums) in counted {
            let Some(theirs) = settings.get(&tenant) else {
                continue;
            };
            match judge(&theirs.thresholds.into(), sums.hour, sums.day) {
                Verdict::Fine => {}
                Verdict::Warn(breach) => {
                    metrics.count("TenantsWarned", 1);
                    warn!(%tenant, %breach, "half of a limit is reached");
                }
                Verdict::Pause(breach) => over.push(Over {
                    tenant,
                    settings: theirs.clone(),
                    breach,
                }),
            }
        }
        if over.is_empty() {
            return Vec::new();
        }
        let standing = match timeout(REDIS_TIMEOUT, self.redis.paused()).await {
            Ok(Ok(standing)) => standing,
            other => {
                let why = failure(other);
                error!(error = why, tenants = over.len(), "not paused: tried again");
                return over.into_iter().map(|over| over.tenant).collect();
            }
        };
        let pauses = over.into_iter().map(|over| self.pause(over, &standing));
        let mut stuck = Vec::new();
        for paused in join_all(pauses).await {
            metrics.count("TenantsPaused", paused.is_new.into());
            metrics.count("NotSwitched", paused.not_switched.into());
            if !paused.stands {
                stuck.push(paused.tenant);
            }
        }
        stuck
    }

    /// Pauses a tenant until it is resumed: in Redis, at once, and then at SES, which keeps it should Redis be lost.
    async fn pause(&self, over: Over, standing: &[TenantName]) -> Paused {
        let Over {
            tenant,
            settings,
            breach,
        } = over;
        let mut paused = Paused {
            stands: true,
            is_new: false,
            not_switched: false,
            tenant,
        };
        let tenant = &paused.tenant;
        // What was under way when it was paused still bounces.
        if standing.contains(tenant) {
            debug!(%tenant, %breach, "is paused already");
            return paused;
        }
        let reason = format!("{breach} (feedback)");
        let answer = timeout(REDIS_TIMEOUT, self.redis.pause(tenant, &reason)).await;
        if !matches!(answer, Ok(Ok(()))) {
            error!(%tenant, reason, error = failure(answer), "not paused: tried again");
            paused.stands = false;
            return paused;
        }
        paused.is_new = true;
        let set = settings.configuration_set.as_deref();
        warn!(%tenant, reason, configuration_set = set, caller = "feedback", "paused");
        let Some(set) = set else {
            return paused;
        };
        if settings.shares_set {
            warn!(%tenant, configuration_set = set, "not switched off, as others send through it: redis alone has the pause");
            return paused;
        }
        let why = match timeout(SWITCH_TIMEOUT, self.switches.switch(set, false)).await {
            Ok(Ok(())) => return paused,
            Ok(Err(error)) => error.to_string(),
            Err(_) => LATE.to_owned(),
        };
        error!(%tenant, configuration_set = set, error = why, "set not switched");
        paused.not_switched = true;
        paused
    }
}

/// Reads a batch; what is no event of ours, or nothing that is counted, is done with.
fn read(batch: SqsEvent, now: Moment, metrics: &mut Metrics) -> Vec<Taken> {
    let mut read = Vec::with_capacity(batch.records.len());
    for record in batch.records {
        let message = record.message_id.unwrap_or_default();
        match Event::read(record.body.as_deref().unwrap_or_default(), now) {
            Ok(event) if event.kind == Kind::Ignored => {}
            Ok(event) => read.push(Taken { message, event }),
            Err(unknown) => {
                metrics.count("Unknown", 1);
                warn!(message_id = message, error = %unknown, "deleted");
            }
        }
    }
    read
}

/// Counts and logs an event that was taken in.
fn note(event: &Event, is_new: bool, now: Moment, metrics: &mut Metrics) {
    if let Some(at) = event.at {
        metrics.longest("FeedbackLagMs", at.until(now));
    }
    let Event {
        kind,
        tenant,
        send_id,
        lane,
        recipients,
        ..
    } = event;
    let lane = lane.map(sendslot_domain::Lane::as_str);
    let (outcome, reason) = (kind.outcome(), event.reason.as_deref());
    let provider_message_id = event.message_id.as_deref();
    if is_new {
        if let Some(name) = kind.metric() {
            count(metrics, name, *recipients);
        }
        info!(%send_id, %tenant, lane, recipients, outcome, reason, provider_message_id);
    } else {
        // An event of the same mail may have stood for it: that it was sent isn't told twice then.
        if *kind != Kind::Sent {
            metrics.count("Duplicate", 1);
        }
        debug!(%send_id, %tenant, lane, recipients, outcome, reason, provider_message_id, "known");
    }
}

fn count(metrics: &mut Metrics, name: &'static str, recipients: u32) {
    metrics.count(name, usize::try_from(recipients).unwrap_or(usize::MAX));
}

/// Whether an event also says that its mail was sent, if that wasn't told. Older mail isn't counted any more, and has been heard of.
fn stands_for_sent(event: &Event, now: Moment) -> bool {
    event.kind.follows_sent() && event.sent_at.until(now) < STANDS_FOR_SENT
}

fn own(event: &Event) -> Fed {
    Fed {
        id: event.id.clone(),
        tenant: event.tenant.clone(),
        send_id: event.send_id.clone(),
        told: event.kind.told(),
        recipients: event.recipients,
        sent_at: event.sent_at,
        suppress: event.suppress.clone(),
    }
}

fn sent(event: &Event) -> Fed {
    Fed {
        id: event.sent_id.clone(),
        told: Told::Sent,
        recipients: event.addressed,
        suppress: None,
        ..own(event)
    }
}

const fn tells_against(kind: Kind) -> bool {
    matches!(kind.told(), Told::Bounced | Told::Complained)
}

const LATE: &str = "no answer in time";

/// What to say of a call to Redis that didn't do.
fn failure<T>(failed: Result<Result<T, ScheduleError>, Elapsed>) -> String {
    match failed {
        Ok(Ok(_)) => "an answer that doesn't fit".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => LATE.to_owned(),
    }
}

/// Whether a mail went through another configuration set than its tenant's.
fn is_foreign(event: &Event, settings: &TenantSettings) -> bool {
    let (went, set) = (&event.configuration_set, &settings.configuration_set);
    went.as_ref()
        .zip(set.as_ref())
        .is_some_and(|(went, set)| went != set)
}
