//! What a service asks for that sends by itself: a slot, and nothing else. The JSON Schema says it all.

use std::sync::LazyLock;

use jsonschema::Validator;
use sendslot_domain::{Lane, SendId, TenantName};

use crate::{
    Refusal, json,
    request::{compiled, refusal},
};

/// The JSON Schema (draft 2020-12) of a slot request.
pub const SCHEMA: &str = include_str!("../schema/slot-request.v1.json");

/// A valid request for the slot of one mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRequest {
    /// The caller's own label; no idempotency key.
    pub send_id: Option<SendId>,
    /// On whose behalf the mail goes.
    pub tenant: TenantName,
    /// How urgent it is.
    pub lane: Lane,
    /// Its recipients, 1 to [`crate::request::MAX_RECIPIENTS`].
    pub recipients: u32,
}

impl SlotRequest {
    /// Reads and checks a request's text.
    ///
    /// # Errors
    /// The first reason to refuse it.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        static COMPILED: LazyLock<Validator> = LazyLock::new(|| compiled(SCHEMA));
        let value = json::parse(text)?;
        if let Some(error) = COMPILED.iter_errors(&value).next() {
            return Err(refusal(&error));
        }
        let field = |name: &str| value.get(name).and_then(serde_json::Value::as_str);
        let recipients = match value.get("recipients") {
            None => 1,
            // For the schema, 1.0 is whole, too.
            Some(number) => number
                .as_u64()
                .and_then(|n| u32::try_from(n).ok())
                .ok_or_else(|| Refusal::BadValue {
                    at: "/recipients".to_owned(),
                    problem: "written with a point: give a whole number".to_owned(),
                })?,
        };
        Ok(Self {
            send_id: field("send_id")
                .map(str::parse)
                .transpose()
                .map_err(Refusal::BadSendId)?,
            tenant: field("tenant")
                .unwrap_or_default()
                .parse()
                .map_err(Refusal::BadTenant)?,
            lane: field("lane").map_or(Ok(Lane::Bulk), |lane| {
                lane.parse().map_err(|_| Refusal::UnknownLane)
            })?,
            recipients,
        })
    }
}
