//! A message is believed only as far as CloudWatch says the same.

use std::time::Duration;

use auto_pause::ports::Described;

use crate::fakes::{BOUNCES, Port, World, call_error, changed, sample, together};

const ONLY_ASKED: [&[Port]; 2] = [&[Port::Alarm], &[Port::Alarm, Port::Reading]];

/// Nobody is paused, switched off or told; the alarm was asked for, and its metric, if that came into question.
async fn unconfirmed(world: &World, why: &str, reads: bool) {
    let handled = world.run(&sample("alarm-bounce")).await;
    assert_eq!(handled.outcomes(), ["not_confirmed"], "{why}");
    assert_eq!(handled.why(), why);
    assert_eq!(handled.counts(), [0, 0, 1, 0, 0], "{why}");
    assert_eq!(world.calls(), ONLY_ASKED[usize::from(reads)], "{why}");
}

type Change = fn(&mut Described);

#[tokio::test(start_paused = true)]
async fn an_alarm_that_is_not_as_told_pauses_nobody() {
    let to_us =
        "the alarm's actions are off, or don't name SENDSLOT_ALARM_TOPIC_ARN: it wouldn't tell us";
    let cases: [(&str, Change); 17] = [
        ("the alarm of this name has another ARN", |alarm| {
            alarm.arn.push('x');
        }),
        ("the alarm of this name has another ARN", |alarm| {
            alarm.arn.clear();
        }),
        ("the alarm is in the state \"OK\"", |alarm| {
            alarm.state = "OK".into();
        }),
        ("the alarm is in the state \"INSUFFICIENT_DATA\"", |alarm| {
            alarm.state = "INSUFFICIENT_DATA".into();
        }),
        ("the alarm is in the state \"\"", |alarm| {
            alarm.state.clear();
        }),
        ("the alarm watches something else", |alarm| {
            alarm.namespace = "Sendslot".into();
        }),
        ("the alarm watches something else", |alarm| {
            alarm.metric = "Reputation.ComplaintRate".into();
        }),
        ("the alarm watches something else", |alarm| {
            alarm.metric.clear();
        }),
        ("the alarm watches something else", |alarm| {
            alarm.dimensions.clear();
        }),
        ("the alarm watches something else", |alarm| {
            alarm.dimensions[0].1 = "beta".into();
        }),
        ("the alarm watches something else", |alarm| {
            alarm.dimensions.push(("x".into(), "y".into()));
        }),
        (to_us, |alarm| alarm.acts = false),
        (to_us, |alarm| alarm.actions.clear()),
        (to_us, |alarm| {
            alarm.actions.pop();
        }),
        (
            "the alarm doesn't fire for too much: its comparison is \"LessThanThreshold\"",
            |alarm| {
                alarm.comparison = "LessThanThreshold".into();
            },
        ),
        (
            "the alarm doesn't fire for too much: its comparison is \"GreaterThanUpperThreshold\"",
            |alarm| {
                alarm.comparison = "GreaterThanUpperThreshold".into();
            },
        ),
        (
            "the alarm doesn't fire for too much: its comparison is \"GreaterThanOrEqualToThreshold\"",
            |alarm| alarm.threshold = None,
        ),
    ];
    for (why, change) in cases {
        let world = World::with(|state| change(state.alarms.get_mut(BOUNCES).unwrap()));
        unconfirmed(&world, why, false).await;
    }
    let world = World::with(|state| state.alarms.clear());
    unconfirmed(&world, "CloudWatch knows no such metric alarm", false).await;
}

/// An alarm on the account must not be made of one on a tenant, nor the other way round.
#[tokio::test(start_paused = true)]
async fn whose_it_is_can_not_be_forged() {
    let world = World::default();
    let forged = changed("alarm-bounce", |message| {
        message["Trigger"]["Dimensions"] = serde_json::json!([]);
    });
    assert_eq!(world.run(&forged).await.outcomes(), ["not_confirmed"]);
    let forged = changed("account", |message| {
        message["Trigger"]["Dimensions"] =
            serde_json::json!([{ "name": "ses:configuration-set", "value": "acme" }]);
    });
    assert_eq!(world.run(&forged).await.outcomes(), ["not_confirmed"]);
    assert_eq!(world.calls(), [Port::Alarm; 2]);
}

#[tokio::test(start_paused = true)]
async fn the_metric_must_be_over_by_the_alarms_own_comparison() {
    let (over, or_equal) = ("GreaterThanThreshold", "GreaterThanOrEqualToThreshold");
    for (comparison, highest, why) in [
        (or_equal, Some(0.05), None),
        (over, Some(0.0501), None),
        (
            over,
            Some(0.05),
            Some("its metric was 0.05 at most of late, and its threshold is 0.05"),
        ),
        (
            or_equal,
            Some(0.0499),
            Some("its metric was 0.0499 at most of late, and its threshold is 0.05"),
        ),
        (
            or_equal,
            Some(f64::NAN),
            Some("its metric was NaN at most of late, and its threshold is 0.05"),
        ),
        (or_equal, None, Some("its metric had no value of late")),
    ] {
        let world = World::with(|state| {
            state.alarms.get_mut(BOUNCES).unwrap().comparison = comparison.into();
            state.highest.insert("Reputation.BounceRate", Ok(highest));
        });
        match why {
            Some(why) => unconfirmed(&world, why, true).await,
            None => assert_eq!(
                world.run(&sample("alarm-bounce")).await.outcomes(),
                ["paused"]
            ),
        }
    }
}

/// At least half an hour, and all that the alarm looks at.
#[tokio::test(start_paused = true)]
async fn the_metric_is_asked_for_over_what_the_alarm_looks_at() {
    for (period, periods, window) in [
        (300, 1, 1_800),
        (60, 3, 1_800),
        (3_600, 2, 10_800),
        (900, 2, 2_700),
        (0, 0, 1_800),
    ] {
        let world = World::with(|state| {
            let alarm = state.alarms.get_mut(BOUNCES).unwrap();
            alarm.period = Duration::from_secs(period);
            alarm.evaluation_periods = periods;
        });
        world.run(&sample("alarm-bounce")).await;
        let dimension = ("ses:configuration-set".to_owned(), "acme".to_owned());
        let expected = (
            "Reputation.BounceRate".to_owned(),
            vec![dimension],
            Duration::from_secs(period),
            Duration::from_secs(window),
        );
        assert_eq!(world.state().read, [expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cloudwatch_does_not_answer_is_asked_again_later_and_its_neighbours_are_done_now() {
    let world = World::with(|state| {
        let fails = Err(call_error("Throttling"));
        state.highest.insert("Reputation.BounceRate", fails);
    });
    let handled = world
        .run(&together(&["alarm-bounce", "ok", "alarm-complaint"]))
        .await;
    assert_eq!(handled.failures(), ["CloudWatch: Throttling: why"]);
    let error = handled.answer.as_ref().unwrap_err().to_string();
    assert_eq!(
        error,
        "1 of 3 messages are to be dealt with again: CloudWatch: Throttling: why"
    );
    assert_eq!(handled.counts(), [1, 0, 0, 1, 0]);
    assert_eq!(world.state().switched, [("acme".to_owned(), false)]);
    let world = World::with(|state| state.alarm_fails = Some(call_error("timeout")));
    let handled = world.run(&sample("alarm-bounce")).await;
    assert_eq!(handled.failures(), ["CloudWatch: timeout: why"]);
    assert_eq!(handled.counts(), [0; 5]);
    assert_eq!(world.calls(), [Port::Alarm]);
}
