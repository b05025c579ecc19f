//! What is read of messages, and why others change nothing.

use auto_pause::{
    event::{self, Alarm, Ignored, Metric, Of},
    settings::Topic,
};
use serde_json::{Value, json};

use crate::fakes::{BOUNCES, TOPIC, World, changed, sample};

fn read(event: &Value) -> Vec<Result<Alarm, Ignored>> {
    event::read(event, &Topic::of(TOPIC).unwrap())
}

fn only(event: &Value) -> Result<Alarm, Ignored> {
    let read = read(event);
    assert_eq!(read.len(), 1);
    read[0].clone()
}

#[test]
fn an_alarm_is_read_by_its_fields() {
    let bounce = Alarm {
        name: BOUNCES.into(),
        arn: Some(format!(
            "arn:aws:cloudwatch:eu-west-1:123456789012:alarm:{BOUNCES}"
        )),
        metric: Metric::BounceRate,
        of: Of::Set("acme".into()),
    };
    assert_eq!(only(&sample("alarm-bounce")), Ok(bounce.clone()));
    let complaint = only(&sample("alarm-complaint")).unwrap();
    assert_eq!(complaint.metric, Metric::ComplaintRate);
    assert_eq!(only(&sample("account")).unwrap().of, Of::Account);
    // Without an ARN, and dimensions with capitals: as emulators write it.
    let plain = changed("alarm-bounce", |message| {
        message.as_object_mut().unwrap().remove("AlarmArn");
        message["Trigger"]["Dimensions"] =
            json!([{ "Name": "ses:configuration-set", "Value": "acme" }]);
    });
    let expected = Alarm {
        arn: None,
        ..bounce
    };
    assert_eq!(only(&plain), Ok(expected));
    for none in [json!([]), Value::Null] {
        let account = changed("account", |message| message["Trigger"]["Dimensions"] = none);
        assert_eq!(only(&account).unwrap().of, Of::Account);
    }
}

#[test]
fn what_is_no_message_of_sns_changes_nothing() {
    for event in [
        json!(null),
        json!([]),
        json!("x"),
        json!({}),
        json!({ "Records": null }),
        json!({ "Records": [] }),
        json!({ "Records": {} }),
        json!({ "Records": [1] }),
        json!({ "Records": [{ "EventSource": "aws:sns" }] }),
        json!({ "Records": [{ "EventSource": "aws:sns", "Sns": { "TopicArn": TOPIC } }] }),
        json!({ "Records": [{ "EventSource": "aws:sns", "Sns": { "TopicArn": TOPIC, "Message": {} } }] }),
        json!({ "Records": [{ "EventSource": "aws:sqs", "Sns": { "TopicArn": TOPIC, "Message": "{}" } }] }),
    ] {
        assert_eq!(only(&event), Err(Ignored::NotSns), "{event}");
    }
}

type Change = fn(&mut Value);

#[test]
fn every_field_that_is_wrong_is_told_apart() {
    let cases: &[(Ignored, Change)] = &[
        (Ignored::Unreadable, |m| *m = json!([])),
        (Ignored::Unreadable, |m| *m = json!(null)),
        (Ignored::Unreadable, |m| m["AlarmName"] = json!(null)),
        (Ignored::Unreadable, |m| m["AlarmName"] = json!("")),
        (Ignored::Unreadable, |m| {
            m["AlarmName"] = "x".repeat(256).into();
        }),
        (Ignored::Unreadable, |m| m["AlarmArn"] = json!(1)),
        (Ignored::Unreadable, |m| {
            m["AWSAccountId"] = json!(123_456_789_012_u64);
        }),
        (Ignored::ForeignAccount, |m| {
            m["AWSAccountId"] = json!("123456789013");
        }),
        (Ignored::Composite, |m| m["AlarmRule"] = json!("ALARM(x)")),
        (Ignored::Ok, |m| m["NewStateValue"] = json!("OK")),
        (Ignored::InsufficientData, |m| {
            m["NewStateValue"] = json!("INSUFFICIENT_DATA");
        }),
        (Ignored::Unreadable, |m| m["NewStateValue"] = json!("alarm")),
        (Ignored::Unreadable, |m| m["NewStateValue"] = json!(null)),
        (Ignored::Unreadable, |m| m["Trigger"] = json!(null)),
        (Ignored::OtherMetric, |m| {
            m["Trigger"]["Namespace"] = json!("AWS/EC2");
        }),
        (Ignored::OtherMetric, |m| {
            m["Trigger"]["Namespace"] = json!(null);
        }),
        (Ignored::OtherMetric, |m| {
            m["Trigger"]["MetricName"] = json!("Send");
        }),
        (Ignored::OtherMetric, |m| {
            m["Trigger"]["MetricName"] = json!(null);
        }),
        (Ignored::Unreadable, |m| {
            m["Trigger"]["Dimensions"] = json!({});
        }),
        (Ignored::Unreadable, |m| {
            m["Trigger"]["Dimensions"] = json!([1]);
        }),
        (Ignored::Unreadable, |m| {
            m["Trigger"]["Dimensions"][0]["value"] = json!(1);
        }),
        (Ignored::OtherDimensions, |m| {
            m["Trigger"]["Dimensions"][0]["value"] = json!("");
        }),
        (Ignored::OtherDimensions, |m| {
            m["Trigger"]["Dimensions"][0]["value"] = json!("a/b");
        }),
        (Ignored::OtherDimensions, |m| {
            m["Trigger"]["Dimensions"][0]["value"] = "a".repeat(65).into();
        }),
        (Ignored::OtherDimensions, |m| {
            m["Trigger"]["Dimensions"][0]["name"] = json!("ses:from-domain");
        }),
        (Ignored::OtherDimensions, |m| {
            let both = m["Trigger"]["Dimensions"][0].clone();
            m["Trigger"]["Dimensions"] = json!([both, both]);
        }),
    ];
    for (number, (expected, change)) in cases.iter().enumerate() {
        let event = changed("alarm-bounce", change);
        assert_eq!(only(&event), Err(*expected), "case {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_says_why_a_message_was_ignored() {
    let world = World::default();
    let handled = world.run(&sample("ok")).await;
    let why = "the alarm is OK: whoever is paused stays so until somebody resumes it";
    assert_eq!(handled.why(), why);
    let handled = world.run(&json!({ "by": "hand" })).await;
    assert_eq!(handled.why(), "no message of SNS");
    assert_eq!(handled.counts(), [0, 0, 0, 1, 0]);
    assert_eq!(world.calls(), []);
}
