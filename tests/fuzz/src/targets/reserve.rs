//! reserve: every request is in one place, or has an answer that says why not.

use std::{collections::BTreeMap, sync::MutexGuard, time::Duration};

use reserve::{Answer, Deadline, Event, HandlerError, Reserve, ports::Book};
use sendslot_domain::{Lane, Millis, SendId, suppression::AddressDigest};
use sendslot_mail::digest;
use sendslot_runtime::{Metrics, ReserveSettings};
use sendslot_schedule::{Ask, Booking, Note, ScheduleError, Unused};
use serde_json::{Value, value::RawValue};
use tokio::time::Instant;

use super::{
    Target, accepts,
    outside::{NOW, Shared},
};
use crate::{
    given::{Given, json},
    ledger::{Key, Ledger},
    weather::Clock,
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Whether nobody may be sent to: so it is with one address in five, of which the corpus has some.
fn is_suppressed(digest: &AddressDigest) -> bool {
    digest.0[0].is_multiple_of(5)
}

impl Book for Shared {
    async fn trace(&self, notes: &[Note], _: Millis) -> Result<(), ScheduleError> {
        assert!(!notes.is_empty(), "a call for nothing");
        self.redis().await
    }

    async fn book_mail(
        &self,
        _: Lane,
        asks: &[Ask],
        ids: &[Option<SendId>],
        addresses: &[AddressDigest],
    ) -> Result<(Vec<Booking>, Vec<usize>), ScheduleError> {
        assert!(!asks.is_empty(), "a call for nothing");
        assert!(ids.is_empty() || ids.len() == asks.len());
        self.redis().await?;
        let bookings = asks.iter().map(|ask| self.booking(ask)).collect();
        let addresses = addresses.iter().enumerate();
        let found = addresses.filter(|(_, address)| is_suppressed(address));
        Ok((bookings, found.map(|(index, _)| index).collect()))
    }

    async fn release(&self, _: Lane, unused: &[Unused]) -> Result<(), ScheduleError> {
        assert!(!unused.is_empty(), "a call for nothing");
        self.redis().await
    }
}

pub(crate) struct Requests {
    clock: Clock,
    /// As deployed, while Redis is away: hold and capped; and with an account that is followed.
    settings: Vec<ReserveSettings>,
}

impl Requests {
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

fn settings(redis_down: &str, source: &str) -> ReserveSettings {
    let read = ReserveSettings::read(|name| {
        let value = match name {
            "POWERTOOLS_SERVICE_NAME" => "reserve".to_owned(),
            "SENDSLOT_REDIS_URL" => "redis://127.0.0.1:1".to_owned(),
            "SENDSLOT_LIMIT" => "100/s".to_owned(),
            "SENDSLOT_TENANTS" => "tenant-1,acme".to_owned(),
            "SENDSLOT_SLOTS_ONLY" => "on".to_owned(),
            "SENDSLOT_REDIS_DOWN" => redis_down.to_owned(),
            "SENDSLOT_PARKING_BUCKET" => "parked".to_owned(),
            "SENDSLOT_BUDGET_SOURCE" => source.to_owned(),
            url => super::queue_url(url)?,
        };
        Some(value)
    });
    read.unwrap_or_else(|error| panic!("{error}"))
}

impl Target for Requests {
    fn run(&mut self, input: &str) -> &'static str {
        let Ok(event) = serde_json::from_str::<Event>(input) else {
            return "not read";
        };
        let given = Given::read(input);
        let outside = Shared::of(input);
        let settings = outside.one_of(&[0, 1, 2]);
        let settings = self.settings[settings].clone();
        let time = if outside.weather().fails_once_in(8) {
            Duration::from_millis(outside.weather().below(12_000))
        } else {
            TIMEOUT
        };
        let handler = Reserve::new(outside.clone(), outside.clone(), outside.clone(), settings);
        let (answer, took) = self.clock.run(async {
            let start = Instant::now();
            let answer = handler.handle(event, NOW, Deadline::at(start + time)).await;
            (answer, start.elapsed())
        });
        // However little time there is, tenants may be asked for.
        let least = Duration::from_millis(600);
        assert!(took <= time.max(least), "it took {took:?} of {time:?}");
        match answer {
            Err(error) => {
                assert!(!accepts(&outside), "{error}: and yet there are messages");
                failed(&error)
            }
            Ok((Answer::Queued(response), metrics)) => {
                let back = response.batch_item_failures.iter();
                let back: Vec<&str> = back
                    .map(|failure| failure.item_identifier.as_str())
                    .collect();
                queued(outside.ledger(), &given.records(), &back, &metrics)
            }
            Ok((Answer::Direct { results }, _)) => {
                let results = serde_json::to_value(results).unwrap_or_default();
                direct(
                    outside.ledger(),
                    given.messages(),
                    &results,
                    given.is_of_slots(),
                )
            }
        }
    }
}

fn failed(error: &HandlerError) -> &'static str {
    match error {
        HandlerError::Schedule(_) => "nothing booked",
        _ => "refused as a whole",
    }
}

