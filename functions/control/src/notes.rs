//! What is kept from refresh to refresh, in the hash `account`: one field a part, each of them JSON.
//!
//! A field that can't be read counts as missing: another version wrote it, and what is missing is found out anew.

use std::collections::{BTreeMap, BTreeSet};

use sendslot_domain::{
    Moment, Rate,
    account::{self, Known},
    reconcile::{Reckoning, Reconciled},
};
use sendslot_runtime::control::LastRefresh;
use sendslot_schedule::Look;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::suppress::Walks;

/// All that is kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// What is known of the account.
    pub(crate) known: Option<Known>,
    /// How its count and ours compared last.
    pub(crate) count: Option<Count>,
    /// The last good parameter of each tenant that has one; nothing if nobody has told since Redis was emptied.
    pub(crate) tenants: Option<BTreeMap<String, Value>>,
    /// How often in a row a much shorter list of tenants was told and not believed.
    pub(crate) shorter: u32,
    /// Which configuration sets were read.
    pub(crate) verified: Verified,
    /// The last refresh.
    pub(crate) last: Option<LastRefresh>,
}

/// The lanes share it, so half of it holds any message. SES refuses what is over the quota, and is then left alone for a while.
const LEAST_PART: u64 = 100;

/// How the provider's count and ours compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    base: u64,
    since_ms: u64,
    settled: bool,
    pub(crate) foreign: u64,
    pub(crate) unscheduled: u64,
}

impl Count {
    pub(crate) const fn state(&self) -> Reconciled {
        Reconciled {
            base: self.base,
            since: Moment(self.since_ms),
            settled: self.settled,
        }
    }

    /// What our own windows may hold of the day's quota: at least [`LEAST_PART`] of it, or a message of many recipients would be
    /// refused for good because others have used up this day.
    pub(crate) fn part_of(&self, daily_quota: u64) -> u64 {
        let reckoning = Reckoning {
            state: self.state(),
            difference: 0,
            unscheduled: self.unscheduled,
            foreign: self.foreign,
        };
        reckoning
            .part_of(daily_quota)
            .max(LEAST_PART.min(daily_quota))
    }
}

impl From<Reckoning> for Count {
    fn from(reckoning: Reckoning) -> Self {
        Self {
            base: reckoning.state.base,
            since_ms: reckoning.state.since.0,
            settled: reckoning.state.settled,
            foreign: reckoning.foreign,
            unscheduled: reckoning.unscheduled,
        }
    }
}

/// Which configuration sets were read since Redis was last found empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Verified {
    /// When it was; nothing while no budget was written since.
    pub(crate) generation_ms: Option<u64>,
    /// Those that were read.
    pub(crate) sets: BTreeSet<String>,
    /// The last that was asked for: the next question begins after it.
    pub(crate) after: String,
    /// Since when the budget waits for them.
    pub(crate) pending_since_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct KnownForm {
    limit: [u64; 2],
    daily_quota: Option<u64>,
    doubtful: Option<DoubtfulForm>,
}

#[derive(Serialize, Deserialize)]
struct DoubtfulForm {
    limit: [u64; 2],
    daily_quota: Option<u64>,
    times: u32,
}

impl From<&Known> for KnownForm {
    fn from(known: &Known) -> Self {
        let doubtful = known.doubtful.map(|doubtful| DoubtfulForm {
            limit: [doubtful.limit.num(), doubtful.limit.den()],
            daily_quota: doubtful.daily_quota,
            times: doubtful.times,
        });
        Self {
            limit: [known.limit.num(), known.limit.den()],
            daily_quota: known.daily_quota,
            doubtful,
        }
    }
}

impl KnownForm {
    fn known(&self) -> Option<Known> {
        let rate = |[num, den]: [u64; 2]| Rate::new(num, den).ok().filter(|rate| !rate.is_zero());
        let doubtful = self.doubtful.as_ref().and_then(|doubtful| {
            Some(account::Doubtful {
                limit: rate(doubtful.limit)?,
                daily_quota: doubtful.daily_quota,
                times: doubtful.times,
            })
        });
        Some(Known {
            limit: rate(self.limit)?,
            daily_quota: self.daily_quota,
            doubtful,
        })
    }
}

