//! What a function meets beside its event: calls that take their time, fail or never end. It follows from the event, so that the same event
//! meets the same again.

use std::{
    future::{Future, pending},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    runtime::{Builder, Runtime},
    time::sleep,
};

use crate::mutate::Mutator;

/// What a lock holds, whoever panicked with it.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the calls of one event come to.
pub(crate) struct Weather {
    random: Mutex<StdRng>,
    fair: bool,
}

impl Weather {
    /// That of an event. Half of the events meet nothing that fails.
    pub(crate) fn of(input: &str) -> Self {
        let mut hash = DefaultHasher::new();
        input.hash(&mut hash);
        let mut random = StdRng::seed_from_u64(hash.finish());
        let fair = random.random_range(0..2) == 0;
        Self {
            random: Mutex::new(random),
            fair,
        }
    }

    /// Whether nothing fails.
    pub(crate) const fn is_fair(&self) -> bool {
        self.fair
    }

    /// A number below this one.
    pub(crate) fn below(&self, number: u64) -> u64 {
        locked(&self.random).random_range(0..number)
    }

    /// Yes, once in so many times.
    pub(crate) fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// As [`Self::once_in`], and never when nothing fails.
    pub(crate) fn fails_once_in(&self, times: u64) -> bool {
        !self.fair && self.once_in(times)
    }

    /// A call: it takes up to 0.2 s; where things fail it fails once in eight times, and once in forty it never ends.
    ///
    /// # Errors
    /// It has failed; nothing was done.
    pub(crate) async fn call(&self) -> Result<(), Failed> {
        sleep(Duration::from_millis(self.below(200))).await;
        if self.fails_once_in(40) {
            pending::<()>().await;
        }
        if self.fails_once_in(8) {
            return Err(Failed);
        }
        Ok(())
    }

    /// One of these texts of JSON, as it is or changed.
    pub(crate) fn changed(&self, texts: &[String]) -> String {
        let seed = locked(&self.random).random();
        if self.fair {
            let most = u64::try_from(texts.len()).unwrap_or(1);
            return texts[usize::try_from(self.below(most)).unwrap_or(0)].clone();
        }
        Mutator::new(StdRng::seed_from_u64(seed)).input(texts)
    }
}

/// What a call that fails says.
pub(crate) struct Failed;

/// Time that passes as soon as everybody waits.
pub(crate) struct Clock {
    runtime: Runtime,
    runs: u32,
}

impl Clock {
    /// A clock is good for so many runs: the runtime's timers reach two years.
    const RUNS: u32 = 10_000;

    pub(crate) fn new() -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        match runtime {
            Ok(runtime) => Self { runtime, runs: 0 },
            Err(error) => panic!("no runtime: {error}"),
        }
    }

    /// What comes of it.
    pub(crate) fn run<T>(&mut self, run: impl Future<Output = T>) -> T {
        self.runs += 1;
        if self.runs > Self::RUNS {
            *self = Self::new();
        }
        self.runtime.block_on(run)
    }
}
