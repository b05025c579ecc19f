//! Tenants as deployed and by their parameters.

use sendslot_domain::Millis;
use sendslot_schedule::Booking;
use serde_json::{Value, json};

use crate::rig::{MINUTE, Rig, account, tenant};

const DEPLOYED: [(&str, &str); 1] = [("SENDSLOT_TENANTS", "acme=deployed-set:3,beta")];

/// A tenant's numbers in the budget: weight, cap of an hour, cap of a day.
async fn numbers(rig: &Rig, name: &str) -> Option<[f64; 3]> {
    let packed = rig.hash("budget").await.remove(&format!("tenant:{name}"))?;
    let number = |at: usize| f64::from_be_bytes(packed[8 * at..8 * at + 8].try_into().unwrap());
    Some([number(0), number(1), number(2)])
}

async fn set(rig: &Rig, name: &str) -> Option<Option<String>> {
    rig.schedule()
        .sets(&[tenant(name)])
        .await
        .unwrap()
        .remove(0)
}

fn parameter(name: &str, settings: impl Into<Value>) -> Value {
    json!([{ "name": name, "settings": settings.into() }])
}

fn add(tenants: &mut Value, one: Value) {
    tenants.as_array_mut().unwrap().push(one);
}

async fn with(rig: &mut Rig, tenants: Value) -> Value {
    rig.pass(MINUTE).await;
    let told = json!({ "account": account(14.0, 50_000.0, 0), "tenants": tenants, "final": true });
    rig.refresh(told).await
}

#[tokio::test]
async fn a_parameter_goes_before_what_is_deployed_until_it_is_gone() {
    let mut rig = Rig::new(&DEPLOYED).await;
    with(&mut rig, json!([])).await;
    assert_eq!(numbers(&rig, "acme").await, Some([3.0, 0.0, 0.0]));
    assert_eq!(set(&rig, "acme").await, Some(Some("deployed-set".into())));
    assert_eq!(
        (numbers(&rig, "gamma").await, set(&rig, "gamma").await),
        (None, None)
    );

    let own = json!({ "version": 1, "configuration_set": "own-set", "weight": 7, "hourly_cap": 10, "daily_cap": 20,
        "a field of another version": [] });
    let mut tenants = parameter("acme", own);
    add(&mut tenants, json!({ "name": "gamma", "settings": {} }));
    with(&mut rig, tenants).await;
    assert_eq!(numbers(&rig, "acme").await, Some([7.0, 10.0, 20.0]));
    assert_eq!(set(&rig, "acme").await, Some(Some("own-set".into())));
    assert_eq!(numbers(&rig, "gamma").await, Some([1.0, 0.0, 0.0]));
    assert_eq!(set(&rig, "gamma").await, Some(None));
    assert_eq!(rig.booked("acme", 50).await, 10);
    assert_eq!(rig.booked("gamma", 50).await, 50);

    // Two that are gone at once are believed to be when it is said three times.
    for _ in 0..3 {
        with(&mut rig, json!([])).await;
    }
    assert_eq!(numbers(&rig, "acme").await, Some([3.0, 0.0, 0.0]));
    assert_eq!(set(&rig, "acme").await, Some(Some("deployed-set".into())));
    assert_eq!(
        (numbers(&rig, "gamma").await, set(&rig, "gamma").await),
        (None, None)
    );
    assert_eq!(
        rig.try_book("gamma", 1).await.unwrap(),
        [Booking::UnknownTenant]
    );
}

#[tokio::test]
async fn what_is_not_told_stays() {
    let mut rig = Rig::new(&DEPLOYED).await;
    with(&mut rig, parameter("gamma", json!({ "weight": 5 }))).await;
    let before = (rig.hash("budget").await, rig.hash("sets").await);
    for told in [Value::Null, Value::Null] {
        with(&mut rig, told).await;
        assert_eq!((rig.hash("budget").await, rig.hash("sets").await), before);
    }
    assert_eq!(rig.metric("TenantsInvalid"), Value::Null);
}

