//! A world around the schedule: mail that arrives, sleeps on a queue, asks, and goes, on a clock of its own.

use std::{cmp::Reverse, collections::BinaryHeap};

use sendslot_domain::{
    Budget, Lane, Moment, TenantName,
    schedule::{Booking, Slot, Standing, Tenant},
};

use super::{Result, desk::Desk};

/// A message, from when it is handed in until its slot.
#[derive(Clone, Debug)]
pub(super) struct Mail {
    /// Whose it is, an index.
    pub(super) tenant: usize,
    /// When it was handed in.
    pub(super) born: Moment,
    /// How often it has waited.
    pub(super) waits: u32,
    /// Its slot, once it is booked.
    pub(super) slot: Option<Slot>,
    /// Whether it never comes back.
    lost: bool,
    standing: Standing,
}

/// Who comes to the desk next: when, in which order, and which mail.
type Coming = Reverse<(Moment, u64, usize)>;

/// All mail of a run.
pub(super) struct World<'a> {
    desk: &'a mut dyn Desk,
    lane: Lane,
    tenants: Vec<TenantName>,
    /// All mail there was.
    pub(super) mail: Vec<Mail>,
    coming: BinaryHeap<Coming>,
    order: u64,
    /// What time it is.
    pub(super) now: Moment,
}

/// How many messages one call asks for.
const BATCH: usize = 10;

impl<'a> World<'a> {
    pub(super) fn new(
        desk: &'a mut dyn Desk,
        tenants: &[(TenantName, Tenant)],
        now: Moment,
    ) -> Self {
        Self {
            desk,
            lane: Lane::Bulk,
            tenants: tenants.iter().map(|(name, _)| name.clone()).collect(),
            mail: Vec::new(),
            coming: BinaryHeap::new(),
            order: 0,
            now,
        }
    }

    /// A tenant hands in so many mails of one recipient at a moment.
    pub(super) fn hand_in(&mut self, tenant: usize, count: usize, at: Moment) {
        for _ in 0..count {
            self.mail.push(Mail {
                tenant,
                born: at,
                waits: 0,
                slot: None,
                lost: false,
                standing: Standing::New,
            });
            self.comes(at, self.mail.len() - 1);
        }
    }

    fn comes(&mut self, at: Moment, mail: usize) {
        self.order += 1;
        self.coming.push(Reverse((at, self.order, mail)));
    }

    /// A tenant is paused: what it has booked from the next second on is no more.
    pub(super) fn pause(&mut self, tenant: usize) -> Result<()> {
        self.desk.pause(self.now, &self.tenants[tenant])?;
        let gone = Moment((self.now.0 / 1000 + 1) * 1000);
        for mail in self.mail.iter_mut().filter(|mail| mail.tenant == tenant) {
            mail.slot = mail.slot.take().filter(|slot| slot.at < gone);
        }
        Ok(())
    }

    /// Of the mail that waits, each n-th never comes back.
    pub(super) fn lose(&mut self, nth: usize) {
        let waiting = self.mail.iter_mut().filter(|mail| mail.slot.is_none());
        for mail in waiting.step_by(nth) {
            mail.lost = true;
        }
    }

    /// Mail that is still to come: without slot, and not lost.
    pub(super) fn left(&self) -> usize {
        let left = self
            .mail
            .iter()
            .filter(|mail| mail.slot.is_none() && !mail.lost);
        left.count()
    }

    /// Nobody is asked until a moment; who would have asked does so then.
    pub(super) fn stall(&mut self, until: Moment) {
        let coming = std::mem::take(&mut self.coming).into_iter();
        let put_off = |Reverse((at, order, mail)): Coming| Reverse((at.max(until), order, mail));
        self.coming = coming.map(put_off).collect();
        self.now = self.now.max(until);
    }

    pub(super) fn set_budget(&mut self, budget: Budget) -> Result<()> {
        self.desk.set_budget(self.now, budget)
    }

