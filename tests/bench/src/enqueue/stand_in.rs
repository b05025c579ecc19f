//! A queue that takes everything and keeps nothing, and a stack that has it: as much of SQS and CloudFormation as is needed to
//! measure who calls them.

use std::time::Duration;

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::any,
};
use tokio::{net::TcpListener, time::sleep};

use super::Result;

/// Serves on a free port until the process ends. Prints the queue's URL.
pub(crate) async fn serve(after: Duration) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/000000000000/intake", listener.local_addr()?);
    println!("{url}");
    let router = Router::new().fallback(any(answer)).with_state((after, url));
    axum::serve(listener, router).await?;
    Ok(())
}

async fn answer(
    State((after, url)): State<(Duration, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !headers.contains_key("x-amz-target") {
        return ([(CONTENT_TYPE, "text/xml")], stack(&url)).into_response();
    }
    if !after.is_zero() {
        sleep(after).await;
    }
    let entries = body.windows(5).filter(|part| part == b"\"Id\":").count();
    let taken: Vec<String> = (0..entries)
        .map(|id| format!(r#"{{"Id":"{id}","MessageId":"00000000-0000-0000-0000-000000000000","MD5OfMessageBody":"00000000000000000000000000000000"}}"#))
        .collect();
    let body = format!(r#"{{"Successful":[{}],"Failed":[]}}"#, taken.join(","));
    ([(CONTENT_TYPE, "application/x-amz-json-1.0")], body).into_response()
}

/// What CloudFormation says of it.
fn stack(url: &str) -> String {
    let outputs = ["BulkIntakeQueueUrl", "PriorityIntakeQueueUrl"]
        .map(|name| {
            format!(
                "<member><OutputKey>{name}</OutputKey><OutputValue>{url}</OutputValue></member>"
            )
        })
        .concat();
    format!(
        r#"<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/"><DescribeStacksResult><Stacks><member><StackName>sendslot</StackName><CreationTime>2026-01-01T00:00:00Z</CreationTime><StackStatus>CREATE_COMPLETE</StackStatus><Outputs>{outputs}</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>"#
    )
}
