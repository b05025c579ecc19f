//! SES, SSM, Lambda and CloudWatch through the SDK, over HTTP.

use quota_refresh::ports::{
    Account, CallError, Control, Durations, Kind, Mapping, Mappings, Page, Parameters, Sets,
    Suppression, SuppressionPage,
};
use sendslot_domain::Millis;
use sendslot_runtime::control;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    fakes::PRIORITY,
    server::{Does, Server},
};

const TOO_MANY: &str = "x-amzn-errortype: TooManyRequestsException\r\n";

/// The only request that it was asked.
fn once(server: &Server) -> (String, String) {
    let asked = server.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    (asked[0].line.clone(), asked[0].body.clone())
}

async fn account(does: Does) -> (Result<control::Account, CallError>, Server) {
    let server = Server::that([does]).await;
    (server.aws().await.account().await, server)
}

#[tokio::test]
async fn an_account_is_read_as_it_is_said() {
    let (account, server) = account(Does::json(
        &json!({
            "DedicatedIpAutoWarmupEnabled": false, "EnforcementStatus": "PROBATION",
            "ProductionAccessEnabled": true, "SendingEnabled": false,
            "SendQuota": { "Max24HourSend": -1.0, "MaxSendRate": 14.5, "SentLast24Hours": 7 },
        })
        .to_string(),
    ))
    .await;
    let expected = control::Account {
        max_send_rate: Some(14.5),
        max_24_hour_send: Some(-1.0),
        sent_last_24_hours: Some(7.0),
        sending_enabled: Some(false),
        enforcement: Some("PROBATION".into()),
        production: Some(true),
    };
    assert_eq!(account, Ok(expected));
    assert_eq!(once(&server).0, "GET /v2/email/account HTTP/1.1");
}

/// The SDK would make `false` and 0 of these: nobody may send, nothing at all.
#[tokio::test]
async fn what_is_not_said_is_not_known() {
    for body in [
        json!({}),
        json!({ "SendQuota": null, "SendingEnabled": null }),
        json!({ "SendQuota": {} }),
    ] {
        let (account, _) = account(Does::json(&body.to_string())).await;
        assert_eq!(account, Ok(control::Account::default()), "{body}");
    }
    let quota = json!({ "SendQuota": { "MaxSendRate": 14.0 }, "SendingEnabled": true });
    let (account, _) = account(Does::json(&quota.to_string())).await;
    let expected = control::Account {
        max_send_rate: Some(14.0),
        sending_enabled: Some(true),
        ..control::Account::default()
    };
    assert_eq!(account, Ok(expected));
}

#[tokio::test]
async fn ses_is_asked_once_whatever_comes_of_it() {
    for (does, code, kind) in [
        (
            Does::fail(429, TOO_MANY),
            "TooManyRequestsException",
            Kind::Busy,
        ),
        (
            Does::fail(400, "x-amzn-errortype: ThrottlingException\r\n"),
            "ThrottlingException",
            Kind::Busy,
        ),
        (
            Does::fail(403, "x-amzn-errortype: AccessDeniedException\r\n"),
            "AccessDeniedException",
            Kind::Other,
        ),
        (Does::fail(500, ""), "no_answer", Kind::Other),
        (Does::json("<html>"), "unreadable", Kind::Other),
        (Does::Close, "no_connection", Kind::Other),
    ] {
        let (answer, server) = account(does.clone()).await;
        let error = answer.unwrap_err();
        assert_eq!((error.code.as_str(), error.kind), (code, kind), "{does:?}");
        once(&server);
        let server = Server::that([does.clone()]).await;
        let error = server.aws().await.sends("acme-set").await.unwrap_err();
        assert_eq!((error.code.as_str(), error.kind), (code, kind), "{does:?}");
        once(&server);
    }
}

