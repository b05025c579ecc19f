//! SES's count against ours.

use sendslot_domain::Millis;
use serde_json::{Value, json};

use crate::rig::{MINUTE, Rig, account};

#[tokio::test]
async fn fifty_foreign_sends_are_counted_exactly_and_shrink_the_days_quota() {
    let mut rig = Rig::new(&[]).await;
    // The account sent 300 before; then our own go, and all of them arrive in its count.
    rig.refresh(json!({ "account": account(50.0, 1_000.0, 300) }))
        .await;
    assert_eq!(rig.budget().await, ["50/s", "700", "account"]);
    rig.pass(MINUTE).await;
    rig.send(120).await;
    for _ in 0..4 {
        rig.pass(MINUTE).await; // learnt, and nothing is under way
    }
    let answer = rig
        .refresh(json!({ "account": account(50.0, 1_000.0, 420) }))
        .await;
    assert_eq!(
        (&answer["unscheduled"], &answer["sent_24h"]),
        (&json!(0), &json!(120))
    );
    assert_eq!(rig.budget().await, ["50/s", "700", "account"]);
    assert_eq!(rig.metric("UnscheduledSends"), 0);
    assert_eq!(rig.metric("QuotaUsedPercent"), 42.0);

    // Fifty go around it.
    let answer = rig.follow(account(50.0, 1_000.0, 470)).await;
    assert_eq!(answer["unscheduled"], 50);
    assert_eq!(rig.budget().await, ["50/s", "650", "account"]);
    assert_eq!(rig.metric("UnscheduledSends"), 50);
    assert_eq!(rig.metric("DailyQuota"), 1_000);
    assert_eq!(rig.metric("QuotaUsedPercent"), 47.0);
    let status = rig.ask(json!({ "action": "status" })).await;
    assert_eq!(
        (&status["unscheduled"], &status["sent_24h"]),
        (&json!(50), &json!(120))
    );
    // What the schedule gives out then is what is left: our own 120 were no bookings here.
    assert_eq!(rig.booked("acme", 1_000).await, 650);

    // They stay while SES doesn't answer, and aren't counted twice.
    for _ in 0..3 {
        rig.pass(MINUTE).await;
        let answer = rig.refresh(json!({ "error": "timeout" })).await;
        assert_eq!(answer["unscheduled"], 50);
        assert_eq!(rig.metric("UnscheduledSends"), Value::Null);
        assert_eq!(rig.word("daily_quota").await, "650");
    }
    let answer = rig.follow(account(50.0, 1_000.0, 470)).await;
    assert_eq!(answer["unscheduled"], 50);
}

#[tokio::test]
async fn an_answer_that_is_not_believed_has_no_count_to_believe() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(50.0, 50_000.0, 9_000) }))
        .await;
    for _ in 0..4 {
        rig.follow(account(50.0, 50_000.0, 9_000)).await;
    }
    let before = rig.budget().await;
    assert_eq!(before[1], "41000");
    for wrong in [account(0.0, 0.0, 0), account(1.0, 200.0, 0)] {
        let answer = rig.follow(wrong).await;
        assert_eq!(answer["unscheduled"], 0);
        assert_eq!(rig.budget().await, before);
        let answer = rig.follow(account(50.0, 50_000.0, 9_000)).await;
        assert_eq!(
            answer["unscheduled"], 0,
            "what was there before is taken for others' mail"
        );
    }
}

#[tokio::test]
async fn a_quota_used_up_by_others_leaves_room_for_any_one_message() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(14.0, 200.0, 250) }))
        .await;
    assert_eq!(rig.word("daily_quota").await, "100");
    assert_eq!(rig.booked("acme", 120).await, 100);
}

/// A bound of our own is one on what goes through the schedule: what others send doesn't count against it.
#[tokio::test]
async fn others_do_not_use_up_a_bound_of_our_own() {
    let mut rig = Rig::new(&[("SENDSLOT_DAILY_QUOTA", "1000")]).await;
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 5_000) }))
        .await;
    assert_eq!(rig.word("daily_quota").await, "1000");
    rig.follow(account(14.0, 50_000.0, 49_400)).await;
    assert_eq!(rig.word("daily_quota").await, "600");
}

#[tokio::test]
async fn what_we_send_ourselves_is_never_unscheduled() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(50.0, 50_000.0, 40) }))
        .await;
    let mut sent = 40;
    for _ in 0..10 {
        // SES counts a minute late.
        let late = sent;
        rig.send(100).await;
        sent += 100;
        rig.pass(Millis::from_secs(50)).await;
        let answer = rig
            .refresh(json!({ "account": account(50.0, 50_000.0, late) }))
            .await;
        assert_eq!(answer["unscheduled"], 0);
    }
}
