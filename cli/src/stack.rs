//! Which stack: found by CloudFormation's outputs, in the region and with the credentials that the environment says.

use std::{collections::BTreeMap, env, time::Duration};

use aws_config::{
    BehaviorVersion, Region, SdkConfig, profile::ProfileFileCredentialsProvider,
    provider_config::ProviderConfig, retry::RetryConfig, timeout::TimeoutConfig,
};
use sendslot_domain::Lane;
use sendslot_runtime::aws;

use crate::{
    args::Global,
    error::{self, Error, Place},
    invoke::Invoker,
};

/// How long a connection may take to open: people are farther from AWS than functions are.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a call other than an invocation may take, its retries included.
const CALL: Duration = Duration::from_secs(20);
/// How often a call is tried.
const TRIES: u32 = 3;

/// A stack, by its outputs.
pub struct Stack {
    /// Where it is.
    pub place: Place,
    name: String,
    state: String,
    config: SdkConfig,
    outputs: BTreeMap<String, String>,
}

impl Stack {
    /// Looks the stack up.
    ///
    /// # Errors
    /// When it isn't there, or AWS can't be asked.
    pub async fn find(global: &Global) -> Result<Self, Error> {
        let (config, place) = config(global).await?;
        let cloudformation = aws_sdk_cloudformation::Client::new(&config);
        let call = cloudformation.describe_stacks().stack_name(&global.stack);
        let found = call.send().await.map_err(|error| {
            let resource = format!("the stack {}", global.stack);
            error::aws(&error, "cloudformation:DescribeStacks", &resource, &place)
        })?;
        let Some(stack) = found.stacks().first() else {
            let stack = global.stack.clone();
            return Err(Error::NoStack { stack, place });
        };
        let state = stack.stack_status().map(|state| state.as_str().to_owned());
        let pairs = stack.outputs().iter();
        let outputs = pairs.filter_map(|output| {
            Some((
                output.output_key()?.to_owned(),
                output.output_value()?.to_owned(),
            ))
        });
        Ok(Self {
            name: global.stack.clone(),
            state: state.unwrap_or_default(),
            outputs: outputs.collect(),
            config,
            place,
        })
    }

    /// One of its outputs.
    ///
    /// # Errors
    /// When it has no such one.
    pub fn output(&self, output: &'static str) -> Result<&str, Error> {
        let value = self.outputs.get(output).map(String::as_str);
        value.ok_or_else(|| Error::NoOutput {
            stack: self.name.clone(),
            output,
            state: self.state.clone(),
            place: self.place.clone(),
        })
    }

    /// Where a lane's mail is handed in.
    ///
    /// # Errors
    /// When the stack doesn't say.
    pub fn intake_queue_url(&self, lane: Lane) -> Result<&str, Error> {
        self.output(match lane {
            Lane::Priority => "PriorityIntakeQueueUrl",
            Lane::Bulk => "BulkIntakeQueueUrl",
        })
    }

    /// What invokes its function `control`.
    ///
    /// # Errors
    /// When the stack doesn't name it.
    pub fn control(&self) -> Result<Invoker, Error> {
        let function = self.output("ControlFunctionName")?;
        Ok(Invoker::new(&self.config, function, self.place.clone()))
    }

    /// What invokes its function `quota-refresh`.
    ///
    /// # Errors
    /// When the stack doesn't name it.
    pub fn quota_refresh(&self) -> Result<Invoker, Error> {
        let function = self.output("QuotaRefreshFunctionName")?;
        Ok(Invoker::new(&self.config, function, self.place.clone()))
    }

    /// A client of SQS.
    #[must_use]
    pub fn sqs(&self) -> aws_sdk_sqs::Client {
        aws_sdk_sqs::Client::new(&self.config)
    }
}

/// The SDK's configuration, and where that is.
async fn config(global: &Global) -> Result<(SdkConfig, Place), Error> {
    let http = aws::http_client();
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT)
        .operation_timeout(CALL);
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http.clone())
        .retry_config(RetryConfig::standard().with_max_attempts(TRIES))
        .timeout_config(timeouts.build());
    if let Some(region) = &global.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(url) = &global.endpoint_url {
        loader = loader.endpoint_url(url);
    }
    if let Some(profile) = &global.profile {
        // Keys in the environment would come first otherwise, and be somebody else's.
        let mut from = ProviderConfig::without_region().with_http_client(http);
        if let Some(region) = &global.region {
            from = from.with_region(Some(Region::new(region.clone())));
        }
        let keys = ProfileFileCredentialsProvider::builder()
            .configure(&from)
            .profile_name(profile)
            .build();
        loader = loader.profile_name(profile).credentials_provider(keys);
    }
    let config = loader.load().await;
    let Some(region) = config.region() else {
        return Err(Error::NoRegion);
    };
    let profile = global.profile.clone();
    let place = Place::new(
        region.to_string(),
        profile.or_else(|| env::var("AWS_PROFILE").ok()),
        config.endpoint_url().map(str::to_owned),
    );
    Ok((config, place))
}
