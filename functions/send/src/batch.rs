//! The way of a batch, without AWS or Redis.
//!
//! 1. Unreadable and expired messages are sorted out.
//! 2. One claim for all others: it says which may go and when.
//! 3. Each goes at its moment, beside the others, in one request.
//! 4. One commit: marks for what was sent, and claims given up for what wasn't.
//! 5. One booking for all that have to go another time, unless the commit failed: they come back.
//! 6. The queues: put back, dead-letter, hide. Only then may SQS delete the old messages; those whose
//!    step here failed are named in the answer and come back instead.
//! 7. The slots that nobody will use go back to the schedule: those of messages that are done with, or have
//!    a new one, without having drawn a grant, and new ones of messages that come back. Where a grant was
//!    drawn, the guard has spent it, whatever came of the send, and nobody else could use the slot.
//!
//! The commit goes before everything that a later failure could cut short, so that what was sent is
//! marked as early as possible, and a message put back never meets its own old claim.

use std::{collections::HashMap, time::Duration};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use futures_util::future::join_all;
use sendslot_domain::{
    Lane, Millis, Moment, TenantName,
    outcome::{Next, Outcome, longest_jitter},
};
use sendslot_mail::{Envelope, Refusal};
use sendslot_runtime::{
    Metrics, Queue, SendSettings,
    lanes::UnknownQueue,
    queue::{self, Attribute, MAX_DELAY_SECONDS, NotSent, SendBatch},
};
use sendslot_schedule::{
    Ask, Booking, Claim, ClaimAsk, End, Ending, ScheduleError, Standing, Terms, Unused,
};
use tokio::time::{Instant, error::Elapsed, sleep, sleep_until, timeout, timeout_at};
use tracing::{error, info, warn};

use crate::ports::{Claims, Outgoing, Provider, Reply, Slots, Visibility};

/// The longest that a message waits for its moment inside an invocation. Further away, it goes back to
/// the queue, where waiting costs nothing.
pub const LONGEST_WAIT: Millis = Millis::from_secs(2);
/// The longest that one send may take.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// What is kept of an invocation's time for everything after the last send: with a function timeout that
/// is not longer than this and [`SEND_TIMEOUT`] together, nothing would ever be sent.
///
/// Whatever Redis and SQS do, it is enough. At their longest, after the last send:
///
/// | part | takes | ends at |
/// |---|---|---|
/// | commit: three times `COMMIT_TIMEOUT`, and the pauses of 50 and 100 ms | 3.15 s | 3.15 s |
/// | booking: `BOOK_TIMEOUT` | 0.5 s | 3.65 s |
/// | queues: what is left until `SETTLED_AFTER`, at least | 0.85 s | 4.5 s |
/// | release: `RELEASE_TIMEOUT` | 0.25 s | 4.75 s |
/// | metrics and the answer | 0.25 s | 5 s |
///
/// After a commit that failed there is no booking and no release: Redis would hardly answer those, a message
/// put back would meet its own old claim, and the queues get the time.
pub const CLOSING: Duration = Duration::from_secs(5);
/// How much longer Redis remembers a send id than any message may live.
const MEMORY_MARGIN: Millis = Millis::from_secs(86_400);
/// The pauses between the tries to commit, and so their number.
const COMMIT_PAUSES: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::ZERO,
];
/// The longest that one try to commit may take.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest that the booking may take.
const BOOK_TIMEOUT: Duration = Duration::from_millis(500);
/// How long after the last send the queues must have been told.
const SETTLED_AFTER: Duration = Duration::from_millis(4_500);
/// The longest that the release may take.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(250);

/// The counts of a batch; each is there in every batch, zero or not.
pub const COUNTS: [&str; 13] = [
    "ClaimFailed",
    "Sent",
    "SentUncommitted",
    "Throttled",
    "Retried",
    "Rebooked",
    "Early",
    "Rejected",
    "Uncertain",
    "Expired",
    "Duplicate",
    "Held",
    "DeadLettered",
];

