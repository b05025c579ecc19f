//! CloudWatch, Lambda, SES and SNS through the SDK, over HTTP.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use auto_pause::ports::{Account, Alarms, CallError, Control, Notify, Readings};
use sendslot_runtime::switch::{Switch, SwitchError};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    cbor,
    fakes::{BOUNCES, PEOPLE, TOPIC, described},
    server::{Does, Server},
};

const TOO_MANY: &str = "x-amzn-errortype: TooManyRequestsException\r\n";
const CBOR: &str = "content-type: application/cbor\r\nsmithy-protocol: rpc-v2-cbor\r\n";

/// The only request that it was asked: its first line and its body.
fn once(server: &Server) -> (String, Vec<u8>) {
    let asked = server.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    (asked[0].line.clone(), asked[0].body.clone())
}

fn answers(body: &Value) -> Does {
    Does::Answer(200, CBOR, cbor::written(body))
}

/// The operation that CloudWatch was asked for, and with what.
fn of_cloudwatch(server: &Server) -> (String, Value) {
    let (line, body) = once(server);
    let cbor = "smithy-protocol: rpc-v2-cbor".to_owned();
    assert!(server.asked()[0].headers.contains(&cbor));
    let line = line.strip_prefix("POST /service/GraniteServiceVersion20100801/operation/");
    let line = line.unwrap().strip_suffix(" HTTP/1.1").unwrap();
    (line.to_owned(), cbor::read(&body))
}

/// An alarm as CloudWatch describes it.
fn metric_alarm() -> Value {
    json!({
        "AlarmName": BOUNCES, "AlarmArn": format!("arn:aws:cloudwatch:eu-west-1:123456789012:alarm:{BOUNCES}"),
        "AlarmDescription": "acme: bounces", "ActionsEnabled": true, "OKActions": [], "AlarmActions": [PEOPLE, TOPIC],
        "InsufficientDataActions": [], "StateValue": "ALARM", "StateReason": "Threshold Crossed", "MetricName": "Reputation.BounceRate",
        "Namespace": "AWS/SES", "Statistic": "Maximum", "Dimensions": [{ "Name": "ses:configuration-set", "Value": "acme" }],
        "Period": 300, "EvaluationPeriods": 1, "DatapointsToAlarm": 1, "Threshold": 0.05,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold", "TreatMissingData": "notBreaching",
    })
}

#[tokio::test]
async fn an_alarm_is_read_by_its_name() {
    let body = json!({ "MetricAlarms": [metric_alarm()], "CompositeAlarms": [] });
    let server = Server::that([answers(&body)]).await;
    let alarm = server.aws().await.alarm(BOUNCES).await;
    let expected = described(BOUNCES, "Reputation.BounceRate", Some("acme"), 0.05);
    assert_eq!(alarm, Ok(Some(expected)));
    let asked = json!({ "AlarmNames": [BOUNCES], "AlarmTypes": ["MetricAlarm"] });
    assert_eq!(of_cloudwatch(&server), ("DescribeAlarms".to_owned(), asked));
}

#[tokio::test]
async fn what_is_not_said_of_an_alarm_is_empty() {
    let body = json!({ "MetricAlarms": [{ "AlarmName": BOUNCES, "ActionsEnabled": false, "Period": 60 }] });
    let server = Server::that([answers(&body)]).await;
    let alarm = server.aws().await.alarm(BOUNCES).await.unwrap().unwrap();
    assert_eq!(
        alarm,
        auto_pause::ports::Described {
            period: Duration::from_mins(1),
            ..Default::default()
        }
    );
    // Another one's, or none.
    for alarms in [
        json!([{ "AlarmName": "sendslot-acme-bounces-2" }]),
        json!([]),
    ] {
        let server = Server::that([answers(&json!({ "MetricAlarms": alarms }))]).await;
        assert_eq!(server.aws().await.alarm(BOUNCES).await, Ok(None));
    }
}

async fn highest(body: &Value) -> (Result<Option<f64>, CallError>, Server) {
    let server = Server::that([answers(body)]).await;
    let dimensions = [("ses:configuration-set".to_owned(), "acme".to_owned())];
    let (period, window) = (Duration::from_mins(5), Duration::from_mins(30));
    let aws = server.aws().await;
    let highest = aws
        .highest("Reputation.BounceRate", &dimensions, period, window)
        .await;
    (highest, server)
}

