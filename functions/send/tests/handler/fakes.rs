//! Everything outside a batch: it answers as a test says and writes down what it was asked.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use aws_lambda_events::sqs::{BatchItemFailure, SqsEvent};
use send::{
    Invocation, Sender,
    ports::{Claims, Outgoing, Provider, Reply, Slots, Visibility},
};
use sendslot_domain::{Cell, Lane, Millis, Moment, outcome::Outcome};
use sendslot_runtime::{
    Metrics, Queue, SendSettings,
    queue::{Failed, Message, SendBatch},
};
use sendslot_schedule::{
    Ask, Booking, Claim, ClaimAsk, End, Ending, ScheduleError, Slot, Terms, Unused,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

pub(crate) const NOW: Moment = Moment(1_800_000_000_000);
pub(crate) const REQUEST: &str = "request-1";
/// What is left of an invocation that has just begun.
pub(crate) const TIME: Duration = Duration::from_secs(30);

/// One thing the handler asked for.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Claim {
        owner: String,
        terms: Terms,
        asks: Vec<ClaimAsk>,
    },
    Send {
        send_id: String,
        grant: Moment,
        configuration_set: Option<String>,
        at: Instant,
    },
    Commit {
        owner: String,
        memory: Millis,
        ends: Vec<(String, Ending)>,
    },
    Book {
        lane: Lane,
        asks: Vec<Ask>,
    },
    Put {
        queue: String,
        message: Message,
    },
    Hide {
        queue: String,
        receipt: String,
        seconds: u16,
    },
    Release {
        unused: Vec<Unused>,
    },
}

/// Grants, sends and books everything at once, unless told otherwise.
pub(crate) struct World {
    /// Answers to claims, by send id.
    pub(crate) claims: HashMap<&'static str, Claim>,
    /// How long a claim takes.
    pub(crate) claim_takes: Duration,
    /// What sends come to, by send id.
    pub(crate) outcomes: HashMap<&'static str, Outcome>,
    /// How long a send takes.
    pub(crate) send_takes: Duration,
    /// Answers to bookings, in order; after those, [`slot`].
    pub(crate) bookings: Mutex<VecDeque<Booking>>,
    /// Calls that fail.
    pub(crate) claims_fail: bool,
    pub(crate) bookings_fail: bool,
    pub(crate) hiding_fails: bool,
    /// How many commits fail before one works.
    pub(crate) commits_fail: Mutex<usize>,
    /// How long a commit takes.
    pub(crate) commit_takes: Duration,
    /// How long a booking or a release takes.
    pub(crate) slots_take: Duration,
    /// How long a call to a queue takes.
    pub(crate) queues_take: Duration,
    /// Queues that take nothing, by name.
    pub(crate) full: HashSet<&'static str>,
    /// What it was asked, in order.
    pub(crate) log: Mutex<Vec<Asked>>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            claims: HashMap::new(),
            claim_takes: Duration::ZERO,
            outcomes: HashMap::new(),
            send_takes: Duration::from_millis(100),
            bookings: Mutex::default(),
            claims_fail: false,
            bookings_fail: false,
            hiding_fails: false,
            commits_fail: Mutex::new(0),
            commit_takes: Duration::ZERO,
            slots_take: Duration::ZERO,
            queues_take: Duration::ZERO,
            full: HashSet::new(),
            log: Mutex::default(),
        }
    }
}

/// What a batch came to.
pub(crate) struct Handled {
    /// The message ids that come back.
    pub(crate) failed: Vec<String>,
    pub(crate) metrics: Metrics,
}

impl Handled {
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.metrics
            .get(name)
            .unwrap_or_else(|| panic!("no metric {name}"))
    }
}

impl World {
    /// Runs a batch of such bodies from the bulk lane.
    pub(crate) async fn handle(&self, bodies: &[String]) -> Handled {
        self.handle_within(TIME, bodies).await
    }

    pub(crate) async fn handle_within(&self, time: Duration, bodies: &[String]) -> Handled {
        self.run(event("sendslot-bulk-send", bodies), NOW, time)
            .await
    }

