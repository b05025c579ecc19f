//! What can go wrong: what, where, and what to do.

use std::{error::Error as StdError, fmt, io, sync::Arc};

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_lambda::{
    config::http::HttpResponse,
    error::{ProvideErrorMetadata, SdkError},
};
use sendslot_runtime::control::Failure;
use serde_json::{Value, json};

/// Where AWS is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(Arc<Where>);

#[derive(Debug, PartialEq, Eq)]
struct Where {
    region: String,
    profile: Option<String>,
    endpoint: Option<String>,
}

impl Place {
    /// In this region, with this profile if one was named, at this endpoint if it isn't AWS's own.
    #[must_use]
    pub fn new(region: String, profile: Option<String>, endpoint: Option<String>) -> Self {
        Self(Arc::new(Where {
            region,
            profile,
            endpoint,
        }))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Where {
            region,
            profile,
            endpoint,
        } = &*self.0;
        f.write_str(region)?;
        if let Some(profile) = profile {
            write!(f, ", profile {profile:?}")?;
        }
        if let Some(endpoint) = endpoint {
            write!(f, ", endpoint {endpoint}")?;
        }
        Ok(())
    }
}

/// Why a command failed. Its text says what; [`Error::place`] says where, and [`Error::advice`] what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody said which region.
    #[error("no AWS region is set")]
    NoRegion,
    /// Nothing to prove to AWS who asks.
    #[error("no AWS credentials were found{}", of(.detail))]
    NoCredentials {
        /// Where they were looked for.
        place: Place,
        /// What the SDK says.
        detail: String,
    },
    /// They were good once.
    #[error("the AWS credentials have expired")]
    Expired {
        /// Where they were used.
        place: Place,
    },
    /// AWS doesn't know them.
    #[error("AWS doesn't take these credentials ({code})")]
    BadCredentials {
        /// Where they were used.
        place: Place,
        /// AWS's word for it.
        code: String,
    },
    /// They don't allow this.
    #[error("no permission: {action} on {resource} isn't allowed")]
    Denied {
        /// The action of IAM that is missing.
        action: &'static str,
        /// On what.
        resource: String,
        /// Where.
        place: Place,
    },
    /// No stack of that name.
    #[error("there is no stack {stack:?}")]
    NoStack {
        /// Its name.
        stack: String,
        /// Where it was looked for.
        place: Place,
    },
    /// A stack, but not one of ours, or not finished.
    #[error("the stack {stack:?} has no output {output}")]
    NoOutput {
        /// Its name.
        stack: String,
        /// What it lacks.
        output: &'static str,
        /// How CloudFormation says that it stands.
        state: String,
        /// Where it is.
        place: Place,
    },
    /// The stack names a function that isn't there.
    #[error("the function {function} isn't there")]
    NoFunction {
        /// Its name.
        function: String,
        /// Where it was looked for.
        place: Place,
    },
    /// `control` says that it didn't do it.
    #[error("control: {0}")]
    Control(Failure),
    /// A function ended without an answer.
    #[error("the function {function} failed: {detail}")]
    Function {
        /// Its name.
        function: String,
        /// What Lambda says.
        detail: String,
        /// Where it is.
        place: Place,
    },
    /// AWS wants fewer calls.
    #[error("AWS throttles: {action} was asked too often")]
    Throttled {
        /// What was asked, as an action of IAM.
        action: &'static str,
        /// Where.
        place: Place,
    },
    /// No answer in time.
    #[error("no answer in time to {action}")]
    TimedOut {
        /// What was asked, as an action of IAM.
        action: &'static str,
        /// Where.
        place: Place,
    },
    /// Nobody there.
    #[error("the endpoint can't be reached: {detail}")]
    Unreachable {
        /// Why not.
        detail: String,
        /// Where.
        place: Place,
    },
    /// Any other error of AWS's.
    #[error("{action} failed: {detail}")]
    Aws {
        /// What was asked, as an action of IAM.
        action: &'static str,
        /// AWS's code and message.
        detail: String,
        /// Where.
        place: Place,
    },
    /// A result couldn't be written.
    #[error("can't write the result: {0}")]
    Output(io::Error),
    /// Anything else, in whole: what, where, and what to do.
    #[error("{0}")]
    Other(String),
}

/// `: detail`, or nothing.
fn of(detail: &str) -> String {
    if detail.is_empty() {
        String::new()
    } else {
        format!(": {detail}")
    }
}

