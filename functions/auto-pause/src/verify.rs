//! Whether an alarm that is said to have fired has. The message is only where to look: everything is taken from CloudWatch.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, timeout_at};

use crate::{
    aws::CALL,
    event::{Alarm, NAMESPACE},
    ports::{Alarms, CallError, Described, Readings},
    settings::Topic,
};

/// How far back the metric is looked at, at least.
const LEAST_WINDOW: Duration = Duration::from_mins(30);

/// An alarm that has fired, and ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Confirmed {
    /// The greatest value of late, a ratio.
    pub(crate) highest: f64,
    /// The alarm's threshold, a ratio.
    pub(crate) threshold: f64,
}

/// Why nobody is paused for it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum NotConfirmed {
    #[error("CloudWatch knows no such metric alarm")]
    NoAlarm,
    #[error("the alarm of this name has another ARN")]
    OtherArn,
    #[error("the alarm is in the state {0:?}")]
    State(String),
    #[error("the alarm watches something else")]
    OtherMetric,
    #[error(
        "the alarm's actions are off, or don't name SENDSLOT_ALARM_TOPIC_ARN: it wouldn't tell us"
    )]
    NotOurs,
    #[error("the alarm doesn't fire for too much: its comparison is {0:?}")]
    Comparison(String),
    #[error("its metric had no value of late")]
    NoValue,
    #[error("its metric was {highest} at most of late, and its threshold is {threshold}")]
    NotOver { highest: f64, threshold: f64 },
}

/// Asks CloudWatch whether it is so.
pub(crate) async fn confirm(
    outside: &(impl Alarms + Readings),
    alarm: &Alarm,
    ours: &Topic,
    end: Instant,
) -> Result<Result<Confirmed, NotConfirmed>, CallError> {
    let Some(found) = within(end, outside.alarm(&alarm.name)).await? else {
        return Ok(Err(NotConfirmed::NoAlarm));
    };
    if let Err(reason) = is_as_told(&found, alarm, ours) {
        return Ok(Err(reason));
    }
    let (over, threshold) = match threshold(&found) {
        Ok(known) => known,
        Err(reason) => return Ok(Err(reason)),
    };
    let metric = alarm.metric.as_str();
    let period = found.period;
    let reading = outside.highest(metric, &found.dimensions, period, window(&found));
    Ok(match within(end, reading).await? {
        None => Err(NotConfirmed::NoValue),
        Some(highest) if over(&highest, &threshold) => Ok(Confirmed { highest, threshold }),
        Some(highest) => Err(NotConfirmed::NotOver { highest, threshold }),
    })
}

fn is_as_told(found: &Described, alarm: &Alarm, ours: &Topic) -> Result<(), NotConfirmed> {
    if alarm.arn.as_ref().is_some_and(|arn| *arn != found.arn) {
        return Err(NotConfirmed::OtherArn);
    }
    if found.state != "ALARM" {
        return Err(NotConfirmed::State(found.state.clone()));
    }
    let named = found.namespace == NAMESPACE && found.metric == alarm.metric.as_str();
    // One dimension at most: no order to mind.
    if !named || found.dimensions != alarm.of.dimensions() {
        return Err(NotConfirmed::OtherMetric);
    }
    if !found.acts || !found.actions.iter().any(|action| action == ours.arn()) {
        return Err(NotConfirmed::NotOurs);
    }
    Ok(())
}

type Over = fn(&f64, &f64) -> bool;

/// The threshold, and when a value is over it. One that fires for too little would pause those who do well.
fn threshold(found: &Described) -> Result<(Over, f64), NotConfirmed> {
    let over: Option<Over> = match found.comparison.as_str() {
        "GreaterThanThreshold" => Some(f64::gt),
        "GreaterThanOrEqualToThreshold" => Some(f64::ge),
        _ => None,
    };
    over.zip(found.threshold)
        .ok_or_else(|| NotConfirmed::Comparison(found.comparison.clone()))
}

/// Over how long the alarm itself looks, and a period more, as it may have looked before this one began.
fn window(found: &Described) -> Duration {
    let periods = found.evaluation_periods.saturating_add(1);
    found.period.saturating_mul(periods).max(LEAST_WINDOW)
}

/// What a call comes to in the time that it may take, and by the end.
pub(crate) async fn within<T>(
    end: Instant,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let until = (Instant::now() + CALL).min(end);
    let answer = timeout_at(until, call).await;
    answer.unwrap_or_else(|_| Err(CallError::timeout()))
}
