//! The way of a batch: read and check, book, put on queues, give back what failed.

use std::collections::{HashMap, hash_map::Entry};

use futures_util::future::join_all;
use sendslot_domain::{
    Lane, Millis, Moment, SendId, TenantName, outcome::hold_for, suppression::AddressDigest,
};
use sendslot_mail::{Refusal, SendRequest, digest, request};
use sendslot_runtime::{
    AskTenants, ByLane, Known, Metrics, Queue, RedisDown, ReserveSettings, Tenants,
    bucket::Parking,
    parking::Reason,
    queue::{self, Attribute, MAX_DELAY_SECONDS, Message, NotSent, SendBatch},
};
use sendslot_schedule::{Ask, Booking, Note, Slot, Standing, What};
use serde::{Deserialize, de::IgnoredAny};

use crate::{
    answer::{Answer, Failure, Outcome, Ticket},
    booking::{self, Booked, NotBooked, Undone},
    deadline::Deadline,
    error::HandlerError,
    event::{Batch, DETAIL, Event, FIRST_SEEN, HOLDS, Incoming, PLACE, REASON, SUSPECT},
    parking::{self, Aside},
    ports::Book,
    report::report,
    slots,
};

/// The longest delay of a message.
const MAX_DELAY: Millis = Millis::from_secs(MAX_DELAY_SECONDS as u64);

/// What nobody may send now asks again within so long after somebody may.
const AFTER_BLOCK: Millis = Millis::from_secs(60);
/// What became of mail that nothing is booked for is noted for so long beyond its life.
const NOTED_FOR: Millis = Millis::from_secs(86_400);
/// How long after the horizon what another invocation has booked has gone: its run, and mail that was late.
const SETTLED_AFTER: Millis = Millis::from_secs(60);

/// The reserve function.
pub struct Reserve<B, Q, S> {
    pub(crate) schedule: B,
    pub(crate) queues: Q,
    pub(crate) bucket: S,
    pub(crate) settings: ReserveSettings,
    tenants: Tenants,
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
    /// What is parked, as its tenant may not send.
    aside: Vec<Aside>,
    /// What has come to nothing already.
    undone: Undone,
}

/// Where what becomes of requests is kept.
struct Rooms<'a> {
    bags: &'a mut ByLane<Mailbag>,
    done: &'a mut Done,
    tickets: &'a mut [Ticket],
}

/// Which outcome is known of which request.
type Done = Vec<(usize, Outcome)>;

