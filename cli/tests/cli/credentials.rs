//! Whose credentials are used.

use std::{fs, process::Command};

use serde_json::json;

use crate::{
    aws::{Aws, Reply},
    run::{at, bare, folder, run},
};

/// A configuration of AWS's, for `command`.
fn configured(command: &mut Command, config: &str) {
    let path = folder().join("config");
    fs::write(&path, config).unwrap();
    command.env("AWS_CONFIG_FILE", path);
}

fn status() -> Reply {
    Reply::json(&json!({ "redis": { "ok": true } }))
}

/// The key that all calls were signed with.
fn key(aws: &Aws) -> String {
    let keys = aws.asked().into_iter().map(|asked| {
        let signed = &asked.headers["authorization"];
        let (_, key) = signed.split_once("Credential=").unwrap();
        key.split('/').next().unwrap().to_owned()
    });
    let mut keys: Vec<String> = keys.collect();
    keys.dedup();
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys.remove(0)
}

#[test]
fn the_environments() {
    let aws = Aws::invoked(vec![status()]);
    assert_eq!(run(at(&aws.url, &["status"])).code, 0);
    assert_eq!(key(&aws), "AKIDENV");
}

const PROFILES: &str = "\
[profile keys]
region = eu-north-1
aws_access_key_id = AKIDPROFILE
aws_secret_access_key = secret

[profile process]
region = eu-north-1
credential_process = echo '{\"Version\": 1, \"AccessKeyId\": \"AKIDPROCESS\", \"SecretAccessKey\": \"secret\"}'

[profile single]
region = eu-north-1
sso_session = company
sso_account_id = 123456789012
sso_role_name = operator

[sso-session company]
sso_start_url = https://company.awsapps.com/start
sso_region = eu-north-1
sso_registration_scopes = sso:account:access
";

#[test]
fn a_named_profiles_before_those_in_the_environment() {
    let aws = Aws::invoked(vec![status()]);
    let mut command = at(&aws.url, &["status", "--profile", "keys"]);
    configured(&mut command, PROFILES);
    let ran = run(command);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(key(&aws), "AKIDPROFILE");
}

#[test]
fn a_process_ones_and_the_profiles_region() {
    let aws = Aws::invoked(vec![status()]);
    for named in [true, false] {
        let args = ["status", "--endpoint-url", &aws.url, "--profile", "process"];
        let mut command = bare(if named { &args } else { &args[..3] });
        configured(&mut command, PROFILES);
        if !named {
            command.env("AWS_PROFILE", "process");
        }
        let ran = run(command);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(key(&aws), "AKIDPROCESS");
    }
    let signed = &aws.asked()[0].headers["authorization"];
    assert!(signed.contains("/eu-north-1/"), "{signed}");
}

#[test]
fn single_sign_on_says_how_to_sign_in() {
    let mut command = bare(&["status", "--profile", "single"]);
    configured(&mut command, PROFILES);
    let ran = run(command);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains("`aws sso login --profile single`"),
        "{}",
        ran.err
    );
    assert!(
        ran.err.contains("where: eu-north-1, profile \"single\""),
        "{}",
        ran.err
    );
}

#[test]
fn single_sign_on_that_is_over() {
    let mut command = bare(&["status", "--profile", "single"]);
    configured(&mut command, PROFILES);
    let home = folder();
    let cache = home.join(".aws/sso/cache");
    fs::create_dir_all(&cache).unwrap();
    // Named by the SHA-1 of the session's name.
    let token = json!({ "accessToken": "token", "expiresAt": "2020-01-01T00:00:00Z", "region": "eu-north-1",
                        "startUrl": "https://company.awsapps.com/start" });
    let name = "71b21161ffa1e6516bcc072aaf5ef38cbe85b511.json";
    fs::write(cache.join(name), token.to_string()).unwrap();
    command.env("HOME", &home);
    let ran = run(command);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.starts_with("error: the AWS credentials have expired\n  where: eu-north-1, profile \"single\"\n  do: sign in anew (`aws sso login --profile single`)"),
        "{}",
        ran.err
    );
}

#[test]
fn a_profile_that_is_not_there() {
    let mut command = bare(&["status", "--profile", "nobody", "--region", "eu-west-1"]);
    configured(&mut command, PROFILES);
    let ran = run(command);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.starts_with("error: no AWS credentials were found"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("nobody"), "{}", ran.err);
}
