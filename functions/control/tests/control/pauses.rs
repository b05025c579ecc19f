//! Who may not send, by whose word.

use std::time::Duration;

use sendslot_domain::Millis;
use sendslot_runtime::{Metrics, switch::SwitchError};
use sendslot_schedule::{Booking, Claim};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::{
    requests::failure,
    rig::{MINUTE, Rig, account, tenant},
};

const TENANTS: [(&str, &str); 1] = [(
    "SENDSLOT_TENANTS",
    "acme=acme-set,beta=beta-set,one=shared,two=shared,bare",
)];

/// A deployment of five tenants with a budget.
async fn rig() -> Rig {
    let mut rig = Rig::new(&TENANTS).await;
    rig.refresh(json!({ "account": account(100.0, 50_000.0, 0), "final": true }))
        .await;
    rig
}

fn paused(tenants: &[&str], since: u64, reason: &str) -> Value {
    json!({
        "tenants": tenants, "already": false, "since_ms": since, "reason": reason, "not_switched": [],
    })
}

fn already(mut answer: Value) -> Value {
    answer["already"] = true.into();
    answer
}

fn not_switched(mut answer: Value, set: &str) -> Value {
    answer["not_switched"] = json!([set]);
    answer
}

async fn is_paused(rig: &mut Rig, name: &str) -> bool {
    matches!(rig.claim(name, 1).await, Claim::Paused { .. })
}

/// The names in Redis' hash of pauses, with what they hold.
async fn in_redis(rig: &Rig, name: &str) -> Option<String> {
    let paused = rig.hash("paused").await.remove(name);
    paused.map(|value| String::from_utf8(value).unwrap())
}

fn counted(metrics: Option<&Metrics>, name: &str) -> Option<u64> {
    metrics?.get(name)
}

#[tokio::test]
async fn while_nobody_knows_who_there_is_anybody_can_be_paused() {
    let mut rig = Rig::new(&[]).await;
    let gamma = json!({ "action": "pause", "tenant": "gamma", "reason": "x" });
    rig.ask(gamma).await;
    // But not resumed: its set isn't known.
    let resume = json!({ "action": "resume", "tenant": "gamma" }).to_string();
    let (code, message) = failure(&rig, &resume).await;
    assert_eq!(code, "unknown_tenant");
    assert!(message.contains("after the next refresh"), "{message}");
    let tenants = json!([{ "name": "gamma", "settings": {} }]);
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0), "tenants": tenants }))
        .await;
    assert!(matches!(rig.claim("gamma", 1).await, Claim::Paused { .. }));
}

#[tokio::test]
async fn a_paused_tenant_sends_nothing_until_it_is_resumed() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({
        "account": account(14.0, 50_000.0, 0), "tenants": [{ "name": "gamma", "settings": {} }],
    }))
    .await;
    for name in ["acme", "gamma"] {
        rig.pass(Millis::from_secs(5)).await;
        assert_eq!(rig.booked(name, 20).await, 20);
        let since = rig.now.0;
        let pause = json!({ "action": "pause", "tenant": name, "reason": "complaints", "caller": "auto-pause" });
        let answer = rig.ask(pause.clone()).await;
        assert_eq!(answer, paused(&[name], since, "complaints (auto-pause)"));
        assert!(matches!(
            rig.claim(name, 1).await,
            Claim::Paused { left: None }
        ));
        assert!(matches!(rig.claim("beta", 1).await, Claim::Go { .. }));
        rig.pass(Millis::from_secs(1)).await; // what has begun stays
        assert_eq!(
            rig.schedule().look().await.unwrap().booked,
            [0, 0],
            "its cells are given back"
        );
        // The first pause stands, with its reason.
        rig.pass(Millis::from_secs(5)).await;
        let again = json!({ "action": "pause", "tenant": name, "reason": "by hand" });
        let answer = rig.ask(again).await;
        assert_eq!(
            answer,
            already(paused(&[name], since, "complaints (auto-pause)"))
        );

        let resume = json!({ "action": "resume", "tenant": name, "caller": "operator" });
        assert_eq!(
            rig.ask(resume.clone()).await,
            json!({ "tenant": name, "was_paused": true, "rate": 3.15 })
        );
        assert!(matches!(rig.claim(name, 1).await, Claim::Go { .. }));
        assert_eq!(
            rig.ask(resume).await,
            json!({ "tenant": name, "was_paused": false, "rate": 3.15 })
        );
    }
}

