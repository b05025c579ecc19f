//! Whom nobody may be sent to, as SES's own list says: which part of it is to be read, and what was read.
//!
//! `quota-refresh` reads the list page by page, over as many refreshes as it takes, and hands each page in; the place is kept in the
//! notes. All of it is read after Redis was emptied and once a day, since what isn't heard of for three days is forgotten; in between, what
//! was added. After all of it was read, what isn't on it any more is swept out.

use std::time::Duration;

use sendslot_domain::{
    Moment,
    suppression::{AddressDigest, Cause},
};
use sendslot_runtime::control::{Failure, Suppress, Suppressed, SuppressedAddress, Walk};
use sendslot_schedule::Schedule;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{failure::redis_failure, notes};

/// All of it is read so often.
const WHOLE_EACH_MS: u64 = 24 * 3_600_000;
/// What was added is read so often.
const ADDED_EACH_MS: u64 = 5 * 60_000;
/// SES's clock and Redis' may differ, and an address may be on its list some time after that says.
const OVERLAP_MS: u64 = 5 * 60_000;
/// A walk that has stood still for so long begins anew: what named its next page isn't good for ever.
const STANDS_STILL_MS: u64 = 30 * 60_000;
/// So many addresses are noted in one call.
const AT_ONCE: usize = 1000;
/// Sweeping may take so long.
const SWEEPING: Duration = Duration::from_secs(5);

/// How far the list was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Walks {
    /// Of which generation of Redis all this is.
    generation_ms: u64,
    /// The walk under way.
    walk: Option<Walk>,
    /// When it last got on.
    moved_ms: u64,
    /// When the last walk of all of it began that has ended.
    whole_ms: Option<u64>,
    /// When the last walk of either kind began that has ended.
    last_ms: Option<u64>,
}

impl Walks {
    /// The walk that is to go on or to begin.
    pub(crate) fn due(&mut self, now: Moment, generation: Option<u64>) -> Option<Walk> {
        let generation = generation?; // an empty Redis has nothing to go by yet
        if self.generation_ms != generation {
            *self = Self {
                generation_ms: generation,
                ..Self::default()
            };
        }
        // A time to come is of a clock since set back.
        let passed = |since: u64, time: u64| now.0 < since || now.0 - since >= time;
        if let Some(walk) = &self.walk
            && !passed(self.moved_ms, STANDS_STILL_MS)
        {
            return Some(walk.clone());
        }
        let since_ms = match (self.whole_ms, self.last_ms) {
            (Some(whole), Some(last)) if !passed(whole, WHOLE_EACH_MS) => {
                if self.walk.is_none() && !passed(last, ADDED_EACH_MS) {
                    return None;
                }
                Some(last.saturating_sub(OVERLAP_MS))
            }
            _ => None,
        };
        let walk = Walk {
            began_ms: now.0,
            since_ms,
            token: None,
        };
        (self.walk, self.moved_ms) = (Some(walk.clone()), now.0);
        Some(walk)
    }

    /// Takes in that a page was read. Answers where to go on, and whether that was the last page of all of it.
    fn read(&mut self, page: &Walk, next: Option<&String>, now: Moment) -> (Option<Walk>, bool) {
        let Some(walk) = self.walk.as_mut().filter(|walk| *walk == page) else {
            // Another walk's, or one that was read before: it goes on where that one is.
            return (self.walk.clone(), false);
        };
        self.moved_ms = now.0;
        if next.is_some() {
            walk.token = next.cloned();
            return (self.walk.clone(), false);
        }
        let is_whole = page.since_ms.is_none();
        if is_whole {
            self.whole_ms = Some(page.began_ms);
        }
        (self.last_ms, self.walk) = (Some(page.began_ms), None);
        (None, is_whole)
    }
}

/// Takes in a page.
///
/// # Errors
/// When Redis can't be used. The page is read again then.
pub(crate) async fn suppress(
    schedule: &Schedule,
    asked: &Suppress,
    caller: &str,
) -> Result<Suppressed, Failure> {
    let addresses: Vec<_> = asked.entries.iter().filter_map(entry).collect();
    let skipped = asked.entries.len() - addresses.len();
    if skipped > 0 {
        tracing::warn!(
            caller,
            skipped,
            "a page of suppressed addresses holds what can't be read"
        );
    }
    let mut new = 0;
    for part in addresses.chunks(AT_ONCE) {
        new += schedule.suppress(part).await.map_err(redis_failure)?;
    }
    let look = schedule.look().await.map_err(redis_failure)?;
    let mut walks = notes::walks(&look);
    let (walk, is_whole) = walks.read(&asked.walk, asked.next.as_ref(), look.now);
    let is_last = asked.next.is_none();
    tracing::info!(
        caller,
        taken = addresses.len(),
        new,
        is_last,
        is_whole,
        "suppressed addresses taken in"
    );
    if is_whole {
        sweep(schedule).await?;
    }
    let changes = notes::walks_changes(&walks, &look);
    if !changes.is_empty() {
        schedule.note(&changes).await.map_err(redis_failure)?;
    }
    Ok(Suppressed { new, walk })
}