impl Error {
    /// For programs: a word.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::NoRegion => "no_region",
            Self::NoCredentials { .. } => "no_credentials",
            Self::Expired { .. } => "expired_credentials",
            Self::BadCredentials { .. } => "bad_credentials",
            Self::Denied { .. } => "no_permission",
            Self::NoStack { .. } => "no_stack",
            Self::NoOutput { .. } => "no_output",
            Self::NoFunction { .. } => "no_function",
            Self::Control(failure) => &failure.code,
            Self::Function { .. } => "function_failed",
            Self::Throttled { .. } => "throttled",
            Self::TimedOut { .. } => "timed_out",
            Self::Unreachable { .. } => "unreachable",
            Self::Aws { .. } => "aws",
            Self::Output(_) => "output",
            Self::Other(_) => "other",
        }
    }

    /// Where, if that matters.
    #[must_use]
    pub const fn place(&self) -> Option<&Place> {
        match self {
            Self::NoCredentials { place, .. }
            | Self::Expired { place }
            | Self::BadCredentials { place, .. }
            | Self::Denied { place, .. }
            | Self::NoStack { place, .. }
            | Self::NoOutput { place, .. }
            | Self::NoFunction { place, .. }
            | Self::Function { place, .. }
            | Self::Throttled { place, .. }
            | Self::TimedOut { place, .. }
            | Self::Unreachable { place, .. }
            | Self::Aws { place, .. } => Some(place),
            Self::NoRegion | Self::Control(_) | Self::Output(_) | Self::Other(_) => None,
        }
    }

    /// What to do.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        Some(match self {
            Self::NoRegion => {
                "give --region, set AWS_REGION, or give the profile a region".to_owned()
            }
            Self::NoCredentials { place, .. } => format!(
                "sign in ({}), name another profile with --profile or AWS_PROFILE, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                sign_in(place)
            ),
            Self::Expired { place } => format!(
                "sign in anew ({}), or renew the keys in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN",
                sign_in(place)
            ),
            Self::BadCredentials { .. } => {
                "see whether the keys are whole and of this account, and whether this machine's clock is right".to_owned()
            }
            Self::Denied { action, resource, .. } => format!(
                "ask whoever runs the account to allow {action} on {resource}, or name another profile with --profile"
            ),
            Self::NoStack { .. } => {
                "see whether region and account are the stack's (--region, --profile), and its name (--stack or SENDSLOT_STACK); `aws sts get-caller-identity` says which account this is".to_owned()
            }
            Self::NoOutput { state, .. } => format!(
                "it stands at {state}: if it is being made, wait; if it is older than this command, deploy it anew; if it is another stack, name the right one with --stack"
            ),
            Self::NoFunction { .. } => {
                "it was deleted, or is in another region: deploy the stack anew".to_owned()
            }
            Self::Control(failure) => return for_failure(&failure.code).map(str::to_owned),
            Self::Function { function, .. } => {
                format!("see its log: `aws logs tail /aws/lambda/{function} --since 10m`")
            }
            Self::Throttled { .. } => {
                "wait a few seconds and try again; see whether something else calls it all the time".to_owned()
            }
            Self::TimedOut { .. } => {
                "it may have been done all the same: see with `sendslot status`, then try again".to_owned()
            }
            Self::Unreachable { place, .. } => if place.0.endpoint.is_some() {
                "see whether something listens there, or what --endpoint-url and AWS_ENDPOINT_URL say"
            } else {
                "see whether the region is written right, and whether this machine reaches AWS (proxy, VPN)"
            }
            .to_owned(),
            Self::Aws { .. } => {
                "try again in a minute; if it stays, AWS's own status page may know".to_owned()
            }
            Self::Output(_) => "see whether the disk is full or the pipe's reader has ended".to_owned(),
            Self::Other(_) => return None,
        })
    }

    /// The exit code.
    #[must_use]
    pub const fn exit(&self) -> u8 {
        1
    }

    /// Whether the same may succeed a little later.
    #[must_use]
    pub fn passes(&self) -> bool {
        match self {
            Self::Throttled { .. } | Self::TimedOut { .. } | Self::Unreachable { .. } => true,
            Self::Control(failure) => matches!(
                failure.code.as_str(),
                "redis_unavailable" | "redis_failed" | "queue_failed" | "bucket_failed" | "timeout"
            ),
            _ => false,
        }
    }

    /// For people: what, where, and what to do, a line each.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("error: {self}");
        if let Some(place) = self.place() {
            text = format!("{text}\n  where: {place}");
        }
        if let Some(advice) = self.advice() {
            text = format!("{text}\n  do: {advice}");
        }
        text
    }

    /// For programs.
    #[must_use]
    pub fn value(&self) -> Value {
        let message = match self {
            Self::Control(failure) => failure.message.clone(),
            other => other.to_string(),
        };
        json!({ "error": {
            "code": self.code(),
            "message": message,
            "where": self.place().map(ToString::to_string),
            "do": self.advice(),
        }})
    }
}

