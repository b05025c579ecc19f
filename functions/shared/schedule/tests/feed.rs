//! What the provider tells: counts and marks against a list of all that was told, and whom nobody may be sent to.
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't set itself up has failed"
)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use redis::{AsyncCommands, aio::MultiplexedConnection};
use sendslot_domain::{
    Budget, Lane, Millis, Moment, Rate, TenantName,
    budget::Settings,
    reputation::Counts,
    suppression::{AddressDigest, Cause},
    window::Caps,
};
use sendslot_schedule::{
    Ask, Booking, Claim, ClaimAsk, Counted, Ended, Fed, Keys, Purpose, Schedule, ScheduleError,
    Seed, Standing, Tenant, Terms, Told,
    testing::{Clocked, PrivateServer},
};

const START: Moment = Moment(1_800_000_000_000);
const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const MEMORY: Millis = Millis(14 * DAY);

/// A server, a schedule on it whose clock is set, and its connection.
struct Rig {
    server: PrivateServer,
    clocked: Clocked,
    redis: MultiplexedConnection,
}

impl Rig {
    async fn new() -> Self {
        let server = PrivateServer::start();
        let mut clocked = Clocked::new(&server, Keys::of("fed").unwrap()).await;
        clocked.set(START).await.unwrap();
        let redis = server.connection().await;
        Self {
            server,
            clocked,
            redis,
        }
    }

    fn schedule(&self) -> &Schedule {
        &self.clocked.schedule
    }

    async fn feed(&self, events: &[Fed]) -> Vec<(bool, Option<Counted>)> {
        self.schedule().feed(MEMORY, events).await.unwrap()
    }

    async fn counts(&self, n: usize) -> Counted {
        self.schedule().counts(&[tenant(n)]).await.unwrap()[0]
    }

    async fn draw(&self, n: usize, wanted: u32, beyond: i64, usually: f64) -> u32 {
        let draw = self
            .schedule()
            .draw(&tenant(n), wanted, beyond, usually)
            .await;
        draw.unwrap()
    }

    async fn sweep(&self) -> u64 {
        let (mut from, mut gone) = (0, 0);
        loop {
            let (next, some) = self.schedule().sweep(from).await.unwrap();
            gone += some;
            if next == 0 {
                return gone;
            }
            from = next;
        }
    }
}

fn key(what: &str) -> String {
    format!("sendslot:{{fed}}:{what}")
}

fn tenant(n: usize) -> TenantName {
    format!("tenant-{n}").parse().unwrap()
}

fn digest(n: u32) -> AddressDigest {
    // With bytes that are no text.
    let mut bytes = [0xff; 16];
    bytes[6..10].copy_from_slice(&n.to_be_bytes());
    AddressDigest(bytes)
}

fn event(id: &str, told: Told, recipients: u32, sent_at: Moment) -> Fed {
    Fed {
        id: id.into(),
        tenant: tenant(0),
        send_id: format!("mail-{id}").parse().unwrap(),
        told,
        recipients,
        sent_at,
        suppress: None,
    }
}

fn seed() -> Seed {
    let budget = Budget::new(Settings {
        limit: "100".parse().unwrap(),
        headroom: "0.9".parse().unwrap(),
        guard: "0.95".parse().unwrap(),
        burst: None,
        reserve: Rate::ZERO,
        slice: "0.05".parse().unwrap(),
        caps: Caps::default(),
        horizon: Millis::from_secs(60),
    });
    Seed {
        source: "test".into(),
        budget: budget.unwrap(),
        tenants: vec![(tenant(0), Tenant::default())],
    }
}

/// One event of a history.
#[derive(Clone, Debug)]
struct Event {
    id: usize,
    tenant: usize,
    told: Told,
    recipients: u32,
    /// How long before now its mail was sent, ms; below 0: by a clock that is ahead.
    age: i64,
    suppresses: Vec<u32>,
}

