//! The way of a batch: read and check, book, put on queues, give back what failed.

use std::collections::{HashMap, hash_map::Entry};

use futures_util::future::join_all;
use sendslot_domain::{Lane, Millis, Moment, SendId, TenantName, outcome::hold_for};
use sendslot_mail::{Refusal, SendRequest, request};
use sendslot_runtime::{
    ByLane, Metrics, Queue, RedisDown, ReserveSettings,
    queue::{self, Attribute, MAX_DELAY_SECONDS, Message, NotSent, SendBatch},
};
use sendslot_schedule::{Ask, Booking, Slot, Standing};

use crate::{
    answer::{Answer, Failure, Outcome, Ticket},
    booking::{self, NotBooked, Undone},
    deadline::Deadline,
    error::HandlerError,
    event::{Batch, DETAIL, Event, FIRST_SEEN, HOLDS, Incoming, PLACE, REASON, SUSPECT},
    ports::{Book, Parked},
    slots,
};

/// The longest delay of a message.
const MAX_DELAY: Millis = Millis::from_secs(MAX_DELAY_SECONDS as u64);

/// What nobody may send now asks again within so long after somebody may.
const AFTER_BLOCK: Millis = Millis::from_secs(60);
/// How long after the horizon what another invocation has booked has gone: its run, and mail that was late.
const SETTLED_AFTER: Millis = Millis::from_secs(60);

/// The reserve function.
pub struct Reserve<B, Q, S> {
    pub(crate) schedule: B,
    pub(crate) queues: Q,
    pub(crate) parked: S,
    pub(crate) settings: ReserveSettings,
}

/// A valid request.
struct Ready {
    index: usize,
    incoming: Incoming,
    request: SendRequest,
}

/// What it means when a message gets to its queue, or doesn't.
struct Slip {
    index: usize,
    there: Outcome,
    not_there: fn(NotSent) -> Failure,
    /// What comes to nothing when it doesn't.
    booked: Option<(Ask, Booking)>,
}

/// Messages to put on the queues of one lane.
#[derive(Default)]
struct Mailbag {
    send: Vec<(Message, Slip)>,
    intake: Vec<(Message, Slip)>,
    dead: Vec<(Message, Slip)>,
    /// What has come to nothing already.
    undone: Undone,
}

/// Which outcome is known of which request.
type Done = Vec<(usize, Outcome)>;

impl<B: Book, Q: SendBatch, S: Parked> Reserve<B, Q, S> {
    /// The function with what it works on.
    pub const fn new(schedule: B, queues: Q, parked: S, settings: ReserveSettings) -> Self {
        Self {
            schedule,
            queues,
            parked,
            settings,
        }
    }

    /// Takes one event at the moment `now`. Answers before the deadline, with the metrics of the lanes that were used; messages
    /// of a queue that there is no time for come again.
    ///
    /// # Errors
    /// When the event is none of ours, when slots only aren't allowed, or when nothing can be booked for a
    /// direct caller.
    pub async fn handle(
        &self,
        event: Event,
        now: Moment,
        deadline: Deadline,
    ) -> Result<(Answer, Vec<Metrics>), HandlerError> {
        let (answer, metrics) = match event.into_batch(&self.settings.intake_queues, now)? {
            Batch::Queued(records) => {
                let (ids, batch): (Vec<_>, Vec<_>) = records.into_iter().unzip();
                let outcomes = self.run(batch, now, deadline).await;
                let metrics = self.report(&outcomes);
                let outcomes = outcomes.into_iter().map(|(_, outcome)| outcome);
                (Answer::queued(ids.into_iter().zip(outcomes)), metrics)
            }
            Batch::Direct(batch) => {
                let outcomes = self.run(batch, now, deadline).await;
                let metrics = self.report(&outcomes);
                (Answer::direct(outcomes)?, metrics)
            }
            Batch::Release(release) => {
                let released = self.release(release, deadline).await?;
                (Answer::Released(released), Vec::new())
            }
            Batch::SlotsOnly(_) if !self.settings.slots_only => {
                return Err(HandlerError::SlotsOnly);
            }
            Batch::SlotsOnly(messages) => {
                let outcomes = slots::run(&self.schedule, &messages, deadline).await;
                let metrics = self.report(&outcomes);
                (Answer::direct(outcomes)?, metrics)
            }
        };
        Ok((answer, metrics))
    }

