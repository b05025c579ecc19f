//! Sends each mail at its slot, once.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lambda_events::sqs::SqsEvent;
use aws_sdk_sqs::config::retry::RetryConfig;
use lambda_runtime::{Context, Error, LambdaEvent, service_fn};
use send::{Invocation, Sender, batch::SEND_TIMEOUT, ses::Ses, shadow::Door};
use sendslot_domain::Moment;
use sendslot_runtime::{Seeded, SendSettings, aws, bucket::Bucket, logs};
use tokio::time::Instant;
use tracing::Instrument;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    logs::init();
    let settings = SendSettings::from_env()?;
    let service = settings.common.service.clone();
    let config = aws::config(RetryConfig::standard()).await;
    let redis = Seeded::connect(&settings.common, &config)?;
    let provider = if settings.shadow {
        Door::Shadow
    } else {
        Door::Open(Ses::new((&config).into(), SEND_TIMEOUT))
    };
    let queues = aws_sdk_sqs::Client::new(&config);
    let bucket = Bucket::new((&config).into(), settings.common.parking_bucket.clone());
    let (sender, service) = (
        &Sender::new(redis, provider, queues, bucket, settings),
        service.as_str(),
    );
    let handler = async |event: LambdaEvent<SqsEvent>| {
        let span = logs::invocation(service, &event.context);
        let invocation = invocation(&event.context);
        let batch = sender.handle(event.payload, &invocation).instrument(span);
        // Boxed: rustc gives up on the layout of futures this deep inside the runtime's own.
        let (response, metrics) = Box::pin(batch).await?;
        metrics.flush();
        Ok::<_, Error>(response)
    };
    lambda_runtime::run(service_fn(handler)).await
}

/// The invocation as its own clocks see it: the deadline counts down on the one that never jumps.
fn invocation(context: &Context) -> Invocation {
    let now = SystemTime::now();
    let left = context.deadline().duration_since(now).unwrap_or_default();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Invocation {
        id: context.request_id.clone(),
        now: Moment(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
        deadline: Instant::now() + left,
    }
}
