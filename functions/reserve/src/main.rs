//! Wires the reserve function to its queues, Redis and the Lambda runtime.

use std::time::{SystemTime, UNIX_EPOCH};

use lambda_runtime::{Error, LambdaEvent, service_fn, tracing::Instrument};
use reserve::{Deadline, Event, Reserve};
use sendslot_domain::Moment;
use sendslot_runtime::{ReserveSettings, Seeded, aws, bucket::Bucket, logs};
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    logs::init();
    let settings = ReserveSettings::from_env()?;
    let config = aws::config(aws::RetryConfig::standard()).await;
    let schedule = Seeded::connect(&settings.common, &config)?;
    let sqs = aws_sdk_sqs::Client::new(&config);
    let bucket = Bucket::new((&config).into(), settings.common.parking_bucket.clone());
    let service = settings.common.service.clone();
    let reserve = &Reserve::new(schedule, sqs, bucket, settings);
    lambda_runtime::run(service_fn(|event: LambdaEvent<Event>| {
        let span = logs::invocation(&service, &event.context);
        let handled = async move {
            let now = SystemTime::now();
            // It counts down on the clock that never jumps.
            let left = event.context.deadline().duration_since(now);
            let deadline = Deadline::at(Instant::now() + left.unwrap_or_default());
            let now = Moment(u64::try_from(now.duration_since(UNIX_EPOCH)?.as_millis())?);
            let (answer, metrics) = reserve.handle(event.payload, now, deadline).await?;
            metrics
                .into_iter()
                .for_each(sendslot_runtime::Metrics::flush);
            Ok::<_, Error>(answer)
        };
        handled.instrument(span)
    }))
    .await
}