    /// Takes requests all the way; one outcome each, in order.
    async fn run(
        &self,
        batch: Vec<Incoming>,
        now: Moment,
        deadline: Deadline,
    ) -> Vec<(Ticket, Outcome)> {
        let mut tickets = Vec::with_capacity(batch.len());
        let mut done = Done::with_capacity(batch.len());
        let mut copies = Vec::new();
        let mut ready = ByLane::<Vec<Ready>>::default();
        let mut leaving = ByLane::<Vec<Ask>>::default();
        let mut bags = ByLane::<Mailbag>::default();
        let mut firsts = Firsts::default();
        for (index, incoming) in batch.into_iter().enumerate() {
            let fresh = !incoming.put_back;
            let admitted = self.admit(&incoming, now);
            let (lane, send_id) = match &admitted {
                Ok((lane, request)) => (*lane, Some(request.send_id.clone())),
                Err(_) => (
                    incoming.queue.unwrap_or(Lane::Bulk),
                    request::send_id_of(&incoming.text),
                ),
            };
            tickets.push(Ticket {
                send_id,
                lane,
                fresh,
            });
            if deadline.is_near() {
                done.push((index, Outcome::Failed(Failure::NoTime)));
                continue;
            }
            let bag = bags.get_mut(lane);
            let known = admitted.map(|(_, request)| (firsts.check(index, &request), request));
            if let Ok((First::Itself, request)) = known {
                if let Some(wait) = self.another_may_be_at_it(&incoming, now) {
                    let place = incoming.place;
                    bag.intake.push(waiting(index, incoming, place, wait, wait));
                    continue;
                }
                ready.get_mut(lane).push(Ready {
                    index,
                    incoming,
                    request,
                });
                continue;
            }
            leaving.get_mut(lane).extend(leave(&incoming));
            match known {
                Err(refusal) => refuse(index, incoming, refusal, bag, &mut done),
                Ok((First::CopyOf(first), _)) => copies.push((index, first)),
                Ok(_) => refuse(index, incoming, Refusal::Conflict, bag, &mut done),
            }
        }

        // What leaves its line does so first: others behind it may have its turn.
        let mut asks = leaving.clone();
        for lane in Lane::ALL {
            let ready = ready.get(lane).iter().map(Ready::ask);
            asks.get_mut(lane).extend(ready);
        }
        match booking::book(&self.schedule, &asks, deadline.book_by()).await {
            Ok(bookings) => {
                let ByLane { priority, bulk } = ready;
                for (lane, ready) in [(Lane::Priority, priority), (Lane::Bulk, bulk)] {
                    let bookings = &bookings.get(lane)[leaving.get(lane).len()..];
                    for (ready, booking) in ready.into_iter().zip(bookings) {
                        pack(lane, ready, booking, bags.get_mut(lane), &mut done);
                    }
                }
            }
            Err(NotBooked { why, undone }) => {
                bags.priority.undone = undone.priority;
                bags.bulk.undone = undone.bulk;
                let ByLane { priority, bulk } = ready;
                for (lane, ready) in [(Lane::Priority, priority), (Lane::Bulk, bulk)] {
                    for ready in ready {
                        self.without_redis(lane, ready, now, &why, bags.get_mut(lane), &mut done);
                    }
                }
            }
        }
        let ByLane { priority, bulk } = bags;
        let posted = join_all([
            self.post(Lane::Priority, priority, deadline),
            self.post(Lane::Bulk, bulk, deadline),
        ])
        .await;
        done.extend(posted.into_iter().flatten());

        done.sort_unstable_by_key(|(index, _)| *index);
        for (index, first) in copies {
            // Copies come after their first, and there is at most one outcome an index.
            if let Ok(found) = done.binary_search_by_key(&first, |(index, _)| *index) {
                let outcome = done[found].1.clone();
                let place = done.partition_point(|(known, _)| *known < index);
                done.insert(place, (index, outcome));
            }
        }
        debug_assert_eq!(done.len(), tickets.len(), "every request has one outcome");
        tickets
            .into_iter()
            .zip(done.into_iter().map(|(_, outcome)| outcome))
            .collect()
    }

    /// Reads and checks a request.
    fn admit(&self, incoming: &Incoming, now: Moment) -> Result<(Lane, SendRequest), Refusal> {
        let request = SendRequest::parse(&incoming.text, now)?;
        let lane = request.lane_on(incoming.queue)?;
        if incoming.first_seen + self.settings.common.max_message_age <= now {
            return Err(Refusal::TooOld);
        }
        Ok((lane, request))
    }

