//! How many batches are sent at once follows the budget, and never fails a refresh.

use quota_refresh::{
    Settings,
    ports::{Kind, Mapping},
};
use sendslot_domain::Millis;
use serde_json::json;

use crate::fakes::{
    BULK, Handled, PRIORITY, Port, State, TIMEOUT, World, call_error, refreshed, settings,
};

/// What a mapping becomes, and how many changed and failed, in a world that was changed so.
async fn run(change: impl FnOnce(&mut State)) -> (Vec<(String, u32)>, Handled) {
    run_as(change, settings()).await
}

async fn run_as(
    change: impl FnOnce(&mut State),
    settings: Settings,
) -> (Vec<(String, u32)>, Handled) {
    let world = World::with(change);
    let handled = world.run_as(json!({}), TIMEOUT, settings).await;
    assert_eq!(handled.failure(), None);
    let scaled = world.state().scaled.clone();
    (scaled, handled)
}

fn counts(handled: &Handled) -> [Option<u64>; 2] {
    ["ConcurrencyChanged", "ConcurrencyFailed"].map(|name| handled.count(name))
}

fn mapping(concurrency: Option<u32>) -> Mapping {
    Mapping {
        concurrency,
        in_motion: false,
    }
}

fn both(concurrency: u32) -> Vec<(String, u32)> {
    vec![(PRIORITY.into(), concurrency), (BULK.into(), concurrency)]
}

#[tokio::test(start_paused = true)]
async fn mappings_are_set_to_what_carries_the_rate() {
    // Nothing was measured: 14/s × 1.2 s × 1.3.
    let (scaled, handled) = run(|_| {}).await;
    assert_eq!(scaled, both(22));
    assert_eq!(counts(&handled), [Some(2), Some(0)]);
    // Measured: × 2.5 s.
    let (scaled, _) = run(|state| state.mean = Ok(Some(Millis(2_500)))).await;
    assert_eq!(scaled, both(46));
    // As the budget says.
    let budget = json!({ "budget": { "limit": "100/s" } });
    let (scaled, _) = run(|state| state.control = vec![Ok(refreshed(&budget))]).await;
    assert_eq!(scaled, both(156));
}

#[tokio::test(start_paused = true)]
async fn only_more_than_a_tenth_is_a_change() {
    let (scaled, handled) = run(|state| {
        state
            .mappings
            .insert(PRIORITY.into(), Ok(mapping(Some(20))));
        state.mappings.insert(BULK.into(), Ok(mapping(Some(19))));
    })
    .await;
    assert_eq!(scaled, [(BULK.to_owned(), 22)]);
    assert_eq!(counts(&handled), [Some(1), Some(0)]);
    let (scaled, _) = run(|state| {
        state.mappings.insert(PRIORITY.into(), Ok(mapping(None)));
        state.mappings.insert(BULK.into(), Ok(mapping(Some(22))));
    })
    .await;
    assert_eq!(scaled, [(PRIORITY.to_owned(), 22)]);
}

#[tokio::test(start_paused = true)]
async fn a_mapping_that_lambda_is_changing_is_left_alone() {
    let (scaled, handled) = run(|state| {
        let moving = Mapping {
            concurrency: Some(10),
            in_motion: true,
        };
        state.mappings.insert(PRIORITY.into(), Ok(moving));
    })
    .await;
    assert_eq!(scaled, [(BULK.to_owned(), 22)]);
    assert_eq!(counts(&handled), [Some(1), Some(0)]);
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_counted_and_nothing_else() {
    let denied = || call_error("AccessDeniedException", Kind::Other);
    let (scaled, handled) = run(|state| state.mean = Err(denied())).await;
    assert_eq!(scaled, []);
    assert_eq!(counts(&handled), [Some(0), Some(1)]);
    let (scaled, handled) = run(|state| {
        state.mappings.insert(PRIORITY.into(), Err(denied()));
    })
    .await;
    assert_eq!(scaled, [(BULK.to_owned(), 22)]);
    assert_eq!(counts(&handled), [Some(1), Some(1)]);
    let (scaled, handled) = run(|state| state.scale = Err(denied())).await;
    assert_eq!(scaled, both(22), "both are tried");
    assert_eq!(counts(&handled), [Some(0), Some(2)]);
    for port in [Port::Durations, Port::Mapping, Port::Scale] {
        let (scaled, handled) = run(|state| {
            state.hangs.insert(port);
        })
        .await;
        assert_eq!(scaled, [], "{port:?}");
        assert_eq!(counts(&handled)[0], Some(0), "{port:?}");
        assert!(counts(&handled)[1] >= Some(1), "{port:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_cant_be_read_changes_nothing() {
    let budget = json!({ "budget": { "limit": "fast" } });
    let (scaled, handled) = run(|state| state.control = vec![Ok(refreshed(&budget))]).await;
    assert_eq!(scaled, []);
    assert_eq!(counts(&handled), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn only_what_is_named_is_managed() {
    let mut settings = settings();
    settings.scaling.as_mut().unwrap().mappings.priority = None;
    settings.scaling.as_mut().unwrap().reserved = Some(20);
    let (scaled, _) = run_as(|_| {}, settings.clone()).await;
    assert_eq!(scaled, [(BULK.to_owned(), 10)]);
    settings.scaling = None;
    let world = World::default();
    let handled = world.run_as(json!({}), TIMEOUT, settings).await;
    assert_eq!(counts(&handled), [None, None]);
    assert_eq!(world.calls(Port::Durations) + world.calls(Port::Mapping), 0);
}