#[derive(Clone, Debug)]
enum Step {
    Feed(Vec<Event>),
    Resume(usize, bool),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let told = prop_oneof![
        3 => Just(Told::Sent),
        2 => Just(Told::Bounced),
        1 => Just(Told::Complained),
        1 => Just(Told::Else),
    ];
    let age = prop_oneof![
        3 => 0..i64::try_from(2 * HOUR).unwrap(),
        2 => 0..i64::try_from(26 * HOUR).unwrap(),
        1 => -60_000_i64..0,
    ];
    let suppresses = prop::collection::vec(0_u32..20, 0..3);
    let event = (0_usize..60, 0_usize..3, told, 0_u32..=50, age, suppresses).prop_map(
        |(id, tenant, told, recipients, age, suppresses)| Event {
            id,
            tenant,
            told,
            recipients,
            age,
            suppresses,
        },
    );
    prop_oneof![
        6 => prop::collection::vec(event, 1..11).prop_map(Step::Feed),
        1 => (0_usize..3, prop::bool::weighted(0.8)).prop_map(|(n, paused)| Step::Resume(n, paused)),
        4 => prop_oneof![0..MINUTE, MINUTE..2 * HOUR, HOUR..30 * HOUR].prop_map(Step::Pass),
    ]
}

/// All that was told, one after the other, and nothing added up.
#[derive(Default)]
struct Journal {
    seen: BTreeSet<usize>,
    /// Tenant, what, recipients, when its mail was sent.
    told: Vec<(usize, Told, u64, u64)>,
    resumed: BTreeMap<usize, u64>,
    /// Why, and when that was heard, s.
    suppressed: BTreeMap<AddressDigest, (Cause, u64)>,
    marked: BTreeSet<String>,
}

impl Journal {
    fn counts(&self, of: usize, now: u64) -> Counted {
        let since = self.resumed.get(&of).copied().unwrap_or(0);
        let sum = |what, unit: u64, units: u64| {
            let counted = self.told.iter().filter(|(tenant, told, _, at)| {
                let recent = at / unit + units > now / unit;
                *tenant == of && *told == what && *at >= since && recent
            });
            counted.map(|(_, _, recipients, _)| recipients).sum()
        };
        let counts = |unit, units| Counts {
            sent: sum(Told::Sent, unit, units),
            bounced: sum(Told::Bounced, unit, units),
            complained: sum(Told::Complained, unit, units),
        };
        Counted {
            hour: counts(MINUTE, 60),
            day: counts(15 * MINUTE, 96),
        }
    }
}

const fn cause(event: &Event) -> Cause {
    if matches!(event.told, Told::Complained) {
        Cause::Complaint
    } else {
        Cause::Bounce
    }
}

fn fed(event: &Event, sent_at: u64) -> Fed {
    let addresses: Vec<_> = event.suppresses.iter().copied().map(digest).collect();
    Fed {
        id: format!("e-{}", event.id),
        tenant: tenant(event.tenant),
        send_id: format!("m-{}", event.id).parse().unwrap(),
        told: event.told,
        recipients: event.recipients,
        sent_at: Moment(sent_at),
        suppress: (!addresses.is_empty()).then(|| (cause(event), addresses)),
    }
}

