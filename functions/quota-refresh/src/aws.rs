//! All of the outside: one client of each service.

use aws_config::{SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};

use crate::{
    put::Http,
    times::{ACCOUNT, CONTROL},
};

/// AWS, as a refresh needs it. The traits of [`crate::ports`] are met in the modules of the services.
#[derive(Debug)]
pub struct Aws {
    pub(crate) ses: aws_sdk_sesv2::Client,
    pub(crate) ssm: aws_sdk_ssm::Client,
    pub(crate) lambda: aws_sdk_lambda::Client,
    pub(crate) cloudwatch: aws_sdk_cloudwatch::Client,
    pub(crate) http: Http,
    /// The function that has Redis, by name or ARN.
    pub(crate) control: String,
}

impl Aws {
    /// Clients with this configuration, and `control` by its name or ARN.
    ///
    /// SES and Lambda are asked once a call, whatever the configuration says of retries: SES gives its control plane one call a second,
    /// which a retry would take from somebody else, and a second invocation of `control` would count one answer of SES twice.
    #[must_use]
    pub fn new(config: &SdkConfig, control: String) -> Self {
        // Merged into what `config` has, so that its time-out for connecting stays.
        let once = |within| {
            let timeouts = TimeoutConfig::builder();
            let timeouts = timeouts.operation_attempt_timeout(within);
            timeouts.operation_timeout(within).build()
        };
        let ses = aws_sdk_sesv2::config::Builder::from(config)
            .retry_config(RetryConfig::disabled())
            .timeout_config(once(ACCOUNT));
        let lambda = aws_sdk_lambda::config::Builder::from(config)
            .retry_config(RetryConfig::disabled())
            .timeout_config(once(CONTROL));
        Self {
            ses: aws_sdk_sesv2::Client::from_conf(ses.build()),
            ssm: aws_sdk_ssm::Client::new(config),
            lambda: aws_sdk_lambda::Client::from_conf(lambda.build()),
            cloudwatch: aws_sdk_cloudwatch::Client::new(config),
            http: Http::default(),
            control,
        }
    }
}
