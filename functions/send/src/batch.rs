//! The way of a batch, without AWS or Redis.
//!
//! 1. Unreadable messages are sorted out.
//! 2. One claim for all others: it says which may go and when, and what is known of the rest. When Redis can't be
//!    used, that is what [`crate::away`] does instead.
//! 3. Each goes at its moment, beside the others, in one request ([`crate::go`]). What its answer means for all other mail
//!    is told to Redis at once.
//! 4. One commit: marks for what is known, and claims given up for what wasn't sent.
//! 5. One booking for all that have to go another time.
//! 6. The bucket of parked mail, then the queues ([`crate::settle`]): put back, dead-letter, hide. Only then may SQS delete the
//!    old messages; those whose step here failed are named in the answer and come back instead.
//! 7. Redis is told what was parked and dead-lettered, for whoever looks for a mail. And the slots that nobody will use go back to the schedule: those of messages that are done with, or have
//!    a new one, without having drawn a grant, and new ones of messages that come back. Where a grant was
//!    drawn, the guard has spent it, whatever came of the send, and nobody else could use the slot.
//!
//! The commit goes before everything that a later failure could cut short, so that what was sent is
//! marked as early as possible, and a message put back never meets its own old claim.
//!
//! A message comes back by itself (and spends one of its receives) only when SQS fails, or the function does, when there is no time
//! to claim it, and when another worker holds it; in all other cases a copy takes its place. What has to be known of it travels in the copy.

use std::{sync::atomic::AtomicBool, time::Duration};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use futures_util::future::join;
use sendslot_domain::{
    Lane, Millis, Moment, SendId,
    outcome::{Consequence, Counts, Next, Outcome, Tries},
};
use sendslot_mail::{Envelope, Refusal};
use sendslot_runtime::{
    AskTenants, Known, Metrics, SendSettings, Tenants, UncertainPolicy,
    lanes::UnknownQueue,
    parking::Reason,
    queue::{self, SendBatch},
};
use sendslot_schedule::{
    Ask, Booking, Claim, ClaimAsk, End, Ended, Ending, Note, ScheduleError, Standing, Terms,
    Unused, What,
};
use tokio::time::{Instant, error::Elapsed, sleep, timeout, timeout_at};
use tracing::{error, info, warn};

use crate::{
    go::{Account, Granted, Run, Tried},
    message::{Fate, Message, Record, add_void, delay_seconds, note, unused, up_to},
    ports::{Brakes, Claims, Parking, Provider, Reply, Slots, Traces, Visibility},
};

/// The longest that a message waits for its moment inside an invocation. Further away, it goes back to
/// the queue, where waiting costs nothing.
pub const LONGEST_WAIT: Millis = Millis::from_secs(2);
/// The longest that one send may take.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// What is kept of an invocation's time for everything after the last send: with a function timeout that
/// is not longer than this and [`SEND_TIMEOUT`] together, nothing would ever be sent.
///
/// Whatever Redis, S3 and SQS do, it is enough. At their longest, after the last send:
///
/// | part | takes | ends at |
/// |---|---|---|
/// | telling Redis what the send means for others | 0.5 s | 0.5 s |
/// | commit: three times `COMMIT_TIMEOUT`, and the pauses of 50 and 100 ms | 3.15 s | 3.65 s |
/// | booking: `BOOK_TIMEOUT` | 0.5 s | 4.15 s |
/// | parking: `PARK_TIMEOUT` | 1 s | 5.15 s |
/// | queues: what is left until `SETTLED_AFTER` from the commit, at least | 0.85 s | 6 s |
/// | release, and the notes beside it: `RELEASE_TIMEOUT` | 0.25 s | 6.25 s |
/// | metrics and the answer | 0.75 s | 7 s |
///
/// After a commit that failed there is no booking and no release: Redis would hardly answer those, and the queues get the
/// time.
pub const CLOSING: Duration = Duration::from_secs(7);
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
/// How long after the commit begins the queues must have been told.
const SETTLED_AFTER: Duration = Duration::from_millis(5_500);
/// The longest that the release may take, and the notes beside it.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(250);
/// What nobody may send now comes back within so long after somebody may.
const AFTER_BLOCK: Millis = Millis::from_secs(60);

