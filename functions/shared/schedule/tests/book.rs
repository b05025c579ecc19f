//! The booking scripts against the pure model, step by step over random histories, on a private server.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the state's numbers are doubles, and below 2^53"
)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't set itself up has failed"
)]

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use redis::AsyncCommands;
use sendslot_domain::{
    Budget, Cell, Lane, Millis, Moment, Rate, TenantName,
    budget::Settings,
    schedule::{self, Held, Schedule as Model, Standing, Tenant},
    suppression::{AddressDigest, Cause},
    window::{Caps, Span, Window},
};
use sendslot_schedule::{
    Ask, Booking, Keys, Seed, Unused,
    testing::{Clocked, PrivateServer},
};

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// Messages arrive: tenant, recipients, how many, and how they stand.
    Arrive(Lane, Vec<(usize, u32, usize, Standing)>),
    /// The n-th waiting message wakes, on time or early.
    Wake(usize, bool),
    /// The n-th waiting message leaves, and says so or not.
    Leave(usize, bool),
    /// The next so many to wake do so on time, together.
    WakeNext(usize),
    /// The n-th booking is given back; twice, to try the limits, if so said.
    Release(usize, bool),
    /// A tenant is paused, for so long (ms) or until it is resumed.
    Pause(usize, Option<u64>),
    /// A tenant is resumed.
    Resume(usize),
    /// Time passes, ms.
    Pass(u64),
    /// The clock is set back, ms.
    SetBack(u64),
    /// The budget and the tenants' settings become others.
    Change(usize),
    /// New bookings go by so many 1024ths of the rate.
    Slow(u64),
    /// Nobody may book for so long, ms.
    Block(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let lane = prop_oneof![3 => Just(Lane::Bulk), 1 => Just(Lane::Priority)];
    let cost = prop_oneof![4 => Just(1_u32), 2 => 2_u32..12, 1 => 13_u32..=50];
    let count = prop_oneof![4 => 1_usize..5, 2 => 5_usize..60, 1 => 60_usize..700];
    let standing = prop_oneof![
        8 => Just(Standing::New),
        1 => Just(Standing::Again),
        1 => Just(Standing::SlotOnly),
    ];
    let tenant = prop_oneof![10 => 0_usize..4, 3 => 0_usize..200, 1 => Just(UNKNOWN)];
    prop_oneof![
        8 => (lane, prop::collection::vec((tenant, cost, count, standing), 1..5))
            .prop_map(|(lane, runs)| Step::Arrive(lane, runs)),
        3 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(n, on_time)| Step::Wake(n, on_time)),
        4 => (1_usize..12).prop_map(Step::WakeNext),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(n, says_so)| Step::Leave(n, says_so)),
        3 => (any::<usize>(), prop::bool::weighted(0.2)).prop_map(|(n, twice)| Step::Release(n, twice)),
        2 => (0_usize..4, pause()).prop_map(|(n, length)| Step::Pause(n, length)),
        3 => (0_usize..4).prop_map(Step::Resume),
        5 => prop_oneof![0_u64..50, 50_u64..3000, 3000_u64..90_000, 90_000_u64..4_000_000].prop_map(Step::Pass),
        1 => prop_oneof![1_u64..6000, 6000_u64..600_000].prop_map(Step::SetBack),
        1 => (0_usize..3).prop_map(Step::Change),
        1 => prop_oneof![Just(1024_u64), 20_u64..1024].prop_map(Step::Slow),
        1 => prop_oneof![3 => 1_u64..5000, 1 => 5000_u64..900_000].prop_map(Step::Block),
    ]
}

/// How long a pause lasts; the longest stand for nothing at first.
fn pause() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        1 => Just(None),
        3 => (0_u64..20_000).prop_map(Some),
        2 => (20_000_u64..1_000_000).prop_map(Some),
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
        Just("106"),
    ];
    let headroom = prop_oneof![Just("0.98"), Just("0.9"), Just("0.8"), Just("0.333")];
    let reserve = prop_oneof![Just("0"), Just("2"), Just("0.1"), Just("40"), Just("1/m")];
    let slice = prop_oneof![2 => Just("0.05"), 1 => Just("0"), 1 => Just("0.2"), 1 => Just("0.5")];
    let horizon = prop_oneof![3 => Just(60_u64), 1 => Just(1), 2 => Just(5), 1 => Just(900)];
    (limit, headroom, reserve, slice, horizon, caps()).prop_map(
        |(limit, headroom, reserve, slice, horizon, caps)| {
            let rate = |text: &str| text.parse().unwrap();
            Budget::new(Settings {
                limit: rate(limit),
                headroom: rate(headroom),
                guard: rate("0.99"),
                burst: None,
                reserve: rate(reserve),
                slice: rate(slice),
                caps,
                horizon: Millis::from_secs(horizon),
            })
            .unwrap()
        },
    )
}

