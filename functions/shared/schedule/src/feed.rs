//! What the provider told of mails: marks, counts per tenant, and whom nobody may be sent to; and how fast parked mail goes again.

use redis::{FromRedisValue, Value};
use sendslot_domain::{
    Lane, Millis, Moment, SendId, TenantName,
    reputation::Counts,
    suppression::{AddressDigest, Cause},
};

use crate::{Schedule, ScheduleError, script::Named};

/// How long an event is remembered: the provider and its queues may hand it over again within so long.
const EVENT_MEMORY: Millis = Millis::from_secs(26 * 3600);

/// What an event tells, as far as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The provider has accepted the mail: this ends its claim.
    Sent,
    /// Recipients bounced.
    Bounced,
    /// Recipients complained.
    Complained,
    /// Something that counts neither for nor against a tenant.
    Else,
}

/// One event of the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fed {
    /// What tells it from all others, and is the same when it is handed over again; without colons or spaces.
    pub id: String,
    /// On whose behalf the mail went.
    pub tenant: TenantName,
    /// The mail.
    pub send_id: SendId,
    /// What it tells.
    pub told: Told,
    /// Of how many recipients.
    pub recipients: u32,
    /// When the provider accepted the mail, on its clock.
    pub sent_at: Moment,
    /// Whom nobody may be sent to from now on, and why.
    pub suppress: Option<(Cause, Vec<AddressDigest>)>,
}

/// What the provider told of a tenant's mail, by when the mail was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Of the last hour, to the minute.
    pub hour: Counts,
    /// Of the last 24 hours, to the quarter of an hour.
    pub day: Counts,
}

impl Schedule {
    /// Takes in a batch of events in one round trip. Answers for each whether it was new, and where it told of a bounce or a
    /// complaint, what is counted of its tenant by now. `memory` is how long a mark lives: longer than any message.
    ///
    /// # Errors
    /// When Redis can't be reached. Nothing was taken in then, unless the answer was lost.
    pub async fn feed(
        &self,
        memory: Millis,
        events: &[Fed],
    ) -> Result<Vec<(bool, Option<Counted>)>, ScheduleError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let script = &self.scripts.feed;
        let mut call = script.prepare();
        call.key(&self.keys.suppressed);
        call.arg(memory.0).arg(EVENT_MEMORY.0);
        for event in events {
            call.key(self.keys.event(&event.id))
                .key(self.keys.counts(&event.tenant))
                .key(self.keys.claim(&event.tenant, &event.send_id));
            let (cause, addresses) = event
                .suppress
                .as_ref()
                .map_or(("", Vec::<u8>::new()), |of| {
                    (
                        letter(of.0),
                        of.1.iter().flat_map(|digest| digest.0).collect(),
                    )
                });
            call.arg(match event.told {
                Told::Sent => "s",
                Told::Bounced => "b",
                Told::Complained => "c",
                Told::Else => "",
            })
            .arg(event.recipients)
            .arg(event.sent_at.0)
            .arg(addresses)
            .arg(cause);
        }
        call.key(&self.keys.uncertain);
        let answer: Vec<Vec<u64>> = Named::call(&call, &self.connection, &self.keys.budget).await?;
        if answer.len() != events.len() {
            return Err(script.unreadable(&answer));
        }
        let read = |one: &Vec<u64>| match one.as_slice() {
            [is_new] => Some((*is_new == 1, None)),
            [is_new, sums @ ..] => Some((*is_new == 1, Some(counted(sums)?))),
            [] => None,
        };
        let read: Option<Vec<_>> = answer.iter().map(read).collect();
        read.ok_or_else(|| script.unreadable(&answer))
    }

    /// Notes whom nobody may be sent to, as the provider's own list says. Each stands for three days unless it is heard of again.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn suppress(
        &self,
        addresses: &[(AddressDigest, Cause)],
    ) -> Result<u64, ScheduleError> {
        if addresses.is_empty() {
            return Ok(0);
        }
        let mut call = self.scripts.suppress.prepare();
        call.key(&self.keys.suppressed);
        for (address, cause) in addresses {
            call.arg(&address.0[..]).arg(letter(*cause));
        }
        Named::call(&call, &self.connection, &self.keys.budget).await
    }

    /// Forgets those of whom nothing was heard for three days, about a thousand of all a call. Answers where to go on, 0 at the end,
    /// and how many were forgotten.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn sweep(&self, from: u64) -> Result<(u64, u64), ScheduleError> {
        let script = &self.scripts.sweep;
        let mut call = script.prepare();
        call.key(&self.keys.suppressed).arg(from);
        let answer: Vec<Value> = Named::call(&call, &self.connection, &self.keys.budget).await?;
        let [next, gone] = answer.as_slice() else {
            return Err(script.unreadable(&answer));
        };
        let read = |value| u64::from_redis_value_ref(value).ok();
        read(next)
            .zip(read(gone))
            .ok_or_else(|| script.unreadable(&answer))
    }

    /// How many recipients of a tenant's parked mail may go now, so that whoever drives its replay keeps its rate. `beyond` is how many
    /// more went than were given before, below 0 if fewer. `usually` is the rate, recipients per second, unless one is set.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn draw(
        &self,
        tenant: &TenantName,
        wanted: u32,
        beyond: i64,
        usually: f64,
    ) -> Result<u32, ScheduleError> {
        self.draw_at(tenant.as_str(), wanted, beyond, format!("={usually:.3}"))
            .await
    }

    /// As [`Schedule::draw`], of a lane's dead letters, at this rate from now on, recipients per second.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn draw_dead(
        &self,
        lane: Lane,
        wanted: u32,
        beyond: i64,
        rate: f64,
    ) -> Result<u32, ScheduleError> {
        // No tenant's name begins so.
        self.draw_at(&format!("!{lane}"), wanted, beyond, format!("{rate:.3}"))
            .await
    }

    /// Sets the rate of a tenant's replay, recipients per second.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn set_replay(&self, tenant: &TenantName, rate: f64) -> Result<(), ScheduleError> {
        let _given = self
            .draw_at(tenant.as_str(), 0, 0, format!("{rate:.3}"))
            .await?;
        Ok(())
    }

    /// Forgets the rate of a tenant's replay: nothing is left to go.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn end_replay(&self, tenant: &TenantName) -> Result<(), ScheduleError> {
        let _given = self.draw_at(tenant.as_str(), 0, 0, String::new()).await?;
        Ok(())
    }

    async fn draw_at(
        &self,
        whose: &str,
        wanted: u32,
        beyond: i64,
        rate: String,
    ) -> Result<u32, ScheduleError> {
        let mut call = self.scripts.draw.prepare();
        call.key(&self.keys.replays);
        call.arg(whose).arg(wanted).arg(beyond).arg(rate);
        Named::call(&call, &self.connection, &self.keys.budget).await
    }
}

const fn letter(cause: Cause) -> &'static str {
    match cause {
        Cause::Bounce => "b",
        Cause::Complaint => "c",
    }
}

/// Reads the sums of feed.lua and counts.lua.
pub(crate) fn counted(sums: &[u64]) -> Option<Counted> {
    let [
        sent,
        bounced,
        complained,
        day_sent,
        day_bounced,
        day_complained,
    ] = *sums
    else {
        return None;
    };
    Some(Counted {
        hour: Counts {
            sent,
            bounced,
            complained,
        },
        day: Counts {
            sent: day_sent,
            bounced: day_bounced,
            complained: day_complained,
        },
    })
}
