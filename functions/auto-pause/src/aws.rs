//! All of the outside: one client of each service.

use std::time::Duration;

use aws_config::{SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};

/// The longest that any call may take, all its attempts included.
pub(crate) const CALL: Duration = Duration::from_secs(5);
/// The longest that one attempt may take, but of `control`: two fit into a call.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Up to so long is waited before SES is asked again: its control plane takes one call a second of the whole account, and
/// quota-refresh makes such calls, too.
const SES_PAUSE: Duration = Duration::from_secs(1);

/// AWS, as pausing needs it. The traits of [`crate::ports`] are met in the modules of the services.
#[derive(Debug)]
pub struct Aws {
    pub(crate) cloudwatch: aws_sdk_cloudwatch::Client,
    pub(crate) lambda: aws_sdk_lambda::Client,
    pub(crate) ses: aws_sdk_sesv2::Client,
    pub(crate) sns: aws_sdk_sns::Client,
    /// The function that has Redis, by name or ARN.
    pub(crate) control: String,
}

impl Aws {
    /// Clients with this configuration, and `control` by its name or ARN.
    ///
    /// Every call may be made again within its time: the same again changes nothing, but that a message may be told twice.
    #[must_use]
    pub fn new(config: &SdkConfig, control: String) -> Self {
        // Merged into what `config` has, so that its time-out for connecting stays.
        let within = |attempt| {
            let timeouts = TimeoutConfig::builder();
            let timeouts = timeouts.operation_attempt_timeout(attempt);
            timeouts.operation_timeout(CALL).build()
        };
        let cloudwatch = aws_sdk_cloudwatch::config::Builder::from(config);
        let sns = aws_sdk_sns::config::Builder::from(config);
        let ses = aws_sdk_sesv2::config::Builder::from(config)
            .retry_config(RetryConfig::standard().with_initial_backoff(SES_PAUSE));
        let lambda = aws_sdk_lambda::config::Builder::from(config);
        let (cloudwatch, sns, ses) = (
            cloudwatch.timeout_config(within(ATTEMPT)).build(),
            sns.timeout_config(within(ATTEMPT)).build(),
            ses.timeout_config(within(ATTEMPT)).build(),
        );
        // An attempt has all of the time, as `control` may have to start first.
        let lambda = lambda.timeout_config(within(CALL)).build();
        Self {
            cloudwatch: aws_sdk_cloudwatch::Client::from_conf(cloudwatch),
            lambda: aws_sdk_lambda::Client::from_conf(lambda),
            ses: aws_sdk_sesv2::Client::from_conf(ses),
            sns: aws_sdk_sns::Client::from_conf(sns),
            control,
        }
    }
}
