//! A mail is taken off its way: the action `cancel`.
//!
//! Redis has the word: from then on nobody books or claims the send id. What the mail holds is given back at once, as far as it is known: its
//! slot, its place in the bucket, its schedule. Its message stays on its queue and ends when it surfaces.

use sendslot_domain::{Lane, Millis, Moment};
use sendslot_runtime::{
    control::{Cancel, Cancelled, Failure},
    parking::ParkedKey,
};
use sendslot_schedule::{Cancelled as Taken, Found as Known, Mark, Schedule, Unused, What};

use crate::{
    failure::{listed, redis_failure},
    find::{known, named, parked_as, state},
    ports::{Parked, Removed, Schedules},
};

/// Marks outlive messages by so much.
const MORE: Millis = Millis::from_secs(86_400);

/// What a cancellation works on.
pub(crate) struct Canceller<'a, S, F> {
    pub(crate) schedule: &'a Schedule,
    pub(crate) parked: &'a S,
    pub(crate) schedules: &'a F,
    pub(crate) max_message_age: Millis,
    pub(crate) caller: &'a str,
}

impl<S: Parked, F: Schedules> Canceller<'_, S, F> {
    pub(crate) async fn cancel(&self, ask: &Cancel) -> Result<Cancelled, Failure> {
        let (tenant, send_id) = named("cancel", &ask.tenant, &ask.send_id)?;
        let before = known(self.schedule, &tenant, &send_id).await?;
        let life = self.max_message_age.0 + far_ahead(&before).0 + MORE.0;
        let taken = self.schedule.cancel(&tenant, &send_id, Millis(life)).await;
        let found = match taken.map_err(redis_failure)? {
            Taken::Done(found) => found,
            Taken::TooLate(found) => {
                if !matches!(&found.claim, Some(Mark::Ended { how, .. }) if how == "cancelled") {
                    return Err(too_late(&found, ask));
                }
                found // asked again
            }
        };
        // From now on it isn't sent; what follows gives back what it holds, and may fail.
        let key = parked_as(self.parked, &tenant, &send_id, &found).await;
        let key = key.unwrap_or_else(|error| {
            tracing::warn!(%tenant, %send_id, %error, "it isn't known whether what is cancelled is parked: released, it ends");
            None
        });
        let was = state(&found, key.as_ref()).word;
        let released = self.release(&tenant, &found).await;
        if let Some(key) = &key {
            self.remove(key).await;
        }
        let scheduled = matches!(
            found.steps.last().map(|step| &step.what),
            Some(What::Scheduled { .. })
        );
        if scheduled && let Err(error) = self.schedules.forget(&tenant, &send_id).await {
            tracing::warn!(%tenant, %send_id, error, "what is cancelled still has a schedule: it ends when that is due");
        }
        tracing::info!(caller = self.caller, %tenant, %send_id, was, released, outcome = "cancelled");
        Ok(Cancelled {
            tenant: tenant.to_string(),
            send_id: send_id.to_string(),
            may_have_been_sent: matches!(found.claim, Some(Mark::Uncertain { .. })),
            was,
            released,
        })
    }

    /// Gives its slot back, if it has one ahead.
    async fn release(&self, tenant: &sendslot_domain::TenantName, found: &Known) -> bool {
        let Some(What::Booked { slot, cells }) = found.steps.last().map(|step| &step.what) else {
            return false;
        };
        if *slot <= found.now || cells.is_empty() || found.claim.is_some() {
            return false;
        }
        let unused = Unused {
            tenant: tenant.clone(),
            goes: slot.cell(),
            cells: cells.clone(),
            slot_only: false,
        };
        let lane = found.lane.unwrap_or(Lane::Bulk);
        let released = self.schedule.release(lane, &[unused]).await;
        if let Err(error) = &released {
            tracing::warn!(%tenant, %error, "the slot of what is cancelled stays empty");
        }
        released.is_ok()
    }

    /// Takes it out of the bucket.
    async fn remove(&self, key: &ParkedKey) {
        let removed = async {
            let mail = listed(Ok::<_, ()>(self.parked.fetch(key).await))?;
            let Some(mail) = mail else {
                return Ok(Removed::NotThere);
            };
            listed(Ok::<_, ()>(self.parked.remove(key, &mail.tag).await))
        };
        let removed: Result<Removed, Failure> = removed.await;
        if let Err(error) = removed {
            let ParkedKey {
                tenant, send_id, ..
            } = key;
            tracing::warn!(%tenant, %send_id, %error, "what is cancelled is still parked: released, it ends");
        }
    }
}

/// How far ahead it is to come, if it is far.
fn far_ahead(known: &Known) -> Millis {
    match known.steps.last().map(|step| &step.what) {
        Some(What::Scheduled { until }) => known.now.until(*until),
        _ => Millis(0),
    }
}

fn too_late(found: &Known, ask: &Cancel) -> Failure {
    let how = match &found.claim {
        Some(Mark::Ended {
            how,
            at: Moment(at),
        }) => format!("it ended as {how} at {at} ms"),
        Some(Mark::Sending { .. }) => "it is being sent just now".to_owned(),
        _ => "its state can't be read by this version".to_owned(),
    };
    Failure {
        code: "too_late".to_owned(),
        message: format!(
            "{} of tenant {} isn't cancelled: {how}",
            ask.send_id, ask.tenant
        ),
    }
}
