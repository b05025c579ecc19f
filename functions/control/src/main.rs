//! Wires the control function to Redis, S3, SQS, SES and the Lambda runtime.

// The SDK's calls lie deep within a replay.
#![recursion_limit = "256"]

use std::time::SystemTime;

use control::{Control, Deadline, bucket::Bucket, far_ahead::FarAhead};
use lambda_runtime::{Error, LambdaEvent, service_fn, tracing::Instrument};
use sendslot_runtime::{ControlSettings, Metrics, aws, logs};
use serde_json::value::RawValue;
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    logs::init();
    let settings = ControlSettings::from_env()?;
    let config = aws::config(aws::RetryConfig::standard()).await;
    let schedule = settings.schedule(&config)?;
    let sqs = aws_sdk_sqs::Client::new(&config);
    let parked = Bucket::new((&config).into(), settings.parking_bucket.clone());
    let ses = aws_sdk_sesv2::Client::new(&config);
    let service = settings.service.clone();
    let control = &Control::new(schedule, sqs, parked, ses, FarAhead, settings);
    // As text: bad input is answered, not failed.
    lambda_runtime::run(service_fn(|event: LambdaEvent<Box<RawValue>>| {
        let span = logs::invocation(&service, &event.context);
        let handled = async move {
            // It counts down on the clock that never jumps.
            let left = event.context.deadline().duration_since(SystemTime::now());
            let deadline = Deadline::at(Instant::now() + left.unwrap_or_default());
            // On the heap, as it is large.
            let handled = Box::pin(control.handle(event.payload.get(), deadline));
            let (answer, metrics) = handled.await;
            metrics.into_iter().for_each(Metrics::flush);
            Ok::<_, Error>(answer)
        };
        handled.instrument(span)
    }))
    .await
}
