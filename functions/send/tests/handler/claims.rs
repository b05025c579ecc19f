//! What a claim answers but a grant, what it is asked with, and what is parked.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use send::{Invocation, Sender, batch::CLOSING};
use sendslot_domain::{Lane, Millis, Moment, outcome::Outcome};
use sendslot_runtime::TenantSettings;
use sendslot_schedule::{Booking, Claim, ClaimAsk, Ended, Purpose, Unused};
use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep};

use crate::{
    fakes::{
        Asked, DLQ, FULL, HANGS, Handled, NOW, REQUEST, SEND, THROTTLED, TIME, World, bodies,
        body_with, envelope, event, go, received, settings, unused,
    },
    ses::{Server, ses},
};

const CONFIRMATION: Millis = Millis::from_secs(300);
/// The key of message a, but for the reason.
const KEY: (&str, &str) = ("parked/acme/1799999995000-", "-bulk-a.json");

/// A world in which message a's claim is answered so.
fn says(claim: Claim) -> World {
    World {
        claims: [("a", claim)].into(),
        ..World::default()
    }
}

/// The slot that [`envelope`] has.
fn old() -> Unused {
    unused(NOW.cell(), &[(NOW.cell(), 1)])
}

fn key(reason: &str) -> String {
    format!("{}{reason}{}", KEY.0, KEY.1)
}

/// The envelope of message a with these fields.
fn with(fields: &Value) -> Value {
    serde_json::from_str(&body_with("a", fields)).unwrap()
}

fn uncertain(age: u64) -> Claim {
    Claim::Uncertain { age: Millis(age) }
}

