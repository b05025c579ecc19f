//! The AWS SDK's configuration, with one HTTP client for all its clients.
//!
//! The SDK crates are built without a TLS library of their own; this is where they get one (rustls
//! on ring, as Redis has). Region, credentials and endpoints come from the SDK's own variables, so
//! `AWS_ENDPOINT_URL` and `AWS_ENDPOINT_URL_<SERVICE>` point the functions at an emulator.

use std::env;

pub use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, SdkConfig, timeout::TimeoutConfig};
use aws_smithy_http_client::{
    Builder,
    tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode},
};
use std::time::Duration;

/// How long a connection to an AWS endpoint may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an idle connection is kept. A function frozen between invocations wakes with connections that
/// the other side has closed, and a send on such a one ends in doubt: better to open a new one.
const IDLE_CONNECTION: Duration = Duration::from_secs(15);

/// The configuration that SDK clients are made from. `retry` is the SDK's own retrying: it
/// multiplies load, so what sends mail uses [`RetryConfig::disabled`].
pub async fn config(retry: RetryConfig) -> SdkConfig {
    let tls = if only_plain_endpoints(env::vars()) {
        // Reading the system's certificates costs a cold start some milliseconds; nothing here
        // would look at them.
        TlsContext::builder()
            .with_trust_store(TrustStore::empty())
            .build()
    } else {
        TlsContext::builder().build()
    };
    let tls = tls.unwrap_or_else(|_| TlsContext::default());
    let http = Builder::new()
        .pool_idle_timeout(IDLE_CONNECTION)
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .tls_context(tls)
        .build_https();
    aws_config::defaults(BehaviorVersion::latest())
        .http_client(http)
        .retry_config(retry)
        .timeout_config(
            TimeoutConfig::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                .build(),
        )
        .load()
        .await
}

/// Whether every call goes to an `http://` endpoint: one is set for all services, and none of those
/// set for a single service is anything else.
fn only_plain_endpoints(vars: impl Iterator<Item = (String, String)>) -> bool {
    let mut for_all = false;
    for (name, value) in vars.filter(|(name, _)| name.starts_with("AWS_ENDPOINT_URL")) {
        if !value.starts_with("http://") {
            return false;
        }
        for_all |= name == "AWS_ENDPOINT_URL";
    }
    for_all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(vars: &[(&str, &str)]) -> bool {
        only_plain_endpoints(vars.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())))
    }

    #[test]
    fn certificates_are_read_unless_every_endpoint_is_plain() {
        let all = ("AWS_ENDPOINT_URL", "http://127.0.0.1:4566");
        assert!(plain(&[all]));
        assert!(plain(&[
            all,
            ("AWS_ENDPOINT_URL_SESV2", "http://127.0.0.1:9")
        ]));
        assert!(!plain(&[all, ("AWS_ENDPOINT_URL_SESV2", "https://email")]));
        assert!(!plain(&[("AWS_ENDPOINT_URL_SQS", "http://127.0.0.1:4566")]));
        assert!(!plain(&[("AWS_ENDPOINT_URL", "https://aws")]));
        assert!(!plain(&[]));
    }
}