/// Sends batches.
#[derive(Clone, Debug)]
pub struct Sender<R, P, Q> {
    redis: R,
    provider: P,
    queues: Q,
    settings: SendSettings,
    configuration_sets: HashMap<TenantName, Option<String>>,
}

/// What is known of the invocation that a batch came with.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// Its unique id, under which it claims.
    pub id: String,
    /// When it began, on the wall clock.
    pub now: Moment,
    /// When it is cut short.
    pub deadline: Instant,
}

impl<R: Claims + Slots, P: Provider, Q: SendBatch + Visibility> Sender<R, P, Q> {
    /// A sender with these parts.
    pub fn new(redis: R, provider: P, queues: Q, settings: SendSettings) -> Self {
        let tenants = settings.common.seed.tenants.iter().cloned();
        let configuration_sets = tenants
            .map(|tenant| (tenant.name, tenant.configuration_set))
            .collect();
        Self {
            redis,
            provider,
            queues,
            settings,
            configuration_sets,
        }
    }

    /// How long Redis remembers what became of a send id: longer than any message lives.
    const fn memory(&self) -> Millis {
        Millis(self.settings.common.max_message_age.0 + MEMORY_MARGIN.0)
    }

    /// Takes a batch through to the answer that SQS gets: it names the messages that come back.
    ///
    /// # Errors
    /// When the batch came from a queue that is not a send queue of ours; nothing is done then.
    pub async fn handle(
        &self,
        event: SqsEvent,
        invocation: &Invocation,
    ) -> Result<(SqsBatchResponse, Metrics), UnknownQueue> {
        let source = event
            .records
            .first()
            .and_then(|record| record.event_source_arn.as_deref());
        let common = &self.settings.common;
        let lane = common.send_queues.lane_of(source.unwrap_or_default())?;
        let mut metrics = Metrics::new(&common.namespace, &common.service, Some(lane));
        for name in COUNTS {
            metrics.count(name, 0);
        }

        let mut batch = Batch {
            sender: self,
            lane,
            invocation,
            metrics,
            ends: Vec::new(),
            homeless: Vec::new(),
            settled: Vec::new(),
            spare: Vec::new(),
        };
        let messages = batch.take_in(event.records);
        let granted = batch.claim(messages).await;
        batch.send(granted).await;
        let settled_by = Instant::now() + SETTLED_AFTER;
        let committed = batch.commit().await;
        if committed {
            batch.book().await;
        } else {
            let homeless = std::mem::take(&mut batch.homeless);
            batch.keep(homeless);
        }
        let response = batch.settle(settled_by).await;
        if committed {
            batch.release().await;
        }
        Ok((response, batch.metrics))
    }
}

/// A message as SQS handed it over.
struct Record {
    id: String,
    receipt: String,
    body: String,
}

impl From<SqsMessage> for Record {
    fn from(message: SqsMessage) -> Self {
        Self {
            id: message.message_id.unwrap_or_default(),
            receipt: message.receipt_handle.unwrap_or_default(),
            body: message.body.unwrap_or_default(),
        }
    }
}

/// A message that could be read.
struct Message {
    record: Record,
    envelope: Envelope,
}

/// A message that may go.
struct Granted {
    message: Message,
    grant: Moment,
    due: Instant,
}

/// A message that needs a new slot.
struct Homeless {
    message: Message,
    not_before: Millis,
    jitter: Millis,
    count: &'static str,
    /// Its old slot, if no grant was drawn for it.
    unused: Option<Unused>,
}

/// What SQS has to do with a message.
enum Fate {
    /// It is done with.
    Delete,
    /// Put it on the dead-letter queue.
    DeadLetter {
        reason: &'static str,
        detail: String,
        /// What to give back then.
        unused: Option<Unused>,
    },
    /// Put `message` on the send queue in its place.
    Again {
        message: queue::Message,
        count: &'static str,
        /// What to give back then: its old slot.
        unused: Option<Unused>,
        /// What to give back otherwise: its new slot.
        booked: Option<Unused>,
    },
    /// Let it come back after so many seconds.
    Back { seconds: u16 },
    /// Let it come back at the end of its visibility timeout.
    Keep,
}

