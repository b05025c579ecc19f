//! The booking scripts against the pure model, step by step over random histories, on a private server.
#![expect(
    clippy::cast_precision_loss,
    reason = "the state's numbers are doubles, and below 2^53"
)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't set itself up has failed"
)]

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use sendslot_domain::{
    Budget, Cell, Lane, Millis, Moment, TenantName,
    budget::Settings,
    schedule::{self, Schedule as Model, Standing},
};
use sendslot_schedule::{
    Ask, Booking, Keys, Seed,
    testing::{Clocked, PrivateServer},
};

const KNOWN: [&str; 3] = ["acme", "beta", "gamma"];

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// Messages arrive: tenant (3 is unknown), recipients, how many, whether they had a slot before.
    Arrive(Lane, Vec<(usize, u32, usize, bool)>),
    /// The n-th waiting message wakes, on time or early.
    Wake(usize, bool),
    /// The n-th booking is given back; twice, to try the limits, if so said.
    Release(usize, bool),
    /// Time passes, ms.
    Pass(u64),
    /// The clock is set back, ms.
    SetBack(u64),
    /// The budget becomes another.
    Change(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let lane = prop_oneof![Just(Lane::Bulk), Just(Lane::Priority)];
    let cost = prop_oneof![4 => Just(1_u32), 2 => 2_u32..12, 1 => 13_u32..=50];
    let count = prop_oneof![4 => 1_usize..5, 2 => 5_usize..60, 1 => 60_usize..700];
    let run = (0_usize..10, cost, count, prop::bool::weighted(0.1));
    let run = run.prop_map(|(tenant, cost, count, again)| {
        (
            tenant.min(3) % if tenant > 8 { 4 } else { 3 },
            cost,
            count,
            again,
        )
    });
    prop_oneof![
        8 => (lane, prop::collection::vec(run, 1..5)).prop_map(|(lane, runs)| Step::Arrive(lane, runs)),
        4 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(n, on_time)| Step::Wake(n, on_time)),
        3 => (any::<usize>(), prop::bool::weighted(0.2)).prop_map(|(n, twice)| Step::Release(n, twice)),
        5 => prop_oneof![0_u64..50, 50_u64..3000, 3000_u64..90_000, 90_000_u64..4_000_000].prop_map(Step::Pass),
        1 => prop_oneof![1_u64..6000, 6000_u64..600_000].prop_map(Step::SetBack),
        1 => (0_usize..3).prop_map(Step::Change),
    ]
}

fn budget() -> impl Strategy<Value = Budget> {
    let limit = prop_oneof![
        Just("100"),
        Just("14"),
        Just("1"),
        Just("25/h"),
        Just("12.5"),
        Just("10000"),
        Just("3"),
        Just("1.7"),
        Just("200/d"),
    ];
    let headroom = prop_oneof![Just("0.98"), Just("0.9"), Just("0.8"), Just("0.333")];
    let reserve = prop_oneof![Just("0"), Just("2"), Just("0.1"), Just("40"), Just("1/m")];
    let horizon = prop_oneof![Just(60_u64), Just(1), Just(5), Just(900)];
    (limit, headroom, reserve, horizon).prop_map(|(limit, headroom, reserve, horizon)| {
        let rate = |text: &str| text.parse().unwrap();
        Budget::new(Settings {
            limit: rate(limit),
            headroom: rate(headroom),
            guard: rate("0.99"),
            burst: None,
            reserve: rate(reserve),
            horizon: Millis::from_secs(horizon),
        })
        .unwrap()
    })
}

/// A message outside the script: booked, or asleep.
struct Message {
    lane: Lane,
    tenant: usize,
    cost: u32,
}

/// The world around the schedule.
struct World {
    clocked: Clocked,
    server: redis::aio::MultiplexedConnection,
    keys: Keys,
    model: Model,
    now: Moment,
    waiting: Vec<(Message, Standing, Moment)>,
    booked: Vec<(Message, Vec<(Cell, u32)>)>,
    /// What live bookings hold by cell and lane, added up from the script's answers alone.
    ledger: BTreeMap<Cell, [u64; 2]>,
}

fn tenant(n: usize) -> TenantName {
    KNOWN.get(n).unwrap_or(&"nobody").parse().unwrap()
}

