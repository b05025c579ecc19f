//! The claim and commit scripts: the guard against the pure model, and what a claim may become.
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't set itself up has failed"
)]

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use sendslot_domain::{
    Budget, Cell, Lane, Millis, Moment, TenantName,
    adaptive::Adaptive,
    budget::{FACTOR_ONE, GUARD_TICKS, Settings},
    guard::Guard,
};
use sendslot_schedule::{
    Ask, Booking, Claim, ClaimAsk, End, Ended, Ending, Keys, Purpose, Seed, Standing, Tenant,
    Terms,
    testing::{Clocked, PrivateServer},
};

/// What a commit says that a claim cost.
const TAKEN_BACK: u32 = 3;
const LEASE: Millis = Millis(45_000);
const RESEND_AFTER: Millis = Millis(20_000);

/// A message of a batch.
#[derive(Clone, Copy, Debug)]
struct Asked {
    id: usize,
    /// ms from now.
    slot: i64,
    cost: u32,
    other_content: bool,
    /// ms before now that somebody may have claimed it first.
    suspect: Option<u64>,
    purpose: Purpose,
    /// Whether the claim of worker 0 is known to be void.
    void: bool,
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// A worker claims a batch, or draws new grants for it.
    Claim {
        worker: usize,
        lane: Lane,
        longest: u64,
        resends: bool,
        renew: bool,
        batch: Vec<Asked>,
    },
    /// A worker, or another in its name, tells how its n-th open claim ended.
    End {
        worker: usize,
        n: usize,
        how: Ending,
        other: bool,
    },
    /// So many recipients are refused that were granted at a moment, ms from now.
    Refuse(i64, u32),
    /// The tenant is paused, for so long or until it is resumed.
    Pause(Option<u64>),
    /// It is resumed.
    Resume,
    /// Nobody may send for so long, ms.
    Block(u64),
    /// Redis loses everything.
    Flush,
    /// Slots only are booked: how many, of how many recipients.
    BookSlots(usize, u32),
    /// Time passes, ms.
    Pass(u64),
    /// The clock is set back, ms.
    SetBack(u64),
    /// The budget becomes another.
    Change(usize),
}

fn step(ids: usize) -> impl Strategy<Value = Step> {
    let cost = prop_oneof![8 => Just(1_u32), 2 => 2_u32..8, 1 => 9_u32..=50];
    let slot =
        prop_oneof![6 => 0_i64..1000, 3 => -400_i64..0, 1 => -100_000_i64..0, 1 => 1000_i64..4000];
    let lane = prop_oneof![3 => Just(Lane::Bulk), 1 => Just(Lane::Priority)];
    let suspect = prop_oneof![8 => Just(None), 2 => (0_u64..30_000).prop_map(Some), 1 => Just(Some(u64::MAX))];
    let purpose = prop_oneof![8 => Just(Purpose::Send), 1 => Just(Purpose::Resend), 1 => Just(Purpose::Expire), 1 => Just(Purpose::Once)];
    let message = (
        (0..ids, slot, cost, prop::bool::weighted(0.02)),
        (suspect, purpose, prop::bool::weighted(0.1)),
    );
    let message = message.prop_map(
        |((id, slot, cost, other_content), (suspect, purpose, void))| Asked {
            id,
            slot,
            cost,
            other_content,
            suspect,
            purpose,
            void,
        },
    );
    let how = prop_oneof![
        6 => Just(Ending::Sent),
        3 => Just(Ending::Free),
        1 => Just(Ending::Rejected),
        1 => Just(Ending::Uncertain)
    ];
    let flags = (prop::bool::weighted(0.5), prop::bool::weighted(0.1));
    prop_oneof![
        10 => (0_usize..3, lane, prop_oneof![3 => Just(2000_u64), 1 => 0_u64..5000], flags, prop::collection::vec(message, 1..20))
            .prop_map(|(worker, lane, longest, (resends, renew), batch)| Step::Claim { worker, lane, longest, resends, renew, batch }),
        4 => (0_usize..3, any::<usize>(), how, prop::bool::weighted(0.2))
            .prop_map(|(worker, n, how, other)| Step::End { worker, n, how, other }),
        3 => (-2000_i64..2000, 1_u32..60).prop_map(|(granted, recipients)| Step::Refuse(granted, recipients)),
        1 => prop_oneof![2 => (1_u64..30_000).prop_map(Some), 1 => Just(None)].prop_map(Step::Pause),
        1 => Just(Step::Resume),
        1 => prop_oneof![3 => 1_u64..3000, 1 => 3000_u64..900_000].prop_map(Step::Block),
        1 => Just(Step::Flush),
        6 => prop_oneof![4 => 0_u64..300, 2 => 300_u64..2000, 1 => 2000_u64..60_000].prop_map(Step::Pass),
        1 => prop_oneof![1_u64..6000, 6000_u64..60_000].prop_map(Step::SetBack),
        1 => (0_usize..3).prop_map(Step::Change),
        2 => (1_usize..80, prop_oneof![3 => Just(1_u32), 1 => 2_u32..9]).prop_map(|(count, cost)| Step::BookSlots(count, cost)),
    ]
}