#[tokio::test]
async fn ses_that_says_nothing_is_given_up_after_five_seconds() {
    let start = Instant::now();
    let (answer, server) = account(Does::Hang).await;
    assert_eq!(answer.unwrap_err().code, "timeout");
    let took = start.elapsed();
    assert!((5..8).contains(&took.as_secs()), "{took:?}");
    once(&server);
}

#[tokio::test]
async fn a_configuration_set_says_whether_it_may_send() {
    let said = |sending: Value| json!({ "SendingOptions": { "SendingEnabled": sending } });
    for (body, expected) in [
        (said(true.into()), Some(true)),
        (said(false.into()), Some(false)),
        (said(Value::Null), None),
        (json!({ "SendingOptions": {} }), None),
        (json!({ "ConfigurationSetName": "acme-set" }), None),
    ] {
        let server = Server::that([Does::json(&body.to_string())]).await;
        let answer = server.aws().await.sends("acme-set").await;
        assert_eq!(answer, Ok(expected), "{body}");
        let line = "GET /v2/email/configuration-sets/acme-set HTTP/1.1";
        assert_eq!(once(&server).0, line);
    }
    let server = Server::that([Does::fail(404, "x-amzn-errortype: NotFoundException\r\n")]).await;
    let error = server.aws().await.sends("acme-set").await.unwrap_err();
    assert_eq!(error.kind, Kind::Missing);
}

