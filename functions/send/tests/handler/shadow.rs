//! A deployment that books and records, and sends nothing.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use lambda_runtime::tracing::subscriber::{self, fmt::MakeWriter};
use send::{Invocation, Sender, ports::Provider, shadow::Door};
use sendslot_domain::Millis;
use sendslot_runtime::TenantSettings;
use sendslot_schedule::{Claim, Ending, Purpose};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fakes::*;

const ON: (&str, &str) = ("SENDSLOT_SHADOW", "on");

fn world() -> World {
    World {
        vars: vec![ON],
        ..World::default()
    }
}

/// What a batch in shadow came to.
struct Seen {
    handled: Handled,
    /// The lines of the log that say how a mail ended.
    logged: Vec<Value>,
}

async fn handle(world: &World, bodies: &[String]) -> Seen {
    let log = Log::default();
    let logger = subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_writer(log.clone())
        .finish();
    let guard = tracing::subscriber::set_default(logger);
    let nobody: Door<&World> = Door::Shadow;
    let sender = Sender::new(world, nobody, world, world, settings(&world.vars));
    let invocation = Invocation {
        id: REQUEST.into(),
        now: NOW,
        deadline: Instant::now() + TIME,
    };
    let (response, metrics) = sender
        .handle(event(SEND, bodies), &invocation)
        .await
        .unwrap();
    drop(guard);
    let failed = response.batch_item_failures.into_iter();
    let failed = failed.map(|failure| failure.item_identifier).collect();
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    Seen {
        handled: Handled { failed, metrics },
        logged: lines
            .filter(|line: &Value| line["outcome"].is_string())
            .collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn everything_is_as_ever_but_that_nobody_is_asked_to_send() {
    let live = World::default();
    live.handle(&bodies(&["a", "b"])).await;
    let world = world();
    let seen = handle(&world, &bodies(&["a", "b"])).await;

    assert_eq!(live.sent(), ["a", "b"]);
    assert_eq!(world.sent(), [""; 0]);
    assert_eq!(world.calls(), live.calls());
    assert_eq!(world.ends(), live.ends());
    let sent = ["a", "b"].map(|id| (id.to_owned(), Ending::Sent));
    assert_eq!(world.ends(), sent, "their send ids are used up");
    assert_eq!(seen.handled.failed, [""; 0]);
    assert_eq!(seen.handled.count("Shadowed"), 2);
    assert_eq!(seen.handled.count("Sent"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_line_says_what_would_have_gone_when_and_nothing_personal() {
    let world = World {
        claims: [("a", go(700))].into(),
        ..world()
    };
    let body = body_with(
        "a",
        &json!({ "slot_ms": NOW.0 + 650, "mail": {
            "from": "shop@example.com",
            "to": ["ann@example.org", "bob@example.org"],
            "content": { "simple": { "subject": "Hello", "text": "Secret" } },
        } }),
    );
    let start = Instant::now();
    let seen = handle(&world, &[body]).await;
    assert_eq!(start.elapsed().as_millis(), 700, "its moment is waited for");

    let [line] = &seen.logged[..] else {
        panic!("one line for one mail: {:?}", seen.logged)
    };
    let mut line = line.clone();
    for beside in ["timestamp", "level", "target"] {
        line.as_object_mut().unwrap().remove(beside);
    }
    assert_eq!(
        line,
        json!({
            "outcome": "shadow", "send_id": "a", "tenant": "acme", "lane": "bulk", "attempts": 0, "recipients": 2,
            "slot_ms": NOW.0 + 650, "grant_ms": NOW.0 + 700, "configuration_set": "acme-set",
        })
    );
}

#[tokio::test(start_paused = true)]
async fn a_mail_that_no_request_can_be_made_of_is_refused_as_it_would_be() {
    let raw = json!({ "mail": {
        "from": "shop@example.com", "to": ["ann@example.org"], "content": { "raw": { "data": "%" } },
    } });
    let world = world();
    let seen = handle(&world, &[body_with("a", &raw)]).await;
    assert_eq!(world.ends(), [("a".to_owned(), Ending::Rejected)]);
    assert_eq!(seen.handled.count("Rejected"), 1);
    assert_eq!(seen.handled.count("Shadowed"), 0);
    assert_eq!(seen.logged[0]["outcome"], "bad_request");
}

/// A worker may die in shadow, too. It has sent nothing, and no event will come.
#[tokio::test(start_paused = true)]
async fn nothing_waits_for_an_event_whatever_the_policies_say() {
    let park = |shadow: &'static str| World {
        vars: vec![
            ("SENDSLOT_SHADOW", shadow),
            ("SENDSLOT_BUDGET_SOURCE", "account"),
        ],
        sets: [("acme", None)].into(),
        tenants: [(
            "acme",
            TenantSettings::from_json(r#"{"uncertain": "park"}"#).unwrap(),
        )]
        .into(),
        ..World::default()
    };
    for (shadow, purpose, resend_after) in [
        ("on", Purpose::Send, Some(Millis(0))),
        ("off", Purpose::Once, None),
    ] {
        let world = park(shadow);
        handle(&world, &bodies(&["a"])).await;
        assert_eq!(world.claimed()[0].purpose, purpose, "{shadow}");
        let terms = world.asked().into_iter().find_map(|asked| match asked {
            Asked::Claim { terms, .. } => Some(terms),
            _ => None,
        });
        assert_eq!(terms.unwrap().resend_after, resend_after, "{shadow}");
    }
    // While Redis isn't sure yet whether a worker that claimed it lives, it comes back at once, and isn't parked.
    let age = Millis::from_secs(1_000);
    let world = World {
        claims: [("a", Claim::Uncertain { age })].into(),
        ..park("on")
    };
    let seen = handle(&world, &bodies(&["a"])).await;
    assert_eq!(seen.handled.failed, [""; 0]);
    assert_eq!(world.parked(), []);
    let [(delay, _)] = world.copies()[..] else {
        panic!("it isn't on its queue")
    };
    assert!(delay <= 2, "{delay} s");
}

#[tokio::test(start_paused = true)]
async fn without_redis_it_paces_as_ever_and_nothing_may_have_gone_twice() {
    for (capped, shadowed) in [("capped", 1), ("hold", 0)] {
        let world = World {
            vars: vec![ON, ("SENDSLOT_REDIS_DOWN", capped)],
            away_until: Some(Instant::now() + HANGS),
            ..World::default()
        };
        let seen = handle(&world, &bodies(&["a"])).await;
        assert_eq!(world.sent(), [""; 0]);
        assert_eq!(seen.handled.count("Shadowed"), shadowed, "{capped}");
        assert_eq!(seen.handled.count("SentUnclaimed"), 0, "{capped}");
        assert_eq!(seen.handled.count("RedisDown"), 1 - shadowed, "{capped}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_door_that_is_open_leads_to_the_provider() {
    let world = World {
        account_sends: Some(true),
        ..World::default()
    };
    let door = Door::Open(&world);
    let sender = Sender::new(&world, door.clone(), &world, &world, settings(&[]));
    let invocation = Invocation {
        id: REQUEST.into(),
        now: NOW,
        deadline: Instant::now() + TIME,
    };
    let batch = event(SEND, &bodies(&["a"]));
    let (_, metrics) = sender.handle(batch, &invocation).await.unwrap();
    assert_eq!(world.sent(), ["a"]);
    assert_eq!(metrics.get("Sent"), Some(1));
    assert_eq!(metrics.get("Shadowed"), None, "a metric that costs nothing");
    assert_eq!(door.account_sends().await, Some(true));
    assert_eq!(Door::<&World>::Shadow.account_sends().await, None);
}

/// What is logged.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
