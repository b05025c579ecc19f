//! What one version has written into Redis, the next reads, and the other way round: a deploy or a rollback replaces
//! functions while mail waits. `previous/` holds the scripts of the version before, unchanged; this version's scripts and those
//! work on the same keys in turn.
//!
//! With a release, its scripts replace those in `previous/`.
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't set itself up has failed"
)]

use redis::{Script, Value, aio::MultiplexedConnection};
use sendslot_domain::{Budget, Lane, Millis, Moment, Rate, budget::Settings, window::Caps};
use sendslot_schedule::{
    Ask, Booking, Claim, ClaimAsk, End, Ended, Ending, Keys, Purpose, Schedule, Seed, Standing,
    Tenant, Terms, testing::PrivateServer,
};

const PRINT: &str = "print";
const BOOK: &str = include_str!("previous/book.lua");
const CLAIM: &str = include_str!("previous/claim.lua");
const COMMIT: &str = include_str!("previous/commit.lua");
const PAUSE: &str = include_str!("previous/pause.lua");
const RESUME: &str = include_str!("previous/resume.lua");

/// Whether a claim is answered as it should be.
type Judge = Box<dyn Fn(&Claim) -> bool>;

fn key(what: &str) -> String {
    format!("sendslot:{{f}}:{what}")
}

fn seed(limit: &str) -> Seed {
    let settings = Settings {
        limit: limit.parse().unwrap(),
        headroom: "0.9".parse().unwrap(),
        guard: "0.95".parse().unwrap(),
        burst: None,
        reserve: "0".parse().unwrap(),
        slice: Rate::ZERO,
        caps: Caps::default(),
        horizon: Millis::from_secs(60),
    };
    Seed {
        source: "deploy".into(),
        budget: Budget::new(settings).unwrap(),
        tenants: vec![("acme".parse().unwrap(), Tenant::default())],
    }
}

async fn set_up() -> (PrivateServer, Schedule, MultiplexedConnection) {
    let server = PrivateServer::start();
    let schedule = Schedule::connect(&server.url(), Keys::of("f").unwrap()).unwrap();
    schedule.seed(&seed("100")).await.unwrap();
    let connection = server.connection().await;
    (server, schedule, connection)
}

fn ask(id: &str) -> ClaimAsk {
    ClaimAsk {
        tenant: "acme".parse().unwrap(),
        send_id: id.parse().unwrap(),
        fingerprint: PRINT.into(),
        cost: 1,
        slot: Moment(0),
        suspect_since: None,
        void: None,
        purpose: Purpose::Send,
    }
}

async fn claim(schedule: &Schedule, asks: &[ClaimAsk]) -> Vec<Claim> {
    let terms = Terms {
        lane: Lane::Bulk,
        lease: Millis(60_000),
        longest_wait: Millis(2000),
        memory: Millis(1 << 30),
        resend_after: None,
    };
    schedule.claim("this", terms, asks).await.unwrap()
}

/// The words that the previous version's claims are answered with, and the grants.
async fn previous_claim(
    connection: &mut MultiplexedConnection,
    ids: &[&str],
) -> Vec<(String, Option<u64>)> {
    let script = Script::new(CLAIM);
    let mut call = script.prepare_invoke();
    for what in ["budget", "guard", "schedule", "paused", "throttled"] {
        call.key(key(what));
    }
    call.arg("previous")
        .arg("bulk")
        .arg(60_000)
        .arg(2000)
        .arg(1 << 30)
        .arg(-1)
        .arg("new");
    for id in ids {
        call.key(key(&format!("claim:acme:{id}")));
        call.arg(0).arg(1).arg(PRINT).arg("acme");
        call.arg(-1).arg("").arg("send");
    }
    let answer: Vec<Value> = call.invoke_async(connection).await.unwrap();
    let read = |answer: &Value| {
        let Value::Array(parts) = answer else {
            panic!("{answer:?}")
        };
        let word = redis::from_redis_value_ref(&parts[0]).unwrap();
        let number = parts
            .get(1)
            .and_then(|n| redis::from_redis_value_ref(n).ok());
        (word, number)
    };
    answer[1..].iter().map(read).collect()
}

