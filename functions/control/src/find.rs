//! Where a mail is, for people: by its claim, by what was noted of it, and by what is in the bucket.
//!
//! The claim has the first word, as it alone says whether a mail is sent. What was noted is remembered for a day, and each hop of what waits
//! notes it anew; of what is parked the bucket is asked, so that it is found for as long as it is there.

use sendslot_domain::{Lane, Moment, SendId, TenantName};
use sendslot_runtime::{
    control::{Failure, Find, Found, Happened},
    parking::ParkedKey,
};
use sendslot_schedule::{Found as Known, Mark, Schedule, Step, What};
use tokio::time::Instant;

use crate::{
    failure::{bad_field, listed, redis_failure},
    ports::Parked,
};

/// So many of a tenant's parked mails are looked through for one that nothing else tells of.
const LOOKED_THROUGH: usize = 20_000;
/// And for so long.
const LOOKS_FOR: std::time::Duration = std::time::Duration::from_secs(6);

/// Where a mail is.
pub(crate) async fn find(
    schedule: &Schedule,
    parked: &impl Parked,
    ask: &Find,
) -> Result<Found, Failure> {
    let (tenant, send_id) = named("find", &ask.tenant, &ask.send_id)?;
    let known = known(schedule, &tenant, &send_id).await?;
    let key = match &known.claim {
        Some(mark) if mark.is_end() => None,
        _ => parked_as(parked, &tenant, &send_id, &known).await?,
    };
    Ok(told(&tenant, &send_id, &known, key.as_ref()))
}

/// Whose mail, and which.
pub(crate) fn named(
    action: &str,
    tenant: &str,
    send_id: &str,
) -> Result<(TenantName, SendId), Failure> {
    let tenant = tenant
        .parse()
        .map_err(|error| bad_field(format!("{action}: tenant {tenant:?}: {error}")))?;
    let send_id = send_id
        .parse()
        .map_err(|error| bad_field(format!("{action}: send_id {send_id:?}: {error}")))?;
    Ok((tenant, send_id))
}

/// What Redis knows of a mail.
pub(crate) async fn known(
    schedule: &Schedule,
    tenant: &TenantName,
    send_id: &SendId,
) -> Result<Known, Failure> {
    let mails = [(tenant.clone(), send_id.clone())];
    let mut known = schedule.find(&mails).await.map_err(redis_failure)?;
    Ok(known.pop().unwrap_or_default())
}

/// The key of a mail that is parked: as it was noted, or where nothing newer was noted, as it is found among its tenant's.
pub(crate) async fn parked_as(
    parked: &impl Parked,
    tenant: &TenantName,
    send_id: &SendId,
    known: &Known,
) -> Result<Option<ParkedKey>, Failure> {
    match known.steps.last().map(|step| &step.what) {
        Some(What::Parked { first_seen, reason }) => {
            let (Some(lane), Ok(reason)) = (known.lane, reason.parse()) else {
                return Ok(None);
            };
            let key = ParkedKey {
                tenant: tenant.clone(),
                first_seen: *first_seen,
                reason,
                lane,
                send_id: send_id.clone(),
            };
            let there = parked.fetch(&key).await;
            let there = listed(Ok::<_, ()>(there))?.is_some();
            Ok(there.then_some(key))
        }
        None => look_through(parked, tenant, send_id).await,
        Some(_) => Ok(None),
    }
}

async fn look_through(
    parked: &impl Parked,
    tenant: &TenantName,
    send_id: &SendId,
) -> Result<Option<ParkedKey>, Failure> {
    const PAGE: usize = 1000;
    let until = Instant::now() + LOOKS_FOR;
    let (mut after, mut looked) = (None, 0);
    while looked < LOOKED_THROUGH && Instant::now() < until {
        let page = parked.oldest(tenant, None, after.as_ref(), PAGE).await;
        let page = listed(Ok::<_, ()>(page))?;
        looked += page.len();
        let is_last = page.len() < PAGE;
        after = page.last().cloned();
        if let Some(found) = page.into_iter().find(|key| key.send_id == *send_id) {
            return Ok(Some(found));
        }
        if is_last {
            return Ok(None);
        }
    }
    tracing::warn!(%tenant, looked, "too much is parked to be looked through for one mail");
    Ok(None)
}

/// A mail's state in a word, and since when.
pub(crate) struct State {
    pub(crate) word: String,
    pub(crate) since: Option<Moment>,
}

impl State {
    fn of(word: &str, since: Option<Moment>) -> Self {
        Self {
            word: word.to_owned(),
            since,
        }
    }
}

/// Where a mail is by all that is known.
pub(crate) fn state(known: &Known, key: Option<&ParkedKey>) -> State {
    let last = known.steps.last();
    let noted = last.map(|step| step.at);
    match (&known.claim, key, last.map(|step| &step.what)) {
        (Some(Mark::Ended { how, at }), ..) => State::of(how, Some(*at)),
        (Some(Mark::Sending { .. }), ..) => State::of("sending", None),
        // What was put aside has its claim yet, if that is uncertain.
        (_, Some(_), _) => State::of("parked", noted),
        (_, _, Some(What::Dead { .. })) => State::of("dead_lettered", noted),
        (Some(Mark::Uncertain { since }), ..) => State::of("uncertain", Some(*since)),
        (Some(Mark::Unreadable), ..) => State::of("uncertain", None),
        // It was parked, and isn't there any more: somebody removed it by hand.
        (None, None, Some(What::Parked { .. } | What::Other(_)) | None) => {
            State::of("unknown", None)
        }
        (None, None, Some(what)) => State::of(word(what), noted),
    }
}

fn word(what: &What) -> &str {
    match what {
        What::Booked { .. } => "booked",
        What::Waiting { .. } => "waiting",
        What::Scheduled { .. } => "scheduled",
        What::Parked { .. } => "parked",
        What::Dead { .. } => "dead_lettered",
        What::Suppressed => "suppressed",
        What::Cancelled => "cancelled",
        What::Other(word) => word,
    }
}

fn told(tenant: &TenantName, send_id: &SendId, known: &Known, key: Option<&ParkedKey>) -> Found {
    let State { word, since } = state(known, key);
    let mut history: Vec<Happened> = known.steps.iter().map(happened).collect();
    if let Some(Mark::Ended { how, at }) = &known.claim
        && history.last().is_none_or(|last| last.what != *how)
    {
        history.push(Happened {
            at_ms: at.0,
            what: how.clone(),
            ..Happened::default()
        });
    }
    let last = history.iter().rev().find(|one| one.what == word);
    let reason = last.and_then(|last| last.reason.clone());
    let lane = key.map(|key| key.lane).or(known.lane);
    Found {
        tenant: tenant.to_string(),
        send_id: send_id.to_string(),
        since_ms: since.map(|since| since.0),
        lane: lane.map(|lane: Lane| lane.to_string()),
        recipients: known.cost,
        due_ms: last.and_then(|last| last.due_ms),
        reason: reason.or_else(|| key.map(|key| key.reason.as_str().to_owned())),
        history,
        state: word,
    }
}

fn happened(step: &Step) -> Happened {
    let (due, reason) = match &step.what {
        What::Booked { slot, .. } => (Some(*slot), None),
        What::Waiting { until } | What::Scheduled { until } => (Some(*until), None),
        What::Parked { reason, .. } | What::Dead { reason } => (None, Some(reason.clone())),
        What::Suppressed | What::Cancelled | What::Other(_) => (None, None),
    };
    Happened {
        at_ms: step.at.0,
        what: word(&step.what).to_owned(),
        due_ms: due.map(|due| due.0),
        reason,
    }
}
