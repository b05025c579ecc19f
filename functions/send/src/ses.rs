//! Mail to SES, and its answers back.

use std::{error::Error, time::Duration};

use aws_sdk_sesv2::{
    Client,
    config::{Builder, retry::RetryConfig, timeout::TimeoutConfig},
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

use crate::ports::{Outgoing, Provider, Reply};

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
            Err(error) => {
                return Reply {
                    outcome: Outcome::BadRequest,
                    id: None,
                    said: Some(error.to_string()),
                };
            }
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
        let account = self.client.get_account().send().await;
        account
            .inspect_err(|error| {
                let error = error.code().unwrap_or("no answer");
                tracing::warn!(error, "asking whether the account sends failed");
            })
            .ok()
            .map(|account| account.sending_enabled())
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
        configuration_set,
    } = *mail;
    let content = match &envelope.mail.content {
        Content::Simple(simple) => {
            let body = Body::builder()
                .set_text(simple.text.as_deref().map(utf8).transpose()?)
                .set_html(simple.html.as_deref().map(utf8).transpose()?);
            let message = Message::builder()
                .subject(utf8(&simple.subject)?)
                .body(body.build())
                .set_headers(headers(&simple.headers)?);
            EmailContent::builder().simple(message.build())
        }
        Content::Template(template) => {
            let template = Template::builder()
                .template_name(&template.name)
                .template_data(template.data.get())
                .set_headers(headers(&template.headers)?);
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
        .set_configuration_set_name(configuration_set.map(str::to_owned))
        .set_email_tags(Some(tags.collect::<Result<_, _>>()?)))
}

fn utf8(text: &str) -> Result<ses::Content, BuildError> {
    ses::Content::builder().data(text).charset("UTF-8").build()
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