    pub(crate) async fn run(&self, event: SqsEvent, now: Moment, time: Duration) -> Handled {
        let invocation = Invocation {
            id: REQUEST.into(),
            now,
            deadline: Instant::now() + time,
        };
        let sender = Sender::new(self, self, self, settings());
        let (response, metrics) = sender.handle(event, &invocation).await.unwrap();
        let failed = response.batch_item_failures.into_iter();
        let failed = failed
            .map(
                |BatchItemFailure {
                     item_identifier, ..
                 }| item_identifier,
            )
            .collect();
        Handled { failed, metrics }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The ids of what was sent, in the order it was started.
    pub(crate) fn sent(&self) -> Vec<String> {
        let asked = self.asked().into_iter();
        asked
            .filter_map(|asked| {
                if let Asked::Send { send_id, .. } = asked {
                    Some(send_id)
                } else {
                    None
                }
            })
            .collect()
    }

    /// When the last send had its answer.
    pub(crate) fn last_send(&self) -> Instant {
        let asked = self.asked().into_iter();
        let starts = asked.filter_map(|asked| match asked {
            Asked::Send { at, .. } => Some(at),
            _ => None,
        });
        starts.max().unwrap() + self.send_takes
    }

    /// How claims were ended, in the last commit.
    pub(crate) fn ends(&self) -> Vec<(String, Ending)> {
        let asked = self.asked().into_iter().rev();
        let mut commits = asked.filter_map(|asked| {
            if let Asked::Commit { ends, .. } = asked {
                Some(ends)
            } else {
                None
            }
        });
        commits.next().unwrap_or_default()
    }

    /// What was put on the queue of that name.
    pub(crate) fn put(&self, name: &str) -> Vec<Message> {
        let asked = self.asked().into_iter();
        asked
            .filter_map(|asked| match asked {
                Asked::Put { queue, message } if queue == name => Some(message),
                _ => None,
            })
            .collect()
    }

    /// Which messages were hidden, and how long.
    pub(crate) fn hidden(&self) -> Vec<(String, u16)> {
        let asked = self.asked().into_iter();
        asked
            .filter_map(|asked| match asked {
                Asked::Hide {
                    queue,
                    receipt,
                    seconds,
                } if queue == "sendslot-bulk-send" => Some((receipt, seconds)),
                _ => None,
            })
            .collect()
    }

    /// What was given back.
    pub(crate) fn released(&self) -> Vec<Unused> {
        let asked = self.asked().into_iter();
        asked
            .filter_map(|asked| match asked {
                Asked::Release { unused } => Some(unused),
                _ => None,
            })
            .flatten()
            .collect()
    }

    /// The names of the calls, in order, without the sends.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        let asked = self.asked().into_iter();
        asked
            .filter_map(|asked| match asked {
                Asked::Claim { .. } => Some("claim"),
                Asked::Send { .. } => None,
                Asked::Commit { .. } => Some("commit"),
                Asked::Book { .. } => Some("book"),
                Asked::Put { .. } => Some("put"),
                Asked::Hide { .. } => Some("hide"),
                Asked::Release { .. } => Some("release"),
            })
            .collect()
    }

    fn note(&self, asked: Asked) {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(asked);
    }
}

impl Claims for &World {
    async fn claim(
        &self,
        owner: &str,
        terms: Terms,
        asks: &[ClaimAsk],
    ) -> Result<Vec<Claim>, ScheduleError> {
        self.note(Asked::Claim {
            owner: owner.into(),
            terms,
            asks: asks.to_vec(),
        });
        sleep(self.claim_takes).await;
        if self.claims_fail {
            return Err(ScheduleError::NoBudget("ses".into()));
        }
        let go = Claim::Go {
            at: NOW,
            wait: Millis(0),
        };
        Ok(asks
            .iter()
            .map(|ask| self.claims.get(ask.send_id.as_str()).copied().unwrap_or(go))
            .collect())
    }

    async fn commit(&self, owner: &str, memory: Millis, ends: &[End]) -> Result<(), ScheduleError> {
        let ends = ends
            .iter()
            .map(|end| (end.send_id.to_string(), end.how))
            .collect();
        self.note(Asked::Commit {
            owner: owner.into(),
            memory,
            ends,
        });
        sleep(self.commit_takes).await;
        let mut fail = self
            .commits_fail
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *fail > 0 {
            *fail -= 1;
            return Err(ScheduleError::NoBudget("ses".into()));
        }
        Ok(())
    }
}

impl Slots for &World {
    async fn book(&self, lane: Lane, asks: &[Ask]) -> Result<Vec<Booking>, ScheduleError> {
        self.note(Asked::Book {
            lane,
            asks: asks.to_vec(),
        });
        sleep(self.slots_take).await;
        if self.bookings_fail {
            return Err(ScheduleError::NoBudget("ses".into()));
        }
        let mut bookings = self.bookings.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(asks
            .iter()
            .map(|_| {
                bookings
                    .pop_front()
                    .unwrap_or_else(|| Booking::Slot(slot()))
            })
            .collect())
    }

    async fn release(&self, _: Lane, unused: &[Unused]) -> Result<(), ScheduleError> {
        self.note(Asked::Release {
            unused: unused.to_vec(),
        });
        sleep(self.slots_take).await;
        Ok(())
    }
}

impl Provider for &World {
    async fn send(&self, mail: &Outgoing<'_>) -> Reply {
        let send_id = mail.envelope.send_id.to_string();
        self.note(Asked::Send {
            send_id: send_id.clone(),
            grant: mail.grant,
            configuration_set: mail.configuration_set.map(str::to_owned),
            at: Instant::now(),
        });
        sleep(self.send_takes).await;
        let outcome = self
            .outcomes
            .get(send_id.as_str())
            .copied()
            .unwrap_or(Outcome::Sent);
        let said = (outcome != Outcome::Sent).then(|| "400 SomeException".to_owned());
        Reply {
            outcome,
            id: None,
            said,
        }
    }
}

