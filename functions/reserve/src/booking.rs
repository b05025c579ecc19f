//! Slots from the schedule, one call per lane, and back to it.

use sendslot_domain::Lane;
use sendslot_runtime::ByLane;
use sendslot_schedule::{Ask, Booking, ScheduleError, Standing, Unused};

use crate::ports::Book;

/// Nothing can be booked.
pub(crate) struct NotBooked {
    pub(crate) why: ScheduleError,
    /// What one lane had booked before the other failed.
    pub(crate) undone: ByLane<Undone>,
}

/// Bookings of a lane that came to nothing, as the schedule is told.
#[derive(Default)]
pub(crate) struct Undone {
    slots: Vec<Unused>,
    places: Vec<Ask>,
}

impl Undone {
    /// The message is not where this booking asks it to be.
    pub(crate) fn add(&mut self, ask: &Ask, booking: &Booking) {
        match booking {
            Booking::Slot(slot) => self.slots.push(Unused {
                tenant: ask.tenant.clone(),
                goes: slot.at.cell(),
                cells: slot.cells.clone(),
                slot_only: ask.standing == Standing::SlotOnly,
            }),
            // It comes again as new and joins its line anew. One that has waited comes again with its place.
            Booking::Wait(wait) if ask.standing == Standing::New => self.places.push(Ask {
                standing: Standing::Left { place: wait.place },
                ..ask.clone()
            }),
            Booking::Wait(_)
            | Booking::UnknownTenant
            | Booking::OverCap
            | Booking::Left
            | Booking::Blocked(_) => {}
        }
    }
}

/// Books all of them, in one call per lane. Either all are answered or none is booked.
pub(crate) async fn book(
    schedule: &impl Book,
    asks: &ByLane<Vec<Ask>>,
) -> Result<ByLane<Vec<Booking>>, NotBooked> {
    let mut bookings = ByLane::<Vec<Booking>>::default();
    for lane in Lane::ALL {
        let here = asks.get(lane);
        if here.is_empty() {
            continue;
        }
        let answered = match schedule.book(lane, here).await {
            Ok(answers) if answers.len() == here.len() => Ok(answers),
            Ok(answers) => Err(ScheduleError::Answer {
                script: "book",
                answer: format!("{} bookings to {} asks", answers.len(), here.len()),
            }),
            Err(error) => Err(error),
        };
        match answered {
            Ok(answers) => *bookings.get_mut(lane) = answers,
            Err(why) => {
                let mut undone = ByLane::<Undone>::default();
                for lane in Lane::ALL {
                    for (ask, booking) in asks.get(lane).iter().zip(bookings.get(lane)) {
                        undone.get_mut(lane).add(ask, booking);
                    }
                }
                return Err(NotBooked { why, undone });
            }
        }
    }
    Ok(bookings)
}

/// Gives the slots of a lane back, and leaves the places in its lines.
pub(crate) async fn undo(schedule: &impl Book, lane: Lane, undone: &Undone) {
    let Undone { slots, places } = undone;
    if !slots.is_empty()
        && let Err(error) = schedule.release(lane, slots).await
    {
        // They stay empty, which costs their part of the rate and nothing else.
        tracing::error!(lane = lane.as_str(), slots = slots.len(), %error, "slots not released");
    }
    if !places.is_empty()
        && let Err(error) = schedule.book(lane, places).await
    {
        // The line is too long until it is seen that nobody asks with them.
        tracing::error!(lane = lane.as_str(), places = places.len(), %error, "places not left");
    }
}
