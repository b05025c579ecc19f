//! send: every message ends once, goes at most as often as it came, or is on a queue.

use std::time::Duration;

use aws_lambda_events::sqs::SqsEvent;
use send::{
    Invocation, Sender,
    ports::{Brakes, Claims, Outgoing, Provider, Reply, Slots, Traces, Visibility},
};
use sendslot_domain::{
    Lane, Millis, Moment, SendId, TenantName,
    outcome::{Next, Outcome, Tries},
};
use sendslot_runtime::{Queue, SendSettings};
use sendslot_schedule::{
    Ask, Booking, Claim, ClaimAsk, End, Ended, Note, Purpose, ScheduleError, Terms, Unused,
};
use tokio::time::{Instant, sleep};

use super::{
    Target, accepts,
    outside::{NOW, Shared},
};
use crate::{given::Given, ledger::Key, weather::Clock};

const TIMEOUT: Duration = Duration::from_secs(30);
const ENDED: [Ended; 4] = [
    Ended::Sent,
    Ended::Rejected,
    Ended::Expired,
    Ended::Otherwise,
];

/// What Redis answers to who claims a message.
fn claim(outside: &Shared, ask: &ClaimAsk) -> Claim {
    let weather = outside.weather();
    let wait = Millis(weather.below(2_000));
    let left = Millis(weather.below(100_000));
    let (key, at) = (key(&ask.tenant, ask.send_id.as_str()), NOW + wait);
    let is_expired = ask.purpose == Purpose::Expire;
    let claim = match weather.below(16) {
        0 => Claim::Later {
            wait: left,
            slot_ahead: true,
        },
        1 => Claim::Later {
            wait: left,
            slot_ahead: false,
        },
        2 => Claim::Ended(outside.one_of(&ENDED)),
        3 => Claim::Held { left },
        4 => Claim::Uncertain {
            age: Millis(left.0 * 10),
        },
        5 => Claim::Conflict,
        6 => Claim::Paused {
            left: weather.once_in(2).then_some(left),
        },
        7 => Claim::Blocked { left },
        _ if is_expired => Claim::Expired,
        _ => Claim::Go { at, wait },
    };
    match claim {
        Claim::Ended(_) | Claim::Expired => outside.ledger().entry(key).ended += 1,
        // One that has expired waits no longer than it must.
        Claim::Uncertain { .. } if is_expired => outside.ledger().entry(key).may_have_ended += 1,
        _ => {}
    }
    claim
}

fn key(tenant: &TenantName, send_id: &str) -> Key {
    Key::mail(tenant.as_str(), send_id)
}

impl Claims for Shared {
    async fn claim(
        &self,
        _: &str,
        _: Terms,
        asks: &[ClaimAsk],
    ) -> Result<Vec<Claim>, ScheduleError> {
        assert!(!asks.is_empty(), "a call for nothing");
        self.redis().await?;
        Ok(asks.iter().map(|ask| claim(self, ask)).collect())
    }

    async fn renew(
        &self,
        _: &str,
        _: Terms,
        asks: &[ClaimAsk],
    ) -> Result<Vec<Claim>, ScheduleError> {
        self.redis().await?;
        let (at, wait) = (NOW, Millis(self.weather().below(2_000)));
        let go = Claim::Go {
            at: at + wait,
            wait,
        };
        Ok(vec![go; asks.len()])
    }

    async fn commit(&self, _: &str, _: Lane, _: Millis, ends: &[End]) -> Result<(), ScheduleError> {
        assert!(!ends.is_empty(), "a call for nothing");
        self.redis().await
    }
}

impl Brakes for Shared {
    async fn slow(&self, _: Moment, _: u32) -> Result<(), ScheduleError> {
        self.redis().await
    }

    async fn block(&self, length: Millis, longest: Millis, _: &str) -> Result<(), ScheduleError> {
        assert!(length <= longest, "{length:?} of {longest:?}");
        self.redis().await
    }

    async fn pause(&self, tenant: &TenantName, _: Millis, _: &str) -> Result<(), ScheduleError> {
        self.ledger().pauses(tenant.as_str());
        self.redis().await
    }
}

impl Slots for Shared {
    async fn book(
        &self,
        _: Lane,
        asks: &[Ask],
        ids: &[Option<SendId>],
    ) -> Result<Vec<Booking>, ScheduleError> {
        assert!(!asks.is_empty(), "a call for nothing");
        assert_eq!(asks.len(), ids.len());
        self.redis().await?;
        Ok(asks.iter().map(|ask| self.booking(ask)).collect())
    }

    async fn release(&self, _: Lane, unused: &[Unused]) -> Result<(), ScheduleError> {
        assert!(!unused.is_empty(), "a call for nothing");
        self.redis().await
    }
}

impl Traces for Shared {
    async fn trace(&self, notes: &[Note], _: Millis) -> Result<(), ScheduleError> {
        assert!(!notes.is_empty(), "a call for nothing");
        self.redis().await
    }
}

