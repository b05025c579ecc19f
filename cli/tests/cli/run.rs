//! Runs the command in an environment that holds nothing else.

use std::{
    env, fs,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::Value;

use crate::aws::Aws;

/// How the command ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    /// Standard output as one JSON document.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// Standard output as lines of JSON.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let lines = self.out.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// A folder of this test's own.
pub(crate) fn folder() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("cli-{}-{next}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The command, with no credentials and no region.
pub(crate) fn bare(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sendslot"));
    command
        .args(args)
        .env_clear()
        .envs(env::var_os("PATH").map(|path| ("PATH", path)))
        .env("HOME", folder())
        .env("USER", "ann")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The command, with keys and a region, and with AWS at this address.
pub(crate) fn at(url: &str, args: &[&str]) -> Command {
    let mut command = bare(args);
    command
        .env("AWS_ENDPOINT_URL", url)
        .env("AWS_REGION", "eu-west-1")
        .env("AWS_ACCESS_KEY_ID", "AKIDENV")
        .env("AWS_SECRET_ACCESS_KEY", "secret");
    command
}

/// Runs it to its end.
pub(crate) fn run(mut command: Command) -> Ran {
    command.output().unwrap().into()
}

/// Runs the command against this server.
pub(crate) fn sendslot(aws: &Aws, args: &[&str]) -> Ran {
    run(at(&aws.url, args))
}

/// Sends Ctrl-C.
pub(crate) fn interrupt(child: &Child) {
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
}
