//! A tenant is paused, and people are told: once.

use auto_pause::{Settings, ports::CallError, settings::Topic};
use sendslot_runtime::{control::Request, switch::SwitchError};
use serde_json::{Value, json};

use crate::fakes::{
    BOUNCES, PEOPLE, Port, TOPIC, World, call_error, changed, described, invoke, paused, refused,
    sample, settings,
};

const RESUME: &str = "aws lambda invoke --region eu-west-1 --function-name stack-control --cli-binary-format raw-in-base64-out \
                      --payload '{\"action\":\"resume\",\"tenant\":\"acme\"}' /dev/stdout";

/// The only thing that people were told: a subject and a text.
fn told(world: &World) -> (String, String) {
    let told = world.state().told.clone();
    assert_eq!(told.len(), 1, "{told:?}");
    let (topic, subject, text) = told.into_iter().next().unwrap();
    assert_eq!(topic, PEOPLE);
    assert!(
        subject.is_ascii() && (1..=100).contains(&subject.len()),
        "{subject}"
    );
    (subject, text)
}

#[tokio::test(start_paused = true)]
async fn a_tenant_is_paused_in_redis_then_at_ses_then_people_are_told() {
    let world = World::default();
    let handled = world.run(&sample("alarm-bounce")).await;
    let expected = json!({ "messages": [{ "outcome": "paused", "tenants": ["acme"], "already": false, "switched": true }] });
    assert_eq!(handled.answer, Ok(expected));
    assert_eq!(handled.counts(), [1, 0, 0, 0, 0]);
    let order = [Port::Control, Port::Switch, Port::Notify];
    assert_eq!(world.calls()[2..], order);
    let asked = world.state().asked[0].clone();
    let Request::Pause(pause) = Request::parse(&asked.to_string()).unwrap() else {
        panic!("{asked}")
    };
    assert_eq!(pause.configuration_set.as_deref(), Some("acme"));
    assert!(pause.switched && !pause.account && pause.tenant.is_empty());
    assert_eq!(pause.caller.as_deref(), Some("auto-pause"));
    let reason = "Reputation.BounceRate is 0.072, the alarm sendslot-acme-bounces is at 0.05";
    assert_eq!(pause.reason, reason);
    assert_eq!(world.state().switched, [("acme".to_owned(), false)]);
    let (subject, text) = told(&world);
    assert_eq!(subject, "Sendslot paused acme");
    let expected = format!(
        "Paused: acme\nConfiguration set: acme\nWhy: {reason}\nSince: 2026-11-30T12:10:43Z\nBy: auto-pause, for an alarm of CloudWatch \
         that was confirmed\n\nNothing more of theirs is sent. Mail that waits, and what comes meanwhile, is parked until they are \
         resumed.\n\nOnce it is known where the bounces or complaints come from, resume with:\n{RESUME}\n"
    );
    assert_eq!(text, expected);
}

#[tokio::test(start_paused = true)]
async fn several_tenants_of_a_set_are_all_named() {
    let world = World::with(|state| state.control = Ok(paused(&["acme", "beta"], false)));
    let handled = world.run(&sample("alarm-bounce")).await;
    assert_eq!(handled.counts(), [2, 0, 0, 0, 0]);
    let (subject, text) = told(&world);
    assert_eq!(subject, "Sendslot paused 2 tenants of acme");
    assert!(text.starts_with("Paused: acme, beta\n"), "{text}");
    let second = RESUME.replace("\"acme\"", "\"beta\"");
    assert!(text.ends_with(&format!("\n{RESUME}\n{second}\n")), "{text}");
}

/// Whoever paused it first told of it. The switch is set again: it may be why the tenant is looked at once more.
#[tokio::test(start_paused = true)]
async fn nobody_hears_twice_of_a_tenant_that_is_paused() {
    let world = World::with(|state| state.control = Ok(paused(&["acme"], true)));
    let handled = world.run(&sample("alarm-bounce")).await;
    let expected = json!({ "messages": [{ "outcome": "paused", "tenants": ["acme"], "already": true, "switched": true }] });
    assert_eq!(handled.answer, Ok(expected));
    assert_eq!(handled.counts(), [0; 5]);
    assert_eq!(world.state().switched, [("acme".to_owned(), false)]);
    assert_eq!(world.state().told, []);
}