/// Every form of a claim that either version writes: none is ever taken for a message that nobody has claimed.
#[tokio::test]
async fn both_versions_read_every_claim() {
    let (_server, schedule, mut connection) = set_up().await;
    let later = u64::from(u32::MAX) * 1000;
    let uncertain = |claim: &Claim| matches!(claim, Claim::Uncertain { .. });
    let ended = |how| move |claim: &Claim| *claim == Claim::Ended(how);
    let forms: [(String, &str, Judge); 7] = [
        (
            format!("1|claimed|{later}|{PRINT}|w"),
            "held",
            Box::new(|claim| matches!(claim, Claim::Held { .. })),
        ),
        (
            format!("1|claimed|1000|{PRINT}|w"),
            "uncertain",
            Box::new(uncertain),
        ),
        (
            format!("1|sent|1000|{PRINT}|w"),
            "ended",
            Box::new(ended(Ended::Sent)),
        ),
        (
            format!("1|uncertain|1000|{PRINT}|w"),
            "uncertain",
            Box::new(uncertain),
        ),
        (
            format!("1|rejected|1000|{PRINT}|w"),
            "ended",
            Box::new(ended(Ended::Rejected)),
        ),
        (
            format!("1|expired|1000|{PRINT}|w"),
            "ended",
            Box::new(ended(Ended::Expired)),
        ),
        (
            format!("2|something|1000|{PRINT}|w"),
            "uncertain",
            Box::new(uncertain),
        ),
    ];
    for (value, word, judge) in forms {
        let set = redis::cmd("SET")
            .arg(key("claim:acme:a"))
            .arg(&value)
            .to_owned();
        let _: () = set.query_async(&mut connection).await.unwrap();
        let previous = previous_claim(&mut connection, &["a"]).await;
        assert_eq!(previous[0].0, word, "{value}");
        let this = claim(&schedule, &[ask("a")]).await;
        assert!(judge(&this[0]), "{value}: {this:?}");
    }
}

/// What one claims, the other ends, and finds ended.
#[tokio::test]
async fn each_ends_what_the_other_claimed() {
    let (_server, schedule, mut connection) = set_up().await;
    assert!(matches!(
        claim(&schedule, &[ask("a")]).await[0],
        Claim::Go { .. }
    ));
    assert_eq!(previous_claim(&mut connection, &["a"]).await[0].0, "held");
    let script = Script::new(COMMIT);
    let mut call = script.prepare_invoke();
    call.key(key("guard"))
        .key(key("claim:acme:a"))
        .arg("this")
        .arg(1 << 30)
        .arg("sent")
        .arg(1);
    let _: u64 = call.invoke_async(&mut connection).await.unwrap();
    assert_eq!(
        claim(&schedule, &[ask("a")]).await,
        [Claim::Ended(Ended::Sent)]
    );

    assert_eq!(previous_claim(&mut connection, &["b"]).await[0].0, "go");
    assert!(matches!(
        claim(&schedule, &[ask("b")]).await[0],
        Claim::Held { .. }
    ));
    let end = End {
        tenant: "acme".parse().unwrap(),
        send_id: "b".parse().unwrap(),
        how: Ending::Free,
        cost: 1,
    };
    schedule
        .commit("previous", Lane::Bulk, Millis(1 << 30), &[end])
        .await
        .unwrap();
    assert_eq!(previous_claim(&mut connection, &["b"]).await[0].0, "go");
}

/// Both draw from one guard: in no second more than the limit go.
#[tokio::test]
async fn both_draw_from_one_guard() {
    let (_server, schedule, mut connection) = set_up().await;
    let mut grants: Vec<u64> = Vec::new();
    for round in 0..8 {
        let ids: Vec<String> = (0..10).map(|n| format!("m-{round}-{n}")).collect();
        if round % 2 == 0 {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let granted = previous_claim(&mut connection, &ids).await;
            grants.extend(
                granted
                    .iter()
                    .filter_map(|(word, at)| (word == "go").then_some((*at)?)),
            );
        } else {
            let asks: Vec<ClaimAsk> = ids.iter().map(|id| ask(id)).collect();
            let granted = claim(&schedule, &asks).await;
            grants.extend(granted.iter().filter_map(|claim| match claim {
                Claim::Go { at, .. } => Some(at.0),
                _ => None,
            }));
        }
    }
    assert_eq!(grants.len(), 80);
    grants.sort_unstable();
    let fullest = grants.iter().map(|first| {
        grants
            .iter()
            .filter(|at| (*first..first + 100).contains(at))
            .count()
    });
    assert!(
        fullest.max().unwrap() <= 15,
        "at 95 a second, with a burst of 5: {grants:?}"
    );
}

/// What the previous version's booking of so many mails is answered with.
async fn previous_book(connection: &mut MultiplexedConnection, count: usize) -> Vec<i64> {
    let script = Script::new(BOOK);
    let mut call = script.prepare_invoke();
    for what in [
        "budget",
        "schedule",
        "ends:bulk",
        "asked:bulk",
        "guard",
        "tenant:acme",
    ] {
        call.key(key(what));
    }
    call.arg("bulk").arg("acme").arg(1).arg(count).arg("new");
    call.invoke_async(connection).await.unwrap()
}

/// Both book in one schedule: no second is overbooked, and each goes on where the other stopped.
#[tokio::test]
async fn both_book_in_one_schedule() {
    let (_server, schedule, mut connection) = set_up().await;
    let mut cells = std::collections::BTreeMap::<u64, i64>::new();
    for round in 0..6 {
        if round % 2 == 0 {
            let answer = previous_book(&mut connection, 100).await;
            // After the head: booked, takes, waits, and each take.
            assert_eq!(answer[3], 100, "{answer:?}");
            for take in answer[6..]
                .chunks(4)
                .take(usize::try_from(answer[4]).unwrap())
            {
                *cells.entry(take[0].unsigned_abs()).or_default() += take[2];
            }
        } else {
            let ask = Ask {
                tenant: "acme".parse().unwrap(),
                cost: 1,
                standing: Standing::New,
            };
            for booking in schedule.book(Lane::Bulk, &vec![ask; 100]).await.unwrap() {
                let Booking::Slot(slot) = booking else {
                    panic!("{booking:?}")
                };
                for (cell, count) in slot.cells {
                    *cells.entry(cell.0).or_default() += i64::from(count);
                }
            }
        }
    }
    assert_eq!(cells.values().sum::<i64>(), 600);
    assert!(cells.values().all(|count| *count <= 90), "{cells:?}");
    let (first, last) = (cells.keys().next().unwrap(), cells.keys().last().unwrap());
    assert!(last - first <= 7, "600 at 90 a second: {cells:?}");
}

