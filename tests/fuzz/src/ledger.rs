//! Double-entry bookkeeping of messages: what came in is somewhere, once.

use std::collections::{BTreeMap, BTreeSet};

use crate::given::json;

/// What tells mails apart: tenant and send id, or the whole text of what has none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Mail(String, String),
    Text(String),
}

impl Key {
    /// That of a request, or of an envelope.
    pub(crate) fn of(body: &str) -> Self {
        let value = json(body).unwrap_or_default();
        match (value["tenant"].as_str(), value["send_id"].as_str()) {
            (Some(tenant), Some(send_id)) => Self::mail(tenant, send_id),
            _ => Self::Text(body.to_owned()),
        }
    }

    pub(crate) fn mail(tenant: &str, send_id: &str) -> Self {
        Self::Mail(tenant.to_owned(), send_id.to_owned())
    }
}

/// What is known of the messages of one key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    /// So many came in.
    pub(crate) came: usize,
    /// So many come again: SQS is told so.
    pub(crate) back: usize,
    /// So many are on a queue or in the bucket.
    pub(crate) out: usize,
    /// So many have ended for a reason that was told.
    pub(crate) ended: usize,
    /// So many more may have.
    pub(crate) may_have_ended: usize,
}

/// All of an event.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: BTreeMap<Key, Entry>,
    /// Of which messages each id is.
    ids: BTreeMap<String, BTreeSet<Key>>,
    back: Vec<String>,
    /// How often the provider was asked to send each.
    sends: BTreeMap<Key, usize>,
    /// Who may be taken to be paused, as the provider says so.
    may_pause: BTreeSet<String>,
}

impl Ledger {
    pub(crate) fn entry(&mut self, key: Key) -> &mut Entry {
        self.entries.entry(key).or_default()
    }

    /// Whether anything is on a queue or in the bucket.
    pub(crate) fn has_any_out(&self) -> bool {
        self.entries.values().any(|entry| entry.out > 0)
    }

    /// A message comes in.
    pub(crate) fn comes(&mut self, id: &str, body: &str) {
        let key = Key::of(body);
        self.ids
            .entry(id.to_owned())
            .or_default()
            .insert(key.clone());
        self.entry(key).came += 1;
    }

    /// The provider is asked to send one.
    pub(crate) fn sends(&mut self, key: Key) {
        *self.sends.entry(key).or_default() += 1;
    }

    /// The provider says that a tenant is paused.
    pub(crate) fn may_pause(&mut self, tenant: &str) {
        self.may_pause.insert(tenant.to_owned());
    }

    /// A tenant is taken to be paused.
    ///
    /// # Panics
    /// When nobody has said so.
    pub(crate) fn pauses(&self, tenant: &str) {
        assert!(
            self.may_pause.contains(tenant),
            "a wrong pause of {tenant:?}"
        );
    }

    /// One comes again.
    pub(crate) fn back(&mut self, id: &str) {
        self.back.push(id.to_owned());
    }

    /// Checks that all are in one place. `copies`: of those of one mail that came together, one may stand for all.
    ///
    /// # Panics
    /// When one is nowhere, or in two places.
    pub(crate) fn check(mut self, copies: bool) {
        let mut is_clear = true;
        for id in std::mem::take(&mut self.back) {
            let keys = self.ids.get(&id).cloned().unwrap_or_default();
            assert!(
                !keys.is_empty(),
                "a message {id:?} comes again that never came"
            );
            // Two messages of one id: it can't be told which of them comes again.
            is_clear &= keys.len() == 1;
            if let Some(key) = keys.into_iter().next() {
                self.entry(key).back += 1;
            }
        }
        if is_clear {
            for (key, entry) in &self.entries {
                balance(entry, copies, &format!("{key:?}"));
            }
        }
        for (key, sends) in &self.sends {
            let came = self.entries.get(key).map_or(0, |entry| entry.came);
            assert!(
                *sends <= came,
                "{came} came and {sends} were sent of {key:?}"
            );
        }
        let mut all = Entry::default();
        for entry in self.entries.values() {
            all.came += entry.came;
            all.back += entry.back;
            all.out += entry.out;
            all.ended += entry.ended;
            all.may_have_ended += entry.may_have_ended;
        }
        balance(&all, copies, "all");
    }
}

fn balance(entry: &Entry, copies: bool, of: &str) {
    let placed = entry.back + entry.out + entry.ended;
    assert!(placed <= entry.came, "more than came: {entry:?} of {of}");
    let least = if copies && entry.came > 1 {
        1
    } else {
        entry.came
    };
    assert!(
        placed + entry.may_have_ended >= least,
        "nowhere: {entry:?} of {of}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIL: &str = r#"{"tenant":"acme","send_id":"m-1"}"#;

    /// So many came, came again, are on a queue and have ended, of one mail.
    fn ledger(came: usize, back: usize, out: usize, ended: usize) -> Ledger {
        let mut ledger = Ledger::default();
        (0..came).for_each(|_| ledger.comes("1", MAIL));
        (0..back).for_each(|_| ledger.back("1"));
        let entry = ledger.entry(Key::of(MAIL));
        (entry.out, entry.ended) = (out, ended);
        ledger
    }

    #[test]
    fn what_is_in_one_place_is_in_order() {
        for (back, out, ended) in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
            ledger(1, back, out, ended).check(false);
        }
        ledger(3, 1, 1, 1).check(false);
        ledger(3, 0, 1, 0).check(true);
    }

    #[test]
    #[should_panic(expected = "nowhere")]
    fn what_is_nowhere_is_found() {
        ledger(1, 0, 0, 0).check(false);
    }

    #[test]
    #[should_panic(expected = "nowhere")]
    fn a_copy_that_is_lost_is_found_where_none_may_be() {
        ledger(3, 1, 0, 1).check(false);
    }

    #[test]
    #[should_panic(expected = "more than came")]
    fn what_is_in_two_places_is_found() {
        ledger(1, 1, 1, 0).check(true);
    }

    #[test]
    #[should_panic(expected = "never came")]
    fn what_comes_again_and_never_came_is_found() {
        let mut ledger = ledger(1, 0, 1, 0);
        ledger.back("2");
        ledger.check(false);
    }

    #[test]
    #[should_panic(expected = "1 came and 2 were sent")]
    fn what_is_sent_twice_is_found() {
        let mut ledger = ledger(1, 0, 0, 1);
        ledger.sends(Key::of(MAIL));
        ledger.sends(Key::of(MAIL));
        ledger.check(false);
    }

    #[test]
    #[should_panic(expected = "a wrong pause")]
    fn a_pause_that_nobody_has_told_of_is_found() {
        let mut ledger = ledger(1, 0, 0, 1);
        ledger.may_pause("beta");
        ledger.pauses("acme");
    }
}
