//! The account itself is over: everybody is paused only where that is wanted.

use sendslot_runtime::control::Request;
use serde_json::json;

use crate::fakes::{PEOPLE, Port, World, call_error, paused, refused, sample, with_pause_account};

const CHECKED: [Port; 2] = [Port::Alarm, Port::Reading];

#[tokio::test(start_paused = true)]
async fn nobody_is_paused_unless_that_is_wanted() {
    let world = World::default();
    let handled = world.run(&sample("account")).await;
    assert_eq!(handled.outcomes(), ["account_over"]);
    assert_eq!(handled.counts(), [0; 5]);
    assert_eq!(
        world.calls(),
        [CHECKED.as_slice(), &[Port::Notify]].concat()
    );
    let (topic, subject, text) = world.state().told[0].clone();
    assert_eq!(topic, PEOPLE);
    assert_eq!(
        subject,
        "Sendslot: the account is over its threshold, nobody is paused"
    );
    let begins = "The account itself is over its threshold: Reputation.BounceRate is 0.072, the alarm sendslot-account-\
                  bounces is at 0.05\n";
    assert!(text.starts_with(begins), "{text}");
    assert!(text.contains("as PauseAccount is off"), "{text}");
    // It is still to be told.
    let world = World::with(|state| state.notify = Err(call_error("Throttled")));
    let handled = world.run(&sample("account")).await;
    assert_eq!(handled.failures(), ["notification: Throttled: why"]);
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_not_over_pauses_nobody() {
    let world = World::with(|state| {
        state
            .highest
            .insert("Reputation.BounceRate", Ok(Some(0.01)));
    });
    let handled = world.run_as(&sample("account"), with_pause_account()).await;
    assert_eq!(handled.outcomes(), ["not_confirmed"]);
    assert_eq!(world.calls(), CHECKED);
}

#[tokio::test(start_paused = true)]
async fn everybody_is_paused_at_ses_and_in_redis_where_that_is_wanted() {
    let world = World::with(|state| state.control = Ok(paused(&[], false)));
    let handled = world.run_as(&sample("account"), with_pause_account()).await;
    let expected = json!({ "messages": [{ "outcome": "account_paused" }] });
    assert_eq!(handled.answer, Ok(expected));
    assert_eq!(handled.counts(), [0, 0, 0, 0, 1]);
    let rest = [Port::Stop, Port::Control, Port::Notify];
    assert_eq!(world.calls(), [CHECKED.as_slice(), &rest].concat());
    let asked = world.state().asked[0].clone();
    let Request::Pause(pause) = Request::parse(&asked.to_string()).unwrap() else {
        panic!("{asked}")
    };
    assert!(pause.account && pause.switched && pause.tenant.is_empty());
    assert_eq!(pause.configuration_set, None);
    assert_eq!(pause.caller.as_deref(), Some("auto-pause"));
    let (_, subject, text) = world.state().told[0].clone();
    assert_eq!(subject, "Sendslot paused the whole account");
    assert!(
        text.contains("Sending is switched off for the account in this Region."),
        "{text}"
    );
    let resume =
        "\naws sesv2 put-account-sending-attributes --region eu-west-1 --sending-enabled\n";
    assert!(text.ends_with(resume), "{text}");
    // No configuration set is touched for it.
    assert_eq!(world.state().switched, []);
}

#[tokio::test(start_paused = true)]
async fn either_is_done_though_the_other_fails() {
    let world = World::with(|state| {
        state.stop = Err(call_error("TooManyRequestsException"));
        state.control = Ok(paused(&[], false));
    });
    let handled = world.run_as(&sample("account"), with_pause_account()).await;
    assert_eq!(
        handled.failures(),
        ["account: TooManyRequestsException: why"]
    );
    assert_eq!(handled.counts(), [0, 1, 0, 0, 1]);
    let text = world.state().told[0].2.clone();
    assert!(
        text.contains("nobody sends for two minutes. That is tried again."),
        "{text}"
    );

    let world = World::with(|state| state.control = Ok(refused("redis_unavailable")));
    let handled = world.run_as(&sample("account"), with_pause_account()).await;
    assert_eq!(handled.failures(), ["control: redis_unavailable: why"]);
    assert_eq!(handled.counts(), [0, 0, 0, 0, 1]);
    assert_eq!(world.state().told.len(), 1);

    let world = World::with(|state| {
        state.stop = Err(call_error("timeout"));
        state.control = Err(call_error("timeout"));
    });
    let handled = world.run_as(&sample("account"), with_pause_account()).await;
    assert_eq!(
        handled.failures(),
        ["account: timeout: why", "control: timeout: why"]
    );
    assert_eq!(handled.counts(), [0, 1, 0, 0, 0]);
    assert_eq!(world.state().told, []);
}

/// Nobody may send for other reasons, too, and people must hear of this one.
#[tokio::test(start_paused = true)]
async fn people_hear_of_it_though_nobody_could_send_before() {
    let world = World::with(|state| state.control = Ok(paused(&[], true)));
    let handled = world.run_as(&sample("account"), with_pause_account()).await;
    assert_eq!(handled.outcomes(), ["account_paused"]);
    assert_eq!(handled.counts(), [0, 0, 0, 0, 1]);
    assert_eq!(world.state().told[0].1, "Sendslot paused the whole account");
}
