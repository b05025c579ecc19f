//! Slots from the schedule, one call per lane, and back to it.

use futures_util::future::join;
use sendslot_domain::{Lane, SendId, suppression::AddressDigest};
use sendslot_runtime::ByLane;
use sendslot_schedule::{Ask, Booking, ScheduleError, Standing, Unused};
use tokio::time::{Instant, timeout_at};

use crate::ports::Book;

/// Nothing can be booked.
pub(crate) struct NotBooked {
    pub(crate) why: String,
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
    /// A message that has waited won't come again: it leaves its line.
    pub(crate) fn leave(&mut self, ask: Option<Ask>) {
        self.places.extend(ask);
    }

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
            | Booking::Paused
            | Booking::Left
            | Booking::Cancelled
            | Booking::Blocked(_) => {}
        }
    }
}

/// What is said of a call that was given up.
pub(crate) const LATE: &str = "no answer in time";

/// What was booked of each lane, and which of the addresses nobody may be sent to.
#[derive(Default)]
pub(crate) struct Booked {
    pub(crate) bookings: ByLane<Vec<Booking>>,
    pub(crate) suppressed: ByLane<Vec<usize>>,
}

/// Books all of them, in one call per lane, which says as well whom of the lane's addresses nobody may be sent to. Either all are
/// answered, at the moment `by` at the latest, or none is booked. (What was booked by a call whose answer was lost stays empty.)
pub(crate) async fn book(
    schedule: &impl Book,
    asks: &ByLane<Vec<Ask>>,
    ids: &ByLane<Vec<Option<SendId>>>,
    addresses: &ByLane<Vec<AddressDigest>>,
    by: Instant,
) -> Result<Booked, NotBooked> {
    let Booked {
        mut bookings,
        mut suppressed,
    } = Booked::default();
    for lane in Lane::ALL {
        let here = asks.get(lane);
        if here.is_empty() {
            continue;
        }
        match book_lane(schedule, lane, here, ids.get(lane), addresses.get(lane), by).await {
            Ok((answers, found)) => {
                *bookings.get_mut(lane) = answers;
                *suppressed.get_mut(lane) = found;
            }
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
    Ok(Booked {
        bookings,
        suppressed,
    })
}

/// Books in one call, one answer each, and notes what becomes of the mails with these send ids.
pub(crate) async fn book_lane(
    schedule: &impl Book,
    lane: Lane,
    asks: &[Ask],
    ids: &[Option<SendId>],
    addresses: &[AddressDigest],
    by: Instant,
) -> Result<(Vec<Booking>, Vec<usize>), String> {
    let book = schedule.book_mail(lane, asks, ids, addresses);
    let (answers, suppressed) = in_time(by, book).await?;
    if answers.len() == asks.len() {
        return Ok((answers, suppressed));
    }
    let error = ScheduleError::Answer {
        script: "book",
        answer: format!("{} bookings to {} asks", answers.len(), asks.len()),
    };
    Err(error.to_string())
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
            && let Err(error) = in_time(by, schedule.book(lane, places)).await
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
) -> Result<T, String> {
    match timeout_at(by, call).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(LATE.to_owned()),
    }
}
