//! SES through the SDK, over HTTP.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use aws_sdk_sesv2::config::{
    BehaviorVersion, Builder, Credentials, Region, timeout::TimeoutConfig,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use send::{
    ports::{Outgoing, Provider, Reply},
    ses::Ses,
};
use sendslot_domain::{Lane, Millis, Moment, outcome::Outcome};
use sendslot_mail::Envelope;
use sendslot_runtime::{TenantSettings, tenant::ListUnsubscribe};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::fakes::{NOW, THROTTLED, envelope};

/// Long enough for a loaded machine, far shorter than a hanging server.
const WITHIN: Duration = Duration::from_millis(1_500);
const DOWN: Outcome = Outcome::Unavailable { retry_after: None };

/// What the server does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Does {
    /// Answers with a status, an error type (empty: none), further header lines and a body.
    Answer(u16, &'static str, &'static str, String),
    /// Takes a message after so long.
    AcceptAfter(Duration),
    /// Says nothing, ever.
    Hang,
    /// Closes the connection without an answer.
    Close,
}

/// An HTTP server that does one thing, and keeps the requests it got: first line and body.
pub(crate) struct Server {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Server {
    async fn start(does: impl Fn(usize) -> Does + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<_>>>::default();
        let (does, seen) = (Arc::new(does), requests.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, does.clone(), seen.clone()));
            }
        });
        Self { url, requests }
    }

    pub(crate) async fn that(does: Does) -> Self {
        Self::start(move |_| does.clone()).await
    }

    pub(crate) async fn accepting() -> Self {
        Self::that(accepts()).await
    }

    pub(crate) fn requests(&self) -> Vec<(String, Value)> {
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

async fn serve(
    stream: TcpStream,
    does: Arc<impl Fn(usize) -> Does>,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            stream
                .read_line(&mut line)
                .await
                .ok()
                .filter(|read| *read > 0)?;
            match line.trim() {
                "" => break,
                line => head.push(line.to_ascii_lowercase()),
            }
        }
        let length = head
            .iter()
            .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).await.ok()?;
        let number = {
            let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
            requests.push((
                head[0].clone(),
                serde_json::from_slice(&body).unwrap_or_default(),
            ));
            requests.len()
        };
        let mut does = does(number);
        if let Does::AcceptAfter(long) = does {
            tokio::time::sleep(long).await;
            does = accepts();
        }
        match does {
            Does::AcceptAfter(_) => {}
            Does::Answer(status, code, headers, body) => {
                let code = if code.is_empty() {
                    String::new()
                } else {
                    format!("x-amzn-errortype: {code}\r\n")
                };
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status} Any\r\n{code}{headers}content-length: {length}\r\n\r\n{body}"
                );
                stream.write_all(answer.as_bytes()).await.ok()?;
            }
            Does::Hang => std::future::pending().await,
            Does::Close => return None,
        }
    }
}

fn accepts() -> Does {
    Does::Answer(200, "", "", json!({ "MessageId": "ses-1" }).to_string())
}

fn fails(status: u16, code: &'static str, text: &str) -> Does {
    let body = if text.is_empty() {
        String::new()
    } else {
        json!({ "message": text }).to_string()
    };
    Does::Answer(status, code, "", body)
}

pub(crate) fn ses(url: &str) -> Ses {
    Ses::new(config(url), WITHIN)
}

fn config(url: &str) -> Builder {
    Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("id", "key", None, None, "test"))
        .endpoint_url(url)
        .http_client(aws_smithy_http_client::Builder::new().build_http())
}

async fn send(ses: &Ses, envelope: &Value) -> Reply {
    let tenant = TenantSettings {
        configuration_set: Some("acme-set".to_owned()),
        ..TenantSettings::default()
    };
    send_as(ses, &tenant, envelope).await
}

async fn send_as(ses: &Ses, tenant: &TenantSettings, envelope: &Value) -> Reply {
    let envelope = Envelope::from_json(&envelope.to_string()).unwrap();
    let outgoing = Outgoing {
        envelope: &envelope,
        lane: Lane::Bulk,
        grant: NOW + Millis(7),
        tenant,
    };
    ses.send(&outgoing).await
}

fn with_content(content: Value) -> Value {
    let mut envelope = envelope("order-1");
    envelope["mail"]["content"] = content;
    envelope
}

