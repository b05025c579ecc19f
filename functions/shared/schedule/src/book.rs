//! Booking slots, and giving them back.

use sendslot_domain::{
    Cell, Lane, Millis, Moment, SendId, TenantName,
    schedule::{Slot, Standing, Wait},
    suppression::AddressDigest,
};

use crate::{Schedule, ScheduleError, script::Named};

/// What a caller asks a slot for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// On whose behalf.
    pub tenant: TenantName,
    /// Recipients, 1 to 50.
    pub cost: u32,
    /// Where the message stands.
    pub standing: Standing,
}

/// The answer to one [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Booking {
    /// The message may go then.
    Slot(Slot),
    /// The next free slot is past the booking horizon: ask again after the delay.
    Wait(Wait),
    /// The budget doesn't know the tenant.
    UnknownTenant,
    /// It costs more than what may be sent in an hour or a day: it can never go.
    OverCap,
    /// It has left its line, as it asked.
    Left,
    /// Its tenant may not send, and nothing is booked for it: it is to be parked.
    Paused,
    /// Nobody may send for so long, and nothing is booked meanwhile: ask so again.
    Blocked(Millis),
    /// Somebody cancelled it, and nothing is booked for it: drop it.
    Cancelled,
}

/// A booked slot that won't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unused {
    /// Whose it is.
    pub tenant: TenantName,
    /// In which cell its message was to go.
    pub goes: Cell,
    /// Its recipients, cell by cell.
    pub cells: Vec<(Cell, u32)>,
    /// Whether it was booked [`Standing::SlotOnly`].
    pub slot_only: bool,
}

impl Schedule {
    /// Books the whole batch in one round trip; one answer per ask, in order.
    ///
    /// # Errors
    /// When Redis can't be reached or holds no budget. Nothing is booked then, unless the answer was lost.
    pub async fn book(&self, lane: Lane, asks: &[Ask]) -> Result<Vec<Booking>, ScheduleError> {
        self.book_for(lane, asks, &[])
            .await
            .map(|(bookings, _)| bookings)
    }

    /// As [`Schedule::book`], and says in the same round trip which of these addresses, by index, nobody may be sent to. A message of
    /// theirs is booked all the same: who asked gives the slot back, and asks for those that are left. While nobody may send at all
    /// ([`Booking::Blocked`]), and where there are no asks, nobody is looked up and none is named.
    ///
    /// # Errors
    /// As [`Schedule::book`].
    pub async fn book_for(
        &self,
        lane: Lane,
        asks: &[Ask],
        addresses: &[AddressDigest],
    ) -> Result<(Vec<Booking>, Vec<usize>), ScheduleError> {
        self.book_mail(lane, asks, &[], addresses).await
    }

    /// As [`Schedule::book_for`], and notes in the same round trip what becomes of the mails with these send ids, one for each ask, for
    /// [`Schedule::find`]. One that was cancelled is told so ([`Booking::Cancelled`]); nothing is booked for it. An ask without a send id
    /// leaves no note; nor does any where `ids` is empty.
    ///
    /// # Errors
    /// As [`Schedule::book`].
    pub async fn book_mail(
        &self,
        lane: Lane,
        asks: &[Ask],
        ids: &[Option<SendId>],
        addresses: &[AddressDigest],
    ) -> Result<(Vec<Booking>, Vec<usize>), ScheduleError> {
        if asks.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let runs: Vec<&[Ask]> = asks.chunk_by(alike).collect();
        let traced = ids.len() == asks.len() && ids.iter().any(Option::is_some);
        let script = if traced {
            &self.scripts.book_mail
        } else {
            &self.scripts.book
        };
        let mut call = script.prepare();
        call.key(&self.keys.budget)
            .key(&self.keys.schedule)
            .key(self.keys.ends(lane))
            .key(self.keys.asked(lane))
            .key(&self.keys.guard);
        call.arg(lane.as_str());
        for run in &runs {
            call.key(self.keys.tenant(&run[0].tenant));
            call.arg(run[0].tenant.as_str())
                .arg(run[0].cost)
                .arg(run.len());
            match run[0].standing {
                Standing::New => call.arg("new"),
                Standing::Waited { place } => call.arg(place),
                Standing::Left { place } => call.arg(format!("-{place}")),
                Standing::Again => call.arg("again"),
                Standing::SlotOnly => call.arg("slot"),
            };
        }
        if let Some(digest) = &self.expects {
            call.arg(&**digest);
        } else if !addresses.is_empty() {
            call.arg("");
        }
        if !addresses.is_empty() {
            let digests: Vec<u8> = addresses.iter().flat_map(|digest| digest.0).collect();
            call.key(&self.keys.suppressed).arg(digests);
        }
        if traced {
            call.arg(5 + runs.len() + usize::from(!addresses.is_empty()));
            let mut which = String::with_capacity(ids.len());
            for (ask, id) in asks.iter().zip(ids) {
                which.push(if id.is_some() { '1' } else { '0' });
                if let Some(id) = id {
                    call.key(self.keys.trace(&ask.tenant, id));
                }
            }
            call.arg(which);
        }
        let answer: Vec<i64> = Named::call(&call, &self.connection, &self.keys.budget).await?;
        let read = || {
            let (mut rest, mut cancelled, mut suppressed) = (&answer[..], Vec::new(), Vec::new());
            if traced {
                (rest, cancelled) = split(rest, asks.len())?;
            }
            if !addresses.is_empty() {
                (rest, suppressed) = split(rest, addresses.len())?;
            }
            let booked = read(&without(&runs, &cancelled), rest)?;
            Some((with(booked, asks.len(), &cancelled)?, suppressed))
        };
        read().ok_or_else(|| script.unreadable(&answer))
    }

