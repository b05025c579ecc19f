//! Who is served next when many wait: the waiting lines of a lane, merged into one by fair queueing.
//!
//! # The rules
//! - **One order.** Each tenant's waiting mail stands in line one behind the other. Laid side by side, the lines make
//!   one order: virtual time counts recipients per unit of weight, all tenants that wait are
//!   served at once, each by its weight, and a message's *tag* is the virtual time at which it has been served.
//!   (Start-time fair queueing; Goyal, Vin and Cheng 1996.) A tenant that joins starts at the present virtual time: it
//!   owes nothing for the past and is owed nothing.
//! - **Virtual time** moves by what is booked out of the lines: c recipients move it by c ÷ the weights of all that
//!   wait. So a lane that is slow or blocked changes nobody's turn. Turns that pass with nothing booked move it, too: whoever had
//!   them is late, or gone, and the others move up.
//! - **Rank.** Recipients before a message, of all lines: the weights of all that wait × the virtual time until its
//!   turn, less what is not there because a line ends before it. The eight lines that end first are known; and there is never more
//!   than all that waits.
//! - **Ends.** A line ends when virtual time has passed its last tag.
//! - **Quiet lines.** A waiting message asks at least every 900 s. A line from which nobody has asked for longer was
//!   emptied by somebody else: it ends, and its turns are the others'.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Cell, Millis, Moment, TenantName};

/// After so long without a question a line is taken for empty: the longest sleep, and five minutes for queues
/// that are behind.
pub const QUIET: Millis = Millis::from_secs(1200);
/// How often a line's last question is noted.
pub const NOTED: Millis = Millis::from_secs(60);
/// How often quiet lines are looked for.
pub const CHECKED: Millis = Millis::from_secs(1);
/// How many quiet lines end at a look.
pub const ENDED_AT_ONCE: usize = 16;
/// After a time in which nobody asked, so many seconds' turns pass.
pub const PASSES_AT_ONCE: u64 = 2;
/// How many ends of lines an estimate knows.
pub const ENDS_KNOWN: usize = 8;

/// The waiting lines of one lane.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Virtual time: recipients per unit of weight.
    time: f64,
    /// The weights of all that wait.
    weight: u64,
    /// When each line ends, by virtual time. The time is never negative, so its bits sort as it does.
    ends: BTreeSet<(u64, String)>,
    /// When somebody of each line last asked, about.
    asked: BTreeSet<(Moment, String)>,
    /// Where each line stands in the two above.
    held: BTreeMap<String, (u64, Moment)>,
    /// The ends of all lines, each times its weight: with the time it says how much waits in all.
    total: f64,
    /// When quiet lines were last looked for.
    checked: Moment,
    /// Up to which cell turns that nobody took have passed.
    passed: Cell,
}

/// A tenant's place among the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// The tag of its last message.
    pub tag: f64,
    /// Its weight among the lines; 0 while it has no line there.
    pub weight: u32,
    /// When somebody of it last asked, about.
    pub asked: Moment,
}

/// A tenant among the lines: weight first, so that the weight of a line that ends is known.
fn member(weight: u32, tenant: &TenantName) -> String {
    format!("{weight}|{tenant}")
}