impl World {
    async fn seed(&mut self, budget: Budget) {
        let seed = Seed {
            source: "test".into(),
            budget,
            tenants: (0..3).map(tenant).collect(),
        };
        let differs = *self.model.budget() != budget;
        let written = self.clocked.schedule.seed(&seed).await.unwrap();
        if differs {
            assert!(written);
        }
        if written {
            self.model.set_budget(budget);
        }
        assert!(
            !self.clocked.schedule.seed(&seed).await.unwrap(),
            "seeding the same twice writes nothing"
        );
        let other = Seed {
            source: "deploy".into(),
            ..seed
        };
        assert!(
            !self.clocked.schedule.seed(&other).await.unwrap(),
            "a deploy does not replace what came from elsewhere"
        );
    }

    async fn book(
        &mut self,
        lane: Lane,
        asked: Vec<(Message, Standing)>,
    ) -> Result<(), TestCaseError> {
        let asks: Vec<Ask> = asked
            .iter()
            .map(|(m, standing)| Ask {
                tenant: tenant(m.tenant),
                cost: m.cost,
                standing: *standing,
            })
            .collect();
        let answers = self.clocked.schedule.book(lane, &asks).await.unwrap();
        prop_assert_eq!(answers.len(), asked.len());
        let now = self.model.advance(self.now);
        for ((message, standing), answer) in asked.into_iter().zip(answers) {
            if message.tenant >= KNOWN.len() {
                prop_assert_eq!(answer, Booking::UnknownTenant);
                continue;
            }
            let expected = self.model.book(self.now, lane, message.cost, standing);
            match (answer, expected) {
                (Booking::Slot(slot), schedule::Booking::Slot(expected)) => {
                    prop_assert_eq!(&slot, &expected);
                    self.check_slot(now, &message, &slot)?;
                    self.booked.push((message, slot.cells));
                }
                (Booking::Wait(wait), schedule::Booking::Wait(expected)) => {
                    prop_assert_eq!(wait, expected);
                    prop_assert!(wait.delay >= Millis(1000) && wait.delay <= Millis(900_000));
                    let standing = if wait.place == 0 {
                        Standing::Again
                    } else {
                        Standing::Waited { place: wait.place }
                    };
                    self.waiting.push((message, standing, now + wait.delay));
                }
                (answer, expected) => prop_assert!(false, "script {answer:?}, model {expected:?}"),
            }
        }
        Ok(())
    }

    /// What must be true of any slot, whatever the model says.
    fn check_slot(
        &mut self,
        now: Moment,
        message: &Message,
        slot: &schedule::Slot,
    ) -> Result<(), TestCaseError> {
        let budget = *self.model.budget();
        let total: u64 = slot.cells.iter().map(|(_, n)| u64::from(*n)).sum();
        prop_assert_eq!(total, u64::from(message.cost));
        prop_assert_eq!(slot.at, now + slot.delay);
        prop_assert!(slot.at.cell() <= (now + Millis::from_secs(900)).cell());
        for &(cell, count) in &slot.cells {
            prop_assert!(cell >= now.cell());
            let held = self.ledger.entry(cell).or_default();
            held[message.lane as usize] += u64::from(count);
            let [priority, bulk] = *held;
            // Not overbooked: in all, and by bulk.
            prop_assert!(
                priority + bulk <= budget.capacity(cell),
                "{cell:?} holds {held:?}"
            );
            if message.lane == Lane::Bulk {
                prop_assert!(
                    bulk <= budget.capacity(cell) - budget.reserved(cell),
                    "{cell:?} holds {held:?}"
                );
            }
        }
        // The earliest cells its lane allows: none before the last has room left.
        let last = slot.cells.iter().map(|(cell, _)| *cell).max().unwrap();
        for cell in (now.cell().0..last.0).map(Cell) {
            prop_assert_eq!(
                self.model.room(message.lane, cell),
                0,
                "{:?} had room before {:?}",
                cell,
                last
            );
        }
        // At the turn of its last recipient, unless no second could hold it.
        let goes = slot.at.cell();
        if u64::from(message.cost) <= budget.largest_shared() {
            prop_assert_eq!(goes, last.max(now.cell()));
        } else {
            prop_assert!(slot.cells.iter().any(|(cell, _)| *cell == goes));
        }
        Ok(())
    }

