//! Everything outside a batch: it answers as a test says and writes down what it was asked.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use aws_lambda_events::sqs::{BatchItemFailure, SqsEvent};
use send::{
    Invocation, Sender,
    batch::COUNTS,
    ports::{Brakes, Claims, Outgoing, Parking, Provider, Reply, Slots, Traces, Visibility},
};
use sendslot_domain::{Cell, Lane, Millis, Moment, SendId, TenantName, outcome::Outcome};
use sendslot_runtime::{
    AskTenants, Metrics, Queue, SendSettings, TenantSettings,
    queue::{Failed, Message, SendBatch},
};
use sendslot_schedule::{
    Ask, Booking, Claim, ClaimAsk, End, Ending, Note, Purpose, ScheduleError, Slot, Terms, Unused,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

pub(crate) const NOW: Moment = Moment(1_800_000_000_000);
pub(crate) const REQUEST: &str = "request-1";
/// What is left of an invocation that has just begun.
pub(crate) const TIME: Duration = Duration::from_secs(30);
/// How long a call takes that never answers.
pub(crate) const HANGS: Duration = Duration::from_hours(24);
/// The queues of the bulk lane.
pub(crate) const SEND: &str = "sendslot-bulk-send";
pub(crate) const DLQ: &str = "sendslot-bulk-send-dlq";
pub(crate) const THROTTLED: Outcome = Outcome::RateThrottled { retry_after: None };

/// One thing the handler asked for.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Claim {
        owner: String,
        terms: Terms,
        asks: Vec<ClaimAsk>,
    },
    Renew {
        owner: String,
        terms: Terms,
        asks: Vec<ClaimAsk>,
    },
    Slow {
        granted: Moment,
        recipients: u32,
    },
    Block {
        length: Millis,
        longest: Millis,
        reason: String,
    },
    Pause {
        tenant: String,
        length: Millis,
        reason: String,
    },
    Account,
    Sets(Vec<String>),
    Park {
        key: String,
        body: String,
    },
    Send {
        send_id: String,
        grant: Moment,
        tenant: Box<TenantSettings>,
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
        ids: Vec<Option<SendId>>,
    },
    Trace {
        notes: Vec<Note>,
        memory: Millis,
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

/// Grants, sends, books and parks everything at once, unless told otherwise. What has expired is marked so, and while nobody
/// may send nothing is booked.
pub(crate) struct World {
    /// The environment, where it isn't as [`settings`] has it.
    pub(crate) vars: Vec<(&'static str, &'static str)>,
    /// Until when no call to Redis works, and how long each takes to fail.
    pub(crate) away_until: Option<Instant>,
    pub(crate) away_takes: Duration,
    /// Answers to claims, by send id.
    pub(crate) claims: HashMap<&'static str, Claim>,
    /// How long a claim takes.
    pub(crate) claim_takes: Duration,
    /// The answer to whoever draws a new grant.
    pub(crate) renewal: Claim,
    pub(crate) renewal_takes: Duration,
    /// What sends come to, by send id.
    pub(crate) outcomes: HashMap<&'static str, Outcome>,
    /// How long a send takes, and those that take otherwise, by send id.
    pub(crate) send_takes: Duration,
    pub(crate) sends_take: HashMap<&'static str, Duration>,
    /// Whether the account may send, and how long it takes to tell.
    pub(crate) account_sends: Option<bool>,
    pub(crate) account_takes: Duration,
    /// How long Redis takes to be told what a send means for others.
    pub(crate) brakes_take: Duration,
    /// For how long nobody may send, once Redis was told so.
    pub(crate) blocked: Mutex<Option<Millis>>,
    /// Answers to bookings, in order; after those, [`slot`].
    pub(crate) bookings: Mutex<VecDeque<Booking>>,
    /// Tenants that Redis knows, and their configuration sets.
    pub(crate) sets: HashMap<&'static str, Option<&'static str>>,
    /// What else is set for them.
    pub(crate) tenants: HashMap<&'static str, TenantSettings>,
    /// Calls that fail: "claim", "renew", "book", "hide", "park", "sets", "trace"; "budget": all of Redis, which is empty.
    pub(crate) fails: HashSet<&'static str>,
    /// How many commits fail before one works.
    pub(crate) commits_fail: Mutex<usize>,
    /// How long a commit takes.
    pub(crate) commit_takes: Duration,
    /// How long a booking or a release takes.
    pub(crate) slots_take: Duration,
    /// How long parking a mail takes.
    pub(crate) parking_takes: Duration,
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
            vars: Vec::new(),
            away_until: None,
            away_takes: Duration::ZERO,
            claims: HashMap::new(),
            claim_takes: Duration::ZERO,
            renewal: FULL,
            renewal_takes: Duration::ZERO,
            outcomes: HashMap::new(),
            send_takes: Duration::from_millis(100),
            sends_take: HashMap::new(),
            account_sends: None,
            account_takes: Duration::ZERO,
            brakes_take: Duration::ZERO,
            blocked: Mutex::default(),
            bookings: Mutex::default(),
            sets: HashMap::new(),
            tenants: HashMap::new(),
            fails: HashSet::new(),
            commits_fail: Mutex::new(0),
            commit_takes: Duration::ZERO,
            slots_take: Duration::ZERO,
            parking_takes: Duration::ZERO,
            queues_take: Duration::ZERO,
            full: HashSet::new(),
            log: Mutex::default(),
        }
    }
}

