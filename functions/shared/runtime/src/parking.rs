//! Parked mail: what an object's name in the bucket says.

use std::{fmt, str::FromStr};

use sendslot_domain::{Lane, Moment, SendId, TenantName};

/// Why a mail is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its tenant may not send.
    Paused,
    /// It may have been sent, and nobody knows.
    Uncertain,
}

impl Reason {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Uncertain => "uncertain",
        }
    }
}

impl FromStr for Reason {
    type Err = NotParked;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Paused, Self::Uncertain]
            .into_iter()
            .find(|reason| reason.as_str() == text)
            .ok_or_else(|| NotParked(text.to_owned()))
    }
}

/// The key of a parked mail: `parked/<tenant>/<first seen, ms>-<reason>-<lane>-<send id>.json`. A tenant's sort by age, and
/// a mail that is parked twice is there once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedKey {
    /// Whose mail it is.
    pub tenant: TenantName,
    /// When it first reached us.
    pub first_seen: Moment,
    /// Why it is parked.
    pub reason: Reason,
    /// The lane it travelled in.
    pub lane: Lane,
    /// Its idempotency key.
    pub send_id: SendId,
}

/// The text is no key of a parked mail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no key of a parked mail")]
pub struct NotParked(String);

/// Where a tenant's parked mail is.
#[must_use]
pub fn prefix(tenant: &TenantName) -> String {
    format!("parked/{tenant}/")
}

impl fmt::Display for ParkedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tenant,
            first_seen,
            reason,
            lane,
            send_id,
        } = self;
        let (prefix, reason) = (prefix(tenant), reason.as_str());
        write!(
            f,
            "{prefix}{:013}-{reason}-{lane}-{send_id}.json",
            first_seen.0
        )
    }
}

impl FromStr for ParkedKey {
    type Err = NotParked;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (tenant, name) = text.strip_prefix("parked/")?.split_once('/')?;
            let mut parts = name.strip_suffix(".json")?.splitn(4, '-');
            Some(Self {
                tenant: tenant.parse().ok()?,
                first_seen: Moment(parts.next()?.parse().ok()?),
                reason: parts.next()?.parse().ok()?,
                lane: parts.next()?.parse().ok()?,
                send_id: parts.next()?.parse().ok()?,
            })
        };
        parse().ok_or_else(|| NotParked(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_what_is_parked_and_sorts_by_age() {
        let key = |first_seen, send_id: &str| ParkedKey {
            tenant: "acme-1".parse().unwrap_or_else(|e| panic!("{e}")),
            first_seen: Moment(first_seen),
            reason: Reason::Uncertain,
            lane: Lane::Priority,
            send_id: send_id.parse().unwrap_or_else(|e| panic!("{e}")),
        };
        let text = key(1_796_059_799_750, "a-b--c_d").to_string();
        assert_eq!(
            text,
            "parked/acme-1/1796059799750-uncertain-priority-a-b--c_d.json"
        );
        assert_eq!(text.parse(), Ok(key(1_796_059_799_750, "a-b--c_d")));
        assert!(key(999, "z").to_string() < key(1000, "a").to_string());
        for text in [
            "",
            "parked/acme",
            "other/acme/1796059799750-paused-bulk-a.json",
            "parked/acme/1796059799750-paused-bulk-a",
            "parked/acme/x-paused-bulk-a.json",
            "parked/acme/1-lost-bulk-a.json",
            "parked/acme/1-paused-slow-a.json",
            "parked/acme/1-paused-bulk-.json",
        ] {
            assert!(text.parse::<ParkedKey>().is_err(), "{text}");
        }
    }
}