/// Nothing was sent or said of a claim, and nothing comes back by itself.
fn left_alone(world: &World, handled: &Handled) {
    assert_eq!(handled.failed, [""; 0]);
    assert_eq!((world.sent(), world.ends()), (vec![], vec![]));
    assert_eq!(world.put(DLQ), []);
    assert!(!world.calls().contains(&"hide"));
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_what_has_ended_is_dropped() {
    for how in [
        Ended::Sent,
        Ended::Rejected,
        Ended::Expired,
        Ended::Otherwise,
    ] {
        let world = says(Claim::Ended(how));
        let handled = world.handle(&bodies(&["a"])).await;
        left_alone(&world, &handled);
        assert_eq!(handled.counts(), [("Duplicate", 1)].into(), "{how:?}");
        assert_eq!(world.calls(), ["claim", "release"]);
        assert_eq!(world.released(), [old()], "a slot of its own");
    }
}

#[tokio::test(start_paused = true)]
async fn an_uncertain_mail_whose_event_came_is_confirmed() {
    let world = World {
        claims: [
            ("a", Claim::Ended(Ended::Sent)),
            ("b", Claim::Ended(Ended::Rejected)),
        ]
        .into(),
        ..World::default()
    };
    let body = |id| body_with(id, &json!({ "uncertain": true, "cells": [] }));
    let handled = world.handle(&[body("a"), body("b")]).await;
    left_alone(&world, &handled);
    assert_eq!(
        handled.counts(),
        [("Confirmed", 1), ("Duplicate", 1)].into()
    );
    assert_eq!(world.calls(), ["claim"]);
}

#[tokio::test(start_paused = true)]
async fn while_nobody_may_send_a_copy_waits_until_soon_after() {
    for (left, delays) in [
        (0, 0..=0),
        (1_500, 2..=3),
        (30_000, 30..=60),
        (600_000, 600..=660),
        (900_000, 900..=900),
    ] {
        let world = says(Claim::Blocked { left: Millis(left) });
        let fields = json!({ "attempts": 2, "holds": 3, "void": "request-0" });
        let handled = world.handle(&[body_with("a", &fields)]).await;

        left_alone(&world, &handled);
        assert_eq!(handled.counts(), [("Blocked", 1)].into());
        assert_eq!(world.calls(), ["claim", "put", "release"], "nothing booked");
        let mut copy = with(&fields);
        copy["cells"] = json!([]);
        let (delay, found) = world.copies().remove(0);
        assert_eq!(found, copy);
        assert!(delays.contains(&delay), "{delay} s of {left} ms");
        assert_eq!(world.released(), [old()]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_at_the_end_of_a_block_is_spread() {
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let blocked = Claim::Blocked {
        left: Millis::from_secs(120),
    };
    let world = World {
        claims: ids.map(|id| (id, blocked)).into(),
        ..World::default()
    };
    world.handle(&bodies(&ids)).await;
    let mut delays: Vec<_> = world.copies().iter().map(|(delay, _)| *delay).collect();
    delays.sort_unstable();
    delays.dedup();
    assert!(delays.len() > 1, "{delays:?}");
}

#[tokio::test(start_paused = true)]
async fn a_block_that_the_booking_tells_of_is_waited_for_too() {
    let world = World {
        claims: [("a", FULL)].into(),
        bookings: Mutex::new([Booking::Blocked(Millis::from_secs(40))].into()),
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a"])).await;
    left_alone(&world, &handled);
    let (delay, copy) = world.copies().remove(0);
    assert!((40..=80).contains(&delay), "{delay}");
    assert_eq!(copy, with(&json!({ "cells": [] })));
    assert_eq!(world.released(), [old()], "once");
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_given_back_only_with_the_message() {
    let world = World {
        claims: [
            ("a", FULL),
            ("b", Claim::Blocked { left: Millis(1) }),
            ("c", uncertain(0)),
        ]
        .into(),
        bookings: Mutex::new([Booking::Blocked(Millis(1))].into()),
        full: [SEND].into(),
        ..World::default()
    };
    let mut handled = world.handle(&bodies(&["a", "b", "c"])).await;
    handled.failed.sort();
    assert_eq!(handled.failed, ["m0", "m1", "m2"], "with its slot");
    assert_eq!(world.released(), []);
}

#[tokio::test(start_paused = true)]
async fn mail_of_a_paused_tenant_is_parked_and_its_slot_given_back() {
    for left in [None, Some(Millis(5_000))] {
        let world = says(Claim::Paused { left });
        let handled = world.handle(&bodies(&["a"])).await;

        left_alone(&world, &handled);
        assert_eq!(handled.counts(), [("Parked", 1), ("Paused", 1)].into());
        assert_eq!(world.calls(), ["claim", "park", "release", "trace"]);
        assert_eq!(world.parked(), [(key("paused"), envelope("a"))]);
        assert_eq!(world.released(), [old()]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_parked_is_held_on_its_queue() {
    let paused = Claim::Paused { left: None };
    let claims = HashMap::from([("a", paused), ("b", uncertain(CONFIRMATION.0))]);
    let refuses = World {
        claims: claims.clone(),
        fails: ["park"].into(),
        ..World::default()
    };
    let hangs = World {
        claims,
        parking_takes: HANGS,
        ..World::default()
    };
    for world in [refuses, hangs] {
        let world = World {
            outcomes: [("c", Outcome::SetPaused)].into(),
            ..world
        };
        let handled = world.handle(&bodies(&["a", "b", "c"])).await;

        assert!(world.last_send().elapsed() < CLOSING);
        assert_eq!(handled.failed, [""; 0], "no receive is spent");
        assert_eq!(handled.count("Parked"), 0);
        assert_eq!(handled.count("Failed"), 3);
        let copies = world.copies();
        let copy = |id| {
            &copies
                .iter()
                .find(|(_, copy)| copy["send_id"] == id)
                .unwrap()
                .1
        };
        assert_eq!(*copy("a"), with(&json!({ "holds": 1 })), "with its slot");
        let b = with(&json!({ "send_id": "b", "holds": 1, "uncertain": true }));
        assert_eq!(*copy("b"), b, "likewise");
        assert_eq!(copy("c")["holds"], 1);
        assert_eq!(copy("c")["cells"], json!([]), "its grant was drawn");
        assert!(copies.iter().all(|(delay, _)| (2..=5).contains(delay)));
        assert_eq!(world.released(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_sent_waits_for_its_event_as_a_copy() {
    for (age, delay) in [(0, 300), (100_000, 200), (299_900, 1)] {
        let world = says(uncertain(age));
        let handled = world.handle(&bodies(&["a"])).await;
        left_alone(&world, &handled);
        assert_eq!(handled.counts(), [("Held", 1), ("Uncertain", 1)].into());
        let copy = with(&json!({ "uncertain": true, "cells": [] }));
        assert_eq!(world.copies(), [(delay, copy.clone())]);
        assert_eq!(world.released(), [old()]);

        // Such a copy that comes too early is not counted again.
        let world = says(uncertain(age));
        let handled = world.handle(&[copy.to_string()]).await;
        left_alone(&world, &handled);
        assert_eq!(handled.counts(), [("Held", 1)].into());
        assert_eq!(world.copies(), [(delay, copy)]);
    }
}

#[tokio::test(start_paused = true)]
async fn without_its_event_it_is_parked_as_uncertain() {
    let world = says(uncertain(CONFIRMATION.0));
    let copy = with(&json!({ "uncertain": true, "cells": [] }));
    let handled = world.handle(&[copy.to_string()]).await;
    left_alone(&world, &handled);
    assert_eq!(handled.counts(), [("Parked", 1)].into());
    assert_eq!(world.parked(), [(key("uncertain"), copy)]);
    assert_eq!(world.calls(), ["claim", "park", "trace"]);

    // Found so late that the time is over: at once.
    let world = says(uncertain(CONFIRMATION.0 + 1));
    let handled = world.handle(&bodies(&["a"])).await;
    left_alone(&world, &handled);
    assert_eq!(handled.counts(), [("Parked", 1), ("Uncertain", 1)].into());
    let (key_found, body) = world.parked().remove(0);
    assert_eq!(
        (key_found, &body["uncertain"]),
        (key("uncertain"), &json!(true))
    );
    assert_eq!(world.released(), [old()]);
}

#[tokio::test(start_paused = true)]
async fn an_uncertain_mail_that_has_expired_waits_for_its_event_and_then_expires() {
    let fields = json!({ "uncertain": true, "cells": [], "expires_at_ms": NOW.0 });
    let world = says(uncertain(CONFIRMATION.0 - 1));
    let handled = world.handle(&[body_with("a", &fields)]).await;
    left_alone(&world, &handled);
    assert_eq!(world.copies(), [(1, with(&fields))]);

    let world = says(uncertain(CONFIRMATION.0));
    let handled = world.handle(&[body_with("a", &fields)]).await;
    left_alone(&world, &handled);
    assert_eq!(handled.counts(), [("Expired", 1)].into());
    assert_eq!(world.calls(), ["claim"]);
    assert_eq!(world.claimed()[0].purpose, Purpose::Expire);
}

#[tokio::test(start_paused = true)]
async fn each_lane_resends_or_not_as_it_is_set() {
    let defaults = [(Lane::Priority, Some(CONFIRMATION)), (Lane::Bulk, None)];
    let vars = vec![
        ("SENDSLOT_PRIORITY_UNCERTAIN", "park"),
        ("SENDSLOT_BULK_UNCERTAIN", "resend"),
        ("SENDSLOT_CONFIRMATION_SECONDS", "60"),
    ];
    let turned = [
        (Lane::Priority, None),
        (Lane::Bulk, Some(Millis::from_secs(60))),
    ];
    for (vars, lanes) in [(vec![], defaults), (vars, turned)] {
        for (lane, resend_after) in lanes {
            let world = World {
                vars: vars.clone(),
                ..World::default()
            };
            let queue = format!("sendslot-{lane}-send");
            world.run(event(&queue, &bodies(&["a"])), NOW, TIME).await;
            let asked = world.asked();
            let Some(Asked::Claim { terms, asks, .. }) = asked.first() else {
                panic!("no claim")
            };
            assert_eq!((terms.lane, terms.resend_after), (lane, resend_after));
            let purpose = match resend_after {
                Some(_) => Purpose::Send,
                None => Purpose::Once,
            };
            assert_eq!(asks[0].purpose, purpose);
        }
    }
}

/// A world whose tenants parks, resends and says-nothing are set so.
fn with_policies() -> World {
    let set = |word: Option<&str>| TenantSettings {
        uncertain: word.map(str::to_owned),
        ..TenantSettings::default()
    };
    World {
        vars: vec![("SENDSLOT_BUDGET_SOURCE", "account")],
        sets: ["parks", "resends", "says-nothing"]
            .map(|tenant| (tenant, None))
            .into(),
        tenants: [
            ("parks", set(Some("park"))),
            ("resends", set(Some("resend"))),
            ("says-nothing", set(None)),
        ]
        .into(),
        ..World::default()
    }
}

fn of(tenant: &str, send_id: &str, fields: &Value) -> String {
    let mut body: Value = serde_json::from_str(&body_with(send_id, fields)).unwrap();
    body["tenant"] = tenant.into();
    body.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_tenants_own_policy_goes_before_its_lanes() {
    use Purpose::{Expire, Once, Resend, Send};
    let none = json!({});
    let batch = [
        of("parks", "a", &none),
        of("resends", "b", &none),
        of("says-nothing", "c", &none),
        of("parks", "d", &json!({ "resend": true })),
        of("resends", "e", &json!({ "expires_at_ms": NOW.0 })),
    ];
    for (lane, of_lane) in [(Lane::Priority, Send), (Lane::Bulk, Once)] {
        let world = with_policies();
        let queue = format!("sendslot-{lane}-send");
        world.run(event(&queue, &batch), NOW, TIME).await;
        let purposes: Vec<_> = world.claimed().iter().map(|ask| ask.purpose).collect();
        assert_eq!(purposes, [Once, Send, of_lane, Resend, Expire], "{lane}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_a_confirmation_time_when_any_of_it_may_be_sent_again() {
    let none = json!({});
    let (parks, resends) = (of("parks", "a", &none), of("resends", "b", &none));
    for (lane, batch, resend_after) in [
        (Lane::Bulk, vec![parks.clone()], None),
        (
            Lane::Bulk,
            vec![parks.clone(), resends.clone()],
            Some(CONFIRMATION),
        ),
        (Lane::Priority, vec![resends], Some(CONFIRMATION)),
        (Lane::Priority, vec![parks], None),
    ] {
        let world = World {
            claims: [("a", go(500)), ("b", go(500))].into(),
            ..with_policies()
        };
        let queue = format!("sendslot-{lane}-send");
        // The process is stopped until the grants are over, so that each draws a new one.
        let stop = async {
            sleep(Duration::from_millis(100)).await;
            advance(Duration::from_secs(1)).await;
        };
        tokio::join!(world.run(event(&queue, &batch), NOW, TIME), stop);
        let asked = world.asked().into_iter();
        let terms = asked.filter_map(|asked| match asked {
            Asked::Claim { terms, .. } | Asked::Renew { terms, .. } => Some(terms.resend_after),
            _ => None,
        });
        let terms: Vec<_> = terms.collect();
        assert_eq!(
            terms,
            vec![resend_after; 1 + batch.len()],
            "{lane} {batch:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_an_uncertain_mail_is_its_own_tenants_choice() {
    let uncertain_now = json!({ "uncertain": true, "cells": [] });
    let ids = ["a", "b", "c"];
    for lane in [Lane::Priority, Lane::Bulk] {
        for age in [CONFIRMATION.0 - 1, CONFIRMATION.0, CONFIRMATION.0 + 7_000] {
            let world = World {
                claims: ids.map(|id| (id, uncertain(age))).into(),
                ..with_policies()
            };
            let batch = [
                of("parks", "a", &uncertain_now),
                of("resends", "b", &uncertain_now),
                of("says-nothing", "c", &uncertain_now),
            ];
            let queue = format!("sendslot-{lane}-send");
            let handled = world.run(event(&queue, &batch), NOW, TIME).await;
            assert_eq!((handled.failed, world.sent()), (vec![], vec![]));
            let parked: Vec<_> = world.parked().into_iter().map(|(key, _)| key).collect();
            let parks = |id: &str| {
                parked
                    .iter()
                    .any(|key| key.ends_with(&format!("-{id}.json")))
            };
            let is_over = age >= CONFIRMATION.0;
            let found = ids.map(parks);
            assert_eq!(
                found,
                [is_over, false, is_over && lane == Lane::Bulk],
                "{lane} {age}"
            );
            // What isn't parked asks again, soon: its claim lets it go.
            let copies = world.put(&queue);
            assert_eq!(copies.len() + parked.len(), 3);
            assert!(copies.iter().all(|copy| copy.delay_seconds <= 2));
        }
    }
    // Nobody waits for what is of no more use.
    let world = World {
        claims: [("b", uncertain(CONFIRMATION.0))].into(),
        ..with_policies()
    };
    let fields = json!({ "uncertain": true, "cells": [], "expires_at_ms": NOW.0 });
    let handled = world.handle(&[of("resends", "b", &fields)]).await;
    assert_eq!(handled.counts(), [("Expired", 1)].into());
    assert_eq!((world.parked(), world.copies()), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_paused_tenant_that_the_booking_tells_of_is_parked_with_its_slot_given_back_once() {
    let world = World {
        claims: [("a", FULL)].into(),
        bookings: Mutex::new([Booking::Paused].into()),
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a"])).await;
    left_alone(&world, &handled);
    assert_eq!(handled.counts(), [("Parked", 1), ("Paused", 1)].into());
    assert_eq!(world.calls(), ["claim", "book", "park", "release", "trace"]);
    assert_eq!(world.parked(), [(key("paused"), envelope("a"))]);
    assert_eq!(world.copies(), [], "no other copy of it");
    assert_eq!(world.released(), [old()], "once");

    // Its grant was drawn: the guard has spent its slot.
    let world = World {
        outcomes: [("a", THROTTLED)].into(),
        bookings: Mutex::new([Booking::Paused].into()),
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a"])).await;
    assert_eq!(handled.failed, [""; 0]);
    assert_eq!(handled.count("Parked"), 1);
    assert_eq!(
        world.parked(),
        [(key("paused"), with(&json!({ "cells": [] })))]
    );
    assert_eq!(world.released(), []);

    // It keeps its slot while it can't be parked.
    let world = World {
        claims: [("a", FULL)].into(),
        bookings: Mutex::new([Booking::Paused].into()),
        fails: ["park"].into(),
        ..World::default()
    };
    let handled = world.handle(&bodies(&["a"])).await;
    left_alone(&world, &handled);
    let copies: Vec<_> = world.copies().into_iter().map(|(_, copy)| copy).collect();
    assert_eq!(copies, [with(&json!({ "holds": 1 }))]);
    assert_eq!(world.released(), []);
}

#[tokio::test]
async fn mail_of_a_paused_tenant_costs_no_call_to_ses_and_no_receive() {
    let paused = ["a", "b", "c", "d", "e", "f"];
    let world = World {
        claims: paused
            .map(|id| (id, Claim::Paused { left: None }))
            .into_iter()
            .chain([("g", FULL), ("h", FULL)])
            .collect(),
        bookings: Mutex::new([Booking::Paused, Booking::Paused].into()),
        ..World::default()
    };
    let server = Server::accepting().await;
    let provider = ses(&server.url);
    let sender = Sender::new(&world, provider, &world, &world, settings(&world.vars));
    let invocation = Invocation {
        id: REQUEST.into(),
        now: NOW,
        deadline: Instant::now() + TIME,
    };
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let handled = sender.handle(event(SEND, &bodies(&ids)), &invocation).await;
    let (response, metrics) = handled.unwrap();

    // The two others, so that the count could be another.
    let mut asked: Vec<_> = server
        .requests()
        .iter()
        .map(|(_, body)| body["EmailTags"][0]["Value"].clone())
        .collect();
    asked.sort_by_key(ToString::to_string);
    assert_eq!(asked, ["i", "j"]);
    // What comes back by itself, is hidden or is put back would be received once more.
    assert_eq!(response.batch_item_failures.len(), 0);
    assert_eq!((world.hidden(), world.copies()), (vec![], vec![]));
    assert_eq!((world.put(DLQ), world.parked().len()), (vec![], 8));
    let counts = ["Parked", "Paused", "Sent"].map(|name| metrics.get(name));
    assert_eq!(counts, [Some(8), Some(8), Some(2)]);
    assert_eq!(world.released().len(), 8);
}

/// What a message was claimed with that had such fields and was received so often, first at such a moment.
async fn asked_with(fields: &Value, receives: Option<(u32, Moment)>) -> (ClaimAsk, Value) {
    let world = World {
        outcomes: [("a", THROTTLED)].into(),
        ..World::default()
    };
    let mut event = event(SEND, &[body_with("a", fields)]);
    if let Some((count, first)) = receives {
        event = received(event, 0, count, first);
    }
    world.run(event, NOW, TIME).await;
    (world.claimed().remove(0), world.copies().remove(0).1)
}

#[tokio::test(start_paused = true)]
async fn a_message_received_before_is_suspect_since_then_and_so_are_its_copies() {
    let first = Moment(NOW.0 - 90_000);
    let early = NOW.0 - 100_000;
    let none = json!({});
    // SQS's clock and Redis' may differ by 5 s.
    let since = NOW.0 - 95_000;
    let suspect = |ms: u64| json!({ "suspect_since_ms": ms });
    for (fields, receives, expected) in [
        (&none, None, None),
        (&none, Some((1, first)), None),
        (&none, Some((2, first)), Some(since)),
        (&none, Some((7, first)), Some(since)),
        (&suspect(early), None, Some(early)),
        (&suspect(early), Some((2, first)), Some(early)),
        (&suspect(NOW.0), Some((2, first)), Some(since)),
        // Known to have been received, but not when: as long ago as can be.
        (&none, Some((2, Moment(0))), Some(1)),
    ] {
        let (ask, copy) = asked_with(fields, receives).await;
        assert_eq!(ask.suspect_since, expected.map(Moment), "{receives:?}");
        let told = expected.map_or(Value::Null, Value::from);
        assert_eq!(copy["suspect_since_ms"], told, "{receives:?}");
    }
    let mut event = event(SEND, &bodies(&["a"]));
    let attributes = &mut event.records[0].attributes;
    attributes.insert("ApproximateReceiveCount".into(), "2".into());
    let world = World::default();
    world.run(event, NOW, TIME).await;
    assert_eq!(world.claimed()[0].suspect_since, Some(Moment(1)));
}

#[tokio::test(start_paused = true)]
async fn an_uncertain_mail_stays_so_when_redis_has_lost_its_claim() {
    // Since time began, whatever the generation.
    for fields in [
        json!({ "uncertain": true }),
        json!({ "uncertain": true, "suspect_since_ms": NOW.0 }),
    ] {
        let (ask, _) = asked_with(&fields, None).await;
        assert_eq!(ask.suspect_since, Some(Moment(0)), "{fields}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_says_what_it_is_for_and_whose_was_void() {
    let expired = json!({ "expires_at_ms": NOW.0 });
    // The bulk lane parks what may have been sent.
    for (fields, purpose) in [
        (json!({}), Purpose::Once),
        (json!({ "uncertain": true }), Purpose::Once),
        (json!({ "resend": true }), Purpose::Resend),
        (json!({ "void": "request-0" }), Purpose::Once),
    ] {
        let (ask, copy) = asked_with(&fields, None).await;
        assert_eq!(ask.purpose, purpose, "{fields}");
        assert_eq!(ask.void.as_deref(), fields["void"].as_str());
        assert_eq!(copy["void"], Value::Null, "its claim was given up since");
    }
    // Received before: it may have been sent since it was released.
    let again = Some((2, Moment(NOW.0 - 90_000)));
    let (ask, copy) = asked_with(&json!({ "resend": true }), again).await;
    assert_eq!(
        (ask.purpose, &copy["resend"]),
        (Purpose::Once, &Value::Null)
    );
    for fields in [&expired, &json!({ "expires_at_ms": NOW.0, "resend": true })] {
        let world = World::default();
        let handled = world.handle(&[body_with("a", fields)]).await;
        left_alone(&world, &handled);
        assert_eq!(world.claimed()[0].purpose, Purpose::Expire, "{fields}");
        assert_eq!(handled.counts(), [("Expired", 1)].into());
        assert_eq!(world.released(), [old()]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_mail_that_was_sent_or_is_being_sent_is_no_expired_one() {
    let fields = json!({ "expires_at_ms": NOW.0 });
    let world = says(Claim::Ended(Ended::Sent));
    let handled = world.handle(&[body_with("a", &fields)]).await;
    assert_eq!(handled.counts(), [("Duplicate", 1)].into());

    let world = says(Claim::Held {
        left: Millis(10_000),
    });
    let handled = world.handle(&[body_with("a", &fields)]).await;
    assert_eq!(handled.counts(), [("Held", 1)].into());
    assert_eq!(handled.failed, ["m0"]);
}

#[tokio::test(start_paused = true)]
async fn the_mails_of_a_batch_are_parked_beside_each_other() {
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let world = World {
        claims: ids.map(|id| (id, Claim::Paused { left: None })).into(),
        parking_takes: Duration::from_millis(900),
        ..World::default()
    };
    let start = Instant::now();
    let handled = world.handle(&bodies(&ids)).await;
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(handled.count("Parked"), 10);
    assert_eq!(world.released().len(), 10);
}