/// One batch under way.
struct Batch<'a, R, P, Q> {
    sender: &'a Sender<R, P, Q>,
    lane: Lane,
    invocation: &'a Invocation,
    metrics: Metrics,
    /// How claims end.
    ends: Vec<End>,
    /// What needs a new slot.
    homeless: Vec<Homeless>,
    /// What SQS has to do.
    settled: Vec<(Record, Fate)>,
    /// Booked slots that nobody will use.
    spare: Vec<Unused>,
}

impl<R: Claims + Slots, P: Provider, Q: SendBatch + Visibility> Batch<'_, R, P, Q> {
    /// Sorts out what can't be sent whatever the claim says.
    fn take_in(&mut self, records: Vec<SqsMessage>) -> Vec<Message> {
        let mut messages = Vec::with_capacity(records.len());
        for record in records.into_iter().map(Record::from) {
            let envelope = match Envelope::from_json(&record.body) {
                Ok(envelope) => envelope,
                Err(error) => {
                    warn!(message_id = record.id, %error, outcome = "bad_envelope");
                    let detail = error.to_string();
                    self.settled.push((
                        record,
                        Fate::DeadLetter {
                            reason: "bad_envelope",
                            detail,
                            unused: None,
                        },
                    ));
                    continue;
                }
            };
            if self.is_expired(&envelope) {
                self.log(&envelope, "expired", None);
                self.metrics.count("Expired", 1);
                self.spare.extend(unused(&envelope));
                self.settled.push((record, Fate::Delete));
            } else if self
                .sender
                .configuration_sets
                .contains_key(&envelope.tenant)
            {
                messages.push(Message { record, envelope });
            } else {
                let unused = unused(&envelope);
                self.unknown_tenant(Message { record, envelope }, unused);
            }
        }
        messages
    }

    /// Claims all messages in one round trip; what may not go now is settled or waits for a new slot.
    async fn claim(&mut self, messages: Vec<Message>) -> Vec<Granted> {
        if messages.is_empty() {
            return Vec::new();
        }
        let Some(time_left) = time_left(self.invocation.deadline) else {
            warn!(
                messages = messages.len(),
                "no time to send before the function times out: the batch comes back (a timeout must be above {:?})",
                SEND_TIMEOUT + CLOSING
            );
            self.settled.extend(
                messages
                    .into_iter()
                    .map(|m| (m.record, Fate::Back { seconds: 0 })),
            );
            return Vec::new();
        };
        let time_left = u64::try_from(time_left.as_millis()).map_or(LONGEST_WAIT, Millis);
        let asks: Vec<ClaimAsk> = messages.iter().map(claim_ask).collect();
        let terms = Terms {
            lane: self.lane,
            lease: self.sender.settings.lease,
            longest_wait: LONGEST_WAIT.min(time_left),
            memory: self.sender.memory(),
        };
        let claim = self.sender.redis.claim(&self.invocation.id, terms, &asks);
        // There is time: `time_left` said so. Cut short by Lambda, a claim would look like a send.
        let claims = match timeout_at(self.invocation.deadline - CLOSING, claim).await {
            Ok(Ok(claims)) => claims,
            failed => {
                let error = failure(failed);
                error!(
                    error,
                    messages = messages.len(),
                    "claiming failed: the batch comes back"
                );
                self.metrics.count("ClaimFailed", messages.len());
                for Message { record, envelope } in messages {
                    // If only the answer was lost, the claim must not look like a send that nobody
                    // knows the end of.
                    self.end(&envelope, Ending::Free);
                    self.settled.push((record, Fate::Keep));
                }
                return Vec::new();
            }
        };
        let answered = Instant::now();
        let mut granted = Vec::with_capacity(messages.len());
        for (message, claim) in messages.into_iter().zip(claims) {
            match claim {
                Claim::Go { at, wait } => {
                    granted.push(Granted {
                        message,
                        grant: at,
                        due: answered + wait.into(),
                    });
                }
                other => self.not_now(message, other),
            }
        }
        granted
    }

    /// Settles a message that its claim didn't let go.
    fn not_now(&mut self, message: Message, claim: Claim) {
        let envelope = &message.envelope;
        let fate = match claim {
            // It surfaced early, which is no fault of its own: it keeps its slot and goes back as it is.
            Claim::Later {
                wait,
                slot_ahead: true,
            } => Fate::Again {
                message: queue::Message {
                    body: message.record.body.clone(),
                    delay_seconds: delay_seconds(wait),
                    attributes: Vec::new(),
                },
                count: "Early",
                unused: None,
                booked: None,
            },
            Claim::Go { .. }
            | Claim::Later {
                slot_ahead: false, ..
            } => {
                let nothing = Millis::default();
                let unused = unused(envelope);
                return self.homeless.push(Homeless {
                    message,
                    not_before: nothing,
                    jitter: nothing,
                    count: "Rebooked",
                    unused,
                });
            }
            Claim::Sent => {
                self.log(envelope, "duplicate", None);
                self.metrics.count("Duplicate", 1);
                self.spare.extend(unused(envelope));
                Fate::Delete
            }
            Claim::Held { left } => {
                self.log(envelope, "held", None);
                self.metrics.count("Held", 1);
                let seconds = left.0.div_ceil(1000).max(1);
                Fate::Back {
                    seconds: u16::try_from(seconds).unwrap_or(u16::MAX),
                }
            }
            Claim::Unknown => {
                self.log(envelope, Outcome::Uncertain.code(), None);
                self.metrics.count("Uncertain", 1);
                let detail = "a claim ended without telling how: it may have been sent".to_owned();
                Fate::DeadLetter {
                    reason: Outcome::Uncertain.code(),
                    detail,
                    unused: unused(envelope),
                }
            }
            Claim::Conflict => {
                self.log(envelope, "send_id_conflict", None);
                let detail = "the send id was used for a mail with other content".to_owned();
                Fate::DeadLetter {
                    reason: "send_id_conflict",
                    detail,
                    unused: unused(envelope),
                }
            }
        };
        self.settled.push((message.record, fate));
    }

    /// Sends everything granted, all at once, each at its moment.
    async fn send(&mut self, granted: Vec<Granted>) {
        let (sender, in_lane, deadline) = (self.sender, self.lane, self.invocation.deadline);
        let sends = granted.into_iter().map(async |granted| {
            sleep_until(granted.due).await;
            let start = Instant::now();
            if time_left(deadline).is_none() {
                return (granted, None);
            }
            let envelope = &granted.message.envelope;
            let outgoing = Outgoing {
                envelope,
                lane: in_lane,
                grant: granted.grant,
                configuration_set: sender
                    .configuration_sets
                    .get(&envelope.tenant)
                    .and_then(Option::as_deref),
            };
            let reply = sender.provider.send(&outgoing).await;
            let late =
                u64::try_from((start - granted.due).as_millis()).map_or(Millis::default(), Millis);
            (granted, Some((reply, late)))
        });
        for (Granted { message, grant, .. }, tried) in join_all(sends).await {
            let Some((reply, late)) = tried else {
                self.end(&message.envelope, Ending::Free);
                self.settled
                    .push((message.record, Fate::Back { seconds: 0 }));
                continue;
            };
            self.metrics.longest("GrantErrorMs", late);
            self.metrics
                .longest("SlotErrorMs", message.envelope.slot.until(grant + late));
            self.conclude(message, &reply);
        }
    }

    /// Draws the consequences of one send.
    fn conclude(&mut self, mut message: Message, reply: &Reply) {
        let envelope = &message.envelope;
        self.log(envelope, reply.outcome.code(), Some(reply));
        match reply.outcome {
            Outcome::RateThrottled { .. } | Outcome::DailyQuota => {
                self.metrics.count("Throttled", 1);
            }
            Outcome::Uncertain => self.metrics.count("Uncertain", 1),
            _ => {}
        }
        match reply.outcome.next(envelope.attempts) {
            Next::Commit => {
                self.metrics.count("Sent", 1);
                self.end(envelope, Ending::Sent);
                self.settled.push((message.record, Fate::Delete));
            }
            Next::Delete => {
                self.metrics.count("Rejected", 1);
                self.end(envelope, Ending::Free);
                self.settled.push((message.record, Fate::Delete));
            }
            Next::DeadLetter { reason, free } => {
                if free {
                    self.end(envelope, Ending::Free);
                }
                let said = reply.said.as_deref().unwrap_or("no answer");
                let fate = Fate::DeadLetter {
                    reason,
                    detail: format!("{}: {said}", reply.outcome.code()),
                    unused: None,
                };
                self.settled.push((message.record, fate));
            }
            Next::Retry {
                attempts,
                not_before,
            } => {
                self.end(envelope, Ending::Free);
                message.envelope.attempts = attempts;
                let jitter = Millis(rand::random_range(0..=longest_jitter(attempts).0));
                self.homeless.push(Homeless {
                    message,
                    not_before,
                    jitter,
                    count: "Retried",
                    unused: None,
                });
            }
        }
    }

    /// Commits how the claims ended. What was sent is never sent again for want of a commit: its message
    /// is deleted all the same. A claim that could not be given up runs out by itself. Answers whether
    /// nothing is left to commit.
    async fn commit(&mut self) -> bool {
        if self.ends.is_empty() {
            return true;
        }
        for pause in COMMIT_PAUSES {
            let commit =
                self.sender
                    .redis
                    .commit(&self.invocation.id, self.sender.memory(), &self.ends);
            match timeout(COMMIT_TIMEOUT, commit).await {
                Ok(Ok(())) => return true,
                failed => warn!(error = failure(failed), "committing failed"),
            }
            sleep(pause).await;
        }
        let sent = self.ends.iter().filter(|end| end.how == Ending::Sent);
        let count = sent
            .map(
                |End {
                     tenant, send_id, ..
                 }| {
                    error!(%send_id, %tenant, lane = %self.lane, outcome = "sent_uncommitted");
                },
            )
            .count();
        self.metrics.count("SentUncommitted", count);
        false
    }

    /// Gives a new slot to each message that needs one, in one round trip.
    async fn book(&mut self) {
        let homeless = std::mem::take(&mut self.homeless);
        if homeless.is_empty() {
            return;
        }
        let asks: Vec<Ask> = homeless
            .iter()
            .map(|Homeless { message, .. }| Ask {
                tenant: message.envelope.tenant.clone(),
                cost: message.envelope.mail.cost(),
                standing: Standing::Again,
            })
            .collect();
        let book = self.sender.redis.book(self.lane, &asks);
        let bookings = match timeout(BOOK_TIMEOUT, book).await {
            Ok(Ok(bookings)) => bookings,
            failed => {
                let error = failure(failed);
                error!(
                    error,
                    messages = homeless.len(),
                    "booking failed: the messages come back"
                );
                return self.keep(homeless);
            }
        };
        for (homeless, booking) in homeless.into_iter().zip(bookings) {
            self.put_back(homeless, booking);
        }
    }

    /// Lets messages come back that could get no new slot.
    fn keep(&mut self, homeless: Vec<Homeless>) {
        self.settled
            .extend(homeless.into_iter().map(|h| (h.message.record, Fate::Keep)));
    }

    /// Puts a message back on the send queue, delayed to its new slot or longer.
    ///
    /// A message with jitter surfaces after its slot, and one that found the schedule full goes without
    /// a slot: both then go when the guard lets them.
    fn put_back(&mut self, homeless: Homeless, booking: Booking) {
        let Homeless {
            mut message,
            not_before,
            jitter,
            count,
            unused: old,
        } = homeless;
        let envelope = &mut message.envelope;
        let delay = match booking {
            Booking::Slot(slot) => {
                envelope.slot = slot.at;
                envelope.cells = slot.cells;
                slot.delay
            }
            Booking::Wait(wait) => {
                envelope.cells = Vec::new();
                wait.delay
            }
            Booking::UnknownTenant => return self.unknown_tenant(message, old),
            Booking::OverCap => return self.over_cap(message, old),
            // Not to [`Standing::Again`].
            Booking::Left => return self.settled.push((message.record, Fate::Keep)),
        };
        let Message { record, envelope } = message;
        let booked = unused(&envelope);
        let fate = match envelope.to_json() {
            Ok(body) => Fate::Again {
                message: queue::Message {
                    body,
                    delay_seconds: delay_seconds(Millis(delay.max(not_before).0 + jitter.0)),
                    attributes: Vec::new(),
                },
                count,
                unused: old,
                booked,
            },
            Err(error) => {
                error!(send_id = %envelope.send_id, %error, "writing an envelope failed");
                self.spare.extend(booked);
                Fate::Keep
            }
        };
        self.settled.push((record, fate));
    }

    /// Has SQS do what was decided; answers with the messages that come back. Those that SQS has not
    /// taken at the moment `by` do: one that it did take is there twice then, and goes once.
    async fn settle(&mut self, by: Instant) -> SqsBatchResponse {
        let mut response = SqsBatchResponse::default();
        let (mut hidden, mut again, mut dead) = (Vec::new(), Vec::new(), Vec::new());
        let (mut again_of, mut dead_of) = (Vec::new(), Vec::new());
        for (record, fate) in std::mem::take(&mut self.settled) {
            match fate {
                Fate::Delete => {}
                Fate::Keep => response.add_failure(record.id),
                Fate::Back { seconds } => {
                    hidden.push((record.receipt, seconds));
                    response.add_failure(record.id);
                }
                Fate::Again {
                    message,
                    count,
                    unused,
                    booked,
                } => {
                    again.push(message);
                    again_of.push((record.id, count, unused, booked));
                }
                Fate::DeadLetter {
                    reason,
                    detail,
                    unused,
                } => {
                    dead.push(dead_letter(record.body, reason, detail));
                    dead_of.push((record.id, unused));
                }
            }
        }
        let (queues, settings) = (&self.sender.queues, &self.sender.settings);
        let send_queue = settings.common.send_queues.get(self.lane);
        let (hiding, again, dead) = tokio::join!(
            async {
                match hidden.as_slice() {
                    [] => Ok(()),
                    hidden => timeout_at(by, queues.hide(send_queue, hidden))
                        .await
                        .unwrap_or_else(|_| Err(LATE.to_owned())),
                }
            },
            put_all(queues, send_queue, &again, by),
            put_all(queues, settings.send_dlqs.get(self.lane), &dead, by),
        );
        if let Err(error) = hiding {
            warn!(
                error,
                "changing visibility failed: messages come back later than they could"
            );
        }
        for ((id, count, unused, booked), put) in again_of.into_iter().zip(again) {
            if is_put(&id, put) {
                self.metrics.count(count, 1);
                self.spare.extend(unused);
            } else {
                self.spare.extend(booked);
                response.add_failure(id);
            }
        }
        for ((id, unused), put) in dead_of.into_iter().zip(dead) {
            if is_put(&id, put) {
                self.metrics.count("DeadLettered", 1);
                self.spare.extend(unused);
            } else {
                response.add_failure(id);
            }
        }
        response
    }

    /// Gives booked slots back that nobody will use.
    async fn release(&mut self) {
        if self.spare.is_empty() {
            return;
        }
        let release = self.sender.redis.release(self.lane, &self.spare);
        match timeout(RELEASE_TIMEOUT, release).await {
            Ok(Ok(())) => {}
            failed => warn!(
                error = failure(failed),
                "releasing slots failed: they stay empty"
            ),
        }
    }

    /// Settles a message whose tenant nobody knows: setting it up is the operator's.
    fn unknown_tenant(&mut self, message: Message, unused: Option<Unused>) {
        let detail = "the tenant is not set up in this deployment".to_owned();
        self.give_up(message, Refusal::UnknownTenant.code(), detail, unused);
    }

    /// Settles a message that a cap, lowered since it was first booked, never lets go.
    fn over_cap(&mut self, message: Message, unused: Option<Unused>) {
        let refusal = Refusal::OverCap;
        self.give_up(message, refusal.code(), refusal.to_string(), unused);
    }

    fn give_up(
        &mut self,
        message: Message,
        reason: &'static str,
        detail: String,
        unused: Option<Unused>,
    ) {
        self.log(&message.envelope, reason, None);
        let fate = Fate::DeadLetter {
            reason,
            detail,
            unused,
        };
        self.settled.push((message.record, fate));
    }

    fn is_expired(&self, envelope: &Envelope) -> bool {
        let oldest = envelope.first_seen + self.sender.settings.common.max_message_age;
        self.invocation.now >= envelope.expires_at.map_or(oldest, |at| at.min(oldest))
    }

    fn end(&mut self, envelope: &Envelope, how: Ending) {
        let (tenant, send_id) = (envelope.tenant.clone(), envelope.send_id.clone());
        self.ends.push(End {
            tenant,
            send_id,
            how,
        });
    }

    fn log(&self, envelope: &Envelope, outcome: &str, reply: Option<&Reply>) {
        let Envelope {
            send_id,
            tenant,
            attempts,
            ..
        } = envelope;
        let provider_message_id = reply.and_then(|reply| reply.id.as_deref());
        let said = reply.and_then(|reply| reply.said.as_deref());
        info!(%send_id, %tenant, lane = %self.lane, attempts, outcome, provider_message_id, said);
    }
}