/// The guard has no grant in time.
pub(crate) const FULL: Claim = Claim::Later {
    wait: Millis(0),
    slot_ahead: false,
};

/// A grant so long after [`NOW`].
pub(crate) fn go(ms: u64) -> Claim {
    Claim::Go {
        at: NOW + Millis(ms),
        wait: Millis(ms),
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

    /// All counts that aren't zero.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        let counts = COUNTS.map(|name| (name, self.count(name)));
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

impl World {
    /// Runs a batch of such bodies from the bulk lane.
    pub(crate) async fn handle(&self, bodies: &[String]) -> Handled {
        self.handle_within(TIME, bodies).await
    }

    pub(crate) async fn handle_within(&self, time: Duration, bodies: &[String]) -> Handled {
        self.run(event(SEND, bodies), NOW, time).await
    }

    pub(crate) async fn run(&self, event: SqsEvent, now: Moment, time: Duration) -> Handled {
        let deadline = Instant::now() + time;
        let id = REQUEST.into();
        self.invoke(event, &Invocation { id, now, deadline }).await
    }

    pub(crate) async fn invoke(&self, event: SqsEvent, invocation: &Invocation) -> Handled {
        self.invoke_as(&self.sender(), event, invocation).await
    }

    /// A worker's process.
    pub(crate) fn sender(&self) -> Sender<&Self, &Self, &Self, &Self> {
        Sender::new(self, self, self, self, settings(&self.vars))
    }

    /// The same process once more.
    pub(crate) async fn invoke_with(
        &self,
        sender: &Sender<&Self, &Self, &Self, &Self>,
        bodies: &[String],
    ) -> Handled {
        let invocation = Invocation {
            id: REQUEST.into(),
            now: NOW,
            deadline: Instant::now() + TIME,
        };
        self.invoke_as(sender, event(SEND, bodies), &invocation)
            .await
    }

    async fn invoke_as(
        &self,
        sender: &Sender<&Self, &Self, &Self, &Self>,
        event: SqsEvent,
        invocation: &Invocation,
    ) -> Handled {
        let (response, metrics) = sender.handle(event, invocation).await.unwrap();
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
        let ends = asked.filter_map(|asked| match asked {
            Asked::Send { send_id, at, .. } => Some(at + self.send_of(&send_id)),
            _ => None,
        });
        ends.max().unwrap()
    }

    fn send_of(&self, send_id: &str) -> Duration {
        let takes = self.sends_take.get(send_id).copied();
        takes.unwrap_or(self.send_takes)
    }

    /// What was claimed, in order.
    pub(crate) fn claimed(&self) -> Vec<ClaimAsk> {
        let asked = self.asked().into_iter();
        asked
            .filter_map(|asked| match asked {
                Asked::Claim { asks, .. } => Some(asks),
                _ => None,
            })
            .flatten()
            .collect()
    }

    /// What Redis was told of other mail, in words.
    pub(crate) fn told(&self) -> Vec<String> {
        let asked = self.asked().into_iter();
        asked
            .filter_map(|asked| match asked {
                Asked::Slow {
                    granted,
                    recipients,
                } => Some(format!("slow {} {recipients}", NOW.until(granted).0)),
                Asked::Block {
                    length,
                    longest,
                    reason,
                } => Some(format!("block {} to {} {reason}", length.0, longest.0)),
                Asked::Pause {
                    tenant,
                    length,
                    reason,
                } => Some(format!("pause {tenant} {} {reason}", length.0)),
                _ => None,
            })
            .collect()
    }

    /// What was parked: key and body.
    pub(crate) fn parked(&self) -> Vec<(String, Value)> {
        let asked = self.asked().into_iter();
        asked
            .filter_map(|asked| match asked {
                Asked::Park { key, body } => Some((key, serde_json::from_str(&body).unwrap())),
                _ => None,
            })
            .collect()
    }

    /// The copies that were put on the bulk lane's send queue: delay and envelope.
    pub(crate) fn copies(&self) -> Vec<(u16, Value)> {
        let puts = self.put(SEND).into_iter();
        puts.map(|put| (put.delay_seconds, serde_json::from_str(&put.body).unwrap()))
            .collect()
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
                } if queue == SEND => Some((receipt, seconds)),
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

    /// What was noted, for whoever looks for a mail.
    pub(crate) fn noted(&self) -> Vec<Note> {
        let asked = self.asked().into_iter();
        asked
            .filter_map(|asked| match asked {
                Asked::Trace { notes, .. } => Some(notes),
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
                Asked::Renew { .. } => Some("renew"),
                Asked::Slow { .. } => Some("slow"),
                Asked::Block { .. } => Some("block"),
                Asked::Pause { .. } => Some("pause"),
                Asked::Account => Some("account"),
                Asked::Sets(_) => Some("sets"),
                Asked::Park { .. } => Some("park"),
                Asked::Send { .. } => None,
                Asked::Commit { .. } => Some("commit"),
                Asked::Book { .. } => Some("book"),
                Asked::Put { .. } => Some("put"),
                Asked::Hide { .. } => Some("hide"),
                Asked::Release { .. } => Some("release"),
                Asked::Trace { .. } => Some("trace"),
            })
            .collect()
    }

    fn note(&self, asked: Asked) {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(asked);
    }

    /// A call to Redis that takes so long, and works unless Redis is away or the call is to fail.
    async fn redis(&self, takes: Duration, fails: bool) -> Result<(), ScheduleError> {
        let away = self.away_until.is_some_and(|until| Instant::now() < until);
        sleep(if away { self.away_takes } else { takes }).await;
        if self.fails.contains("budget") {
            return Err(ScheduleError::NoBudget("ses".into()));
        }
        if away || fails {
            let (script, answer) = ("any", "is away".into());
            return Err(ScheduleError::Answer { script, answer });
        }
        Ok(())
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
        self.redis(self.claim_takes, self.fails.contains("claim"))
            .await?;
        let answer = |ask: &ClaimAsk| {
            let told = self.claims.get(ask.send_id.as_str()).copied();
            told.unwrap_or(match ask.purpose {
                Purpose::Expire => Claim::Expired,
                Purpose::Send | Purpose::Once | Purpose::Resend => go(0),
            })
        };
        Ok(asks.iter().map(answer).collect())
    }

    async fn renew(
        &self,
        owner: &str,
        terms: Terms,
        asks: &[ClaimAsk],
    ) -> Result<Vec<Claim>, ScheduleError> {
        self.note(Asked::Renew {
            owner: owner.into(),
            terms,
            asks: asks.to_vec(),
        });
        self.redis(self.renewal_takes, self.fails.contains("renew"))
            .await?;
        Ok(vec![self.renewal; asks.len()])
    }

    async fn commit(
        &self,
        owner: &str,
        _: Lane,
        memory: Millis,
        ends: &[End],
    ) -> Result<(), ScheduleError> {
        let ends = ends
            .iter()
            .map(|end| (end.send_id.to_string(), end.how))
            .collect();
        self.note(Asked::Commit {
            owner: owner.into(),
            memory,
            ends,
        });
        self.redis(self.commit_takes, false).await?;
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

impl Brakes for &World {
    async fn slow(&self, granted: Moment, recipients: u32) -> Result<(), ScheduleError> {
        self.note(Asked::Slow {
            granted,
            recipients,
        });
        self.redis(self.brakes_take, false).await
    }

    async fn block(
        &self,
        length: Millis,
        longest: Millis,
        reason: &str,
    ) -> Result<(), ScheduleError> {
        self.note(Asked::Block {
            length,
            longest,
            reason: reason.into(),
        });
        self.redis(self.brakes_take, false).await?;
        *self.blocked.lock().unwrap_or_else(PoisonError::into_inner) = Some(length);
        Ok(())
    }

    async fn pause(
        &self,
        tenant: &TenantName,
        length: Millis,
        reason: &str,
    ) -> Result<(), ScheduleError> {
        self.note(Asked::Pause {
            tenant: tenant.to_string(),
            length,
            reason: reason.into(),
        });
        self.redis(self.brakes_take, false).await
    }
}

impl AskTenants for &World {
    async fn tenants(&self, tenants: &[TenantName]) -> Result<Vec<Option<String>>, ScheduleError> {
        self.note(Asked::Sets(
            tenants.iter().map(ToString::to_string).collect(),
        ));
        self.redis(self.slots_take, self.fails.contains("sets"))
            .await?;
        let settings = |tenant: &TenantName| {
            let set = self.sets.get(tenant.as_str())?;
            let more = self.tenants.get(tenant.as_str()).cloned();
            let settings = TenantSettings {
                configuration_set: set.map(str::to_owned),
                ..more.unwrap_or_default()
            };
            Some(settings.to_json().unwrap())
        };
        Ok(tenants.iter().map(settings).collect())
    }
}

impl Slots for &World {
    async fn book(
        &self,
        lane: Lane,
        asks: &[Ask],
        ids: &[Option<SendId>],
    ) -> Result<Vec<Booking>, ScheduleError> {
        self.note(Asked::Book {
            lane,
            asks: asks.to_vec(),
            ids: ids.to_vec(),
        });
        self.redis(self.slots_take, self.fails.contains("book"))
            .await?;
        let mut bookings = self.bookings.lock().unwrap_or_else(PoisonError::into_inner);
        let blocked = *self.blocked.lock().unwrap_or_else(PoisonError::into_inner);
        let usual = || blocked.map_or_else(|| Booking::Slot(slot()), Booking::Blocked);
        Ok(asks
            .iter()
            .map(|_| bookings.pop_front().unwrap_or_else(usual))
            .collect())
    }

    async fn release(&self, _: Lane, unused: &[Unused]) -> Result<(), ScheduleError> {
        self.note(Asked::Release {
            unused: unused.to_vec(),
        });
        self.redis(self.slots_take, false).await
    }
}

impl Traces for &World {
    async fn trace(&self, notes: &[Note], memory: Millis) -> Result<(), ScheduleError> {
        self.note(Asked::Trace {
            notes: notes.to_vec(),
            memory,
        });
        self.redis(self.slots_take, self.fails.contains("trace"))
            .await
    }
}

impl Provider for &World {
    async fn send(&self, mail: &Outgoing<'_>) -> Reply {
        let send_id = mail.envelope.send_id.to_string();
        self.note(Asked::Send {
            send_id: send_id.clone(),
            grant: mail.grant,
            tenant: Box::new(mail.tenant.clone()),
            at: Instant::now(),
        });
        sleep(self.send_of(&send_id)).await;
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

    async fn account_sends(&self) -> Option<bool> {
        self.note(Asked::Account);
        sleep(self.account_takes).await;
        self.account_sends
    }
}

impl Parking for &World {
    async fn park(&self, key: String, body: String) -> Result<(), String> {
        self.note(Asked::Park { key, body });
        sleep(self.parking_takes).await;
        if self.fails.contains("park") {
            return Err("no".into());
        }
        Ok(())
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
        if self.fails.contains("hide") {
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

/// The settings of a usual deployment, with these variables changed.
pub(crate) fn settings(changed: &[(&str, &str)]) -> SendSettings {
    SendSettings::read(|name| {
        if let Some((_, value)) = changed.iter().find(|(changed, _)| *changed == name) {
            return Some((*value).to_owned());
        }
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
            "SENDSLOT_PARKING_BUCKET" => "sendslot-parked",
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

/// The same batch, of which one message is received for the so-manieth time, and was first received then.
pub(crate) fn received(mut event: SqsEvent, index: usize, count: u32, first: Moment) -> SqsEvent {
    let attributes = &mut event.records[index].attributes;
    let mut set = |name: &str, value: String| attributes.insert(name.to_owned(), value);
    set("ApproximateReceiveCount", count.to_string());
    set("ApproximateFirstReceiveTimestamp", first.0.to_string());
    event
}