#[tokio::test(start_paused = true)]
async fn what_people_could_not_be_told_they_are_told_at_the_next_try() {
    let world = World::with(|state| state.notify = Err(call_error("Throttled")));
    let handler = world.handler(settings());
    let handled = invoke(&handler, &sample("alarm-bounce")).await;
    assert_eq!(handled.failures(), ["notification: Throttled: why"]);
    assert_eq!(handled.counts(), [1, 0, 0, 0, 0]);
    {
        let mut state = world.state();
        state.control = Ok(paused(&["acme"], true));
        state.notify = Ok(());
        state.told.clear();
    }
    let handled = invoke(&handler, &sample("alarm-bounce")).await;
    assert_eq!(handled.outcomes(), ["paused"]);
    let (subject, text) = told(&world);
    assert_eq!(subject, "Sendslot paused acme");
    assert!(text.contains("\nWhy: as it was (auto-pause)\n"), "{text}");
    // And no more.
    invoke(&handler, &sample("alarm-bounce")).await;
    told(&world);
}

/// What control did is known only by its answer.
#[tokio::test(start_paused = true)]
async fn when_an_answer_is_lost_the_next_try_tells_that_the_tenant_is_paused() {
    let world = World::with(|state| state.control = Err(CallError::timeout()));
    let handler = world.handler(settings());
    let handled = invoke(&handler, &sample("alarm-bounce")).await;
    assert_eq!(handled.failures().len(), 1);
    assert_eq!(told(&world).0, "Sendslot switched off acme at SES");
    {
        let mut state = world.state();
        state.control = Ok(paused(&["acme"], true));
        state.told.clear();
    }
    for _ in 0..2 {
        let handled = invoke(&handler, &sample("alarm-bounce")).await;
        assert_eq!(handled.outcomes(), ["paused"]);
        assert_eq!(told(&world).0, "Sendslot paused acme");
    }
}