/// Whoever is gone from the deployment can be let go.
#[tokio::test]
async fn a_paused_tenant_that_is_gone_can_be_resumed() {
    let mut rig = Rig::new(&[]).await;
    rig.refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await;
    rig.ask(json!({ "action": "pause", "tenant": "acme", "reason": "moving out" }))
        .await;
    rig.redeploy(&[("SENDSLOT_TENANTS", "beta")]);
    let answer = rig
        .ask(json!({ "action": "resume", "tenant": "acme" }))
        .await;
    assert_eq!(answer["was_paused"], true);
    let request = json!({ "action": "resume", "tenant": "acme" }).to_string();
    assert_eq!(failure(&rig, &request).await.0, "unknown_tenant");
}

#[tokio::test]
async fn a_pause_switches_the_set_off_after_redis_knows() {
    let mut rig = rig().await;
    let pause =
        json!({ "action": "pause", "tenant": "acme", "reason": "complaints", "caller": "me" });
    // However long SES takes, nothing goes meanwhile.
    rig.diary.takes("switch", Duration::from_hours(1));
    let text = pause.to_string();
    assert!(
        timeout(Duration::from_millis(500), rig.handle(&text))
            .await
            .is_err()
    );
    assert!(is_paused(&mut rig, "acme").await);
    assert_eq!(rig.sets.calls(), [("acme-set".to_owned(), false)]);
    rig.diary.takes("switch", Duration::ZERO);

    // Asked again, it is tried again.
    let since = rig.now.0;
    rig.pass(MINUTE).await;
    let stands = already(paused(&["acme"], since, "complaints (me)"));
    rig.sets.fail(Some(SwitchError::Failed("throttled".into())));
    let answer = rig.ask(pause.clone()).await;
    assert_eq!(answer, not_switched(stands.clone(), "acme-set"));
    assert_eq!(counted(rig.metrics.as_ref(), "NotSwitched"), Some(1));
    assert_eq!(counted(rig.metrics.as_ref(), "TenantsPaused"), Some(0));
    rig.sets.fail(None);
    assert_eq!(rig.ask(pause).await, stands);
    assert_eq!(counted(rig.metrics.as_ref(), "NotSwitched"), Some(0));
    assert!(rig.sets.is_off("acme-set"));
    assert_eq!(
        in_redis(&rig, "acme").await,
        Some(format!("1|0|{since}|complaints (me)"))
    );
}

#[tokio::test]
async fn a_pause_that_fails_at_ses_stands_in_redis_and_is_metered() {
    let mut rig = rig().await;
    rig.sets.fail(Some(SwitchError::Failed("throttled".into())));
    let pause = json!({ "action": "pause", "tenant": "acme", "reason": "x", "caller": "me" });
    let answer = rig.ask(pause).await;
    assert_eq!(
        answer,
        not_switched(paused(&["acme"], rig.now.0, "x (me)"), "acme-set")
    );
    assert_eq!(counted(rig.metrics.as_ref(), "TenantsPaused"), Some(1));
    assert_eq!(counted(rig.metrics.as_ref(), "NotSwitched"), Some(1));
    assert!(is_paused(&mut rig, "acme").await);

    // Nothing goes through a set that isn't there; a tenant without one has none to switch.
    rig.sets.calls();
    rig.sets.fail(Some(SwitchError::Missing));
    for (name, calls) in [("beta", 1), ("bare", 0)] {
        let answer = rig
            .ask(json!({ "action": "pause", "tenant": name, "reason": "x", "caller": "me" }))
            .await;
        assert_eq!(answer, paused(&[name], rig.now.0, "x (me)"));
        assert_eq!(counted(rig.metrics.as_ref(), "NotSwitched"), Some(0));
        assert_eq!(rig.sets.calls().len(), calls);
    }
}

#[tokio::test]
async fn a_set_is_paused_with_all_its_tenants() {
    let mut rig = rig().await;
    rig.ask(json!({ "action": "pause", "tenant": "two", "reason": "first", "caller": "me" }))
        .await;
    // Others send through its set.
    assert_eq!(rig.sets.calls(), []);
    let first = rig.now.0;
    rig.pass(MINUTE).await;
    let pause = json!({
        "action": "pause", "configuration_set": "shared", "reason": "alarm", "caller": "auto-pause",
    });
    let answer = rig.ask(pause.clone()).await;
    assert_eq!(
        answer,
        paused(&["one", "two"], rig.now.0, "alarm (auto-pause)")
    );
    assert_eq!(counted(rig.metrics.as_ref(), "TenantsPaused"), Some(1));
    assert_eq!(rig.sets.calls(), [("shared".to_owned(), false)]);
    for (name, is) in [
        ("one", true),
        ("two", true),
        ("acme", false),
        ("bare", false),
    ] {
        assert_eq!(is_paused(&mut rig, name).await, is, "{name}");
    }
    assert_eq!(
        in_redis(&rig, "two").await,
        Some(format!("1|0|{first}|first (me)"))
    );

    let mut switched = pause.clone();
    switched["switched"] = true.into();
    let answer = rig.ask(switched).await;
    assert_eq!(
        answer,
        already(paused(&["one", "two"], first, "first (me)"))
    );
    assert_eq!(rig.sets.calls(), [], "the caller has done it");

    let unknown =
        json!({ "action": "pause", "configuration_set": "other", "reason": "x" }).to_string();
    let (code, message) = failure(&rig, &unknown).await;
    assert_eq!(code, "unknown_set");
    assert!(message.contains("\"other\""), "{message}");
    assert_eq!(rig.hash("paused").await.len(), 2);
    assert_eq!(rig.sets.calls(), []);
}

