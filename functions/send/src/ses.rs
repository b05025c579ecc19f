//! Mail to SES, and its answers back.
//!
//! # List-Unsubscribe
//! Where a tenant has it set, its mail says how to unsubscribe with one click (RFC 8058), in two headers: the address that a mail
//! reader posts to, with the mail's send id in it, and a mailbox to write to, if one is set. A mail that brings a
//! `List-Unsubscribe` of its own goes with that alone, and raw mail as it was written. SES takes [`MOST_HEADERS`] headers; where
//! those of the mail leave no room, ours are left out, and a warning names its send id.

use std::{
    borrow::Cow,
    error::Error,
    sync::{Arc, OnceLock},
    time::Duration,
};

use aws_sdk_sesv2::{
    Client,
    config::{
        Builder, ConfigBag, Intercept, RuntimeComponents,
        interceptors::AfterDeserializationInterceptorContextRef, retry::RetryConfig,
        timeout::TimeoutConfig,
    },
    error::{BuildError, ProvideErrorMetadata, SdkError},
    operation::send_email::{SendEmailError, SendEmailOutput, builders::SendEmailInputBuilder},
    primitives::Blob,
    types::{
        self as ses, Body, Destination, EmailContent, Message, MessageHeader, MessageTag,
        RawMessage, Template,
    },
};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use base64::{Engine, prelude::BASE64_STANDARD};
use sendslot_domain::{
    Millis,
    outcome::{Answer, Outcome},
};
use sendslot_mail::{Content, Header};
use sendslot_runtime::tenant::ListUnsubscribe;
use tracing::warn;

use crate::ports::{Outgoing, Provider, Reply};

/// The most headers of its own that SES takes of a simple or a template mail.
pub const MOST_HEADERS: usize = 15;
/// The longest value that SES takes of such a header, in characters.
const LONGEST_VALUE: usize = 870;
/// How a mail reader unsubscribes somebody.
const UNSUBSCRIBE: &str = "List-Unsubscribe";
/// That it does so by itself, at one click.
const UNSUBSCRIBE_POST: &str = "List-Unsubscribe-Post";
/// The place of the send id in a tenant's address for that.
const SEND_ID: &str = "{send_id}";

/// SES as a provider.
#[derive(Clone, Debug)]
pub struct Ses {
    client: Client,
}

/// A mail that no request can be made of. The text holds no part of the mail.
#[derive(Debug, thiserror::Error)]
pub enum Unsendable {
    /// Raw content can't be decoded.
    #[error("raw content is no base64")]
    Base64,
    /// The SDK misses something.
    #[error("incomplete request: {0}")]
    Incomplete(#[from] BuildError),
}

impl Ses {
    /// A client that makes one request a send and gives its answer no longer than `within`. The SDK's
    /// own retries are off: each would be a send that no grant was drawn for, and a second copy of a mail
    /// whose first answer was lost.
    #[must_use]
    pub fn new(config: Builder, within: Duration) -> Self {
        // Merged into what `config` has, so that its time-out for connecting stays; that of an attempt is for calls that may
        // be made twice.
        let timeouts = TimeoutConfig::builder()
            .operation_attempt_timeout(within)
            .operation_timeout(within);
        let config = config
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts.build());
        Self {
            client: Client::from_conf(config.build()),
        }
    }
}

impl Provider for Ses {
    async fn send(&self, mail: &Outgoing<'_>) -> Reply {
        let answer = match request(mail) {
            Ok(request) => answer(request.send_with(&self.client).await),
            Err(error) => return unsendable(&error),
        };
        let said = match &answer {
            Answer::Error { status, code, .. } => {
                Some(format!("{status} {code}").trim_end().to_owned())
            }
            _ => None,
        };
        let outcome = Outcome::of_ses(&answer);
        let id = match answer {
            Answer::Accepted { id } => Some(id),
            _ => None,
        };
        Reply { outcome, id, said }
    }

    async fn account_sends(&self) -> Option<bool> {
        let sends = SendingEnabled::default();
        let call = self.client.get_account().customize();
        if let Err(error) = call.interceptor(sends.clone()).send().await {
            let error = error.code().unwrap_or("no answer");
            warn!(error, "asking whether the account sends failed");
            return None;
        }
        sends.0.get().copied()
    }
}

/// What the answer of `GetAccount` says of sending, if it says anything. The SDK makes a field that isn't there `false`: an answer
/// without it would say that nobody may send. So it is read as it came.
#[derive(Clone, Debug, Default)]
struct SendingEnabled(Arc<OnceLock<bool>>);

impl Intercept for SendingEnabled {
    fn name(&self) -> &'static str {
        "SendingEnabled"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let body = context.response().body().bytes().unwrap_or_default();
        let told: Option<serde_json::Value> = serde_json::from_slice(body).ok();
        if let Some(sends) = told.and_then(|told| told["SendingEnabled"].as_bool()) {
            // Nobody else sets it.
            let _ = self.0.set(sends);
        }
        Ok(())
    }
}

/// What is made of a mail that no request can be made of, without asking SES.
pub(crate) fn unsendable(error: &Unsendable) -> Reply {
    Reply {
        outcome: Outcome::BadRequest,
        id: None,
        said: Some(error.to_string()),
    }
}

