//! Dead-lettered and parked mail goes again at a rate: the action `redrive`.
//!
//! # What holds
//! - **It can't be a second incident**: each mail gets a slot of its own like all others, at a rate that whoever redrives shares
//!   ([`sendslot_schedule::Schedule::draw_dead`]) and that is below what may be sent; it goes before those who wait, as it isn't new.
//! - **What was sent isn't sent again**: send ids stay, and each is looked up before it goes. What may have been sent stays, unless it is asked for.
//! - **A letter leaves its queue after it is on its next one.** Cut short between the two, it goes twice and is sent once. Cut short anywhere else, it is
//!   received again when its visibility timeout ends. So is what stays: whatever a call doesn't take is shown again at its end.
//! - **What can never succeed is left where it is** (`letter` says why), and stops nothing behind it.
//! - **It ends** when its time is up, or when all was looked at. Somebody may empty the queue meanwhile.

mod letter;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use futures_util::{StreamExt, future::join_all, stream};
use sendslot_domain::{Lane, Millis, Moment, Rate, SendId, TenantName};
use sendslot_mail::Refusal;
use sendslot_runtime::{
    ControlSettings, Queue,
    control::{Failure, LeftMail, MOST_LISTED, Redrive, Redriven},
    parking::{ParkedKey, Reason},
    queue::{self, Message, NotSent, SendBatch},
};
use sendslot_schedule::{Ask, Booking, Look, Mark, Standing, Wait};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::{
    booking::{self, Undone, book, in_time},
    deadline::Deadline,
    failure::{bad_field, has_budget, listed},
    ports::{Book, DeadLetters, Depths, Parked},
    redrive::letter::{Candidate, Place, Verdict, judge},
    release::{Portion, ROUND, Releaser, Tally, tenant_paused},
    replay::LONGEST,
    status,
};

/// How long a redrive goes on unless it is told otherwise; at most it is as long as a replay.
const USUALLY: u64 = 20;
/// From one part to the next, at most: that many mails go together, and live mail behind them waits for as many turns.
const PACE: Duration = Duration::from_secs(1);
/// So small are parts where the rate allows it, mails, and so often they go at most.
const PART: f64 = 2.0;
const FASTEST: Duration = Duration::from_millis(100);
/// Nobody else receives a letter for so long: longer than a call takes.
const HIDDEN_SECONDS: u16 = 90;
/// After so long it is asked again for letters that somebody else has hidden.
const HIDDEN_AGAIN: Millis = Millis::from_secs(5);
/// So many letters that may go are held of each queue, for each recipient that goes in a second; so many at least and at most.
const AHEAD: f64 = 2.0;
const LEAST_AHEAD: usize = 20;
const MOST_AHEAD: usize = 500;
/// The most recipients that go in one part.
const MOST_RECIPIENTS: u32 = 10_000;
/// So many calls in a row may fail before a queue is left.
const PATIENCE: u32 = 3;
/// After so many bytes no more parked mail is read at a time.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// What a redrive works on.
pub(crate) struct Redriver<'a, B, Q, S> {
    pub(crate) schedule: &'a B,
    pub(crate) queues: &'a Q,
    pub(crate) parked: &'a S,
    pub(crate) settings: &'a ControlSettings,
    pub(crate) caller: &'a str,
}

/// What is to be redriven, checked.
pub(crate) struct Wanted {
    is_parked: bool,
    lanes: Vec<Lane>,
    pub(crate) tenant: Option<TenantName>,
    pub(crate) reason: Option<String>,
    pub(crate) older_than: Option<Millis>,
    pub(crate) younger_than: Option<Millis>,
    /// Recipients per second.
    rate: f64,
    time: Duration,
    pub(crate) resend: bool,
    dry_run: bool,
}

impl Wanted {
    /// Whether somebody asked for what first reached us then.
    pub(crate) fn is_of_age(&self, first_seen: Moment, now: Moment) -> bool {
        let age = first_seen.until(now);
        self.older_than.is_none_or(|least| age >= least)
            && self.younger_than.is_none_or(|most| age <= most)
    }
}

