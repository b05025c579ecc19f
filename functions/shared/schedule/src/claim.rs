//! Claiming messages to send, drawing their grants, and ending the claims.

use redis::{FromRedisValue, Value};
use sendslot_domain::{Lane, Millis, Moment, SendId, TenantName};

use crate::{Schedule, ScheduleError, script::Named};

/// A slot further ahead than any the schedule gives was given by a clock since set back.
const FARTHEST_SLOT: Millis = Millis::from_secs(960);

/// What a worker asks to send now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimAsk {
    /// The tenant that scopes the send id.
    pub tenant: TenantName,
    /// The message's idempotency key.
    pub send_id: SendId,
    /// A digest of the content, without `|`: the same id with another digest is another mail.
    pub fingerprint: String,
    /// Recipients, 1 to 50.
    pub cost: u32,
    /// Its slot.
    pub slot: Moment,
    /// Since when somebody may have claimed it before, if somebody may: it is received again, or a copy of what was. If
    /// Redis has lost what it knew since then, it is uncertain; since time began, it is whatever Redis has lost.
    pub suspect_since: Option<Moment>,
    /// Whose claims of it surely sent nothing, if anybody's, with commas between: whoever lost the answer to a claim.
    pub void: Option<String>,
    /// What is asked for.
    pub purpose: Purpose,
}

/// What a message is claimed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To send it.
    Send,
    /// To send it, and never again where it may have been sent, whatever [`Terms::resend_after`] says.
    Once,
    /// To send it, also if it may have been sent before: an operator said so.
    Resend,
    /// To have it known that it has expired, unless it was sent.
    Expire,
}

/// On what terms a worker claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The batch's lane: bulk doesn't draw priority's part.
    pub lane: Lane,
    /// How long a claim is alive: longer than the worker can take.
    pub lease: Millis,
    /// The longest wait for a grant; at most 3 s.
    pub longest_wait: Millis,
    /// How long a claim is remembered if its end is never told: longer than any message lives.
    pub memory: Millis,
    /// How long an uncertain message waits for the event that it was sent before it is sent again; nothing: for ever.
    pub resend_after: Option<Millis>,
}

/// The answer to one [`ClaimAsk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Claimed and granted: send after the wait, counted from the moment the answer arrived.
    Go {
        /// The grant: the moment it may go.
        at: Moment,
        /// How long to wait first: `at` minus the Redis clock, zero when it is due.
        wait: Millis,
    },
    /// Neither claimed nor granted.
    Later {
        /// Time until the slot, if that is further away than the longest wait.
        wait: Millis,
        /// Whether the slot is still ahead. If not, the guard has no grant in time (or the slot was given by
        /// a clock since set back): the message should take a new slot.
        slot_ahead: bool,
    },
    /// The send id has ended: drop this copy.
    Ended(Ended),
    /// It had expired, and is marked so.
    Expired,
    /// Another worker is sending it: come back when its lease ends.
    Held {
        /// What is left of that lease.
        left: Millis,
    },
    /// It may have been sent: wait for the event that says so.
    Uncertain {
        /// How long it has been uncertain.
        age: Millis,
    },
    /// The send id was used for other content.
    Conflict,
    /// Its tenant may not send.
    Paused {
        /// For how long yet, if that is known.
        left: Option<Millis>,
    },
    /// Nobody may send.
    Blocked {
        /// For how long yet.
        left: Millis,
    },
}

/// How a send id ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The provider accepted it.
    Sent,
    /// The provider refused it for good.
    Rejected,
    /// It expired first.
    Expired,
    /// Somebody cancelled it, and gave its slot back.
    Cancelled,
    /// In a way that this version doesn't know.
    Otherwise,
}

/// How one claimed message ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The tenant that scopes the send id.
    pub tenant: TenantName,
    /// The message's idempotency key.
    pub send_id: SendId,
    /// What became of it.
    pub how: Ending,
    /// Its recipients.
    pub cost: u32,
}

/// What became of a claimed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The provider accepted it: leave a mark, so that no copy is ever sent again.
    Sent,
    /// The provider refused it for good: likewise.
    Rejected,
    /// Nobody knows whether the provider accepted it.
    Uncertain,
    /// It was not sent and may be tried again: give the claim up.
    Free,
}

impl Schedule {
    /// Claims a batch for `owner`, and draws each one's grant from the guard, in one round trip; one answer
    /// per ask, in order.
    ///
    /// # Errors
    /// When Redis can't be reached or holds no budget. Nothing is claimed then, unless the answer was lost.
    pub async fn claim(
        &self,
        owner: &str,
        terms: Terms,
        asks: &[ClaimAsk],
    ) -> Result<Vec<Claim>, ScheduleError> {
        self.claim_as("new", owner, terms, asks).await
    }

