//! S3 through the SDK, over HTTP.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use aws_sdk_s3::config::{BehaviorVersion, Builder, Credentials, Region};
use control::{
    bucket::Bucket,
    ports::{Parked, ParkedMail, Removed},
};
use sendslot_runtime::parking::{ParkedKey, Reason};

use crate::fakes::locked;

const KEY: &str = "parked/acme/1799999995000-paused-bulk-a.json";
/// What a request began with, in lower case: its first line and its headers.
type Heads = Arc<Mutex<Vec<String>>>;

/// A bucket whose server answers each request with this status, these headers and this body.
fn bucket(status: u16, headers: &'static str, body: &'static str) -> (Bucket, Heads) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let heads = Heads::default();
    let seen = heads.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            while let Some(head) = head(&stream) {
                locked(&seen).push(head);
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status} Any\r\n{headers}content-length: {length}\r\n\r\n{body}"
                );
                (&stream).write_all(answer.as_bytes()).expect("a reader");
            }
        }
    });
    let config = Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("id", "key", None, None, "test"))
        .endpoint_url(url)
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    (Bucket::new(config, "parking".into()), heads)
}

fn head(stream: &TcpStream) -> Option<String> {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    (!head.is_empty()).then(|| head.join("\n").to_ascii_lowercase())
}

fn key() -> ParkedKey {
    KEY.parse().expect("a key")
}

#[tokio::test]
async fn a_mail_is_fetched_with_its_etag() {
    let (s3, heads) = bucket(200, "etag: \"0a1b\"\r\n", "{\"v\":1}");
    let mail = s3.fetch(&key()).await.expect("an answer").expect("a mail");
    let expected = ParkedMail {
        body: b"{\"v\":1}".to_vec(),
        tag: "\"0a1b\"".into(),
    };
    assert_eq!(mail, expected);
    let head = locked(&heads).remove(0);
    assert!(head.starts_with(&format!("get /parking/{KEY}")), "{head}");

    let (s3, _) = bucket(200, "", "{}");
    let error = s3.fetch(&key()).await.expect_err("nothing to tell it by");
    assert_eq!(error, "S3 gave no ETag");
    let (s3, _) = bucket(404, "", "<Error><Code>NoSuchKey</Code></Error>");
    assert_eq!(s3.fetch(&key()).await, Ok(None));
}

#[tokio::test]
async fn only_what_was_fetched_is_removed() {
    for (status, body, removed) in [
        (204, "", Some(Removed::Gone)),
        (
            404,
            "<Error><Code>NoSuchKey</Code></Error>",
            Some(Removed::NotThere),
        ),
        (
            412,
            "<Error><Code>PreconditionFailed</Code></Error>",
            Some(Removed::ParkedAnew),
        ),
        (
            409,
            "<Error><Code>ConditionalRequestConflict</Code></Error>",
            Some(Removed::ParkedAnew),
        ),
        (403, "<Error><Code>AccessDenied</Code></Error>", None),
    ] {
        let (s3, heads) = bucket(status, "", body);
        let done = s3.remove(&key(), "\"0a1b\"").await;
        assert_eq!(done.ok(), removed, "{status}");
        let head = locked(&heads).remove(0);
        assert!(
            head.starts_with(&format!("delete /parking/{KEY}")),
            "{head}"
        );
        assert!(head.contains("\nif-match: \"0a1b\""), "{head}");
    }
}

#[tokio::test]
async fn the_list_begins_behind_a_key() {
    let page = "<ListBucketResult><Contents><Key>parked/acme/1799999995000-paused-bulk-a.json</Key></Contents>\
                <Contents><Key>parked/acme/1799999995000-uncertain-bulk-b.json</Key></Contents></ListBucketResult>";
    let tenant = "acme".parse().expect("a name");
    for (after, expected) in [(None, false), (Some(key()), true)] {
        let (s3, heads) = bucket(200, "", page);
        let paused = Some(Reason::Paused);
        let keys = s3.oldest(&tenant, paused, after.as_ref(), 5).await;
        assert_eq!(keys, Ok(vec![key()]));
        let head = locked(&heads).remove(0);
        let line = head.lines().next().unwrap_or_default();
        let after = "start-after=parked%2facme%2f1799999995000-paused-bulk-a.json";
        assert_eq!(line.contains(after), expected, "{line}");
        assert!(line.contains("prefix=parked%2facme%2f"), "{line}");
    }
}

#[tokio::test]
async fn the_oldest_of_whatever_reason_is_one_small_page() {
    let page = "<ListBucketResult><Contents><Key>parked/acme/1799999994000-uncertain-bulk-b.json</Key></Contents>\
                </ListBucketResult>";
    let (s3, heads) = bucket(200, "", page);
    let tenant = "acme".parse().expect("a name");
    let keys = s3.oldest(&tenant, None, None, 1).await.expect("keys");
    assert_eq!(keys[0].reason, Reason::Uncertain);
    let head = locked(&heads).remove(0);
    assert!(head.contains("max-keys=1&"), "{head}");
    // Among others, what is looked for may be far behind.
    let keys = s3.oldest(&tenant, Some(Reason::Paused), None, 1).await;
    assert_eq!(keys, Ok(Vec::new()));
    let head = locked(&heads).remove(0);
    assert!(head.contains("max-keys=100&"), "{head}");
}

#[tokio::test]
async fn tenants_are_listed_by_their_folders() {
    let page = "<ListBucketResult><CommonPrefixes><Prefix>parked/acme/</Prefix></CommonPrefixes>\
                <CommonPrefixes><Prefix>parked/no name/</Prefix></CommonPrefixes>\
                <CommonPrefixes><Prefix>parked/beta-1/</Prefix></CommonPrefixes></ListBucketResult>";
    let (s3, heads) = bucket(200, "", page);
    let tenants = s3.tenants().await.expect("tenants");
    let names: Vec<_> = tenants
        .iter()
        .map(sendslot_domain::TenantName::as_str)
        .collect();
    assert_eq!(names, ["acme", "beta-1"]);
    let head = locked(&heads).remove(0);
    for part in ["list-type=2", "prefix=parked%2f", "delimiter=%2f"] {
        assert!(head.contains(part), "{head}");
    }
    let (s3, _) = bucket(403, "", "<Error><Code>AccessDenied</Code></Error>");
    assert!(s3.tenants().await.is_err());
}
