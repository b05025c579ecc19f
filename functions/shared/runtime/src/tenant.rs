//! A tenant's settings as the functions know them: what `control` makes of parameters and template, and keeps in Redis for all others.
//!
//! A stored format: it is JSON, fields are added and never renamed, what is missing has a default, and what isn't known is ignored.

use sendslot_domain::{
    Lane,
    reputation::{Limit, Thresholds},
};
use serde::{Deserialize, Serialize};

use crate::UncertainPolicy;

/// What the functions must know of a tenant beside its weight and caps, which the schedule has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantSettings {
    /// The SES configuration set its mail goes through; nothing is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration_set: Option<String>,
    /// Whether other tenants' mail goes through it, too: then it is not switched off for one of them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shares_set: bool,
    /// The SES tenant its mail belongs to; nothing is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ses_tenant: Option<String>,
    /// The lane of a direct caller's mail that names none: `priority` or `bulk`; nothing is bulk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// What is done with mail that may have been sent: `resend` or `park`; nothing is as its lane has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertain: Option<String>,
    /// How a recipient unsubscribes with one click, as mail readers offer it (RFC 8058); nothing is not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_unsubscribe: Option<ListUnsubscribe>,
    /// When its bounces and complaints pause it; what is missing is as [`Thresholds::default`] has it.
    pub thresholds: ThresholdSettings,
}

/// How a recipient unsubscribes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListUnsubscribe {
    /// Where a mail reader posts `List-Unsubscribe=One-Click`: an https address, in which `{send_id}` stands for the mail's send id.
    pub url: String,
    /// An address to write to as well; empty is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mailto: String,
}

/// [`Thresholds`], as far as they are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThresholdSettings {
    /// [`Thresholds::bounce_hour`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounce_hour: Option<LimitSettings>,
    /// [`Thresholds::bounce_day`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounce_day: Option<LimitSettings>,
    /// [`Thresholds::complaint_hour`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complaint_hour: Option<LimitSettings>,
    /// [`Thresholds::complaint_day`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complaint_day: Option<LimitSettings>,
}

/// A [`Limit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitSettings {
    /// [`Limit::ppm`].
    pub ppm: u32,
    /// [`Limit::sent`].
    pub sent: u64,
    /// [`Limit::events`].
    pub events: u64,
}

impl From<LimitSettings> for Limit {
    fn from(set: LimitSettings) -> Self {
        Self {
            ppm: set.ppm,
            sent: set.sent,
            events: set.events,
        }
    }
}

impl From<Limit> for LimitSettings {
    fn from(limit: Limit) -> Self {
        Self {
            ppm: limit.ppm,
            sent: limit.sent,
            events: limit.events,
        }
    }
}

impl From<ThresholdSettings> for Thresholds {
    fn from(set: ThresholdSettings) -> Self {
        let usual = Self::default();
        let or = |set: Option<LimitSettings>, usual| set.map_or(usual, Limit::from);
        Self {
            bounce_hour: or(set.bounce_hour, usual.bounce_hour),
            bounce_day: or(set.bounce_day, usual.bounce_day),
            complaint_hour: or(set.complaint_hour, usual.complaint_hour),
            complaint_day: or(set.complaint_day, usual.complaint_day),
        }
    }
}

impl TenantSettings {
    /// The lane of a direct caller's mail that names none, if it is set.
    #[must_use]
    pub fn lane(&self) -> Option<Lane> {
        self.lane.as_deref()?.parse().ok()
    }

    /// What is done with mail that may have been sent, if that is set.
    #[must_use]
    pub fn uncertain(&self) -> Option<UncertainPolicy> {
        match self.uncertain.as_deref()? {
            "resend" => Some(UncertainPolicy::Resend),
            "park" => Some(UncertainPolicy::Park),
            _ => None,
        }
    }

    /// As it is kept in Redis.
    ///
    /// # Errors
    /// Never: there are texts and numbers in it.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Reads what is kept in Redis.
    ///
    /// # Errors
    /// When it is no JSON, or a field has another type than this version knows.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_has_a_default_and_what_is_unknown_is_ignored()
    -> Result<(), serde_json::Error> {
        let read =
            TenantSettings::from_json("{\"configuration_set\": \"acme-set\", \"colour\": 3}")?;
        assert_eq!(read.configuration_set.as_deref(), Some("acme-set"));
        assert_eq!(Thresholds::from(read.thresholds), Thresholds::default());
        assert_eq!((read.lane(), read.uncertain()), (None, None));
        assert_eq!(TenantSettings::from_json("{}")?, TenantSettings::default());
        Ok(())
    }

    #[test]
    fn it_is_a_stored_format() -> Result<(), serde_json::Error> {
        let limit = LimitSettings {
            ppm: 1,
            sent: 2,
            events: 3,
        };
        let all = TenantSettings {
            configuration_set: Some("acme-set".to_owned()),
            shares_set: true,
            ses_tenant: Some("acme".to_owned()),
            lane: Some("priority".to_owned()),
            uncertain: Some("park".to_owned()),
            list_unsubscribe: Some(ListUnsubscribe {
                url: "https://acme.example/u/{send_id}".to_owned(),
                mailto: "u@acme.example".to_owned(),
            }),
            thresholds: ThresholdSettings {
                bounce_hour: Some(limit),
                ..ThresholdSettings::default()
            },
        };
        let text = concat!(
            r#"{"configuration_set":"acme-set","shares_set":true,"ses_tenant":"acme","lane":"priority","uncertain":"park","#,
            r#""list_unsubscribe":{"url":"https://acme.example/u/{send_id}","mailto":"u@acme.example"},"#,
            r#""thresholds":{"bounce_hour":{"ppm":1,"sent":2,"events":3}}}"#,
        );
        assert_eq!(all.to_json()?, text);
        assert_eq!(TenantSettings::from_json(text)?, all);
        assert_eq!(all.lane(), Some(Lane::Priority));
        assert_eq!(all.uncertain(), Some(UncertainPolicy::Park));
        Ok(())
    }
}
