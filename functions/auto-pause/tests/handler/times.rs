//! Whatever hangs or panics, an invocation ends in time, and neighbours are dealt with.

use std::time::Duration;

use tokio::time::Instant;

use crate::fakes::{
    BOUNCES, Port, TIMEOUT, World, paused, sample, settings, together, with_pause_account,
};

const CALL: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_is_given_up_after_five_seconds() {
    for port in Port::ALL {
        let world = World::with(|state| {
            state.hangs.insert((port, ""));
            state.control = Ok(paused(&["acme"], false));
        });
        let account = port == Port::Stop;
        let settings = if account {
            with_pause_account()
        } else {
            settings()
        };
        let event = sample(if account { "account" } else { "alarm-bounce" });
        let handled = world.run_as(&event, settings).await;
        let failures = handled.failures();
        assert_eq!(failures.len(), 1, "{port:?}");
        let timeout = "timeout: no answer in the time that there was";
        assert!(failures[0].ends_with(timeout), "{port:?}: {failures:?}");
        let took = handled.took;
        assert!(
            (CALL..CALL + Duration::from_secs(1)).contains(&took),
            "{port:?}: {took:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_invocation_ends_in_time_though_everything_is_slow_or_hangs() {
    for name in ["alarm-bounce", "account"] {
        let world = World::with(|state| {
            state.hangs = [Port::Control, Port::Switch, Port::Stop, Port::Notify]
                .map(|port| (port, ""))
                .into();
        });
        let handled = world.run_as(&sample(name), with_pause_account()).await;
        assert!(handled.answer.is_err());
        assert!(
            handled.took + Duration::from_secs(2) <= TIMEOUT,
            "{:?}",
            handled.took
        );
    }
    // There may be less time than that.
    let world = World::with(|state| {
        state.hangs.insert((Port::Alarm, ""));
    });
    for ms in [0, 1_000, 3_000] {
        let start = Instant::now();
        let handler = world.handler(settings());
        let deadline = start + Duration::from_millis(ms);
        let (answer, _) = handler.handle(&sample("alarm-bounce"), deadline).await;
        assert!(answer.is_err());
        assert!(
            start.elapsed() <= Duration::from_millis(ms.max(100)),
            "{ms}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_hangs_or_panics_keeps_no_other_from_being_dealt_with() {
    for panics in [false, true] {
        let world = World::with(|state| {
            let at = (Port::Alarm, BOUNCES);
            if panics {
                state.panics = Some(at);
            } else {
                state.hangs.insert(at);
            }
        });
        let handled = world.run(&together(&["alarm-bounce", "broken"])).await;
        let expected = if panics {
            "it had no end in time, or panicked"
        } else {
            "CloudWatch: timeout: no answer in the time that there was"
        };
        assert_eq!(handled.failures(), [expected]);
        assert_eq!(handled.counts(), [1, 0, 0, 3, 0]);
        assert_eq!(world.state().switched, [("acme".to_owned(), false)]);
    }
}

/// The same twice in one event: SNS hands a message over at least once.
#[tokio::test(start_paused = true)]
async fn every_message_is_dealt_with_by_itself() {
    let world = World::default();
    let handled = world
        .run(&together(&["ok", "alarm-bounce", "forged", "alarm-bounce"]))
        .await;
    let expected = ["ignored", "paused", "not_confirmed", "paused"];
    assert_eq!(handled.outcomes(), expected);
    assert_eq!(handled.counts(), [2, 0, 1, 1, 0]);
}
