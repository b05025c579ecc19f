//! Alarms and metrics.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_cloudwatch::{
    primitives::DateTime,
    types::{AlarmType, ComparisonOperator, Dimension, MetricAlarm, StateValue, Statistic},
};

use crate::{
    aws::Aws,
    event::NAMESPACE,
    ports::{Alarms, CallError, Described, Readings},
};

/// The most values that one answer holds (CloudWatch API Reference, `GetMetricStatistics`).
const MOST_VALUES: u64 = 1_440;
/// Values of SES's metrics are kept by the minute.
const SHORTEST_PERIOD: u64 = 60;

impl Alarms for Aws {
    async fn alarm(&self, name: &str) -> Result<Option<Described>, CallError> {
        let call = self.cloudwatch.describe_alarms().alarm_names(name);
        let call = call.alarm_types(AlarmType::MetricAlarm);
        let alarms = call.send().await?.metric_alarms.unwrap_or_default();
        let mut alarms = alarms.into_iter();
        let found = alarms.find(|alarm| alarm.alarm_name.as_deref() == Some(name));
        Ok(found.map(described))
    }
}

fn described(alarm: MetricAlarm) -> Described {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let whole = |number: Option<i32>| number.and_then(|n| u32::try_from(n).ok());
    let dimensions = alarm.dimensions.unwrap_or_default();
    Described {
        state: text(alarm.state_value.as_ref().map(StateValue::as_str)),
        comparison: text(
            alarm
                .comparison_operator
                .as_ref()
                .map(ComparisonOperator::as_str),
        ),
        arn: alarm.alarm_arn.unwrap_or_default(),
        namespace: alarm.namespace.unwrap_or_default(),
        metric: alarm.metric_name.unwrap_or_default(),
        dimensions: dimensions
            .into_iter()
            .map(|dimension| {
                let Dimension { name, value, .. } = dimension;
                (name.unwrap_or_default(), value.unwrap_or_default())
            })
            .collect(),
        acts: alarm.actions_enabled.unwrap_or(true),
        actions: alarm.alarm_actions.unwrap_or_default(),
        threshold: alarm.threshold,
        period: Duration::from_secs(whole(alarm.period).unwrap_or_default().into()),
        evaluation_periods: whole(alarm.evaluation_periods).unwrap_or_default(),
    }
}

impl Readings for Aws {
    /// `GetMetricStatistics`, not `GetMetricData`: it is in CloudWatch's free tier.
    async fn highest(
        &self,
        metric: &str,
        dimensions: &[(String, String)],
        period: Duration,
        window: Duration,
    ) -> Result<Option<f64>, CallError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let asked = span(now.unwrap_or_default(), period, window);
        let dimensions = dimensions
            .iter()
            .map(|(name, value)| Dimension::builder().name(name).value(value).build());
        let call = self.cloudwatch.get_metric_statistics();
        let call = call.namespace(NAMESPACE).metric_name(metric);
        let call = call
            .set_dimensions(Some(dimensions.collect()))
            .statistics(Statistic::Maximum)
            .period(i32::try_from(asked.period).unwrap_or(i32::MAX))
            .start_time(DateTime::from_secs(asked.start))
            .end_time(DateTime::from_secs(asked.end));
        let values = call.send().await?.datapoints.unwrap_or_default();
        let values = values.iter().filter_map(|value| value.maximum);
        Ok(values.reduce(f64::max))
    }
}

/// What CloudWatch is asked for, in seconds.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    period: u64,
    /// Since the Unix epoch, as the next.
    start: i64,
    end: i64,
}

/// At least the last `window`, as far as one answer holds it. It begins where a period does. It ends in the next one: CloudWatch leaves
/// out what begins at the end, and cuts that to the minute.
fn span(now: Duration, period: Duration, window: Duration) -> Asked {
    let period = period.as_secs().max(SHORTEST_PERIOD);
    let end = (now.as_secs() / period + 1) * period;
    let start = now.as_secs().saturating_sub(window.as_secs()) / period * period;
    let start = start.max(end.saturating_sub(MOST_VALUES * period));
    Asked {
        period,
        start: i64::try_from(start).unwrap_or(i64::MAX),
        end: i64::try_from(end).unwrap_or(i64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(now: u64, period: u64, window: u64) -> (u64, i64, i64) {
        let of = Duration::from_secs;
        let Asked { period, start, end } = span(of(now), of(period), of(window));
        (period, start, end)
    }

    #[test]
    fn whole_periods_are_asked_for_and_the_one_under_way() {
        assert_eq!(asked(100_000, 300, 1_800), (300, 98_100, 100_200));
        // The period under way begins now.
        assert_eq!(asked(99_900, 300, 1_800), (300, 98_100, 100_200));
        assert_eq!(asked(100_000, 3_600, 7_200), (3_600, 90_000, 100_800));
    }

    #[test]
    fn no_more_is_asked_for_than_one_answer_holds() {
        assert_eq!(asked(1_000_000, 60, 86_400), (60, 913_620, 1_000_020));
        assert_eq!(asked(1_000_000, 10, 1_800), (60, 998_160, 1_000_020));
        assert_eq!(asked(1_000_000, 0, 0), (60, 999_960, 1_000_020));
        assert_eq!(asked(100, 60, 1_800), (60, 0, 120));
    }
}
