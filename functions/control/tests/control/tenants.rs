//! Tenants as deployed and by their parameters.

use sendslot_domain::Millis;
use sendslot_runtime::{
    TenantSettings,
    tenant::{LimitSettings, ListUnsubscribe, ThresholdSettings},
};
use sendslot_schedule::Booking;
use serde_json::{Value, json};

use crate::rig::{MINUTE, Rig, account};

const DEPLOYED: [(&str, &str); 1] = [("SENDSLOT_TENANTS", "acme=deployed-set:3,beta")];

/// A tenant's numbers in the budget: weight, cap of an hour, cap of a day.
async fn numbers(rig: &Rig, name: &str) -> Option<[f64; 3]> {
    let packed = rig.hash("budget").await.remove(&format!("tenant:{name}"))?;
    let number = |at: usize| f64::from_be_bytes(packed[8 * at..8 * at + 8].try_into().unwrap());
    Some([number(0), number(1), number(2)])
}

async fn set(rig: &Rig, name: &str) -> Option<Option<String>> {
    rig.told(name).await.map(|told| told.configuration_set)
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
    assert!(!rig.told("acme").await.unwrap().shares_set);
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
    let before = (rig.hash("budget").await, rig.hash("tenants").await);
    for told in [Value::Null, Value::Null] {
        with(&mut rig, told).await;
        assert_eq!(
            (rig.hash("budget").await, rig.hash("tenants").await),
            before
        );
    }
    assert_eq!(rig.metric("TenantsInvalid"), Value::Null);
}

fn url(url: &str) -> Value {
    json!({ "list_unsubscribe": { "url": url } })
}

fn mailto(mailto: &str) -> Value {
    json!({ "list_unsubscribe": { "url": "https://acme.example/u", "mailto": mailto } })
}

fn limit(name: &str, limit: &Value) -> Value {
    json!({ "thresholds": { name: limit } })
}

#[tokio::test]
async fn all_that_is_set_reaches_the_other_functions() {
    let mut rig = Rig::new(&DEPLOYED).await;
    let set = json!({
        "version": 1, "configuration_set": "gamma-set", "ses_tenant": "Gamma_1-x", "lane": "priority", "uncertain": "resend",
        "list_unsubscribe": { "url": "https://gamma.example/u/{send_id}?a=%20", "mailto": "leave+x@gamma.example" },
        "thresholds": {
            "bounce_hour": { "percent": 7.5, "sent": 0, "events": 1 },
            "bounce_day": { "percent": 0.0001 },
            "complaint_hour": { "sent": 7, "percent": null, "events": null },
            "complaint_day": { "percent": 100, "events": 9 },
        },
    });
    let answer = with(&mut rig, parameter("gamma", set)).await;
    assert_eq!(
        (&answer["warnings"], &answer["invalid_tenants"]),
        (&json!([]), &json!([]))
    );
    let limit = |ppm, sent, events| Some(LimitSettings { ppm, sent, events });
    let expected = TenantSettings {
        shares_set: false,
        configuration_set: Some("gamma-set".into()),
        ses_tenant: Some("Gamma_1-x".into()),
        lane: Some("priority".into()),
        uncertain: Some("resend".into()),
        list_unsubscribe: Some(ListUnsubscribe {
            url: "https://gamma.example/u/{send_id}?a=%20".into(),
            mailto: "leave+x@gamma.example".into(),
        }),
        // What a limit leaves out is as usual.
        thresholds: ThresholdSettings {
            bounce_hour: limit(75_000, 0, 1),
            bounce_day: limit(1, 1000, 50),
            complaint_hour: limit(10_000, 7, 5),
            complaint_day: limit(1_000_000, 1000, 9),
        },
    };
    assert_eq!(rig.told("gamma").await, Some(expected));

    // Nothing is nothing, however it is written.
    let none = json!({
        "version": null, "configuration_set": "", "ses_tenant": "", "weight": null, "hourly_cap": null, "daily_cap": null,
        "warm_up": null, "lane": "", "uncertain": null, "list_unsubscribe": { "url": "", "mailto": null },
        "thresholds": { "bounce_hour": null, "bounce_day": null, "complaint_hour": null, "complaint_day": null },
    });
    let every_null = json!({
        "configuration_set": null, "ses_tenant": null, "lane": null, "uncertain": "", "list_unsubscribe": null,
        "thresholds": null,
    });
    for none in [none, every_null] {
        let answer = with(&mut rig, parameter("gamma", none)).await;
        assert_eq!(
            (&answer["warnings"], &answer["invalid_tenants"]),
            (&json!([]), &json!([]))
        );
        assert_eq!(rig.told("gamma").await, Some(TenantSettings::default()));
        assert_eq!(numbers(&rig, "gamma").await, Some([1.0, 0.0, 0.0]));
    }
    // Percents as people write them.
    for (percent, ppm) in [
        (0.07, 700),
        (0.29, 2_900),
        (8.3333, 83_333),
        (99.9999, 999_999),
    ] {
        with(&mut rig, parameter("gamma", limit_of(percent))).await;
        let told = rig.told("gamma").await.unwrap();
        assert_eq!(
            told.thresholds.bounce_hour.map(|limit| limit.ppm),
            Some(ppm)
        );
    }
}

fn limit_of(percent: f64) -> Value {
    limit("bounce_hour", &json!({ "percent": percent }))
}