fn budget() -> impl Strategy<Value = Budget> {
    let limit = prop_oneof![
        Just("100"),
        Just("14"),
        Just("11"),
        Just("1"),
        Just("1.5"),
        Just("0.8"),
        Just("1000"),
        Just("20/h")
    ];
    let guard = prop_oneof![Just("0.99"), Just("0.95"), Just("0.78"), Just("1")];
    let reserve = prop_oneof![Just("0"), Just("2"), Just("0.1"), Just("30")];
    (limit, guard, reserve, prop::option::of(1_u32..6)).prop_map(
        |(limit, guard, reserve, burst)| {
            let rate = |text: &str| text.parse().unwrap();
            let settings = Settings {
                limit: rate(limit),
                headroom: rate("0.75"),
                guard: rate(guard),
                burst: None,
                reserve: rate(reserve),
                slice: sendslot_domain::Rate::ZERO,
                caps: sendslot_domain::window::Caps::default(),
                horizon: Millis::from_secs(60),
            };
            Budget::new(Settings { burst, ..settings })
                .or_else(|_| Budget::new(settings))
                .unwrap()
        },
    )
}

/// What the test knows of a send id.
#[derive(Clone, Debug, PartialEq)]
enum Fate {
    Claimed {
        worker: usize,
        until: Moment,
        print: String,
    },
    Uncertain {
        since: Moment,
        print: String,
    },
    Ended {
        how: Ended,
        print: String,
    },
}

struct World {
    clocked: Clocked,
    model: Guard,
    adaptive: Adaptive,
    slowed: u64,
    budget: Budget,
    generation: Moment,
    /// Until when the tenant is paused; until it is resumed, at the end of time.
    paused: Option<Moment>,
    blocked: Moment,
    /// The Redis clock, and real time, which no one sets back.
    now: Moment,
    real: u64,
    /// Whether the clock was set back since the guard was last asked.
    set_back: bool,
    fates: HashMap<usize, Fate>,
    /// By minute: recipients sent.
    counted: BTreeMap<u64, i64>,
    /// What others send by themselves, by second, and when that was last booked.
    elsewhere: BTreeMap<Cell, u64>,
    booked: Moment,
    /// Up to which tick they have sent: they do so once, whatever the clock does.
    sent_until: u64,
    /// Grants in real time: (ms, recipients, ⌈L⌉ then, ⌊L⌋ then); the last is without end for what others send.
    granted: Vec<(u64, u64, u64, u64)>,
}

impl World {
    async fn seed(&mut self, budget: Budget) {
        let seed = Seed {
            source: "test".into(),
            budget,
            tenants: [acme(), others()]
                .map(|name| (name, Tenant::default()))
                .into(),
        };
        self.clocked.schedule.seed(&seed).await.unwrap();
        let before = self.model.full_rate_per_tick();
        self.model.set_budget(budget);
        self.adaptive
            .rescale(before, self.model.full_rate_per_tick());
        self.budget = budget;
    }

