//! Each send id reaches the provider at most once, whatever crashes when, unless it is uncertain and its lane's policy says
//! resend; and none is stuck. The judge is what the provider got and what is left on the queue, not what Redis holds.
//!
//! The test plays SQS, the workers, the provider and SES's events; claims and commits are the real scripts. Its workers
//! follow the rules of `send`: copies say what has to be known of a message.
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't set itself up has failed"
)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sendslot_domain::{Budget, Lane, Millis, Moment, budget::Settings, window::Caps};
use sendslot_schedule::{
    Claim, ClaimAsk, End, Ending, Keys, Purpose, Seed, Tenant, Terms,
    testing::{Clocked, PrivateServer},
};

const LEASE: Millis = Millis(45_000);
const TIMEOUT: Millis = Millis(30_000);
const VISIBILITY: Millis = Millis(60_000);
const CONFIRMATION: Millis = Millis(20_000);

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// A worker receives the n-th message that is visible, which stays visible or not.
    Receive(usize, bool),
    /// The n-th worker does what is next.
    Go(usize, Luck),
    /// It is gone.
    Crash(usize),
    /// The n-th of SES's events that are under way arrives, or is lost.
    Event(usize, bool),
    /// Time passes, ms.
    Pass(u64),
    /// Redis loses everything.
    Flush,
}

/// How a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Luck {
    Well,
    /// It does what it should, and nobody hears of it.
    AnswerLost,
    /// It does nothing.
    Fails,
}

#[derive(Clone, Debug)]
struct Message {
    id: usize,
    visible: Moment,
    received: u32,
    first: Moment,
    suspect_since: Option<Moment>,
    uncertain: bool,
    void: Option<String>,
}

#[derive(Clone, Debug)]
struct Work {
    owner: String,
    begun: Moment,
    /// Which message of the queue, and its state when it was received.
    key: usize,
    message: Message,
    next: Next,
}

#[derive(Clone, Debug)]
enum Next {
    Claim,
    Send,
    Commit(Ending),
    Park,
    Put(Box<Message>),
    Delete,
}

struct World {
    clocked: Clocked,
    now: Moment,
    resends: bool,
    queue: BTreeMap<usize, Message>,
    works: Vec<Work>,
    /// When the provider accepted each id.
    sent: BTreeMap<usize, Vec<Moment>>,
    parked: BTreeMap<usize, u32>,
    events: Vec<usize>,
    counter: usize,
    seed: Seed,
}

fn step() -> impl Strategy<Value = Step> {
    let luck =
        prop_oneof![6 => Just(Luck::Well), 1 => Just(Luck::AnswerLost), 1 => Just(Luck::Fails)];
    prop_oneof![
        6 => (any::<usize>(), prop::bool::weighted(0.3)).prop_map(|(n, stays)| Step::Receive(n, stays)),
        14 => (any::<usize>(), luck).prop_map(|(n, luck)| Step::Go(n, luck)),
        2 => any::<usize>().prop_map(Step::Crash),
        2 => (any::<usize>(), prop::bool::weighted(0.7)).prop_map(|(n, arrives)| Step::Event(n, arrives)),
        4 => prop_oneof![0_u64..2000, 2000_u64..70_000].prop_map(Step::Pass),
        1 => Just(Step::Flush),
    ]
}

impl World {
    async fn take(&mut self, step: Step) {
        match step {
            Step::Receive(n, stays) => self.receive(n, stays),
            Step::Go(n, luck) if !self.works.is_empty() => {
                let n = n % self.works.len();
                self.go(n, luck).await;
            }
            Step::Crash(n) if !self.works.is_empty() => {
                let n = n % self.works.len();
                self.works.remove(n);
            }
            Step::Event(n, arrives) if !self.events.is_empty() => {
                let n = n % self.events.len();
                let id = self.events.swap_remove(n);
                if arrives {
                    self.end("event", id, Ending::Sent).await;
                }
            }
            Step::Go(..) | Step::Crash(..) | Step::Event(..) => {}
            Step::Pass(ms) => {
                self.now = self.now + Millis(ms);
                self.clocked.set(self.now).await.unwrap();
                let now = self.now;
                // Lambda ends what takes too long.
                self.works.retain(|work| now < work.begun + TIMEOUT);
            }
            Step::Flush if self.strangers() => {}
            Step::Flush => {
                // A worker claims at once what it receives: that all is lost just between, while a second delivery of the
                // same message is being sent, is more than is promised.
                for n in (0..self.works.len()).rev() {
                    if matches!(self.works[n].next, Next::Claim) {
                        self.go(n, Luck::Well).await;
                    }
                }
                self.clocked.flush().await.unwrap();
                self.clocked.set(self.now).await.unwrap();
                self.clocked.schedule.seed(&self.seed).await.unwrap();
            }
        }
    }