/// Whether nobody is left that a request may be sent to, as far as it can be read.
fn nobody_left(request: &str) -> bool {
    let request = json(request).unwrap_or_default();
    let all = ["to", "cc", "bcc"]
        .iter()
        .filter_map(|field| request[field].as_array());
    let mut all = all.flatten().peekable();
    all.peek().is_some()
        && all.all(|address| {
            address
                .as_str()
                .is_some_and(|text| is_suppressed(&digest(text)))
        })
}

fn queued(
    mut ledger: MutexGuard<'_, Ledger>,
    records: &[(&str, &str)],
    back: &[&str],
    metrics: &[Metrics],
) -> &'static str {
    let mut ledger = std::mem::take(&mut *ledger);
    let mut may_end = 0;
    for (id, body) in records {
        ledger.comes(id, body);
        if nobody_left(body) {
            may_end += 1;
            ledger.entry(Key::of(body)).may_have_ended += 1;
        }
    }
    for id in back {
        ledger.back(id);
    }
    let ended = metrics
        .iter()
        .filter_map(|metrics| metrics.get("Suppressed"))
        .sum::<u64>();
    // One that was left out stands for its copies.
    assert!(ended <= may_end, "{ended} have ended, and {may_end} could");
    ledger.check(true);
    match (records.len(), back.len()) {
        (0, _) => "no records",
        (_, 0) => "all done",
        (all, back) if all == back => "all come again",
        _ => "some come again",
    }
}

fn direct(
    mut ledger: MutexGuard<'_, Ledger>,
    messages: &[&RawValue],
    results: &Value,
    is_slots: bool,
) -> &'static str {
    let results = results.as_array().map_or(&[][..], Vec::as_slice);
    assert_eq!(results.len(), messages.len(), "an answer each");
    // By mail: how many came, and how many of them are said to be with us.
    let mut kept = BTreeMap::<Key, (usize, usize)>::new();
    for (message, result) in messages.iter().zip(results) {
        let status = result["status"].as_str().unwrap_or_default();
        let is_kept = match status {
            "booked" | "waiting" | "parked" => !is_slots,
            "slot" | "retry_after" => {
                assert!(is_slots, "a slot for a mail");
                false
            }
            "suppressed" => {
                assert!(nobody_left(message.get()), "somebody is left");
                false
            }
            "refused" | "failed" => false,
            other => panic!("the status {other:?}"),
        };
        let (came, with_us) = kept.entry(Key::of(message.get())).or_default();
        *came += 1;
        *with_us += usize::from(is_kept);
    }
    for (key, (came, with_us)) in kept {
        let out = ledger.entry(key.clone()).out;
        let right = out == with_us || came > 1 && out <= with_us && (out > 0) == (with_us > 0);
        assert!(
            right,
            "{out} of {came} are kept and {with_us} are said to be: {key:?}"
        );
    }
    if is_slots { "slots" } else { "answered" }
}