/// Somebody's other configuration set, though an alarm on it tells our topic.
#[tokio::test(start_paused = true)]
async fn a_set_that_is_not_ours_is_never_switched_off() {
    for code in ["unknown_set", "unknown_tenant"] {
        let world = World::with(|state| state.control = Ok(refused(code)));
        let handled = world.run(&sample("alarm-bounce")).await;
        // It is asked again: control may not have been told yet who there is.
        assert_eq!(handled.failures(), [format!("control: {code}: why")]);
        assert_eq!(handled.counts(), [0, 0, 0, 1, 0]);
        assert_eq!(world.calls(), [Port::Alarm, Port::Reading, Port::Control]);
    }
    // Nor one of which control says nothing that could be understood as a pause.
    for answer in [json!({}), paused(&[], false), paused(&[], true)] {
        let world = World::with(|state| state.control = Ok(answer));
        let handled = world.run(&sample("alarm-bounce")).await;
        assert_eq!(handled.failures(), ["control paused nobody"]);
        assert_eq!(world.calls(), [Port::Alarm, Port::Reading, Port::Control]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_set_is_switched_off_though_control_fails() {
    let cases: [(Result<Value, _>, &str); 3] = [
        (
            Err(call_error("TooManyRequestsException")),
            "control: TooManyRequestsException: why",
        ),
        (
            Ok(refused("redis_unavailable")),
            "control: redis_unavailable: why",
        ),
        (Ok(json!("what?")), "control: bad_answer: "),
    ];
    for (answer, failure) in cases {
        let world = World::with(|state| state.control = answer);
        let handled = world.run(&sample("alarm-bounce")).await;
        let failures = handled.failures();
        assert!(
            failures.len() == 1 && failures[0].starts_with(failure),
            "{failures:?}"
        );
        assert_eq!(handled.counts(), [0; 5]);
        assert_eq!(world.state().switched, [("acme".to_owned(), false)]);
        let (subject, text) = told(&world);
        assert_eq!(subject, "Sendslot switched off acme at SES");
        assert!(
            text.contains("Why: Reputation.BounceRate is 0.072, the alarm"),
            "{text}"
        );
        assert!(
            text.ends_with(&format!("\n{}\n", RESUME.replace("acme", "TENANT"))),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_tenant_is_paused_though_the_switch_fails() {
    let world = World::with(|state| state.switch = Err(SwitchError::Failed("no".into())));
    let handled = world.run(&sample("alarm-bounce")).await;
    assert_eq!(handled.failures(), ["configuration set acme: no"]);
    assert_eq!(handled.counts(), [1, 1, 0, 0, 0]);
    let (subject, text) = told(&world);
    assert_eq!(subject, "Sendslot paused acme");
    assert!(
        text.contains("\nSES could not be told to let nothing through the configuration set"),
        "{text}"
    );
    // A set that isn't there will not be there next time.
    let world = World::with(|state| state.switch = Err(SwitchError::Missing));
    let handled = world.run(&sample("alarm-bounce")).await;
    let expected = json!({ "messages": [{ "outcome": "paused", "tenants": ["acme"], "already": false, "switched": false }] });
    assert_eq!(handled.answer, Ok(expected));
    assert_eq!(handled.counts(), [1, 1, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn when_nothing_works_nobody_is_told_of_a_pause() {
    let world = World::with(|state| {
        state.control = Err(call_error("no_connection"));
        state.switch = Err(SwitchError::Failed("no".into()));
    });
    let handled = world.run(&sample("alarm-bounce")).await;
    let expected = ["control: no_connection: why", "configuration set acme: no"];
    assert_eq!(handled.failures(), expected);
    assert_eq!(handled.counts(), [0, 1, 0, 0, 0]);
    assert_eq!(world.state().told, []);
}

#[tokio::test(start_paused = true)]
async fn people_are_never_told_by_the_topic_of_the_alarms() {
    for notify_topic in [Topic::of(TOPIC), None] {
        let settings = Settings {
            notify_topic,
            ..settings()
        };
        let world = World::default();
        let handled = world
            .run_as(&sample("alarm-bounce"), settings.clone())
            .await;
        assert_eq!(handled.outcomes(), ["paused"]);
        world.run_as(&sample("account"), settings).await;
        assert_eq!(world.state().told, []);
    }
}

/// `control` takes 200 characters.
#[tokio::test(start_paused = true)]
async fn a_reason_is_never_too_long() {
    let long: &'static str = format!("\n{}", "ö".repeat(254)).leak();
    let world = World::with(|state| {
        let alarm = described(long, "Reputation.BounceRate", Some("acme"), 1.0 / 3.0);
        state.alarms.insert(long, alarm);
        state
            .highest
            .insert("Reputation.BounceRate", Ok(Some(2.0 / 3.0)));
    });
    let event = changed("alarm-bounce", |message| {
        message["AlarmName"] = long.into();
        message["AlarmArn"] = message["AlarmArn"]
            .as_str()
            .unwrap()
            .replace(BOUNCES, long)
            .into();
    });
    assert_eq!(world.run(&event).await.outcomes(), ["paused"]);
    let reason = world.state().asked[0]["reason"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(reason.chars().count(), 200);
    assert!(
        reason.starts_with("Reputation.BounceRate is 0.666667, the alarm öö"),
        "{reason}"
    );
    assert!(reason.ends_with("öö is at 0.333333"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_subject_is_never_too_long_and_one_line_of_ascii() {
    let name: &'static str = format!("a\nö{}", "b".repeat(120)).leak();
    let world = World::with(|state| state.control = Ok(paused(&[name], false)));
    world.run(&sample("alarm-bounce")).await;
    let (subject, _) = told(&world);
    let rest = "b".repeat(100 - "Sendslot paused a".len());
    assert_eq!(subject, format!("Sendslot paused a{rest}"));
}