impl<B: Book + AskTenants, Q: SendBatch, S: Parking> Reserve<B, Q, S> {
    /// The function with what it works on.
    pub fn new(schedule: B, queues: Q, bucket: S, settings: ReserveSettings) -> Self {
        let tenants = Tenants::new(&settings.common.seed);
        Self {
            schedule,
            queues,
            bucket,
            settings,
            tenants,
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
                let metrics = report(&outcomes, &self.settings);
                let outcomes = outcomes.into_iter().map(|(_, outcome)| outcome);
                (Answer::queued(ids.into_iter().zip(outcomes)), metrics)
            }
            Batch::Direct(batch) => {
                let outcomes = self.run(batch, now, deadline).await;
                let metrics = report(&outcomes, &self.settings);
                (Answer::direct(outcomes)?, metrics)
            }
            Batch::SlotsOnly(_) if !self.settings.slots_only => {
                return Err(HandlerError::SlotsOnly);
            }
            Batch::SlotsOnly(messages) => {
                let outcomes = slots::run(&self.schedule, &messages, deadline).await;
                let metrics = report(&outcomes, &self.settings);
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
        let lanes = self.lanes(&batch, deadline).await;
        let queued: Vec<bool> = batch
            .iter()
            .map(|incoming| incoming.queue.is_some())
            .collect();
        for (index, mut incoming) in batch.into_iter().enumerate() {
            let admitted = self.admit(&incoming, now, &lanes);
            let ticket = ticket(&incoming, &admitted);
            let lane = ticket.lane;
            tickets.push(ticket);
            if deadline.is_near() {
                done.push((index, Outcome::Failed(Failure::NoTime)));
                continue;
            }
            let bag = bags.get_mut(lane);
            let known = admitted.map(|(_, request)| (firsts.check(index, &request), request));
            if let Ok((First::Itself, request)) = known {
                if let Some(at) = request.send_at.filter(|at| *at > now) {
                    leaving.get_mut(lane).extend(leave(&incoming));
                    bag.intake.push(ahead(index, incoming, at, now));
                    continue;
                }
                // Its age counts from when it is to be sent.
                let due = request.send_at.unwrap_or_default();
                incoming.first_seen = incoming.first_seen.max(due);
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

        let rooms = Rooms {
            bags: &mut bags,
            done: &mut done,
            tickets: &mut tickets,
        };
        self.book_all(ready, &leaving, rooms, now, deadline).await;
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
            let suppressed = tickets[first].suppressed.clone();
            tickets[index].suppressed = suppressed;
            if let Ok(found) = done.binary_search_by_key(&first, |(index, _)| *index) {
                let outcome = done[found].1.clone();
                let place = done.partition_point(|(known, _)| *known < index);
                done.insert(place, (index, outcome));
            }
        }
        debug_assert_eq!(done.len(), tickets.len(), "every request has one outcome");
        let outcomes: Vec<_> = tickets
            .into_iter()
            .zip(done.into_iter().map(|(_, outcome)| outcome))
            .collect();
        self.note(&outcomes, &queued, deadline).await;
        outcomes
    }

    /// Notes what became of mail that nothing is booked for, for whoever looks for it.
    async fn note(&self, outcomes: &[(Ticket, Outcome)], queued: &[bool], deadline: Deadline) {
        let mut memory = Millis(self.settings.common.max_message_age.0 + NOTED_FOR.0);
        let mut notes = Vec::new();
        for ((ticket, outcome), queued) in outcomes.iter().zip(queued) {
            let what = match outcome {
                Outcome::Suppressed => What::Suppressed,
                Outcome::Parked => What::Parked {
                    first_seen: ticket.first_seen,
                    reason: Reason::Paused.as_str().to_owned(),
                },
                Outcome::Ahead { at, left, .. } => {
                    memory = memory.max(Millis(left.0 + NOTED_FOR.0));
                    What::Scheduled { until: *at }
                }
                // Another mail has the send id; and what a direct caller is told is nowhere.
                Outcome::Refused(Refusal::Conflict) => continue,
                Outcome::Refused(refusal) if *queued => What::Dead {
                    reason: refusal.code().to_owned(),
                },
                _ => continue,
            };
            let (Some(tenant), Some(send_id)) = (&ticket.tenant, &ticket.send_id) else {
                continue;
            };
            notes.push(Note {
                tenant: tenant.clone(),
                send_id: send_id.clone(),
                lane: ticket.lane,
                cost: ticket.cost,
                what,
            });
        }
        if notes.is_empty() {
            return;
        }
        let trace = self.schedule.trace(&notes, memory);
        if let Err(error) = booking::in_time(deadline.undo_by(), trace).await {
            tracing::warn!(
                mails = notes.len(),
                error,
                "what became of them isn't noted"
            );
        }
    }

    /// Books all that is ready and packs it. What leaves its line, `leaving`, is told in the same calls.
    async fn book_all(
        &self,
        ready: ByLane<Vec<Ready>>,
        leaving: &ByLane<Vec<Ask>>,
        rooms: Rooms<'_>,
        now: Moment,
        deadline: Deadline,
    ) {
        // What leaves its line does so first: others behind it may have its turn.
        let mut asks = leaving.clone();
        let mut ids = ByLane::<Vec<Option<SendId>>>::default();
        for lane in Lane::ALL {
            ids.get_mut(lane).resize(leaving.get(lane).len(), None);
            for ready in ready.get(lane) {
                asks.get_mut(lane).push(ready.ask());
                ids.get_mut(lane).push(Some(ready.request.send_id.clone()));
            }
        }
        let addresses = ByLane {
            priority: digests(&ready.priority),
            bulk: digests(&ready.bulk),
        };
        let book = booking::book(&self.schedule, &asks, &ids, &addresses, deadline.book_by());
        match book.await {
            Ok(Booked {
                bookings,
                suppressed,
            }) => {
                let ByLane { priority, bulk } = ready;
                for (lane, ready) in [(Lane::Priority, priority), (Lane::Bulk, bulk)] {
                    let bookings = &bookings.get(lane)[leaving.get(lane).len()..];
                    let mut desk = Desk {
                        lane,
                        now,
                        bag: rooms.bags.get_mut(lane),
                        done: rooms.done,
                    };
                    let fewer = desk.pack_all(ready, bookings, suppressed.get(lane), rooms.tickets);
                    self.book_fewer(fewer, deadline, &mut desk).await;
                }
            }
            Err(NotBooked { why, undone }) => {
                // Nobody can be asked whom not to send to; SES's own list still holds.
                rooms.bags.priority.undone = undone.priority;
                rooms.bags.bulk.undone = undone.bulk;
                let ByLane { priority, bulk } = ready;
                for (lane, ready) in [(Lane::Priority, priority), (Lane::Bulk, bulk)] {
                    for ready in ready {
                        self.without_redis(
                            lane,
                            ready,
                            now,
                            &why,
                            rooms.bags.get_mut(lane),
                            rooms.done,
                        );
                    }
                }
            }
        }
    }

    /// The lanes of the tenants of those direct requests that name none. Nobody is asked where all have one, as those of a queue do.
    async fn lanes(&self, batch: &[Incoming], deadline: Deadline) -> HashMap<TenantName, Lane> {
        #[derive(Deserialize)]
        struct Head {
            tenant: String,
            lane: Option<IgnoredAny>,
        }
        let direct = batch.iter().filter(|incoming| incoming.queue.is_none());
        let heads = direct.filter_map(|incoming| serde_json::from_str::<Head>(&incoming.text).ok());
        let names = heads.filter(|head| head.lane.is_none());
        let names: Vec<TenantName> = names.filter_map(|head| head.tenant.parse().ok()).collect();
        if names.is_empty() || deadline.is_near() {
            return HashMap::new();
        }
        let known = self.tenants.of(&self.schedule, names.iter()).await;
        let lanes = known.into_iter().filter_map(|(name, known)| match known {
            Known::As(settings) => Some((name, settings.lane()?)),
            Known::Unknown | Known::NotTold => None,
        });
        lanes.collect()
    }

    /// Reads and checks a request.
    fn admit(
        &self,
        incoming: &Incoming,
        now: Moment,
        lanes: &HashMap<TenantName, Lane>,
    ) -> Result<(Lane, SendRequest), Refusal> {
        let request = SendRequest::parse(&incoming.text, now)?;
        let lane = match (request.lane, incoming.queue) {
            (None, None) => lanes.get(&request.tenant).copied().unwrap_or(Lane::Bulk),
            _ => request.lane_on(incoming.queue)?,
        };
        let due = request.send_at.unwrap_or_default();
        let since = incoming.first_seen.max(due);
        if since + self.settings.common.max_message_age <= now {
            return Err(Refusal::TooOld);
        }
        Ok((lane, request))
    }

    /// Books those again that have fewer recipients than were booked for them, at their lower cost.
    async fn book_fewer(&self, fewer: Vec<Ready>, deadline: Deadline, desk: &mut Desk<'_>) {
        if fewer.is_empty() {
            return;
        }
        // They were in turn.
        let ask = |ready: &Ready| Ask {
            standing: Standing::Again,
            ..ready.ask()
        };
        let asks: Vec<Ask> = fewer.iter().map(ask).collect();
        let ids = fewer
            .iter()
            .map(|ready| Some(ready.request.send_id.clone()));
        let ids: Vec<_> = ids.collect();
        let lane = desk.lane;
        let by = deadline.book_by();
        match booking::book_lane(&self.schedule, lane, &asks, &ids, &[], by).await {
            Ok((bookings, _)) => {
                for (ready, booking) in fewer.into_iter().zip(&bookings) {
                    desk.pack(ready, booking);
                }
            }
            Err(why) => {
                for ready in fewer {
                    self.without_redis(lane, ready, desk.now, &why, desk.bag, desk.done);
                }
            }
        }
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
                            group: Some(envelope.tenant.to_string()),
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
        let aside = parking::park_all(&self.bucket, bag.aside, deadline.put_by());
        let (posts, mut done) = tokio::join!(join_all(posts), aside);
        let mut undone = bag.undone;
        for (slip, sent) in posts.into_iter().flatten() {
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

/// The digests of all recipients, in order.
fn digests(ready: &[Ready]) -> Vec<AddressDigest> {
    let recipients = ready
        .iter()
        .flat_map(|ready| ready.request.mail.recipients());
    recipients.map(digest).collect()
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
    let group = group(&incoming.text);
    let message = Message {
        body: incoming.text,
        delay_seconds: 0,
        attributes: vec![
            Attribute::text(REASON, refusal.code()),
            Attribute::text(DETAIL, refusal.to_string()),
            Attribute::number(FIRST_SEEN, incoming.first_seen.0),
        ],
        group,
    };
    let slip = Slip {
        index,
        there: Outcome::Refused(refusal),
        not_there: Failure::DeadLetter,
        booked: None,
    };
    bag.dead.push((message, slip));
}

/// Where the messages of one lane are made ready to leave.
struct Desk<'a> {
    lane: Lane,
    now: Moment,
    bag: &'a mut Mailbag,
    done: &'a mut Done,
}

impl Desk<'_> {
    /// Packs all of a lane's messages. `suppressed` are the places of those recipients, all messages' counted through, whom nobody
    /// may be sent to: they are left out. Answers with the messages that now have a slot for too many: they are to be booked again.
    fn pack_all(
        &mut self,
        all: Vec<Ready>,
        bookings: &[Booking],
        suppressed: &[usize],
        tickets: &mut [Ticket],
    ) -> Vec<Ready> {
        let (mut fewer, mut before) = (Vec::new(), 0);
        for (mut ready, booking) in all.into_iter().zip(bookings) {
            let mail = &mut ready.request.mail;
            let count = mail.recipients().count();
            let here = before..before + count;
            let places = suppressed.iter().filter(|place| here.contains(place));
            let places: Vec<usize> = places.map(|place| place - before).collect();
            before += count;
            let nobody_left = places.len() == count;
            let is_settled = matches!(booking, Booking::Slot(_) | Booking::Paused);
            // Who waits is asked for again when it comes back, as are those that nobody can book for now.
            if places.is_empty()
                || !(is_settled || nobody_left && matches!(booking, Booking::Wait(_)))
            {
                self.pack(ready, booking);
                continue;
            }
            let ask = ready.ask();
            tickets[ready.index].suppressed = ready.request.mail.leave_out(&places);
            self.bag.undone.add(&ask, booking);
            if nobody_left {
                self.done.push((ready.index, Outcome::Suppressed));
            } else if matches!(booking, Booking::Slot(_)) {
                fewer.push(ready);
            } else {
                self.pack(ready, booking);
            }
        }
        fewer
    }

    /// Makes the message that a booking asks for.
    fn pack(&mut self, ready: Ready, booking: &Booking) {
        let (bag, done) = (&mut *self.bag, &mut *self.done);
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
            Booking::UnknownTenant => {
                let refusal = Refusal::UnknownTenant(request.tenant);
                refuse(index, incoming, refusal, bag, done);
            }
            Booking::OverCap => refuse(index, incoming, Refusal::OverCap, bag, done),
            Booking::Paused => {
                let mut envelope =
                    request.into_envelope(self.lane, self.now, Vec::new(), incoming.first_seen);
                envelope.suspect_since = incoming.suspect_since;
                bag.aside.push(Aside { index, envelope });
            }
            Booking::Cancelled => {
                bag.undone.leave(leave(&incoming));
                done.push((index, Outcome::Cancelled));
            }
            Booking::Left => {
                let failure = Failure::Schedule("it left its line and never asked to".to_owned());
                done.push((index, Outcome::Failed(failure)));
            }
            Booking::Wait(wait) => {
                // Whoever was in turn already has no new place.
                let is_placed = wait.place > 0;
                let place = Some(wait.place).filter(|_| is_placed).or(incoming.place);
                let (message, slip) = waiting(index, incoming, place, wait.delay, wait.estimate);
                let booked = is_placed.then(|| (ask, booking.clone()));
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
                let mut envelope = request.into_envelope(self.lane, at, cells, incoming.first_seen);
                envelope.suspect_since = incoming.suspect_since;
                match envelope.to_json() {
                    Ok(body) => {
                        let message = Message {
                            body,
                            delay_seconds: seconds(delay),
                            attributes: Vec::new(),
                            group: Some(envelope.tenant.to_string()),
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
}

/// The tenant that a request names, if it can be made out: SQS keeps one tenant's backlog from delaying the others.
fn group(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Head {
        tenant: String,
    }
    let head: Head = serde_json::from_str(text).ok()?;
    head.tenant.parse::<TenantName>().ok()?;
    Some(head.tenant)
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
    let group = group(&incoming.text);
    let message = Message {
        body: incoming.text,
        delay_seconds: seconds(delay),
        attributes,
        group,
    };
    let slip = Slip {
        index,
        there: Outcome::Waiting { delay, estimate },
        not_there: Failure::Wait,
        booked: None,
    };
    (message, slip)
}

/// Which request it is, as far as that could be made out.
fn ticket(incoming: &Incoming, admitted: &Result<(Lane, SendRequest), Refusal>) -> Ticket {
    let request = admitted.as_ref().ok().map(|(_, request)| request);
    let tenant = match request {
        Some(request) => Some(request.tenant.clone()),
        None => group(&incoming.text).and_then(|name| name.parse().ok()),
    };
    let due = request.and_then(|request| request.send_at);
    Ticket {
        send_id: match request {
            Some(request) => Some(request.send_id.clone()),
            None => request::send_id_of(&incoming.text),
        },
        tenant,
        cost: request.map_or(0, |request| request.mail.cost()),
        first_seen: incoming.first_seen.max(due.unwrap_or_default()),
        lane: match admitted {
            Ok((lane, _)) => *lane,
            Err(_) => incoming.queue.unwrap_or(Lane::Bulk),
        },
        fresh: !incoming.put_back,
        suppressed: Vec::new(),
    }
}

/// A request whose time hasn't come: it goes back to its intake queue, in no line, and asks for its slot then, not before.
fn ahead(index: usize, incoming: Incoming, at: Moment, now: Moment) -> (Message, Slip) {
    let left = now.until(at);
    let seconds = left.0.div_ceil(1000);
    let delay = Millis::from_secs(seconds).min(MAX_DELAY);
    let (message, slip) = waiting(index, incoming, None, delay, left);
    let there = Outcome::Ahead { at, delay, left };
    (message, Slip { there, ..slip })
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