async fn take(
    rig: &mut Rig,
    journal: &mut Journal,
    now: &mut u64,
    step: Step,
) -> Result<(), TestCaseError> {
    match step {
        Step::Feed(events) => {
            let at = |event: &Event| now.saturating_add_signed(-event.age);
            let batch: Vec<Fed> = events.iter().map(|event| fed(event, at(event))).collect();
            let answers = rig.feed(&batch).await;
            let mut new = Vec::new();
            for event in &events {
                new.push(journal.seen.insert(event.id));
                if !new[new.len() - 1] {
                    continue;
                }
                let sent_at = at(event).min(*now);
                let recipients = u64::from(event.recipients);
                let one = (event.tenant, event.told, recipients, sent_at);
                journal.told.push(one);
                if event.told == Told::Sent {
                    let claim = format!("claim:{}:m-{}", tenant(event.tenant), event.id);
                    journal.marked.insert(claim);
                }
                for n in &event.suppresses {
                    let heard = (cause(event), *now / 1000);
                    journal.suppressed.insert(digest(*n), heard);
                }
            }
            for ((event, is_new), answer) in events.iter().zip(new).zip(answers) {
                let counted = matches!(event.told, Told::Bounced | Told::Complained)
                    .then(|| journal.counts(event.tenant, *now));
                prop_assert_eq!(answer, (is_new, counted), "{:?}", event);
            }
        }
        Step::Resume(n, paused) => {
            if paused {
                let of = tenant(n);
                rig.schedule().pause(&of, None, "test").await.unwrap();
                journal.resumed.insert(n, *now);
                journal.told.retain(|(tenant, ..)| *tenant != n);
            }
            prop_assert_eq!(rig.schedule().resume(&tenant(n)).await.unwrap(), paused);
        }
        Step::Pass(ms) => {
            *now += ms;
            rig.clocked.set(Moment(*now)).await.unwrap();
        }
    }
    let tenants = [0, 1, 2, 9].map(tenant);
    let counted = rig.schedule().counts(&tenants).await.unwrap();
    let expected = [0, 1, 2, 9].map(|n| journal.counts(n, *now));
    prop_assert_eq!(counted, expected);
    let held: BTreeMap<Vec<u8>, String> = rig.redis.hgetall(key("suppressed")).await.unwrap();
    let expected: BTreeMap<Vec<u8>, String> = journal
        .suppressed
        .iter()
        .map(|(digest, (cause, heard))| {
            let letter = if *cause == Cause::Bounce { 'b' } else { 'c' };
            (digest.0.to_vec(), format!("{letter}{heard}"))
        })
        .collect();
    prop_assert_eq!(held, expected);
    let claims: Vec<String> = rig.redis.keys(key("claim:*")).await.unwrap();
    let claims: BTreeSet<String> = claims
        .iter()
        .map(|name| name.replace(&key(""), ""))
        .collect();
    prop_assert_eq!(&claims, &journal.marked);
    Ok(())
}