fn caps() -> impl Strategy<Value = Caps> {
    let hour =
        prop_oneof![4 => Just(None), 1 => Just(Some(20_u64)), 1 => (20_u64..3000).prop_map(Some)];
    let day = prop_oneof![4 => Just(None), 1 => (40_u64..9000).prop_map(Some)];
    (hour, day).prop_map(|(hour, day)| Caps { hour, day })
}

/// The settings of all tenants: those with few neighbours, by number; one in eight has caps of its own.
fn tenants() -> impl Strategy<Value = Vec<Tenant>> {
    let weight = prop_oneof![4 => Just(1_u32), 2 => 2_u32..10, 1 => 1_u32..=1000];
    let caps = prop_oneof![7 => Just(Caps::default()), 1 => caps()];
    let tenant = (weight, caps).prop_map(|(weight, caps)| Tenant { weight, caps });
    prop_oneof![1 => Just(1_usize), 3 => Just(4), 2 => Just(200)]
        .prop_flat_map(move |known| prop::collection::vec(tenant.clone(), known))
}

/// The number of a tenant that no budget knows.
const UNKNOWN: usize = 1000;

/// A message outside the script: booked, or asleep.
#[derive(Clone)]
struct Message {
    lane: Lane,
    tenant: usize,
    cost: u32,
    slot_only: bool,
}

/// The world around the schedule.
struct World {
    clocked: Clocked,
    server: redis::aio::MultiplexedConnection,
    keys: Keys,
    model: Model,
    known: usize,
    /// The seed in force, for calls that have to know it.
    seed: Option<Seed>,
    /// Calls so far: each is made in another way.
    calls: usize,
    /// The last call, to be shown when something is wrong after it.
    last_call: String,
    /// Whether the rate has been the same since searches last began anew: else there may be room that no search sees.
    steady: bool,
    /// Until when nobody may book.
    blocked: Moment,
    now: Moment,
    waiting: Vec<(Message, Standing, Moment)>,
    booked: Vec<(Message, schedule::Slot)>,
    /// What live bookings hold by cell and lane, added up from the script's answers alone.
    ledger: BTreeMap<Cell, [u64; 2]>,
    /// The last cell in which each tenant's last booking in a lane went.
    latest: HashMap<(usize, Lane), Cell>,
    /// What goes by cell and lane, likewise: of all, and of each tenant.
    going: HashMap<Option<usize>, BTreeMap<Cell, [u64; 2]>>,
}

fn tenant(n: usize) -> TenantName {
    format!("tenant-{n}").parse().unwrap()
}

impl World {
    async fn new(server: &PrivateServer, keys: Keys, now: Moment, budget: Budget) -> Self {
        let mut clocked = Clocked::new(server, keys.clone()).await;
        clocked.set(now).await.unwrap();
        Self {
            clocked,
            server: server.connection().await,
            keys,
            model: Model::new(now, budget),
            known: 0,
            seed: None,
            calls: 0,
            last_call: String::new(),
            steady: true,
            blocked: Moment(0),
            now,
            waiting: Vec::new(),
            booked: Vec::new(),
            ledger: BTreeMap::new(),
            latest: HashMap::new(),
            going: HashMap::new(),
        }
    }

    async fn seed(&mut self, budget: Budget, tenants: &[Tenant]) {
        let named = (0..).map(tenant).zip(tenants.iter().copied());
        let seed = Seed {
            source: "test".into(),
            budget,
            tenants: named.collect(),
        };
        self.known = tenants.len();
        self.seed = Some(seed.clone());
        self.clocked.schedule.seed(&seed).await.unwrap();
        self.model
            .set_budget(self.now, budget.for_tenants(tenants.len()));
        for (name, settings) in &seed.tenants {
            self.model.set_tenant(name.clone(), *settings);
        }
        let other = Seed {
            source: "deploy".into(),
            ..seed
        };
        assert!(
            !self.clocked.schedule.seed(&other).await.unwrap(),
            "a deploy does not replace what came from elsewhere"
        );
        self.forget();
    }