impl SendBatch for &World {
    async fn send_batch(
        &self,
        queue: &Queue,
        messages: &[&Message],
    ) -> Result<Vec<Failed>, String> {
        for message in messages {
            self.note(Asked::Put {
                queue: queue.name().into(),
                message: (*message).clone(),
            });
        }
        sleep(self.queues_take).await;
        let full = self.full.contains(queue.name());
        let failed = |index| Failed {
            index,
            sender_fault: true,
            code: "Full".into(),
        };
        Ok((0..messages.len()).filter(|_| full).map(failed).collect())
    }
}

impl Visibility for &World {
    async fn hide(&self, queue: &Queue, messages: &[(String, u16)]) -> Result<(), String> {
        for (receipt, seconds) in messages {
            self.note(Asked::Hide {
                queue: queue.name().into(),
                receipt: receipt.clone(),
                seconds: *seconds,
            });
        }
        sleep(self.queues_take).await;
        if self.hiding_fails {
            Err("no".into())
        } else {
            Ok(())
        }
    }
}

/// The slot that is booked unless a test says otherwise: in 4,200 ms.
pub(crate) fn slot() -> Slot {
    let cell = NOW.cell().0 + 4;
    Slot {
        at: NOW + Millis(4_200),
        delay: Millis(4_200),
        cells: vec![(Cell(cell), 1)],
    }
}

pub(crate) fn settings() -> SendSettings {
    SendSettings::read(|name| {
        let value = match name {
            "POWERTOOLS_SERVICE_NAME" => "send",
            "SENDSLOT_REDIS_URL" => "redis://127.0.0.1:6379",
            "SENDSLOT_LIMIT" => "100/s",
            "SENDSLOT_TENANTS" => "acme=acme-set,beta,tenant-1",
            "SENDSLOT_PRIORITY_SEND_QUEUE_URL" => "http://sqs/0/sendslot-priority-send",
            "SENDSLOT_BULK_SEND_QUEUE_URL" => "http://sqs/0/sendslot-bulk-send",
            "SENDSLOT_PRIORITY_SEND_DLQ_URL" => "http://sqs/0/sendslot-priority-send-dlq",
            "SENDSLOT_BULK_SEND_DLQ_URL" => "http://sqs/0/sendslot-bulk-send-dlq",
            "SENDSLOT_LEASE_SECONDS" => "60",
            _ => return None,
        };
        Some(value.to_owned())
    })
    .unwrap()
}

/// A slot of acme's that is given back.
pub(crate) fn unused(goes: Cell, cells: &[(Cell, u32)]) -> Unused {
    Unused {
        tenant: "acme".parse().unwrap(),
        goes,
        cells: cells.to_vec(),
        slot_only: false,
    }
}

/// An envelope due now, to change and to write.
pub(crate) fn envelope(send_id: &str) -> Value {
    json!({
        "v": 1,
        "send_id": send_id,
        "tenant": "acme",
        "lane": "bulk",
        "slot_ms": NOW.0,
        "cells": [[NOW.cell().0, 1]],
        "attempts": 0,
        "first_seen_ms": NOW.0 - 5_000,
        "fingerprint": "00ff",
        "mail": {
            "from": "Shop <shop@example.com>",
            "to": ["ann@example.org"],
            "content": { "simple": { "subject": "Hello", "text": "Hi" } },
        },
    })
}

/// The bodies of envelopes due now.
pub(crate) fn bodies(send_ids: &[&str]) -> Vec<String> {
    send_ids
        .iter()
        .map(|send_id| envelope(send_id).to_string())
        .collect()
}

/// The body of an envelope that is as [`envelope`] says but for these fields.
pub(crate) fn body_with(send_id: &str, fields: &Value) -> String {
    let mut envelope = envelope(send_id);
    for (name, value) in fields.as_object().unwrap() {
        envelope[name] = value.clone();
    }
    envelope.to_string()
}

/// A batch as Lambda gets it: message ids m0, m1, …, receipts r0, r1, ….
pub(crate) fn event(queue: &str, bodies: &[String]) -> SqsEvent {
    let records: Vec<Value> = bodies
        .iter()
        .enumerate()
        .map(|(index, body)| {
            json!({
                "messageId": format!("m{index}"),
                "receiptHandle": format!("r{index}"),
                "body": body,
                "attributes": { "ApproximateReceiveCount": "1" },
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": format!("arn:aws:sqs:eu-west-1:123456789012:{queue}"),
                "awsRegion": "eu-west-1",
            })
        })
        .collect();
    serde_json::from_value(json!({ "Records": records })).unwrap()
}
