//! The way of slots only: for mail that somebody else sends, so nothing is put on a queue.

use sendslot_domain::{Lane, Moment, SendId, TenantName};
use sendslot_mail::{Refusal, SlotRequest, request};
use sendslot_runtime::ByLane;
use sendslot_schedule::{Ask, Booking, Slot, Standing};

use crate::{
    answer::{Failure, Outcome, Ticket},
    booking::{self, Booked, NotBooked},
    deadline::Deadline,
    ports::Book,
};

/// Books a slot for each request; one outcome each, in order. Every request is a slot of its own: whoever
/// sends the mail sees to it that none goes twice.
pub(crate) async fn run(
    schedule: &impl Book,
    messages: &[String],
    deadline: Deadline,
) -> Vec<(Ticket, Outcome)> {
    let mut done = Vec::with_capacity(messages.len());
    let mut ready = ByLane::<Vec<(usize, SlotRequest)>>::default();
    for (index, text) in messages.iter().enumerate() {
        match SlotRequest::parse(text) {
            Ok(request) => ready.get_mut(request.lane).push((index, request)),
            Err(refusal) => {
                let ticket = ticket(request::send_id_of(text), Lane::Bulk);
                done.push((index, ticket, Outcome::Refused(refusal)));
            }
        }
    }
    let asks =
        |ready: &[(usize, SlotRequest)]| ready.iter().map(|(_, request)| ask(request)).collect();
    let asks = ByLane {
        priority: asks(&ready.priority),
        bulk: asks(&ready.bulk),
    };
    // Whom it goes to isn't said, nor what it is.
    let (ids, addresses) = (ByLane::default(), ByLane::default());
    match booking::book(schedule, &asks, &ids, &addresses, deadline.book_by()).await {
        Ok(Booked { bookings, .. }) => {
            let ByLane { priority, bulk } = bookings;
            let bookings = priority.into_iter().chain(bulk);
            let ready = ready.priority.into_iter().chain(ready.bulk);
            done.extend(ready.zip(bookings).map(|((index, request), booking)| {
                let tenant = request.tenant;
                let ticket = ticket(request.send_id, request.lane);
                (index, ticket, outcome(&booking, &tenant))
            }));
        }
        Err(NotBooked { why, undone }) => {
            for lane in Lane::ALL {
                booking::undo(schedule, lane, undone.get(lane), deadline.undo_by()).await;
            }
            let ready = ready.priority.into_iter().chain(ready.bulk);
            done.extend(ready.map(|(index, request)| {
                let ticket = ticket(request.send_id, request.lane);
                let failure = Failure::Schedule(why.clone());
                (index, ticket, Outcome::Failed(failure))
            }));
        }
    }
    done.sort_unstable_by_key(|(index, ..)| *index);
    done.into_iter()
        .map(|(_, ticket, outcome)| (ticket, outcome))
        .collect()
}

fn ticket(send_id: Option<SendId>, lane: Lane) -> Ticket {
    Ticket {
        send_id,
        tenant: None,
        cost: 0,
        first_seen: Moment(0),
        lane,
        fresh: true,
        suppressed: Vec::new(),
    }
}

fn ask(request: &SlotRequest) -> Ask {
    Ask {
        tenant: request.tenant.clone(),
        cost: request.recipients,
        standing: Standing::SlotOnly,
    }
}

fn outcome(booking: &Booking, tenant: &TenantName) -> Outcome {
    match booking {
        Booking::Slot(Slot { at, delay, .. }) => Outcome::Slot {
            slot: *at,
            delay: *delay,
        },
        Booking::Wait(wait) => Outcome::RetryAfter { delay: wait.delay },
        Booking::Blocked(left) => Outcome::RetryAfter { delay: *left },
        Booking::UnknownTenant => Outcome::Refused(Refusal::UnknownTenant(tenant.clone())),
        Booking::Paused => Outcome::Refused(Refusal::Paused),
        Booking::OverCap => Outcome::Refused(Refusal::OverCap),
        Booking::Left | Booking::Cancelled => {
            let why = "it was in no line and left one".to_owned();
            Outcome::Failed(Failure::Schedule(why))
        }
    }
}