    /// Of what was booked so far nothing is asked any more: it was booked under other rules.
    fn forget(&mut self) {
        self.ledger.clear();
        self.booked.clear();
        self.going.clear();
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
        let left = self.now.until(self.blocked);
        let is_blocked = left > Millis(0) && left <= schedule::LONGEST_BLOCK;
        let answers = self.call(lane, &asks, is_blocked).await?;
        prop_assert_eq!(answers.len(), asked.len());
        let runs = asks.chunk_by(|a, b| a == b);
        let runs: Vec<_> = runs.map(|run| (run.len(), &run[0])).collect();
        self.last_call = format!(
            "at {:?}, frontier {:?}: {runs:?} in {lane}: {answers:?}",
            self.now,
            self.model.frontier(lane)
        );
        let now = if is_blocked {
            self.now // it isn't even looked at
        } else {
            self.model.advance(self.now)
        };
        for ((message, standing), answer) in asked.into_iter().zip(answers) {
            let name = tenant(message.tenant);
            if message.tenant >= self.known && !is_blocked {
                prop_assert_eq!(answer, Booking::UnknownTenant);
                continue;
            }
            let frontier = self.model.frontier(lane);
            let expected = self
                .model
                .book(self.now, lane, &name, message.cost, standing);
            match (answer, expected) {
                (Booking::Slot(slot), schedule::Booking::Slot(expected)) => {
                    prop_assert_eq!(&slot, &expected);
                    self.check_slot(now, frontier, &message, standing, &slot)?;
                    self.booked.push((message, slot));
                }
                (Booking::Wait(wait), schedule::Booking::Wait(expected)) => {
                    prop_assert_eq!(wait, expected);
                    prop_assert!(wait.delay >= Millis(1000) && wait.delay <= Millis(900_000));
                    let standing = if wait.place == 0 {
                        standing
                    } else {
                        Standing::Waited { place: wait.place }
                    };
                    if !message.slot_only {
                        self.waiting.push((message, standing, now + wait.delay));
                    }
                }
                (Booking::OverCap, schedule::Booking::OverCap)
                | (Booking::Left, schedule::Booking::Left)
                | (Booking::Paused, schedule::Booking::Paused) => {}
                (Booking::Blocked(left), schedule::Booking::Blocked(expected)) => {
                    prop_assert_eq!(left, expected);
                }
                (answer, expected) => {
                    prop_assert!(false, "{standing:?}: script {answer:?}, model {expected:?}");
                }
            }
        }
        Ok(())
    }

    /// Books, with and without the seed's digest and addresses: neither changes what is booked.
    async fn call(
        &mut self,
        lane: Lane,
        asks: &[Ask],
        is_blocked: bool,
    ) -> Result<Vec<Booking>, TestCaseError> {
        self.calls += 1;
        let schedule = &self.clocked.schedule;
        // An epoch that is put off leaves no digest.
        let held = self.server.hget(format!("{}budget", self.keys), "digest");
        let held: String = held.await.unwrap();
        let schedule = match &self.seed {
            Some(seed) if self.calls % 2 == 1 && seed.digest() == held => schedule.expecting(seed),
            _ => schedule.clone(),
        };
        if self.calls % 4 < 2 {
            return Ok(schedule.book(lane, asks).await.unwrap());
        }
        let listed = AddressDigest([7; 16]);
        let on_list = [(listed, Cause::Bounce)];
        schedule.suppress(&on_list).await.unwrap();
        let addresses = [
            AddressDigest([0; 16]),
            listed,
            AddressDigest([9; 16]),
            listed,
        ];
        let (answers, found) = schedule.book_for(lane, asks, &addresses).await.unwrap();
        if is_blocked || asks.is_empty() {
            prop_assert_eq!(found, [0_usize; 0]);
        } else {
            prop_assert_eq!(found, [1, 3]);
        }
        Ok(answers)
    }