/// How to sign in with this profile.
fn sign_in(place: &Place) -> String {
    match &place.0.profile {
        Some(profile) => format!("`aws sso login --profile {profile}`"),
        None => "`aws sso login`".to_owned(),
    }
}

/// What to do about what `control` says; its message says it, too, where that depends on the request.
fn for_failure(code: &str) -> Option<&'static str> {
    Some(match code {
        "not_built" | "unknown_action" => {
            "the stack is older than this command: deploy it anew (`make deploy`)"
        }
        "redis_unavailable" | "redis_failed" => {
            "see `sendslot status` in a minute; if it stays, Redis is gone: docs/operating.md says how it comes back"
        }
        "no_budget" => "run `sendslot refresh`, then try again",
        "unknown_tenant" => "see `sendslot tenant list` for the names",
        "tenant_paused" => "resume the tenant first: `sendslot resume TENANT`",
        "too_late" => "see `sendslot find TENANT SEND_ID` for how it went",
        "queue_failed" | "bucket_failed" | "timeout" => "try again: what was done stays done",
        "bad_answer" => {
            "this command and the stack are of different versions: use those of one release"
        }
        _ => return None,
    })
}

/// Reads an error of the SDK: `action` is what IAM would have to allow, `resource` on what.
pub fn aws<E>(
    error: &SdkError<E, HttpResponse>,
    action: &'static str,
    resource: &str,
    place: &Place,
) -> Error
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    let place = place.clone();
    match error {
        SdkError::TimeoutError(_) => Error::TimedOut { action, place },
        SdkError::ServiceError(_) => {
            service(error.code(), error.message(), action, resource, place)
        }
        SdkError::DispatchFailure(failure) => {
            if let Some(error) = credentials(error) {
                return of_credentials(error, place);
            }
            let detail = last(error);
            if failure.is_io() || failure.is_timeout() {
                Error::Unreachable { detail, place }
            } else {
                let detail = format!("{action}: {detail}");
                Error::Unreachable { detail, place }
            }
        }
        other => match credentials(other) {
            Some(error) => of_credentials(error, place),
            None => Error::Aws {
                action,
                detail: last(other),
                place,
            },
        },
    }
}

/// Reads what a service answered.
fn service(
    code: Option<&str>,
    message: Option<&str>,
    action: &'static str,
    resource: &str,
    place: Place,
) -> Error {
    let (code, message) = (code.unwrap_or("unknown"), message.unwrap_or_default());
    match code {
        "ExpiredToken" | "ExpiredTokenException" | "RequestExpired" | "TokenRefreshRequired" => {
            Error::Expired { place }
        }
        "UnrecognizedClientException"
        | "InvalidClientTokenId"
        | "InvalidAccessKeyId"
        | "InvalidSignatureException"
        | "SignatureDoesNotMatch"
        | "IncompleteSignature"
        | "MissingAuthenticationToken" => Error::BadCredentials {
            place,
            code: code.to_owned(),
        },
        "AccessDenied"
        | "AccessDeniedException"
        | "UnauthorizedOperation"
        | "AuthorizationError" => Error::Denied {
            action,
            resource: resource.to_owned(),
            place,
        },
        "Throttling"
        | "ThrottlingException"
        | "ThrottledException"
        | "TooManyRequestsException"
        | "RequestThrottled"
        | "RequestLimitExceeded" => Error::Throttled { action, place },
        "ValidationError" if message.contains("does not exist") => Error::NoStack {
            stack: resource.trim_start_matches("the stack ").to_owned(),
            place,
        },
        "ResourceNotFoundException" => Error::NoFunction {
            function: resource.to_owned(),
            place,
        },
        _ => Error::Aws {
            action,
            detail: format!("{code}{}", of(message)),
            place,
        },
    }
}

fn credentials<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a CredentialsError> {
    chain(error).find_map(|error| error.downcast_ref())
}

fn of_credentials(error: &CredentialsError, place: Place) -> Error {
    let whole: Vec<String> = chain(error).map(ToString::to_string).collect();
    if whole.iter().any(|text| text.contains("expired")) {
        return Error::Expired { place };
    }
    let detail = match error {
        CredentialsError::CredentialsNotLoaded(_) => String::new(),
        CredentialsError::ProviderTimedOut(_) => "their provider doesn't answer".to_owned(),
        _ => last(error),
    };
    Error::NoCredentials { place, detail }
}

fn chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// The innermost cause, which says most.
fn last(error: &(dyn StdError + 'static)) -> String {
    chain(error)
        .last()
        .map(ToString::to_string)
        .unwrap_or_default()
}