#[test]
fn what_is_counted_is_what_was_told() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let cases = std::env::var("PROPTEST_CASES").ok();
    let cases = cases.and_then(|n| n.parse().ok()).unwrap_or(128);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases));
    let mut rig = runtime.block_on(Rig::new());
    let histories = (prop::collection::vec(step(), 1..40), START.0..START.0 + DAY);
    let rig = std::cell::RefCell::new(&mut rig);
    let outcome = runner.run(&histories, |(steps, start)| {
        let rig = &mut **rig.borrow_mut();
        runtime.block_on(async {
            rig.clocked.flush().await.unwrap();
            rig.clocked.set(Moment(start)).await.unwrap();
            let (mut journal, mut now) = (Journal::default(), start);
            for step in steps {
                take(rig, &mut journal, &mut now, step).await?;
            }
            Ok(())
        })
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// A mail is in the hour for 60 minutes and in the day for 96 quarters, those under way included, and its bounce with it.
#[tokio::test]
async fn a_mail_and_its_bounce_leave_the_windows_together() {
    let mut rig = Rig::new().await;
    let sent_at = Moment(START.0 + 59_999);
    let told = [
        event("a", Told::Sent, 3, sent_at),
        event("b", Told::Sent, 1, START),
    ];
    rig.clocked.set(Moment(START.0 + 2 * MINUTE)).await.unwrap();
    rig.feed(&told).await;
    rig.clocked
        .set(Moment(START.0 + 50 * MINUTE))
        .await
        .unwrap();
    let answer = rig.feed(&[event("c", Told::Bounced, 2, sent_at)]).await;
    let all = Counts {
        sent: 4,
        bounced: 2,
        complained: 0,
    };
    let both = |hour, day| Counted { hour, day };
    assert_eq!(answer, [(true, Some(both(all, all)))]);
    let none = Counts::default();
    // The start is a whole quarter of an hour.
    assert_eq!(START.0 % (15 * MINUTE), 0);
    for (passed, expected) in [
        (HOUR - 1, both(all, all)),
        (HOUR, both(none, all)),
        (DAY - 1, both(none, all)),
        (DAY, both(none, none)),
    ] {
        rig.clocked.set(Moment(START.0 + passed)).await.unwrap();
        assert_eq!(rig.counts(0).await, expected, "after {passed} ms");
    }
    // Told only now, it isn't counted; that it came is remembered all the same.
    let late = [event("d", Told::Bounced, 1, Moment(START.0 + MINUTE))];
    assert_eq!(rig.feed(&late).await, [(true, Some(both(none, none)))]);
    assert_eq!(rig.feed(&late).await, [(false, Some(both(none, none)))]);
}

/// What is kept of a tenant doesn't grow, be it that none of its mail ever bounces; and all of it ends by itself.
#[tokio::test]
async fn three_days_without_a_bounce_leave_no_more_than_a_day() {
    let mut rig = Rig::new().await;
    for minute in 0..3 * 24 * 60 {
        let now = Moment(START.0 + minute * MINUTE);
        rig.clocked.set(now).await.unwrap();
        rig.feed(&[event(&minute.to_string(), Told::Sent, 1, now)])
            .await;
    }
    let fields: u64 = rig.redis.hlen(key("counts:tenant-0")).await.unwrap();
    assert!(fields <= 96 + 60 + 15, "{fields} fields");
    let counted = rig.counts(0).await;
    assert_eq!((counted.hour.sent, counted.day.sent), (60, 24 * 60));
    let hours = async |what: &str| {
        let left: i64 = rig.redis.clone().pttl(key(what)).await.unwrap();
        u64::try_from(left).unwrap().div_ceil(HOUR)
    };
    assert_eq!(hours("counts:tenant-0").await, 26);
    assert_eq!(hours("event:7").await, 26);
    assert_eq!(hours("claim:tenant-0:mail-7").await, 14 * 24);
}

fn claim_ask(id: &str, fingerprint: &str) -> ClaimAsk {
    ClaimAsk {
        tenant: tenant(0),
        send_id: id.parse().unwrap(),
        fingerprint: fingerprint.into(),
        cost: 1,
        slot: Moment(0),
        suspect_since: None,
        void: None,
        purpose: Purpose::Send,
    }
}

/// That a mail was sent ends its claim, whoever has it, and of the content it was claimed for.
#[tokio::test]
async fn sent_is_marked_over_anothers_claim() {
    let rig = Rig::new().await;
    rig.schedule().seed(&seed()).await.unwrap();
    let terms = Terms {
        lane: Lane::Bulk,
        lease: Millis(45_000),
        longest_wait: Millis(2000),
        memory: MEMORY,
        resend_after: None,
    };
    let claim = async |who: &str, id: &str, print: &str| {
        let asks = [claim_ask(id, print)];
        let mut claims = rig.schedule().claim(who, terms, &asks).await.unwrap();
        claims.remove(0)
    };
    for id in ["mail-a", "mail-b"] {
        assert!(matches!(claim("w", id, "p").await, Claim::Go { .. }));
    }
    rig.feed(&[
        event("a", Told::Sent, 1, START),
        event("b", Told::Bounced, 1, START), // marks nothing
        event("c", Told::Sent, 1, START),    // claimed by nobody
    ])
    .await;
    for id in ["mail-a", "mail-c"] {
        for who in ["w", "v"] {
            assert_eq!(claim(who, id, "p").await, Claim::Ended(Ended::Sent), "{id}");
        }
    }
    assert!(matches!(
        claim("v", "mail-b", "p").await,
        Claim::Held { .. }
    ));
    // The fingerprint is kept where there was one.
    assert_eq!(claim("v", "mail-a", "other").await, Claim::Conflict);
    let sent = Claim::Ended(Ended::Sent);
    assert_eq!(claim("v", "mail-c", "other").await, sent);
    // Handed over again, it marks nothing: a mark that is gone by then has served its time.
    let mut redis = rig.redis.clone();
    let _: () = redis.del(key("claim:tenant-0:mail-c")).await.unwrap();
    let again = rig.feed(&[event("c", Told::Sent, 1, START)]).await;
    assert_eq!(again, [(false, None)]);
    let held: bool = redis.exists(key("claim:tenant-0:mail-c")).await.unwrap();
    assert!(!held);
}

/// Who was paused by the version before, or resumed by it, can be resumed by this one.
#[tokio::test]
async fn one_of_two_records_of_a_pause_is_enough_to_resume() {
    let rig = Rig::new().await;
    rig.schedule().seed(&seed()).await.unwrap();
    let mut redis = rig.redis.clone();
    let ask = [Ask {
        tenant: tenant(0),
        cost: 1,
        standing: Standing::New,
    }];
    for field in [("paused", "tenant-0"), ("tenant:tenant-0", "paused")] {
        rig.schedule().pause(&tenant(0), None, "x").await.unwrap();
        let booked = rig.schedule().book(Lane::Bulk, &ask).await.unwrap();
        assert_eq!(booked, [Booking::Paused]);
        let _: () = redis.hdel(key(field.0), field.1).await.unwrap();
        assert!(rig.schedule().resume(&tenant(0)).await.unwrap());
        assert!(!rig.schedule().resume(&tenant(0)).await.unwrap());
        let booked = rig.schedule().book(Lane::Bulk, &ask).await.unwrap();
        assert!(matches!(booked[0], Booking::Slot(_)), "{booked:?}");
    }
}

/// Found for three days to the second, and as long ahead of a clock that was set back; swept behind that.
#[tokio::test]
async fn an_address_is_suppressed_for_three_days() {
    const STANDS: u64 = 259_200_000;
    let mut rig = Rig::new().await;
    rig.schedule().seed(&seed()).await.unwrap();
    // Looked up whoever asks.
    let asks = [Ask {
        tenant: tenant(9),
        cost: 1,
        standing: Standing::New,
    }];
    let on_list = [(digest(1), Cause::Bounce), (digest(3), Cause::Complaint)];
    assert_eq!(rig.schedule().suppress(&on_list).await.unwrap(), 2);
    assert_eq!(rig.schedule().suppress(&on_list).await.unwrap(), 0);
    assert_eq!(rig.schedule().suppress(&[]).await.unwrap(), 0);
    let addresses: Vec<_> = (0..5).map(digest).collect();
    for (now, found) in [
        (START.0, &[1_usize, 3][..]),
        (START.0 + STANDS, &[1, 3]),
        (START.0 + STANDS + 1000, &[]),
        (START.0 - STANDS, &[1, 3]),
        (START.0 - STANDS - 1000, &[]),
    ] {
        rig.clocked.set(Moment(now)).await.unwrap();
        let booked = rig.schedule().book_for(Lane::Bulk, &asks, &addresses);
        let (bookings, suppressed) = booked.await.unwrap();
        assert_eq!(bookings, [Booking::UnknownTenant]);
        assert_eq!(suppressed, found, "at {now}");
        if !found.is_empty() {
            assert_eq!(rig.sweep().await, 0, "at {now}");
        }
    }
    assert_eq!(rig.sweep().await, 2);
    assert_eq!(rig.sweep().await, 0);
}

/// Ten thousand on the list, of whom some were heard of again; more addresses in one call than a command takes.
#[tokio::test]
async fn thousands_are_looked_up_and_swept() {
    let mut rig = Rig::new().await;
    rig.schedule().seed(&seed()).await.unwrap();
    let all: Vec<_> = (0..10_000).map(|n| (digest(n), Cause::Bounce)).collect();
    for page in all.chunks(1000) {
        assert_eq!(rig.schedule().suppress(page).await.unwrap(), 1000);
    }
    rig.clocked.set(Moment(START.0 + 2 * DAY)).await.unwrap();
    let again: Vec<_> = all.iter().copied().step_by(4).collect();
    assert_eq!(rig.schedule().suppress(&again).await.unwrap(), 0);
    let asks = [Ask {
        tenant: tenant(0),
        cost: 1,
        standing: Standing::New,
    }];
    // Others before and behind those of the list.
    let addresses: Vec<_> = (9_000..21_000).map(digest).collect();
    let found = async |rig: &Rig| {
        let booked = rig.schedule().book_for(Lane::Bulk, &asks, &addresses);
        booked.await.unwrap().1
    };
    assert_eq!(found(&rig).await, (0..1000).collect::<Vec<_>>());
    rig.clocked
        .set(Moment(START.0 + 3 * DAY + 1000))
        .await
        .unwrap();
    let left: Vec<_> = (0..1000).step_by(4).collect();
    assert_eq!(found(&rig).await, left);
    assert_eq!(rig.sweep().await, 7500);
    assert_eq!(found(&rig).await, left);
    let len: u64 = rig.redis.hlen(key("suppressed")).await.unwrap();
    assert_eq!(len, 2500);
    // What can't be read stands for nothing, and goes.
    let _: () = rig
        .redis
        .hset(key("suppressed"), &digest(20_999).0[..], "?")
        .await
        .unwrap();
    assert_eq!(found(&rig).await, left);
    assert_eq!(rig.sweep().await, 1);
    // While nobody may send, nobody is looked up.
    let block = rig.schedule().block(Millis(500), Millis(1000), "test");
    block.await.unwrap();
    let booked = rig.schedule().book_for(Lane::Bulk, &asks, &addresses);
    assert_eq!(
        booked.await.unwrap(),
        (vec![Booking::Blocked(Millis(500))], vec![])
    );
}

/// The settings of tenants are what was written last, as a whole.
#[tokio::test]
async fn the_settings_of_tenants_are_replaced_as_a_whole() {
    let rig = Rig::new().await;
    let asked: Vec<_> = (0..3).map(tenant).collect();
    let error = rig.schedule().tenants(&asked).await.unwrap_err();
    assert!(matches!(error, ScheduleError::NoBudget(_)), "{error}");
    let write = async |tenants: &[(TenantName, String)]| {
        rig.schedule().write_tenants(tenants).await.unwrap();
    };
    write(&[]).await;
    assert_eq!(
        rig.schedule().tenants(&asked).await.unwrap(),
        [const { None::<String> }; 3]
    );
    let many: Vec<_> = (0..5000)
        .map(|n| (tenant(n), format!("{{\"n\":{n}}}")))
        .collect();
    write(&many).await;
    let held = rig.schedule().tenants(&[tenant(4999), tenant(5000)]).await;
    assert_eq!(held.unwrap(), [Some("{\"n\":4999}".into()), None]);
    write(&[(tenant(1), "{\"a\":\"ä|ö\"}".into())]).await;
    let held = rig.schedule().tenants(&asked).await;
    assert_eq!(held.unwrap(), [None, Some("{\"a\":\"ä|ö\"}".into()), None]);
}

/// A moment (ms), what was given then, and what had gone beyond what was given before.
type Drawn = (u64, f64, f64);

/// In no stretch of time is more given than the rate × its length and one second's worth, at least one.
fn check_bound(drawn: &[Drawn], rate: f64) -> Result<(), TestCaseError> {
    for (i, &(from, ..)) in drawn.iter().enumerate() {
        let mut sum = 0.0;
        for (j, &(at, given, beyond)) in drawn[i..].iter().enumerate() {
            // What didn't go is given again; what went beyond counts as given.
            sum += given + if j == 0 { 0.0 } else { beyond };
            let ms = u32::try_from(at - from).unwrap();
            let most = rate * f64::from(ms) / 1000.0 + rate.max(1.0);
            prop_assert!(
                given == 0.0 || sum <= most + 1e-6,
                "{sum} from {from} to {at}, at most {most}"
            );
        }
    }
    Ok(())
}

#[test]
fn no_more_is_drawn_than_the_rate_allows() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(96));
    let rig = std::cell::RefCell::new(runtime.block_on(Rig::new()));
    let rate = prop_oneof![Just(1.0), Just(0.3), Just(7.777), Just(100.0), Just(0.05)];
    let beyond = prop_oneof![6 => Just(0), 1 => -50_i32..0, 1 => 0_i32..50];
    let pass = prop_oneof![3 => 0_u64..20, 3 => 0_u64..2000, 1 => 0_u64..200_000];
    let calls = prop::collection::vec((pass, 0_u32..200, beyond), 1..80);
    let outcome = runner.run(&(rate, any::<bool>(), calls), |(rate, is_set, calls)| {
        let rig = &mut *rig.borrow_mut();
        runtime.block_on(async {
            rig.clocked.flush().await.unwrap();
            rig.clocked.set(START).await.unwrap();
            let usually = if is_set {
                rig.schedule().set_replay(&tenant(0), rate).await.unwrap();
                1000.0
            } else {
                rate
            };
            let (mut now, mut drawn) = (START.0, Vec::new());
            for (pass, wanted, beyond) in calls {
                now += pass;
                rig.clocked.set(Moment(now)).await.unwrap();
                let given = rig.draw(0, wanted, beyond.into(), usually).await;
                prop_assert!(given <= wanted);
                drawn.push((now, f64::from(given), f64::from(beyond)));
            }
            check_bound(&drawn, rate)
        })
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// Asked each millisecond, it gives what the rate comes to, to the recipient: nothing is lost or won by rounding.
#[tokio::test]
async fn callers_in_a_hurry_get_the_rate_and_no_more() {
    let mut rig = Rig::new().await;
    for (n, rate, expected) in [(0, 0.4, 2), (1, 0.6, 3), (2, 7.3, 36), (3, 0.0, 0)] {
        let mut given = 0;
        rig.clocked.set(START).await.unwrap();
        assert_eq!(rig.draw(n, 1000, 0, rate).await, 1);
        for ms in 1..=5010 {
            rig.clocked.set(Moment(START.0 + ms)).await.unwrap();
            given += rig.draw(n, 1000, 0, rate).await;
        }
        assert_eq!(given, expected, "at {rate} a second for 5 s");
    }
}

#[tokio::test]
async fn a_rate_that_is_set_goes_before_the_usual_one_until_nothing_is_left() {
    let mut rig = Rig::new().await;
    let mut now = START.0;
    let mut draw = async |rig: &mut Rig, seconds: u64, beyond: i64, usually: f64| {
        now += seconds * 1000;
        rig.clocked.set(Moment(now)).await.unwrap();
        rig.draw(0, 1000, beyond, usually).await
    };
    assert_eq!(draw(&mut rig, 0, 0, 10.0).await, 1);
    assert_eq!(draw(&mut rig, 1, 0, 10.0).await, 10);
    // The usual rate is what the caller says; what has passed was of the old one.
    assert_eq!(draw(&mut rig, 1, 0, 20.0).await, 10);
    assert_eq!(draw(&mut rig, 1, 0, 20.0).await, 20);
    rig.schedule().set_replay(&tenant(0), 5.0).await.unwrap();
    assert_eq!(draw(&mut rig, 1, 0, 20.0).await, 5);
    // However long nobody asks, one second's worth.
    assert_eq!(draw(&mut rig, 3600, 0, 20.0).await, 5);
    // Twelve more went than were given: nothing for as long as those take.
    assert_eq!(draw(&mut rig, 1, 12, 20.0).await, 0);
    assert_eq!(draw(&mut rig, 1, 0, 20.0).await, 0);
    assert_eq!(draw(&mut rig, 1, 0, 20.0).await, 3);
    // None of those went: they go now, and so do those of the second since, but not more at once than a second's.
    assert_eq!(draw(&mut rig, 0, -3, 20.0).await, 3);
    assert_eq!(draw(&mut rig, 1, -3, 20.0).await, 5);
    rig.schedule().end_replay(&tenant(0)).await.unwrap();
    let held: bool = rig.redis.exists(key("replays")).await.unwrap();
    assert!(!held);
    assert_eq!(draw(&mut rig, 1, 0, 20.0).await, 1);
    assert_eq!(draw(&mut rig, 1, 0, 20.0).await, 20);
    // A clock that is set back gives nothing for the time until then, and doesn't stop for it.
    rig.clocked.set(Moment(START.0 - 500_000)).await.unwrap();
    assert_eq!(rig.draw(0, 1000, 0, 20.0).await, 0);
    rig.clocked.set(Moment(START.0 - 499_000)).await.unwrap();
    assert_eq!(rig.draw(0, 1000, 0, 20.0).await, 20);
}

/// How many commands the server has run since they were last counted, but for those that count and call.
async fn commands(server: &PrivateServer) -> BTreeMap<String, u64> {
    let stats: String = server.run(&["INFO", "commandstats"]).await;
    let _: () = server.run(&["CONFIG", "RESETSTAT"]).await;
    let counts = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let (count, _) = rest.split_once(',')?;
        Some((name.to_owned(), count.parse().unwrap()))
    });
    counts
        .filter(|(name, _)| {
            ["hget", "hmget", "hset", "time", "hincrby", "hdel"].contains(&name.as_str())
        })
        .collect()
}

/// The usual booking takes its seven commands, and one more where addresses are asked for; what a pause leaves behind costs none.
#[tokio::test]
async fn the_usual_booking_stays_on_the_shortest_path() {
    const CALLS: u64 = 20;
    let rig = Rig::new().await;
    let schedule = Schedule::connect(&rig.server.url(), Keys::of("fed").unwrap()).unwrap();
    schedule.seed(&seed()).await.unwrap();
    let ask = Ask {
        tenant: tenant(0),
        cost: 1,
        standing: Standing::New,
    };
    let (known, addresses) = (schedule.expecting(&seed()), [digest(1), digest(2)]);
    let most = usize::try_from(CALLS).unwrap();
    for paused in [false, true] {
        if paused {
            let of = tenant(0);
            schedule.pause(&of, Some(Millis(1)), "test").await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        // Past the newcomer's first seconds.
        let filling = vec![ask.clone(); 90 * 4];
        schedule.book(Lane::Bulk, &filling).await.unwrap();
        schedule
            .book(Lane::Bulk, std::slice::from_ref(&ask))
            .await
            .unwrap();
        commands(&rig.server).await;
        for (schedule, addresses, lookups) in [
            (&schedule, &[][..], 0),
            (&schedule, &addresses[..], 1),
            (&known, &[][..], 0),
            (&known, &addresses[..], 1),
        ] {
            for _ in 0..most {
                let asks = std::slice::from_ref(&ask);
                let booked = schedule.book_for(Lane::Bulk, asks, addresses).await;
                assert!(matches!(booked.unwrap().0[0], Booking::Slot(_)));
            }
            let ran = commands(&rig.server).await;
            let count = |name: &str| ran.get(name).copied().unwrap_or(0);
            // A second may begin, and drop a cell.
            assert!(count("hmget") <= CALLS * (3 + lookups) + 4, "{ran:?}");
            assert!(
                ran.values().sum::<u64>() <= CALLS * (7 + lookups) + 12,
                "{ran:?}"
            );
        }
    }
}
