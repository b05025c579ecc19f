//! What SQS and S3 are told at the end of a batch.

use std::time::Duration;

use aws_lambda_events::sqs::SqsBatchResponse;
use futures_util::future::join_all;
use sendslot_domain::Millis;
use sendslot_mail::Envelope;
use sendslot_runtime::{
    parking::{ParkedKey, Reason},
    queue::{self, Attribute, NotSent, SendBatch, send_all},
};
use sendslot_schedule::{Note, Unused, What};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{error, info, warn};

use crate::{
    away::hold_for,
    batch::{Batch, LATE},
    message::{Fate, Record, delay_seconds, note},
    ports::{Parking, Visibility},
};

/// The longest that parking the mails of a batch may take, all at once.
pub(crate) const PARK_TIMEOUT: Duration = Duration::from_secs(1);

/// What has to be put on a queue, and whose it is.
#[derive(Default)]
struct Puts {
    messages: Vec<queue::Message>,
    of: Vec<Put>,
}

/// What it means whether a message was put.
struct Put {
    id: String,
    count: &'static str,
    unused: Option<Unused>,
    booked: Option<Unused>,
    note: Option<Note>,
}

impl<R, P, Q: SendBatch + Visibility, B: Parking> Batch<'_, R, P, Q, B> {
    /// Parks what is to be parked. What can't be is held: it goes back to its queue for a while.
    pub(crate) async fn park(&mut self) {
        let (parked, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.settled)
            .into_iter()
            .partition(|(_, fate)| matches!(fate, Fate::Park { .. }));
        self.settled = rest;
        let bucket = &self.sender.bucket;
        let puts = parked.into_iter().map(async |(record, fate)| {
            let Fate::Park {
                envelope,
                reason,
                unused,
            } = fate
            else {
                return (record, fate, false);
            };
            let done = match envelope.to_json() {
                Ok(body) => timeout(PARK_TIMEOUT, bucket.park(key(&envelope, reason), body))
                    .await
                    .unwrap_or_else(|_| Err(LATE.to_owned())),
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = &done {
                let send_id = envelope.send_id.as_str();
                error!(
                    send_id,
                    error, "parking failed: the mail goes back to its queue"
                );
            }
            let fate = Fate::Park {
                envelope,
                reason,
                unused,
            };
            (record, fate, done.is_ok())
        });
        for (record, fate, done) in join_all(puts).await {
            let Fate::Park {
                envelope,
                reason,
                unused,
            } = fate
            else {
                continue;
            };
            if done {
                let (send_id, tenant) = (&envelope.send_id, &envelope.tenant);
                let reason = reason.as_str();
                let what = What::Parked {
                    first_seen: envelope.first_seen,
                    reason: reason.to_owned(),
                };
                self.notes.push(note(&envelope, what));
                info!(%send_id, %tenant, lane = %self.lane, outcome = "parked", reason);
                self.metrics.count("Parked", 1);
                self.spare.extend(unused);
                self.settled.push((record, Fate::Delete));
            } else {
                self.hold(record, *envelope, "Failed");
            }
        }
    }

    /// Puts a copy of a message on its queue, for longer each time, its slot and all else as they are.
    pub(crate) fn hold(&mut self, record: Record, mut envelope: Envelope, count: &'static str) {
        let delay = hold_for(envelope.holds);
        envelope.holds = envelope.holds.saturating_add(1);
        self.again(record, &envelope, delay, count, None);
    }

    /// Puts a copy of a message on its queue, and gives `unused` back then.
    pub(crate) fn again(
        &mut self,
        record: Record,
        envelope: &Envelope,
        delay: Millis,
        count: &'static str,
        unused: Option<Unused>,
    ) {
        let fate = match envelope.to_json() {
            Ok(body) => Fate::Again {
                message: queue::Message {
                    body,
                    delay_seconds: delay_seconds(delay),
                    attributes: Vec::new(),
                    group: record.group.clone(),
                },
                count,
                unused,
                booked: None,
            },
            Err(error) => {
                error!(send_id = %envelope.send_id, %error, "writing an envelope failed");
                Fate::Keep
            }
        };
        self.settled.push((record, fate));
    }

    /// Has SQS do what was decided; answers with the messages that come back. Those that SQS has not
    /// taken at the moment `by` do: one that it did take is there twice then, and goes once.
    pub(crate) async fn settle(&mut self, by: Instant) -> SqsBatchResponse {
        let mut response = SqsBatchResponse::default();
        let (mut hidden, mut again, mut dead) = (Vec::new(), Puts::default(), Puts::default());
        for (record, fate) in std::mem::take(&mut self.settled) {
            match fate {
                Fate::Delete => {}
                // What was to be parked is settled otherwise by now.
                Fate::Keep | Fate::Park { .. } => response.add_failure(record.id),
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
                    again.messages.push(message);
                    again.of.push(Put {
                        id: record.id,
                        count,
                        unused,
                        booked,
                        note: None,
                    });
                }
                Fate::DeadLetter {
                    reason,
                    detail,
                    unused,
                    claimed: _,
                    note,
                } => {
                    let id = record.id.clone();
                    dead.messages.push(dead_letter(record, reason, detail));
                    dead.of.push(Put {
                        id,
                        count: "DeadLettered",
                        unused,
                        booked: None,
                        note,
                    });
                }
            }
        }
        let (queues, settings) = (&self.sender.queues, &self.sender.settings);
        let send_queue = settings.common.send_queues.get(self.lane);
        let (hiding, were_put, were_dead) = tokio::join!(
            async {
                match hidden.as_slice() {
                    [] => Ok(()),
                    hidden => timeout_at(by, queues.hide(send_queue, hidden))
                        .await
                        .unwrap_or_else(|_| Err(LATE.to_owned())),
                }
            },
            send_all(queues, send_queue, &again.messages, by),
            send_all(
                queues,
                settings.send_dlqs.get(self.lane),
                &dead.messages,
                by
            ),
        );
        if let Err(error) = hiding {
            warn!(
                error,
                "changing visibility failed: messages come back later than they could"
            );
        }
        let puts = again.of.into_iter().zip(were_put);
        for (put, done) in puts.chain(dead.of.into_iter().zip(were_dead)) {
            if is_put(&put.id, done) {
                self.metrics.count(put.count, 1);
                self.spare.extend(put.unused);
                self.notes.extend(put.note);
            } else {
                self.spare.extend(put.booked);
                response.add_failure(put.id);
            }
        }
        response
    }
}

fn key(envelope: &Envelope, reason: Reason) -> String {
    ParkedKey {
        tenant: envelope.tenant.clone(),
        first_seen: envelope.first_seen,
        reason,
        lane: envelope.lane,
        send_id: envelope.send_id.clone(),
    }
    .to_string()
}

fn dead_letter(record: Record, reason: &'static str, detail: String) -> queue::Message {
    let attributes = vec![
        Attribute::text("SendslotReason", reason),
        Attribute::text("SendslotDetail", detail),
    ];
    queue::Message {
        body: record.body,
        delay_seconds: 0,
        attributes,
        group: record.group,
    }
}

/// Whether a message is on its queue; logs why when it isn't.
fn is_put(message_id: &str, put: Result<(), NotSent>) -> bool {
    put.inspect_err(
        |error| warn!(message_id, %error, "putting on a queue failed: the message comes back"),
    )
    .is_ok()
}