    async fn take(&mut self, step: Step, budgets: &[Budget]) -> Result<(), TestCaseError> {
        match step {
            Step::Arrive(lane, runs) => {
                let standing = |again| {
                    if again {
                        Standing::Again
                    } else {
                        Standing::New
                    }
                };
                let asked = runs
                    .into_iter()
                    .flat_map(|(tenant, cost, count, again)| {
                        (0..count).map(move |_| (Message { lane, tenant, cost }, standing(again)))
                    })
                    .collect();
                self.book(lane, asked).await?;
            }
            Step::Wake(n, on_time) if !self.waiting.is_empty() => {
                let n = n % self.waiting.len();
                let (message, standing, due) = self.waiting.swap_remove(n);
                if on_time && due > self.now {
                    self.now = due;
                    self.clocked.set(self.now).await.unwrap();
                }
                self.book(message.lane, vec![(message, standing)]).await?;
            }
            Step::Release(n, twice) if !self.booked.is_empty() => {
                let n = n % self.booked.len();
                let (message, cells) = self.booked.swap_remove(n);
                for _ in 0..=usize::from(twice) {
                    self.clocked
                        .schedule
                        .release(message.lane, &cells)
                        .await
                        .unwrap();
                    self.model.release(self.now, message.lane, &cells);
                }
                for (cell, count) in cells {
                    // Given back twice, it takes from the lane's others: then the ledger knows less.
                    let times = 1 + u64::from(twice);
                    if let Some(held) = self.ledger.get_mut(&cell) {
                        let own = &mut held[message.lane as usize];
                        *own = own.saturating_sub(times * u64::from(count));
                    }
                }
            }
            Step::Wake(..) | Step::Release(..) => {}
            Step::Pass(ms) => {
                self.take_time(Millis(ms)).await;
            }
            Step::SetBack(ms) => {
                self.now = Moment(self.now.0 - ms);
                self.clocked.set(self.now).await.unwrap();
                if ms > 1000 {
                    // The schedule may start anew: what was booked is forgotten.
                    self.ledger.clear();
                    self.booked.clear();
                }
            }
            Step::Change(n) => {
                self.seed(budgets[n % budgets.len()]).await;
                // Earlier bookings may exceed a smaller budget; later ones are checked without them.
                self.ledger.clear();
                self.booked.clear();
            }
        }
        self.compare().await
    }

    /// The past is dropped inside the calls: after a pause, a few of them leave none of it.
    async fn check_nothing_is_left(&mut self) -> Result<(), TestCaseError> {
        self.take_time(Millis::from_secs(2000)).await;
        for _ in 0..8 {
            let message = Message {
                lane: Lane::Bulk,
                tenant: 0,
                cost: 1,
            };
            self.book(Lane::Bulk, vec![(message, Standing::Again)])
                .await?;
        }
        let now = self.model.clock().cell().0;
        let fields: Vec<String> = redis::cmd("HKEYS")
            .arg(format!("{}schedule", self.keys))
            .query_async(&mut self.server)
            .await
            .unwrap();
        let past = fields
            .iter()
            .filter_map(|field| field.parse::<u64>().ok())
            .filter(|cell| *cell < now)
            .count();
        prop_assert_eq!(past, 0, "past cells are left");
        Ok(())
    }

    async fn take_time(&mut self, passed: Millis) {
        self.now = self.now + passed;
        self.clocked.set(self.now).await.unwrap();
    }