/// Whether each answer becomes its outcome, said so, after one request.
async fn come_to(cases: impl IntoIterator<Item = (Does, Outcome, &'static str)>) {
    for (does, outcome, said) in cases {
        let server = Server::that(does.clone()).await;
        let reply = send(&ses(&server.url), &envelope("order-1")).await;
        assert_eq!(
            reply,
            Reply {
                outcome,
                id: None,
                said: Some(said.into())
            },
            "{does:?}"
        );
        assert_eq!(server.requests().len(), 1, "{does:?}");
    }
}

#[tokio::test]
async fn what_ses_refuses_becomes_an_outcome_after_one_request() {
    come_to([
        (
            fails(
                429,
                "TooManyRequestsException",
                "Maximum sending rate exceeded.",
            ),
            THROTTLED,
            "429 TooManyRequestsException",
        ),
        (
            fails(400, "ThrottlingException", "Rate exceeded"),
            THROTTLED,
            "400 ThrottlingException",
        ),
        (
            fails(400, "ThrottlingException", "Daily Message Quota Exceeded"),
            Outcome::DailyQuota,
            "400 ThrottlingException",
        ),
        (
            fails(400, "LimitExceededException", "Too many"),
            THROTTLED,
            "400 LimitExceededException",
        ),
        (
            fails(400, "SendingPausedException", "Paused"),
            Outcome::Paused,
            "400 SendingPausedException",
        ),
        (
            fails(
                400,
                "SendingPausedException",
                "Sending is disabled for the configuration set acme-set",
            ),
            Outcome::SetPaused,
            "400 SendingPausedException",
        ),
        (
            fails(
                400,
                "SendingPausedException",
                "Sending is disabled for this account",
            ),
            Outcome::AccountPaused,
            "400 SendingPausedException",
        ),
        (
            fails(400, "AccountSuspendedException", "No"),
            Outcome::Suspended,
            "400 AccountSuspendedException",
        ),
        (
            fails(400, "MessageRejected", "A virus for ann@example.org"),
            Outcome::Rejected,
            "400 MessageRejected",
        ),
        (
            fails(
                400,
                "MessageRejected",
                "Email address is not verified: ann@example.org",
            ),
            Outcome::NotVerified,
            "400 MessageRejected",
        ),
        (
            fails(400, "MailFromDomainNotVerifiedException", "No"),
            Outcome::NotVerified,
            "400 MailFromDomainNotVerifiedException",
        ),
        (
            fails(400, "BadRequestException", "No"),
            Outcome::BadRequest,
            "400 BadRequestException",
        ),
        (
            fails(404, "NotFoundException", "No template"),
            Outcome::NotFound,
            "404 NotFoundException",
        ),
        (
            fails(403, "AccessDeniedException", "No"),
            Outcome::Denied,
            "403 AccessDeniedException",
        ),
    ])
    .await;
}

#[tokio::test]
async fn what_a_server_in_trouble_answers_becomes_an_outcome_after_one_request() {
    come_to([
        (fails(500, "", ""), Outcome::Uncertain, "500"),
        (
            fails(500, "InternalServiceErrorException", "No"),
            Outcome::Uncertain,
            "500 InternalServiceErrorException",
        ),
        (
            fails(503, "ServiceUnavailable", ""),
            DOWN,
            "503 ServiceUnavailable",
        ),
        (fails(502, "", "<html>"), Outcome::Uncertain, "502"),
        (fails(504, "", ""), Outcome::Uncertain, "504"),
        (
            fails(400, "NeverHeardOfIt", "No"),
            Outcome::Unknown,
            "400 NeverHeardOfIt",
        ),
        (
            Does::Answer(200, "", "", "{\"Mess".into()),
            Outcome::Uncertain,
            "200",
        ),
        (
            Does::Answer(429, "", "retry-after: 7\r\n", String::new()),
            Outcome::RateThrottled {
                retry_after: Some(Millis::from_secs(7)),
            },
            "429",
        ),
        (
            Does::Answer(429, "", "retry-after: 0\r\n", String::new()),
            Outcome::RateThrottled {
                retry_after: Some(Millis::from_secs(1)),
            },
            "429",
        ),
        (
            Does::Answer(
                429,
                "",
                "retry-after: 18446744073709551615\r\n",
                String::new(),
            ),
            Outcome::RateThrottled {
                retry_after: Some(Millis::from_secs(900)),
            },
            "429",
        ),
        (
            Does::Answer(503, "", "retry-after: 12\r\n", String::new()),
            Outcome::Unavailable {
                retry_after: Some(Millis::from_secs(12)),
            },
            "503",
        ),
    ])
    .await;
}

#[tokio::test]
async fn no_answer_after_the_request_left_is_uncertain_after_one_request() {
    for does in [Does::Hang, Does::Close] {
        let server = Server::that(does.clone()).await;
        let reply = send(&ses(&server.url), &envelope("order-1")).await;
        assert_eq!(
            reply,
            Reply {
                outcome: Outcome::Uncertain,
                id: None,
                said: None
            },
            "{does:?}"
        );
        assert_eq!(server.requests().len(), 1, "{does:?}");
    }
}

#[tokio::test]
async fn a_send_has_all_of_its_time_whatever_other_calls_have() {
    let server = Server::that(Does::AcceptAfter(WITHIN / 3)).await;
    let timeouts = TimeoutConfig::builder()
        .operation_attempt_timeout(WITHIN / 10)
        .operation_timeout(WITHIN / 5);
    let config = config(&server.url).timeout_config(timeouts.build());
    let reply = send(&Ses::new(config, WITHIN), &envelope("order-1")).await;
    assert_eq!(reply.outcome, Outcome::Sent);
}

#[tokio::test]
async fn a_reused_connection_that_breaks_is_uncertain_after_one_request_too() {
    let server = Server::start(|number| if number == 1 { accepts() } else { Does::Close }).await;
    let ses = ses(&server.url);
    assert_eq!(
        send(&ses, &envelope("order-1")).await.outcome,
        Outcome::Sent
    );
    assert_eq!(
        send(&ses, &envelope("order-2")).await.outcome,
        Outcome::Uncertain
    );
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_request_that_never_left_is_known_not_to_be_sent() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let reply = send(&ses(&url), &envelope("order-1")).await;
    assert_eq!(
        reply,
        Reply {
            outcome: Outcome::NotSent,
            id: None,
            said: None
        }
    );
}

#[tokio::test]
async fn the_account_says_whether_it_sends() {
    for (does, sends) in [
        (json!({ "SendingEnabled": true }), Some(true)),
        (json!({ "SendingEnabled": false }), Some(false)),
        // What isn't there says nothing: not that nobody may send.
        (json!({}), None),
        (json!({ "SendingEnabled": null }), None),
        (json!({ "EnforcementStatus": "HEALTHY" }), None),
    ]
    .map(|(body, sends)| (Does::Answer(200, "", "", body.to_string()), sends))
    .into_iter()
    .chain([
        (fails(403, "AccessDeniedException", "No"), None),
        (fails(500, "", ""), None),
        (Does::Hang, None),
        (Does::Close, None),
    ]) {
        let server = Server::that(does.clone()).await;
        let account = ses(&server.url).account_sends().await;
        assert_eq!(account, sends, "{does:?}");
        let (line, _) = server.requests().remove(0);
        assert_eq!(line, "get /v2/email/account http/1.1");
    }
}

#[tokio::test]
async fn a_simple_mail_reaches_ses_whole() {
    let server = Server::that(accepts()).await;
    let mut envelope = with_content(json!({ "simple": {
        "subject": "Grüße", "text": "Hi", "html": "<p>Hi</p>", "headers": [{ "name": "X-Shop", "value": "1" }],
    } }));
    envelope["mail"]["cc"] = json!(["bob@example.org"]);
    envelope["mail"]["bcc"] = json!(["cid@example.org"]);
    envelope["mail"]["reply_to"] = json!(["help@example.com"]);
    envelope["mail"]["tags"] = json!({ "campaign": "spring" });
    let reply = send(&ses(&server.url), &envelope).await;

    assert_eq!(
        reply,
        Reply {
            outcome: Outcome::Sent,
            id: Some("ses-1".into()),
            said: None
        }
    );
    let (line, body) = server.requests().remove(0);
    assert_eq!(line, "post /v2/email/outbound-emails http/1.1");
    let utf8 = |data| json!({ "Data": data, "Charset": "UTF-8" });
    let tag = |name, value: &str| json!({ "Name": name, "Value": value });
    let Moment(slot) = NOW;
    assert_eq!(
        body,
        json!({
            "FromEmailAddress": "Shop <shop@example.com>",
            "Destination": {
                "ToAddresses": ["ann@example.org"],
                "CcAddresses": ["bob@example.org"],
                "BccAddresses": ["cid@example.org"],
            },
            "ReplyToAddresses": ["help@example.com"],
            "Content": { "Simple": {
                "Subject": utf8("Grüße"),
                "Body": { "Text": utf8("Hi"), "Html": utf8("<p>Hi</p>") },
                "Headers": [{ "Name": "X-Shop", "Value": "1" }],
            } },
            "EmailTags": [
                tag("campaign", "spring"),
                tag("send_id", "order-1"),
                tag("tenant", "acme"),
                tag("lane", "bulk"),
                tag("slot_ms", &slot.to_string()),
                tag("grant_ms", &(slot + 7).to_string()),
            ],
            "ConfigurationSetName": "acme-set",
        })
    );
}

#[tokio::test]
async fn a_template_and_a_raw_mail_reach_ses_as_they_were_written() {
    let server = Server::that(accepts()).await;
    let ses = ses(&server.url);
    let headers = json!([{ "name": "X-Shop", "value": "1" }]);
    let data = json!({ "name": "Ann", "total": 12.50 });
    let template = json!({ "template": { "name": "receipt", "data": data, "headers": headers } });
    send(&ses, &with_content(template)).await;
    let mime = BASE64_STANDARD.encode("Subject: Hi\r\n\r\nHi");
    send(&ses, &with_content(json!({ "raw": { "data": mime } }))).await;

    let requests = server.requests();
    let template = &requests[0].1["Content"]["Template"];
    assert_eq!(template["TemplateName"], "receipt");
    assert_eq!(
        template["Headers"],
        json!([{ "Name": "X-Shop", "Value": "1" }])
    );
    let told: Value = serde_json::from_str(template["TemplateData"].as_str().unwrap()).unwrap();
    assert_eq!(told, data);
    assert_eq!(requests[1].1["Content"], json!({ "Raw": { "Data": mime } }));
}

#[tokio::test]
async fn raw_content_that_is_no_base64_is_refused_before_any_request() {
    let server = Server::that(accepts()).await;
    let reply = send(
        &ses(&server.url),
        &with_content(json!({ "raw": { "data": "%%%" } })),
    )
    .await;
    let said = Some("raw content is no base64".into());
    assert_eq!(
        reply,
        Reply {
            outcome: Outcome::BadRequest,
            id: None,
            said
        }
    );
    assert_eq!(server.requests().len(), 0);
}

/// The headers that SES gets, each as `Name: value`, of mail with such headers of its own.
async fn headers_of(set: &ListUnsubscribe, kind: &str, own: &[(&str, &str)]) -> Vec<String> {
    let own: Vec<_> = own
        .iter()
        .map(|(name, value)| json!({ "name": name, "value": value }))
        .collect();
    let content = match kind {
        "Simple" => json!({ "simple": { "subject": "Hello", "text": "Hi", "headers": own } }),
        _ => json!({ "template": { "name": "receipt", "data": {}, "headers": own } }),
    };
    let tenant = TenantSettings {
        list_unsubscribe: Some(set.clone()),
        ..TenantSettings::default()
    };
    let server = Server::accepting().await;
    let reply = send_as(&ses(&server.url), &tenant, &with_content(content)).await;
    assert_eq!(reply.outcome, Outcome::Sent);
    let (_, body) = server.requests().remove(0);
    let headers = body["Content"][kind]["Headers"].as_array().cloned();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    headers
        .unwrap_or_default()
        .iter()
        .map(|header| format!("{}: {}", text(&header["Name"]), text(&header["Value"])))
        .collect()
}

fn unsubscribe(mailto: &str) -> ListUnsubscribe {
    ListUnsubscribe {
        url: "https://acme.example/u/{send_id}?again={send_id}".to_owned(),
        mailto: mailto.to_owned(),
    }
}

const ONE_CLICK: &str = "List-Unsubscribe-Post: List-Unsubscribe=One-Click";

#[tokio::test]
async fn mail_says_how_to_unsubscribe_where_its_tenant_has_that_set() {
    let url = "List-Unsubscribe: <https://acme.example/u/order-1?again=order-1>";
    let both = format!("{url}, <mailto:u@acme.example?subject=unsubscribe>");
    for kind in ["Simple", "Template"] {
        let set = unsubscribe("u@acme.example");
        assert_eq!(headers_of(&set, kind, &[]).await, [&both, ONE_CLICK]);
        let shop = headers_of(&set, kind, &[("X-Shop", "1")]).await;
        assert_eq!(shop, ["X-Shop: 1", &both, ONE_CLICK]);
        let set = unsubscribe("");
        assert_eq!(headers_of(&set, kind, &[]).await, [url, ONE_CLICK]);
    }
}

#[tokio::test]
async fn a_mail_that_says_how_to_unsubscribe_goes_as_it_is() {
    let set = unsubscribe("u@acme.example");
    for kind in ["Simple", "Template"] {
        for name in ["List-Unsubscribe", "list-unsubscribe", "LIST-UNSUBSCRIBE"] {
            let own = "<mailto:me@shop.example>";
            let headers = headers_of(&set, kind, &[(name, own)]).await;
            assert_eq!(headers, [format!("{name}: {own}")]);
        }
        // SES takes none of these twice.
        let post = ("list-unsubscribe-post", "List-Unsubscribe=One-Click");
        let headers = headers_of(&set, kind, &[post]).await;
        assert_eq!(headers.len(), 2, "{headers:?}");
        assert_eq!(headers[0], format!("{}: {}", post.0, post.1));
        assert!(headers[1].starts_with("List-Unsubscribe: <https://"));
    }
    let tenant = TenantSettings {
        list_unsubscribe: Some(set),
        ..TenantSettings::default()
    };
    let server = Server::accepting().await;
    let mime = BASE64_STANDARD.encode("Subject: Hi\r\n\r\nHi");
    let raw = with_content(json!({ "raw": { "data": mime } }));
    send_as(&ses(&server.url), &tenant, &raw).await;
    let (_, body) = server.requests().remove(0);
    assert_eq!(body["Content"], json!({ "Raw": { "Data": mime } }));
}

#[tokio::test]
async fn no_mail_has_more_headers_or_longer_ones_than_ses_takes() {
    let names: Vec<_> = (0..15).map(|n| format!("X-{n}")).collect();
    let own: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let set = unsubscribe("u@acme.example");
    for kind in ["Simple", "Template"] {
        for (count, expected) in [(12, 14), (13, 15), (14, 14), (15, 15)] {
            let headers = headers_of(&set, kind, &own[..count]).await;
            assert_eq!(headers.len(), expected, "{kind} {count}: both or none");
        }
    }
    // The value is that of a header of 870 characters, brackets and all.
    let long = |length: usize, mailto: &str| ListUnsubscribe {
        url: format!("https://acme.example/{}", "u".repeat(length - 23)),
        mailto: mailto.to_owned(),
    };
    let value = |headers: &[String]| headers[0].split_once(": ").unwrap().1.len();
    let fits = headers_of(&long(870, ""), "Simple", &[]).await;
    assert_eq!((fits.len(), value(&fits)), (2, 870));
    let alone = headers_of(&long(870, "u@acme.example"), "Simple", &[]).await;
    assert_eq!((alone.len(), value(&alone)), (2, 870), "without mailbox");
    let neither = headers_of(&long(871, ""), "Simple", &[]).await;
    assert_eq!(neither, [""; 0]);
}

#[tokio::test]
async fn mail_goes_as_its_ses_tenants() {
    for (ses_tenant, told) in [(Some("acme-1"), json!("acme-1")), (None, Value::Null)] {
        let tenant = TenantSettings {
            ses_tenant: ses_tenant.map(str::to_owned),
            ..TenantSettings::default()
        };
        let server = Server::accepting().await;
        send_as(&ses(&server.url), &tenant, &envelope("order-1")).await;
        let (_, body) = server.requests().remove(0);
        assert_eq!(body["TenantName"], told);
        assert_eq!(body["ConfigurationSetName"], Value::Null, "it has none");
    }
}
