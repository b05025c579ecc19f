//! SES's suppression list, page by page.

use sendslot_domain::Millis;
use serde_json::{Value, json};

use crate::rig::{MINUTE, Rig, START, account};

fn page(walk: &Value, first: u32, count: u32, next: Option<&str>) -> Value {
    let entries: Vec<Value> = (first..first + count)
        .map(|n| {
            let cause = if n % 2 == 0 { "bounce" } else { "complaint" };
            json!({ "digest": format!("{n:032x}"), "cause": cause })
        })
        .collect();
    json!({ "action": "suppress", "entries": entries, "walk": walk, "next": next, "caller": "quota-refresh" })
}

/// How many are noted.
async fn noted(rig: &Rig) -> usize {
    rig.server
        .run(&["HLEN", "sendslot:{test}:suppressed"])
        .await
}

#[tokio::test]
async fn the_list_is_walked_page_by_page_over_refreshes() {
    let mut rig = Rig::new(&[]).await;
    let healthy = json!({ "account": account(14.0, 50_000.0, 0) });
    let answer = rig.refresh(healthy.clone()).await;
    let walk = json!({ "began_ms": START.0, "since_ms": null, "token": null });
    assert_eq!(answer["walk"], walk);
    let answer = rig.ask(page(&walk, 0, 1500, Some("p2"))).await;
    let second = json!({ "began_ms": START.0, "since_ms": null, "token": "p2" });
    assert_eq!(answer, json!({ "new": 1500, "walk": second }));
    let bounced: String = {
        let hash = rig.server.run(&["HVALS", "sendslot:{test}:suppressed"]);
        let values: Vec<String> = hash.await;
        values.iter().map(|value| &value[..1]).collect()
    };
    assert_eq!(bounced.matches('b').count(), 750);
    assert_eq!(bounced.matches('c').count(), 750);
    // The next refresh goes on there.
    let answer = rig.follow(account(14.0, 50_000.0, 0)).await;
    assert_eq!(answer["walk"], second);
    let answer = rig.ask(page(&second, 1000, 1000, None)).await;
    assert_eq!(answer, json!({ "new": 500, "walk": null }));
    assert_eq!(noted(&rig).await, 2000);

    // It was read: in five minutes, what was added since.
    let answer = rig.refresh(healthy.clone()).await;
    assert_eq!(answer["walk"], Value::Null);
    rig.pass(Millis(4 * MINUTE.0)).await;
    let answer = rig.refresh(healthy.clone()).await;
    let added = json!({
        "began_ms": rig.now.0, "since_ms": START.0 - 300_000, "token": null,
    });
    assert_eq!(answer["walk"], added);
    assert_eq!(
        rig.ask(page(&added, 0, 0, None)).await,
        json!({ "new": 0, "walk": null })
    );
}

#[tokio::test]
async fn after_all_was_read_what_is_no_longer_there_is_forgotten() {
    let mut rig = Rig::new(&[]).await;
    let walk = rig
        .refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await["walk"]
        .clone();
    rig.ask(page(&walk, 0, 3000, None)).await;
    for day in 1..=3_u64 {
        rig.pass(Millis::from_secs(86_400)).await;
        let answer = rig.follow(account(14.0, 50_000.0, 0)).await;
        let walk = &answer["walk"];
        assert_eq!(walk["since_ms"], Value::Null, "day {day}");
        let answer = rig.ask(page(walk, 0, 10, None)).await;
        assert_eq!(answer, json!({ "new": 0, "walk": null }));
        assert_eq!(
            noted(&rig).await,
            if day < 3 { 3000 } else { 10 },
            "day {day}"
        );
    }
}

#[tokio::test]
async fn an_emptied_redis_begins_with_all_of_it() {
    let mut rig = Rig::new(&[]).await;
    let healthy = json!({ "account": account(14.0, 50_000.0, 0), "tenants": [], "final": true });
    let walk = rig.refresh(healthy.clone()).await["walk"].clone();
    rig.ask(page(&walk, 0, 10, None)).await;
    for lost in ["all", "budget"] {
        rig.pass(MINUTE).await;
        if lost == "all" {
            rig.flush().await;
            rig.pass(Millis(0)).await;
        } else {
            rig.lose(lost).await;
        }
        let answer = rig.refresh(healthy.clone()).await;
        let walk = json!({ "began_ms": rig.now.0, "since_ms": null, "token": null });
        assert_eq!(answer["walk"], walk, "{lost}");
        // A page of the walk before is taken in, and this one goes on where it is.
        let before = json!({ "began_ms": 1, "since_ms": null, "token": "old" });
        let answer = rig.ask(page(&before, 20, 1, None)).await;
        assert_eq!(answer["walk"], walk, "{lost}");
        rig.ask(page(&walk, 0, 10, None)).await;
        assert_eq!(noted(&rig).await, 11);
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_left_out() {
    let mut rig = Rig::new(&[]).await;
    let walk = rig
        .refresh(json!({ "account": account(14.0, 50_000.0, 0) }))
        .await["walk"]
        .clone();
    let mut asked = page(&walk, 0, 2, None);
    let more = [
        ("bob@example.com", "bounce"),
        ("", "bounce"),
        ("0000000000000000000000000000000g", "bounce"),
        ("00000000000000000000000000000009", "else"),
        ("00000000000000000000000000000009", ""),
    ];
    for (digest, cause) in more {
        let entry = json!({ "digest": digest, "cause": cause });
        asked["entries"].as_array_mut().unwrap().push(entry);
    }
    let answer = rig.ask(asked).await;
    assert_eq!(answer, json!({ "new": 2, "walk": null }));
    assert_eq!(noted(&rig).await, 2);
}

/// Pages come while a refresh is under way: it doesn't move the walk back.
#[tokio::test]
async fn refreshes_and_pages_at_once_end_the_walk_once() {
    let mut rig = Rig::new(&[]).await;
    let healthy = json!({ "account": account(14.0, 50_000.0, 0) });
    let mut walk = rig.refresh(healthy.clone()).await["walk"].clone();
    let refresh = json!({ "action": "refresh", "account": account(14.0, 50_000.0, 0) }).to_string();
    for n in 0..20 {
        let token = format!("p{n}");
        let asked = page(&walk, n, 1, Some(&token)).to_string();
        let (page, _) = tokio::join!(rig.handle(&asked), rig.handle(&refresh));
        walk = page.0["walk"].clone();
        assert!(walk["token"].is_string(), "{walk}");
    }
    assert_eq!(rig.ask(page(&walk, 0, 0, None)).await["new"], 0);
    assert_eq!(noted(&rig).await, 20);
}
