//! Slots from the schedule, one call per lane, and back to it.

use sendslot_domain::Lane;
use sendslot_runtime::ByLane;
use sendslot_schedule::{Ask, Booking, ScheduleError, Slot, Standing, Unused};

use crate::ports::Book;

/// Nothing can be booked.
pub(crate) struct NotBooked {
    pub(crate) why: ScheduleError,
    /// What one lane had booked before the other failed: to give back.
    pub(crate) unused: ByLane<Vec<Unused>>,
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
                let mut unused = ByLane::<Vec<Unused>>::default();
                for lane in Lane::ALL {
                    let booked = asks.get(lane).iter().zip(bookings.get(lane));
                    *unused.get_mut(lane) = booked
                        .filter_map(|(ask, booking)| match booking {
                            Booking::Slot(slot) => Some(unused_of(ask, slot)),
                            _ => None,
                        })
                        .collect();
                }
                return Err(NotBooked { why, unused });
            }
        }
    }
    Ok(bookings)
}

/// What to give back when a slot can't be used.
pub(crate) fn unused_of(ask: &Ask, slot: &Slot) -> Unused {
    Unused {
        tenant: ask.tenant.clone(),
        goes: slot.at.cell(),
        cells: slot.cells.clone(),
        slot_only: ask.standing == Standing::SlotOnly,
    }
}

/// Gives slots of a lane back.
pub(crate) async fn release(schedule: &impl Book, lane: Lane, unused: &[Unused]) {
    if !unused.is_empty()
        && let Err(error) = schedule.release(lane, unused).await
    {
        // They stay empty, which costs their part of the rate and nothing else.
        tracing::error!(lane = lane.as_str(), slots = unused.len(), %error, "slots not released");
    }
}
