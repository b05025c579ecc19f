//! The answer to CloudFormation: one PUT to a presigned URL.

use std::sync::OnceLock;

use aws_smithy_http_client::{
    Connector,
    tls::{Provider, rustls_provider::CryptoMode},
};
use aws_smithy_runtime_api::client::{
    http::HttpConnector, orchestrator::HttpRequest, result::ConnectorError,
};
use aws_smithy_types::body::SdkBody;

use crate::{aws::Aws, event::ResponseUrl, ports::Respond};

/// An HTTP client for plain URLs, which an emulator gives, and one for those with TLS. Each is made when it is needed: most
/// invocations need none, and certificates take time to read.
#[derive(Debug, Default)]
pub(crate) struct Http {
    plain: OnceLock<Connector>,
    tls: OnceLock<Connector>,
}

impl Http {
    fn connector(&self, url: &str) -> &Connector {
        if url.starts_with("http://") {
            return self.plain.get_or_init(|| Connector::builder().build_http());
        }
        self.tls.get_or_init(|| {
            Connector::builder()
                .tls_provider(Provider::Rustls(CryptoMode::Ring))
                .build()
        })
    }
}

impl Respond for Aws {
    async fn put(&self, url: &ResponseUrl, body: &str) -> Result<(), String> {
        let url = url.reveal();
        // Not left to the client, which logs such a URL.
        if !url.starts_with("https://") && !url.starts_with("http://") {
            return Err("no URL".to_owned());
        }
        let mut request = HttpRequest::new(SdkBody::from(body));
        request.set_method("PUT").map_err(|_| "no method")?;
        request.set_uri(url).map_err(|_| "no URL")?;
        // S3 has signed that there is none.
        request.headers_mut().insert("content-type", "");
        let length = body.len().to_string();
        request.headers_mut().insert("content-length", length);
        let answer = self.http.connector(url).call(request).await;
        // In words of our own: an error's may hold the URL.
        let status = answer.map_err(|error| why(&error))?.status();
        if status.is_success() {
            return Ok(());
        }
        Err(format!("status {}", status.as_u16()))
    }
}

fn why(error: &ConnectorError) -> &'static str {
    if error.is_timeout() {
        "no connection in time"
    } else if error.is_user() {
        "no request can be made of it"
    } else {
        "no connection, or it broke"
    }
}
