//! The function that has Redis.

use aws_sdk_lambda::primitives::Blob;
use serde_json::Value;

use crate::{
    aws::Aws,
    ports::{CallError, Control},
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
        let code = told["errorType"].as_str().unwrap_or(&kind);
        let message = told["errorMessage"].as_str().unwrap_or_default();
        Err(CallError::new(code, format!("control failed: {message}")))
    }
}
