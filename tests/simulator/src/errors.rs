//! SES's errors as the AWS SDKs read them: a status, the name in a header, a message in JSON.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

static ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");

/// The exceptions of SES v2 that the simulator raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The caller may not do this.
    AccessDenied,
    /// The account was shut down for good.
    AccountSuspended,
    /// A configuration set of this name exists.
    AlreadyExists,
    /// The request is not valid.
    BadRequest,
    /// The simulator itself failed.
    InternalFailure,
    /// The token names no page of a list, or does no longer.
    InvalidNextToken,
    /// A quota was reached.
    LimitExceeded,
    /// The named thing does not exist.
    NotFound,
    /// The account or the configuration set is paused.
    SendingPaused,
    /// The body is not JSON of the expected form.
    Serialization,
    /// The name under which the documentation lists both throttles.
    Throttling,
    /// Too many requests, or recipients.
    TooManyRequests,
    /// No such operation here.
    UnknownOperation,
}

impl ErrorKind {
    /// The exception's name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AccessDenied => "AccessDeniedException",
            Self::AccountSuspended => "AccountSuspendedException",
            Self::AlreadyExists => "AlreadyExistsException",
            Self::BadRequest => "BadRequestException",
            Self::InternalFailure => "InternalFailure",
            Self::InvalidNextToken => "InvalidNextTokenException",
            Self::LimitExceeded => "LimitExceededException",
            Self::NotFound => "NotFoundException",
            Self::SendingPaused => "SendingPausedException",
            Self::Serialization => "SerializationException",
            Self::Throttling => "ThrottlingException",
            Self::TooManyRequests => "TooManyRequestsException",
            Self::UnknownOperation => "UnknownOperationException",
        }
    }

    /// The HTTP status SES sends with it.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::AccessDenied => StatusCode::FORBIDDEN,
            Self::NotFound | Self::UnknownOperation => StatusCode::NOT_FOUND,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::InternalFailure => StatusCode::INTERNAL_SERVER_ERROR,
            Self::AccountSuspended
            | Self::AlreadyExists
            | Self::BadRequest
            | Self::InvalidNextToken
            | Self::LimitExceeded
            | Self::SendingPaused
            | Self::Serialization
            | Self::Throttling => StatusCode::BAD_REQUEST,
        }
    }
}

/// One error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// Which exception.
    pub kind: ErrorKind,
    /// Its text; never an address or a content.
    pub message: String,
    /// `Retry-After`, in seconds.
    pub retry_after_s: Option<u32>,
}

impl ApiError {
    /// An error with this text.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after_s: None,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = Json(json!({ "message": self.message }));
        let mut response = (self.kind.status(), body).into_response();
        let name = HeaderValue::from_static(self.kind.name());
        response.headers_mut().insert(&ERROR_TYPE, name);
        if let Some(seconds) = self.retry_after_s {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}
