//! Invokes a function and reads its answer.

use std::{env, fs, process, time::Duration};

use aws_config::{SdkConfig, timeout::TimeoutConfig};
use aws_sdk_lambda::{Client, primitives::Blob};
use sendslot_runtime::control::{Answer, Failure, Request};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use crate::error::{self, Error, Place};

/// How long a short call may take: `control` gives itself 10 s for it, after a cold start.
pub const SHORT: Duration = Duration::from_secs(20);
/// How long any call may take: functions run for 60 s at most.
pub const LONG: Duration = Duration::from_secs(75);
const ACTION: &str = "lambda:InvokeFunction";

/// Invokes one function.
#[derive(Clone)]
pub struct Invoker {
    lambda: Client,
    function: String,
    place: Place,
}

impl Invoker {
    /// Of this function, by name or ARN.
    #[must_use]
    pub fn new(config: &SdkConfig, function: &str, place: Place) -> Self {
        // Merged into what `config` has, so that its time-out for connecting stays.
        let timeouts = TimeoutConfig::builder().operation_timeout(LONG);
        let config = aws_sdk_lambda::config::Builder::from(config).timeout_config(timeouts.build());
        Self {
            lambda: Client::from_conf(config.build()),
            function: function.to_owned(),
            place,
        }
    }

    /// Asks `control`.
    ///
    /// # Errors
    /// When it can't be asked, doesn't answer within that time, or says that it failed.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        request: &Request,
        within: Duration,
    ) -> Result<T, Error> {
        let request =
            serde_json::to_vec(request).map_err(|error| Error::Other(error.to_string()))?;
        let answer = self.invoke(request, within).await?;
        Answer::parse(&answer).map_err(Error::Control)
    }

    /// Invokes the function with an empty object.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn nudge(&self, within: Duration) -> Result<Value, Error> {
        let answer = self.invoke(b"{}".to_vec(), within).await?;
        serde_json::from_slice(&answer).map_err(|error| {
            Error::Control(Failure {
                code: "bad_answer".to_owned(),
                message: format!("the answer of {} can't be read: {error}", self.function),
            })
        })
    }

    async fn invoke(&self, request: Vec<u8>, within: Duration) -> Result<Vec<u8>, Error> {
        let call = self.lambda.invoke().function_name(&self.function);
        let call = call.payload(Blob::new(request)).send();
        let Ok(answer) = timeout(within, call).await else {
            let place = self.place.clone();
            return Err(Error::TimedOut {
                action: ACTION,
                place,
            });
        };
        let answer =
            answer.map_err(|error| error::aws(&error, ACTION, &self.function, &self.place))?;
        let payload = answer.payload().map(Blob::as_ref).unwrap_or_default();
        match answer.function_error() {
            None => Ok(payload.to_vec()),
            Some(kind) => Err(Error::Function {
                function: self.function.clone(),
                detail: failed(kind, payload),
                place: self.place.clone(),
            }),
        }
    }
}

/// What Lambda says of a function that failed.
fn failed(kind: &str, payload: &[u8]) -> String {
    let told: Value = serde_json::from_slice(payload).unwrap_or_default();
    let word = |name: &str| told.get(name).and_then(Value::as_str).unwrap_or_default();
    match (word("errorType"), word("errorMessage")) {
        ("", "") => kind.to_owned(),
        ("", message) => message.to_owned(),
        (kind, message) => format!("{kind}: {message}"),
    }
}

/// Who asks, for the log: `cli:<user>@<host>`.
#[must_use]
pub fn caller() -> Option<String> {
    let var = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let run = |program: &str, args: &[&str]| {
        let told = process::Command::new(program).args(args).output().ok()?;
        let told = String::from_utf8(told.stdout).ok()?;
        Some(told).filter(|told| !told.trim().is_empty())
    };
    let user = var("USER")
        .or_else(|| var("LOGNAME"))
        .or_else(|| var("USERNAME"));
    let user = user.or_else(|| run("id", &["-un"]));
    let host = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host
        .or_else(|| var("HOSTNAME"))
        .or_else(|| run("hostname", &[]));
    let or = |value: Option<String>| {
        value.map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned())
    };
    Some(format!("cli:{}@{}", or(user), or(host)))
}
