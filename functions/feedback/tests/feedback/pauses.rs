//! Who is paused, and what happens when that fails.

use serde_json::json;
use tokio::time::Instant;

use crate::fakes::{Rig, bounce, complaint, sent, tenant};

fn bad(name: &str, send_id: &str) -> String {
    bounce(name, send_id, "Permanent", "General")
}

#[tokio::test(start_paused = true)]
async fn the_event_that_crosses_a_threshold_pauses_its_tenant_and_no_other() {
    let rig = Rig::new();
    rig.had("tenant-1", 198, 19, 0);
    let handled = rig.run(&[bad("tenant-1", "a"), bad("tenant-2", "b")]).await;
    assert_eq!(
        (handled.count("TenantsPaused"), handled.count("NotSwitched")),
        (1, 0)
    );
    assert_eq!(handled.back, [""; 0]);
    let reason = "bounces: 20 of 200 recipients in 1 h are 10.00 %, the limit is 10 % (feedback)";
    {
        let world = rig.fake.world();
        assert_eq!(world.pauses, [("tenant-1".to_owned(), reason.to_owned())]);
        assert_eq!(world.switched, [("tenant-1-set".to_owned(), false)]);
    }
    // What was under way still bounces: neither its reason nor its switch is touched.
    let handled = rig.run(&[bad("tenant-1", "c")]).await;
    assert_eq!(handled.count("TenantsPaused"), 0);
    let world = rig.fake.world();
    assert_eq!((world.pauses.len(), world.switched.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn few_mails_and_what_does_not_count_pause_nobody() {
    let rig = Rig::new();
    let mails = ["a", "b", "c"].map(|id| sent("tenant-1", id));
    let handled = rig
        .run(&[&mails[..], &[bad("tenant-1", "a")]].concat())
        .await;
    assert_eq!(
        (
            handled.count("TenantsPaused"),
            handled.count("TenantsWarned")
        ),
        (0, 0)
    );
    rig.had("tenant-1", 198, 19, 4);
    let harmless = [
        bounce("tenant-1", "d", "Transient", "General"),
        bounce("tenant-1", "e", "Permanent", "OnAccountSuppressionList"),
        complaint(
            "tenant-1",
            "f",
            &json!({"complaintFeedbackType": "not-spam"}),
        ),
    ];
    let handled = rig.run(&harmless).await;
    assert_eq!(handled.count("TenantsPaused"), 0);
    assert_eq!(
        ["BouncedTransient", "BouncedSuppressed"].map(|name| handled.count(name)),
        [1, 1]
    );
    assert!(rig.fake.world().pauses.is_empty());
}

#[tokio::test(start_paused = true)]
async fn each_tenant_has_its_own_thresholds_and_half_of_one_warns_once() {
    let rig = Rig::new();
    let strict = r#"{"thresholds":{"complaint_hour":{"ppm":1000,"sent":10,"events":1}}}"#;
    rig.fake
        .world()
        .tenants
        .insert("tenant-2", strict.to_owned());
    rig.had("tenant-1", 198, 0, 2);
    rig.had("tenant-2", 198, 0, 0);
    let of = |name, id| complaint(name, id, &json!({}));
    let handled = rig
        .run(&[
            of("tenant-1", "a"),
            of("tenant-1", "a"),
            of("tenant-2", "b"),
        ])
        .await;
    assert_eq!(
        (
            handled.count("TenantsWarned"),
            handled.count("TenantsPaused")
        ),
        (1, 1)
    );
    let world = rig.fake.world();
    assert_eq!(world.pauses[0].0, "tenant-2");
    // It has no configuration set.
    assert!(world.switched.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_failed_brings_back_what_led_to_it_and_is_made_then() {
    for call in ["paused", "pause", "hangs-paused", "hangs-pause"] {
        let rig = Rig::new();
        rig.had("tenant-1", 196, 19, 0);
        rig.fail(&[call]);
        let bodies = [
            sent("tenant-1", "z"),
            bad("tenant-2", "b"),
            bad("tenant-1", "a"),
        ];
        let handled = rig.run(&bodies).await;
        assert_eq!(handled.back, ["2"], "{call}");
        assert_eq!(
            (
                handled.count("TenantsPaused"),
                rig.fake.world().switched.len()
            ),
            (0, 0)
        );
        rig.fail(&[]);
        let handled = rig.run(&bodies[2..]).await;
        assert_eq!(handled.count("Duplicate"), 1, "{call}");
        assert_eq!(
            (handled.count("TenantsPaused"), handled.back.len()),
            (1, 0),
            "{call}"
        );
        assert!(rig.fake.world().paused.contains(&tenant("tenant-1")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_failed_leaves_the_pause_and_brings_nothing_back() {
    for call in ["switch", "hangs-switch"] {
        let rig = Rig::new();
        rig.had("tenant-1", 198, 19, 0);
        rig.fail(&[call]);
        let start = Instant::now();
        let handled = rig.run(&[bad("tenant-1", "a")]).await;
        assert!(start.elapsed().as_secs() <= 3, "{call}");
        assert_eq!(handled.back, [""; 0], "{call}");
        assert_eq!(
            (handled.count("TenantsPaused"), handled.count("NotSwitched")),
            (1, 1)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_that_others_send_through_is_left_on() {
    let rig = Rig::new();
    let shared = r#"{"configuration_set":"tenant-1-set","shares_set":true}"#;
    rig.fake
        .world()
        .tenants
        .insert("tenant-1", shared.to_owned());
    rig.had("tenant-1", 198, 19, 0);
    let handled = rig.run(&[bad("tenant-1", "a")]).await;
    assert_eq!(
        (handled.count("TenantsPaused"), handled.count("NotSwitched")),
        (1, 0)
    );
    assert!(rig.fake.world().switched.is_empty());
}