    fn ask(&self, asked: Asked) -> ClaimAsk {
        let Asked { id, cost, .. } = asked;
        ClaimAsk {
            suspect_since: asked
                .suspect
                .map(|ago| Moment(self.now.0.saturating_sub(ago))),
            void: asked.void.then(|| "worker-0".to_owned()),
            purpose: asked.purpose,
            tenant: acme(),
            send_id: format!("id-{id}").parse().unwrap(),
            fingerprint: if asked.other_content {
                "other".into()
            } else {
                format!("print-{id}")
            },
            cost,
            slot: Moment(self.now.0.saturating_add_signed(asked.slot)),
        }
    }

    async fn take(&mut self, step: Step, budgets: &[Budget]) -> Result<(), TestCaseError> {
        match step {
            Step::Claim { .. } => self.claim(step).await?,
            Step::End {
                worker,
                n,
                how,
                other,
            } => self.end(worker, n, how, other).await,
            Step::Refuse(ahead, recipients) => {
                let granted = Moment(self.now.0.saturating_add_signed(ahead));
                let factor = self
                    .clocked
                    .schedule
                    .slow(granted, recipients)
                    .await
                    .unwrap();
                self.adaptive
                    .refuse(self.now, granted, u64::from(recipients));
                prop_assert_eq!(factor, self.adaptive.factor());
            }
            Step::Pause(length) => {
                let schedule = &self.clocked.schedule;
                schedule
                    .pause(&acme(), length.map(Millis), "test")
                    .await
                    .unwrap();
                let until = length.map_or(Moment(u64::MAX), |length| self.now + Millis(length));
                if self.paused != Some(Moment(u64::MAX)) {
                    self.paused = Some(until);
                }
            }
            Step::Resume => {
                let was = self.clocked.schedule.resume(&acme()).await.unwrap();
                prop_assert_eq!(was, self.paused.take().is_some());
            }
            Step::Block(ms) => {
                // As for a Retry-After, so long and no longer; or as for a quota.
                let (longest, reason) = match ms % 2 {
                    0 => (ms, "retry_after"),
                    _ => (900_000, "test"),
                };
                let block = self
                    .clocked
                    .schedule
                    .block(Millis(ms), Millis(longest), reason);
                let left = block.await.unwrap();
                prop_assert!(
                    left >= self.now.until(self.blocked),
                    "a block was made shorter"
                );
                prop_assert!(left >= Millis(ms) || reason == "test");
                self.blocked = self.now + left;
            }
            Step::Flush => {
                self.clocked.flush().await.unwrap();
                self.clocked.set(self.now).await.unwrap();
                self.seed(self.budget).await;
                self.forget();
            }
            Step::BookSlots(count, cost) => self.book_slots(count, cost).await?,
            Step::Pass(ms) => {
                self.others_send(self.now + Millis(ms));
                self.now = self.now + Millis(ms);
                self.real += ms;
                self.clocked.set(self.now).await.unwrap();
            }
            Step::SetBack(ms) => {
                self.now = Moment(self.now.0 - ms);
                self.set_back = true;
                self.clocked.set(self.now).await.unwrap();
            }
            Step::Change(n) => {
                self.seed(budgets[n % budgets.len()]).await;
                if !self.elsewhere.is_empty() {
                    // Under another rate others are taken to send at other ticks.
                    self.granted.clear();
                }
            }
        }
        Ok(())
    }

    fn sent(&mut self, minute: u64, recipients: i64) {
        *self.counted.entry(minute).or_default() += recipients;
    }

    /// What was sent in a day is counted as it was granted, booked as slots only and given back.
    async fn count(&self) -> Result<(), TestCaseError> {
        let look = self.clocked.schedule.look().await.unwrap();
        let sent = self.counted.range(..=self.now.0 / 60_000);
        let sent: i64 = sent.map(|(_, sent)| sent).sum();
        prop_assert_eq!(look.sent_since(0), u64::try_from(sent).unwrap_or_default());
        let there = (look.now, look.factor());
        prop_assert_eq!(there, (self.now, self.adaptive.factor()));
        let blocked = look.blocked().map(|(left, _)| left);
        let left = self.now.until(self.blocked);
        prop_assert_eq!(blocked, Some(left).filter(|left| left.0 > 0));
        Ok(())
    }