#[tokio::test]
async fn a_bad_parameter_is_named_and_the_last_good_one_stays() {
    let mut rig = Rig::new(&DEPLOYED).await;
    with(
        &mut rig,
        parameter(
            "gamma",
            json!({ "weight": 5, "configuration_set": "gamma-set" }),
        ),
    )
    .await;
    let before = rig.hash("budget").await;
    let step = |day: u64, cap: u64, per: &str| json!({ "day": day, "cap": cap, "per": per });
    let warm_up =
        |start: &str, steps: Value| json!({ "warm_up": { "start": start, "schedule": steps } });
    for (bad, says) in [
        (json!("weight: 5"), "no JSON"),
        (Value::Null, "null"),
        (json!([1]), "a list"),
        (json!({ "version": 2 }), "version is 2"),
        (json!({ "weight": 0 }), "weight is 0"),
        (json!({ "weight": 1001 }), "weight is 1001"),
        (json!({ "weight": "5" }), "weight: "),
        (json!({ "weight": 1.5 }), "weight: "),
        (json!({ "hourly_cap": 0 }), "hourly_cap is 0"),
        (json!({ "daily_cap": -1 }), "daily_cap: "),
        (
            json!({ "configuration_set": "a set" }),
            "configuration_set: ",
        ),
        (json!({ "warm_up": { "start": "2026-11-30" } }), "schedule"),
        (
            warm_up("30.11.2026", json!([step(1, 20, "hour")])),
            "warm_up.start: ",
        ),
        (warm_up("2026-11-30", json!([])), "warm_up.schedule: "),
        (warm_up("2026-11-30", json!([step(1, 20, "week")])), "week"),
        (
            warm_up(
                "2026-11-30",
                json!([step(2, 20, "day"), step(1, 20, "day")]),
            ),
            "step 2",
        ),
    ] {
        let answer = with(&mut rig, parameter("gamma", bad.clone())).await;
        let invalid = &answer["invalid_tenants"];
        assert_eq!(invalid.as_array().unwrap().len(), 1, "{bad}");
        assert_eq!(
            (&invalid[0]["name"], &invalid[0]["kept"]),
            (&json!("gamma"), &json!(true))
        );
        let problem = invalid[0]["problem"].as_str().unwrap();
        assert!(problem.contains(says), "{problem:?} lacks {says:?}");
        assert_eq!(rig.metric("TenantsInvalid"), 1);
        assert_eq!(rig.hash("budget").await, before, "{bad}");
    }
    assert_eq!(set(&rig, "gamma").await, Some(Some("gamma-set".into())));

    // One that was never good is named, and stands in nobody's way.
    let mut tenants = parameter("delta", json!({ "weight": 0 }));
    add(&mut tenants, json!({ "name": "no name", "settings": {} }));
    add(
        &mut tenants,
        json!({ "name": "gamma", "settings": { "weight": 6 } }),
    );
    let answer = with(&mut rig, tenants).await;
    let named: Vec<_> = answer["invalid_tenants"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    assert_eq!(named, ["delta", "no name"]);
    assert_eq!(answer["invalid_tenants"][0]["kept"], false);
    assert_eq!(rig.metric("TenantsInvalid"), 2);
    assert_eq!(numbers(&rig, "gamma").await, Some([6.0, 0.0, 0.0]));
    assert_eq!(numbers(&rig, "delta").await, None);
    // A deployed tenant's bad parameter leaves it as deployed.
    with(&mut rig, parameter("acme", json!({ "weight": 0 }))).await;
    assert_eq!(numbers(&rig, "acme").await, Some([3.0, 0.0, 0.0]));
}

#[tokio::test]
async fn a_warm_up_caps_by_the_day() {
    let mut rig = Rig::new(&[]).await;
    // The clock begins on 2026-11-30 at 17:30.
    let settings = json!({ "hourly_cap": 25, "warm_up": { "start": "2026-11-30", "ends": 5, "schedule": [
        { "day": 1, "cap": 20, "per": "hour" }, { "day": 2, "cap": 30, "per": "hour" }, { "day": 4, "cap": 35, "per": "day" },
    ] } });
    with(&mut rig, parameter("gamma", settings)).await;
    let day = Millis::from_secs(86_400);
    // Its own cap holds besides: 25 in any hour.
    for (of_day, expected, bookable) in [
        (1, [1.0, 20.0, 0.0], 20),
        (2, [1.0, 25.0, 0.0], 25),
        (3, [1.0, 25.0, 0.0], 25),
        (4, [1.0, 25.0, 35.0], 25), // a day is counted from when it has a cap
        (5, [1.0, 25.0, 35.0], 25),
        (6, [1.0, 25.0, 0.0], 25),
    ] {
        // No tenants are handed in: the date alone moves the caps.
        rig.refresh(json!({ "error": "timeout" })).await;
        assert_eq!(numbers(&rig, "gamma").await, Some(expected), "day {of_day}");
        let booked = rig.booked("gamma", 60).await;
        assert_eq!(booked, bookable, "day {of_day}");
        if of_day == 4 {
            rig.pass(Millis::from_secs(7_200)).await;
            assert_eq!(
                rig.booked("gamma", 60).await,
                10,
                "what the day's cap leaves"
            );
            rig.pass(Millis(day.0 - 7_200_000)).await;
        } else {
            rig.pass(day).await;
        }
    }
}

#[tokio::test]
async fn a_deployment_without_tenants_says_so() {
    let mut rig = Rig::new(&[("SENDSLOT_TENANTS", "")]).await;
    let answer = with(&mut rig, json!([])).await;
    assert!(answer["warnings"].to_string().contains("SENDSLOT_TENANTS"));
    assert_eq!(rig.budget().await, ["14/s", "50000", "account"]);
    assert_eq!(
        rig.try_book("acme", 1).await.unwrap(),
        [Booking::UnknownTenant]
    );
    let answer = with(&mut rig, parameter("acme", json!({}))).await;
    assert_eq!(answer["warnings"], json!([]));
    assert_eq!(rig.booked("acme", 1).await, 1);
}
