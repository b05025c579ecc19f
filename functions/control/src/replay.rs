//! Parked mail of those who may send goes again, by itself: the action `replay`, asked for each minute.
//!
//! # What holds
//! - **A tenant's rate is kept**, whoever drives its replay: [`sendslot_schedule::Schedule::draw`] says how many recipients may go, and is
//!   told how many went.
//! - **Rounds of about a second**, a few tenants at a time, each one's oldest first. Who has to wait for slots asks for little until
//!   there are some: each asking reads mail out of the bucket.
//! - **Two at once do no harm**: a mail that both release goes once, as its claim is one.
//! - **What can't be released stays**, and isn't looked at again by this call; nor does it stop what is behind it.
//! - **It ends** when its time is up, or when nothing is left that could go.
//!
//! Only what is parked as `paused` is replayed. What is `uncertain` waits for an operator's `release`.

use std::{collections::BTreeSet, time::Duration};

use futures_util::{StreamExt, stream};
use sendslot_domain::{Millis, Moment, TenantName};
use sendslot_runtime::{
    control::{Failure, Replay, Replayed, ReplayedTenant},
    parking::{ParkedKey, Reason},
    queue::SendBatch,
};
use sendslot_schedule::{Look, Standing};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::{
    booking::in_time,
    deadline::Deadline,
    failure::{bad_field, has_budget, listed},
    ports::{Book, Parked},
    release::{AT_ONCE, Portion, ROUND, Releaser, Tally},
    status,
};

/// How long a replay goes on unless it is told otherwise, and at most: the next begins a minute after it did.
pub(crate) const LONGEST: u64 = 50;
/// From one part of a tenant's mail to the next.
const PACE: Duration = Duration::from_secs(1);
/// So often it is looked at who may send.
const LOOKS: Duration = Duration::from_secs(5);
/// How many tenants' mail goes at a time.
const TENANTS_AT_ONCE: usize = 4;
/// After so many bytes of one tenant no more is read in a round.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// The most recipients of one tenant in a round: of so many mails the costliest.
const MOST_RECIPIENTS: u32 = 50 * 200;
/// So many failures in a row end a tenant's replay, until the next.
const PATIENCE: u32 = 3;
/// What a tenant without a rate has of the rate that may be used.
const PART: f64 = 0.25;

/// How fast a tenant's parked mail goes if nobody has said so, recipients per second.
pub(crate) fn usual_rate(look: &Look) -> f64 {
    let effective = status::effective_rate(look).unwrap_or_default();
    (effective * PART).max(1.0)
}

/// A tenant's parked mail in a replay.
struct Line {
    tenant: TenantName,
    paused: bool,
    /// The next, as listed.
    keys: Vec<ParkedKey>,
    /// The last that was listed.
    after: Option<ParkedKey>,
    all_listed: bool,
    /// Nothing more can go in this replay.
    ended: bool,
    /// How many mails are asked for at a time.
    window: usize,
    /// Its next part isn't before.
    not_before: Instant,
    failures: u32,
    released: usize,
    expired: usize,
    refused: usize,
}

/// What all tenants' rounds go by.
#[derive(Clone, Copy)]
struct Terms {
    now: Moment,
    usually: f64,
    deadline: Deadline,
}

/// What is parked when a replay ends.
struct Left {
    /// When the oldest was first seen, of whatever reason.
    oldest: Option<Moment>,
    /// Whether a replay may release more.
    more: bool,
}

impl Line {
    fn new(tenant: TenantName) -> Self {
        Self {
            tenant,
            paused: false,
            keys: Vec::new(),
            after: None,
            all_listed: false,
            ended: false,
            window: ROUND,
            not_before: Instant::now(),
            failures: 0,
            released: 0,
            expired: 0,
            refused: 0,
        }
    }

    /// Whether anything of it may go until then.
    fn is_active(&self, until: Instant) -> bool {
        !self.ended && !self.paused && self.not_before < until
    }

    /// Takes in what became of the mails that were looked at.
    fn settle(&mut self, tally: &Tally, looked: usize, given: u32) {
        self.keys
            .retain(|key| !tally.settled.contains(&key.to_string()));
        self.released += tally.released;
        self.expired += tally.expired;
        self.refused += tally.refused;
        self.ended |= tally.unknown;
        let waits = tally.wait > Millis(0);
        let has_more = tally.recipients < u64::from(given);
        // What its queue doesn't take isn't settled: no reason to hurry.
        let all_settled = looked >= self.window && tally.settled.len() >= looked;
        if !waits && has_more && all_settled {
            self.not_before = Instant::now(); // it didn't get as far as its rate allows
        }
        self.window = if waits {
            tally.released.max(1)
        } else {
            ROUND.min(self.window * 2)
        };
        if tally.blocked {
            self.not_before = Instant::now() + Duration::from_millis(tally.wait.0);
        }
        if tally.paused {
            self.paused = true; // the next look tells until when
            self.not_before = Instant::now() + LOOKS;
        }
    }
}

