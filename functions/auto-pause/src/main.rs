//! Wires auto-pause to AWS and the Lambda runtime.

use std::time::SystemTime;

use auto_pause::{Handler, Settings, aws::Aws};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use sendslot_runtime::{aws, logs};
use serde_json::Value;
use tokio::time::Instant;
use tracing::Instrument;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    logs::init();
    let settings = Settings::from_env()?;
    let service = settings.service.clone();
    let config = aws::config(aws::RetryConfig::standard()).await;
    let outside = Aws::new(&config, settings.control_function.clone());
    let handler = &Handler::new(outside, settings);
    lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| {
        let span = logs::invocation(&service, &event.context);
        let handled = async move {
            // It counts down on the clock that never jumps.
            let left = event.context.deadline().duration_since(SystemTime::now());
            let deadline = Instant::now() + left.unwrap_or_default();
            let (answer, metrics) = handler.handle(&event.payload, deadline).await;
            metrics.flush();
            Ok::<_, Error>(answer?)
        };
        handled.instrument(span)
    }))
    .await
}
