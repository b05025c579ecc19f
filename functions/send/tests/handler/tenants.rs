//! Tenants and a budget that come from Redis, where the account is followed.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::{batch::is_reason, fakes::*};

const FOLLOWS: (&str, &str) = ("SENDSLOT_BUDGET_SOURCE", "account");

fn world() -> World {
    World {
        vars: vec![FOLLOWS],
        sets: [("acme", Some("moved-set")), ("fresh", None)].into(),
        ..World::default()
    }
}

fn of(tenant: &str, send_id: &str) -> String {
    body_with(send_id, &json!({ "tenant": tenant }))
}

/// Through which configuration sets what was sent went.
fn through(world: &World) -> Vec<(String, Option<String>)> {
    let asked = world.asked().into_iter();
    let sends = asked.filter_map(|asked| match asked {
        Asked::Send {
            send_id,
            configuration_set,
            ..
        } => Some((send_id, configuration_set)),
        _ => None,
    });
    let mut sends: Vec<_> = sends.collect();
    sends.sort();
    sends
}

fn questions(world: &World) -> Vec<Vec<String>> {
    let asked = world.asked().into_iter();
    let questions = asked.filter_map(|asked| match asked {
        Asked::Sets(names) => Some(names),
        _ => None,
    });
    questions.collect()
}

#[tokio::test(start_paused = true)]
async fn redis_knows_tenants_that_the_template_does_not() {
    let world = world();
    let handled = world
        .handle(&[of("acme", "a"), of("fresh", "b"), of("nobody", "c")])
        .await;
    let moved = Some("moved-set".to_owned());
    assert_eq!(
        through(&world),
        [("a".to_owned(), moved), ("b".to_owned(), None)]
    );
    assert!(handled.failed.is_empty());
    assert!(is_reason(&world.put(DLQ)[0], "unknown_tenant"));
    assert_eq!(
        questions(&world),
        [["acme", "fresh", "nobody"]],
        "in one round trip"
    );
}

#[tokio::test(start_paused = true)]
async fn what_redis_said_is_good_for_a_minute() {
    let world = world();
    let sender = world.sender();
    for wait in [1, 40, 30] {
        sleep(Duration::from_secs(wait)).await;
        world.invoke_with(&sender, &[of("acme", "a")]).await;
    }
    assert_eq!(questions(&world).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn while_nobody_can_be_asked_a_tenant_is_not_taken_for_unknown() {
    let world = World {
        fails: ["sets"].into(),
        ..world()
    };
    let handled = world.handle(&[of("fresh", "a"), of("acme", "b")]).await;
    // As the template has it, for want of better.
    assert_eq!(
        through(&world),
        [("b".to_owned(), Some("acme-set".to_owned()))]
    );
    assert_eq!((world.put(SEND).len(), world.put(DLQ).len()), (1, 0));
    assert!(handled.failed.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_empty_redis_holds_mail_under_either_policy() {
    for policy in ["hold", "capped"] {
        let world = World {
            vars: vec![FOLLOWS, ("SENDSLOT_REDIS_DOWN", policy)],
            fails: ["budget"].into(),
            ..World::default()
        };
        let handled = world.handle(&[of("acme", "a"), of("beta", "b")]).await;
        assert_eq!(
            (world.sent().len(), world.put(SEND).len()),
            (0, 2),
            "{policy}"
        );
        assert!(handled.failed.is_empty());
        assert_eq!(handled.count("RedisDown"), 2);
    }
}
