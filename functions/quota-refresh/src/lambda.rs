//! The function that has Redis, and the event source mappings of the one that sends.

use aws_sdk_lambda::{primitives::Blob, types::ScalingConfig};
use serde_json::Value;

use crate::{
    aws::Aws,
    ports::{CallError, Control, Mapping, Mappings},
};

impl Control for Aws {
    async fn ask(&self, request: Vec<u8>) -> Result<Vec<u8>, CallError> {
        let call = self.lambda.invoke().function_name(&self.control);
        let answer = call.payload(Blob::new(request)).send().await?;
        let payload = answer.payload.map(Blob::into_inner).unwrap_or_default();
        let Some(kind) = answer.function_error else {
            return Ok(payload);
        };
        // What failed is in the payload, as the runtime or Lambda itself tells it.
        let told: Value = serde_json::from_slice(&payload).unwrap_or_default();
        let text = |name: &str| told[name].as_str().map(str::to_owned);
        let code = text("errorType").unwrap_or(kind);
        let message = text("errorMessage").unwrap_or_default();
        Err(CallError::other(
            &code,
            format!("control failed: {message}"),
        ))
    }
}

impl Mappings for Aws {
    async fn mapping(&self, uuid: &str) -> Result<Mapping, CallError> {
        let call = self.lambda.get_event_source_mapping().uuid(uuid);
        let mapping = call.send().await?;
        let scaling = mapping.scaling_config.as_ref();
        let concurrency = scaling.and_then(ScalingConfig::maximum_concurrency);
        Ok(Mapping {
            concurrency: concurrency.and_then(|most| u32::try_from(most).ok()),
            // Creating, Enabling, Disabling, Updating, Deleting.
            in_motion: mapping.state.is_some_and(|state| state.ends_with("ing")),
        })
    }

    async fn scale(&self, uuid: &str, concurrency: u32) -> Result<(), CallError> {
        let most = i32::try_from(concurrency).unwrap_or(i32::MAX);
        let scaling = ScalingConfig::builder().maximum_concurrency(most).build();
        let call = self.lambda.update_event_source_mapping().uuid(uuid);
        call.scaling_config(scaling).send().await?;
        Ok(())
    }
}