    /// How long to wait before a message that SQS has handed over before is looked at: whoever had it then may be at it, or
    /// have booked it. After that, what it booked has gone, and this is a copy of it; or it never booked. (A message that
    /// comes back after its visibility timeout has waited longer already.)
    fn another_may_be_at_it(&self, incoming: &Incoming, now: Moment) -> Option<Millis> {
        let horizon = self.settings.common.seed.budget.horizon();
        let settled = incoming.received_before? + Millis(horizon.0 + SETTLED_AFTER.0);
        Some(now.until(settled)).filter(|left| left.0 > 0)
    }

    /// Redis can't be used. A message of a queue goes back to it, for longer each time, or to its send queue without a slot,
    /// where the workers keep the pace; a direct caller is told.
    fn without_redis(
        &self,
        lane: Lane,
        ready: Ready,
        now: Moment,
        why: &str,
        bag: &mut Mailbag,
        done: &mut Done,
    ) {
        let Ready {
            index,
            mut incoming,
            request,
        } = ready;
        match self.settings.common.redis_down {
            RedisDown::Capped => {
                let mut envelope =
                    request.into_envelope(lane, now, Vec::new(), incoming.first_seen);
                envelope.suspect_since = incoming.suspect_since;
                let slip = Slip {
                    index,
                    there: Outcome::Unbooked { now },
                    not_there: Failure::Enqueue,
                    booked: None,
                };
                match envelope.to_json() {
                    Ok(body) => bag.send.push((
                        Message {
                            body,
                            ..Message::default()
                        },
                        slip,
                    )),
                    Err(error) => {
                        let failure = Failure::Envelope(error.to_string());
                        done.push((index, Outcome::Failed(failure)));
                    }
                }
            }
            RedisDown::Hold if incoming.queue.is_none() => {
                let failure = Failure::Schedule(why.to_owned());
                done.push((index, Outcome::Failed(failure)));
            }
            RedisDown::Hold => {
                let half = hold_for(incoming.holds).0 / 2;
                let delay = Millis(half + rand::random_range(0..=half));
                incoming.holds = incoming.holds.saturating_add(1);
                bag.intake.push(held(index, incoming, delay));
            }
        }
    }

    /// Puts a lane's messages on its queues, and undoes the bookings of those that didn't get there.
    async fn post(&self, lane: Lane, bag: Mailbag, deadline: Deadline) -> Done {
        let settings = &self.settings;
        let posts = [
            self.post_to(settings.common.send_queues.get(lane), bag.send, deadline),
            self.post_to(settings.intake_queues.get(lane), bag.intake, deadline),
            self.post_to(settings.intake_dlqs.get(lane), bag.dead, deadline),
        ];
        let mut undone = bag.undone;
        let mut done = Done::new();
        for (slip, sent) in join_all(posts).await.into_iter().flatten() {
            let outcome = match sent {
                Ok(()) => slip.there,
                Err(why) => {
                    if let Some((ask, booking)) = &slip.booked {
                        undone.add(ask, booking);
                    }
                    Outcome::Failed((slip.not_there)(why))
                }
            };
            done.push((slip.index, outcome));
        }
        booking::undo(&self.schedule, lane, &undone, deadline.undo_by()).await;
        done
    }

    async fn post_to(
        &self,
        queue: &Queue,
        mail: Vec<(Message, Slip)>,
        deadline: Deadline,
    ) -> Vec<(Slip, Result<(), NotSent>)> {
        let (messages, slips): (Vec<_>, Vec<_>) = mail.into_iter().unzip();
        let sent = queue::send_all(&self.queues, queue, &messages, deadline.put_by()).await;
        slips.into_iter().zip(sent).collect()
    }