    /// All that Redis knew is lost.
    fn forget(&mut self) {
        self.model = Guard::new(self.budget);
        self.adaptive = Adaptive::default();
        self.slowed = FACTOR_ONE;
        self.fates.clear();
        self.generation = self.now;
        self.paused = None;
        self.blocked = Moment(0);
        self.elsewhere.clear();
        self.booked = Moment(0);
        self.granted.clear();
        self.set_back = false;
        self.counted.clear();
    }

    async fn end(&mut self, worker: usize, n: usize, how: Ending, other: bool) {
        let mine = |fate: &Fate| matches!(fate, Fate::Claimed { worker: w, .. } if *w == worker);
        let mut open: Vec<usize> = self
            .fates
            .iter()
            .filter(|(_, f)| mine(f))
            .map(|(id, _)| *id)
            .collect();
        open.sort_unstable();
        if open.is_empty() {
            return;
        }
        let id = open[n % open.len()];
        let owner = if other {
            "somebody".to_owned()
        } else {
            format!("worker-{worker}")
        };
        let end = End {
            tenant: acme(),
            send_id: format!("id-{id}").parse().unwrap(),
            how,
            cost: TAKEN_BACK,
        };
        let schedule = &self.clocked.schedule;
        schedule
            .commit(&owner, Lane::Bulk, Millis(1 << 40), &[end])
            .await
            .unwrap();
        let Some(Fate::Claimed { print, .. }) = self.fates.get(&id).cloned() else {
            return;
        };
        if !other && matches!(how, Ending::Rejected | Ending::Free) {
            self.sent(self.now.0 / 60_000, -i64::from(TAKEN_BACK));
        }
        let ended = |how| Fate::Ended {
            how,
            print: print.clone(),
        };
        match how {
            // Whoever says so, it was sent.
            Ending::Sent => self.fates.insert(id, ended(Ended::Sent)),
            Ending::Rejected if !other => self.fates.insert(id, ended(Ended::Rejected)),
            Ending::Uncertain if !other => {
                let since = self.now;
                self.fates.insert(id, Fate::Uncertain { since, print })
            }
            Ending::Free if !other => self.fates.remove(&id),
            Ending::Rejected | Ending::Uncertain | Ending::Free => None,
        };
    }

    async fn book_slots(&mut self, count: usize, cost: u32) -> Result<(), TestCaseError> {
        let ask = Ask {
            tenant: others(),
            cost,
            standing: Standing::SlotOnly,
        };
        let asks = vec![ask; count];
        let answers = self.clocked.schedule.book(Lane::Bulk, &asks).await.unwrap();
        if matches!(answers[0], Booking::Blocked(_)) {
            return Ok(());
        }
        if self.now.until(self.booked) > Millis(5000) {
            self.elsewhere.clear(); // the cells have started anew
            self.booked = self.now;
        }
        self.booked = self.booked.max(self.now);
        let kept = Cell(self.booked.cell().0 - 3);
        self.elsewhere = self.elsewhere.split_off(&kept);
        for answer in answers {
            if let Booking::Slot(slot) = answer {
                prop_assert!(slot.at.cell().0 > self.booked.cell().0 + 3);
                self.sent(slot.at.cell().0 / 60, i64::from(cost));
                for (cell, count) in slot.cells {
                    *self.elsewhere.entry(cell).or_default() += u64::from(count);
                }
            }
        }
        self.model.leave(self.elsewhere.clone());
        Ok(())
    }

    /// Until now others have sent their part, at the ticks that the guard left them.
    fn others_send(&mut self, until: Moment) {
        let most = self.budget.most_per_second();
        let ticks = self.now.0 * GUARD_TICKS / 1000..until.0 * GUARD_TICKS / 1000;
        for tick in ticks {
            if tick < self.sent_until {
                continue;
            }
            self.sent_until = tick + 1;
            let recipients = self.model.elsewhere(tick);
            if recipients > 0 {
                // At its start, also if that was a few milliseconds ago.
                let at = (self.real + tick * 1000 / GUARD_TICKS).saturating_sub(self.now.0);
                self.granted.push((at, recipients, most, u64::MAX));
            }
        }
    }