impl Notes {
    /// Reads what was noted. Counts and sets that belong to a Redis that has been emptied since are left out.
    pub(crate) fn read(look: &Look) -> Self {
        let verified: Verified = field(look, "verified").unwrap_or_default();
        let generation = look.generation().map(|generation| generation.0);
        let same = verified.generation_ms.is_none() || verified.generation_ms == generation;
        let known: Option<KnownForm> = field(look, "known");
        Self {
            known: known.and_then(|form| form.known()),
            count: field(look, "count").filter(|_| same),
            tenants: field(look, "tenants"),
            shorter: field(look, "shorter").unwrap_or_default(),
            verified: if same { verified } else { Verified::default() },
            last: field(look, "refresh"),
        }
    }

    /// The fields that differ from what is noted; an empty one is to be removed.
    pub(crate) fn changes(&self, look: &Look) -> Vec<(&'static str, String)> {
        let known = self.known.as_ref().map(KnownForm::from);
        let fields = [
            ("known", text(known.as_ref())),
            ("count", text(self.count.as_ref())),
            ("tenants", text(self.tenants.as_ref())),
            ("shorter", text(Some(&self.shorter))),
            ("verified", text(Some(&self.verified))),
            ("refresh", text(self.last.as_ref())),
        ];
        let noted = |name: &str| look.account.get(name).map(String::as_str);
        let fields = fields.into_iter();
        fields
            .filter(|(name, value)| noted(name).unwrap_or_default() != value)
            .collect()
    }
}

/// How far SES's suppression list was read. It is kept apart from the rest: its pages come while a refresh may be under way.
pub(crate) fn walks(look: &Look) -> Walks {
    field(look, "walks").unwrap_or_default()
}

/// The same field, if it differs from what is noted.
pub(crate) fn walks_changes(walks: &Walks, look: &Look) -> Vec<(&'static str, String)> {
    let value = text(Some(walks));
    let is_noted = look.account.get("walks") == Some(&value);
    if is_noted {
        Vec::new()
    } else {
        vec![("walks", value)]
    }
}

fn field<T: DeserializeOwned>(look: &Look, name: &str) -> Option<T> {
    let text = look.account.get(name)?;
    serde_json::from_str(text)
        .map_err(
            |error| tracing::warn!(field = name, %error, "a note can't be read, and is made anew"),
        )
        .ok()
}

fn text(value: Option<&impl Serialize>) -> String {
    let text = value.and_then(|value| serde_json::to_string(value).ok());
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use sendslot_domain::account::Doubtful;

    use super::*;

    #[test]
    fn what_is_noted_is_read_back() {
        let rate = |num, den| Rate::new(num, den).unwrap_or(Rate::ONE);
        let notes = Notes {
            known: Some(Known {
                limit: rate(14_001, 1000),
                daily_quota: None,
                doubtful: Some(Doubtful {
                    limit: Rate::ONE,
                    daily_quota: Some(200),
                    times: 2,
                }),
            }),
            tenants: Some(BTreeMap::from([(
                "acme".to_owned(),
                serde_json::json!({"weight": 2}),
            )])),
            ..Notes::default()
        };
        let mut look = Look::default();
        for (name, value) in notes.changes(&look) {
            look.account.insert(name.to_owned(), value);
        }
        let read = Notes::read(&look);
        assert_eq!((read.known, read.tenants), (notes.known, notes.tenants));
        assert_eq!(Notes::read(&look).changes(&look), []);
    }

    #[test]
    fn what_another_version_wrote_is_found_out_anew() {
        let mut look = Look::default();
        for (name, value) in [("known", "14"), ("count", "{}"), ("verified", "[1]")] {
            look.account.insert(name.to_owned(), value.to_owned());
        }
        let read = Notes::read(&look);
        assert_eq!((read.known, read.count), (None, None));
    }
}