    /// Logs what went wrong and counts everything. Nothing logged is of the mail itself.
    fn report(&self, outcomes: &[(Ticket, Outcome)]) -> Vec<Metrics> {
        let common = &self.settings.common;
        let mut all = Vec::new();
        for lane in Lane::ALL {
            let mut metrics = Metrics::new(&common.namespace, &common.service, Some(lane));
            let here = outcomes.iter().filter(|(ticket, _)| ticket.lane == lane);
            let mut count = [0_usize; 8];
            let [
                accepted,
                booked,
                waiting,
                refused,
                failed,
                slots_only,
                retry_after,
                redis_down,
            ] = &mut count;
            for (ticket, outcome) in here {
                let send_id = ticket.send_id.as_ref().map(SendId::as_str);
                match outcome {
                    Outcome::Booked { delay, .. } => {
                        *booked += 1;
                        metrics.longest("BookedAheadMs", *delay);
                    }
                    Outcome::Waiting { .. } => *waiting += 1,
                    Outcome::Held { .. } | Outcome::Unbooked { .. } => *redis_down += 1,
                    // Booked, but not accepted: nothing of the mail is here.
                    Outcome::Slot { delay, .. } => {
                        *booked += 1;
                        *slots_only += 1;
                        metrics.longest("BookedAheadMs", *delay);
                        continue;
                    }
                    Outcome::RetryAfter { .. } => {
                        *retry_after += 1;
                        continue;
                    }
                    Outcome::Refused(refusal) => {
                        *refused += 1;
                        let (reason, detail) = (refusal.code(), refusal.to_string());
                        tracing::warn!(lane = lane.as_str(), send_id, reason, detail, "refused");
                        continue;
                    }
                    Outcome::Failed(failure) => {
                        *failed += 1;
                        tracing::error!(lane = lane.as_str(), send_id, %failure, "comes again");
                        continue;
                    }
                }
                *accepted += usize::from(ticket.fresh);
            }
            if count == [0; 8] {
                continue;
            }
            let [
                accepted,
                booked,
                waiting,
                refused,
                failed,
                slots_only,
                retry_after,
                redis_down,
            ] = count;
            tracing::info!(
                lane = lane.as_str(),
                accepted,
                booked,
                waiting,
                refused,
                failed,
                slots_only,
                retry_after,
                redis_down,
                "batch"
            );
            metrics.count("Accepted", accepted);
            metrics.count("Booked", booked);
            metrics.count("Waiting", waiting);
            metrics.count("Refused", refused);
            metrics.count("EnqueueFailed", failed);
            metrics.count("RedisDown", redis_down);
            if self.settings.slots_only {
                metrics.count("SlotsOnly", slots_only);
            }
            all.push(metrics);
        }
        all
    }
}

impl Ready {
    fn ask(&self) -> Ask {
        Ask {
            tenant: self.request.tenant.clone(),
            cost: self.request.mail.cost(),
            standing: match self.incoming.place {
                Some(place) => Standing::Waited { place },
                None => Standing::New,
            },
        }
    }
}

/// How a message that has waited and won't go after all leaves its line, so that others have its turn.
fn leave(incoming: &Incoming) -> Option<Ask> {
    let place = incoming.place?;
    // It was valid when it joined the line; since then it may have expired.
    let request = SendRequest::parse(&incoming.text, Moment(0)).ok()?;
    Some(Ask {
        tenant: request.tenant,
        cost: request.mail.cost(),
        standing: Standing::Left { place },
    })
}

/// The send ids of a batch, each with where it was first and what mail it was for.
///
/// What makes two requests the same mail is tenant, send id and fingerprint, here as when `send` claims.
/// Expiry and lane say how a mail travels, not which it is. Under one send id a mail goes once, and the
/// request that came first says how: a copy with another expiry or lane changes nothing and gets the
/// first's outcome.
#[derive(Default)]
struct Firsts(HashMap<(TenantName, SendId), (usize, String)>);

/// What a request is to the others of its batch.
enum First {
    /// The first with its send id.
    Itself,
    /// The same mail again: what becomes of the first becomes of it.
    CopyOf(usize),
    /// Another mail under a send id that is taken.
    Other,
}

impl Firsts {
    fn check(&mut self, index: usize, request: &SendRequest) -> First {
        match self
            .0
            .entry((request.tenant.clone(), request.send_id.clone()))
        {
            Entry::Vacant(free) => {
                free.insert((index, request.fingerprint.clone()));
                First::Itself
            }
            Entry::Occupied(taken) if taken.get().1 == request.fingerprint => {
                First::CopyOf(taken.get().0)
            }
            Entry::Occupied(_) => First::Other,
        }
    }
}

/// A refused request of a queue is dead-lettered with its reason; a direct caller is told.
fn refuse(index: usize, incoming: Incoming, refusal: Refusal, bag: &mut Mailbag, done: &mut Done) {
    if incoming.queue.is_none() {
        done.push((index, Outcome::Refused(refusal)));
        return;
    }
    let message = Message {
        body: incoming.text,
        delay_seconds: 0,
        attributes: vec![
            Attribute::text(REASON, refusal.code()),
            Attribute::text(DETAIL, refusal.to_string()),
            Attribute::number(FIRST_SEEN, incoming.first_seen.0),
        ],
        group: None,
    };
    let slip = Slip {
        index,
        there: Outcome::Refused(refusal),
        not_there: Failure::DeadLetter,
        booked: None,
    };
    bag.dead.push((message, slip));
}

