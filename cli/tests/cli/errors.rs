//! What, where, and what to do: whole texts, and exit codes.

use std::{net::TcpListener, thread, time::Duration};

use aws_config::{BehaviorVersion, Region};
use aws_sdk_lambda::config::Credentials;
use sendslot::{
    error::{Error, Place},
    invoke::Invoker,
};
use sendslot_runtime::{
    aws::http_client,
    control::{Ask, Request, Status},
};
use serde_json::json;

use crate::{
    aws::{Aws, OUTPUTS, Reply, stack},
    run::{Ran, at, bare, run, sendslot},
};

/// Of a failure: the text on standard error, with the server's address left out.
#[track_caller]
fn failed(ran: &Ran, url: &str) -> String {
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert_eq!(ran.out, "");
    ran.err.replace(url, "URL")
}

#[test]
fn no_region() {
    let ran = run(bare(&["status"]));
    assert_eq!(
        failed(&ran, "URL"),
        "error: no AWS region is set\n  do: give --region, set AWS_REGION, or give the profile a region\n"
    );
}

#[test]
fn no_credentials() {
    let ran = run(bare(&["status", "--region", "eu-west-1"]));
    assert_eq!(
        failed(&ran, "URL"),
        "error: no AWS credentials were found\n  where: eu-west-1\n  do: sign in (`aws sso login`), name another profile \
         with --profile or AWS_PROFILE, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY\n"
    );
}

#[test]
fn expired_credentials() {
    let aws = Aws::answering(|_| {
        Reply::cloudformation(
            403,
            "ExpiredToken",
            "The security token included in the request is expired",
        )
    });
    assert_eq!(
        failed(&sendslot(&aws, &["status"]), &aws.url),
        "error: the AWS credentials have expired\n  where: eu-west-1, endpoint URL\n  do: sign in anew (`aws sso login`), or \
         renew the keys in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN\n"
    );
}

#[test]
fn credentials_that_aws_does_not_know() {
    let aws = Aws::answering(|_| {
        Reply::cloudformation(
            403,
            "InvalidClientTokenId",
            "The security token included in the request is invalid.",
        )
    });
    let text = failed(&sendslot(&aws, &["status"]), &aws.url);
    assert!(
        text.starts_with(
            "error: AWS doesn't take these credentials (InvalidClientTokenId)\n  where: eu-west-1"
        ),
        "{text}"
    );
}

#[test]
fn no_stack() {
    let aws = Aws::answering(|_| {
        Reply::cloudformation(400, "ValidationError", "Stack with id mails does not exist")
    });
    let ran = sendslot(&aws, &["status", "--stack", "mails"]);
    assert_eq!(
        failed(&ran, &aws.url),
        "error: there is no stack \"mails\"\n  where: eu-west-1, endpoint URL\n  do: see whether region and account are the stack's \
         (--region, --profile), and its name (--stack or SENDSLOT_STACK); `aws sts get-caller-identity` says which account this is\n"
    );
    let asked = aws.asked();
    assert_eq!(asked.len(), 1);
    assert!(
        asked[0].body.contains("StackName=mails"),
        "{}",
        asked[0].body
    );
}

#[test]
fn a_stack_of_something_else() {
    let aws = Aws::answering(|_| stack(&[("WebsiteUrl", "https://www.example.com")]));
    assert_eq!(
        failed(&sendslot(&aws, &["status"]), &aws.url),
        "error: the stack \"sendslot\" has no output ControlFunctionName\n  where: eu-west-1, endpoint URL\n  do: it stands at \
         CREATE_COMPLETE: if it is being made, wait; if it is older than this command, deploy it anew; if it is another stack, name \
         the right one with --stack\n"
    );
}

#[test]
fn no_permission_to_look_up() {
    let aws = Aws::answering(|_| {
        let message = "User: arn:aws:iam::1:user/somebody is not authorized";
        Reply::cloudformation(403, "AccessDenied", message)
    });
    let text = failed(&sendslot(&aws, &["status"]), &aws.url);
    assert_eq!(
        text,
        "error: no permission: cloudformation:DescribeStacks on the stack sendslot isn't allowed\n  where: eu-west-1, endpoint URL\n  \
         do: ask whoever runs the account to allow cloudformation:DescribeStacks on the stack sendslot, or name another profile with \
         --profile\n"
    );
}

#[test]
fn no_permission_to_invoke() {
    let aws = Aws::invoked(vec![Reply::lambda(403, "AccessDeniedException")]);
    let text = failed(&sendslot(&aws, &["status"]), &aws.url);
    assert!(
        text.starts_with(
            "error: no permission: lambda:InvokeFunction on sendslot-control isn't allowed\n"
        ),
        "{text}"
    );
    assert!(!text.contains("somebody"), "{text}");
}

#[test]
fn a_function_that_is_gone() {
    let aws = Aws::invoked(vec![Reply::lambda(404, "ResourceNotFoundException")]);
    assert_eq!(
        failed(&sendslot(&aws, &["status"]), &aws.url),
        "error: the function sendslot-control isn't there\n  where: eu-west-1, endpoint URL\n  do: it was deleted, or is in another \
         region: deploy the stack anew\n"
    );
}

