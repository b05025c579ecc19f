//! The sending switch of a configuration set: what keeps a tenant's pause when Redis has lost it, and has SES refuse what gets past us.

use std::future::Future;

use aws_sdk_sesv2::{
    Client,
    error::{DisplayErrorContext, ProvideErrorMetadata},
};

/// Switches configuration sets.
pub trait Switch: Send + Sync {
    /// Lets mail go through a configuration set, or not. The same again changes nothing.
    ///
    /// # Errors
    /// What went wrong; it may have been done.
    fn switch(
        &self,
        set: &str,
        sending: bool,
    ) -> impl Future<Output = Result<(), SwitchError>> + Send;
}

/// Why a configuration set wasn't switched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    /// There is no such set.
    #[error("SES has no such configuration set")]
    Missing,
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl Switch for Client {
    async fn switch(&self, set: &str, sending: bool) -> Result<(), SwitchError> {
        let call = self.put_configuration_set_sending_options();
        let call = call.configuration_set_name(set).sending_enabled(sending);
        match call.send().await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some("NotFoundException") => Err(SwitchError::Missing),
            Err(error) => Err(SwitchError::Failed(DisplayErrorContext(&error).to_string())),
        }
    }
}