/// Makes the message that a booking asks for.
fn pack(lane: Lane, ready: Ready, booking: &Booking, bag: &mut Mailbag, done: &mut Done) {
    let ask = ready.ask();
    let Ready {
        index,
        mut incoming,
        request,
    } = ready;
    incoming.holds = 0; // Redis is there
    match booking {
        Booking::Blocked(left) => {
            // It asks again as it is, soon after somebody may send.
            let delay = Millis(left.0 + rand::random_range(0..=AFTER_BLOCK.0.min(left.0)));
            let place = incoming.place;
            bag.intake
                .push(waiting(index, incoming, place, delay, *left));
        }
        Booking::UnknownTenant => refuse(index, incoming, Refusal::UnknownTenant, bag, done),
        Booking::OverCap => refuse(index, incoming, Refusal::OverCap, bag, done),
        Booking::Paused => {
            let failure = Failure::Schedule("its tenant is paused".to_owned());
            done.push((index, Outcome::Failed(failure)));
        }
        Booking::Left => {
            let failure = Failure::Schedule("it left its line and never asked to".to_owned());
            done.push((index, Outcome::Failed(failure)));
        }
        Booking::Wait(wait) => {
            let (message, slip) =
                waiting(index, incoming, Some(wait.place), wait.delay, wait.estimate);
            let booked = Some((ask, booking.clone()));
            bag.intake.push((message, Slip { booked, ..slip }));
        }
        Booking::Slot(slot) if slot.delay.whole_secs() > MAX_DELAY.whole_secs() => {
            // No message can be delayed that long. Cut short, it would surface before its slot, so the
            // slot goes back and the message asks again in time.
            tracing::error!(
                delay_ms = slot.delay.0,
                "slot past the longest delay: check the horizon"
            );
            bag.undone.add(&ask, booking);
            let place = incoming.place;
            bag.intake
                .push(waiting(index, incoming, place, MAX_DELAY, slot.delay));
        }
        Booking::Slot(slot) => {
            let Slot { at, delay, cells } = slot.clone();
            let mut envelope = request.into_envelope(lane, at, cells, incoming.first_seen);
            envelope.suspect_since = incoming.suspect_since;
            match envelope.to_json() {
                Ok(body) => {
                    let message = Message {
                        body,
                        delay_seconds: seconds(delay),
                        attributes: Vec::new(),
                        group: None,
                    };
                    let slip = Slip {
                        index,
                        there: Outcome::Booked { slot: at, delay },
                        not_there: Failure::Enqueue,
                        booked: Some((ask, booking.clone())),
                    };
                    bag.send.push((message, slip));
                }
                Err(error) => {
                    bag.undone.add(&ask, booking);
                    done.push((index, Outcome::Failed(Failure::Envelope(error.to_string()))));
                }
            }
        }
    }
}

/// A request that goes back to its intake queue as it came, with what it needs to ask again.
fn waiting(
    index: usize,
    incoming: Incoming,
    place: Option<u64>,
    delay: Millis,
    estimate: Millis,
) -> (Message, Slip) {
    // At least a second: a message that comes back at once asks in vain.
    let delay = delay.clamp(Millis::from_secs(1), MAX_DELAY);
    let mut attributes = vec![Attribute::number(FIRST_SEEN, incoming.first_seen.0)];
    attributes.extend(place.map(|place| Attribute::number(PLACE, place)));
    let suspect = incoming.suspect_since;
    attributes.extend(suspect.map(|since| Attribute::number(SUSPECT, since.0)));
    if incoming.holds > 0 {
        attributes.push(Attribute::number(HOLDS, u64::from(incoming.holds)));
    }
    let message = Message {
        body: incoming.text,
        delay_seconds: seconds(delay),
        attributes,
        group: None,
    };
    let slip = Slip {
        index,
        there: Outcome::Waiting { delay, estimate },
        not_there: Failure::Wait,
        booked: None,
    };
    (message, slip)
}

/// A request that goes back to its intake queue for a while, since Redis can't be used.
fn held(index: usize, incoming: Incoming, delay: Millis) -> (Message, Slip) {
    let place = incoming.place;
    let (message, slip) = waiting(index, incoming, place, delay, delay);
    let there = Outcome::Held { delay };
    (message, Slip { there, ..slip })
}

/// Whole seconds of a delay that was checked against [`MAX_DELAY`], rounded down: a message surfaces
/// up to a second early and waits the rest in the worker.
pub(crate) fn seconds(delay: Millis) -> u16 {
    let seconds = delay.whole_secs();
    debug_assert!(seconds <= MAX_DELAY.whole_secs());
    u16::try_from(seconds).unwrap_or(MAX_DELAY_SECONDS)
}