    /// Gives booked recipients back, for whoever books next. Cells that have begun are past saving and ignored.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn release(&self, lane: Lane, unused: &[Unused]) -> Result<(), ScheduleError> {
        if unused.is_empty() {
            return Ok(());
        }
        let mut call = self.scripts.release.prepare();
        call.key(&self.keys.schedule);
        call.arg(lane.as_str());
        for one in unused {
            call.key(self.keys.tenant(&one.tenant));
            call.arg(one.goes.0)
                .arg(u8::from(one.slot_only))
                .arg(one.cells.len());
            for (cell, count) in &one.cells {
                call.arg(cell.0).arg(count);
            }
        }
        let _given: u64 = Named::call(&call, &self.connection, &self.keys.budget).await?;
        Ok(())
    }

    /// Lets a tenant send nothing, for a while or until it is resumed. Gives back all that it has booked, and ends its waiting
    /// lines: others have its cells and its turns. `reason` is a word.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn pause(
        &self,
        tenant: &TenantName,
        length: Option<Millis>,
        reason: &str,
    ) -> Result<(), ScheduleError> {
        let mut call = self.scripts.pause.prepare();
        call.key(&self.keys.schedule).key(self.keys.tenant(tenant));
        for lane in Lane::ALL {
            call.key(self.keys.ends(lane)).key(self.keys.asked(lane));
        }
        call.key(&self.keys.paused);
        call.arg(tenant.as_str())
            .arg(length.map_or(0, |length| length.0.max(1))) // 0 has no end
            .arg(reason);
        let _given: u64 = Named::call(&call, &self.connection, &self.keys.budget).await?;
        Ok(())
    }

    /// Lets a tenant send again, and forgets what was counted against it. Answers whether it was paused.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn resume(&self, tenant: &TenantName) -> Result<bool, ScheduleError> {
        let mut call = self.scripts.resume.prepare();
        call.key(&self.keys.paused)
            .key(self.keys.counts(tenant))
            .key(self.keys.tenant(tenant))
            .arg(tenant.as_str());
        let was: u8 = Named::call(&call, &self.connection, &self.keys.budget).await?;
        Ok(was == 1)
    }
}

/// Whether two messages can share a run: a place is one message's own.
fn alike(a: &Ask, b: &Ask) -> bool {
    let has_place = matches!(a.standing, Standing::Waited { .. } | Standing::Left { .. });
    a == b && !has_place
}

/// The runs without these messages, by index; a run with none left is missing.
fn without<'a>(runs: &[&'a [Ask]], cancelled: &[usize]) -> Vec<&'a [Ask]> {
    let mut begin = 0;
    let left = runs.iter().map(|run| {
        let here = begin..begin + run.len();
        begin = here.end;
        let gone = cancelled.iter().filter(|index| here.contains(index));
        &run[gone.count()..] // they are alike
    });
    left.filter(|run| !run.is_empty()).collect()
}

/// These bookings with those of the cancelled messages, so many in all.
fn with(booked: Vec<Booking>, all: usize, cancelled: &[usize]) -> Option<Vec<Booking>> {
    if booked.len() + cancelled.len() != all {
        return None;
    }
    let (mut booked, mut cancelled) = (booked.into_iter(), cancelled.iter().peekable());
    let booking = |index| {
        if cancelled.next_if_eq(&&index).is_some() {
            return Some(Booking::Cancelled);
        }
        booked.next()
    };
    (0..all).map(booking).collect()
}