impl<B: Book, Q: SendBatch, S: Parked> Releaser<'_, B, Q, S> {
    /// Releases parked mail for a while. The second answer is of how many tenants mail is parked at its end; nothing if that wasn't looked
    /// at.
    ///
    /// # Errors
    /// When the request is wrong, or bucket or schedule can't be used at its begin. What fails later ends what it concerns.
    pub async fn replay(
        &self,
        ask: &Replay,
        deadline: Deadline,
    ) -> Result<(Replayed, Option<usize>), Failure> {
        let (only, time) = wanted(ask)?;
        let deadline = deadline.after(time);
        let mut look = in_time(deadline.book_by(), self.schedule.look()).await?;
        has_budget(&look)?;
        let tenants = match only.clone() {
            Some(tenant) => vec![tenant],
            None => listed(timeout_at(deadline.book_by(), self.parked.tenants()).await)?,
        };
        let mut lines: Vec<Line> = tenants.into_iter().map(Line::new).collect();
        let mut looked = Instant::now();
        while !deadline.is_near() {
            if looked.elapsed() >= LOOKS {
                match in_time(deadline.book_by(), self.schedule.look()).await {
                    Ok(again) => (look, looked) = (again, Instant::now()),
                    Err(error) => {
                        tracing::error!(%error, "replay ends: it can't be seen who may send");
                        break;
                    }
                }
            }
            let terms = Terms {
                now: now(&look, looked),
                usually: usual_rate(&look),
                deadline,
            };
            match self.round(&mut lines, &look, terms).await {
                Some(next) => sleep_until(next).await,
                None => break,
            }
        }
        Ok(self
            .closed(lines, now(&look, looked), deadline, only.is_none())
            .await)
    }

    /// One round of all who may send and whose turn it is; answers when the next begins, if there is one.
    async fn round(&self, lines: &mut [Line], look: &Look, terms: Terms) -> Option<Instant> {
        let began = Instant::now();
        let end = terms.deadline.take_by();
        let paused: BTreeSet<&TenantName> = status::standing(look).map(|one| &one.tenant).collect();
        for line in &mut *lines {
            line.paused = paused.contains(&line.tenant) || line.paused && line.not_before > began;
        }
        let due = lines
            .iter_mut()
            .filter(|line| line.is_active(end) && line.not_before <= began);
        stream::iter(due)
            .for_each_concurrent(TENANTS_AT_ONCE, async |line| {
                if terms.deadline.is_near() {
                    return;
                }
                line.not_before = Instant::now() + PACE;
                match self.pass(line, terms).await {
                    Ok(()) => line.failures = 0,
                    Err(error) => {
                        tracing::error!(tenant = %line.tenant, %error, "parked mail isn't replayed");
                        line.failures += 1;
                        line.ended |= line.failures >= PATIENCE;
                    }
                }
            })
            .await;
        let active = lines.iter().filter(|line| line.is_active(end));
        active.map(|line| line.not_before).min()
    }

    /// One tenant's part of a round.
    async fn pass(&self, line: &mut Line, terms: Terms) -> Result<(), Failure> {
        let Terms {
            usually, deadline, ..
        } = terms;
        if line.keys.len() < line.window && !line.all_listed {
            let list = self.parked.oldest(
                &line.tenant,
                Some(Reason::Paused),
                line.after.as_ref(),
                ROUND,
            );
            let found = listed(timeout_at(deadline.take_by(), list).await)?;
            line.all_listed = found.len() < ROUND;
            line.after = found.last().cloned().or(line.after.take());
            line.keys.extend(found);
        }
        if line.keys.is_empty() {
            line.ended = line.all_listed;
            return Ok(());
        }
        let draw = self
            .schedule
            .draw(&line.tenant, MOST_RECIPIENTS, 0, usually);
        let given = in_time(deadline.book_by(), draw).await?;
        if given == 0 {
            return Ok(());
        }
        let mut tally = Tally::default();
        let done = self.go(line, given, &mut tally, terms).await;
        let beyond = i64::try_from(tally.recipients).unwrap_or(i64::MAX) - i64::from(given);
        if beyond != 0 {
            let draw = self.schedule.draw(&line.tenant, 0, beyond, usually);
            if let Err(error) = in_time(deadline.undo_by(), draw).await {
                tracing::warn!(tenant = %line.tenant, beyond, %error, "a replay's rate isn't corrected");
            }
        }
        // Also of what failed half-way.
        line.settle(&tally, *done.as_ref().unwrap_or(&0), given);
        done.map(|_| ())
    }

    /// Releases about so many recipients of a tenant's oldest mail; answers how many mails were looked at.
    async fn go(
        &self,
        line: &Line,
        given: u32,
        tally: &mut Tally,
        terms: Terms,
    ) -> Result<usize, Failure> {
        let Terms { now, deadline, .. } = terms;
        let portion = Portion {
            recipients: u64::from(given),
            bytes: MAX_BYTES,
        };
        let keys = &line.keys[..line.keys.len().min(line.window)];
        let (mails, looked) = self.read(keys, portion, now, tally, deadline).await?;
        // It isn't new mail: at its own rate it goes before all who wait, or a long backlog of others would hold it up for ever.
        self.send_on(mails, Reason::Paused, Standing::Again, tally, deadline)
            .await?;
        Ok(looked)
    }

    /// What has come of it, and what is left.
    async fn closed(
        &self,
        lines: Vec<Line>,
        now: Moment,
        deadline: Deadline,
        is_all: bool,
    ) -> (Replayed, Option<usize>) {
        let mut done: Vec<(Line, Result<Left, Failure>)> = stream::iter(lines)
            .map(async |line| {
                let left = self.left(&line, deadline).await;
                (line, left)
            })
            .buffered(AT_ONCE)
            .collect()
            .await;
        let (mut replayed, mut parked) = (Replayed::default(), is_all.then_some(0));
        for (line, left) in &mut done {
            let Line {
                tenant,
                paused,
                released,
                expired,
                refused,
                ..
            } = line;
            let more = match left {
                Ok(Left { oldest, more }) => {
                    if let Some(oldest) = oldest {
                        let age = oldest.until(now).whole_secs();
                        replayed.oldest_seconds = replayed.oldest_seconds.max(age);
                        parked = parked.map(|parked| parked + 1);
                    }
                    *more
                }
                Err(error) => {
                    tracing::error!(%tenant, %error, "it isn't known what is still parked");
                    parked = None;
                    true
                }
            };
            if *released + *expired + *refused > 0 {
                tracing::info!(%tenant, released, expired, refused, left = more, "replay");
            }
            replayed.tenants.push(ReplayedTenant {
                tenant: tenant.to_string(),
                paused: *paused,
                released: *released,
                expired: *expired,
                refused: *refused,
                left: more,
            });
        }
        (replayed, parked)
    }

    /// What is still parked of a tenant. If that is nothing, its rate is forgotten.
    async fn left(&self, line: &Line, deadline: Deadline) -> Result<Left, Failure> {
        let by = deadline.remove_by();
        let oldest = self.parked.oldest(&line.tenant, None, None, 1);
        let oldest = listed(timeout_at(by, oldest).await)?.pop();
        let first = match &oldest {
            Some(key) if key.reason != Reason::Paused => {
                let paused = Some(Reason::Paused);
                let list = self.parked.oldest(&line.tenant, paused, None, 1);
                listed(timeout_at(by, list).await)?.pop()
            }
            oldest => oldest.clone(),
        };
        if first.is_none() {
            in_time(deadline.undo_by(), self.schedule.end_replay(&line.tenant)).await?;
        }
        // What was refused was looked at, and is all that is parked of one that has ended.
        let more = first.is_some() && (!line.ended || line.failures > 0);
        Ok(Left {
            oldest: oldest.map(|key| key.first_seen),
            more,
        })
    }
}

/// Whose mail, and for how long.
fn wanted(ask: &Replay) -> Result<(Option<TenantName>, Duration), Failure> {
    let bad = |what: String| bad_field(format!("replay: {what}"));
    let only = ask.tenant.as_deref().filter(|tenant| !tenant.is_empty());
    let only = only
        .map(|name| {
            name.parse()
                .map_err(|error| bad(format!("tenant {name:?}: {error}")))
        })
        .transpose()?;
    let seconds = ask.seconds.unwrap_or(LONGEST);
    if !(1..=LONGEST).contains(&seconds) {
        return Err(bad(format!("seconds {seconds}: give 1 to {LONGEST}")));
    }
    Ok((only, Duration::from_secs(seconds)))
}

/// What time it is, on Redis' clock.
fn now(look: &Look, looked: Instant) -> Moment {
    let passed = u64::try_from(looked.elapsed().as_millis()).unwrap_or_default();
    look.now + Millis(passed)
}