/// The `SendEmail` request of a mail.
///
/// # Errors
/// When the mail is none: it can't be sent, now or later.
pub fn request(mail: &Outgoing<'_>) -> Result<SendEmailInputBuilder, Unsendable> {
    let Outgoing {
        envelope,
        lane,
        grant,
        tenant,
    } = *mail;
    let content = match &envelope.mail.content {
        Content::Simple(simple) => {
            let body = Body::builder()
                .set_text(simple.text.as_deref().map(utf8).transpose()?)
                .set_html(simple.html.as_deref().map(utf8).transpose()?);
            let message = Message::builder()
                .subject(utf8(&simple.subject)?)
                .body(body.build())
                .set_headers(headers(&with_unsubscribe(mail, &simple.headers))?);
            EmailContent::builder().simple(message.build())
        }
        Content::Template(template) => {
            let template = Template::builder()
                .template_name(&template.name)
                .template_data(template.data.get())
                .set_headers(headers(&with_unsubscribe(mail, &template.headers))?);
            EmailContent::builder().template(template.build())
        }
        Content::Raw(raw) => {
            let data = BASE64_STANDARD
                .decode(&raw.data)
                .map_err(|_| Unsendable::Base64)?;
            EmailContent::builder().raw(RawMessage::builder().data(Blob::new(data)).build()?)
        }
    };
    let to = &envelope.mail;
    let destination = Destination::builder()
        .set_to_addresses(some(&to.to))
        .set_cc_addresses(some(&to.cc))
        .set_bcc_addresses(some(&to.bcc));
    let ours = [
        ("send_id", envelope.send_id.to_string()),
        ("tenant", envelope.tenant.to_string()),
        ("lane", lane.to_string()),
        ("slot_ms", envelope.slot.0.to_string()),
        ("grant_ms", grant.0.to_string()),
    ];
    let theirs = to
        .tags
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()));
    let tags = theirs
        .chain(ours)
        .map(|(name, value)| MessageTag::builder().name(name).value(value).build());
    Ok(SendEmailInputBuilder::default()
        .from_email_address(&to.from)
        .destination(destination.build())
        .set_reply_to_addresses(some(&to.reply_to))
        .content(content.build())
        .set_configuration_set_name(tenant.configuration_set.clone())
        .set_tenant_name(tenant.ses_tenant.clone())
        .set_email_tags(Some(tags.collect::<Result<_, _>>()?)))
}

fn utf8(text: &str) -> Result<ses::Content, BuildError> {
    ses::Content::builder().data(text).charset("UTF-8").build()
}

/// The headers of a mail, and those with which its recipient unsubscribes, where its tenant has them set.
fn with_unsubscribe<'a>(mail: &Outgoing<'_>, headers: &'a [Header]) -> Cow<'a, [Header]> {
    let brings = |name| headers.iter().any(|h| h.name.eq_ignore_ascii_case(name));
    let set = mail.tenant.list_unsubscribe.as_ref();
    let Some(set) = set.filter(|_| !brings(UNSUBSCRIBE)) else {
        return Cow::Borrowed(headers);
    };
    let send_id = mail.envelope.send_id.as_str();
    let header = |name: &str, value: String| Header {
        name: name.to_owned(),
        value,
    };
    let whole = addresses(set, send_id).map(|value| {
        let mut all = headers.to_vec();
        all.push(header(UNSUBSCRIBE, value));
        // SES refuses a mail that has it twice.
        if !brings(UNSUBSCRIBE_POST) {
            let value = format!("{UNSUBSCRIBE}=One-Click");
            all.push(header(UNSUBSCRIBE_POST, value));
        }
        all
    });
    whole
        .filter(|all| all.len() <= MOST_HEADERS)
        .map_or_else(
            || {
                let headers_of_its_own = headers.len();
                warn!(
                    send_id,
                    headers_of_its_own,
                    "no room for List-Unsubscribe: the mail goes without (SES takes {MOST_HEADERS} headers of {LONGEST_VALUE} characters)"
                );
                Cow::Borrowed(headers)
            },
            Cow::Owned,
        )
}

/// Where the recipient of this mail unsubscribes, as the header has it: with the mailbox, if there is room for it, or nothing if
/// there is no room at all.
fn addresses(set: &ListUnsubscribe, send_id: &str) -> Option<String> {
    let url = format!("<{}>", set.url.replace(SEND_ID, send_id));
    let both = format!("{url}, <mailto:{}?subject=unsubscribe>", set.mailto);
    let fits = |value: &String| value.len() <= LONGEST_VALUE;
    let both = Some(both).filter(|both| !set.mailto.is_empty() && fits(both));
    both.or_else(|| Some(url).filter(fits))
}

fn headers(headers: &[Header]) -> Result<Option<Vec<MessageHeader>>, BuildError> {
    let built = headers.iter().map(|h| {
        MessageHeader::builder()
            .name(&h.name)
            .value(&h.value)
            .build()
    });
    Ok(some(&built.collect::<Result<Vec<_>, _>>()?))
}

fn some<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}

/// The bare facts of an answer.
fn answer(result: Result<SendEmailOutput, SdkError<SendEmailError, HttpResponse>>) -> Answer {
    let error = match result {
        Ok(output) => {
            return Answer::Accepted {
                id: output.message_id.unwrap_or_default(),
            };
        }
        Err(error) => error,
    };
    if let Some(response) = error.raw_response() {
        let retry_after = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.trim().parse::<u64>().ok())
            .map(|seconds| seconds.clamp(1, 900));
        return Answer::Error {
            status: response.status().as_u16(),
            code: error.code().unwrap_or_default().to_owned(),
            text: error.message().unwrap_or_default().to_owned(),
            retry_after: retry_after.map(Millis::from_secs),
        };
    }
    match error {
        SdkError::ConstructionFailure(_) => Answer::NotSent,
        error if never_connected(&error) => Answer::NotSent,
        // Everything else may have left: a time-out, a reset, a connection closed without an answer.
        _ => Answer::Lost,
    }
}

/// Whether the error came of making a connection (refused, no such host, no TLS, no answer in time), so
/// that not one byte of the request was written.
fn never_connected(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return error.is_connect();
        }
        cause = error.source();
    }
    false
}
