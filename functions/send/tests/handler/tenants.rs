//! Tenants and a budget that come from Redis, where the account is followed.

use std::time::Duration;

use sendslot_domain::{Millis, outcome::Outcome};
use sendslot_runtime::{TenantSettings, tenant::ListUnsubscribe};
use sendslot_schedule::Claim;
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
            send_id, tenant, ..
        } => Some((send_id, tenant.configuration_set)),
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

#[tokio::test(start_paused = true)]
async fn whatever_is_put_on_a_queue_is_in_its_tenants_group() {
    let world = World {
        claims: [
            (
                "early",
                Claim::Later {
                    wait: Millis(5_000),
                    slot_ahead: true,
                },
            ),
            ("uncertain", Claim::Uncertain { age: Millis(0) }),
            ("blocked", Claim::Blocked { left: Millis(1) }),
            ("rebooked", FULL),
            ("unparked", Claim::Paused { left: None }),
            ("conflict", Claim::Conflict),
        ]
        .into(),
        outcomes: [("retried", THROTTLED), ("last", Outcome::Unknown)].into(),
        fails: ["park"].into(),
        ..World::default()
    };
    // The tenant of each is another's than its neighbour's.
    let names = ["acme", "beta", "tenant-1"];
    let ids = [
        "early",
        "uncertain",
        "blocked",
        "rebooked",
        "unparked",
        "conflict",
        "retried",
        "last",
    ];
    let whose = |n: usize| names[n % 3];
    let mut batch: Vec<_> = ids
        .iter()
        .enumerate()
        .map(|(n, id)| body_with(id, &json!({ "tenant": whose(n), "attempts": 9 })))
        .collect();
    batch.extend([of("nobody", "unknown"), "{".to_owned()]);
    let handled = world.handle(&batch).await;
    assert_eq!(handled.failed, [""; 0]);

    let mut groups: Vec<_> = [SEND, DLQ]
        .iter()
        .flat_map(|queue| world.put(queue))
        .map(|put| {
            let body: Option<serde_json::Value> = serde_json::from_str(&put.body).ok();
            let id = body.map(|body| body["send_id"].as_str().unwrap().to_owned());
            (id, put.group)
        })
        .collect();
    groups.sort();
    let mut expected: Vec<_> = ids
        .iter()
        .enumerate()
        .map(|(n, id)| (Some((*id).to_owned()), Some(whose(n).to_owned())))
        .collect();
    expected.push((Some("unknown".to_owned()), Some("nobody".to_owned())));
    expected.push((None, None)); // nobody can read whose it is
    expected.sort();
    assert_eq!(groups, expected);

    // Those that Redis can't be asked about, too.
    let world = World {
        fails: ["claim"].into(),
        ..World::default()
    };
    world.handle(&[of("acme", "a"), of("beta", "b")]).await;
    let groups: Vec<_> = world.put(SEND).into_iter().map(|put| put.group).collect();
    assert_eq!(groups, ["acme", "beta"].map(|name| Some(name.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn every_lane_and_a_capped_send_go_by_what_is_set_for_the_tenant() {
    let set = TenantSettings {
        ses_tenant: Some("acme-1".to_owned()),
        list_unsubscribe: Some(ListUnsubscribe {
            url: "https://acme.example/{send_id}".to_owned(),
            mailto: String::new(),
        }),
        ..TenantSettings::default()
    };
    let capped = ("SENDSLOT_REDIS_DOWN", "capped");
    for (queue, vars, fails) in [
        ("sendslot-priority-send", vec![FOLLOWS], None),
        (SEND, vec![FOLLOWS], None),
        (SEND, vec![FOLLOWS, capped], Some("claim")),
    ] {
        let world = World {
            vars,
            tenants: [("acme", set.clone())].into(),
            fails: fails.into_iter().collect(),
            ..world()
        };
        world
            .run(
                event(queue, &[of("acme", "a"), of("fresh", "b")]),
                NOW,
                TIME,
            )
            .await;
        let asked = world.asked().into_iter();
        let mut sends: Vec<_> = asked
            .filter_map(|asked| match asked {
                Asked::Send {
                    send_id, tenant, ..
                } => Some((send_id, *tenant)),
                _ => None,
            })
            .collect();
        sends.sort_by(|a, b| a.0.cmp(&b.0));
        let acme = TenantSettings {
            configuration_set: Some("moved-set".to_owned()),
            ..set.clone()
        };
        let expected = [("a", acme), ("b", TenantSettings::default())];
        assert_eq!(sends, expected.map(|(id, set)| (id.to_owned(), set)));
    }
}
