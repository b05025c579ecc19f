//! What the function is invoked with.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a resource is called that has no name yet. A custom resource that changes its name is taken by CloudFormation for a new one, and
/// the old one is deleted: it must never change.
pub const RESOURCE: &str = "quota-refresh";

/// What the function is invoked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Refresh: by the schedule (`{"trigger": "schedule"}`), or by hand (anything else).
    Refresh {
        /// `schedule` or `manual`.
        trigger: &'static str,
    },
    /// CloudFormation waits.
    Custom(Custom),
}

/// The event is neither.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// It is CloudFormation's, but nobody could be answered.
    #[error(
        "custom resource without a ResponseURL: nobody can be answered; invoke with {{}} to refresh by hand"
    )]
    NoResponseUrl,
}

/// A custom resource's request. CloudFormation sends all of it; what is missing all the same is empty, so that as much as possible is
/// answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Custom {
    /// What is to be done.
    pub kind: RequestType,
    /// Where the answer goes.
    pub url: ResponseUrl,
    /// The resource's name, as it was given at its creation.
    pub physical_id: Option<String>,
    /// Given back in the answer, as the two that follow.
    pub stack: String,
    /// The request's own id.
    pub request: String,
    /// The resource's name in the template.
    pub logical_id: String,
}

/// What is to be done with a custom resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestType {
    /// It is new.
    Create,
    /// Its properties have changed.
    Update,
    /// It goes.
    Delete,
    /// A word that isn't known.
    Unknown(String),
}

/// Where CloudFormation waits for an answer: a presigned URL. Whoever has it can answer, so it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ResponseUrl(String);

impl ResponseUrl {
    /// The URL.
    #[must_use]
    pub fn of(url: &str) -> Self {
        Self(url.to_owned())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ResponseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseUrl(…)")
    }
}

impl Event {
    /// Reads an event. Not by its whole shape: a request of CloudFormation that lacks something must not be taken for a refresh by
    /// hand, or the stack waits for an hour.
    ///
    /// # Errors
    /// When CloudFormation asks and can't be answered.
    pub fn read(event: &Value) -> Result<Self, EventError> {
        if event.get("RequestType").is_none() && event.get("ResponseURL").is_none() {
            let scheduled = event.get("trigger").and_then(Value::as_str) == Some("schedule");
            return Ok(Self::Refresh {
                trigger: if scheduled { "schedule" } else { "manual" },
            });
        }
        let text = |name: &str| {
            let text = event.get(name).and_then(Value::as_str);
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let kind = match text("RequestType").unwrap_or_default().as_str() {
            "Create" => RequestType::Create,
            "Update" => RequestType::Update,
            "Delete" => RequestType::Delete,
            other => RequestType::Unknown(other.to_owned()),
        };
        Ok(Self::Custom(Custom {
            kind,
            url: ResponseUrl(text("ResponseURL").ok_or(EventError::NoResponseUrl)?),
            physical_id: text("PhysicalResourceId"),
            stack: text("StackId").unwrap_or_default(),
            request: text("RequestId").unwrap_or_default(),
            logical_id: text("LogicalResourceId").unwrap_or_default(),
        }))
    }
}

/// What CloudFormation is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Answer {
    /// `SUCCESS` or `FAILED`.
    pub status: String,
    /// Why, for people.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub reason: String,
    /// The resource's name.
    pub physical_resource_id: String,
    /// As asked.
    pub stack_id: String,
    /// As asked.
    pub request_id: String,
    /// As asked.
    pub logical_resource_id: String,
    /// What the template may read by `Fn::GetAtt`: texts only.
    pub data: Value,
}

impl Custom {
    /// An answer to this request.
    pub(crate) fn answer(&self, done: bool, reason: &str, data: Value) -> Answer {
        /// All of an answer may have 4,096 bytes (CloudFormation User Guide, "Custom resource response objects").
        const LONGEST_REASON: usize = 400;
        Answer {
            status: if done { "SUCCESS" } else { "FAILED" }.to_owned(),
            reason: reason.chars().take(LONGEST_REASON).collect(),
            physical_resource_id: self.physical_id.as_deref().unwrap_or(RESOURCE).to_owned(),
            stack_id: self.stack.clone(),
            request_id: self.request.clone(),
            logical_resource_id: self.logical_id.clone(),
            data,
        }
    }
}