#[tokio::test]
async fn the_highest_value_of_late_is_taken() {
    let values = json!([{ "Maximum": 0.031 }, { "Maximum": 0.072, "Unit": "None" }, { "Maximum": 0.05 }, {}]);
    let (value, server) =
        highest(&json!({ "Label": "Reputation.BounceRate", "Datapoints": values })).await;
    assert_eq!(value, Ok(Some(0.072)));
    let (operation, mut asked) = of_cloudwatch(&server);
    assert_eq!(operation, "GetMetricStatistics");
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let [start, end] = ["StartTime", "EndTime"].map(|name| {
        let moment = asked.as_object_mut().unwrap().remove(name).unwrap();
        Duration::from_secs_f64(moment.as_f64().unwrap()).as_secs()
    });
    assert!(
        start.is_multiple_of(300) && end.is_multiple_of(300),
        "{start} {end}"
    );
    assert!(
        (now - 2_100..=now - 1_800).contains(&start),
        "{start} {now}"
    );
    assert!((now..=now + 300).contains(&end), "{end} {now}");
    let expected = json!({
        "Namespace": "AWS/SES", "MetricName": "Reputation.BounceRate", "Period": 300, "Statistics": ["Maximum"],
        "Dimensions": [{ "Name": "ses:configuration-set", "Value": "acme" }],
    });
    assert_eq!(asked, expected);
    let (value, _) = highest(&json!({ "Label": "Reputation.BounceRate", "Datapoints": [] })).await;
    assert_eq!(value, Ok(None));
}

#[tokio::test]
async fn cloudwatch_is_asked_again_that_refuses_as_too_many() {
    let error =
        json!({ "__type": "com.amazonaws.cloudwatch#Throttling", "message": "Rate exceeded" });
    let refuses = Does::Answer(400, CBOR, cbor::written(&error));
    let server = Server::that([refuses.clone(), answers(&json!({ "MetricAlarms": [] }))]).await;
    assert_eq!(server.aws().await.alarm(BOUNCES).await, Ok(None));
    assert_eq!(server.asked().len(), 2);
    let server = Server::that([refuses]).await;
    let error = server.aws().await.alarm(BOUNCES).await.unwrap_err();
    assert_eq!(error, CallError::new("Throttling", "Rate exceeded"));
    for (does, code) in [
        (Does::Answer(200, CBOR, vec![0xa1]), "unreadable"),
        (Does::Close, "no_connection"),
        (Does::fail(500, ""), "no_answer"),
    ] {
        let server = Server::that([does.clone()]).await;
        let error = server.aws().await.alarm(BOUNCES).await.unwrap_err();
        assert_eq!(error.code, code, "{does:?}");
    }
}