    /// The whole state in Redis is the model's.
    async fn compare(&mut self) -> Result<(), TestCaseError> {
        let mut held: HashMap<String, Vec<u8>> = redis::cmd("HGETALL")
            .arg(format!("{}schedule", self.keys))
            .query_async(&mut self.server)
            .await
            .unwrap();
        let state = held.remove("state").unwrap_or_default();
        let cells: HashMap<u64, u64> = held
            .into_iter()
            .map(|(cell, packed)| {
                (
                    cell.parse().unwrap(),
                    String::from_utf8(packed).unwrap().parse().unwrap(),
                )
            })
            .collect();
        let from = self.model.clock().cell().0;
        let held: BTreeMap<u64, (u64, u64)> = cells
            .iter()
            .filter(|(cell, packed)| **cell >= from && **packed > 0)
            .map(|(cell, packed)| (*cell, (packed >> 20, packed & ((1 << 20) - 1))))
            .collect();
        let expected: BTreeMap<u64, (u64, u64)> = self
            .model
            .cells()
            .filter(|(_, booked)| booked.all > 0)
            .map(|(cell, booked)| (cell.0, (booked.all, booked.bulk)))
            .collect();
        prop_assert_eq!(held, expected);
        let mut numbers = state
            .chunks_exact(8)
            .map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap()))
            .skip(3);
        for lane in Lane::ALL {
            let mut next = || numbers.next().unwrap_or(0);
            let line = self.model.line(lane);
            let expected = [
                self.model.frontier(lane).0,
                line.queued,
                line.served,
                line.until.0,
            ];
            prop_assert_eq!(
                [next(), next(), next(), next()],
                expected.map(|n| (n as f64).to_bits())
            );
        }
        // Memory is bounded: only a few past cells are left, the ahead is within the horizon.
        let past = cells.keys().filter(|cell| **cell < from).count();
        prop_assert!(past <= 2000, "{past} past cells are left");
        Ok(())
    }
}