#[tokio::test]
async fn one_tenant_of_a_shared_set_leaves_it_on_for_the_others() {
    let mut rig = rig().await;
    let pause =
        |name: &str| json!({ "action": "pause", "tenant": name, "reason": "x", "caller": "me" });
    let answer = rig.ask(pause("one")).await;
    assert_eq!(
        answer,
        not_switched(paused(&["one"], rig.now.0, "x (me)"), "shared")
    );
    assert_eq!(
        counted(rig.metrics.as_ref(), "NotSwitched"),
        Some(0),
        "nothing has failed"
    );
    assert!(!rig.sets.is_off("shared"));
    // A pause that ends by itself isn't one that the set must keep.
    rig.schedule()
        .pause(&tenant("one"), Some(MINUTE), "x")
        .await
        .unwrap();
    let answer = rig.ask(pause("two")).await;
    assert_eq!(answer, paused(&["two"], rig.now.0, "x (me)"));
    assert!(rig.sets.is_off("shared"));
    // One of them is let go: it can send.
    rig.ask(json!({ "action": "resume", "tenant": "one" }))
        .await;
    assert!(!rig.sets.is_off("shared"));
    assert!(!is_paused(&mut rig, "one").await);
    assert!(is_paused(&mut rig, "two").await);
}

#[tokio::test]
async fn the_account_is_blocked_for_a_while_and_nobodys_pause_changes() {
    let mut rig = rig().await;
    rig.ask(json!({ "action": "pause", "tenant": "acme", "reason": "x", "caller": "me" }))
        .await;
    rig.sets.calls();
    let before = rig.hash("paused").await;
    let pause =
        json!({ "action": "pause", "account": true, "reason": "alarm", "caller": "auto-pause" });
    let answer = rig.ask(pause.clone()).await;
    assert_eq!(answer, paused(&[], rig.now.0, "alarm (auto-pause)"));
    assert_eq!(counted(rig.metrics.as_ref(), "TenantsPaused"), Some(0));
    assert_eq!(rig.hash("paused").await, before);
    assert_eq!(rig.sets.calls(), []);
    let bookings = rig.try_book("beta", 1).await.unwrap();
    assert!(
        matches!(bookings[0], Booking::Blocked(Millis(120_000))),
        "{bookings:?}"
    );
    assert!(matches!(rig.claim("beta", 1).await, Claim::Blocked { .. }));
    let status = rig.ask(json!({ "action": "status" })).await;
    assert_eq!(status["blocked"]["reason"], "sending_disabled");
    assert_eq!(rig.ask(pause).await["already"], true);

    // A refresh that finds the account may send lifts it.
    rig.refresh(json!({ "account": account(100.0, 50_000.0, 0), "final": true }))
        .await;
    assert!(matches!(rig.claim("beta", 1).await, Claim::Go { .. }));
    assert!(is_paused(&mut rig, "acme").await);
}

#[tokio::test]
async fn whom_a_pause_is_of_is_said_once() {
    let mut rig = rig().await;
    let before = rig.everything().await;
    for whom in [
        json!({}),
        json!({ "tenant": "", "configuration_set": "", "account": false }),
        json!({ "tenant": "acme", "configuration_set": "acme-set" }),
        json!({ "tenant": "acme", "account": true }),
        json!({ "configuration_set": "acme-set", "account": true }),
    ] {
        let mut request = json!({ "action": "pause", "reason": "x" });
        for (name, value) in whom.as_object().unwrap() {
            request[name] = value.clone();
        }
        let (code, message) = failure(&rig, &request.to_string()).await;
        assert_eq!(code, "bad_field", "{whom}");
        assert!(message.contains("exactly one"), "{message}");
    }
    assert_eq!(rig.everything().await, before);
    // An empty one is none.
    let answer = rig
        .ask(json!({ "action": "pause", "tenant": "", "configuration_set": "acme-set", "reason": "x", "caller": "a\nb" }))
        .await;
    assert_eq!(answer, paused(&["acme"], rig.now.0, "x (a b)"));
}