    /// Lets time pass until a moment; `asks` says of which tenants' mail still asks, the rest is set aside when it wakes.
    pub(super) fn run_until(&mut self, end: Moment, asks: impl Fn(usize) -> bool) -> Result<()> {
        while let Some(Reverse((at, ..))) = self.coming.peek().copied() {
            if at > end {
                break;
            }
            self.now = self.now.max(at);
            // A batch is what has come by now, up to ten of it.
            let mut batch = Vec::with_capacity(BATCH);
            while batch.len() < BATCH {
                match self.coming.peek() {
                    Some(Reverse((due, _, mail))) if *due <= self.now => {
                        if asks(self.mail[*mail].tenant) && !self.mail[*mail].lost {
                            batch.push(*mail);
                        }
                        self.coming.pop();
                    }
                    _ => break,
                }
            }
            let asked: Vec<_> = batch
                .iter()
                .map(|mail| {
                    let mail = &self.mail[*mail];
                    (self.tenants[mail.tenant].clone(), mail.standing)
                })
                .collect();
            let answers = self.desk.book(self.now, self.lane, &asked)?;
            for (index, answer) in batch.into_iter().zip(answers) {
                let mail = &mut self.mail[index];
                match answer {
                    Booking::Slot(slot) => mail.slot = Some(slot),
                    Booking::Wait(wait) => {
                        mail.waits += 1;
                        mail.standing = Standing::Waited { place: wait.place };
                        // What the queue makes of a delay: whole seconds, and a little more until it is received.
                        let jitter = (self.order * 7919) % 4 * 100;
                        let wakes = Moment(self.now.0 + wait.delay.whole_secs() * 1000 + jitter);
                        self.comes(wakes, index);
                    }
                    other => return Err(format!("{other:?}").into()),
                }
            }
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// Until all mail has a slot.
    pub(super) fn run(&mut self) -> Result<()> {
        while let Some(Reverse((at, ..))) = self.coming.peek().copied() {
            self.run_until(at, |_| true)?;
        }
        Ok(())
    }

    /// Mail with a slot in these seconds after `start`, by tenant.
    pub(super) fn sent(&self, start: Moment, from: u64, to: u64) -> Vec<u64> {
        let mut sent = vec![0; self.tenants.len()];
        let within = start.0 + from * 1000..start.0 + to * 1000;
        for mail in &self.mail {
            if mail
                .slot
                .as_ref()
                .is_some_and(|slot| within.contains(&slot.at.0))
            {
                sent[mail.tenant] += 1;
            }
        }
        sent
    }

    /// Mail with a slot in each second after `start`.
    pub(super) fn per_second(&self, start: Moment, seconds: usize) -> Vec<u64> {
        let mut sent = vec![0; seconds];
        for slot in self.mail.iter().filter_map(|mail| mail.slot.as_ref()) {
            let second = usize::try_from(start.until(slot.at).0 / 1000).unwrap_or(usize::MAX);
            if slot.at >= start
                && let Some(count) = sent.get_mut(second)
            {
                *count += 1;
            }
        }
        sent
    }

    /// By how much mail was overtaken by newer mail of its tenant, at most, ms.
    pub(super) fn overtaken(&self) -> u64 {
        let mut most = 0;
        let mut earliest_newer = vec![u64::MAX; self.tenants.len()];
        for mail in self.mail.iter().rev() {
            let Some(slot) = &mail.slot else { continue };
            let newer = &mut earliest_newer[mail.tenant];
            most = most.max(slot.at.0.saturating_sub(*newer));
            *newer = (*newer).min(slot.at.0);
        }
        most
    }

    /// Mean and most waits per mail, and mean and most beyond one per 900 s of its whole wait.
    pub(super) fn waits(&self) -> Waits {
        let mut waits = Waits::default();
        let mut count = 0_u32;
        for mail in &self.mail {
            let Some(slot) = &mail.slot else { continue };
            let needed = u32::try_from(mail.born.until(slot.at).0 / 900_000).unwrap_or(u32::MAX);
            let beyond = mail.waits.saturating_sub(needed);
            waits.mean += f64::from(mail.waits);
            waits.mean_beyond += f64::from(beyond);
            waits.most = waits.most.max(mail.waits);
            waits.most_beyond = waits.most_beyond.max(beyond);
            count += 1;
        }
        waits.mean /= f64::from(count.max(1));
        waits.mean_beyond /= f64::from(count.max(1));
        waits
    }

    /// The last slot there is.
    pub(super) fn last(&self) -> Moment {
        let slots = self.mail.iter().filter_map(|mail| mail.slot.as_ref());
        slots.map(|slot| slot.at).max().unwrap_or_default()
    }
}

/// How often mail waited.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    pub(super) mean: f64,
    pub(super) most: u32,
    /// Beyond one per 900 s: no delay is longer.
    pub(super) mean_beyond: f64,
    pub(super) most_beyond: u32,
}