impl TryFrom<&Redrive> for Wanted {
    type Error = Failure;

    fn try_from(ask: &Redrive) -> Result<Self, Failure> {
        let bad = |what: String| bad_field(format!("redrive: {what}"));
        let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let is_parked = match some(&ask.from).as_deref() {
            None | Some("dead") => false,
            Some("parked") => true,
            Some(other) => return Err(bad(format!("from {other:?}: give dead or parked"))),
        };
        let lanes = match some(&ask.lane) {
            None => Lane::ALL.to_vec(),
            Some(lane) => vec![
                lane.parse()
                    .map_err(|_| bad(format!("lane {lane:?}: give priority or bulk")))?,
            ],
        };
        let tenant: Option<TenantName> = some(&ask.tenant)
            .map(|name| {
                name.parse()
                    .map_err(|error| bad(format!("tenant {name:?}: {error}")))
            })
            .transpose()?;
        if is_parked && tenant.is_none() {
            return Err(bad("tenant: name whose parked mail is to go".to_owned()));
        }
        let rate: Rate = ask
            .rate
            .parse()
            .map_err(|error| bad(format!("rate {:?}: {error}", ask.rate)))?;
        if rate.per_second() <= 0.0 {
            return Err(bad(format!("rate {:?}: give one above 0", ask.rate)));
        }
        let seconds = ask.seconds.unwrap_or(USUALLY);
        if !(1..=LONGEST).contains(&seconds) {
            return Err(bad(format!("seconds {seconds}: give 1 to {LONGEST}")));
        }
        let reason = some(&ask.reason);
        if is_parked
            && let Some(reason) = &reason
            && reason.parse::<Reason>().is_err()
        {
            return Err(bad(format!(
                "reason {reason:?}: parked mail is paused or uncertain"
            )));
        }
        if is_parked && reason.as_deref() == Some("uncertain") && !ask.resend {
            return Err(bad(
                "resend: uncertain mail may have been sent; say that it is to be sent all the same"
                    .to_owned(),
            ));
        }
        let age = |seconds: Option<u64>| seconds.map(|age| Millis(age.saturating_mul(1000)));
        Ok(Self {
            is_parked,
            lanes,
            tenant,
            reason,
            older_than: age(ask.older_than_seconds),
            younger_than: age(ask.younger_than_seconds),
            rate: rate.per_second(),
            time: Duration::from_secs(seconds),
            resend: ask.resend,
            dry_run: ask.dry_run,
        })
    }
}

/// One queue of dead letters in a redrive.
struct Pile<'a> {
    lane: Lane,
    place: Place,
    queue: &'a Queue,
    /// Letters that may go.
    ready: VecDeque<Candidate>,
    /// The receipts of those that stay.
    stay: Vec<String>,
    seen: HashSet<String>,
    /// All was received.
    all_seen: bool,
    failures: u32,
}

/// A letter on its way to its next queue.
struct Post {
    /// Of which pile it is.
    index: usize,
    candidate: Candidate,
    message: Message,
    /// What comes to nothing if it doesn't get there.
    booked: Option<(Ask, Booking)>,
}

/// What became of letters, as it is told.
#[derive(Default)]
struct Account {
    told: Redriven,
    /// When what has to wait may ask again.
    wait: Millis,
}

impl Account {
    /// Takes another in.
    fn add(&mut self, other: Self) {
        self.told.passed += other.told.passed;
        for (reason, count) in other.told.left {
            *self.told.left.entry(reason).or_default() += count;
        }
        let room = MOST_LISTED.saturating_sub(self.told.listed.len());
        let listed = other.told.listed.into_iter().take(room);
        self.told.listed.extend(listed);
    }

    fn leave(&mut self, left: LeftMail) {
        *self.told.left.entry(left.reason.clone()).or_default() += 1;
        if self.told.listed.len() < MOST_LISTED {
            self.told.listed.push(left);
        }
    }
}