    /// Draws new grants for what `owner` has claimed, since the old ones are over: as [`Schedule::claim`]. What gets none
    /// stays claimed.
    ///
    /// # Errors
    /// As [`Schedule::claim`].
    pub async fn renew(
        &self,
        owner: &str,
        terms: Terms,
        asks: &[ClaimAsk],
    ) -> Result<Vec<Claim>, ScheduleError> {
        self.claim_as("renew", owner, terms, asks).await
    }

    async fn claim_as(
        &self,
        mode: &str,
        owner: &str,
        terms: Terms,
        asks: &[ClaimAsk],
    ) -> Result<Vec<Claim>, ScheduleError> {
        if asks.is_empty() {
            return Ok(Vec::new());
        }
        let script = &self.scripts.claim;
        let mut call = script.prepare();
        call.key(&self.keys.budget)
            .key(&self.keys.guard)
            .key(&self.keys.schedule)
            .key(&self.keys.paused)
            .key(&self.keys.throttled)
            .key(&self.keys.uncertain);
        call.arg(owner)
            .arg(terms.lane.as_str())
            .arg(terms.lease.0)
            .arg(terms.longest_wait.0)
            .arg(terms.memory.0);
        match terms.resend_after {
            Some(after) => call.arg(after.0),
            None => call.arg(-1),
        };
        call.arg(mode);
        for ask in asks {
            call.key(self.keys.claim(&ask.tenant, &ask.send_id));
            call.arg(ask.slot.0)
                .arg(ask.cost)
                .arg(&ask.fingerprint)
                .arg(ask.tenant.as_str())
                .arg(
                    ask.suspect_since
                        .map_or_else(|| "-1".to_owned(), |since| since.0.to_string()),
                )
                .arg(ask.void.as_deref().unwrap_or_default())
                .arg(match ask.purpose {
                    Purpose::Send => "send",
                    Purpose::Once => "once",
                    Purpose::Resend => "resend",
                    Purpose::Expire => "expired",
                });
        }
        if let Some(digest) = &self.expects {
            call.arg(&**digest);
        }
        let answer: Vec<Value> = Named::call(&call, &self.connection, &self.keys.budget).await?;
        read(asks.len(), &answer).ok_or_else(|| script.unreadable(&answer))
    }

    /// Ends claims of `owner` on messages of this lane, in one round trip. A mark lives for `memory`: longer than any message.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn commit(
        &self,
        owner: &str,
        lane: Lane,
        memory: Millis,
        ends: &[End],
    ) -> Result<(), ScheduleError> {
        if ends.is_empty() {
            return Ok(());
        }
        let mut call = self.scripts.commit.prepare();
        call.key(&self.keys.guard).key(&self.keys.uncertain);
        call.arg(owner).arg(memory.0);
        for end in ends {
            call.key(self.keys.claim(&end.tenant, &end.send_id))
                .key(self.keys.sent(&end.tenant));
            call.arg(match end.how {
                Ending::Sent => "sent",
                Ending::Rejected => "rejected",
                Ending::Uncertain => "uncertain",
                Ending::Free => "free",
            })
            .arg(end.cost)
            .arg(lane.as_str());
        }
        let lost: usize = Named::call(&call, &self.connection, &self.keys.budget).await?;
        if lost > 0 {
            tracing::warn!(
                lost,
                of = ends.len(),
                "claims were no longer this worker's when it ended them"
            );
        }
        Ok(())
    }
}

fn read(asks: usize, answer: &[Value]) -> Option<Vec<Claim>> {
    let [now, answers @ ..] = answer else {
        return None;
    };
    let now = Moment(u64::from_redis_value_ref(now).ok()?);
    if answers.len() != asks {
        return None;
    }
    answers.iter().map(|answer| read_one(now, answer)).collect()
}

fn read_one(now: Moment, answer: &Value) -> Option<Claim> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let (word, rest) = parts.split_first()?;
    let number = || u64::from_redis_value_ref(rest.first()?).ok();
    Some(match String::from_redis_value_ref(word).ok()?.as_str() {
        "go" => {
            let at = Moment(number()?);
            Claim::Go {
                at,
                wait: now.until(at),
            }
        }
        "later" => {
            let wait = Millis(number()?);
            Claim::Later {
                wait,
                slot_ahead: wait > Millis(0) && wait < FARTHEST_SLOT,
            }
        }
        "held" => Claim::Held {
            left: Millis(number()?),
        },
        "uncertain" => Claim::Uncertain {
            age: Millis(number()?),
        },
        "ended" => Claim::Ended(
            match String::from_redis_value_ref(rest.first()?).ok()?.as_str() {
                "sent" => Ended::Sent,
                "rejected" => Ended::Rejected,
                "expired" => Ended::Expired,
                "cancelled" => Ended::Cancelled,
                _ => Ended::Otherwise,
            },
        ),
        "expired" => Claim::Expired,
        "conflict" => Claim::Conflict,
        "paused" => Claim::Paused {
            left: Some(Millis(number()?)).filter(|left| left.0 > 0),
        },
        "blocked" => Claim::Blocked {
            left: Millis(number()?),
        },
        _ => return None,
    })
}