    /// Whether two deliveries or copies of one message are about and one of them doesn't know. That Redis loses all just then
    /// is more than is promised.
    fn strangers(&self) -> bool {
        let unaware = |m: &Message| m.received <= 1 && m.suspect_since.is_none() && !m.uncertain;
        let ids: BTreeSet<usize> = self.queue.values().map(|m| m.id).collect();
        ids.into_iter().any(|id| {
            let waiting = self.queue.iter().filter(|(_, m)| m.id == id);
            let waiting: Vec<_> = waiting
                .filter(|(key, _)| self.works.iter().all(|work| work.key != **key))
                .map(|(_, m)| m)
                .collect();
            let working = self.works.iter().map(|work| &work.message);
            let about: Vec<_> = working.filter(|m| m.id == id).chain(waiting).collect();
            about.len() > 1 && about.into_iter().any(unaware)
        })
    }

    fn receive(&mut self, n: usize, stays: bool) {
        let now = self.now;
        let visible: Vec<usize> = self
            .queue
            .iter()
            .filter(|(_, m)| m.visible <= now)
            .map(|(key, _)| *key)
            .collect();
        if visible.is_empty() {
            return;
        }
        let key = visible[n % visible.len()];
        let message = self.queue.get_mut(&key).unwrap();
        if message.received == 0 {
            message.first = now;
        }
        message.received += 1;
        if !stays {
            message.visible = now + VISIBILITY;
        }
        let mut message = message.clone();
        if message.received > 1 {
            let before = message.suspect_since.unwrap_or(message.first);
            message.suspect_since = Some(before.min(message.first));
        }
        self.counter += 1;
        self.works.push(Work {
            owner: format!("worker-{}", self.counter),
            begun: now,
            key,
            message,
            next: Next::Claim,
        });
    }

    async fn end(&mut self, owner: &str, id: usize, how: Ending) {
        let end = End {
            tenant: "acme".parse().unwrap(),
            send_id: format!("id-{id}").parse().unwrap(),
            how,
            cost: 1,
        };
        let schedule = &self.clocked.schedule;
        schedule
            .commit(owner, Lane::Bulk, Millis(1 << 40), &[end])
            .await
            .unwrap();
    }

    async fn claim(&mut self, work: &Work) -> Claim {
        let message = &work.message;
        let ask = ClaimAsk {
            tenant: "acme".parse().unwrap(),
            send_id: format!("id-{}", message.id).parse().unwrap(),
            fingerprint: "print".into(),
            cost: 1,
            slot: Moment(0),
            suspect_since: if message.uncertain {
                Some(Moment(0))
            } else {
                message.suspect_since
            },
            void: message.void.clone(),
            purpose: Purpose::Send,
        };
        let terms = Terms {
            lane: Lane::Bulk,
            lease: LEASE,
            longest_wait: Millis(2000),
            memory: Millis(1 << 40),
            resend_after: self.resends.then_some(CONFIRMATION),
        };
        let schedule = &self.clocked.schedule;
        schedule.claim(&work.owner, terms, &[ask]).await.unwrap()[0]
    }

    /// A copy that takes the message's place.
    fn copy(&self, message: &Message, delay: Millis) -> Message {
        Message {
            visible: self.now + delay,
            received: 0,
            ..message.clone()
        }
    }

    async fn go(&mut self, n: usize, luck: Luck) {
        let mut work = self.works.remove(n);
        let message = work.message.clone();
        work.next = match std::mem::replace(&mut work.next, Next::Delete) {
            Next::Claim if luck == Luck::Well => match self.claim(&work).await {
                Claim::Go { .. } => Next::Send,
                Claim::Later { .. } => Next::Put(Box::new(self.copy(&message, Millis(3000)))),
                Claim::Held { left } => {
                    if let Some(message) = self.queue.get_mut(&work.key) {
                        message.visible = self.now + left;
                    }
                    return;
                }
                Claim::Uncertain { age } if age >= CONFIRMATION => Next::Park,
                Claim::Uncertain { age } => {
                    let copy = self.copy(&message, Millis(CONFIRMATION.0 - age.0));
                    Next::Put(Box::new(Message {
                        uncertain: true,
                        ..copy
                    }))
                }
                Claim::Ended(_) => Next::Delete,
                other => panic!("{other:?}"),
            },
            Next::Claim => {
                if luck == Luck::AnswerLost {
                    let _ = self.claim(&work).await;
                }
                // Held. (That the function crashes between putting the copy and deleting the message, and Redis loses all
                // between the sends of the two, is more than is promised.)
                let alone = self.works.iter().all(|other| other.key != work.key);
                if alone && self.queue.remove(&work.key).is_some() {
                    let copy = self.copy(&message, Millis(5000));
                    self.put(Message {
                        void: (!message.uncertain).then(|| work.owner.clone()),
                        ..copy
                    });
                }
                return;
            }
            Next::Send => match luck {
                Luck::Well => {
                    self.accept(message.id);
                    Next::Commit(Ending::Sent)
                }
                Luck::AnswerLost => {
                    self.accept(message.id);
                    Next::Commit(Ending::Uncertain)
                }
                Luck::Fails => Next::Commit(Ending::Free),
            },
            Next::Commit(how) => {
                if luck != Luck::Fails {
                    self.end(&work.owner, message.id, how).await;
                }
                match how {
                    // With an answer or without: what was sent never goes back.
                    Ending::Sent | Ending::Rejected => Next::Delete,
                    Ending::Uncertain => {
                        let copy = self.copy(&message, CONFIRMATION);
                        Next::Put(Box::new(Message {
                            uncertain: true,
                            void: None,
                            ..copy
                        }))
                    }
                    Ending::Free => {
                        let copy = self.copy(&message, Millis(2000));
                        Next::Put(Box::new(Message {
                            void: (luck == Luck::Fails).then(|| work.owner.clone()),
                            ..copy
                        }))
                    }
                }
            }
            Next::Park => {
                *self.parked.entry(message.id).or_default() += 1;
                Next::Delete
            }
            Next::Put(copy) => {
                self.put(*copy);
                Next::Delete
            }
            Next::Delete => {
                self.queue.remove(&work.key);
                return;
            }
        };
        self.works.push(work);
    }