/// A rollback writes its budget over this version's, and the next deploy over that: claims are known all the time.
#[tokio::test]
async fn a_rollback_and_a_deploy_keep_what_is_claimed() {
    let (_server, schedule, mut connection) = set_up().await;
    assert!(matches!(
        claim(&schedule, &[ask("a")]).await[0],
        Claim::Go { .. }
    ));
    let budget: Vec<(String, Vec<u8>)> = redis::cmd("HGETALL")
        .arg(key("budget"))
        .query_async(&mut connection)
        .await
        .unwrap();
    // As a version further back would have left it: without what that didn't know.
    for (field, _) in &budget {
        if ["generation", "slowed", "blocked"].contains(&field.as_str()) {
            let _: () = redis::cmd("HDEL")
                .arg(key("budget"))
                .arg(field)
                .query_async(&mut connection)
                .await
                .unwrap();
        }
    }
    assert_eq!(previous_claim(&mut connection, &["a"]).await[0].0, "held");
    schedule.seed(&seed("50")).await.unwrap();
    // It isn't taken for a Redis that has lost everything: what was received before is no more uncertain than it was.
    let suspect = ClaimAsk {
        suspect_since: Some(Moment(1000)),
        ..ask("b")
    };
    assert!(matches!(
        claim(&schedule, &[suspect]).await[0],
        Claim::Go { .. }
    ));
    assert!(matches!(
        claim(&schedule, &[ask("a")]).await[0],
        Claim::Held { .. }
    ));
}

/// A pause of either version keeps both from sending and this one from booking, and either ends it.
#[tokio::test]
async fn both_pause_and_resume() {
    let (_server, schedule, mut connection) = set_up().await;
    let acme = "acme".parse().unwrap();
    let ask = Ask {
        tenant: "acme".parse().unwrap(),
        cost: 1,
        standing: Standing::New,
    };
    let asks = vec![ask; 10];
    let mut n = 0;
    let mut may_send = async |connection: &mut MultiplexedConnection| {
        n += 1;
        let id = format!("p-{n}");
        let previous = previous_claim(connection, &[&id]).await[0].0 == "go";
        let id = format!("t-{n}");
        let this = claim(&schedule, &[self::ask(&id)]).await;
        assert!(matches!(this[0], Claim::Go { .. } | Claim::Paused { .. }));
        [previous, matches!(this[0], Claim::Go { .. })]
    };
    let books = async || {
        let booked = schedule.book(Lane::Bulk, &asks).await.unwrap();
        assert!(matches!(booked[0], Booking::Slot(_) | Booking::Paused));
        booked[0] != Booking::Paused
    };
    let pause = async |connection: &mut MultiplexedConnection| {
        let script = Script::new(PAUSE);
        let mut call = script.prepare_invoke();
        for what in ["schedule", "tenant:acme", "ends:priority"] {
            call.key(key(what));
        }
        for what in ["asked:priority", "ends:bulk", "asked:bulk", "paused"] {
            call.key(key(what));
        }
        call.arg("acme").arg(0).arg("previous");
        call.invoke_async::<u64>(connection).await.unwrap()
    };
    let resume = async |connection: &mut MultiplexedConnection| {
        let script = Script::new(RESUME);
        let mut call = script.prepare_invoke();
        for what in ["paused", "counts:acme", "tenant:acme"] {
            call.key(key(what));
        }
        call.arg("acme");
        call.invoke_async::<u64>(connection).await.unwrap()
    };

    // The previous version pauses; this one says it again, and ends it.
    assert!(books().await);
    pause(&mut connection).await;
    assert_eq!(may_send(&mut connection).await, [false, false]);
    assert!(!books().await);
    schedule.pause(&acme, None, "this").await.unwrap();
    let record = schedule.look().await.unwrap().paused;
    assert_eq!(
        (record[0].until, record[0].reason.as_str()),
        (None, "previous")
    );
    assert!(schedule.resume(&acme).await.unwrap());
    assert!(books().await);
    assert_eq!(may_send(&mut connection).await, [true, true]);

    // This version pauses, and the previous one ends it.
    schedule.pause(&acme, None, "this").await.unwrap();
    assert_eq!(may_send(&mut connection).await, [false, false]);
    assert_eq!(resume(&mut connection).await, 1);
    assert_eq!(may_send(&mut connection).await, [true, true]);
    assert!(books().await);
}
