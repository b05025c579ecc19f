//! Parked mail that goes again by itself.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sendslot_domain::{Lane, Millis, Moment};
use sendslot_runtime::{
    control::{Failure, Replay, Replayed, ReplayedTenant},
    parking::{ParkedKey, Reason},
};
use sendslot_schedule::{Booking, Keys, Schedule, Standing, Wait};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    fakes::{envelope, key_of, locked, slot},
    release::Rig,
    rig::{self, MINUTE, account, within},
};

const HANGS: Duration = Duration::from_hours(24);

impl Rig {
    /// A replay of so many seconds: its answer, and of how many tenants mail is parked then.
    async fn replay(&self, seconds: u64) -> Result<(Replayed, Option<usize>), Failure> {
        let ask = Replay {
            seconds: Some(seconds),
            ..Replay::default()
        };
        self.engine().replay(&ask, within(MINUTE)).await
    }

    /// Parks so many of a tenant's mails, a second from one to the next; `age` seconds is the oldest.
    fn park_many(&self, tenant: &str, count: u64, age: u64) -> Vec<String> {
        let parked = (0..count).map(|n| {
            let id = format!("{tenant}-{n:04}");
            let key = key_of(tenant, &id, Reason::Paused, Lane::Bulk, (age - n) * 1000);
            self.bucket.park(&key, &envelope(&key));
            id
        });
        parked.collect()
    }
}

fn told(tenant: &str) -> ReplayedTenant {
    ReplayedTenant {
        tenant: tenant.to_owned(),
        ..ReplayedTenant::default()
    }
}

/// When each recipient of a tenant was put on a queue.
fn times(rig: &Rig, tenant: &str) -> Vec<Instant> {
    let mut times = Vec::new();
    for lane in Lane::ALL {
        let put = rig.queues.timed(&format!("{lane}-send")).into_iter();
        for (message, at) in put {
            let envelope = sendslot_mail::Envelope::from_json(&message.body).unwrap();
            if envelope.tenant.as_str() == tenant {
                times.extend(vec![at; envelope.mail.cost() as usize]);
            }
        }
    }
    times.sort();
    times
}