#[tokio::test]
async fn parameters_come_in_pages() {
    let body = json!({
        "Parameters": [
            { "Name": "/stack/tenants/acme", "Type": "String", "Value": "{\"version\":1}", "Version": 2 },
            { "Name": "/stack/tenants/beta", "Type": "String", "Version": 1 },
        ],
        "NextToken": "2",
    });
    let server = Server::that([
        Does::json(&body.to_string()),
        Does::json(r#"{"Parameters":[]}"#),
    ])
    .await;
    let aws = server.aws().await;
    let expected = Page {
        parameters: vec![
            ("/stack/tenants/acme".into(), r#"{"version":1}"#.into()),
            ("/stack/tenants/beta".into(), String::new()),
        ],
        next: Some("2".into()),
    };
    assert_eq!(aws.page("/stack/tenants", None).await, Ok(expected));
    let last = aws.page("/stack/tenants", Some("2".into())).await;
    assert_eq!(last, Ok(Page::default()));
    let asked = server.asked();
    let target = "x-amz-target: amazonssm.getparametersbypath";
    assert!(asked[0].headers.iter().any(|header| header == target));
    let bodies: Vec<Value> = asked
        .iter()
        .map(|asked| serde_json::from_str(&asked.body).unwrap())
        .collect();
    let first = json!({ "Path": "/stack/tenants", "Recursive": false, "WithDecryption": false });
    let mut second = first.clone();
    second["NextToken"] = "2".into();
    assert_eq!(bodies, [first, second]);
}

#[tokio::test]
async fn parameters_that_are_refused_as_too_many_are_asked_for_again() {
    let refused = Does::Answer(
        400,
        "content-type: application/x-amz-json-1.1\r\n",
        r#"{"__type":"ThrottlingException"}"#.into(),
    );
    let server = Server::that([refused, Does::json(r#"{"Parameters":[]}"#)]).await;
    let page = server.aws().await.page("/stack/tenants", None).await;
    assert_eq!(page, Ok(Page::default()));
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn control_is_invoked_once_and_answered_for() {
    let server = Server::that([Does::json(r#"{"budget":{}}"#)]).await;
    let answer = server.aws().await.ask(b"{\"a\":1}".to_vec()).await;
    assert_eq!(answer.unwrap(), b"{\"budget\":{}}");
    let (line, body) = once(&server);
    assert_eq!(
        line,
        "POST /2015-03-31/functions/stack-control/invocations HTTP/1.1"
    );
    assert_eq!(body, "{\"a\":1}");
    let unhandled = "x-amz-function-error: Unhandled\r\n";
    let told = r#"{"errorType":"Sandbox.Timedout","errorMessage":"after 10 s"}"#;
    for (does, code, message, kind) in [
        (
            Does::Answer(200, unhandled, told.into()),
            "Sandbox.Timedout",
            "control failed: after 10 s",
            Kind::Other,
        ),
        (
            Does::Answer(200, unhandled, "null".into()),
            "Unhandled",
            "control failed: ",
            Kind::Other,
        ),
        (
            Does::fail(429, TOO_MANY),
            "TooManyRequestsException",
            "status 429",
            Kind::Busy,
        ),
        (
            Does::fail(404, "x-amzn-errortype: ResourceNotFoundException\r\n"),
            "ResourceNotFoundException",
            "status 404",
            Kind::Missing,
        ),
        (
            Does::fail(500, "x-amzn-errortype: ServiceException\r\n"),
            "ServiceException",
            "status 500",
            Kind::Other,
        ),
        (Does::Close, "no_connection", "", Kind::Other),
    ] {
        let server = Server::that([does.clone()]).await;
        let error = server.aws().await.ask(b"{}".to_vec()).await.unwrap_err();
        let expected = CallError {
            code: code.into(),
            message: message.into(),
            kind,
        };
        assert_eq!(error, expected, "{does:?}");
        once(&server);
    }
}

#[tokio::test]
async fn a_mapping_is_read_and_only_its_concurrency_set() {
    for (body, concurrency, in_motion) in [
        (
            json!({ "State": "Enabled", "ScalingConfig": { "MaximumConcurrency": 20 } }),
            Some(20),
            false,
        ),
        (json!({ "State": "Updating", "BatchSize": 10 }), None, true),
        (json!({ "ScalingConfig": {} }), None, false),
    ] {
        let server = Server::that([Does::json(&body.to_string())]).await;
        let mapping = server.aws().await.mapping(PRIORITY).await;
        let expected = Mapping {
            concurrency,
            in_motion,
        };
        assert_eq!(mapping, Ok(expected), "{body}");
        let line = format!("GET /2015-03-31/event-source-mappings/{PRIORITY} HTTP/1.1");
        assert_eq!(once(&server).0, line);
    }
    let server = Server::that([Does::json("{}")]).await;
    assert_eq!(server.aws().await.scale(PRIORITY, 22).await, Ok(()));
    let (line, body) = once(&server);
    let expected = format!("PUT /2015-03-31/event-source-mappings/{PRIORITY} HTTP/1.1");
    assert_eq!(line, expected);
    let body: Value = serde_json::from_str(&body).unwrap();
    let expected = json!({ "ScalingConfig": { "MaximumConcurrency": 22 } });
    assert_eq!(body, expected);
}

/// Data points as `CloudWatch` writes them, in CBOR: their sum and count.
fn points(points: &[(f64, f64)]) -> Does {
    let text = |text: &str| {
        let mut cbor = vec![0x60 | u8::try_from(text.len()).unwrap()];
        cbor.extend(text.as_bytes());
        cbor
    };
    let number = |number: f64| [&[0xfb][..], &number.to_be_bytes()].concat();
    let mut body = [vec![0xa1], text("Datapoints")].concat();
    body.push(0x80 | u8::try_from(points.len()).unwrap());
    for (sum, count) in points {
        body.push(0xa2);
        body.extend([text("Sum"), number(*sum)].concat());
        body.extend([text("SampleCount"), number(*count)].concat());
    }
    let headers = "content-type: application/cbor\r\nsmithy-protocol: rpc-v2-cbor\r\n";
    Does::Answer(200, headers, body)
}

#[tokio::test]
async fn a_mean_is_taken_of_the_last_quarter_of_an_hour() {
    let server = Server::that([points(&[(3000.0, 2.0), (1000.0, 6.0)])]).await;
    let mean = server.aws().await.mean("stack-send").await;
    assert_eq!(mean, Ok(Some(Millis(500))));
    let (line, body) = once(&server);
    assert!(
        line.ends_with("/operation/GetMetricStatistics HTTP/1.1"),
        "{line}"
    );
    for part in [
        "AWS/Lambda",
        "Duration",
        "FunctionName",
        "stack-send",
        "Sum",
        "SampleCount",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
    let server = Server::that([points(&[])]).await;
    assert_eq!(server.aws().await.mean("stack-send").await, Ok(None));
}

#[tokio::test]
async fn a_page_of_the_suppression_list_is_asked_for_and_read() {
    let body = json!({
        "NextToken": "p2",
        "SuppressedDestinationSummaries": [
            { "EmailAddress": "ann@example.com", "Reason": "BOUNCE", "LastUpdateTime": 1_790_000_000.5 },
            { "EmailAddress": "bob@example.com", "Reason": "COMPLAINT", "LastUpdateTime": 1_790_000_001 },
            { "EmailAddress": "eve@example.com", "Reason": "OTHER", "LastUpdateTime": 1_790_000_002 },
        ],
    });
    let server = Server::that([
        Does::json(&body.to_string()),
        Does::json(r#"{"SuppressedDestinationSummaries":[],"NextToken":""}"#),
        Does::json("{}"),
    ])
    .await;
    let aws = server.aws().await;
    let listed = [
        ("ann@example.com", "BOUNCE"),
        ("bob@example.com", "COMPLAINT"),
        ("eve@example.com", "OTHER"),
    ];
    let page = aws
        .suppressed(Some(1_790_000_000_999), Some("p 1".into()))
        .await
        .unwrap();
    let own = listed.map(|(address, reason)| (address.to_owned(), reason.to_owned()));
    assert_eq!(
        (page.addresses.as_slice(), page.next.as_deref()),
        (&own[..], Some("p2"))
    );
    assert!(!format!("{page:?}").contains('@'));
    for _ in 0..2 {
        assert_eq!(
            aws.suppressed(None, None).await,
            Ok(SuppressionPage::default())
        );
    }
    let lines: Vec<_> = server
        .asked()
        .iter()
        .map(|asked| asked.line.clone())
        .collect();
    let path = "GET /v2/email/suppression/addresses?";
    let query = |line: &str| {
        let query = line
            .strip_prefix(path)
            .unwrap()
            .strip_suffix(" HTTP/1.1")
            .unwrap();
        let mut parts: Vec<_> = query.split('&').map(str::to_owned).collect();
        parts.sort();
        parts
    };
    assert_eq!(
        query(&lines[0]),
        [
            "NextToken=p%201",
            "PageSize=1000",
            "StartDate=2026-09-21T14%3A13%3A20Z"
        ]
    );
    assert_eq!(query(&lines[1]), ["PageSize=1000"]);
}

#[tokio::test]
async fn a_suppression_list_that_is_not_told_says_why() {
    for (does, code, kind) in [
        (
            Does::fail(400, "x-amzn-errortype: InvalidNextTokenException\r\n"),
            "InvalidNextTokenException",
            Kind::Other,
        ),
        (
            Does::fail(400, "x-amzn-errortype: BadRequestException\r\n"),
            "BadRequestException",
            Kind::Other,
        ),
        (
            Does::fail(429, TOO_MANY),
            "TooManyRequestsException",
            Kind::Busy,
        ),
        (Does::json("<html>"), "unreadable", Kind::Other),
        (
            Does::json(
                r#"{"SuppressedDestinationSummaries":[{"EmailAddress":"ann@example.com","Reason":7}]}"#,
            ),
            "unreadable",
            Kind::Other,
        ),
    ] {
        let server = Server::that([does.clone()]).await;
        let error = server.aws().await.suppressed(None, None).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.kind), (code, kind), "{does:?}");
        assert!(!error.to_string().contains("example.com"), "{error}");
        once(&server);
    }
}