/// What is said of a call that was given up.
const LATE: &str = "no answer in time";

/// What to say of a call to Redis that didn't do.
fn failure<T>(failed: Result<Result<T, ScheduleError>, Elapsed>) -> String {
    match failed {
        Ok(Ok(_)) => String::new(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => LATE.to_owned(),
    }
}

/// Puts messages on a queue; one outcome each, at the moment `by` at the latest.
async fn put_all(
    queues: &impl SendBatch,
    queue: &Queue,
    messages: &[queue::Message],
    by: Instant,
) -> Vec<Result<(), NotSent>> {
    let late = |_| vec![Err(NotSent::Call(LATE.to_owned())); messages.len()];
    timeout_at(by, queue::send_all(queues, queue, messages))
        .await
        .unwrap_or_else(late)
}

/// What SQS takes as a delay: whole seconds, so that a message surfaces rather early than late.
fn delay_seconds(delay: Millis) -> u16 {
    u16::try_from(delay.whole_secs())
        .map_or(MAX_DELAY_SECONDS, |seconds| seconds.min(MAX_DELAY_SECONDS))
}

fn dead_letter(body: String, reason: &'static str, detail: String) -> queue::Message {
    let attributes = vec![
        Attribute::text("SendslotReason", reason),
        Attribute::text("SendslotDetail", detail),
    ];
    queue::Message {
        body,
        delay_seconds: 0,
        attributes,
    }
}

/// A message's slot, for whoever books next; nothing when it was put back without one.
fn unused(envelope: &Envelope) -> Option<Unused> {
    (!envelope.cells.is_empty()).then(|| Unused {
        tenant: envelope.tenant.clone(),
        goes: envelope.slot.cell(),
        cells: envelope.cells.clone(),
        slot_only: false,
    })
}

fn claim_ask(Message { envelope, .. }: &Message) -> ClaimAsk {
    ClaimAsk {
        tenant: envelope.tenant.clone(),
        send_id: envelope.send_id.clone(),
        fingerprint: envelope.fingerprint.clone(),
        cost: envelope.mail.cost(),
        slot: envelope.slot,
    }
}

/// Whether a message is on its queue; logs why when it isn't.
fn is_put(message_id: &str, put: Result<(), NotSent>) -> bool {
    put.inspect_err(
        |error| warn!(message_id, %error, "putting on a queue failed: the message comes back"),
    )
    .is_ok()
}

/// How long a send could still be put off without risk that the deadline cuts it short.
fn time_left(deadline: Instant) -> Option<Duration> {
    deadline.checked_duration_since(Instant::now() + SEND_TIMEOUT + CLOSING)
}