#[tokio::test]
async fn a_set_comes_on_before_its_tenant_is_resumed() {
    let mut rig = rig().await;
    rig.ask(json!({ "action": "pause", "tenant": "acme", "reason": "x" }))
        .await;
    rig.sets.calls();
    let resume = json!({ "action": "resume", "tenant": "acme", "caller": "me" });
    rig.diary.takes("switch", Duration::from_hours(1));
    let text = resume.to_string();
    assert!(
        timeout(Duration::from_millis(500), rig.handle(&text))
            .await
            .is_err()
    );
    assert_eq!(rig.sets.calls(), [("acme-set".to_owned(), true)]);
    assert!(is_paused(&mut rig, "acme").await);
    rig.diary.takes("switch", Duration::ZERO);

    // If it can't be switched on, nothing is resumed.
    rig.sets.fail(Some(SwitchError::Failed("throttled".into())));
    let before = rig.everything().await;
    let (answer, metrics) = rig.handle(&text).await;
    assert_eq!(answer["error"]["code"], "set_not_switched", "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("acme-set") && message.contains("throttled"),
        "{message}"
    );
    assert_eq!(counted(metrics.as_ref(), "NotSwitched"), Some(1));
    assert_eq!(rig.everything().await, before);
    assert!(is_paused(&mut rig, "acme").await);

    // One that isn't there is no reason.
    rig.sets.fail(Some(SwitchError::Missing));
    assert_eq!(rig.ask(resume.clone()).await["was_paused"], true);
    assert!(!is_paused(&mut rig, "acme").await);

    // Whoever wasn't paused has its set switched on all the same.
    rig.sets.fail(None);
    rig.sets.off.lock().unwrap().insert("acme-set".into());
    assert_eq!(rig.ask(resume).await["was_paused"], false);
    assert!(!rig.sets.is_off("acme-set"));
    rig.sets.calls();
    rig.ask(json!({ "action": "resume", "tenant": "bare" }))
        .await;
    assert_eq!(rig.sets.calls(), []);
}

#[tokio::test]
async fn a_resume_says_how_fast_what_is_parked_goes() {
    let mut rig = rig().await;
    for (rate, is) in [
        (json!("20/s"), 20.0),
        (json!("36/h"), 0.01),
        // No more than what may be sent; without a word, a quarter of that.
        (json!("1000/s"), 90.0),
        (Value::Null, 22.5),
    ] {
        let answer = rig
            .ask(json!({ "action": "resume", "tenant": "acme", "rate": rate, "reason": "fixed" }))
            .await;
        assert_eq!(
            answer,
            json!({ "tenant": "acme", "was_paused": false, "rate": is })
        );
        let held = rig.hash("replays").await.remove("acme").unwrap();
        let held = String::from_utf8(held).unwrap();
        let rate: f64 = held.split('|').nth(1).unwrap().parse().unwrap();
        assert!((rate - is).abs() < 1e-9, "{held}");
    }
    rig.follow(account(1.0, 50_000.0, 0)).await;
    let mut slow = Rig::new(&[]).await;
    slow.refresh(json!({ "account": account(2.0, 50_000.0, 0) }))
        .await;
    let answer = slow
        .ask(json!({ "action": "resume", "tenant": "acme" }))
        .await;
    assert_eq!(answer["rate"], 1.0, "at least one a second");
    let long = json!({ "action": "resume", "tenant": "acme", "reason": "x".repeat(201) });
    assert_eq!(failure(&rig, &long.to_string()).await.0, "bad_field");
}

#[tokio::test]
async fn what_hangs_is_given_up_after_ten_seconds() {
    let rig = rig().await;
    rig.diary.takes("switch", Duration::from_hours(1));
    let start = Instant::now();
    let (pause, resume) = tokio::join!(
        rig.handle("{\"action\": \"pause\", \"tenant\": \"acme\", \"reason\": \"x\"}"),
        rig.handle("{\"action\": \"resume\", \"tenant\": \"beta\"}"),
    );
    for (answer, _) in [pause, resume] {
        assert_eq!(answer["error"]["code"], "timeout", "{answer}");
    }
    assert!(
        (9..12).contains(&start.elapsed().as_secs()),
        "{:?}",
        start.elapsed()
    );
}
