//! Slots for parked mail, and back to the schedule.

use futures_util::future::join;
use sendslot_domain::{Lane, SendId};
use sendslot_runtime::control::Failure;
use sendslot_schedule::{Ask, Booking, ScheduleError, Standing, Unused};
use tokio::time::{Instant, timeout_at};

use crate::{
    failure::{late, redis_failure},
    ports::Book,
};

/// Bookings of a lane that came to nothing, as the schedule is told.
#[derive(Default)]
pub(crate) struct Undone {
    slots: Vec<Unused>,
    places: Vec<Ask>,
}

impl Undone {
    /// The mail isn't where this booking asks it to be.
    pub(crate) fn add(&mut self, ask: &Ask, booking: &Booking) {
        match booking {
            Booking::Slot(slot) => self.slots.push(Unused {
                tenant: ask.tenant.clone(),
                goes: slot.at.cell(),
                cells: slot.cells.clone(),
                slot_only: false,
            }),
            // The bucket is its line: it asks anew later.
            Booking::Wait(wait) if ask.standing == Standing::New => self.places.push(Ask {
                standing: Standing::Left { place: wait.place },
                ..ask.clone()
            }),
            // One that isn't new has no place to leave.
            Booking::Wait(_)
            | Booking::UnknownTenant
            | Booking::OverCap
            | Booking::Paused
            | Booking::Left
            | Booking::Cancelled
            | Booking::Blocked(_) => {}
        }
    }
}

/// Books in one call, one answer each.
pub(crate) async fn book(
    schedule: &impl Book,
    lane: Lane,
    asks: &[Ask],
    ids: &[Option<SendId>],
    by: Instant,
) -> Result<Vec<Booking>, Failure> {
    let answers = in_time(by, schedule.book(lane, asks, ids)).await?;
    if answers.len() == asks.len() {
        return Ok(answers);
    }
    Err(redis_failure(ScheduleError::Answer {
        script: "book",
        answer: format!("{} bookings to {} asks", answers.len(), asks.len()),
    }))
}

/// Gives the slots of a lane back, and leaves the places in its lines, as far as that works until the moment `by`.
pub(crate) async fn undo(schedule: &impl Book, lane: Lane, undone: &Undone, by: Instant) {
    let Undone { slots, places } = undone;
    let release = async {
        if !slots.is_empty()
            && let Err(error) = in_time(by, schedule.release(lane, slots)).await
        {
            // They stay empty, which costs their part of the rate and nothing else.
            tracing::error!(lane = lane.as_str(), slots = slots.len(), %error, "slots not released");
        }
    };
    let leave = async {
        if !places.is_empty()
            && let Err(error) = in_time(by, schedule.book(lane, places, &[])).await
        {
            // The line is too long until it is seen that nobody asks with them.
            tracing::error!(lane = lane.as_str(), places = places.len(), %error, "places not left");
        }
    };
    join(release, leave).await;
}

/// A call's answer, if it comes until the moment `by`.
pub(crate) async fn in_time<T>(
    by: Instant,
    call: impl Future<Output = Result<T, ScheduleError>>,
) -> Result<T, Failure> {
    match timeout_at(by, call).await {
        Ok(answer) => answer.map_err(redis_failure),
        Err(_) => Err(late("redis")),
    }
}
