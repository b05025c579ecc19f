//! On a real server: marks, the list, and pauses.

use feedback::Feedback;
use sendslot_domain::{Budget, Lane, Millis, Moment, budget::Settings, window::Caps};
use sendslot_schedule::{
    Claim, ClaimAsk, End, Ended, Ending, Keys, Purpose, Schedule, Seed, Tenant, Terms,
    testing::{Clocked, PrivateServer},
};

use crate::fakes::{NOW, Rig, batch, bounce, event, sent, settings, tenant};

const MEMORY: Millis = Millis::from_secs(86_400);

struct Real {
    _server: PrivateServer,
    schedule: Schedule,
    feedback: Feedback<Schedule, crate::fakes::Fake>,
    rig: Rig,
}

impl Real {
    async fn new() -> Self {
        let server = PrivateServer::start();
        let mut clocked = Clocked::new(&server, Keys::of("test").unwrap()).await;
        clocked.set(NOW).await.unwrap();
        let schedule = clocked.schedule.clone();
        let rate = |text: &str| text.parse().unwrap();
        let budget = Budget::new(Settings {
            limit: rate("100/s"),
            headroom: rate("0.9"),
            guard: rate("0.95"),
            burst: None,
            reserve: rate("0/s"),
            slice: rate("0"),
            caps: Caps::default(),
            horizon: Millis::from_secs(60),
        });
        let seed = Seed {
            source: "test".to_owned(),
            budget: budget.unwrap(),
            tenants: vec![(tenant("tenant-1"), Tenant::default())],
        };
        schedule.seed(&seed).await.unwrap();
        let set = r#"{"configuration_set":"tenant-1-set"}"#.to_owned();
        let tenants = [(tenant("tenant-1"), set)];
        schedule.write_tenants(&tenants).await.unwrap();
        let rig = Rig::new();
        Self {
            _server: server,
            feedback: Feedback::new(schedule.clone(), rig.fake.clone(), settings()),
            schedule,
            rig,
        }
    }

    async fn claim(&self, owner: &str) -> Claim {
        let ask = ClaimAsk {
            tenant: tenant("tenant-1"),
            send_id: "a".parse().unwrap(),
            fingerprint: "f".to_owned(),
            cost: 2,
            slot: Moment(NOW.0 - 1000),
            suspect_since: None,
            void: None,
            purpose: Purpose::Send,
        };
        let terms = Terms {
            lane: Lane::Bulk,
            lease: Millis::from_secs(60),
            longest_wait: Millis::from_secs(2),
            memory: MEMORY,
            resend_after: None,
        };
        self.schedule.claim(owner, terms, &[ask]).await.unwrap()[0]
    }

    async fn run(&self, bodies: &[String]) {
        let (response, _) = self.feedback.handle(batch(bodies), NOW).await;
        assert!(response.batch_item_failures.is_empty());
    }
}

#[tokio::test]
async fn an_event_settles_an_uncertain_claim() {
    let object = serde_json::json!({"timestamp": "2026-11-30T17:30:01Z"});
    let delivered = event("tenant-1", "a", "Delivery", "delivery", &object).to_string();
    // That it was delivered says that it was sent, should the event of that be lost.
    for body in [sent("tenant-1", "a"), delivered] {
        let real = Real::new().await;
        assert!(matches!(real.claim("w-1").await, Claim::Go { .. }));
        let end = End {
            tenant: tenant("tenant-1"),
            send_id: "a".parse().unwrap(),
            how: Ending::Uncertain,
            cost: 2,
        };
        real.schedule
            .commit("w-1", Lane::Bulk, MEMORY, &[end])
            .await
            .unwrap();
        let claim = real.claim("w-2").await;
        assert!(matches!(claim, Claim::Uncertain { .. }), "{claim:?}");
        real.run(&[body]).await;
        assert_eq!(real.claim("w-2").await, Claim::Ended(Ended::Sent));
    }
}

#[tokio::test]
async fn a_bad_list_is_paused_and_keeps_its_first_reason() {
    let real = Real::new().await;
    // Each mail goes to two, of whom one bounces.
    for part in 0..10 {
        let ids = (0..10).map(|mail| format!("{part}-{mail}"));
        let bodies: Vec<_> = ids
            .map(|id| bounce("tenant-1", &id, "Permanent", "General"))
            .collect();
        assert!(
            real.schedule.look().await.unwrap().paused.is_empty(),
            "{part}"
        );
        real.run(&bodies).await;
        // Handed over again, it counts no second time.
        real.run(&bodies).await;
    }
    let paused = real.schedule.look().await.unwrap().paused;
    assert_eq!((paused.len(), paused[0].until), (1, None));
    let reason = "bounces: 100 of 200 recipients in 1 h are 50.00 %, the limit is 10 % (feedback)";
    assert_eq!(paused[0].reason, reason);
    real.run(&[bounce("tenant-1", "late", "Permanent", "General")])
        .await;
    assert_eq!(real.schedule.look().await.unwrap().paused, paused);
    let switched = real.rig.fake.world().switched.clone();
    assert_eq!(switched, [("tenant-1-set".to_owned(), false)]);
}
