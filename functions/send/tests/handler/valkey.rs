//! On a real server: what shadow leaves behind, and what is noted of mails.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_config::SdkConfig;
use send::{Invocation, Sender, shadow::Door};
use sendslot_domain::{Lane, Millis, Moment, outcome::Outcome};
use sendslot_runtime::{Metrics, Seeded, SendSettings};
use sendslot_schedule::{
    Claim, ClaimAsk, Found, Mark, Purpose, Schedule, Terms, What, testing::PrivateServer,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::fakes::*;

struct Real {
    _server: PrivateServer,
    schedule: Schedule,
    settings: SendSettings,
    redis: Option<Seeded>,
    world: World,
}

impl Real {
    async fn new(shadow: &str, world: World) -> Self {
        let server = PrivateServer::start();
        let mut settings = settings(&[("SENDSLOT_SHADOW", shadow)]);
        settings.common.redis_url = server.url(); // a socket's, which no deployment has
        let aws = SdkConfig::builder().build();
        let schedule = settings.common.schedule(&aws).unwrap();
        schedule.seed(&settings.common.seed.seed()).await.unwrap();
        Self {
            redis: Some(Seeded::connect(&settings.common, &aws).unwrap()),
            _server: server,
            schedule,
            settings,
            world,
        }
    }

    /// Runs one batch, and answers what was counted.
    async fn handle(&mut self, bodies: &[String]) -> Metrics {
        let (world, settings) = (&self.world, self.settings.clone());
        let door = if settings.shadow {
            Door::Shadow
        } else {
            Door::Open(world)
        };
        let redis = self.redis.take().unwrap();
        let sender = Sender::new(redis, door, world, world, settings);
        let invocation = Invocation {
            id: REQUEST.into(),
            now: now(),
            deadline: Instant::now() + TIME,
        };
        let batch = event(SEND, bodies);
        let (response, metrics) = sender.handle(batch, &invocation).await.unwrap();
        assert!(response.batch_item_failures.is_empty());
        let aws = SdkConfig::builder().build();
        self.redis = Some(Seeded::connect(&self.settings.common, &aws).unwrap());
        metrics
    }

    /// A worker claims it and dies.
    async fn dies(&self, send_id: &str) {
        let ask = ClaimAsk {
            tenant: "acme".parse().unwrap(),
            send_id: send_id.parse().unwrap(),
            fingerprint: "00ff".to_owned(),
            cost: 1,
            slot: now(),
            suspect_since: None,
            void: None,
            purpose: Purpose::Send,
        };
        let terms = Terms {
            lane: Lane::Bulk,
            lease: Millis(1),
            longest_wait: Millis::from_secs(2),
            memory: Millis::from_secs(3_600),
            resend_after: None,
        };
        let claims = self.schedule.claim("dead", terms, &[ask]).await.unwrap();
        assert!(matches!(claims[..], [Claim::Go { .. }]), "{claims:?}");
        sleep(Millis(5).into()).await;
    }

    async fn find(&self, send_id: &str) -> Found {
        let mail = ("acme".parse().unwrap(), send_id.parse().unwrap());
        self.schedule.find(&[mail]).await.unwrap().remove(0)
    }
}

fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Moment(u64::try_from(since.as_millis()).unwrap())
}

/// Due now, by the real clock.
fn due(send_id: &str, attempts: u32) -> String {
    let Moment(ms) = now();
    body_with(
        send_id,
        &json!({ "slot_ms": ms, "cells": [[ms / 1000, 1]], "first_seen_ms": ms - 5_000, "attempts": attempts }),
    )
}

fn is_sent(found: &Found) -> bool {
    matches!(&found.claim, Some(Mark::Ended { how, .. }) if how == "sent")
}

#[tokio::test]
async fn a_shadowed_mail_is_marked_as_sent_and_goes_once() {
    let mut real = Real::new("on", World::default()).await;
    assert_eq!(real.handle(&[due("a", 0)]).await.get("Shadowed"), Some(1));
    assert!(is_sent(&real.find("a").await));
    let again = real.handle(&[due("a", 0)]).await;
    assert_eq!(again.get("Shadowed"), Some(0));
    assert_eq!(again.get("Duplicate"), Some(1));

    // Nor does it go once the deployment sends.
    real.settings.shadow = false;
    let live = real.handle(&[due("a", 0), due("b", 0)]).await;
    assert_eq!(
        (live.get("Duplicate"), live.get("Sent")),
        (Some(1), Some(1))
    );
    assert_eq!(real.world.sent(), ["b"]);
}

/// Bulk mail that may have been sent is parked, but in shadow none was.
#[tokio::test]
async fn what_a_worker_died_with_goes_through_at_once_in_shadow_alone() {
    for (shadow, counted) in [("on", "Shadowed"), ("off", "Uncertain")] {
        let mut real = Real::new(shadow, World::default()).await;
        real.dies("a").await;
        let metrics = real.handle(&[due("a", 0)]).await;
        assert_eq!(metrics.get(counted), Some(1), "{shadow}");
        assert_eq!(is_sent(&real.find("a").await), shadow == "on");
        assert_eq!(real.world.sent(), [""; 0], "{shadow}");
    }
}

#[tokio::test]
async fn whoever_looks_finds_what_was_rebooked_parked_and_dead_lettered() {
    let world = World {
        outcomes: [
            ("gives-up", Outcome::Unknown),
            ("off", Outcome::SetPaused),
            ("throttled", THROTTLED),
        ]
        .into(),
        ..World::default()
    };
    let mut real = Real::new("off", world).await;
    real.handle(&[due("gives-up", 9), due("throttled", 0)])
        .await;
    // It pauses its tenant, and what would be rebooked would be parked.
    real.handle(&[due("off", 0)]).await;

    let found = real.find("gives-up").await;
    assert_eq!((found.lane, found.cost), (Some(Lane::Bulk), Some(1)));
    let reason = "attempts_exhausted".to_owned();
    assert_eq!(found.steps.last().unwrap().what, What::Dead { reason });
    assert_eq!(found.claim, None, "free to go again");

    let found = real.find("off").await;
    let (_, parked) = real.world.parked().remove(0);
    assert_eq!(
        found.steps.last().unwrap().what,
        What::Parked {
            first_seen: Moment(parked["first_seen_ms"].as_u64().unwrap()),
            reason: "paused".to_owned(),
        }
    );

    let found = real.find("throttled").await;
    let What::Booked { slot, cells } = &found.steps.last().unwrap().what else {
        panic!("{found:?}")
    };
    let copies = real.world.copies();
    let (_, copy) = copies
        .iter()
        .find(|(_, copy)| copy["send_id"] == "throttled")
        .unwrap();
    assert_eq!(copy["slot_ms"], slot.0);
    assert_eq!(copy["cells"], json!([[cells[0].0.0, cells[0].1]]));
}
