//! Which configuration sets want reading: SES keeps a tenant's pause when Redis has lost it.

use std::collections::BTreeSet;

use sendslot_domain::{Millis, Moment};
use sendslot_runtime::control::MOST_TO_VERIFY;

use crate::notes::Verified;

/// How long the budget waits for the sets' switches: three refreshes. SES itself refuses mail of a set that may not send.
const PATIENCE: Millis = Millis::from_secs(180);

impl Verified {
    /// Notes that a set was read.
    pub(crate) fn read(&mut self, set: &str) {
        self.sets.insert(set.to_owned());
    }

    /// The sets to read next, by name from where the last question ended. Only those that are still used are remembered.
    pub(crate) fn ask(&mut self, used: &BTreeSet<String>) -> Vec<String> {
        self.sets.retain(|set| used.contains(set));
        let unread = |set: &&String| !self.sets.contains(*set);
        // One that can't be read must not stand in the way of the others.
        let after = used.iter().filter(|set| **set > self.after);
        let before = used.iter().filter(|set| **set <= self.after);
        let asked = after.chain(before).filter(unread).take(MOST_TO_VERIFY);
        let asked: Vec<String> = asked.cloned().collect();
        if let Some(last) = asked.last() {
            self.after.clone_from(last);
        }
        asked
    }

    /// Whether any set wasn't read yet.
    pub(crate) fn is_incomplete(&self, used: &BTreeSet<String>) -> bool {
        !used.is_subset(&self.sets)
    }

    /// Whether the budget waits for the sets yet.
    pub(crate) fn waits(&mut self, now: Moment) -> bool {
        let since = Moment(*self.pending_since_ms.get_or_insert(now.0));
        since <= now && since.until(now) < PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sets_come_to_their_turn_although_some_cannot_be_read() {
        let used: BTreeSet<String> = (0..120).map(|n| format!("set-{n:03}")).collect();
        let mut verified = Verified::default();
        // The first fifty can't be read.
        let mut asked = BTreeSet::new();
        for _ in 0..3 {
            let now = verified.ask(&used);
            assert!(now.len() <= MOST_TO_VERIFY);
            for set in now {
                if *set >= *"set-050" {
                    verified.read(&set);
                }
                asked.insert(set);
            }
        }
        assert_eq!(asked, used);
        assert!(verified.is_incomplete(&used));
        assert_eq!(verified.ask(&used).len(), 50);
    }

    #[test]
    fn the_budget_waits_for_three_minutes() {
        let mut verified = Verified::default();
        let start = Moment(1_796_059_800_000);
        assert!(verified.waits(start));
        assert!(verified.waits(start + Millis(179_999)));
        assert!(!verified.waits(start + Millis(180_000)));
        assert!(
            !verified.waits(Moment(0)),
            "a clock set back doesn't wait for ever"
        );
    }
}