#[tokio::test]
async fn a_field_that_nobody_knows_is_named() {
    let mut rig = Rig::new(&DEPLOYED).await;
    let set = json!({
        "wieght": 3,
        "warm_up": { "start": "2026-11-30", "end": 1, "schedule": [{ "day": 1, "cap": 20, "per": "hour", "cpa": 1 }] },
        "list_unsubscribe": { "url": "https://gamma.example/u", "mail_to": "x" },
        "thresholds": { "bounce_week": {}, "bounce_day": { "percentage": 5 } },
    });
    let answer = with(&mut rig, parameter("gamma", set)).await;
    let warnings: Vec<_> = answer["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(Value::to_string)
        .collect();
    let fields = [
        "wieght",
        "warm_up.end",
        "list_unsubscribe.mail_to",
        "thresholds.bounce_week",
        "warm_up.schedule.cpa",
        "thresholds.bounce_day.percentage",
    ];
    assert_eq!(warnings.len(), fields.len(), "{warnings:?}");
    for (warning, field) in warnings.iter().zip(fields) {
        assert!(
            warning.contains("tenant gamma") && warning.contains(field),
            "{warning}"
        );
    }
    // They hold nothing up, and are not more than an answer holds.
    assert!(rig.told("gamma").await.is_some());
    let many: serde_json::Map<String, Value> =
        (0..50).map(|n| (format!("field-{n}"), json!(1))).collect();
    let answer = with(&mut rig, parameter("gamma", many)).await;
    assert_eq!(answer["warnings"].as_array().unwrap().len(), 20);
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
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
        (json!({ "ses_tenant": "a b" }), "ses_tenant: \"a b\""),
        (json!({ "ses_tenant": "t".repeat(65) }), "ses_tenant: "),
        (json!({ "ses_tenant": 5 }), "ses_tenant: "),
        (json!({ "lane": "fast" }), "lane is \"fast\""),
        (json!({ "lane": "Bulk" }), "lane is "),
        (json!({ "lane": 1 }), "lane: "),
        (json!({ "uncertain": "drop" }), "uncertain is \"drop\""),
        (url("http://acme.example/u"), "https://"),
        (url("acme.example/u"), "https://"),
        (url("https:///u"), "names no host"),
        (url("https://{send_id}.acme.example/u"), "names no host"),
        (url("https://acme.example/a b"), "holds a space"),
        (url("https://acme.example/<u>"), "holds a space, < or >"),
        (url("https://acme.example/\u{fc}"), "printable ASCII"),
        (url("https://acme.example/u\r\nBcc: x"), "printable ASCII"),
        (url("https://acme.example/{tenant}"), "the only placeholder"),
        (url("https://acme.example/{send_id"), "the only placeholder"),
        (
            url("https://acme.example/{{send_id}}"),
            "the only placeholder",
        ),
        (
            url(&format!("https://acme.example/{}", "u".repeat(780))),
            "800",
        ),
        (
            json!({ "list_unsubscribe": { "mailto": "u@acme.example" } }),
            "list_unsubscribe.url: it is missing",
        ),
        (
            json!({ "list_unsubscribe": "https://acme.example" }),
            "list_unsubscribe: ",
        ),
        (mailto("u"), "list_unsubscribe.mailto: "),
        (mailto("U <u@acme.example>"), "list_unsubscribe.mailto: "),
        (mailto("u@acme"), "list_unsubscribe.mailto: "),
        (
            mailto("u@acme.example?subject=x"),
            "list_unsubscribe.mailto: ",
        ),
        (mailto("u?cc=x@acme.example"), "list_unsubscribe.mailto: "),
        (
            mailto("u@acme.example,v@acme.example"),
            "list_unsubscribe.mailto: ",
        ),
        (mailto("u..v@acme.example"), "list_unsubscribe.mailto: "),
        (mailto("u@-acme.example"), "list_unsubscribe.mailto: "),
        (
            mailto(&format!("u@{}.example", "a".repeat(250))),
            "list_unsubscribe.mailto: ",
        ),
        (
            limit("bounce_hour", &json!({ "percent": 0 })),
            "thresholds.bounce_hour.percent is 0",
        ),
        (
            limit("bounce_day", &json!({ "percent": -1 })),
            "thresholds.bounce_day.percent is -1",
        ),
        (
            limit("complaint_day", &json!({ "percent": 100.0001 })),
            "thresholds.complaint_day.percent is 100.0001",
        ),
        (
            limit("complaint_hour", &json!({ "percent": 0.00005 })),
            "at most 4 decimals",
        ),
        (
            limit("bounce_hour", &json!({ "percent": "5" })),
            "thresholds.bounce_hour.percent: ",
        ),
        (
            limit("bounce_hour", &json!({ "events": 0 })),
            "thresholds.bounce_hour.events is 0",
        ),
        (
            limit("bounce_hour", &json!({ "sent": -1 })),
            "thresholds.bounce_hour.sent: ",
        ),
        (limit("bounce_hour", &json!(5)), "thresholds.bounce_hour: "),
        (json!({ "thresholds": 5 }), "thresholds"),
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

#[tokio::test]
async fn whose_set_is_shared_is_told() {
    let mut rig = Rig::new(&DEPLOYED).await;
    let mut tenants = parameter("gamma", json!({ "configuration_set": "deployed-set" }));
    add(
        &mut tenants,
        json!({ "name": "own", "settings": { "configuration_set": "own-set" } }),
    );
    with(&mut rig, tenants).await;
    for (name, shares) in [("acme", true), ("gamma", true), ("own", false)] {
        assert_eq!(rig.told(name).await.unwrap().shares_set, shares, "{name}");
    }
}
