//! The AWS SDK's configuration, with one HTTP client for all its clients.
//!
//! The SDK crates are built without a TLS library of their own; this is where they get one (rustls
//! on ring, as Redis has). Region, credentials and endpoints come from the SDK's own variables, so
//! `AWS_ENDPOINT_URL` and `AWS_ENDPOINT_URL_<SERVICE>` point the functions at an emulator.

use std::{env, time::Duration};

pub use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, ConfigLoader, SdkConfig, timeout::TimeoutConfig};
use aws_sdk_sqs::config::SharedHttpClient;
use aws_smithy_http_client::{
    Builder,
    tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode},
};

/// How long a connection to an AWS endpoint may take to open: a few round trips inside one region, TLS among them.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long one attempt may take, connecting included, until its answer begins. SQS and S3 take some 10 to 100 ms; a request
/// that hangs is on a connection that leads nowhere, and another attempt makes a new one.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(1_500);
/// How long a call may take, all its attempts and the pauses between them included: two attempts that hang, and what is left.
/// Functions bound their calls by the time they have; this is for those that nobody bounds.
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
/// How long an idle connection is kept. A function frozen between invocations wakes with connections that
/// the other side, or a load balancer or NAT between, has closed (the least of them after 60 s, AWS's load balancers' default;
/// a NAT gateway after 350 s), and a send on such a one ends in doubt: better to open a new one. The pool looks at
/// the age when it hands a connection out, so nothing has to run in time for it.
const IDLE_CONNECTION: Duration = Duration::from_secs(15);

/// The configuration that SDK clients are made from. `retry` is the SDK's own retrying: it
/// multiplies load, so what sends mail uses [`RetryConfig::disabled`], and has time-outs of its own.
pub async fn config(retry: RetryConfig) -> SdkConfig {
    let defaults = aws_config::defaults(BehaviorVersion::latest());
    configured(defaults, retry, IDLE_CONNECTION).load().await
}

fn configured(loader: ConfigLoader, retry: RetryConfig, idle: Duration) -> ConfigLoader {
    let tls = if only_plain_endpoints(env::vars()) {
        // Reading the system's certificates costs a cold start some milliseconds; nothing here
        // would look at them.
        TlsContext::builder()
            .with_trust_store(TrustStore::empty())
            .build()
    } else {
        TlsContext::builder().build()
    };
    let http = http(tls.unwrap_or_else(|_| TlsContext::default()), idle);
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(ATTEMPT_TIMEOUT)
        .operation_timeout(CALL_TIMEOUT);
    loader
        .http_client(http)
        .retry_config(retry)
        .timeout_config(timeouts.build())
}

/// The HTTP client alone, for what isn't a function: it trusts the system's certificates, as people's credentials may come from
/// elsewhere than the endpoint.
#[must_use]
pub fn http_client() -> SharedHttpClient {
    http(TlsContext::default(), IDLE_CONNECTION)
}

fn http(tls: TlsContext, idle: Duration) -> SharedHttpClient {
    Builder::new()
        .pool_idle_timeout(idle)
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .tls_context(tls)
        .build_https()
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
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::{TcpListener, TcpStream},
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
        time::Instant,
    };

    use aws_config::Region;
    use aws_sdk_sqs::{Client, config::Credentials};

    use super::*;

    /// Longer than any test.
    const HANGS: Duration = Duration::from_mins(10);

    /// A server that says nothing, or answers every request with an empty object. It counts its connections.
    fn server(answers: bool) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let connections = Arc::<AtomicUsize>::default();
        let count = connections.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let stream = stream.unwrap();
                thread::spawn(move || {
                    while answers && answer(&stream).is_some() {}
                    // Held, so that it isn't closed.
                    thread::sleep(if answers { Duration::ZERO } else { HANGS });
                });
            }
        });
        (url, connections)
    }

    fn answer(mut stream: &TcpStream) -> Option<()> {
        let mut from = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            from.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse().ok()?;
            }
        }
        from.read_exact(&mut vec![0; length]).ok()?;
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(answer).ok()
    }

    async fn sqs(url: &str, idle: Duration) -> Client {
        let loader = aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new("eu-west-1"))
            .credentials_provider(Credentials::new("id", "key", None, None, "test"))
            .endpoint_url(url);
        let loader = configured(loader, RetryConfig::disabled(), idle);
        Client::new(&loader.load().await)
    }

    #[tokio::test]
    async fn a_connection_that_was_idle_for_long_is_not_used_again() {
        let (url, connections) = server(true);
        let sqs = sqs(&url, Duration::from_millis(250)).await;
        for (pause, expected) in [(0, 1), (0, 1), (500, 2), (0, 2)] {
            // As a frozen function does: nothing runs meanwhile.
            thread::sleep(Duration::from_millis(pause));
            sqs.list_queues().send().await.unwrap();
            assert_eq!(connections.load(Ordering::SeqCst), expected);
        }
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_is_given_up() {
        let (url, connections) = server(false);
        let sqs = sqs(&url, IDLE_CONNECTION).await;
        let start = Instant::now();
        assert!(sqs.list_queues().send().await.is_err());
        let took = start.elapsed();
        assert!((ATTEMPT_TIMEOUT..CALL_TIMEOUT).contains(&took), "{took:?}");
        assert_eq!(connections.load(Ordering::SeqCst), 1);
        assert_eq!(
            sqs.config()
                .timeout_config()
                .and_then(TimeoutConfig::operation_timeout),
            Some(CALL_TIMEOUT)
        );
    }

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
