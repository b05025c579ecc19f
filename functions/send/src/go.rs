//! From the grant to the provider's answer.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::future::{join, join_all};
use sendslot_domain::{
    Lane, Millis, Moment,
    outcome::{Effect, LONGEST_PAUSE, Outcome, Tries},
};
use sendslot_mail::Envelope;
use sendslot_schedule::{Claim, Terms};
use tokio::{
    sync::OnceCell,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tracing::warn;

use crate::{
    batch::{LONGEST_WAIT, SEND_TIMEOUT, Sender, failure, time_left},
    message::Message,
    ports::{Brakes, Claims, Outgoing, Provider, Reply},
};

/// A send that starts later than this after its grant draws a new one: the second that the guard kept for it is over.
const LATE: Duration = Duration::from_millis(250);
/// The longest that drawing a new grant, or telling Redis what a send means for others, may take.
const CALL_TIMEOUT: Duration = Duration::from_millis(500);

/// Why nobody sends when the provider has said for how long.
const RETRY_AFTER: &str = "retry_after";

/// A message that may go.
pub(crate) struct Granted {
    pub(crate) message: Message,
    pub(crate) grant: Moment,
    pub(crate) due: Instant,
}

/// What came of a grant.
pub(crate) enum Tried {
    /// It was sent, and this was the answer; so late after its grant.
    Answered { reply: Reply, late: Millis },
    /// It was not sent: there was no time left.
    TooLate,
    /// It was not sent: its grant is over, and there is no other in time.
    NoGrant,
    /// It was not sent: another's answer has said that nobody may.
    Stopped,
}

/// What all sends of a batch know.
pub(crate) struct Run<'a, R, P, Q, B> {
    pub(crate) sender: &'a Sender<R, P, Q, B>,
    pub(crate) lane: Lane,
    pub(crate) owner: &'a str,
    pub(crate) terms: Terms,
    pub(crate) deadline: Instant,
    /// Nobody may send any more.
    pub(crate) stop: AtomicBool,
    pub(crate) account: Account,
}

/// Whether the account may send, asked for once in a batch, and only if somebody wants to know. (SES answers that question
/// once a second.) Nothing in it: SES didn't say.
#[derive(Debug, Default)]
pub(crate) struct Account(OnceCell<Option<bool>>);

impl Account {
    /// What the provider says, at the moment `by` at the latest. Whoever comes first asks; the others wait for its answer.
    async fn sends(&self, provider: &impl Provider, by: Instant) -> Option<bool> {
        // Within the cell, so that an answer that doesn't come is one, too, and isn't asked for again.
        let asked = async || {
            timeout_at(by, provider.account_sends())
                .await
                .ok()
                .flatten()
        };
        let told = timeout_at(by, self.0.get_or_init(asked)).await;
        told.ok().copied().flatten()
    }
}

impl<R: Claims + Brakes, P: Provider, Q, B> Run<'_, R, P, Q, B> {
    /// Sends everything granted, all at once, each at its moment.
    pub(crate) async fn all(&self, granted: Vec<Granted>) -> Vec<(Granted, Tried)> {
        let sends = granted.into_iter().map(async |mut granted| {
            let tried = self.one(&mut granted).await;
            (granted, tried)
        });
        join_all(sends).await
    }

    async fn one(&self, granted: &mut Granted) -> Tried {
        sleep_until(granted.due).await;
        if self.stop.load(Ordering::Relaxed) {
            return Tried::Stopped;
        }
        if Instant::now() - granted.due > LATE && !self.renew(granted).await {
            return Tried::NoGrant;
        }
        let start = Instant::now();
        if time_left(self.deadline).is_none() {
            return Tried::TooLate;
        }
        if self.stop.load(Ordering::Relaxed) {
            return Tried::Stopped;
        }
        let (message, lane, grant) = (&granted.message, self.lane, granted.grant);
        let reply = self.sender.ask(message, lane, grant, &self.account).await;
        self.tell(&message.envelope, granted.grant, reply.outcome)
            .await;
        let late = start.saturating_duration_since(granted.due);
        let late = u64::try_from(late.as_millis()).map_or(Millis::default(), Millis);
        Tried::Answered { reply, late }
    }

    /// Draws a new grant and waits for it. Answers whether there is one.
    async fn renew(&self, granted: &mut Granted) -> bool {
        let ask = [granted.message.claim_ask()];
        let left = time_left(self.deadline).unwrap_or_default();
        let left = u64::try_from(left.as_millis()).map_or(LONGEST_WAIT, Millis);
        let terms = Terms {
            longest_wait: LONGEST_WAIT.min(left),
            ..self.terms
        };
        let renewed = self.sender.redis.renew(self.owner, terms, &ask);
        match timeout(CALL_TIMEOUT, renewed).await {
            Ok(Ok(claims)) => {
                if let [Claim::Go { at, wait }] = claims[..] {
                    (granted.grant, granted.due) = (at, Instant::now() + wait.into());
                    sleep_until(granted.due).await;
                    return Instant::now() - granted.due <= LATE;
                }
            }
            failed => warn!(error = failure(failed), "drawing a new grant failed"),
        }
        false
    }

    /// Tells Redis what an answer means for all other mail, at once: the others of this moment are under way.
    async fn tell(&self, envelope: &Envelope, granted: Moment, outcome: Outcome) {
        let redis = &self.sender.redis;
        let told = match outcome.consequence(Tries::default()).effect {
            Effect::None => return,
            Effect::Slow { stay_away } => {
                let slow = redis.slow(granted, envelope.mail.cost());
                let block = async {
                    let Some(length) = stay_away else {
                        return Ok(());
                    };
                    self.stop.store(true, Ordering::Relaxed);
                    // Just that long, however often: the provider has said when.
                    redis.block(length, length, RETRY_AFTER).await
                };
                let both = async {
                    let (slow, block) = join(slow, block).await;
                    slow.and(block)
                };
                timeout(CALL_TIMEOUT, both).await
            }
            Effect::Block { length, reason } => {
                self.stop.store(true, Ordering::Relaxed);
                timeout(CALL_TIMEOUT, redis.block(length, LONGEST_PAUSE, reason)).await
            }
            Effect::Pause { length } => {
                timeout(
                    CALL_TIMEOUT,
                    redis.pause(&envelope.tenant, length, outcome.code()),
                )
                .await
            }
        };
        if !matches!(told, Ok(Ok(()))) {
            let outcome = outcome.code();
            warn!(
                error = failure(told),
                outcome, "Redis can't be told: others find out by themselves"
            );
        }
    }
}

impl<R, P: Provider, Q, B> Sender<R, P, Q, B> {
    /// Sends one mail and says what came of it, within [`SEND_TIMEOUT`].
    pub(crate) async fn ask(
        &self,
        message: &Message,
        lane: Lane,
        grant: Moment,
        account: &Account,
    ) -> Reply {
        let outgoing = Outgoing {
            envelope: &message.envelope,
            lane,
            grant,
            tenant: &message.tenant,
        };
        let by = Instant::now() + SEND_TIMEOUT;
        let mut reply = self.provider.send(&outgoing).await;
        if reply.outcome == Outcome::Paused {
            reply.outcome = match account.sends(&self.provider, by).await {
                Some(true) => Outcome::SetPaused,
                Some(false) => Outcome::AccountPaused,
                None => Outcome::Paused,
            };
        }
        reply
    }
}