impl<B: Book, Q: SendBatch + DeadLetters + Depths, S: Parked> Redriver<'_, B, Q, S> {
    /// Has mail go again for a while.
    ///
    /// # Errors
    /// When the request is wrong, or Redis or the bucket can't be used at its begin. What fails later stays where it is.
    pub(crate) async fn redrive(
        &self,
        ask: &Redrive,
        deadline: Deadline,
    ) -> Result<Redriven, Failure> {
        let wanted = Wanted::try_from(ask)?;
        let deadline = deadline.after(wanted.time);
        let look = in_time(deadline.book_by(), self.schedule.look()).await?;
        has_budget(&look)?;
        let effective = status::effective_rate(&look).unwrap_or_default();
        if wanted.rate >= effective {
            return Err(bad_field(format!(
                "redrive: rate {:?}: {effective}/s may be sent now, by all together: give less",
                ask.rate
            )));
        }
        if let Some((left, _)) = look.blocked() {
            return Ok(Redriven {
                retry_after_ms: left.0,
                ..Redriven::default()
            });
        }
        let told = if wanted.is_parked {
            self.parked(&wanted, &look, deadline).await?
        } else {
            self.dead(&wanted, &look, deadline).await
        };
        let Redriven {
            redriven,
            ended,
            passed,
            done,
            ..
        } = &told;
        let left: u64 = told.left.values().sum();
        tracing::info!(
            caller = self.caller,
            redriven,
            ended,
            passed,
            left,
            done,
            "redrive"
        );
        Ok(told)
    }

    async fn dead(&self, wanted: &Wanted, look: &Look, deadline: Deadline) -> Redriven {
        let mut piles: Vec<Pile<'_>> = Vec::new();
        for lane in &wanted.lanes {
            for place in [Place::Intake, Place::Send] {
                let queues = match place {
                    Place::Intake => &self.settings.intake_dlqs,
                    Place::Send => &self.settings.send_dlqs,
                };
                piles.push(Pile {
                    lane: *lane,
                    place,
                    queue: queues.get(*lane),
                    ready: VecDeque::new(),
                    stay: Vec::new(),
                    seen: HashSet::new(),
                    all_seen: false,
                    failures: 0,
                });
            }
        }
        let pace = Duration::from_secs_f64((PART / wanted.rate).min(1.0)).max(FASTEST);
        let (began, mut account) = (Instant::now(), Account::default());
        let now = |began: Instant| {
            let passed = u64::try_from(began.elapsed().as_millis()).unwrap_or_default();
            look.now + Millis(passed)
        };
        loop {
            let next = Instant::now() + pace;
            // All at once, as SQS takes its time to say that there is nothing.
            let now = now(began);
            let fills = piles
                .iter_mut()
                .map(|pile| self.fill(pile, wanted, now, deadline));
            for found in join_all(fills).await {
                account.add(found);
            }
            for lane in &wanted.lanes {
                if !deadline.is_near() {
                    self.part(&mut piles, *lane, wanted, &mut account, deadline)
                        .await;
                }
            }
            let open = piles
                .iter()
                .any(|pile| !pile.ready.is_empty() || !pile.all_seen);
            if !open || deadline.is_near() || next >= deadline.take_by() {
                account.told.done = !open && piles.iter().all(|pile| pile.failures == 0);
                break;
            }
            if !wanted.dry_run {
                sleep_until(next).await;
            }
        }
        self.close(piles, account, deadline).await
    }

    /// Receives letters of a queue until enough of them may go. Answers with those that won't.
    async fn fill(
        &self,
        pile: &mut Pile<'_>,
        wanted: &Wanted,
        now: Moment,
        deadline: Deadline,
    ) -> Account {
        let mut account = Account::default();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is bounded"
        )]
        let enough = ((wanted.rate * AHEAD) as usize).clamp(LEAST_AHEAD, MOST_AHEAD);
        while !pile.all_seen && pile.ready.len() < enough && !deadline.is_near() {
            let receive = self.queues.receive(pile.queue, HIDDEN_SECONDS);
            let error = match timeout_at(deadline.book_by(), receive).await {
                Ok(Ok(letters)) => {
                    pile.failures = 0;
                    pile.all_seen = letters.is_empty();
                    for letter in letters {
                        if !pile.seen.insert(letter.id.clone()) {
                            // SQS delivers at least once: it is held, or has gone.
                            continue;
                        }
                        let oldest = self.settings.max_message_age;
                        match judge(letter, pile.lane, pile.place, wanted, now, oldest) {
                            Verdict::Goes(candidate) => pile.ready.push_back(candidate),
                            Verdict::Passed(receipt) => {
                                account.told.passed += 1;
                                pile.stay.push(receipt);
                            }
                            Verdict::Left(receipt, left) => {
                                account.leave(left);
                                pile.stay.push(receipt);
                            }
                        }
                    }
                    continue;
                }
                Ok(Err(error)) => error,
                Err(_) => "no answer in time".to_owned(),
            };
            tracing::error!(
                queue = pile.queue.name(),
                error,
                "dead letters can't be received"
            );
            pile.failures += 1;
            pile.all_seen |= pile.failures >= PATIENCE;
            break;
        }
        account
    }

    /// Has as much of a lane go as its rate allows now.
    async fn part(
        &self,
        piles: &mut [Pile<'_>],
        lane: Lane,
        wanted: &Wanted,
        account: &mut Account,
        deadline: Deadline,
    ) {
        let ours = piles.iter().filter(|pile| pile.lane == lane);
        let all: u32 = ours
            .flat_map(|pile| &pile.ready)
            .map(|candidate| candidate.cost)
            .sum();
        if all == 0 {
            return;
        }
        let given = if wanted.dry_run {
            all
        } else {
            let draw = self
                .schedule
                .draw_dead(lane, all.min(MOST_RECIPIENTS), 0, wanted.rate);
            match in_time(deadline.book_by(), draw).await {
                Ok(given) => given,
                Err(error) => {
                    tracing::error!(%lane, %error, "nothing is redriven for now");
                    return;
                }
            }
        };
        let (mut taken, mut recipients) = (Vec::new(), 0);
        for (index, pile) in piles.iter_mut().enumerate() {
            while pile.lane == lane
                && recipients < given
                && let Some(candidate) = pile.ready.pop_front()
            {
                recipients += candidate.cost;
                taken.push((index, candidate));
            }
        }
        let went = self.go(piles, lane, taken, wanted, account, deadline).await;
        let beyond = i64::from(went) - i64::from(given);
        if !wanted.dry_run && beyond != 0 {
            let draw = self.schedule.draw_dead(lane, 0, beyond, wanted.rate);
            if let Err(error) = in_time(deadline.undo_by(), draw).await {
                tracing::warn!(%lane, beyond, %error, "a redrive's rate isn't corrected");
            }
        }
    }

    /// Has these letters go; answers how many recipients did.
    async fn go(
        &self,
        piles: &mut [Pile<'_>],
        lane: Lane,
        taken: Vec<(usize, Candidate)>,
        wanted: &Wanted,
        account: &mut Account,
        deadline: Deadline,
    ) -> u32 {
        let mut gone: Vec<(usize, String)> = Vec::new();
        let mut going = Vec::new();
        let marks = match self.marks(&taken, deadline).await {
            Ok(marks) => marks,
            Err(error) => {
                tracing::error!(%lane, %error, "it isn't known what of the dead letters was sent");
                for (index, candidate) in taken.into_iter().rev() {
                    piles[index].ready.push_front(candidate);
                }
                return 0;
            }
        };
        for (index, candidate) in taken {
            let mark = candidate
                .name()
                .and_then(|name| marks.get(&name))
                .and_then(Option::as_ref);
            match mark {
                Some(Mark::Ended { .. }) => {
                    account.told.ended += 1;
                    gone.push((index, candidate.receipt));
                }
                Some(Mark::Sending { .. }) => piles[index].stay.push(candidate.receipt),
                Some(Mark::Uncertain { .. } | Mark::Unreadable) if !wanted.resend => {
                    account.leave(candidate.left(
                        lane,
                        "uncertain",
                        "it may have been sent: resend sends it all the same",
                    ));
                    piles[index].stay.push(candidate.receipt);
                }
                _ => going.push((index, candidate)),
            }
        }
        if wanted.dry_run {
            account.told.redriven += going.len() as u64;
            let all = going.into_iter().map(|(index, one)| (index, one.receipt));
            for (index, receipt) in all.chain(gone) {
                piles[index].stay.push(receipt);
            }
            return 0;
        }
        let went = self
            .put(piles, lane, going, wanted, account, &mut gone, deadline)
            .await;
        for (index, pile) in piles.iter().enumerate() {
            let ours = gone.iter().filter(|(of, _)| *of == index);
            let receipts: Vec<&str> = ours.map(|(_, receipt)| receipt.as_str()).collect();
            self.delete(pile.queue, &receipts, deadline).await;
        }
        went
    }

    /// What claims say of these letters.
    async fn marks(
        &self,
        taken: &[(usize, Candidate)],
        deadline: Deadline,
    ) -> Result<HashMap<(TenantName, SendId), Option<Mark>>, Failure> {
        let names: Vec<_> = taken.iter().filter_map(|(_, one)| one.name()).collect();
        let found = in_time(deadline.book_by(), self.schedule.find(&names)).await?;
        let marks = found.into_iter().map(|found| found.claim);
        Ok(names.into_iter().zip(marks).collect())
    }

    /// Books those that had a slot, and puts all on their next queue. Those that got there are `gone` from here.
    #[expect(clippy::too_many_arguments, reason = "two steps of one way")]
    async fn put(
        &self,
        piles: &mut [Pile<'_>],
        lane: Lane,
        going: Vec<(usize, Candidate)>,
        wanted: &Wanted,
        account: &mut Account,
        gone: &mut Vec<(usize, String)>,
        deadline: Deadline,
    ) -> u32 {
        let (mut requests, mut envelopes, mut asks) = (Vec::new(), Vec::new(), Vec::new());
        for (index, candidate) in going {
            if let Some(ask) = candidate.ask() {
                envelopes.push((index, candidate));
                asks.push(ask);
            } else {
                requests.push(Post {
                    index,
                    message: candidate.as_request(),
                    candidate,
                    booked: None,
                });
            }
        }
        let ids = envelopes.iter().map(|(_, one)| one.send_id.clone());
        let ids: Vec<_> = ids.collect();
        let bookings = if asks.is_empty() {
            Ok(Vec::new())
        } else {
            book(self.schedule, lane, &asks, &ids, deadline.book_by()).await
        };
        let bookings = bookings.unwrap_or_else(|error| {
            tracing::error!(%lane, %error, "dead letters get no slots");
            for (index, candidate) in envelopes.iter().rev() {
                piles[*index].ready.push_front(candidate.clone());
            }
            Vec::new()
        });
        let (mut undone, mut booked) = (Undone::default(), Vec::new());
        for (((index, candidate), ask), booking) in envelopes.into_iter().zip(asks).zip(bookings) {
            let made = match &booking {
                Booking::Slot(slot) => candidate.as_envelope(lane, slot, wanted.resend),
                Booking::Cancelled => {
                    account.told.ended += 1;
                    gone.push((index, candidate.receipt));
                    continue;
                }
                Booking::Wait(Wait { delay: wait, .. }) | Booking::Blocked(wait) => {
                    account.wait = account.wait.max(*wait);
                    undone.add(&ask, &booking);
                    piles[index].ready.push_front(candidate);
                    continue;
                }
                other => {
                    let (why, detail) = no_slot(other);
                    account.leave(candidate.left(lane, why, &detail));
                    piles[index].stay.push(candidate.receipt);
                    continue;
                }
            };
            match made {
                Ok(message) => booked.push(Post {
                    index,
                    candidate,
                    message,
                    booked: Some((ask, booking)),
                }),
                Err(error) => {
                    undone.add(&ask, &booking);
                    account.leave(candidate.left(lane, "unwritable", &error.to_string()));
                    piles[index].stay.push(candidate.receipt);
                }
            }
        }
        let settings = self.settings;
        let mut went = 0;
        for (queue, posts) in [
            (settings.intake_queues.get(lane), requests),
            (settings.send_queues.get(lane), booked),
        ] {
            let messages: Vec<Message> = posts.iter().map(|post| post.message.clone()).collect();
            let put = queue::send_all(self.queues, queue, &messages, deadline.put_by()).await;
            for (post, put) in posts.into_iter().zip(put) {
                let Post {
                    index, candidate, ..
                } = post;
                let Err(error) = put else {
                    if let Some((tenant, send_id)) = candidate.name() {
                        tracing::info!(%send_id, %tenant, %lane, outcome = "redriven");
                    }
                    account.told.redriven += 1;
                    went += candidate.cost;
                    gone.push((index, candidate.receipt));
                    continue;
                };
                tracing::error!(%lane, %error, "a dead letter stays where it is");
                if let Some((ask, booking)) = &post.booked {
                    undone.add(ask, booking);
                }
                if matches!(error, NotSent::TooLarge { .. } | NotSent::Refused { .. }) {
                    let why = "its next queue refused it";
                    account.leave(candidate.left(lane, "not_queued", why));
                }
                piles[index].stay.push(candidate.receipt);
            }
        }
        booking::undo(self.schedule, lane, &undone, deadline.undo_by()).await;
        went
    }

    /// Removes letters from their queue.
    async fn delete(&self, queue: &Queue, receipts: &[&str], deadline: Deadline) {
        for ten in receipts.chunks(queue::MAX_ENTRIES) {
            let error = match timeout_at(deadline.undo_by(), self.queues.delete(queue, ten)).await {
                Ok(Ok(there)) if there.is_empty() => continue,
                Ok(Ok(there)) => format!("{} of {} are still there", there.len(), ten.len()),
                Ok(Err(error)) => error,
                Err(_) => "no answer in time".to_owned(),
            };
            tracing::warn!(
                queue = queue.name(),
                error,
                "letters that go again are still on their queue: they go once"
            );
        }
    }

    /// Shows what stays, and tells what has come of it.
    async fn close(&self, piles: Vec<Pile<'_>>, account: Account, deadline: Deadline) -> Redriven {
        let Account { mut told, mut wait } = account;
        let mut hidden = false;
        for mut pile in piles {
            let ready = pile.ready.drain(..).map(|one| one.receipt);
            let stay: Vec<String> = ready.chain(pile.stay).collect();
            let stay: Vec<&str> = stay.iter().map(String::as_str).collect();
            let queue = pile.queue;
            stream::iter(stay.chunks(queue::MAX_ENTRIES))
                .for_each_concurrent(8, async |ten| {
                    let shown = timeout_at(deadline.undo_by(), self.queues.show(queue, ten)).await;
                    if !matches!(shown, Ok(Ok(()))) {
                        tracing::warn!(
                            queue = queue.name(),
                            letters = ten.len(),
                            "letters that stay are seen again in {HIDDEN_SECONDS} s"
                        );
                    }
                })
                .await;
            let depth = timeout_at(deadline.undo_by(), self.queues.depth(queue)).await;
            let Ok(Ok(depth)) = depth else {
                tracing::warn!(queue = queue.name(), "it isn't known what a queue holds");
                continue;
            };
            told.remaining += depth.visible + depth.delayed + depth.in_flight;
            // Another call has them, or was killed: they come back.
            hidden |= depth.in_flight > 0;
        }
        if told.done && hidden {
            told.done = false;
            wait = wait.max(HIDDEN_AGAIN);
        }
        if !told.done {
            told.retry_after_ms = wait.0;
        }
        told
    }

    /// A tenant's parked mail: as a replay, at this rate.
    async fn parked(
        &self,
        wanted: &Wanted,
        look: &Look,
        deadline: Deadline,
    ) -> Result<Redriven, Failure> {
        let Some(tenant) = &wanted.tenant else {
            return Ok(Redriven::default()); // one is asked for
        };
        if status::is_paused(look, tenant) {
            return Err(tenant_paused(tenant));
        }
        let reason = wanted.reason.as_deref().map(str::parse);
        let reason = reason.and_then(Result::ok).unwrap_or(Reason::Paused);
        let releaser = Releaser::new(self.schedule, self.queues, self.parked, self.settings);
        if !wanted.dry_run {
            let set = self.schedule.set_replay(tenant, wanted.rate);
            in_time(deadline.book_by(), set).await?;
        }
        let (mut told, mut after) = (Redriven::default(), None::<ParkedKey>);
        let (mut keys, mut all_listed): (Vec<ParkedKey>, bool) = (Vec::new(), false);
        while !deadline.is_near() {
            let next = Instant::now() + PACE;
            if keys.len() < ROUND && !all_listed {
                let list = self
                    .parked
                    .oldest(tenant, Some(reason), after.as_ref(), ROUND);
                let page = listed(timeout_at(deadline.take_by(), list).await)?;
                all_listed = page.len() < ROUND;
                after = page.last().cloned().or(after);
                let (asked, passed): (Vec<_>, Vec<_>) = page.into_iter().partition(|key| {
                    wanted.lanes.contains(&key.lane) && wanted.is_of_age(key.first_seen, look.now)
                });
                told.passed += passed.len() as u64;
                if wanted.dry_run {
                    told.redriven += asked.len() as u64;
                } else {
                    keys.extend(asked);
                }
            }
            if keys.is_empty() {
                if all_listed {
                    told.done = true;
                    break;
                }
                continue;
            }
            let draw = self.schedule.draw(tenant, MOST_RECIPIENTS, 0, wanted.rate);
            let given = in_time(deadline.book_by(), draw).await?;
            if given > 0 {
                let mut tally = Tally::default();
                let portion = Portion {
                    recipients: u64::from(given),
                    bytes: MAX_BYTES,
                };
                let (mails, _) = releaser
                    .read(&keys, portion, look.now, &mut tally, deadline)
                    .await?;
                let sent = releaser
                    .send_on(mails, reason, Standing::Again, &mut tally, deadline)
                    .await;
                let beyond = i64::try_from(tally.recipients).unwrap_or(i64::MAX) - i64::from(given);
                let draw = self.schedule.draw(tenant, 0, beyond, wanted.rate);
                if let Err(error) = in_time(deadline.undo_by(), draw).await {
                    tracing::warn!(%tenant, beyond, %error, "a redrive's rate isn't corrected");
                }
                keys.retain(|key| !tally.settled.contains(&key.to_string()));
                told.redriven += tally.released as u64;
                told.ended += tally.expired as u64;
                for (reason, count) in &tally.reasons {
                    *told.left.entry((*reason).to_owned()).or_default() += *count as u64;
                }
                sent?;
                if tally.paused {
                    return Err(tenant_paused(tenant));
                }
                told.retry_after_ms = tally.wait.0;
            }
            if next >= deadline.take_by() {
                break;
            }
            sleep_until(next).await;
        }
        told.remaining = keys.len() as u64;
        Ok(told)
    }
}

/// Why a letter has no slot, and what to do.
fn no_slot(booking: &Booking) -> (&'static str, String) {
    match booking {
        Booking::Paused => (
            "tenant_paused",
            "its tenant may not send: resume it, then redrive".to_owned(),
        ),
        Booking::UnknownTenant => (
            Refusal::UNKNOWN_TENANT,
            "nobody knows its tenant: set it up, then redrive".to_owned(),
        ),
        Booking::OverCap => (Refusal::OverCap.code(), Refusal::OverCap.to_string()),
        _ => ("no_slot", "there is no slot for it".to_owned()),
    }
}
