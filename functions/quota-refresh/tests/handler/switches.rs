//! Sending switches: read at SES's pace, and told to control.

use std::{collections::BTreeMap, time::Duration};

use quota_refresh::ports::{CallError, Kind};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fakes::{Handled, Port, TIMEOUT, World, busy, call_error, refreshed};

type Switch = Result<Option<bool>, CallError>;

/// Redis was found empty, or not, and control names so many sets, `s00` and on.
fn asked_for(count: usize, pending: bool, switch: impl Fn(usize) -> Switch) -> World {
    let names: Vec<_> = (0..count).map(|n| format!("s{n:02}")).collect();
    World::with(|state| {
        let budget = json!({ "limit": "14/s" });
        let first = json!({
            "pending": pending, "verify": names, "budget": if pending { Value::Null } else { budget },
        });
        state.control = vec![Ok(refreshed(&first)), Ok(refreshed(&json!({})))];
        let named = names.iter().cloned().enumerate();
        state.sets = named
            .map(|(n, name)| (name, switch(n)))
            .collect::<BTreeMap<_, _>>();
    })
}

async fn run(world: &World) -> Handled {
    let handled = world.run(json!({ "trigger": "schedule" })).await;
    assert_eq!(handled.failure(), None);
    handled
}

/// The sets that control was told of, each with a switch that is on; one that is off has a `!`.
fn told(world: &World) -> Option<Vec<String>> {
    let asked = world.state().asked.clone();
    assert!(asked.len() <= 2);
    let request = asked.get(1)?;
    let kept = ["account", "error", "tenants"].map(|name| &request[name]);
    assert_eq!(kept, [&Value::Null; 3]);
    assert_eq!(request["final"], true);
    assert_eq!(request["caller"], "quota-refresh");
    let sets = request["sets"].as_array().unwrap().iter();
    let sets = sets.map(|set| {
        let mark = if set["sending"].as_bool().unwrap() {
            ""
        } else {
            "!"
        };
        format!("{mark}{}", set["set"].as_str().unwrap())
    });
    Some(sets.collect())
}

/// When SES was asked: each call's beginning and end.
fn of_ses(world: &World) -> Vec<(Instant, Instant)> {
    let state = world.state();
    let of_ses = state
        .calls
        .iter()
        .filter(|call| matches!(call.0, Port::Account | Port::Sets));
    of_ses
        .map(|call| (call.1, call.2.unwrap_or(call.1)))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn switches_are_read_at_one_a_second_and_told() {
    for pending in [true, false] {
        let world = asked_for(3, pending, |n| Ok(Some(n != 1)));
        run(&world).await;
        assert_eq!(told(&world).unwrap(), ["s00", "!s01", "s02"]);
        let calls = of_ses(&world);
        assert_eq!(calls.len(), 4);
        for pair in calls.windows(2) {
            assert!(pair[1].0 - pair[0].1 >= Duration::from_secs(1));
            assert!(pair[1].0 - pair[0].1 < Duration::from_millis(1_500));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_read_is_told_when_ses_is_asked_too_often() {
    let world = asked_for(
        5,
        true,
        |n| if n == 2 { Err(busy()) } else { Ok(Some(true)) },
    );
    run(&world).await;
    assert_eq!(told(&world).unwrap(), ["s00", "s01"]);
    assert_eq!(world.calls(Port::Sets), 3);
}

#[tokio::test(start_paused = true)]
async fn what_was_read_is_told_when_time_is_up() {
    let world = asked_for(50, true, |_| Ok(Some(true)));
    let start = Instant::now();
    let handled = run(&world).await;
    let read = told(&world).unwrap().len();
    // 46 s at a second and a call's time each.
    assert!((38..50).contains(&read), "{read}");
    assert!(handled.took < TIMEOUT);
    // Even if control takes as long as it may, it ends in time.
    let calls = world.state().calls.clone();
    let last = calls.iter().rfind(|call| call.0 == Port::Control).unwrap();
    assert!(last.1 - start + Duration::from_secs(12) <= Duration::from_secs(58));
}

#[tokio::test(start_paused = true)]
async fn sets_that_cant_be_read_are_left_out() {
    let world = asked_for(5, true, |n| match n {
        0 => Err(call_error("NotFoundException", Kind::Missing)),
        1 => Ok(None),
        2 | 4 => Err(call_error("InternalFailure", Kind::Other)),
        _ => Ok(Some(true)),
    });
    run(&world).await;
    assert_eq!(told(&world).unwrap(), ["s03"]);
    assert_eq!(world.calls(Port::Sets), 5);
}

#[tokio::test(start_paused = true)]
async fn ses_is_left_alone_after_two_failures_in_a_row() {
    let world = asked_for(9, true, |n| match n {
        1 | 2 => Err(call_error("InternalFailure", Kind::Other)),
        _ => Ok(Some(true)),
    });
    run(&world).await;
    assert_eq!(told(&world).unwrap(), ["s00"]);
    assert_eq!(world.calls(Port::Sets), 3);
}

#[tokio::test(start_paused = true)]
async fn a_pending_budget_is_written_even_if_nothing_could_be_read() {
    let world = asked_for(9, true, |_| Err(busy()));
    run(&world).await;
    assert_eq!(told(&world).unwrap(), [""; 0]);

    let world = asked_for(9, true, |_| Ok(Some(true)));
    world.state().hangs.insert(Port::Sets);
    let handled = run(&world).await;
    assert_eq!(told(&world).unwrap(), [""; 0]);
    assert!(handled.took < Duration::from_secs(15), "{:?}", handled.took);

    // Without anything to tell, there is no need to ask again.
    let world = asked_for(9, false, |_| Err(busy()));
    run(&world).await;
    assert_eq!(told(&world), None);
    let world = asked_for(0, false, |_| Err(busy()));
    run(&world).await;
    assert_eq!(told(&world), None);
    let world = asked_for(0, true, |_| Err(busy()));
    run(&world).await;
    assert_eq!(told(&world).unwrap(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_second_question_that_fails_is_a_refresh_that_failed() {
    let world = asked_for(1, true, |_| Ok(Some(true)));
    world.state().control[1] = Err(CallError::other("Runtime.ExitError", "it ended"));
    let handled = world.run(json!({})).await;
    assert_eq!(handled.failure().as_deref(), Some("Runtime.ExitError"));
}