/// The counts of a batch; each is there in every batch, zero or not.
pub const COUNTS: [&str; 21] = [
    "RedisDown",
    "Sent",
    "SentUncommitted",
    "SentUnclaimed",
    "Throttled",
    "Failed",
    "Retried",
    "Rebooked",
    "Early",
    "Rejected",
    "Suppressed",
    "Uncertain",
    "Confirmed",
    "Expired",
    "Duplicate",
    "Held",
    "Paused",
    "Parked",
    "Blocked",
    "Denied",
    "DeadLettered",
];

/// Sends batches.
#[derive(Clone, Debug)]
pub struct Sender<R, P, Q, B> {
    pub(crate) redis: R,
    pub(crate) provider: P,
    pub(crate) queues: Q,
    pub(crate) bucket: B,
    pub(crate) settings: SendSettings,
    pub(crate) tenants: Tenants,
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

impl<R, P, Q, B> Sender<R, P, Q, B>
where
    R: Claims + Brakes + Slots + Traces + AskTenants,
    P: Provider,
    Q: SendBatch + Visibility,
    B: Parking,
{
    /// A sender with these parts.
    pub fn new(redis: R, provider: P, queues: Q, bucket: B, settings: SendSettings) -> Self {
        let tenants = Tenants::new(&settings.common.seed);
        Self {
            redis,
            provider,
            queues,
            bucket,
            settings,
            tenants,
        }
    }

    /// How long Redis remembers what became of a send id: longer than any message lives.
    const fn memory(&self) -> Millis {
        Millis(self.settings.common.max_message_age.0 + MEMORY_MARGIN.0)
    }

    /// How long a mail waits for the event that it was sent. In shadow none comes, as none was.
    const fn confirmation(&self) -> Millis {
        if self.settings.shadow {
            Millis(0)
        } else {
            self.settings.confirmation
        }
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
        if self.settings.shadow {
            metrics.count("Shadowed", 0);
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
            notes: Vec::new(),
        };
        let messages = batch.take_in(event.records);
        let messages = batch.whose(messages).await;
        let granted = batch.claim(messages).await;
        batch.send(granted).await;
        let settled_by = Instant::now() + SETTLED_AFTER;
        let committed = batch.commit().await;
        if committed {
            batch.book().await;
        } else {
            let homeless = std::mem::take(&mut batch.homeless);
            batch.hold_all(homeless.into_iter().map(|h| h.message).collect());
            batch.void_dead_letters();
        }
        batch.park().await;
        let response = batch.settle(settled_by).await;
        if committed {
            join(batch.release(), batch.trace()).await;
        }
        Ok((response, batch.metrics))
    }
}

/// A message that needs a new slot.
pub(crate) struct Homeless {
    pub(crate) message: Message,
    not_before: Millis,
    spread: Millis,
    count: &'static str,
    /// Its old slot, if no grant was drawn for it.
    unused: Option<Unused>,
}

/// One batch under way.
pub(crate) struct Batch<'a, R, P, Q, B> {
    pub(crate) sender: &'a Sender<R, P, Q, B>,
    pub(crate) lane: Lane,
    pub(crate) invocation: &'a Invocation,
    pub(crate) metrics: Metrics,
    /// How claims end.
    ends: Vec<End>,
    /// What needs a new slot.
    homeless: Vec<Homeless>,
    /// What SQS has to do.
    pub(crate) settled: Vec<(Record, Fate)>,
    /// Booked slots that nobody will use.
    pub(crate) spare: Vec<Unused>,
    /// What happened to mails, for whoever looks for one.
    pub(crate) notes: Vec<Note>,
}

