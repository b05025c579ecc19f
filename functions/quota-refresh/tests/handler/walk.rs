//! SES's suppression list: read at SES's pace, page by page, and told to control by digests alone.

use std::time::Duration;

use quota_refresh::ports::{CallError, Kind, SuppressionPage};
use serde_json::{Value, json};

use crate::fakes::{Handled, Port, World, busy, call_error, refreshed};

const BEGAN: u64 = 1_790_000_000_000;

fn walk(since: Option<u64>, token: Option<&str>) -> Value {
    json!({ "began_ms": BEGAN, "since_ms": since, "token": token })
}

fn page(addresses: &[(&str, &str)], next: Option<&str>) -> SuppressionPage {
    let own = |(address, reason): &(&str, &str)| ((*address).to_owned(), (*reason).to_owned());
    SuppressionPage {
        addresses: addresses.iter().map(own).collect(),
        next: next.map(str::to_owned),
    }
}

/// Control names a walk, and then after each page where it goes on.
fn asked_to_walk(
    begins: &Value,
    goes_on: &[Value],
    pages: Vec<Result<SuppressionPage, CallError>>,
) -> World {
    World::with(|state| {
        state.control = vec![Ok(refreshed(&json!({ "walk": begins })))];
        let told = goes_on
            .iter()
            .map(|walk| Ok(json!({ "new": 1, "walk": walk }).to_string().into_bytes()));
        state.control.extend(told);
        state.suppressed = pages;
    })
}

async fn run(world: &World) -> Handled {
    let handled = world.run(json!({ "trigger": "schedule" })).await;
    assert_eq!(handled.failure(), None);
    handled
}

fn counts(handled: &Handled) -> [Option<u64>; 2] {
    ["SuppressionPages", "SuppressionFailed"].map(|name| handled.count(name))
}

/// What control was handed after it was told of the account.
fn handed(world: &World) -> Vec<Value> {
    let asked = world.state().asked.clone();
    assert_eq!(asked[0]["action"], "refresh");
    asked[1..].to_vec()
}

#[tokio::test(start_paused = true)]
async fn pages_are_read_where_the_walk_stands_and_handed_over_by_digest() {
    let world = asked_to_walk(
        &walk(Some(7_000), Some("p1")),
        &[walk(Some(7_000), Some("p2")), Value::Null],
        vec![
            Ok(page(
                &[
                    ("Ann@Example.com", "BOUNCE"),
                    ("bob@example.com", "COMPLAINT"),
                ],
                Some("p2"),
            )),
            Ok(page(&[], None)),
        ],
    );
    let handled = run(&world).await;
    assert_eq!(counts(&handled), [Some(2), Some(0)]);
    let asked_by = |token: &str| (Some(7_000), Some(token.to_owned()));
    assert_eq!(world.state().walked, [asked_by("p1"), asked_by("p2")]);
    // The first 16 bytes of SHA-256, by another hand: printf ann@example.com | sha256sum.
    let first = json!({
        "action": "suppress",
        "entries": [
            { "digest": "71d4f55f72fa128dfb468a1a3901507c", "cause": "bounce" },
            { "digest": "5ff860bf1190596c7188ab851db691f0", "cause": "complaint" },
        ],
        "walk": walk(Some(7_000), Some("p1")),
        "next": "p2",
        "caller": "quota-refresh",
    });
    let last = json!({
        "action": "suppress", "entries": [], "walk": walk(Some(7_000), Some("p2")), "next": null,
        "caller": "quota-refresh",
    });
    assert_eq!(handed(&world), [first, last]);
    let all = format!("{:?} {:?}", world.state().asked, handled.answer);
    assert!(!all.to_lowercase().contains("example.com"), "{all}");
}

#[tokio::test(start_paused = true)]
async fn no_walk_is_no_call_and_no_metric() {
    let world = World::default();
    let handled = run(&world).await;
    assert_eq!(counts(&handled), [None, None]);
    assert_eq!(world.calls(Port::Suppression), 0);
}

