//! S3 through the SDK, over HTTP.

use aws_sdk_s3::config::{BehaviorVersion, Builder, Credentials, Region};
use send::ports::Parking;
use sendslot_runtime::bucket::Bucket;
use serde_json::json;

use crate::ses::{Does, Server};

fn bucket(url: &str) -> Bucket {
    let config = Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("id", "key", None, None, "test"))
        .endpoint_url(url)
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    Bucket::new(config, "sendslot-parked".into())
}

#[tokio::test]
async fn a_mail_is_put_under_its_key() {
    let server = Server::that(Does::Answer(200, "", "", String::new())).await;
    let body = json!({ "v": 1, "send_id": "a" });
    let key = "parked/acme/1799999995000-paused-bulk-a.json";
    let done = bucket(&server.url).park(key.into(), body.to_string()).await;
    assert_eq!(done, Ok(()));
    let (line, sent) = server.requests().remove(0);
    let path = line.split(['?', ' ']).nth(1);
    assert_eq!(
        path,
        Some(format!("/sendslot-parked/{key}").as_str()),
        "{line}"
    );
    assert!(line.starts_with("put "));
    assert_eq!(sent, body);
}

#[tokio::test]
async fn what_s3_refuses_is_not_parked() {
    let server = Server::that(Does::Answer(403, "AccessDenied", "", String::new())).await;
    let bucket = bucket(&server.url);
    let done = bucket.park("parked/acme/1.json".into(), "{}".into());
    assert!(done.await.is_err());
}