fn weight_of(member: &str) -> u32 {
    let digits = member.split('|').next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

impl Lines {
    /// Virtual time, recipients per unit of weight.
    #[must_use]
    pub const fn time(&self) -> f64 {
        self.time
    }

    /// The weights of all that wait.
    #[must_use]
    pub const fn weight(&self) -> u64 {
        self.weight
    }

    /// The ends of all lines, each times its weight.
    #[must_use]
    pub const fn total(&self) -> f64 {
        self.total
    }

    /// Up to which cell turns that nobody took have passed.
    #[must_use]
    pub const fn passed(&self) -> Cell {
        self.passed
    }

    /// When quiet lines were last looked for.
    #[must_use]
    pub const fn checked(&self) -> Moment {
        self.checked
    }

    /// The lines, by when they end: virtual time, and weight and tenant as one word.
    pub fn ends(&self) -> impl Iterator<Item = (f64, &str)> {
        self.ends
            .iter()
            .map(|(end, member)| (f64::from_bits(*end), member.as_str()))
    }

    /// The lines, by when somebody last asked.
    pub fn asked(&self) -> impl Iterator<Item = (Moment, &str)> {
        self.asked
            .iter()
            .map(|(asked, member)| (*asked, member.as_str()))
    }

    /// Whether a tenant has a line that is served.
    #[must_use]
    pub fn is_open(&self, tenant: &Standing, now: Moment) -> bool {
        tenant.weight > 0 && tenant.tag > self.time && now <= tenant.asked + QUIET
    }

    /// Ends the lines that are quiet, once in a while.
    pub fn check(&mut self, now: Moment) {
        if now >= self.checked && now < self.checked + CHECKED {
            return;
        }
        self.checked = now;
        for _ in 0..ENDED_AT_ONCE {
            let Some((asked, member)) = self.asked.first().cloned() else {
                return;
            };
            if now <= asked + QUIET {
                return;
            }
            self.remove(&member);
        }
    }

    /// Turns that nobody took pass: from this cell on, none has been booked; `turns` says how many a lane had before a
    /// cell. Of a time in which nobody asked, two seconds count: then the mail is late, not gone.
    pub fn pass(&mut self, now: Cell, frontier: Cell, turns: impl Fn(Cell) -> u64) {
        if self.weight == 0 {
            return;
        }
        let from = Cell(now.0.saturating_sub(PASSES_AT_ONCE))
            .max(frontier)
            .max(self.passed);
        self.passed = now;
        if from < now {
            self.serve(turns(now) - turns(from));
        }
    }

    /// Recipients of all lines before a message of this tenant whose turn begins at `start` (virtual time).
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "an estimate, and the scripts compute it alike"
    )]
    pub fn rank(&self, start: f64, own: &Standing) -> f64 {
        let mut rank = (start - self.time) * self.weight as f64;
        for (end, member) in self.ends().take(ENDS_KNOWN) {
            if end >= start {
                break;
            }
            rank -= f64::from(weight_of(member)) * (start - end);
        }
        // No more than all that waits, its own mail from itself on apart.
        let all = self.total - self.time * self.weight as f64;
        let own = (own.tag - start) * f64::from(own.weight);
        rank.min(all - own).max(0.0)
    }

    /// A tenant's line grows by so many recipients, or begins.
    pub fn join(&mut self, name: &TenantName, tenant: &mut Standing, weight: u32, cost: u32) {
        let tag = tenant.tag.max(self.time) + f64::from(cost) / f64::from(weight);
        self.leave(name, tenant);
        let member = member(weight, name);
        self.ends.insert((tag.to_bits(), member.clone()));
        self.asked.insert((tenant.asked, member.clone()));
        self.held.insert(member, (tag.to_bits(), tenant.asked));
        self.weight += u64::from(weight);
        self.total += f64::from(weight) * tag;
        tenant.tag = tag;
        tenant.weight = weight;
    }

    /// So many recipients of a tenant's line are not there any more; so many are left. What virtual time has passed
    /// already is not taken off again.
    pub fn shorten(&mut self, name: &TenantName, tenant: &mut Standing, gone: u64, left: u64) {
        let weight = tenant.weight;
        let shorter = tenant.tag - to_float(gone) / f64::from(weight);
        let needed = self.time + to_float(left) / f64::from(weight);
        let tag = tenant.tag.min(shorter.max(needed));
        self.leave(name, tenant);
        tenant.tag = tag;
        if tag > self.time {
            self.join(name, tenant, weight, 0);
        }
    }

    /// A tenant's line ends now.
    pub fn leave(&mut self, name: &TenantName, tenant: &mut Standing) {
        if tenant.weight > 0 {
            self.remove(&member(tenant.weight, name));
            (tenant.weight, tenant.tag) = (0, 0.0);
        }
    }

    /// Notes that somebody of a tenant asks, if that hasn't been noted lately. A line that was quiet has ended.
    pub fn ask(&mut self, name: &TenantName, tenant: &mut Standing, now: Moment) {
        if now >= tenant.asked + NOTED || now < tenant.asked {
            if tenant.weight > 0 {
                let member = member(tenant.weight, name);
                if let Some((_, asked)) = self.held.get_mut(&member) {
                    self.asked.remove(&(*asked, member.clone()));
                    self.asked.insert((now, member));
                    *asked = now;
                }
            }
            tenant.asked = now;
        }
    }

    /// So many recipients were booked out of the lines.
    #[expect(
        clippy::cast_precision_loss,
        reason = "weights are far below 2^52, and the scripts compute alike"
    )]
    pub fn serve(&mut self, recipients: u64) {
        let mut left = to_float(recipients);
        while let Some((end, member)) = self.ends.first().cloned() {
            let end = f64::from_bits(end);
            let step = left / self.weight as f64;
            if self.time + step < end {
                self.time += step;
                return;
            }
            if end > self.time {
                left -= (end - self.time) * self.weight as f64;
                self.time = end;
            }
            self.remove(&member);
            if left <= 0.0 {
                return;
            }
        }
    }

    fn remove(&mut self, member: &str) {
        if let Some((end, asked)) = self.held.remove(member) {
            self.ends.remove(&(end, member.to_owned()));
            self.asked.remove(&(asked, member.to_owned()));
            let weight = weight_of(member);
            self.weight -= u64::from(weight);
            self.total -= f64::from(weight) * f64::from_bits(end);
            if self.weight == 0 {
                self.total = 0.0;
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
const fn to_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(1_800_000_000_000);

    fn name(text: &str) -> TenantName {
        text.parse().unwrap()
    }

    /// A tenant with so many recipients in line.
    fn waiting(lines: &mut Lines, text: &str, weight: u32, recipients: u32) -> Standing {
        let mut tenant = Standing {
            asked: NOW,
            ..Standing::default()
        };
        lines.join(&name(text), &mut tenant, weight, recipients);
        tenant
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "whole numbers and halves")]
    fn lines_move_together_each_by_its_weight() {
        let mut lines = Lines::default();
        let acme = waiting(&mut lines, "acme", 3, 300);
        let beta = waiting(&mut lines, "beta", 1, 300);
        lines.serve(80);
        // Of 80 recipients 60 are acme's, 20 are beta's.
        assert_eq!(lines.time(), 20.0);
        assert_eq!((acme.tag - lines.time()) * 3.0, 240.0);
        assert_eq!((beta.tag - lines.time()) * 1.0, 280.0);
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "whole numbers")]
    fn whoever_ends_early_leaves_its_turns_to_the_others_and_that_is_known_before() {
        let mut lines = Lines::default();
        let short = waiting(&mut lines, "short", 1, 10);
        let long = waiting(&mut lines, "long", 1, 1000);
        // Before long's last: its own 999, and all ten of the other.
        assert_eq!(lines.rank(long.tag - 1.0, &long), 1009.0);
        lines.serve(20);
        assert!(!lines.is_open(&short, NOW) && lines.is_open(&long, NOW));
        assert_eq!(lines.weight(), 1);
        assert_eq!(lines.rank(long.tag - 1.0, &long), 989.0);
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "whole numbers")]
    fn a_newcomer_owes_nothing_and_is_owed_nothing() {
        let mut lines = Lines::default();
        waiting(&mut lines, "early", 1, 72_000);
        lines.serve(5000);
        let newcomer = waiting(&mut lines, "newcomer", 1, 1);
        assert_eq!(newcomer.tag, lines.time() + 1.0);
        assert_eq!(lines.rank(newcomer.tag - 1.0, &newcomer), 0.0);
    }

    #[test]
    fn a_line_from_which_nobody_asks_ends_and_one_that_asks_does_not() {
        let mut lines = Lines::default();
        let gone = waiting(&mut lines, "gone", 1, 1000);
        let mut here = waiting(&mut lines, "here", 1, 1000);
        let later = NOW + Millis::from_secs(900);
        lines.ask(&name("here"), &mut here, later);
        let quiet = NOW + QUIET + Millis(1);
        lines.check(quiet);
        assert!(!lines.is_open(&gone, quiet) && lines.is_open(&here, quiet));
        assert_eq!(lines.weight(), 1);
    }
}