impl Provider for Shared {
    async fn send(&self, mail: &Outgoing<'_>) -> Reply {
        sleep(Duration::from_millis(self.weather().below(300))).await;
        let outcome = if self.weather().once_in(2) {
            Outcome::Sent
        } else {
            self.one_of(&Outcome::ALL)
        };
        let envelope = mail.envelope;
        let key = key(&envelope.tenant, envelope.send_id.as_str());
        let mut ledger = self.ledger();
        ledger.sends(key.clone());
        let is_paused = matches!(
            outcome,
            // Where the provider doesn't say who is paused, the account is asked for, and then it is the tenant.
            Outcome::SetPaused | Outcome::TenantPaused | Outcome::Paused
        );
        if is_paused {
            ledger.may_pause(envelope.tenant.as_str());
        }
        // Whether the provider will hear of it again is the same however often it was tried.
        let next = outcome.consequence(Tries::default()).next;
        if matches!(next, Next::Commit | Next::Delete) {
            ledger.entry(key).ended += 1;
        }
        Reply {
            outcome,
            id: (outcome == Outcome::Sent).then(|| "0102".to_owned()),
            said: (outcome != Outcome::Sent).then(|| "400 SomeException".to_owned()),
        }
    }

    async fn account_sends(&self) -> Option<bool> {
        self.weather().call().await.ok()?;
        self.one_of(&[None, Some(true), Some(false)])
    }
}

impl Visibility for Shared {
    async fn hide(&self, _: &Queue, messages: &[(String, u16)]) -> Result<(), String> {
        assert!(!messages.is_empty(), "a call for nothing");
        let called = self.weather().call().await;
        called.map_err(|_| "status 500".to_owned())
    }
}

pub(crate) struct Envelopes {
    clock: Clock,
    /// As deployed, while Redis is away: hold and capped; and with an account that is followed.
    settings: Vec<SendSettings>,
}

impl Envelopes {
    pub(crate) fn new() -> Self {
        let ways = [
            ("hold", "deploy"),
            ("capped", "deploy"),
            ("hold", "account"),
        ];
        Self {
            clock: Clock::new(),
            settings: ways.map(|(down, source)| settings(down, source)).into(),
        }
    }
}

fn settings(redis_down: &str, source: &str) -> SendSettings {
    let read = SendSettings::read(|name| {
        let value = match name {
            "POWERTOOLS_SERVICE_NAME" => "send".to_owned(),
            "SENDSLOT_REDIS_URL" => "redis://127.0.0.1:1".to_owned(),
            "SENDSLOT_LIMIT" => "100/s".to_owned(),
            "SENDSLOT_TENANTS" => "tenant-1,acme".to_owned(),
            "SENDSLOT_LEASE_SECONDS" => "60".to_owned(),
            "SENDSLOT_REDIS_DOWN" => redis_down.to_owned(),
            "SENDSLOT_PARKING_BUCKET" => "parked".to_owned(),
            "SENDSLOT_BUDGET_SOURCE" => source.to_owned(),
            url => super::queue_url(url)?,
        };
        Some(value)
    });
    read.unwrap_or_else(|error| panic!("{error}"))
}

impl Target for Envelopes {
    fn run(&mut self, input: &str) -> &'static str {
        let Ok(event) = serde_json::from_str::<SqsEvent>(input) else {
            return "not read";
        };
        let given = Given::read(input);
        let outside = Shared::of(input);
        let settings = self.settings[outside.one_of(&[0, 1, 2])].clone();
        let time = if outside.weather().fails_once_in(8) {
            Duration::from_millis(outside.weather().below(25_000))
        } else {
            TIMEOUT
        };
        let all = || outside.clone();
        let sender = Sender::new(all(), all(), all(), all(), settings);
        let (answer, took) = self.clock.run(async {
            let start = Instant::now();
            let invocation = Invocation {
                id: "request-1".to_owned(),
                now: NOW,
                deadline: start + time,
            };
            let answer = sender.handle(event, &invocation).await;
            (answer, start.elapsed())
        });
        let Ok((response, metrics)) = answer else {
            assert!(!accepts(&outside), "refused, and yet there are messages");
            return "refused as a whole";
        };
        // With less time than that nothing is begun, and SQS must be told so all the same.
        let least = send::batch::CLOSING + send::batch::SEND_TIMEOUT;
        assert!(took <= time.max(least), "it took {took:?} of {time:?}");
        let mut ledger = std::mem::take(&mut *outside.ledger());
        for (id, body) in given.records() {
            ledger.comes(id, body);
        }
        for failure in &response.batch_item_failures {
            ledger.back(&failure.item_identifier);
        }
        let back = response.batch_item_failures.len();
        ledger.check(false);
        let of = |name| metrics.get(name).unwrap_or_default();
        let known = [
            ("Sent", "sent"),
            ("Parked", "parked"),
            ("Retried", "again"),
            ("DeadLettered", "dead letters"),
        ];
        let found = known.iter().find(|(name, _)| of(name) > 0);
        match (given.records().len(), back) {
            (0, _) => "no records",
            (all, back) if all == back => "all come again",
            _ => found.map_or("other", |(_, outcome)| outcome),
        }
    }
}
