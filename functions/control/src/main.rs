//! Wires the control function to Redis and the Lambda runtime.

use control::Control;
use lambda_runtime::{Error, LambdaEvent, service_fn, tracing::Instrument};
use sendslot_runtime::{ControlSettings, Metrics, aws, logs};
use serde_json::value::RawValue;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    logs::init();
    let settings = ControlSettings::from_env()?;
    let config = aws::config(aws::RetryConfig::standard()).await;
    let schedule = settings.schedule(&config)?;
    let service = settings.service.clone();
    let control = &Control::new(schedule, settings);
    // As text: bad input is answered, not failed.
    lambda_runtime::run(service_fn(|event: LambdaEvent<Box<RawValue>>| {
        let span = logs::invocation(&service, &event.context);
        let handled = async move {
            let (answer, metrics) = control.handle(event.payload.get()).await;
            metrics.into_iter().for_each(Metrics::flush);
            Ok::<_, Error>(answer)
        };
        handled.instrument(span)
    }))
    .await
}
