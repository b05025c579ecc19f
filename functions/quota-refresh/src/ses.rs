//! The account and its configuration sets, as SES tells them.
//!
//! The SDK makes a field that isn't there `false` or 0: an answer without `SendingEnabled` would say that nobody may send. So the answer
//! is read as it came.

use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_sesv2::config::{
    ConfigBag, Intercept, RuntimeComponents,
    interceptors::AfterDeserializationInterceptorContextRef,
};
use sendslot_runtime::control;
use serde_json::Value;

use crate::{
    aws::Aws,
    ports::{Account, CallError, Sets},
};

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
