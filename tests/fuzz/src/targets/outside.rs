//! Queues, a bucket and tenants, as far as a ledger needs them.

use std::sync::{Arc, Mutex, MutexGuard};

use sendslot_domain::{Cell, Millis, Moment, TenantName};
use sendslot_runtime::{
    AskTenants, Queue,
    bucket::Parking,
    queue::{Failed, MAX_BYTES, MAX_DELAY_SECONDS, MAX_ENTRIES, Message, SendBatch},
};
use sendslot_schedule::{Ask, Booking, ScheduleError, Slot, Standing, Wait};

use crate::{
    ledger::{Key, Ledger},
    weather::{Weather, locked},
};

/// When all happens: 2026-11-30 17:30 UTC.
pub(crate) const NOW: Moment = Moment(1_796_059_800_000);

/// What the functions that handle mail work on.
pub(crate) struct Outside {
    pub(crate) weather: Weather,
    pub(crate) ledger: Mutex<Ledger>,
}

/// The same for all of a function's ports.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Outside>);

impl Shared {
    pub(crate) fn of(input: &str) -> Self {
        Self(Arc::new(Outside {
            weather: Weather::of(input),
            ledger: Mutex::default(),
        }))
    }

    pub(crate) fn weather(&self) -> &Weather {
        &self.0.weather
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        locked(&self.0.ledger)
    }

    /// One of so many.
    pub(crate) fn one_of<T: Copy>(&self, all: &[T]) -> T {
        let most = u64::try_from(all.len()).unwrap_or(1);
        all[usize::try_from(self.0.weather.below(most)).unwrap_or(0)]
    }

    /// A call to Redis. When it fails, nothing was done.
    pub(crate) async fn redis(&self) -> Result<(), ScheduleError> {
        let called = self.0.weather.call().await;
        called.map_err(|_| {
            if self.0.weather.once_in(4) {
                return ScheduleError::NoBudget("ses".to_owned());
            }
            let (script, answer) = ("any", "is away".to_owned());
            ScheduleError::Answer { script, answer }
        })
    }

    /// What a booking comes to: mostly a slot.
    pub(crate) fn booking(&self, ask: &Ask) -> Booking {
        let weather = &self.0.weather;
        let delay = Millis(weather.below(60_000));
        let estimate = Millis(delay.0 + weather.below(100_000));
        let place = weather.below(3);
        match (&ask.standing, weather.below(12)) {
            (Standing::Left { .. }, _) => Booking::Left,
            (_, 0) => Booking::Wait(Wait {
                delay,
                place,
                estimate,
            }),
            (_, 1) => Booking::UnknownTenant,
            (_, 2) => Booking::OverCap,
            (_, 3) => Booking::Paused,
            (_, 4) => Booking::Blocked(estimate),
            (_, 5) => slot(Millis(weather.below(10_000_000)), ask.cost),
            _ => slot(delay, ask.cost),
        }
    }
}

fn slot(delay: Millis, cost: u32) -> Booking {
    let at = NOW + delay;
    let Cell(cell) = at.cell();
    Booking::Slot(Slot {
        at,
        delay,
        cells: vec![(Cell(cell), cost)],
    })
}

impl SendBatch for Shared {
    async fn send_batch(&self, _: &Queue, messages: &[&Message]) -> Result<Vec<Failed>, String> {
        let bytes: usize = messages.iter().map(|message| message.bytes()).sum();
        assert!(
            (1..=MAX_ENTRIES).contains(&messages.len()),
            "{} in a call",
            messages.len()
        );
        assert!(
            bytes <= MAX_BYTES || messages.len() == 1,
            "{bytes} bytes in a call"
        );
        let longest = messages.iter().map(|message| message.delay_seconds).max();
        assert!(longest <= Some(MAX_DELAY_SECONDS), "{longest:?} s");
        let called = self.weather().call().await;
        called.map_err(|_| "status 500".to_owned())?;
        let mut failed = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            if self.weather().fails_once_in(8) {
                let sender_fault = self.weather().once_in(2);
                let code = "InternalError".to_owned();
                failed.push(Failed {
                    index,
                    sender_fault,
                    code,
                });
            } else {
                self.ledger().entry(Key::of(&message.body)).out += 1;
            }
        }
        Ok(failed)
    }
}

impl Parking for Shared {
    async fn park(&self, key: String, body: String) -> Result<(), String> {
        assert!(key.starts_with("parked/"), "{key:?}");
        let called = self.weather().call().await;
        called.map_err(|_| "status 503".to_owned())?;
        self.ledger().entry(Key::of(&body)).out += 1;
        Ok(())
    }
}

impl AskTenants for Shared {
    async fn tenants(&self, tenants: &[TenantName]) -> Result<Vec<Option<String>>, ScheduleError> {
        self.redis().await?;
        let of = |_: &TenantName| {
            let some = if self.weather().is_fair() { 3 } else { 5 };
            let known = [
                Some(r#"{"configuration_set":"tenant-1-set","lane":"priority"}"#),
                Some(
                    r#"{"uncertain":"park","list_unsubscribe":{"url":"https://acme.example/{send_id}"}}"#,
                ),
                Some("{}"),
                Some("{"),
                None,
            ];
            self.one_of(&known[..some]).map(str::to_owned)
        };
        Ok(tenants.iter().map(of).collect())
    }
}