    async fn claim(&mut self, step: Step) -> Result<(), TestCaseError> {
        let Step::Claim {
            worker,
            lane,
            longest,
            resends,
            renew,
            batch,
        } = step
        else {
            return Ok(());
        };
        let asks: Vec<ClaimAsk> = batch.iter().map(|asked| self.ask(*asked)).collect();
        let terms = Terms {
            lane,
            lease: LEASE,
            longest_wait: Millis(longest),
            memory: Millis(1 << 40),
            resend_after: resends.then_some(RESEND_AFTER),
        };
        let owner = format!("worker-{worker}");
        let schedule = &self.clocked.schedule;
        let answers = if renew {
            schedule.renew(&owner, terms, &asks).await
        } else {
            schedule.claim(&owner, terms, &asks).await
        };
        let answers = answers.unwrap();
        prop_assert_eq!(answers.len(), asks.len());
        let longest = Millis(longest.min(3000));
        let clock = self.model.clock();
        self.adaptive.recover(self.now, &self.model);
        self.model.slow_to(self.adaptive.factor());
        if self.slowed != self.adaptive.factor() && !self.elsewhere.is_empty() {
            self.granted.clear(); // as when the budget changes
        }
        self.slowed = self.adaptive.factor();
        let mut in_this_call = Vec::new();
        for ((ask, answer), asked) in asks.iter().zip(answers).zip(&batch) {
            let id = asked.id;
            // What this very call has claimed is nobody's to take over.
            let mine = renew
                .then_some(worker)
                .filter(|_| !in_this_call.contains(&id));
            let void = asked.void && !in_this_call.contains(&id);
            let expected = self.expected(ask, *asked, terms, mine, void, longest);
            prop_assert_eq!(answer, expected, "{:?} {:?}", ask, self.fates.get(&id));
            let print = ask.fingerprint.clone();
            match answer {
                Claim::Go { at, wait } => {
                    prop_assert!(at >= ask.slot && at >= self.now && wait <= longest);
                    let until = self.now + LEASE;
                    // What was granted to it before has sent nothing, and was counted.
                    let again = match self.fates.get(&id) {
                        Some(Fate::Claimed { worker, .. }) => {
                            mine == Some(*worker) || void && *worker == 0
                        }
                        _ => false,
                    };
                    if !again {
                        self.sent(self.now.0 / 60_000, i64::from(ask.cost));
                    }
                    let claimed = Fate::Claimed {
                        worker,
                        until,
                        print,
                    };
                    self.fates.insert(id, claimed);
                    in_this_call.push(id);
                    if std::mem::take(&mut self.set_back) && self.now >= clock {
                        // It has caught up again, so nobody can tell that it was set back.
                        self.granted.clear();
                    }
                    let (most, largest) =
                        (self.budget.most_per_second(), self.budget.largest_shared());
                    let cost = u64::from(ask.cost);
                    self.granted.push((self.real + wait.0, cost, most, largest));
                }
                Claim::Expired => {
                    let how = Ended::Expired;
                    self.fates.insert(id, Fate::Ended { how, print });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What a message must be told.
    fn expected(
        &mut self,
        ask: &ClaimAsk,
        asked: Asked,
        terms: Terms,
        mine: Option<usize>,
        void: bool,
        longest: Millis,
    ) -> Claim {
        let now = self.now;
        let suspect = ask
            .suspect_since
            .is_some_and(|since| since <= self.generation);
        let fate = self.fates.get(&asked.id).cloned();
        let fate = match fate {
            None if suspect => {
                let surely = ask.suspect_since == Some(Moment(0));
                let since = if surely { now } else { self.generation + LEASE };
                let print = ask.fingerprint.clone();
                let uncertain = Fate::Uncertain { since, print };
                self.fates.insert(asked.id, uncertain.clone());
                Some(uncertain)
            }
            fate => fate,
        };
        let again = |age: Millis| match asked.purpose {
            Purpose::Resend => true,
            Purpose::Send => terms.resend_after.is_some_and(|after| age >= after),
            Purpose::Once | Purpose::Expire => false,
        };
        match fate {
            Some(
                Fate::Claimed { print, .. }
                | Fate::Ended { print, .. }
                | Fate::Uncertain { print, .. },
            ) if print != ask.fingerprint => return Claim::Conflict,
            Some(Fate::Ended { how, .. }) => return Claim::Ended(how),
            Some(Fate::Claimed { worker, .. }) if mine == Some(worker) || void && worker == 0 => {}
            Some(Fate::Claimed { until, .. }) if until > now => {
                let left = now.until(until);
                return Claim::Held { left };
            }
            Some(Fate::Claimed { until: since, .. } | Fate::Uncertain { since, .. }) => {
                let age = since.until(now);
                if !again(age) {
                    return Claim::Uncertain { age };
                }
            }
            None => {}
        }
        if asked.purpose == Purpose::Expire {
            return Claim::Expired;
        }
        match self.paused {
            Some(Moment(u64::MAX)) => return Claim::Paused { left: None },
            Some(until) if until > now && now.until(until) < Millis(960_000) => {
                let left = Some(now.until(until));
                return Claim::Paused { left };
            }
            _ => {}
        }
        if self.blocked > now && now.until(self.blocked) <= Millis(960_000) {
            let left = now.until(self.blocked);
            return Claim::Blocked { left };
        }
        if ask.slot > now + longest {
            let wait = now.until(ask.slot);
            return Claim::Later {
                wait,
                slot_ahead: true,
            };
        }
        match self
            .model
            .grant(now, terms.lane, ask.slot, ask.cost, longest)
        {
            Some(at) => Claim::Go {
                at,
                wait: now.until(at),
            },
            None => Claim::Later {
                wait: Millis(0),
                slot_ahead: false,
            },
        }
    }

    /// In no second of real time are more than ⌈L⌉ recipients granted, save a message that costs more alone.
    fn check_seconds(&mut self) -> Result<(), TestCaseError> {
        self.granted.sort_unstable();
        for (i, &(start, ..)) in self.granted.iter().enumerate() {
            let second: Vec<_> = self.granted[i..]
                .iter()
                .take_while(|(at, ..)| *at < start + 1000)
                .collect();
            // What costs more alone has booked the silence after it, where nobody else can book; not so in this test.
            let is_alone = |(_, cost, _, largest): &&&(u64, u64, u64, u64)| cost > largest;
            let second: Vec<_> = if second.iter().any(|grant| is_alone(&grant)) {
                second
                    .into_iter()
                    .filter(|(.., largest)| *largest < u64::MAX)
                    .collect()
            } else {
                second
            };
            let total: u64 = second.iter().map(|(_, cost, ..)| cost).sum();
            // After a cut, a second may hold what was granted before it.
            let most = second.iter().map(|(_, _, most, _)| *most).max().unwrap();
            let alone = second.len() == 1 && second[0].1 > second[0].3;
            prop_assert!(
                total <= most || alone,
                "{total} of at most {most} in a second: {second:?}"
            );
        }
        Ok(())
    }
}

fn acme() -> TenantName {
    "acme".parse().unwrap()
}

/// Who sends by itself.
fn others() -> TenantName {
    "others".parse().unwrap()
}

fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(usual)
}

#[test]
fn script_and_model_agree_and_no_second_is_overfull() {
    let server = PrivateServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let clocked = runtime.block_on(Clocked::new(&server, Keys::of("model").unwrap()));
    let clocked = std::cell::RefCell::new(Some(clocked));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases(192)));
    // Few ids meet again and again; many keep the guard busy.
    let steps = prop_oneof![
        prop::collection::vec(step(12), 1..60),
        prop::collection::vec(step(100_000), 1..60)
    ];
    let histories = (
        prop::collection::vec(budget(), 3),
        1_700_000_000_000_u64..1_900_000_000_000,
        steps,
    );
    let outcome = runner.run(&histories, |(budgets, start, steps)| {
        let Some(mut inner) = clocked.borrow_mut().take() else {
            return Err(TestCaseError::fail("no connection is left"));
        };
        runtime.block_on(async {
            inner.flush().await.unwrap();
            inner.set(Moment(start)).await.unwrap();
            let mut world = World {
                clocked: inner,
                model: Guard::new(budgets[0]),
                adaptive: Adaptive::default(),
                slowed: FACTOR_ONE,
                budget: budgets[0],
                generation: Moment(start),
                paused: None,
                blocked: Moment(0),
                now: Moment(start),
                real: 0,
                set_back: false,
                fates: HashMap::new(),
                counted: BTreeMap::new(),
                elsewhere: BTreeMap::new(),
                booked: Moment(0),
                sent_until: 0,
                granted: Vec::new(),
            };
            world.seed(budgets[0]).await;
            let mut result = Ok(());
            for step in steps {
                result = world.take(step, &budgets).await;
                if result.is_ok() {
                    result = world.count().await;
                }
                if result.is_err() {
                    break;
                }
            }
            let result = result.and_then(|()| world.check_seconds());
            *clocked.borrow_mut() = Some(world.clocked);
            result
        })
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

async fn clocked(
    server: &PrivateServer,
    start: Moment,
    limit: &str,
    headroom: &str,
    guard: &str,
) -> Clocked {
    let mut clocked = Clocked::new(server, Keys::of("stream").unwrap()).await;
    clocked.set(start).await.unwrap();
    let settings = Settings {
        limit: limit.parse().unwrap(),
        headroom: headroom.parse().unwrap(),
        guard: guard.parse().unwrap(),
        burst: None,
        reserve: "0".parse().unwrap(),
        slice: sendslot_domain::Rate::ZERO,
        caps: sendslot_domain::window::Caps::default(),
        horizon: Millis::from_secs(60),
    };
    let seed = Seed {
        source: "test".into(),
        budget: Budget::new(settings).unwrap(),
        tenants: vec![],
    };
    clocked.schedule.seed(&seed).await.unwrap();
    clocked
}

const TERMS: Terms = Terms {
    lane: Lane::Bulk,
    lease: LEASE,
    longest_wait: Millis(2000),
    memory: Millis(1 << 40),
    resend_after: None,
};

fn claim_ask(id: u64, cost: u32, slot: Moment) -> ClaimAsk {
    ClaimAsk {
        tenant: acme(),
        send_id: format!("m-{id}").parse().unwrap(),
        fingerprint: "f".into(),
        cost,
        slot,
        suspect_since: None,
        void: None,
        purpose: Purpose::Send,
    }
}

/// A rate that was cut climbs again: nobody waits for a costly mail as long as its recipients take at the slowest.
#[tokio::test]
async fn a_costly_mail_closes_a_slow_guard_for_a_minute() {
    let server = PrivateServer::start();
    let start = Moment(1_800_000_000_000);
    let mut clocked = clocked(&server, start, "1", "0.5", "0.95").await;
    clocked.slow_to(8).await.unwrap();
    // At the full rate 50 recipients take 53 s; at 8/1024 of it, 112 minutes.
    for (at, cost, goes) in [(0, 50, true), (57_000, 1, false), (61_100, 1, true)] {
        clocked.set(start + Millis(at)).await.unwrap();
        let asks = [claim_ask(at, cost, start)];
        let claims = clocked.schedule.claim("w", TERMS, &asks).await.unwrap();
        let went = matches!(claims[0], Claim::Go { .. });
        assert_eq!(went, goes, "{at} {claims:?}");
    }
}

/// A steady stream at the schedule's rate is granted on time: the guard costs the happy path nothing.
#[tokio::test]
async fn a_stream_on_schedule_is_granted_at_its_slots() {
    let server = PrivateServer::start();
    let start = 1_800_000_000_000;
    let mut clocked = clocked(&server, Moment(start), "100", "0.98", "0.99").await;
    let mut late = Vec::new();
    // Batches of ten surface up to a second early, every other one before the one ahead of it.
    for batch in 0..294_u64 {
        let n = batch ^ 1;
        clocked.set(Moment(start + batch * 102)).await.unwrap();
        let asks: Vec<ClaimAsk> = (n * 10..n * 10 + 10)
            .map(|k| claim_ask(k, 1, Moment(start + 500 + k * 1000 / 98)))
            .collect();
        for (ask, claim) in asks
            .iter()
            .zip(clocked.schedule.claim("w", TERMS, &asks).await.unwrap())
        {
            match claim {
                Claim::Go { at, .. } => late.push(ask.slot.until(at).0),
                other => panic!("{other:?}"),
            }
        }
    }
    late.sort_unstable();
    let (median, worst) = (late[late.len() / 2], late[late.len() - 1]);
    assert!(
        median <= 10 && worst <= 100,
        "grants came {median} ms after their slots, at worst {worst}"
    );
}