/// A stretch of recipients in one cell, as book.lua answers it.
struct Take {
    cell: u64,
    first: u64,
    count: u64,
    capacity: u64,
}

/// The numbers of an answer, one after the other.
struct Numbers<'a>(std::slice::Iter<'a, i64>);

impl Numbers<'_> {
    fn next(&mut self) -> Option<u64> {
        self.0.next().and_then(|n| u64::try_from(*n).ok())
    }

    fn count(&mut self) -> Option<usize> {
        self.next().and_then(|n| usize::try_from(n).ok())
    }
}

/// An answer without its end, and that end: which of so many addresses nobody may be sent to.
fn split(answer: &[i64], addresses: usize) -> Option<(&[i64], Vec<usize>)> {
    let (count, rest) = answer.split_last()?;
    let at = rest.len().checked_sub(usize::try_from(*count).ok()?)?;
    let (bookings, suppressed) = rest.split_at(at);
    let index = |n: &i64| usize::try_from(*n).ok().filter(|n| *n < addresses);
    let suppressed = suppressed.iter().map(index).collect::<Option<_>>()?;
    Some((bookings, suppressed))
}

/// Deals the runs' recipients out to their messages, in order.
fn read(runs: &[&[Ask]], answer: &[i64]) -> Option<Vec<Booking>> {
    let mut numbers = Numbers(answer.iter());
    let now = Moment(numbers.next()?);
    if let [-1, left] = numbers.0.as_slice() {
        let left = Millis(u64::try_from(*left).ok()?);
        let asks = runs.iter().flat_map(|run| run.iter());
        let answer = |ask: &Ask| match ask.standing {
            Standing::Left { .. } => Booking::Left, // its line shortens when it is seen that nobody asks
            _ => Booking::Blocked(left),
        };
        return Some(asks.map(answer).collect());
    }
    let largest_shared = numbers.next()?;
    let _looked_at = numbers.next()?;
    let mut bookings = Vec::with_capacity(runs.iter().map(|run| run.len()).sum());
    for run in runs {
        let refusal = match numbers.0.as_slice().first() {
            Some(-1) => Some(Booking::UnknownTenant),
            Some(-2) => Some(Booking::OverCap),
            Some(-3) => Some(Booking::Paused),
            _ => None,
        };
        if let Some(refusal) = refusal {
            numbers.0.next();
            bookings.extend(run.iter().map(|_| refusal.clone()));
            continue;
        }
        let (booked, takes, waits) = (numbers.count()?, numbers.count()?, numbers.count()?);
        if matches!(run[0].standing, Standing::Left { .. }) && booked + takes + waits == 0 {
            bookings.push(Booking::Left);
            continue;
        }
        if booked + waits != run.len() {
            return None;
        }
        let takes: Vec<Take> = (0..takes)
            .map(|_| {
                let (cell, first, count, capacity) = (
                    numbers.next()?,
                    numbers.next()?,
                    numbers.next()?,
                    numbers.next()?,
                );
                Some(Take {
                    cell,
                    first,
                    count,
                    capacity,
                })
            })
            .collect::<Option<_>>()?;
        let mut takes = takes.into_iter().peekable();
        for ask in &run[..booked] {
            bookings.push(Booking::Slot(deal(
                now,
                u64::from(ask.cost),
                largest_shared,
                &mut takes,
            )?));
        }
        for _ in 0..waits {
            let (delay, place, estimate) = (
                Millis(numbers.next()?),
                numbers.next()?,
                Millis(numbers.next()?),
            );
            bookings.push(Booking::Wait(Wait {
                delay,
                place,
                estimate,
            }));
        }
    }
    Some(bookings)
}

/// The slot of the next message: the turn of its last recipient, or of its ⌊L⌋-th if it costs more.
fn deal(
    now: Moment,
    cost: u64,
    largest_shared: u64,
    takes: &mut std::iter::Peekable<impl Iterator<Item = Take>>,
) -> Option<Slot> {
    let goes_with = cost.min(largest_shared);
    let mut cells = Vec::with_capacity(1);
    let mut at = now;
    let mut dealt = 0;
    while dealt < cost {
        let take = takes.peek_mut()?;
        let count = take.count.min(cost - dealt);
        if dealt < goes_with {
            let turn = take.first + count.min(goes_with - dealt) - 1;
            at = Moment(take.cell * 1000 + turn * 1000 / take.capacity.max(1)).max(now);
        }
        cells.push((Cell(take.cell), u32::try_from(count).ok()?));
        dealt += count;
        take.first += count;
        take.count -= count;
        if take.count == 0 {
            takes.next();
        }
    }
    Some(Slot {
        at,
        delay: now.until(at),
        cells,
    })
}
