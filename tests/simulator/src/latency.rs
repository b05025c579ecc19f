//! How long an answer takes: log-normal, as the response times of a web API roughly are.

use std::f64::consts::TAU;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The 99th percentile of the standard normal distribution.
const Z99: f64 = 2.326_347_874_040_841;

/// The parameters of the distribution, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// The median; 0 answers at once.
    pub median_ms: f64,
    /// The 99th percentile, at least the median.
    pub p99_ms: f64,
}

/// A sequence of latencies that its seed determines: the n-th arrival always draws the n-th.
#[derive(Debug)]
pub struct Latency {
    shape: Shape,
    random: StdRng,
}

impl Latency {
    /// The sequence of this seed, from its beginning.
    #[must_use]
    pub fn new(shape: Shape, seed: u64) -> Self {
        Self {
            shape,
            random: StdRng::seed_from_u64(seed),
        }
    }

    /// Changes the distribution; the sequence goes on.
    pub fn set_shape(&mut self, shape: Shape) {
        self.shape = shape;
    }

    /// Draws the next latency.
    pub fn draw(&mut self) -> Duration {
        let normal = self.normal();
        let Shape { median_ms, p99_ms } = self.shape;
        if median_ms <= 0.0 {
            return Duration::ZERO;
        }
        let sigma = (p99_ms / median_ms).ln().max(0.0) / Z99;
        let seconds = median_ms * (sigma * normal).exp() / 1000.0;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// A standard normal value (Box and Muller), always from two draws.
    fn normal(&mut self) -> f64 {
        let radius: f64 = 1.0 - self.random.random::<f64>();
        let angle: f64 = self.random.random();
        (-2.0 * radius.ln()).sqrt() * (TAU * angle).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Shape = Shape {
        median_ms: 80.0,
        p99_ms: 250.0,
    };

    fn draws(shape: Shape, seed: u64, count: usize) -> Vec<Duration> {
        let mut latency = Latency::new(shape, seed);
        (0..count).map(|_| latency.draw()).collect()
    }

    #[test]
    fn median_and_p99_are_as_asked() {
        let mut sample = draws(DEFAULT, 1, 20_000);
        sample.sort();
        let median = sample[10_000].as_secs_f64();
        let p99 = sample[19_800].as_secs_f64();
        assert!((0.078..0.082).contains(&median), "median {median}");
        assert!((0.235..0.265).contains(&p99), "p99 {p99}");
    }

    #[test]
    fn a_seed_determines_the_sequence() {
        assert_eq!(draws(DEFAULT, 7, 100), draws(DEFAULT, 7, 100));
        assert_ne!(draws(DEFAULT, 7, 100), draws(DEFAULT, 8, 100));
    }

    #[test]
    fn no_spread_is_constant_and_no_median_is_at_once() {
        for (ms, expected) in [(20.0, Duration::from_millis(20)), (0.0, Duration::ZERO)] {
            let shape = Shape {
                median_ms: ms,
                p99_ms: ms,
            };
            assert_eq!(draws(shape, 1, 50), vec![expected; 50]);
        }
    }

    #[test]
    fn a_new_shape_goes_on_with_the_sequence() {
        let mut latency = Latency::new(
            Shape {
                median_ms: 0.0,
                ..DEFAULT
            },
            3,
        );
        latency.draw();
        latency.set_shape(DEFAULT);
        assert_eq!(latency.draw(), draws(DEFAULT, 3, 2)[1]);
    }
}