#[tokio::test(start_paused = true)]
async fn ses_is_asked_once_a_second_switches_and_pages_together() {
    let world = asked_to_walk(
        &walk(None, None),
        &[walk(None, Some("p2")), walk(None, Some("p3")), Value::Null],
        vec![
            Ok(page(&[], Some("p2"))),
            Ok(page(&[], Some("p3"))),
            Ok(page(&[], None)),
        ],
    );
    {
        let mut state = world.state();
        let verify = json!({ "verify": ["acme-set"], "walk": walk(None, None) });
        state.control.insert(0, Ok(refreshed(&verify)));
        state.sets.insert("acme-set".into(), Ok(Some(true)));
    }
    let handled = run(&world).await;
    assert_eq!(counts(&handled), [Some(3), Some(0)]);
    let state = world.state();
    let ses = [Port::Account, Port::Sets, Port::Suppression];
    let of_ses: Vec<_> = state
        .calls
        .iter()
        .filter(|call| ses.contains(&call.0))
        .collect();
    assert_eq!(of_ses.len(), 5);
    for pair in of_ses.windows(2) {
        assert!(pair[1].1 - pair[0].2.unwrap() >= Duration::from_secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_walk_ends_in_time_and_is_left_where_it_stands() {
    let world = asked_to_walk(&walk(None, None), &[], vec![Ok(page(&[], Some("next")))]);
    let places = (0..100).map(|n| walk(None, Some(&n.to_string())));
    let told = places.map(|walk| Ok(json!({ "walk": walk }).to_string().into_bytes()));
    world.state().control.extend(told);
    let handled = run(&world).await;
    let [Some(pages), Some(0)] = counts(&handled) else {
        panic!("{:?}", counts(&handled))
    };
    assert!((12..20).contains(&pages), "{pages}");
    assert!(handled.took < Duration::from_secs(24), "{:?}", handled.took);
    assert_eq!(u64::try_from(handed(&world).len()).unwrap(), pages);

    // SES says nothing.
    let world = asked_to_walk(&walk(None, None), &[], vec![Ok(page(&[], None))]);
    world.state().hangs.insert(Port::Suppression);
    let handled = run(&world).await;
    assert_eq!(counts(&handled), [Some(0), Some(1)]);
    assert!(handled.took < Duration::from_secs(8), "{:?}", handled.took);
    assert_eq!(handed(&world), [Value::Null; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_fails_is_left_for_the_next_time() {
    for error in [busy(), call_error("AccessDeniedException", Kind::Other)] {
        let world = asked_to_walk(
            &walk(None, None),
            &[walk(None, Some("p2"))],
            vec![Ok(page(&[], Some("p2"))), Err(error)],
        );
        let handled = run(&world).await;
        assert_eq!(counts(&handled), [Some(1), Some(1)]);
        assert_eq!(world.calls(Port::Suppression), 2);
        assert_eq!(
            handed(&world).len(),
            1,
            "nothing is told of what wasn't read"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_control_does_not_take_is_not_passed_over() {
    let failed = br#"{"error":{"code":"redis_unavailable","message":"no route"}}"#.to_vec();
    let lost = CallError::other("Sandbox.Timedout", "10 s");
    for answer in [Ok(failed), Err(lost), Ok(b"null".to_vec())] {
        let world = asked_to_walk(&walk(None, None), &[], vec![Ok(page(&[], Some("p2")))]);
        world.state().control.push(answer);
        let handled = run(&world).await;
        assert_eq!(counts(&handled), [Some(0), Some(1)]);
        assert_eq!(world.calls(Port::Suppression), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_ses_has_forgotten_begins_the_walk_anew_once() {
    for code in ["BadRequestException", "InvalidNextTokenException"] {
        let stale = || Err(call_error(code, Kind::Other));
        let world = asked_to_walk(
            &walk(Some(5), Some("old")),
            &[walk(Some(5), Some("")), Value::Null],
            vec![stale(), Ok(page(&[("ann@example.com", "BOUNCE")], None))],
        );
        let handled = run(&world).await;
        assert_eq!(counts(&handled), [Some(1), Some(0)]);
        let tokens = [(Some(5), Some("old".to_owned())), (Some(5), None)];
        assert_eq!(world.state().walked, tokens);
        let handed = handed(&world);
        assert_eq!(handed.len(), 2);
        assert_eq!(handed[0]["entries"], json!([]));
        assert_eq!(handed[0]["walk"], walk(Some(5), Some("old")));
        assert_eq!(handed[0]["next"], "", "the walk isn't ended by this");
        assert_eq!(handed[1]["walk"], walk(Some(5), Some("")));
        assert_eq!(handed[1]["next"], Value::Null);

        // A first page that is refused has no token to blame; and the second time is the last.
        let world = asked_to_walk(&walk(None, None), &[], vec![stale()]);
        assert_eq!(counts(&run(&world).await), [Some(0), Some(1)]);
        assert_eq!(world.calls(Port::Suppression), 1);
        let world = asked_to_walk(
            &walk(None, Some("old")),
            &[walk(None, Some("")), walk(None, Some("p2"))],
            vec![stale(), Ok(page(&[], Some("p2"))), stale()],
        );
        assert_eq!(counts(&run(&world).await), [Some(1), Some(1)]);
        assert_eq!(world.calls(Port::Suppression), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_named_again_is_not_read_for_ever() {
    let same = walk(None, Some("p1"));
    let world = asked_to_walk(
        &same,
        std::slice::from_ref(&same),
        vec![Ok(page(&[], Some("p1")))],
    );
    let handled = run(&world).await;
    assert_eq!(counts(&handled), [Some(1), Some(1)]);
    assert_eq!(world.calls(Port::Suppression), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_fails_walks_nowhere() {
    let world = asked_to_walk(&walk(None, None), &[], vec![]);
    let answer = refreshed(&json!({ "walk": walk(None, None), "budget": null }));
    world.state().control = vec![Ok(answer)];
    let handled = world.run(json!({ "trigger": "schedule" })).await;
    assert_eq!(handled.failure().as_deref(), Some("no_budget"));
    assert_eq!(counts(&handled), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_does_not_wait_for_a_walk() {
    let world = asked_to_walk(&walk(None, None), &[], vec![Ok(page(&[], None))]);
    let handled = world
        .run(json!({ "RequestType": "Create", "ResponseURL": crate::fakes::URL }))
        .await;
    assert_eq!(handled.answer.as_ref().unwrap()["status"], "SUCCESS");
    assert_eq!(counts(&handled), [None, None]);
    assert_eq!(world.calls(Port::Suppression), 0);
}
