//! Wires the feedback function to Redis, SES and the Lambda runtime.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lambda_events::sqs::SqsEvent;
use feedback::Feedback;
use lambda_runtime::{Error, LambdaEvent, service_fn, tracing::Instrument};
use sendslot_domain::Moment;
use sendslot_runtime::{FeedbackSettings, aws, logs};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    logs::init();
    let settings = FeedbackSettings::from_env()?;
    let config = aws::config(aws::RetryConfig::standard()).await;
    let schedule = settings.schedule(&config)?;
    let switches = aws_sdk_sesv2::Client::new(&config);
    let service = settings.service.clone();
    let feedback = &Feedback::new(schedule, switches, settings);
    lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| {
        let span = logs::invocation(&service, &event.context);
        let handled = async move {
            let (response, metrics) = feedback.handle(event.payload, now()).await;
            metrics.flush();
            Ok::<_, Error>(response)
        };
        handled.instrument(span)
    }))
    .await
}

fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Moment(u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX))
}