/// In no time did more go than the rate allows, a second's worth (or one recipient), and what the last mail cost beyond.
fn keeps(times: &[Instant], rate: f64, costliest: f64) {
    for (first, from) in times.iter().enumerate() {
        for (last, to) in times.iter().enumerate().skip(first) {
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let went = (last - first + 1) as f64;
            let allowed = rate * (*to - *from).as_secs_f64() + rate.max(1.0) + costliest;
            assert!(went <= allowed, "{went} recipients in {:?}", *to - *from);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_tenant_goes_at_its_rate_the_oldest_first() {
    let rig = Rig::new(); // 40/s: a quarter of that
    let acme = rig.park_many("acme", 200, 900);
    let beta = rig.park_many("beta", 200, 800);
    locked(&rig.schedule.replays).insert("beta".into(), (4.0, 1.0, Instant::now()));
    let start = Instant::now();
    let (replayed, parked) = rig.replay(10).await.unwrap();
    assert!(
        (9..12).contains(&start.elapsed().as_secs()),
        "{:?}",
        start.elapsed()
    );
    for (name, rate, ids) in [("acme", 10.0, &acme), ("beta", 4.0, &beta)] {
        let times = times(&rig, name);
        keeps(&times, rate, 0.0);
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let went = times.len() as f64;
        assert!(went >= rate * 9.0 && went <= rate * 11.0, "{name}: {went}");
        let sent: Vec<String> = rig
            .queues
            .ids()
            .into_iter()
            .filter(|id| id.starts_with(name))
            .collect();
        assert_eq!(sent, ids[..sent.len()], "{name}");
    }
    let of = |tenant: &ReplayedTenant| (tenant.tenant.clone(), tenant.released, tenant.left);
    let answer: Vec<_> = replayed.tenants.iter().map(of).collect();
    let counted = |name| times(&rig, name).len();
    let expected = [
        ("acme".to_owned(), counted("acme"), true),
        ("beta".to_owned(), counted("beta"), true),
    ];
    assert_eq!(answer, expected);
    assert_eq!(parked, Some(2));
    let left = 400 - counted("acme") - counted("beta");
    assert_eq!(rig.parked().len(), left);
    // The next of acme's was parked 900 s ago, and a second less for each that went.
    let oldest = (900 - counted("acme") as u64).max(800 - counted("beta") as u64) + 9;
    assert!(
        (oldest..=oldest + 2).contains(&replayed.oldest_seconds),
        "{}",
        replayed.oldest_seconds
    );
    // Neither is at its end.
    assert!(
        !rig.diary
            .steps()
            .iter()
            .any(|step| step.starts_with("end "))
    );
}

#[tokio::test(start_paused = true)]
async fn a_rate_counts_recipients() {
    let rig = Rig::new();
    locked(&rig.schedule.replays).insert("acme".into(), (2.0, 1.0, Instant::now()));
    for n in 0..40 {
        let key = key_of(
            "acme",
            &format!("m{n:02}"),
            Reason::Paused,
            Lane::Bulk,
            9_000 - n,
        );
        let mut envelope = envelope(&key);
        let more = (1..5).map(|n| format!("bob{n}@example.com"));
        envelope.mail.cc.extend(more);
        rig.bucket.park(&key, &envelope);
    }
    rig.replay(50).await.unwrap();
    let times = times(&rig, "acme");
    keeps(&times, 2.0, 5.0);
    assert!((95..=110).contains(&times.len()), "{}", times.len());
}

#[tokio::test(start_paused = true)]
async fn a_high_rate_is_reached() {
    let mut rig = Rig::new();
    rig.schedule.limit = "4000/s"; // 1,000 for it
    rig.park_many("acme", 6000, 9_000);
    for (what, millis) in [
        ("fetch", 15),
        ("put", 20),
        ("remove", 15),
        ("list", 50),
        ("book", 5),
    ] {
        rig.diary.takes(what, Duration::from_millis(millis));
    }
    rig.replay(10).await.unwrap();
    let times = times(&rig, "acme");
    keeps(&times, 1000.0, 0.0);
    // A round of 200 takes 13 fetches in a row, and as many removals.
    assert!(times.len() >= 3500, "{}", times.len());
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_nothing_is_left_and_forgets_the_rate() {
    let rig = Rig::new();
    rig.park_many("acme", 15, 100);
    rig.park_many("beta", 1, 100);
    let unsure = key_of("beta", "unsure", Reason::Uncertain, Lane::Bulk, 120_000);
    rig.bucket.park(&unsure, &envelope(&unsure));
    let start = Instant::now();
    let (replayed, parked) = rig.replay(50).await.unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    let [acme, beta] = &replayed.tenants[..] else {
        panic!("{replayed:?}")
    };
    assert_eq!(
        *acme,
        ReplayedTenant {
            released: 15,
            ..told("acme")
        }
    );
    assert_eq!(
        *beta,
        ReplayedTenant {
            released: 1,
            ..told("beta")
        }
    );
    // What is uncertain is somebody's to release.
    assert_eq!(rig.parked(), ["unsure"]);
    assert_eq!(parked, Some(1));
    assert!(
        (120..=125).contains(&replayed.oldest_seconds),
        "{}",
        replayed.oldest_seconds
    );
    let steps = rig.diary.steps();
    assert!(steps.contains(&"end acme".to_owned()) && steps.contains(&"end beta".to_owned()));
    assert!(locked(&rig.schedule.replays).is_empty());

    let rig = Rig::new();
    let (replayed, parked) = rig.replay(50).await.unwrap();
    assert_eq!((replayed, parked), (Replayed::default(), Some(0)));
    assert_eq!(rig.diary.steps(), ["look", "tenants "]);
}

#[tokio::test(start_paused = true)]
async fn who_is_paused_is_left_alone() {
    let rig = Rig::new();
    rig.park_many("acme", 5, 1000);
    rig.schedule.pause("acme", None);
    let start = Instant::now();
    let (replayed, parked) = rig.replay(50).await.unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    let expected = ReplayedTenant {
        paused: true,
        left: true,
        ..told("acme")
    };
    assert_eq!(replayed.tenants, [expected]);
    assert_eq!((replayed.oldest_seconds, parked), (1000, Some(1)));
    let steps = rig.diary.steps();
    assert!(
        steps.iter().all(|step| !step.starts_with("fetch")),
        "{steps:?}"
    );

    // Another's mail goes; who is resumed meanwhile is seen, and who is paused.
    rig.park_many("beta", 400, 900);
    let change = async {
        sleep(Duration::from_millis(9_900)).await;
        locked(&rig.schedule.paused).clear();
        rig.schedule.pause("beta", None);
    };
    let start = Instant::now();
    let (done, ()) = tokio::join!(rig.replay(50), change);
    let of = |tenant: &ReplayedTenant| (tenant.paused, tenant.released, tenant.left);
    let answer: Vec<_> = done.unwrap().0.tenants.iter().map(of).collect();
    assert_eq!(answer[0], (false, 5, false));
    assert_eq!((answer[1].0, answer[1].2), (true, true));
    let last = times(&rig, "beta").pop().unwrap();
    assert!(
        last - start <= Duration::from_secs(15),
        "{:?}",
        last - start
    );
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn who_is_paused_at_that_moment_keeps_its_mail() {
    let rig = Rig::new().booking(|_, _, _| Booking::Paused);
    rig.park_many("acme", 50, 1000);
    let (replayed, _) = rig.replay(30).await.unwrap();
    let expected = ReplayedTenant {
        paused: true,
        left: true,
        ..told("acme")
    };
    assert_eq!(replayed.tenants, [expected]);
    assert_eq!(rig.parked().len(), 50);
    let fetched = rig
        .diary
        .steps()
        .iter()
        .filter(|step| step.starts_with("fetch"))
        .count();
    assert!(
        fetched <= 200,
        "it asked again and again: {fetched} mails were read"
    );
}

#[tokio::test(start_paused = true)]
async fn what_has_to_wait_stays_and_keeps_no_place() {
    // Of every three, one has a slot.
    let rig = Rig::new().booking(|n, _, ask| match n % 3 {
        0 => slot(Millis(1000), ask.cost),
        _ => Booking::Wait(Wait {
            delay: Millis(31_000),
            place: 70,
            estimate: Millis(60_000),
        }),
    });
    let ids = rig.park_many("acme", 300, 1000);
    let (replayed, _) = rig.replay(20).await.unwrap();
    let released = replayed.tenants[0].released;
    assert_eq!(
        replayed.tenants,
        [ReplayedTenant {
            released,
            left: true,
            ..told("acme")
        }]
    );
    assert!(released >= 7, "{released}");
    let sent: BTreeSet<String> = rig.queues.ids().into_iter().collect();
    assert_eq!(sent.len(), released, "each once");
    let parked: BTreeSet<String> = rig.parked().into_iter().collect();
    let all: BTreeSet<String> = ids.into_iter().collect();
    assert_eq!(&sent | &parked, all);
    assert!(sent.is_disjoint(&parked));
    let calls = locked(&rig.schedule.calls).clone();
    let asks = calls.iter().flat_map(|(_, asks)| asks);
    let (left, asked): (Vec<_>, Vec<_>) =
        asks.partition(|ask| matches!(ask.standing, Standing::Left { .. }));
    assert!(left.is_empty(), "it isn't new, so it joins no line");
    assert!(asked.iter().all(|ask| ask.standing == Standing::Again));
    // Who has to wait reads little: some at first, then hardly more than go.
    assert!(
        asked.len() < 5 * released + 20,
        "{} for {released}",
        asked.len()
    );
    // What didn't go isn't drawn.
    let (_, may_go, _) = locked(&rig.schedule.replays)["acme"];
    assert!((0.0..=21.0).contains(&may_go), "{may_go}");
}

#[tokio::test(start_paused = true)]
async fn while_nobody_may_send_it_waits_for_that() {
    let rig = Rig::new().booking(|_, _, _| Booking::Blocked(Millis(45_000)));
    rig.park_many("acme", 300, 1000);
    rig.replay(40).await.unwrap();
    assert_eq!(rig.parked().len(), 300);
    assert_eq!(locked(&rig.schedule.calls).len(), 1, "asked once");
    assert!(locked(&rig.queues.calls).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_go_is_looked_at_once_and_stands_in_nobodys_way() {
    let rig = Rig::new().booking(|n, _, ask| match ask.cost {
        2 => Booking::OverCap,
        _ => slot(Millis(n as u64), ask.cost),
    });
    for n in 0..450 {
        let key = key_of(
            "acme",
            &format!("bad-{n:03}"),
            Reason::Paused,
            Lane::Bulk,
            90_000 - n,
        );
        rig.bucket.park_bytes(&key, Some(b"{\"v\": 1"));
    }
    let costly = key_of("acme", "costly", Reason::Paused, Lane::Bulk, 50_000);
    let mut for_two = envelope(&costly);
    for_two.mail.cc.push("ann@example.com".into());
    rig.bucket.park(&costly, &for_two);
    let gone = key_of("acme", "gone", Reason::Paused, Lane::Bulk, 45_000);
    rig.bucket.park_bytes(&gone, None);
    rig.park_many("acme", 20, 40);
    rig.park_many("beta", 3, 40);
    let (replayed, parked) = rig.replay(50).await.unwrap();
    let [acme, beta] = &replayed.tenants[..] else {
        panic!("{replayed:?}")
    };
    assert_eq!(
        *acme,
        ReplayedTenant {
            released: 20,
            refused: 451,
            ..told("acme")
        }
    );
    assert_eq!(
        *beta,
        ReplayedTenant {
            released: 3,
            ..told("beta")
        }
    );
    assert_eq!(parked, Some(1));
    let steps = rig.diary.steps();
    let fetched = |name: &str| {
        steps
            .iter()
            .filter(|step| **step == format!("fetch {name}"))
            .count()
    };
    assert_eq!(fetched("bad-000"), 1);
    assert_eq!(fetched("costly"), 1);
    assert!(
        !steps.contains(&"end acme".to_owned()),
        "some of it is still there"
    );
}

#[tokio::test(start_paused = true)]
async fn what_has_expired_ends_without_a_slot() {
    let mut rig = Rig::new();
    rig.settings.max_message_age = Millis::from_secs(300);
    rig.park_many("acme", 250, 549); // the youngest is 300 s old
    let own = key_of("acme", "own", Reason::Paused, Lane::Priority, 5_000);
    let mut short = envelope(&own);
    short.expires_at = Some(rig::START);
    rig.bucket.park(&own, &short);
    rig.park_many("beta", 2, 5);
    let unsure = key_of("acme", "unsure", Reason::Uncertain, Lane::Bulk, 900_000);
    rig.bucket.park(&unsure, &envelope(&unsure));
    let (replayed, _) = rig.replay(20).await.unwrap();
    let [acme, beta] = &replayed.tenants[..] else {
        panic!("{replayed:?}")
    };
    assert_eq!(
        *acme,
        ReplayedTenant {
            expired: 251,
            ..told("acme")
        }
    );
    assert_eq!(
        *beta,
        ReplayedTenant {
            released: 2,
            ..told("beta")
        }
    );
    assert_eq!(rig.parked(), ["unsure"]);
    assert_eq!(times(&rig, "acme").len(), 0);
    assert_eq!(replayed.oldest_seconds / 10, 90);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_nobody_knows_is_not_asked_for_again() {
    let rig = Rig::new().booking(|_, _, ask| match ask.tenant.as_str() {
        "acme" => Booking::UnknownTenant,
        _ => slot(Millis(10), ask.cost),
    });
    rig.park_many("acme", 300, 1000);
    rig.park_many("beta", 25, 1000);
    let (replayed, _) = rig.replay(20).await.unwrap();
    assert_eq!(replayed.tenants[1].released, 25);
    assert_eq!(rig.parked().len(), 300);
    let fetched = rig
        .diary
        .steps()
        .into_iter()
        .filter(|step| step.starts_with("fetch acme"))
        .count();
    assert!(fetched <= 40, "{fetched}");
}

#[tokio::test(start_paused = true)]
async fn two_at_once_do_no_harm() {
    let rig = Rig::new();
    for (what, millis) in [
        ("fetch", 15),
        ("put", 20),
        ("remove", 15),
        ("list", 20),
        ("draw", 3),
    ] {
        rig.diary.takes(what, Duration::from_millis(millis));
    }
    let ids = rig.park_many("acme", 120, 1000);
    let later = async {
        sleep(Duration::from_millis(1_730)).await;
        rig.replay(40).await
    };
    let (one, two) = tokio::join!(rig.replay(40), later);
    for done in [one, two] {
        assert_eq!(done.unwrap().0.tenants[0].refused, 0);
    }
    assert!(rig.parked().is_empty());
    let sent = rig.queues.ids();
    let each: BTreeSet<&String> = sent.iter().collect();
    assert_eq!(each.len(), ids.len(), "all of it");
    keeps(&times(&rig, "acme"), 10.0, 1.0);
}

#[tokio::test(start_paused = true)]
async fn it_ends_in_time_whatever_hangs() {
    for (what, code) in [
        ("look", Some("timeout")),
        ("tenants", Some("timeout")),
        ("list", None),
        ("fetch", None),
        ("book", None),
        ("put", None),
        ("remove", None),
        ("draw", None),
        ("release", None),
        ("end", None),
    ] {
        let rig = Rig::new();
        rig.park_many("acme", 3, 1000);
        rig.diary.takes(what, HANGS);
        let start = Instant::now();
        let done = rig
            .engine()
            .replay(&Replay::default(), within(MINUTE))
            .await;
        assert!(
            start.elapsed() < Duration::from_mins(1),
            "{what}: {:?}",
            start.elapsed()
        );
        assert_eq!(
            done.as_ref().err().map(|error| error.code.as_str()),
            code,
            "{what}"
        );
        let sent: BTreeSet<String> = rig.queues.ids().into_iter().collect();
        let parked: BTreeSet<String> = rig.parked().into_iter().collect();
        assert_eq!((&sent | &parked).len(), 3, "{what}: nothing is lost");
        if what == "list" {
            assert_eq!(done.unwrap().1, None, "what is parked isn't known");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_takes_nothing_costs_nothing() {
    let rig = Rig::new().answering(|_, _, _| Err("unreachable".into()));
    rig.park_many("acme", 30, 1000);
    let (replayed, _) = rig.replay(10).await.unwrap();
    assert_eq!(
        replayed.tenants,
        [ReplayedTenant {
            left: true,
            ..told("acme")
        }]
    );
    assert_eq!(rig.parked().len(), 30);
    let booked: usize = locked(&rig.schedule.calls)
        .iter()
        .map(|(_, asks)| asks.len())
        .sum();
    let back: usize = locked(&rig.schedule.released)
        .iter()
        .map(|(_, slots)| slots.len())
        .sum();
    assert_eq!(booked, back, "every slot is given back");

    // However much may go, it is tried once a second.
    let mut rig = Rig::new().answering(|_, _, _| Err("unreachable".into()));
    rig.schedule.limit = "4000/s";
    rig.park_many("acme", 300, 1000);
    rig.diary.takes("put", Duration::from_millis(10));
    rig.replay(10).await.unwrap();
    assert_eq!(rig.parked().len(), 300);
    let calls = locked(&rig.schedule.calls).len();
    assert!((8..=11).contains(&calls), "booked {calls} times");
}

#[tokio::test(start_paused = true)]
async fn one_tenant_alone_may_be_asked_for() {
    let rig = Rig::new();
    rig.park_many("acme", 3, 1000);
    rig.park_many("beta", 3, 1000);
    let ask = Replay {
        tenant: Some("beta".into()),
        ..Replay::default()
    };
    let (replayed, parked) = rig.engine().replay(&ask, within(MINUTE)).await.unwrap();
    assert_eq!(
        replayed.tenants,
        [ReplayedTenant {
            released: 3,
            ..told("beta")
        }]
    );
    assert_eq!(parked, None);
    assert_eq!(rig.parked().len(), 3);
}

/// On Redis, by its clock.
#[tokio::test]
async fn what_was_paused_goes_when_it_is_resumed_at_the_rate_that_was_said() {
    let rig = rig::Rig::new(&[]).await;
    let schedule = Schedule::connect(&rig.server.url(), Keys::of("test").unwrap()).unwrap();
    let control = rig.on(
        schedule.clone(),
        &[("SENDSLOT_TENANTS", "acme=acme-set,beta")],
    );
    let ask = async |request: Value| {
        let (answer, metrics) = control.handle(&request.to_string(), within(MINUTE)).await;
        let line = metrics.and_then(|metrics| metrics.line(0));
        let line: Value = line.map_or(Value::Null, |line| serde_json::from_str(&line).unwrap());
        (answer, line)
    };
    let (answer, _) = ask(json!({ "action": "replay", "seconds": 1 })).await;
    assert_eq!(answer["error"]["code"], "no_budget");
    ask(json!({
        "action": "refresh", "account": account(100.0, 50_000.0, 0), "tenants": [], "final": true,
    }))
    .await;
    ask(json!({ "action": "pause", "tenant": "acme", "reason": "complaints", "caller": "test" }))
        .await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = Moment(u64::try_from(now.as_millis()).unwrap());
    for n in 0..40 {
        let key = ParkedKey {
            first_seen: Moment(now.0 - 100_000 + n),
            ..key_of("acme", &format!("m{n:02}"), Reason::Paused, Lane::Bulk, 0)
        };
        let mut envelope = envelope(&key);
        envelope.first_seen = key.first_seen;
        rig.bucket.park(&key, &envelope);
    }
    let (answer, metrics) = ask(json!({ "action": "replay", "seconds": 2 })).await;
    let paused = json!({
        "tenant": "acme", "paused": true, "released": 0, "expired": 0, "refused": 0, "left": true,
    });
    assert_eq!(answer["tenants"], json!([paused]));
    assert_eq!(
        (&metrics["Replayed"], &metrics["ParkedTenants"]),
        (&json!(0), &json!(1))
    );
    let oldest = metrics["OldestParkedSeconds"].as_f64().unwrap();
    assert!((100.0..110.0).contains(&oldest), "{oldest}");
    let (answer, _) = ask(json!({ "action": "release", "tenant": "acme" })).await;
    assert_eq!(answer["error"]["code"], "tenant_paused");

    ask(json!({ "action": "resume", "tenant": "acme", "rate": "5/s" })).await;
    // A refresh doesn't wait for it.
    let refresh = async {
        sleep(Duration::from_millis(300)).await;
        let start = Instant::now();
        let told =
            ask(json!({ "action": "refresh", "account": account(100.0, 50_000.0, 0) })).await;
        assert_eq!(told.0["budget"]["limit"], "100/s");
        start.elapsed()
    };
    let replay = ask(json!({ "action": "replay", "seconds": 3 }));
    let ((answer, metrics), took) = tokio::join!(replay, refresh);
    assert!(took < Duration::from_secs(1), "{took:?}");
    let released = answer["tenants"][0]["released"].as_u64().unwrap();
    assert!((11..=20).contains(&released), "{released}");
    assert_eq!(metrics["Replayed"], released);
    // Each has a slot that is booked.
    let slots = rig.queues.sent(Lane::Bulk);
    assert_eq!(slots.len() as u64, released);
    assert!(
        slots
            .iter()
            .all(|mail| mail.slot >= now && mail.cells.len() == 1)
    );
    // The rest as fast as there are slots.
    let (answer, metrics) = ask(json!({ "action": "release", "tenant": "acme" })).await;
    assert_eq!(
        (&answer["released"], &answer["left"]),
        (&json!(40 - released), &json!(false))
    );
    assert_eq!(metrics["Replayed"], 40 - released);
    let ids: BTreeSet<String> = rig.queues.ids().into_iter().collect();
    assert_eq!((ids.len(), rig.queues.ids().len()), (40, 40), "each once");
    // Nothing is left, and its rate is forgotten.
    assert!(rig.hash("replays").await.contains_key("acme"));
    let (answer, metrics) =
        ask(json!({ "action": "replay", "tenant": "acme", "seconds": 1 })).await;
    assert_eq!(answer["tenants"][0]["left"], false);
    assert_eq!(
        metrics["OldestParkedSeconds"],
        Value::Null,
        "not of one tenant alone"
    );
    assert!(!rig.hash("replays").await.contains_key("acme"));
}
