//! How long a function's invocations take, as Lambda tells CloudWatch.

use std::time::{Duration, SystemTime};

use aws_sdk_cloudwatch::{
    primitives::DateTime,
    types::{Datapoint, Dimension, Statistic},
};
use sendslot_domain::Millis;

use crate::{
    aws::Aws,
    ports::{CallError, Durations},
};

/// Over how long the mean is taken: long enough that single slow batches don't move it, and Lambda's minutes of delay don't matter.
const WINDOW: Duration = Duration::from_mins(15);
/// The same, in seconds: one data point.
const PERIOD: i32 = 900;

impl Durations for Aws {
    /// `GetMetricStatistics`, not `GetMetricData`: both numbers come of one request, which is in CloudWatch's free tier.
    async fn mean(&self, function: &str) -> Result<Option<Millis>, CallError> {
        let now = SystemTime::now();
        let named = Dimension::builder().name("FunctionName").value(function);
        let call = self.cloudwatch.get_metric_statistics();
        let call = call.namespace("AWS/Lambda").metric_name("Duration");
        let call = call.dimensions(named.build()).period(PERIOD);
        let call = call
            .statistics(Statistic::Sum)
            .statistics(Statistic::SampleCount)
            .start_time(DateTime::from(now - WINDOW))
            .end_time(DateTime::from(now));
        Ok(mean(&call.send().await?.datapoints.unwrap_or_default()))
    }
}

/// The mean of all invocations: each weighs the same, in whatever data points they are.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an `as` of a float saturates, and no number is 0"
)]
fn mean(points: &[Datapoint]) -> Option<Millis> {
    let total = |of: fn(&Datapoint) -> Option<f64>| points.iter().filter_map(of).sum::<f64>();
    let (ms, count) = (total(|p| p.sum), total(|p| p.sample_count));
    (count > 0.0).then(|| Millis((ms / count).ceil() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(sum: f64, count: f64) -> Datapoint {
        Datapoint::builder().sum(sum).sample_count(count).build()
    }

    #[test]
    fn every_invocation_weighs_the_same() {
        assert_eq!(mean(&[]), None);
        assert_eq!(mean(&[point(0.0, 0.0)]), None);
        assert_eq!(mean(&[point(1500.5, 3.0)]), Some(Millis(501)));
        let both = [point(9_900.0, 99.0), point(10_000.0, 1.0)];
        assert_eq!(mean(&both), Some(Millis(199)));
    }
}