fn entry(told: &SuppressedAddress) -> Option<(AddressDigest, Cause)> {
    let cause = match told.cause.as_str() {
        "bounce" => Cause::Bounce,
        "complaint" => Cause::Complaint,
        _ => return None,
    };
    Some((told.digest.parse().ok()?, cause))
}

/// Forgets whom the list doesn't hold any more, as far as that is done in time: the next walk does the rest.
async fn sweep(schedule: &Schedule) -> Result<(), Failure> {
    let (began, mut from, mut forgotten) = (Instant::now(), 0, 0);
    loop {
        let (next, gone) = schedule.sweep(from).await.map_err(redis_failure)?;
        forgotten += gone;
        if next == 0 {
            tracing::info!(forgotten, "suppressed addresses swept");
            return Ok(());
        }
        if began.elapsed() >= SWEEPING {
            tracing::warn!(forgotten, "sweeping suppressed addresses took too long");
            return Ok(());
        }
        from = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment(1_796_059_800_000);
    const MINUTE: u64 = 60_000;

    fn at(minutes: u64) -> Moment {
        Moment(START.0 + minutes * MINUTE)
    }

    fn walk(began: u64, since: Option<u64>, token: Option<&str>) -> Walk {
        Walk {
            began_ms: at(began).0,
            since_ms: since.map(|minutes| START.0 + minutes * MINUTE - OVERLAP_MS),
            token: token.map(str::to_owned),
        }
    }

    #[test]
    fn all_of_it_is_read_and_then_what_was_added() {
        let mut walks = Walks::default();
        assert_eq!(walks.due(START, None), None, "redis is empty");
        let first = walk(0, None, None);
        assert_eq!(walks.due(START, Some(7)), Some(first.clone()));
        assert_eq!(walks.due(at(1), Some(7)), Some(first.clone()), "the same");
        let next = "page 2".to_owned();
        let second = walk(0, None, Some("page 2"));
        let told = walks.read(&first, Some(&next), at(1));
        assert_eq!(told, (Some(second.clone()), false));
        // The same page again doesn't move it back.
        assert_eq!(
            walks.read(&first, Some(&next), at(2)),
            (Some(second.clone()), false)
        );
        assert_eq!(walks.due(at(2), Some(7)), Some(second.clone()));
        assert_eq!(walks.read(&second, None, at(3)), (None, true));
        assert_eq!(
            walks.read(&second, None, at(3)),
            (None, false),
            "swept once"
        );

        // From when it began.
        assert_eq!(walks.due(at(4), Some(7)), None);
        let added = walk(5, Some(0), None);
        assert_eq!(walks.due(at(5), Some(7)), Some(added.clone()));
        assert_eq!(walks.read(&added, None, at(5)), (None, false));
        assert_eq!(walks.due(at(9), Some(7)), None);
        assert_eq!(walks.due(at(10), Some(7)), Some(walk(10, Some(5), None)));
        assert_eq!(
            walks.read(&walk(10, Some(5), None), None, at(10)),
            (None, false)
        );
        assert_eq!(
            walks.due(at(24 * 60), Some(7)),
            Some(walk(24 * 60, None, None))
        );
    }

    #[test]
    fn an_emptied_redis_begins_with_all_of_it() {
        let mut walks = Walks::default();
        let first = walks.due(START, Some(7)).unwrap_or_default();
        assert_eq!(walks.read(&first, None, START), (None, true));
        assert_eq!(walks.due(at(1), Some(7)), None);
        assert_eq!(walks.due(at(1), Some(8)), Some(walk(1, None, None)));
        // What is read of the walk before says nothing of this one.
        let told = walks.read(&first, None, at(1));
        assert_eq!(told, (Some(walk(1, None, None)), false));
    }

    #[test]
    fn a_walk_that_stands_still_begins_anew() {
        let mut walks = Walks::default();
        let first = walks.due(START, Some(7)).unwrap_or_default();
        let next = "page 2".to_owned();
        walks.read(&first, Some(&next), at(20));
        let second = walk(0, None, Some("page 2"));
        assert_eq!(walks.due(at(49), Some(7)), Some(second.clone()));
        assert_eq!(walks.due(at(50), Some(7)), Some(walk(50, None, None)));
        assert_eq!(walks.read(&walk(50, None, None), None, at(51)).0, None);
        // One of what was added, too: from where the last began that ended.
        let added = walks.due(at(55), Some(7));
        assert_eq!(added, Some(walk(55, Some(50), None)));
        assert_eq!(walks.due(at(85), Some(7)), Some(walk(85, Some(50), None)));
        // A clock that is set back doesn't keep it waiting.
        assert_eq!(walks.due(at(3), Some(7)), Some(walk(3, None, None)));
    }
}
