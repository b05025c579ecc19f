//! What is done while Redis can't be used: `hold`, or `capped`.

use std::time::Duration;

use sendslot_domain::{
    Millis, Moment,
    outcome::{self, Effect, Next, Outcome, Tries},
};
use sendslot_mail::Envelope;
use sendslot_runtime::{AskTenants, RedisDown, queue::SendBatch};
use sendslot_schedule::Ending;
use tokio::time::{Instant, sleep_until};

use crate::{
    batch::{Batch, time_left},
    go::Account,
    message::{Fate, Message, Record, add_void, up_to},
    ports::{Brakes, Claims, Parking, Provider, Slots, Traces, Visibility},
};

/// How long a message is held that was held so often before.
pub(crate) fn hold_for(holds: u32) -> Millis {
    let half = Millis(outcome::hold_for(holds).0 / 2);
    Millis(half.0 + up_to(half).0)
}

impl<R, P, Q, B> Batch<'_, R, P, Q, B>
where
    R: Claims + Brakes + Slots + Traces + AskTenants,
    P: Provider,
    Q: SendBatch + Visibility,
    B: Parking,
{
    /// Redis can't be used: the messages of the batch are held, or go at a fixed pace.
    pub(crate) async fn without_redis(&mut self, messages: Vec<Message>) {
        match self.sender.settings.common.redis_down {
            RedisDown::Hold => self.hold_all(messages),
            RedisDown::Capped => self.capped(messages).await,
        }
    }

    /// Messages go back to their queue. If only the answer to their claim was lost, the claim must not look like a send that
    /// nobody knows the end of.
    pub(crate) fn hold_all(&mut self, messages: Vec<Message>) {
        for Message {
            record, envelope, ..
        } in messages
        {
            self.hold_void(record, envelope);
        }
    }

    fn hold_void(&mut self, record: Record, mut envelope: Envelope) {
        if !envelope.uncertain {
            add_void(&mut envelope, &self.invocation.id);
        }
        self.hold(record, envelope, "RedisDown");
    }

    /// Sends at a fixed pace, without claims or grants: if every environment of both lanes does, they send h·L together. What may
    /// have been sent before, or has expired, is held, and so is what there is no time for. That holds for mail that would be sent
    /// again as for mail that would be parked: how long it has been uncertain is known to Redis alone.
    async fn capped(&mut self, messages: Vec<Message>) {
        let pace = self.pace();
        let begun = Instant::now();
        let mut due = begun + up_to_one(pace);
        let account = Account::default();
        let (mut held, mut stopped) = (Vec::new(), false);
        for message in messages {
            let cost = message.envelope.mail.cost();
            // The time that its recipients take is spent before they go, so that it is spent whatever comes next.
            let goes = due + pace * cost;
            let in_time = time_left(self.invocation.deadline)
                .is_some_and(|left| goes <= Instant::now() + left);
            if stopped || message.is_suspect() || message.expired || !in_time {
                held.push(message);
                continue;
            }
            sleep_until(goes).await;
            // Not `goes`: after a slow answer that is past, and what is behind isn't made up for.
            due = Instant::now();
            stopped = self.send_unclaimed(message, &account).await;
        }
        self.hold_all(held);
    }

    /// What one recipient takes of an environment's time.
    fn pace(&self) -> Duration {
        let settings = &self.sender.settings;
        let environments = 2.0 * f64::from(settings.concurrency);
        let rate = settings.common.seed.budget.rate().per_second();
        Duration::from_secs_f64((environments / rate).min(86_400.0))
    }

    /// Answers whether nobody should send for a while: too much was sent, or the account can't.
    async fn send_unclaimed(&mut self, message: Message, account: &Account) -> bool {
        // There is no clock but our own, and nobody looks at it.
        let grant = Moment(self.invocation.now.0);
        let asked = self.sender.ask(&message, self.lane, grant, account);
        let reply = asked.await;
        self.log_answer(&message.envelope, &reply);
        let Message {
            record,
            mut envelope,
            ..
        } = message;
        let tries = Tries {
            attempts: envelope.attempts,
            holds: envelope.holds,
        };
        let consequence = reply.outcome.consequence(tries);
        self.metrics.count(consequence.metric, 1);
        let stop = matches!(
            consequence.effect,
            Effect::Block { .. } | Effect::Slow { .. }
        );
        match consequence.next {
            Next::Commit => {
                // In shadow nothing went, so nothing goes twice.
                let went = usize::from(reply.outcome != Outcome::Shadowed);
                self.metrics.count("SentUnclaimed", went);
                self.end(&envelope, Ending::Sent);
                self.settled.push((record, Fate::Delete));
            }
            Next::Delete => {
                self.end(&envelope, Ending::Rejected);
                self.settled.push((record, Fate::Delete));
            }
            Next::Confirm => {
                (envelope.uncertain, envelope.resend) = (true, false);
                self.hold_void(record, envelope);
            }
            Next::Again { .. } | Next::Park | Next::DeadLetter { .. } => {
                self.hold_void(record, envelope);
            }
        }
        stop
    }
}

fn up_to_one(pace: Duration) -> Duration {
    pace.mul_f64(rand::random_range(0.0..1.0))
}
