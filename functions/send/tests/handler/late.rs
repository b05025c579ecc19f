//! A process that was stopped for a while sends nothing at a grant that is over.

use std::time::Duration;

use send::batch::{CLOSING, SEND_TIMEOUT};
use sendslot_domain::{Millis, Moment};
use sendslot_schedule::{Claim, Ending};
use serde_json::Value;
use tokio::time::{Instant, advance, sleep};

use crate::fakes::{Asked, HANGS, Handled, NOW, REQUEST, TIME, World, bodies, envelope, go, slot};

/// Runs a batch within such a time, in which the process is stopped 100 ms after its begin, for so long.
async fn stopped(world: &World, time: Duration, ids: &[&str], stop: Duration) -> Handled {
    let bodies = bodies(ids);
    let stop = async {
        sleep(Duration::from_millis(100)).await;
        advance(stop).await;
    };
    tokio::join!(world.handle_within(time, &bodies), stop).0
}

/// The one send: its grant, and when it began.
fn the_send(world: &World) -> (Moment, Instant) {
    let mut asked = world.asked().into_iter();
    let found = asked.find_map(|asked| match asked {
        Asked::Send { grant, at, .. } => Some((grant, at)),
        _ => None,
    });
    found.unwrap()
}

fn waits() -> World {
    World {
        claims: [("a", go(500))].into(),
        ..World::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_a_little_late_is_used() {
    let world = waits();
    let stop = Duration::from_millis(400 + 250);
    let handled = stopped(&world, TIME, &["a"], stop).await;
    assert_eq!(world.calls(), ["claim", "commit"]);
    assert_eq!(the_send(&world).0, NOW + Millis(500));
    assert!((248..=252).contains(&handled.count("GrantErrorMs")));

    // But no later than that.
    let world = waits();
    stopped(&world, TIME, &["a"], stop + Duration::from_millis(5)).await;
    assert_eq!(world.calls()[..2], ["claim", "renew"]);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_over_is_drawn_anew() {
    let granted = NOW + Millis(1_900);
    let wait = Millis(700);
    let world = World {
        renewal: Claim::Go { at: granted, wait },
        renewal_takes: Duration::from_millis(20),
        ..waits()
    };
    let start = Instant::now();
    let handled = stopped(&world, TIME, &["a"], Duration::from_secs(1)).await;

    assert_eq!(world.calls(), ["claim", "renew", "commit"]);
    let Some(Asked::Renew { owner, terms, asks }) = world.asked().into_iter().nth(1) else {
        panic!("not renewed")
    };
    assert_eq!(
        (owner.as_str(), terms.longest_wait),
        (REQUEST, Millis(2_000))
    );
    assert_eq!(asks, world.claimed());
    let (grant, at) = the_send(&world);
    assert_eq!(grant, granted);
    let due = start + Duration::from_millis(1_120) + Duration::from(wait);
    assert!(
        at >= due && at <= due + Duration::from_millis(5),
        "{:?}",
        at - due
    );
    assert_eq!(world.ends(), [("a".to_owned(), Ending::Sent)]);
    assert_eq!(handled.counts(), [("Sent", 1)].into());
    assert!(handled.count("GrantErrorMs") <= 5);
}

#[tokio::test(start_paused = true)]
async fn only_what_is_late_draws_anew() {
    let world = World {
        claims: [("a", go(0)), ("b", go(500)), ("c", go(1_800))].into(),
        renewal: go(0),
        ..World::default()
    };
    let handled = stopped(&world, TIME, &["a", "b", "c"], Duration::from_secs(1)).await;
    assert_eq!(handled.count("Sent"), 3);
    let asked = world.asked().into_iter();
    let renewed: Vec<_> = asked
        .filter_map(|asked| match asked {
            Asked::Renew { asks, .. } => Some(asks),
            _ => None,
        })
        .flatten()
        .map(|ask| ask.send_id.to_string())
        .collect();
    assert_eq!(renewed, ["b"]);
}

#[tokio::test(start_paused = true)]
async fn without_a_new_grant_a_message_is_freed_and_booked_again() {
    let blocked = Claim::Blocked {
        left: Millis(5_000),
    };
    let fails = World {
        fails: ["renew"].into(),
        ..waits()
    };
    let hangs = World {
        claim_takes: Duration::from_millis(20),
        renewal_takes: HANGS,
        ..waits()
    };
    let refused = World {
        renewal: blocked,
        ..waits()
    };
    for world in [waits(), fails, hangs, refused] {
        let start = Instant::now();
        let handled = stopped(&world, TIME, &["a"], Duration::from_secs(1)).await;

        assert!(start.elapsed() < Duration::from_millis(1_700));
        assert_eq!(world.calls(), ["claim", "renew", "commit", "book", "put"]);
        assert_eq!(world.sent(), [""; 0]);
        assert_eq!(world.ends(), [("a".to_owned(), Ending::Free)]);
        assert_eq!(handled.failed, [""; 0]);
        assert_eq!(handled.counts(), [("Rebooked", 1)].into(), "no attempt");
        let mut copy = envelope("a");
        copy["slot_ms"] = slot().at.0.into();
        copy["cells"] = serde_json::json!([[slot().cells[0].0.0, 1]]);
        assert_eq!(world.copies(), [(4, copy)]);
        assert_eq!(world.released(), [], "a grant was drawn");
    }
}

#[tokio::test(start_paused = true)]
async fn a_block_found_then_is_waited_for() {
    let world = World {
        bookings: std::sync::Mutex::new(
            [sendslot_schedule::Booking::Blocked(Millis::from_secs(40))].into(),
        ),
        ..waits()
    };
    stopped(&world, TIME, &["a"], Duration::from_secs(1)).await;
    let (delay, copy) = world.copies().remove(0);
    assert!((40..=80).contains(&delay), "{delay}");
    assert_eq!(
        (&copy["cells"], &copy["void"]),
        (&serde_json::json!([]), &Value::Null)
    );
    assert_eq!(world.released(), [], "a grant was drawn");
}

#[tokio::test(start_paused = true)]
async fn a_new_grant_comes_in_time_or_not_at_all() {
    // 1,300 ms are left when it is asked for; what begins later than that could be cut short.
    let time = SEND_TIMEOUT + CLOSING + Duration::from_millis(2_400);
    let world = World {
        renewal: go(0),
        ..waits()
    };
    stopped(&world, time, &["a"], Duration::from_secs(1)).await;
    let Some(Asked::Renew { terms, .. }) = world.asked().into_iter().nth(1) else {
        panic!("not renewed")
    };
    assert!((1_290..=1_300).contains(&terms.longest_wait.0), "{terms:?}");

    // Stopped beyond all time: it isn't sent, and goes back.
    let handled = stopped(&world, time, &["a"], Duration::from_secs(5)).await;
    assert_eq!(handled.count("Sent"), 0);
    assert_eq!(world.sent().len(), 1, "the first time only");
    assert_eq!(world.ends(), [("a".to_owned(), Ending::Free)]);
}