#[tokio::test]
async fn control_is_invoked_and_answered_for() {
    let server = Server::that([Does::json(r#"{"tenants":["acme"]}"#)]).await;
    let answer = server.aws().await.ask(b"{\"a\":1}".to_vec()).await;
    assert_eq!(answer.unwrap(), b"{\"tenants\":[\"acme\"]}");
    let (line, body) = once(&server);
    let expected = "POST /2015-03-31/functions/stack-control/invocations HTTP/1.1";
    assert_eq!(line, expected);
    assert_eq!(body, b"{\"a\":1}");
    let unhandled = "x-amz-function-error: Unhandled\r\n";
    let told = r#"{"errorType":"Sandbox.Timedout","errorMessage":"after 60 s"}"#;
    for (body, code, message) in [
        (told, "Sandbox.Timedout", "control failed: after 60 s"),
        ("null", "Unhandled", "control failed: "),
    ] {
        let server = Server::that([Does::Answer(200, unhandled, body.into())]).await;
        let error = server.aws().await.ask(b"{}".to_vec()).await.unwrap_err();
        assert_eq!(error, CallError::new(code, message));
        once(&server);
    }
    let server = Server::that([Does::fail(429, TOO_MANY), Does::json("{}")]).await;
    assert_eq!(server.aws().await.ask(b"{}".to_vec()).await.unwrap(), b"{}");
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn a_configuration_set_is_switched_off() {
    let server = Server::that([Does::json("{}")]).await;
    assert_eq!(server.aws().await.switch("acme", false).await, Ok(()));
    let (line, body) = once(&server);
    let expected = "PUT /v2/email/configuration-sets/acme/sending HTTP/1.1";
    assert_eq!(line, expected);
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body, json!({ "SendingEnabled": false }));
    let server = Server::that([Does::fail(404, "x-amzn-errortype: NotFoundException\r\n")]).await;
    let switched = server.aws().await.switch("acme", false).await;
    assert_eq!(switched, Err(SwitchError::Missing));
    once(&server);
}

/// Others take SES's one call a second, too.
#[tokio::test]
async fn ses_is_asked_again_that_refuses_as_too_many() {
    let server = Server::that([Does::fail(429, TOO_MANY), Does::json("{}")]).await;
    assert_eq!(server.aws().await.switch("acme", false).await, Ok(()));
    assert_eq!(server.asked().len(), 2);
    let server = Server::that([Does::fail(429, TOO_MANY), Does::json("{}")]).await;
    assert_eq!(server.aws().await.stop().await, Ok(()));
    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].line, "PUT /v2/email/account/sending HTTP/1.1");
    let body: Value = serde_json::from_slice(&asked[1].body).unwrap();
    assert_eq!(body, json!({ "SendingEnabled": false }));
}

#[tokio::test]
async fn a_call_that_hangs_ends_after_five_seconds() {
    let start = Instant::now();
    let server = Server::that([Does::Hang]).await;
    let aws = server.aws().await;
    let dimensions: [(String, String); 0] = [];
    let minute = Duration::from_mins(1);
    let (control, switched, stopped, alarm, highest, told) = tokio::join!(
        aws.ask(b"{}".to_vec()),
        aws.switch("acme", false),
        aws.stop(),
        aws.alarm(BOUNCES),
        aws.highest("Reputation.BounceRate", &dimensions, minute, minute),
        aws.notify(PEOPLE, "subject", "text"),
    );
    let timeout = CallError::timeout();
    assert_eq!(control.unwrap_err(), timeout);
    assert!(matches!(switched, Err(SwitchError::Failed(_))));
    assert_eq!(stopped.unwrap_err(), timeout);
    assert_eq!(alarm.unwrap_err(), timeout);
    assert_eq!(highest.unwrap_err(), timeout);
    assert_eq!(told.unwrap_err(), timeout);
    let took = start.elapsed();
    assert!((5..8).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test]
async fn people_are_told_by_their_topic() {
    let answer = "<PublishResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><PublishResult><MessageId>567910cd-659e-55d4-8ccb-\
                  5aaf14679dc0</MessageId></PublishResult></PublishResponse>";
    let xml = "content-type: text/xml\r\n";
    let server = Server::that([Does::Answer(200, xml, answer.into())]).await;
    let told = server
        .aws()
        .await
        .notify(PEOPLE, "Sendslot paused acme", "a\nb 'c' & {\"d\":1}\n")
        .await;
    assert_eq!(told, Ok(()));
    let (line, body) = once(&server);
    assert_eq!(line, "POST / HTTP/1.1");
    let body = String::from_utf8(body).unwrap();
    let mut fields: Vec<_> = body.split('&').collect();
    fields.sort_unstable();
    let expected = [
        "Action=Publish",
        "Message=a%0Ab%20%27c%27%20%26%20%7B%22d%22%3A1%7D%0A",
        "Subject=Sendslot%20paused%20acme",
        "TopicArn=arn%3Aaws%3Asns%3Aeu-west-1%3A123456789012%3Aops",
        "Version=2010-03-31",
    ];
    assert_eq!(fields, expected);
    let refused = "<ErrorResponse><Error><Type>Sender</Type><Code>NotFound</Code><Message>Topic does not exist</Message></Error>\
                   <RequestId>1</RequestId></ErrorResponse>";
    let server = Server::that([Does::Answer(404, xml, refused.into())]).await;
    let told = server.aws().await.notify(PEOPLE, "subject", "text").await;
    assert_eq!(
        told,
        Err(CallError::new("NotFound", "Topic does not exist"))
    );
    once(&server);
}