impl<R, P, Q, B> Batch<'_, R, P, Q, B>
where
    R: Claims + Brakes + Slots + Traces + AskTenants,
    P: Provider,
    Q: SendBatch + Visibility,
    B: Parking,
{
    /// Sorts out what can't be sent whatever the claim says.
    fn take_in(&mut self, records: Vec<SqsMessage>) -> Vec<Message> {
        let uncertain = *self.sender.settings.uncertain.get(self.lane);
        let mut messages = Vec::with_capacity(records.len());
        for record in records.into_iter().map(Record::from) {
            let envelope = match Envelope::from_json(&record.body) {
                Ok(envelope) => envelope,
                Err(error) => {
                    warn!(message_id = record.id, %error, outcome = "bad_envelope");
                    let fate = Fate::DeadLetter {
                        reason: "bad_envelope",
                        detail: error.to_string(),
                        unused: None,
                        claimed: None,
                        note: None, // nobody knows which mail it is
                    };
                    self.settled.push((record, fate));
                    continue;
                }
            };
            let expired = self.is_expired(&envelope);
            messages.push(Message::new(record, envelope, expired, uncertain));
        }
        messages
    }

    /// Finds out what is set for the tenant of each, and settles those whose tenant nobody knows.
    async fn whose(&mut self, messages: Vec<Message>) -> Vec<Message> {
        let tenants = messages.iter().map(|message| &message.envelope.tenant);
        let known = self.sender.tenants.of(&self.sender.redis, tenants).await;
        let (mut theirs, mut not_told) = (Vec::with_capacity(messages.len()), Vec::new());
        for mut message in messages {
            match known.get(&message.envelope.tenant) {
                Some(Known::As(settings)) => {
                    // A tenant's own policy goes before its lane's. In shadow nothing was sent, so it goes through once more.
                    message.uncertain = if self.sender.settings.shadow {
                        UncertainPolicy::Resend
                    } else {
                        settings.uncertain().unwrap_or(message.uncertain)
                    };
                    message.tenant = settings.clone();
                    theirs.push(message);
                }
                Some(Known::Unknown) => {
                    let unused = message.unused();
                    self.unknown_tenant(message, unused);
                }
                Some(Known::NotTold) | None => not_told.push(message),
            }
        }
        self.hold_all(not_told);
        theirs
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
            let back = messages
                .into_iter()
                .map(|m| (m.record, Fate::Back { seconds: 0 }));
            self.settled.extend(back);
            return Vec::new();
        };
        let time_left = u64::try_from(time_left.as_millis()).map_or(LONGEST_WAIT, Millis);
        let asks: Vec<ClaimAsk> = messages.iter().map(Message::claim_ask).collect();
        let terms = Terms {
            longest_wait: LONGEST_WAIT.min(time_left),
            ..self.terms(messages.iter())
        };
        let claim = self.sender.redis.claim(&self.invocation.id, terms, &asks);
        // There is time: `time_left` said so. Cut short by Lambda, a claim would look like a send.
        let claims = match timeout_at(self.invocation.deadline - CLOSING, claim).await {
            Ok(Ok(claims)) => claims,
            failed => {
                // Reached, and not filled yet: whoever fills it knows who is paused, and nothing goes before.
                let is_empty = matches!(failed, Ok(Err(ScheduleError::NoBudget(_))));
                let error = failure(failed);
                error!(error, messages = messages.len(), "Redis can't be used");
                self.metrics.count("RedisDown", 0);
                for Message { envelope, .. } in &messages {
                    // If only the answer was lost, the claim is given up as soon as may be.
                    self.end(envelope, Ending::Free);
                }
                if is_empty {
                    self.hold_all(messages);
                } else {
                    self.without_redis(messages).await;
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

    /// The terms for these messages. What may be sent again is so after the confirmation time; what may not says so itself,
    /// in its purpose.
    fn terms<'m>(&self, mut messages: impl Iterator<Item = &'m Message>) -> Terms {
        let settings = &self.sender.settings;
        let resends = messages.any(|message| message.uncertain == UncertainPolicy::Resend);
        Terms {
            lane: self.lane,
            lease: settings.lease,
            longest_wait: LONGEST_WAIT,
            memory: self.sender.memory(),
            resend_after: resends.then_some(self.sender.confirmation()),
        }
    }

    /// Settles a message that its claim didn't let go.
    fn not_now(&mut self, message: Message, claim: Claim) {
        let unused = message.unused();
        let envelope = &message.envelope;
        let fate = match claim {
            // It surfaced early, which is no fault of its own: it keeps its slot and goes back as it is.
            Claim::Later {
                wait,
                slot_ahead: true,
            } => return self.again(message.record, &message.envelope, wait, "Early", None),
            Claim::Go { .. }
            | Claim::Later {
                slot_ahead: false, ..
            } => return self.rebook(message, unused),
            Claim::Uncertain { age } => return self.uncertain(message, age),
            Claim::Blocked { left } => return self.blocked(message, left, unused),
            Claim::Paused { .. } => {
                self.metrics.count("Paused", 1);
                Fate::Park {
                    envelope: Box::new(message.envelope),
                    reason: Reason::Paused,
                    unused,
                }
            }
            Claim::Ended(Ended::Cancelled) => {
                self.log(envelope, "cancelled", None);
                self.metrics.count("Cancelled", 1);
                Fate::Delete // whoever cancelled it gave its slot back
            }
            Claim::Ended(how) => {
                let confirmed = how == Ended::Sent && envelope.uncertain;
                let (outcome, count) = if confirmed {
                    ("confirmed", "Confirmed")
                } else {
                    ("duplicate", "Duplicate")
                };
                self.log(envelope, outcome, None);
                self.metrics.count(count, 1);
                self.spare.extend(unused);
                Fate::Delete
            }
            Claim::Expired => {
                self.log(envelope, "expired", None);
                self.metrics.count("Expired", 1);
                self.spare.extend(unused);
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
            Claim::Conflict => {
                self.log(envelope, "send_id_conflict", None);
                let detail = "the send id was used for a mail with other content".to_owned();
                Fate::DeadLetter {
                    reason: "send_id_conflict",
                    detail,
                    unused,
                    claimed: None,
                    note: Some(dead(envelope, "send_id_conflict")),
                }
            }
        };
        self.settled.push((message.record, fate));
    }

    /// A message that may have been sent waits for the event that says so, then is parked. Where it is to be sent again, its
    /// claim lets it go by itself: should that be later than it is here, the message asks again.
    fn uncertain(&mut self, mut message: Message, age: Millis) {
        let confirmation = self.sender.confirmation();
        let unused = message.unused();
        if !message.envelope.uncertain {
            self.log(&message.envelope, Outcome::Uncertain.code(), None);
            self.metrics.count("Uncertain", 1);
            message.envelope.uncertain = true;
        }
        let Message {
            record,
            mut envelope,
            expired,
            uncertain,
            ..
        } = message;
        let ends = uncertain == UncertainPolicy::Park || expired;
        if age < confirmation || !ends {
            envelope.cells = Vec::new();
            let left = Millis(confirmation.0.saturating_sub(age.0).max(1000) + 999);
            return self.again(record, &envelope, left, "Held", unused);
        }
        let fate = if expired {
            // Of no more use, sent or not.
            self.log(&envelope, "expired", None);
            self.metrics.count("Expired", 1);
            self.spare.extend(unused);
            Fate::Delete
        } else {
            Fate::Park {
                envelope: Box::new(envelope),
                reason: Reason::Uncertain,
                unused,
            }
        };
        self.settled.push((record, fate));
    }

    /// Nobody may send for a while: a message comes back soon after, and its slot is given back.
    fn blocked(&mut self, mut message: Message, left: Millis, unused: Option<Unused>) {
        self.log(&message.envelope, "blocked", None);
        message.envelope.cells = Vec::new();
        let delay = Millis(left.0 + 999 + up_to(AFTER_BLOCK.min(left)).0);
        self.again(message.record, &message.envelope, delay, "Blocked", unused);
    }

    fn rebook(&mut self, message: Message, unused: Option<Unused>) {
        self.homeless.push(Homeless {
            message,
            not_before: Millis(0),
            spread: Millis(0),
            count: "Rebooked",
            unused,
        });
    }

    /// Sends everything granted, each at its moment.
    async fn send(&mut self, granted: Vec<Granted>) {
        let terms = self.terms(granted.iter().map(|granted| &granted.message));
        let run = Run {
            sender: self.sender,
            lane: self.lane,
            owner: &self.invocation.id,
            terms,
            deadline: self.invocation.deadline,
            stop: AtomicBool::new(false),
            account: Account::default(),
        };
        for (granted, tried) in run.all(granted).await {
            let Granted {
                mut message, grant, ..
            } = granted;
            match tried {
                Tried::Answered { reply, late } => {
                    self.metrics.longest("GrantErrorMs", late);
                    let slot = message.envelope.slot;
                    self.metrics
                        .longest("SlotErrorMs", slot.until(grant + late));
                    self.conclude(message, &reply);
                }
                Tried::TooLate | Tried::NoGrant | Tried::Stopped => {
                    self.end(&message.envelope, Ending::Free);
                    message.envelope.cells = Vec::new();
                    self.rebook(message, None);
                }
            }
        }
    }

    /// Draws the consequences of one send.
    fn conclude(&mut self, mut message: Message, reply: &Reply) {
        let envelope = &mut message.envelope;
        self.log_answer(envelope, reply);
        let tries = Tries {
            attempts: envelope.attempts,
            holds: envelope.holds,
        };
        let Consequence { next, metric, .. } = reply.outcome.consequence(tries);
        self.metrics.count(metric, 1);
        // Its grant was drawn.
        envelope.cells = Vec::new();
        let fate = match next {
            Next::Commit => {
                self.end(envelope, Ending::Sent);
                Fate::Delete
            }
            Next::Delete => {
                self.end(envelope, Ending::Rejected);
                Fate::Delete
            }
            Next::DeadLetter { reason } => {
                self.end(envelope, Ending::Free);
                let said = reply.said.as_deref().unwrap_or("no answer");
                Fate::DeadLetter {
                    reason,
                    detail: format!("{}: {said}", reply.outcome.code()),
                    unused: None,
                    note: Some(dead(envelope, reason)),
                    claimed: Some(Box::new(message.envelope)),
                }
            }
            Next::Park => {
                self.end(envelope, Ending::Free);
                // Should the claim be left standing, for want of a commit, it must not look like a send.
                if !envelope.uncertain {
                    add_void(envelope, &self.invocation.id);
                }
                Fate::Park {
                    envelope: Box::new(message.envelope),
                    reason: Reason::Paused,
                    unused: None,
                }
            }
            Next::Confirm => {
                self.end(envelope, Ending::Uncertain);
                envelope.uncertain = true;
                envelope.resend = false;
                let wait = Millis(self.sender.confirmation().0 + 999);
                return self.again(message.record, &message.envelope, wait, "Held", None);
            }
            Next::Again {
                counts,
                not_before,
                spread,
            } => {
                self.end(envelope, Ending::Free);
                match counts {
                    Counts::Nothing => {}
                    Counts::Attempt => envelope.attempts = envelope.attempts.saturating_add(1),
                    Counts::Hold => envelope.holds = envelope.holds.saturating_add(1),
                }
                return self.homeless.push(Homeless {
                    message,
                    not_before,
                    spread,
                    count: "Retried",
                    unused: None,
                });
            }
        };
        self.settled.push((message.record, fate));
    }

    /// Commits how the claims ended. What was sent is never sent again for want of a commit: its message
    /// is deleted all the same. A claim that could not be given up is named in the copy of its message. Answers whether
    /// nothing is left to commit.
    async fn commit(&mut self) -> bool {
        if self.ends.is_empty() {
            return true;
        }
        for pause in COMMIT_PAUSES {
            let commit = self.sender.redis.commit(
                &self.invocation.id,
                self.lane,
                self.sender.memory(),
                &self.ends,
            );
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

    /// The claims of what goes to the dead-letter queue could not be given up: their messages say that nothing was sent, so
    /// that a redrive isn't stopped by them.
    fn void_dead_letters(&mut self) {
        for (record, fate) in &mut self.settled {
            let Fate::DeadLetter {
                claimed: Some(envelope),
                ..
            } = fate
            else {
                continue;
            };
            // What was uncertain before stays so: the claim says no more than that.
            if envelope.uncertain {
                continue;
            }
            add_void(envelope, &self.invocation.id);
            match envelope.to_json() {
                Ok(body) => record.body = body,
                Err(error) => {
                    error!(send_id = %envelope.send_id, %error, "writing an envelope failed");
                }
            }
        }
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
        let ids: Vec<Option<SendId>> = homeless
            .iter()
            .map(|Homeless { message, .. }| Some(message.envelope.send_id.clone()))
            .collect();
        let book = self.sender.redis.book(self.lane, &asks, &ids);
        let bookings = match timeout(BOOK_TIMEOUT, book).await {
            Ok(Ok(bookings)) => bookings,
            failed => {
                let error = failure(failed);
                error!(error, messages = homeless.len(), "booking failed");
                return self.hold_all(homeless.into_iter().map(|h| h.message).collect());
            }
        };
        for (homeless, booking) in homeless.into_iter().zip(bookings) {
            self.put_back(homeless, booking);
        }
    }

    /// Puts a message back on the send queue, delayed to its new slot or longer.
    ///
    /// A message that stays away beyond its slot, or found the schedule full and goes without one, goes when the guard
    /// lets it.
    fn put_back(&mut self, homeless: Homeless, booking: Booking) {
        let Homeless {
            mut message,
            not_before,
            spread,
            count,
            unused: old,
        } = homeless;
        let envelope = &mut message.envelope;
        envelope.void = None; // it is free by now
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
            Booking::Blocked(left) => return self.blocked(message, left, old),
            Booking::UnknownTenant => return self.unknown_tenant(message, old),
            Booking::OverCap => return self.over_cap(message, old),
            // Its cells stay in it: should it not be parked, it keeps its old slot.
            Booking::Paused => {
                self.metrics.count("Paused", 1);
                let fate = Fate::Park {
                    envelope: Box::new(message.envelope),
                    reason: Reason::Paused,
                    unused: old,
                };
                return self.settled.push((message.record, fate));
            }
            Booking::Cancelled => {
                self.log(&message.envelope, "cancelled", None);
                self.spare.extend(old);
                return self.settled.push((message.record, Fate::Delete));
            }
            // Not to [`Standing::Again`].
            Booking::Left => return self.settled.push((message.record, Fate::Keep)),
        };
        let Message {
            record, envelope, ..
        } = message;
        let booked = unused(&envelope);
        let fate = match envelope.to_json() {
            Ok(body) => Fate::Again {
                message: queue::Message {
                    body,
                    delay_seconds: delay_seconds(Millis(delay.max(not_before).0 + up_to(spread).0)),
                    attributes: Vec::new(),
                    group: record.group.clone(),
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

    /// Gives booked slots back that nobody will use.
    async fn release(&self) {
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

    /// Tells Redis what happened to mails. Only whoever looks for one misses it.
    async fn trace(&self) {
        if self.notes.is_empty() {
            return;
        }
        let trace = self.sender.redis.trace(&self.notes, self.sender.memory());
        match timeout(RELEASE_TIMEOUT, trace).await {
            Ok(Ok(())) => {}
            failed => warn!(
                error = failure(failed),
                mails = self.notes.len(),
                "noting what was parked or dead-lettered failed: only the log knows"
            ),
        }
    }

    /// Settles a message whose tenant nobody knows: setting it up is the operator's.
    fn unknown_tenant(&mut self, message: Message, unused: Option<Unused>) {
        let detail = "the tenant is not set up in this deployment".to_owned();
        self.give_up(message, Refusal::UNKNOWN_TENANT, detail, unused);
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
            note: Some(dead(&message.envelope, reason)),
            // Nobody holds a claim of it: it had none, or that was given up before its new slot was asked for.
            claimed: None,
        };
        self.settled.push((message.record, fate));
    }

    fn is_expired(&self, envelope: &Envelope) -> bool {
        let oldest = envelope.first_seen + self.sender.settings.common.max_message_age;
        self.invocation.now >= envelope.expires_at.map_or(oldest, |at| at.min(oldest))
    }

    pub(crate) fn end(&mut self, envelope: &Envelope, how: Ending) {
        let (tenant, send_id) = (envelope.tenant.clone(), envelope.send_id.clone());
        self.ends.push(End {
            tenant,
            send_id,
            how,
            cost: envelope.mail.cost(),
        });
    }

    /// Logs what a provider answered. That it wasn't asked says whoever didn't ([`crate::shadow`]).
    pub(crate) fn log_answer(&self, envelope: &Envelope, reply: &Reply) {
        if reply.outcome != Outcome::Shadowed {
            self.log(envelope, reply.outcome.code(), Some(reply));
        }
    }

    pub(crate) fn log(&self, envelope: &Envelope, outcome: &str, reply: Option<&Reply>) {
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

/// That a mail was dead-lettered.
fn dead(envelope: &Envelope, reason: &str) -> Note {
    let reason = reason.to_owned();
    note(envelope, What::Dead { reason })
}

/// What is said of a call that was given up.
pub(crate) const LATE: &str = "no answer in time";

/// What to say of a call to Redis that didn't do.
pub(crate) fn failure<T>(failed: Result<Result<T, ScheduleError>, Elapsed>) -> String {
    match failed {
        Ok(Ok(_)) => "an answer that doesn't fit".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => LATE.to_owned(),
    }
}

/// How long a send could still be put off without risk that the deadline cuts it short.
pub(crate) fn time_left(deadline: Instant) -> Option<Duration> {
    deadline.checked_duration_since(Instant::now() + SEND_TIMEOUT + CLOSING)
}