    fn accept(&mut self, id: usize) {
        self.sent.entry(id).or_default().push(self.now);
        self.events.push(id);
    }

    fn put(&mut self, message: Message) {
        self.counter += 1;
        self.queue.insert(self.counter, message);
    }

    /// Everything works again and nothing crashes: whether the queue empties.
    async fn calm(&mut self) -> bool {
        for _ in 0..400 {
            while !self.works.is_empty() {
                self.go(0, Luck::Well).await;
            }
            if self.queue.is_empty() {
                return true;
            }
            self.take(Step::Pass(5000)).await;
            self.receive(0, false);
        }
        false
    }
}

fn budget() -> Budget {
    Budget::new(Settings {
        limit: "1000".parse().unwrap(),
        headroom: "0.75".parse().unwrap(),
        guard: "0.99".parse().unwrap(),
        burst: None,
        reserve: "0".parse().unwrap(),
        slice: sendslot_domain::Rate::ZERO,
        caps: Caps::default(),
        horizon: Millis::from_secs(60),
    })
    .unwrap()
}

#[test]
fn no_id_is_sent_twice_and_none_is_stuck() {
    let server = PrivateServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let clocked = runtime.block_on(Clocked::new(&server, Keys::of("once").unwrap()));
    let clocked = std::cell::RefCell::new(Some(clocked));
    let cases = std::env::var("PROPTEST_CASES").ok();
    let cases = cases.and_then(|n| n.parse().ok()).unwrap_or(256);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases));
    let histories = (
        any::<bool>(),
        1_usize..5,
        prop::collection::vec(step(), 1..120),
    );
    let outcome = runner.run(&histories, |(resends, ids, steps)| {
        let Some(mut inner) = clocked.borrow_mut().take() else {
            return Err(TestCaseError::fail("no connection is left"));
        };
        runtime.block_on(async {
            let start = Moment(1_800_000_000_000);
            inner.flush().await.unwrap();
            inner.set(start).await.unwrap();
            let seed = Seed {
                source: "test".into(),
                budget: budget(),
                tenants: vec![("acme".parse().unwrap(), Tenant::default())],
            };
            inner.schedule.seed(&seed).await.unwrap();
            let mut world = World {
                clocked: inner,
                now: start,
                resends,
                queue: BTreeMap::new(),
                works: Vec::new(),
                sent: BTreeMap::new(),
                parked: BTreeMap::new(),
                events: Vec::new(),
                counter: 0,
                seed,
            };
            for id in 0..ids {
                world.put(Message {
                    id,
                    visible: start,
                    received: 0,
                    first: start,
                    suspect_since: None,
                    uncertain: false,
                    void: None,
                });
            }
            for step in steps {
                world.take(step).await;
            }
            let calm = world.calm().await;
            let result = check(&world, ids, calm);
            *clocked.borrow_mut() = Some(world.clocked);
            result
        })
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

fn check(world: &World, ids: usize, calm: bool) -> Result<(), TestCaseError> {
    prop_assert!(calm, "stuck: {:?}", world.queue);
    for id in 0..ids {
        let sent = world.sent.get(&id).map_or(&[][..], Vec::as_slice);
        let parked = world.parked.contains_key(&id);
        prop_assert!(!sent.is_empty() || parked, "{id} is lost");
        if world.resends {
            // Sent again only after it has waited for its confirmation.
            for pair in sent.windows(2) {
                prop_assert!(
                    pair[0].until(pair[1]) >= CONFIRMATION,
                    "{id} was sent at {sent:?}"
                );
            }
            prop_assert!(!parked, "{id} was parked");
        } else {
            prop_assert!(sent.len() <= 1, "{id} was sent at {sent:?}");
        }
    }
    Ok(())
}
