//! The answer to CloudFormation, over HTTP.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use lambda_runtime::tracing::subscriber::{self, fmt::MakeWriter};
use quota_refresh::{event::ResponseUrl, ports::Respond};
use tracing::Level;

use crate::server::{Does, Server};

const QUERY: &str = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=hunter2";
const PATH: &str = "/arn%3Aaws%3Acloudformation%3Aeu-west-1%3Astack/sendslot%7CRefresh";

/// All that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn the_answer_is_put_as_it_is_with_nothing_that_was_not_signed() {
    let server = Server::that([Does::Answer(200, "", Vec::new())]).await;
    let url = ResponseUrl::of(&format!("{}{PATH}?{QUERY}", server.url));
    let put = server
        .aws()
        .await
        .put(&url, r#"{"Status":"SUCCESS"}"#)
        .await;
    assert_eq!(put, Ok(()));
    let asked = server.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].line, format!("PUT {PATH}?{QUERY} HTTP/1.1"));
    assert_eq!(asked[0].body, r#"{"Status":"SUCCESS"}"#);
    let headers = &asked[0].headers;
    // S3 takes no chunks.
    assert!(
        headers.contains(&"content-length: 20".to_owned()),
        "{headers:?}"
    );
    let lengths = headers.iter().filter(|h| h.starts_with("content-length"));
    assert_eq!(lengths.count(), 1);
    assert!(
        headers.iter().any(|h| h.trim_end() == "content-type:"),
        "{headers:?}"
    );
    for unsigned in ["authorization", "x-amz", "transfer-encoding"] {
        assert!(
            !headers.iter().any(|h| h.starts_with(unsigned)),
            "{headers:?}"
        );
    }
}

#[tokio::test]
async fn neither_errors_nor_logs_show_the_url() {
    let log = Log::default();
    let all = subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_writer(log.clone());
    let _logged = tracing::subscriber::set_default(all.finish());
    for (does, expected) in [
        (Does::Answer(403, "", "<Error/>".into()), "status 403"),
        (Does::Answer(503, "", Vec::new()), "status 503"),
        (Does::Close, "no connection, or it broke"),
    ] {
        let server = Server::that([does]).await;
        let url = ResponseUrl::of(&format!("{}{PATH}?{QUERY}", server.url));
        let aws = server.aws().await;
        assert_eq!(aws.put(&url, "{}").await, Err(expected.into()));
    }
    let server = Server::that([Does::Close]).await;
    let aws = server.aws().await;
    for (url, expected) in [
        (
            format!("http://127.0.0.1:1{PATH}?{QUERY}"),
            "no connection, or it broke",
        ),
        (
            format!("https://127.0.0.1:1{PATH}?{QUERY}"),
            "no connection, or it broke",
        ),
        // TLS with a server that knows none.
        (
            format!("{}{PATH}?{QUERY}", server.url.replace("http:", "https:")),
            "no connection, or it broke",
        ),
        (format!("a b{PATH}?{QUERY}"), "no URL"),
        (QUERY.to_owned(), "no URL"),
    ] {
        let url = ResponseUrl::of(&url);
        assert_eq!(aws.put(&url, "{}").await, Err(expected.into()));
    }
    tracing::info!("the end");
    let log = log.0.lock().unwrap_or_else(PoisonError::into_inner);
    let log = String::from_utf8_lossy(&log);
    assert!(log.contains("the end"));
    let shown = log.lines().find(|line| line.contains("hunter2"));
    assert_eq!(shown, None);
}