    /// What must be true of any slot, whatever the model says.
    fn check_slot(
        &mut self,
        now: Moment,
        frontier: Cell,
        message: &Message,
        standing: Standing,
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
            // Not overbooked: in all, and by bulk; and not the slice, more than two seconds ahead.
            let slice = if cell.0 > now.cell().0 + 2 {
                budget.sliced(cell)
            } else {
                0
            };
            prop_assert!(
                priority + bulk <= budget.capacity(cell) - slice,
                "{cell:?} holds {held:?}"
            );
            if message.lane == Lane::Bulk {
                prop_assert!(
                    bulk <= budget.capacity(cell) - budget.reserved(cell) - slice,
                    "{cell:?} holds {held:?}"
                );
            }
        }
        // The earliest cells its lane allows: none before the last has room left, slice and windows apart.
        let last = slot.cells.iter().map(|(cell, _)| *cell).max().unwrap();
        let settings = self.model.tenant(&tenant(message.tenant));
        if self.steady && !message.slot_only && !budget.caps().is_some() && !settings.caps.is_some()
        {
            for cell in (now.cell().0..last.0).map(Cell) {
                prop_assert_eq!(
                    self.model.room(message.lane, cell, Cell(0)),
                    0,
                    "{:?} had room before {:?}",
                    cell,
                    last
                );
            }
            // Nor what is left of this second's slice, if that holds all of it and it is known that only the slice is left. Whose
            // line has ended meanwhile counts as new, and as such doesn't overtake what its tenant has far ahead.
            let now = now.cell();
            let latest = self.latest.get(&(message.tenant, message.lane));
            let ahead = latest.map_or(0, |cell| cell.0.saturating_sub(now.0));
            let is_behind = ahead * 4000 > budget.horizon().0;
            if last > now && frontier > now && !matches!(standing, Standing::New) && !is_behind {
                let near = self.model.room(message.lane, now, now);
                prop_assert!(
                    near < u64::from(message.cost),
                    "{near} was left for {} before {last:?}",
                    message.cost
                );
            }
        }
        self.latest.insert((message.tenant, message.lane), last);
        // At the turn of its last recipient, unless no second could hold it.
        let goes = slot.at.cell();
        if u64::from(message.cost) <= budget.largest_shared() {
            prop_assert_eq!(goes, last.max(now.cell()));
        } else {
            prop_assert!(slot.cells.iter().any(|(cell, _)| *cell == goes));
        }
        for whose in [None, Some(message.tenant)] {
            let going = self.going.entry(whose).or_default();
            going.entry(goes).or_default()[message.lane as usize] += total;
        }
        Ok(())
    }

    /// In no hour and no day more goes than the caps allow, and of the budget's not more from bulk than its part.
    fn check_windows(&self) -> Result<(), TestCaseError> {
        let budget = self.model.budget();
        for (whose, going) in &self.going {
            for span in Span::ALL {
                let caps = match whose {
                    None => Lane::ALL.map(|lane| budget.cap(span, lane)),
                    Some(n) => [self.model.tenant(&tenant(*n)).caps.of(span); 2],
                };
                let [Some(cap), Some(bulk_cap)] = caps else {
                    continue;
                };
                let (mut all, mut bulk) = (0, 0);
                let mut oldest = going.iter().peekable();
                for (cell, [priority, of_bulk]) in going {
                    all += priority + of_bulk;
                    bulk += of_bulk;
                    while let Some((first, [p, b])) = oldest.peek()
                        && first.0 + span.seconds() <= cell.0
                    {
                        all -= p + b;
                        bulk -= b;
                        oldest.next();
                    }
                    prop_assert!(
                        all <= cap,
                        "{whose:?} {span:?} up to {cell:?}: {all} of {cap}: {going:?}"
                    );
                    prop_assert!(
                        bulk <= bulk_cap,
                        "{whose:?} {span:?} up to {cell:?}: bulk {bulk} of {bulk_cap}"
                    );
                }
            }
        }
        Ok(())
    }

    async fn take(
        &mut self,
        step: Step,
        settings: &[(Budget, Vec<Tenant>)],
    ) -> Result<(), TestCaseError> {
        match step {
            Step::Arrive(lane, runs) => {
                let asked = runs
                    .into_iter()
                    .flat_map(|(tenant, cost, count, standing)| {
                        let message = Message {
                            lane,
                            tenant,
                            cost,
                            slot_only: standing == Standing::SlotOnly,
                        };
                        (0..count).map(move |_| (message.clone(), standing))
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
            Step::WakeNext(count) if !self.waiting.is_empty() => {
                self.wake_next(count).await?;
            }
            Step::Leave(n, says_so) if !self.waiting.is_empty() => {
                let n = n % self.waiting.len();
                let (message, standing, _) = self.waiting.swap_remove(n);
                if let Standing::Waited { place } = standing
                    && says_so
                {
                    self.book(message.lane, vec![(message, Standing::Left { place })])
                        .await?;
                }
            }
            Step::Release(n, twice) if !self.booked.is_empty() => {
                let n = n % self.booked.len();
                let (message, slot) = self.booked.swap_remove(n);
                self.release(&message, &slot, twice).await;
            }
            Step::Wake(..) | Step::WakeNext(..) | Step::Leave(..) | Step::Release(..) => {}
            Step::Pause(n, length) => self.pause(n, length).await,
            Step::Resume(n) => {
                let was = self.clocked.schedule.resume(&tenant(n)).await.unwrap();
                prop_assert_eq!(was, self.model.resume(&tenant(n)));
            }
            Step::Pass(ms) => {
                self.take_time(Millis(ms)).await;
            }
            Step::SetBack(ms) => {
                self.now = Moment(self.now.0 - ms);
                self.clocked.set(self.now).await.unwrap();
                if ms > 1000 {
                    // The schedule may start anew: what was booked is forgotten.
                    self.forget();
                }
            }
            Step::Change(n) => {
                let (budget, tenants) = &settings[n % settings.len()];
                self.seed(*budget, tenants).await;
                self.steady = false;
            }
            Step::Slow(factor) => {
                self.clocked.slow_to(factor).await.unwrap();
                self.model.slow_to(factor);
                self.steady = false;
                self.ledger.clear();
            }
            Step::Block(ms) => {
                let block = self
                    .clocked
                    .schedule
                    .block(Millis(ms), Millis(900_000), "test");
                let left = block.await.unwrap();
                self.blocked = self.now + left;
                self.model.block(self.blocked);
            }
        }
        let mut compared = self.check_windows();
        if compared.is_ok() {
            compared = self.compare().await;
        }
        compared.map_err(|error| TestCaseError::fail(format!("{error}\nafter {}", self.last_call)))
    }

    async fn pause(&mut self, n: usize, length: Option<u64>) {
        let name = tenant(n);
        let pause = self
            .clocked
            .schedule
            .pause(&name, length.map(Millis), "test");
        pause.await.unwrap();
        // One of no length has an end all the same.
        let length = length.map(|length| Millis(length.max(1)));
        self.model.pause(self.now, &name, length);
        let now = self.now.max(self.model.clock()).cell();
        let (of_tenant, others) = std::mem::take(&mut self.booked)
            .into_iter()
            .partition::<Vec<_>, _>(|(message, _)| message.tenant == n);
        self.booked = others;
        for (message, slot) in of_tenant {
            self.strike(now, &message, &slot, 1);
        }
    }

    async fn wake_next(&mut self, count: usize) -> Result<(), TestCaseError> {
        self.waiting.sort_by_key(|(.., due)| *due);
        let count = count.min(self.waiting.len());
        let (lane, due) = (self.waiting[0].0.lane, self.waiting[count - 1].2);
        let (mut woken, rest) = (Vec::new(), self.waiting.split_off(count));
        for (message, standing, at) in std::mem::replace(&mut self.waiting, rest) {
            if message.lane == lane {
                woken.push((message, standing));
            } else {
                self.waiting.push((message, standing, at));
            }
        }
        if due > self.now {
            self.now = due;
            self.clocked.set(self.now).await.unwrap();
        }
        self.book(lane, woken).await
    }

    async fn release(&mut self, message: &Message, slot: &schedule::Slot, twice: bool) {
        let name = tenant(message.tenant);
        let unused = Unused {
            tenant: name.clone(),
            goes: slot.at.cell(),
            cells: slot.cells.clone(),
            slot_only: message.slot_only,
        };
        for _ in 0..=usize::from(twice) {
            self.clocked
                .schedule
                .release(message.lane, std::slice::from_ref(&unused))
                .await
                .unwrap();
            self.model
                .release(self.now, message.lane, &name, slot, message.slot_only);
        }
        // Given back twice, it takes from the tenant's others: then the ledgers know less.
        let now = self.now.max(self.model.clock()).cell();
        self.strike(now, message, slot, 1 + u64::from(twice));
    }

    /// Takes a message out of the ledgers, as far as it is still to come.
    fn strike(&mut self, now: Cell, message: &Message, slot: &schedule::Slot, times: u64) {
        let lane = message.lane as usize;
        for (cell, count) in &slot.cells {
            if let Some(held) = self.ledger.get_mut(cell).filter(|_| *cell > now) {
                held[lane] = held[lane].saturating_sub(times * u64::from(*count));
            }
        }
        let goes = slot.at.cell();
        if goes > now {
            for whose in [None, Some(message.tenant)] {
                if let Some(held) = self.going.entry(whose).or_default().get_mut(&goes) {
                    held[lane] = held[lane].saturating_sub(times * u64::from(message.cost));
                }
            }
        }
    }

    /// The past is dropped inside the calls: after a pause, a few of them leave none of it.
    async fn check_nothing_is_left(&mut self) -> Result<(), TestCaseError> {
        self.take_time(Millis::from_secs(2000)).await;
        self.clocked.schedule.resume(&tenant(0)).await.unwrap();
        self.model.resume(&tenant(0));
        for _ in 0..40 {
            for lane in Lane::ALL {
                let message = Message {
                    lane,
                    tenant: 0,
                    cost: 1,
                    slot_only: false,
                };
                self.book(lane, vec![(message, Standing::Again)]).await?;
            }
        }
        let now = self.model.clock().cell().0;
        let kept = now - schedule::PAST_CELLS;
        let mut past = Vec::new();
        for (key, from) in [
            ("schedule".to_owned(), kept),
            (format!("tenant:{}", tenant(0)), now),
        ] {
            let fields: Vec<String> = redis::cmd("HKEYS")
                .arg(format!("{}{key}", self.keys))
                .query_async(&mut self.server)
                .await
                .unwrap();
            let cells = fields.iter().filter_map(|field| {
                let cell = field
                    .trim_start_matches("priority")
                    .trim_start_matches("bulk");
                cell.parse::<u64>().ok()
            });
            past.extend(
                cells
                    .filter(|cell| *cell < from)
                    .map(|cell| (key.clone(), from - cell)),
            );
        }
        prop_assert_eq!(past, [], "past cells are left, so many seconds old");
        Ok(())
    }

    async fn take_time(&mut self, passed: Millis) {
        self.now = self.now + passed;
        self.clocked.set(self.now).await.unwrap();
    }

    async fn hash(&mut self, key: &str) -> HashMap<String, Vec<u8>> {
        redis::cmd("HGETALL")
            .arg(format!("{}{key}", self.keys))
            .query_async(&mut self.server)
            .await
            .unwrap()
    }

    async fn sorted(&mut self, key: &str) -> Vec<(String, f64)> {
        redis::cmd("ZRANGE")
            .arg(format!("{}{key}", self.keys))
            .arg(0)
            .arg(-1)
            .arg("WITHSCORES")
            .query_async(&mut self.server)
            .await
            .unwrap()
    }

    /// The whole state in Redis is the model's.
    async fn compare(&mut self) -> Result<(), TestCaseError> {
        let mut held = self.hash("schedule").await;
        let state = held.remove("state").unwrap_or_default();
        let cells: HashMap<u64, u64> = held
            .into_iter()
            .filter_map(|(cell, packed)| Some((cell.parse().ok()?, number(&packed))))
            .collect();
        let from = self.model.clock().cell().0;
        let held: BTreeMap<u64, (u64, u64, u64)> = cells
            .iter()
            .filter(|(cell, packed)| **cell >= from && **packed > 0)
            .map(|(cell, packed)| {
                let low = |n: u64| n & ((1 << 17) - 1);
                (*cell, (packed >> 34, low(packed >> 17), low(*packed)))
            })
            .collect();
        let expected: BTreeMap<u64, (u64, u64, u64)> = self
            .model
            .cells()
            .filter(|(cell, booked)| cell.0 >= from && booked.all > 0)
            .map(|(cell, booked)| (cell.0, (booked.all, booked.bulk, booked.slots_only)))
            .collect();
        prop_assert_eq!(held, expected);
        // Memory is bounded: only a few past cells are left, the ahead is within the horizon.
        let past = cells.keys().filter(|cell| **cell < from).count();
        prop_assert!(past <= 2000, "{past} past cells are left");

        let numbers = unpacked(&state);
        for lane in Lane::ALL {
            let lines = self.model.lines(lane);
            let ends: Vec<(f64, String)> = lines
                .ends()
                .map(|(end, line)| (end, line.to_owned()))
                .collect();
            let asked: Vec<(f64, String)> = lines
                .asked()
                .map(|(asked, line)| (asked.0 as f64, line.to_owned()))
                .collect();
            let expected = [
                self.model.frontier(lane).0 as f64,
                lines.time(),
                lines.weight() as f64,
                ends.first().map_or(f64::INFINITY, |(end, _)| *end),
                lines.checked().0 as f64,
                lines.total(),
                lines.passed().0 as f64,
            ];
            if !numbers.is_empty() {
                let at = 3 + 7 * lane as usize;
                prop_assert_eq!(&numbers[at..at + 7], expected, "{} of the state", lane);
            }
            // Whether the next search begins further on is no rule, but it must miss no room.
            let full = numbers.get(18 + lane as usize).copied().unwrap_or(0.0);
            for cell in (from..from + 3)
                .map(Cell)
                .filter(|cell| (cell.0 as f64) < full)
            {
                let room = self.model.room(lane, cell, cell);
                prop_assert!(
                    room == 0 || !self.steady,
                    "{:?} has room for {}",
                    cell,
                    lane
                );
            }
            for (key, expected) in [("ends", ends), ("asked", asked)] {
                let held = self.sorted(&format!("{key}:{lane}")).await;
                let held: Vec<(f64, String)> = held
                    .into_iter()
                    .map(|(line, score)| (score, line))
                    .collect();
                prop_assert_eq!(held, expected, "{} of {}", key, lane);
            }
        }
        let held = self.hash("schedule").await;
        for span in Span::ALL {
            compare_window(&held, span, self.model.window(span), &numbers)?;
        }
        for n in (0..4).chain([7, 100]) {
            self.compare_tenant(n, from).await?;
        }
        Ok(())
    }

    async fn compare_tenant(&mut self, n: usize, from: u64) -> Result<(), TestCaseError> {
        let name = tenant(n);
        let held = self.hash(&format!("tenant:{name}")).await;
        // Both records of a pause say the same.
        let record = self.hash("paused").await;
        let till = record.get(name.as_str()).map(|record| {
            let parts: Vec<_> = record.split(|byte| *byte == b'|').collect();
            number(parts[1])
        });
        prop_assert_eq!(held.get("paused").map(|till| number(till)), till);
        for lane in Lane::ALL {
            let line = self.model.line(lane, &name);
            let expected = [
                line.queued as f64,
                line.served as f64,
                line.among.tag,
                f64::from(line.among.weight),
                line.among.asked.0 as f64,
                line.last.0 as f64,
                line.look.since.0 as f64,
                line.look.reached as f64,
                if line.look.lowest == u64::MAX {
                    f64::INFINITY
                } else {
                    line.look.lowest as f64
                },
                line.run as f64,
                line.opened as f64,
            ];
            let mut numbers = held
                .get(lane.as_str())
                .map_or_else(|| vec![0.0; 12], |packed| unpacked(packed));
            numbers.remove(6); // from where to drop the past: no rule
            let of_this_run = line.run == self.model.run();
            prop_assert_eq!(numbers, expected, "the {} line of {}", lane, name);
            let bookings: BTreeMap<u64, (u64, u64)> = held
                .iter()
                .filter_map(|(field, packed)| {
                    let cell: u64 = field.strip_prefix(lane.as_str())?.parse().ok()?;
                    let packed = number(packed);
                    (cell >= from && packed > 0 && of_this_run)
                        .then_some((cell, (packed >> 20, packed & ((1 << 20) - 1))))
                })
                .collect();
            let expected: BTreeMap<u64, (u64, u64)> = self
                .model
                .bookings(&name)
                .map(|(cell, held)| (cell.0, held[lane as usize]))
                .filter(|(cell, held)| *cell >= from && *held != Held::default() && of_this_run)
                .map(|(cell, held)| (cell, (held.booked, held.going)))
                .collect();
            prop_assert_eq!(bookings, expected, "what {} has booked in {}", name, lane);
        }
        for span in Span::ALL {
            if let Some(window) = self.model.window_of(&name, span) {
                compare_window(&held, span, window, &[])?;
            }
        }
        Ok(())
    }
}

fn number(text: &[u8]) -> u64 {
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

fn unpacked(bytes: &[u8]) -> Vec<f64> {
    bytes
        .chunks_exact(8)
        .map(|bytes| f64::from_be_bytes(bytes.try_into().unwrap()))
        .collect()
}

/// The sums and counts that are kept of a window are those of its blocks, and the credit that is in the budget's.
fn compare_window(
    held: &HashMap<String, Vec<u8>>,
    span: Span,
    window: &Window,
    state: &[f64],
) -> Result<(), TestCaseError> {
    let name = if span == Span::Hour { "hour" } else { "day" };
    let Some(packed) = held.get(name) else {
        prop_assert!(!window.is_used(), "{span:?} isn't kept");
        return Ok(());
    };
    let present = window.present();
    let numbers = unpacked(packed);
    let last = present + (numbers.len() as u64 - 1) / 4 - 1;
    prop_assert_eq!(
        window.booked(last + 1, u64::MAX),
        [0, 0],
        "{:?} is kept too short",
        span
    );
    let (credit, kind, from) = match state {
        [.., credit, kind, from, _] => (*credit, *kind as u64, *from as u64),
        _ => (0.0, 0, 0),
    };
    let credit = if kind & (2 << span as u64) > 0 {
        credit
    } else {
        0.0
    };
    let of_bulk = (kind % 2) as f64;
    let counted_in = span.block(Cell(from));
    let mut expected = vec![present as f64];
    for block in present..=last {
        for first in [block.saturating_sub(span.blocks()), block] {
            let [all, bulk] = window.booked(first, block);
            let credit = if (first..=block).contains(&counted_in) {
                credit
            } else {
                0.0
            };
            expected.extend([all as f64 + credit, bulk as f64 + credit * of_bulk]);
        }
    }
    prop_assert_eq!(numbers, expected, "{:?}", span);
    Ok(())
}

#[test]
fn script_and_model_agree_step_by_step() {
    let server = PrivateServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let keys = Keys::of("model").unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases(192)));
    let histories = (
        prop::collection::vec((budget(), tenants()), 3),
        1_700_000_000_000_u64..1_900_000_000_000,
        prop::collection::vec(step(), 1..60),
    );
    let outcome = runner.run(&histories, |(settings, start, steps)| {
        runtime.block_on(async {
            let (budget, tenants) = &settings[0];
            let mut world = World::new(&server, keys.clone(), Moment(start), *budget).await;
            world.clocked.flush().await.unwrap();
            world.clocked.set(Moment(start)).await.unwrap();
            world.seed(*budget, tenants).await;
            for step in steps {
                world.take(step, &settings).await?;
            }
            world.check_nothing_is_left().await
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
            slice: Rate::ZERO,
            caps: Caps::default(),
            horizon: Millis::from_secs(horizon),
        })
        .unwrap()
    };
    let tenants = vec![Tenant::default()];
    let budgets = [(budget(60), tenants.clone()), (budget(1), tenants.clone())];
    let start = Moment(1_799_273_186_397);
    let mut world = World::new(&server, keys, start, budgets[0].0).await;
    world.seed(budgets[0].0, &tenants).await;
    let one_by_one = |count| Step::Arrive(Lane::Bulk, vec![(0, 1, count, Standing::New)]);
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

/// Two lines that end at the same virtual time: with the one that is served the other is over, too, and presses nobody.
#[tokio::test]
async fn lines_end_together() {
    let server = PrivateServer::start();
    let budget = Budget::new(Settings {
        limit: "3".parse().unwrap(),
        headroom: "0.333".parse().unwrap(),
        guard: "0.99".parse().unwrap(),
        burst: None,
        reserve: "0.1".parse().unwrap(),
        slice: "0.05".parse().unwrap(),
        caps: Caps::default(),
        horizon: Millis::from_secs(60),
    })
    .unwrap();
    let tenants = [1, 1, 3, 1].map(|weight| Tenant {
        weight,
        ..Tenant::default()
    });
    let start = Moment(1_714_531_499_686);
    let mut world = World::new(&server, Keys::of("ends").unwrap(), start, budget).await;
    world.seed(budget, &tenants).await;
    let mail = (0, 1, 122, Standing::New);
    for step in [
        Step::Arrive(Lane::Bulk, vec![mail]),
        Step::Arrive(
            Lane::Priority,
            vec![
                (0, 13, 2, Standing::Again),
                (0, 1, 1, Standing::New),
                (2, 1, 3, Standing::New),
            ],
        ),
        Step::WakeNext(9),
        Step::Wake(1_252_477_657_283_955_591, true),
        Step::WakeNext(9),
        Step::WakeNext(4),
    ] {
        world.take(step, &[]).await.unwrap();
    }
}

/// Searches begin anew when the rate has moved by a tenth, at most once a minute; a smaller move changes what is
/// searched from the frontier on.
#[tokio::test]
async fn a_small_move_of_the_rate_starts_no_epoch_and_a_larger_one_waits_for_its_minute() {
    let server = PrivateServer::start();
    let keys = Keys::of("epoch").unwrap();
    let budget = |limit: &str| {
        Budget::new(Settings {
            limit: limit.parse().unwrap(),
            headroom: "0.9".parse().unwrap(),
            guard: "0.95".parse().unwrap(),
            burst: None,
            reserve: "2".parse().unwrap(),
            slice: "0.05".parse().unwrap(),
            caps: Caps::default(),
            horizon: Millis::from_secs(60),
        })
        .unwrap()
    };
    let tenants = vec![Tenant::default(); 3];
    let settings = ["100", "105", "120", "60"].map(|limit| (budget(limit), tenants.clone()));
    let start = Moment(1_800_000_000_500);
    let mut world = World::new(&server, keys, start, settings[0].0).await;
    world.seed(settings[0].0, &tenants).await;
    let arrive = || Step::Arrive(Lane::Bulk, vec![(0, 1, 500, Standing::New)]);
    let frontier = |world: &World| world.model.frontier(Lane::Bulk);
    for (steps, starts_anew) in [
        (
            vec![arrive(), Step::Pass(61_000), arrive(), Step::Change(1)],
            false,
        ),
        (vec![arrive(), Step::Change(2)], true),
        (vec![arrive(), Step::Change(3)], false), // within the minute
        (vec![Step::Pass(61_000), arrive(), Step::Change(3)], true),
    ] {
        for step in steps {
            world.take(step, &settings).await.unwrap();
        }
        assert_eq!(frontier(&world) == Cell(0), starts_anew);
    }
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
        slice: Rate::ZERO,
        caps: Caps::default(),
        horizon: Millis::from_secs(60),
    });
    let seed = Seed {
        source: "test".into(),
        budget: budget.unwrap(),
        tenants: vec![(tenant(0), Tenant::default())],
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
        (packed >> 34, (packed >> 17) & ((1 << 17) - 1))
    };
    let (all, of_bulk) = held().await;
    assert_eq!((all, of_bulk), (9, 7));
    let release = async |lane, count| {
        let unused = Unused {
            tenant: tenant(0),
            goes: cell,
            cells: vec![(cell, count)],
            slot_only: false,
        };
        clocked.schedule.release(lane, &[unused]).await.unwrap();
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
        slice: Rate::ZERO,
        caps: Caps::default(),
        horizon: Millis::from_secs(60),
    };
    let seed = Seed {
        source: "deploy".into(),
        budget: Budget::new(settings).unwrap(),
        tenants: vec![(tenant(0), Tenant::default())],
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
