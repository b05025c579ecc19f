//! The account, its configuration sets and its suppression list, as SES tells them.
//!
//! The SDK makes a field that isn't there `false` or 0: an answer without `SendingEnabled` would say that nobody may send. So the answer
//! is read as it came.

use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_sesv2::{
    config::{
        ConfigBag, Intercept, RuntimeComponents,
        interceptors::AfterDeserializationInterceptorContextRef,
    },
    types::SuppressedDestinationSummary,
};
use aws_smithy_types::DateTime;
use sendslot_runtime::control;
use serde_json::Value;

use crate::{
    aws::Aws,
    ports::{Account, CallError, Sets, Suppression, SuppressionPage},
};

/// Addresses on one page. SES documents no most; it gives as many where none are asked for.
const PAGE: i32 = 1000;

/// Keeps an answer's body.
#[derive(Clone, Debug, Default)]
struct Body(Arc<Mutex<Option<Vec<u8>>>>);

impl Intercept for Body {
    fn name(&self) -> &'static str {
        "Body"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let body = context.response().body().bytes().map(<[u8]>::to_vec);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = body;
        Ok(())
    }
}

impl Body {
    fn json(&self) -> Result<Value, CallError> {
        let body = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let body = body.as_deref().unwrap_or_default();
        serde_json::from_slice(body)
            .map_err(|error| CallError::other("unreadable", format!("no JSON: {error}")))
    }
}

impl Account for Aws {
    async fn account(&self) -> Result<control::Account, CallError> {
        let body = Body::default();
        let call = self.ses.get_account().customize();
        call.interceptor(body.clone()).send().await?;
        Ok(account(&body.json()?))
    }
}

/// What `GetAccount` answered. What isn't there, or isn't what it should be, is `None`.
fn account(answer: &Value) -> control::Account {
    let number = |name: &str| answer["SendQuota"][name].as_f64();
    control::Account {
        max_send_rate: number("MaxSendRate"),
        max_24_hour_send: number("Max24HourSend"),
        sent_last_24_hours: number("SentLast24Hours"),
        sending_enabled: answer["SendingEnabled"].as_bool(),
        enforcement: answer["EnforcementStatus"].as_str().map(str::to_owned),
        production: answer["ProductionAccessEnabled"].as_bool(),
    }
}

impl Sets for Aws {
    async fn sends(&self, set: &str) -> Result<Option<bool>, CallError> {
        let body = Body::default();
        let call = self.ses.get_configuration_set();
        let call = call.configuration_set_name(set).customize();
        call.interceptor(body.clone()).send().await?;
        Ok(body.json()?["SendingOptions"]["SendingEnabled"].as_bool())
    }
}

impl Suppression for Aws {
    async fn suppressed(
        &self,
        since_ms: Option<u64>,
        token: Option<String>,
    ) -> Result<SuppressionPage, CallError> {
        // Whole seconds: SES may read no finer ones. Earlier rather than later, so that nobody is left out.
        let since = since_ms.and_then(|since| i64::try_from(since / 1000).ok());
        let call = self.ses.list_suppressed_destinations().page_size(PAGE);
        let call = call.set_start_date(since.map(DateTime::from_secs));
        let answer = call.set_next_token(token).send().await?;
        let listed = answer.suppressed_destination_summaries.unwrap_or_default();
        let listed = listed.into_iter();
        let own = |one: SuppressedDestinationSummary| {
            let reason = one.reason.as_str().to_owned();
            (one.email_address, reason)
        };
        Ok(SuppressionPage {
            addresses: listed.map(own).collect(),
            next: answer.next_token.filter(|token| !token.is_empty()),
        })
    }
}