#[test]
fn a_function_that_crashed() {
    let answer =
        json!({ "errorType": "Runtime.ExitError", "errorMessage": "exited with status 1" });
    let crash = Reply::json(&answer).header("x-amz-function-error", "Unhandled");
    let aws = Aws::invoked(vec![crash]);
    assert_eq!(
        failed(&sendslot(&aws, &["status"]), &aws.url),
        "error: the function sendslot-control failed: Runtime.ExitError: exited with status 1\n  where: eu-west-1, endpoint URL\n  do: \
         see its log: `aws logs tail /aws/lambda/sendslot-control --since 10m`\n"
    );
}

#[test]
fn control_says_that_it_failed() {
    let aws = Aws::invoked(vec![Reply::json(&json!({
        "error": { "code": "not_built", "message": "not built yet" }
    }))]);
    assert_eq!(
        failed(&sendslot(&aws, &["find", "acme", "order-1"]), &aws.url),
        "error: control: not_built: not built yet\n  do: the stack is older than this command: deploy it anew (`make deploy`)\n"
    );
}

#[test]
fn an_answer_that_cannot_be_read() {
    let aws = Aws::invoked(vec![Reply::with(200, "[1, 2")]);
    let text = failed(&sendslot(&aws, &["status"]), &aws.url);
    assert!(text.contains("bad_answer"), "{text}");
    assert!(text.contains("different versions"), "{text}");
}

#[test]
fn throttled_calls_are_tried_again_and_then_told() {
    let aws = Aws::invoked(vec![Reply::lambda(429, "TooManyRequestsException")]);
    let text = failed(&sendslot(&aws, &["status"]), &aws.url);
    assert!(
        text.starts_with("error: AWS throttles: lambda:InvokeFunction was asked too often\n"),
        "{text}"
    );
    assert_eq!(aws.payloads().len(), 3);
}

#[test]
fn an_error_of_aws_that_nobody_thought_of() {
    let aws = Aws::invoked(vec![Reply::lambda(502, "EC2UnexpectedException")]);
    let text = failed(&sendslot(&aws, &["status"]), &aws.url);
    assert!(
        text.starts_with("error: lambda:InvokeFunction failed: EC2UnexpectedException: "),
        "{text}"
    );
}

#[test]
fn nobody_listens() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let ran = run(at(&format!("http://{port}"), &["status"]));
    let text = failed(&ran, &port.to_string());
    assert!(
        text.starts_with("error: the endpoint can't be reached: "),
        "{text}"
    );
    assert!(text.contains("efused"), "{text}");
    assert!(
        text.ends_with("where: eu-west-1, endpoint http://URL\n  do: see whether something listens there, or what --endpoint-url and AWS_ENDPOINT_URL say\n"),
        "{text}"
    );
}

#[tokio::test]
async fn no_answer_in_time() {
    let silent = Aws::answering(|_| {
        thread::sleep(Duration::from_secs(30));
        Reply::with(200, "{}")
    });
    let config = aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("id", "key", None, None, "test"))
        .http_client(http_client())
        .endpoint_url(&silent.url)
        .load()
        .await;
    let place = Place::new("eu-west-1".to_owned(), None, None);
    let control = Invoker::new(&config, "sendslot-control", place);
    let request = Request::Status(Ask::default());
    let answer = control
        .ask::<Status>(&request, Duration::from_millis(200))
        .await;
    let error = answer.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert_eq!(
        error.text(),
        "error: no answer in time to lambda:InvokeFunction\n  where: eu-west-1\n  do: it may have been done all the same: see with \
         `sendslot status`, then try again"
    );
}

#[test]
fn with_json_an_error_is_json_and_text_is_on_standard_error() {
    let aws = Aws::invoked(vec![Reply::json(&json!({
        "error": { "code": "unknown_tenant", "message": "no tenant acne" }
    }))]);
    let ran = sendslot(&aws, &["--json", "resume", "acne"]);
    assert_eq!(ran.code, 1);
    assert_eq!(
        ran.json(),
        json!({ "error": {
            "code": "unknown_tenant",
            "message": "no tenant acne",
            "where": null,
            "do": "see `sendslot tenant list` for the names",
        }})
    );
    assert!(
        ran.err
            .starts_with("error: control: unknown_tenant: no tenant acne\n")
    );
}

#[test]
fn the_stacks_name_and_place_come_from_options_or_the_environment() {
    let aws = Aws::answering(|_| stack(&OUTPUTS[1..]));
    let mut command = at(
        "http://127.0.0.1:9",
        &[
            "status",
            "--endpoint-url",
            &aws.url,
            "--region",
            "us-east-2",
        ],
    );
    command.env("SENDSLOT_STACK", "other");
    let text = failed(&run(command), &aws.url);
    assert!(
        text.contains("the stack \"other\" has no output ControlFunctionName"),
        "{text}"
    );
    assert!(text.contains("where: us-east-2, endpoint URL"), "{text}");
    let asked = aws.asked();
    assert!(asked[0].body.contains("StackName=other"));
    assert!(asked[0].headers["authorization"].contains("/us-east-2/cloudformation/"));
}