#[test]
fn script_and_model_agree_step_by_step() {
    let server = PrivateServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let keys = Keys::of("model").unwrap();
    let (mut clocked, connection) = runtime.block_on(async {
        (
            Some(Clocked::new(&server, keys.clone()).await),
            server.connection().await,
        )
    });
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases(192)));
    let histories = (
        prop::collection::vec(budget(), 3),
        1_700_000_000_000_u64..1_900_000_000_000,
        prop::collection::vec(step(), 1..60),
    );
    let clocked = std::cell::RefCell::new(&mut clocked);
    let outcome = runner.run(&histories, |(budgets, start, steps)| {
        let mut slot = clocked.borrow_mut();
        let Some(mut inner) = slot.take() else {
            return Err(TestCaseError::fail("the last case left no connection"));
        };
        runtime.block_on(async {
            inner.flush().await.unwrap();
            inner.set(Moment(start)).await.unwrap();
            let mut world = World {
                clocked: inner,
                server: connection.clone(),
                keys: keys.clone(),
                model: Model::new(budgets[0]),
                now: Moment(start),
                waiting: Vec::new(),
                booked: Vec::new(),
                ledger: BTreeMap::new(),
            };
            world.seed(budgets[0]).await;
            let mut result = Ok(());
            for step in steps {
                result = world.take(step, &budgets).await;
                if result.is_err() {
                    break;
                }
            }
            if result.is_ok() {
                result = world.check_nothing_is_left().await;
            }
            **slot = Some(world.clocked);
            result
        })
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// A schedule full up to a horizon that is then cut, with a line so short that it would fit into the new one: the
/// message is in turn, finds no room, and is tried once more without being asked for its turn again.
#[tokio::test]
async fn a_cut_horizon_meets_a_full_schedule() {
    let server = PrivateServer::start();
    let keys = Keys::of("cut").unwrap();
    let budget = |horizon| {
        Budget::new(Settings {
            limit: "100".parse().unwrap(),
            headroom: "0.333".parse().unwrap(),
            guard: "0.99".parse().unwrap(),
            burst: None,
            reserve: "0".parse().unwrap(),
            horizon: Millis::from_secs(horizon),
        })
        .unwrap()
    };
    let budgets = [budget(60), budget(1)];
    let start = Moment(1_799_273_186_397);
    let mut clocked = Clocked::new(&server, keys.clone()).await;
    clocked.set(start).await.unwrap();
    let mut world = World {
        clocked,
        server: server.connection().await,
        keys,
        model: Model::new(budgets[0]),
        now: start,
        waiting: Vec::new(),
        booked: Vec::new(),
        ledger: BTreeMap::new(),
    };
    world.seed(budgets[0]).await;
    let one_by_one = |count| Step::Arrive(Lane::Bulk, vec![(0, 1, count, false)]);
    for step in [
        one_by_one(2030),
        Step::Change(1),
        one_by_one(1),
        one_by_one(1),
    ] {
        world.take(step, &budgets).await.unwrap();
    }
    let asleep = world.waiting.len();
    assert!(
        (1..=33).contains(&asleep),
        "{asleep} wait: the line isn't as short as meant"
    );
}

/// Cases of a property test: `PROPTEST_CASES` where it is set.
fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(usual)
}

#[tokio::test]
async fn without_a_budget_nothing_is_booked_and_the_error_says_so() {
    let server = PrivateServer::start();
    let schedule =
        sendslot_schedule::Schedule::connect(&server.url(), Keys::of("empty").unwrap()).unwrap();
    let ask = Ask {
        tenant: tenant(0),
        cost: 1,
        standing: Standing::New,
    };
    let error = schedule.book(Lane::Bulk, &[ask]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no budget in redis under \"sendslot:{empty}:budget\": seed it first"
    );
}

/// What a lane gives back is its own: a count too large takes nothing from the other.
#[tokio::test]
async fn a_release_takes_nothing_from_the_other_lane() {
    let server = PrivateServer::start();
    let keys = Keys::of("release").unwrap();
    let mut clocked = Clocked::new(&server, keys.clone()).await;
    clocked.set(Moment(1_800_000_000_000)).await.unwrap();
    let budget = Budget::new(Settings {
        limit: "10".parse().unwrap(),
        headroom: "0.9".parse().unwrap(),
        guard: "0.95".parse().unwrap(),
        burst: None,
        reserve: "2".parse().unwrap(),
        horizon: Millis::from_secs(60),
    });
    let seed = Seed {
        source: "test".into(),
        budget: budget.unwrap(),
        tenants: vec![tenant(0)],
    };
    clocked.schedule.seed(&seed).await.unwrap();
    let ask = Ask {
        tenant: tenant(0),
        cost: 1,
        standing: Standing::New,
    };
    // Both lanes book the first ten seconds full: 90 recipients, of which 20 only priority may have.
    let bulk = vec![ask.clone(); 70];
    clocked.schedule.book(Lane::Bulk, &bulk).await.unwrap();
    let urgent = vec![ask; 20];
    clocked
        .schedule
        .book(Lane::Priority, &urgent)
        .await
        .unwrap();
    let cell = Cell(1_800_000_005);
    let mut connection = server.connection().await;
    let mut held = async || -> (u64, u64) {
        let packed: u64 = redis::cmd("HGET")
            .arg(format!("{keys}schedule"))
            .arg(cell.0)
            .query_async(&mut connection)
            .await
            .unwrap();
        (packed >> 20, packed & ((1 << 20) - 1))
    };
    let (all, of_bulk) = held().await;
    assert_eq!((all, of_bulk), (9, 7));
    let release = async |lane, count| {
        clocked
            .schedule
            .release(lane, &[(cell, count)])
            .await
            .unwrap();
    };
    release(Lane::Priority, 5).await;
    assert_eq!(held().await, (7, 7));
    release(Lane::Bulk, 50).await;
    assert_eq!(held().await, (0, 0));
}

/// The scripts as shipped, on the server's own clock.
#[tokio::test]
async fn the_clock_is_the_servers() {
    let server = PrivateServer::start();
    let schedule =
        sendslot_schedule::Schedule::connect(&server.url(), Keys::of("clock").unwrap()).unwrap();
    let settings = Settings {
        limit: "100".parse().unwrap(),
        headroom: "0.98".parse().unwrap(),
        guard: "0.99".parse().unwrap(),
        burst: None,
        reserve: "2".parse().unwrap(),
        horizon: Millis::from_secs(60),
    };
    let seed = Seed {
        source: "deploy".into(),
        budget: Budget::new(settings).unwrap(),
        tenants: vec![tenant(0)],
    };
    assert!(schedule.seed(&seed).await.unwrap());
    let mut connection = server.connection().await;
    let mut time = async || {
        let (s, us): (u64, u64) = redis::cmd("TIME")
            .query_async(&mut connection)
            .await
            .unwrap();
        Moment(s * 1000 + us / 1000)
    };
    let before = time().await;
    let asks = vec![
        Ask {
            tenant: tenant(0),
            cost: 1,
            standing: Standing::New
        };
        300
    ];
    let answers = schedule.book(Lane::Bulk, &asks).await.unwrap();
    let after = time().await;
    let slots: Vec<Moment> = answers
        .iter()
        .map(|answer| match answer {
            Booking::Slot(slot) => slot.at,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(before <= slots[0] && slots[0] < after + Millis(1000));
    assert!(slots.is_sorted());
    let last = slots[299];
    assert!(
        last > before + Millis(2000) && last < after + Millis(5000),
        "300 at 96 a second: {last:?}"
    );
}
