//! How a stack stands: status, watch, tenant list.

use std::{thread, time::Duration};

use serde_json::{Value, json};

use crate::{
    aws::{Aws, Reply},
    run::{Ran, at, interrupt, sendslot},
};

const NOW: u64 = 1_796_132_400_000;

/// A stack where all is well.
fn well() -> Value {
    let queues = json!({
        "intake": { "visible": 0, "delayed": 1_500, "in_flight": 10 }, "send": { "visible": 5, "delayed": 1_200, "in_flight": 20 },
        "intake_dead": { "visible": 0, "delayed": 0, "in_flight": 0 }, "send_dead": { "visible": 0, "delayed": 0, "in_flight": 0 },
    });
    let lane = |lane: &str, booked: u64, sent: u64, queues: Value| {
        json!({ "lane": lane, "booked": booked, "waiting": booked / 2, "sent_1h": sent / 10, "sent_24h": sent, "uncertain": 0,
                "parked": 0, "parked_uncertain": 0, "queues": queues })
    };
    let of = |booked: u64, sent: u64| json!({ "booked": booked, "waiting": booked / 2, "sent_1h": sent / 10, "sent_24h": sent });
    json!({
        "redis": { "ok": true, "version": "9.1.2", "uptime_seconds": 7_500, "used_memory": 3_460_000, "max_memory": 0,
                   "eviction": "noeviction" },
        "now_ms": NOW,
        "budget": { "limit": "100/s", "daily_quota": 50_000, "source": "account", "factor": 1_024, "effective_rate": 98.0 },
        "booked": { "priority": 34, "bulk": 1_200 },
        "minutes": [{ "at_ms": NOW, "priority": 34, "bulk": 1_200 }],
        "lanes": [lane("priority", 34, 900, json!({})), lane("bulk", 1_200, 21_000, queues)],
        "booked_ahead_seconds": 13,
        "sent_24h": 21_900,
        "tenants": [
            { "tenant": "acme", "sent_1h": 2_000, "bounced_1h": 10, "complained_1h": 0, "sent_24h": 20_000, "bounced_24h": 250,
              "complained_24h": 3, "lanes": { "bulk": of(1_000, 20_000) }, "configuration_set": "sendslot-acme", "weight": 3 },
            { "tenant": "beta", "sent_1h": 190, "sent_24h": 1_900, "lanes": { "bulk": of(200, 1_000), "priority": of(34, 900) },
              "configuration_set": null, "weight": 1 },
        ],
        "last_refresh": { "at_ms": NOW - 20_000, "caller": "quota-refresh", "taken_ms": NOW - 20_000 },
    })
}

#[test]
fn all_is_well() {
    let aws = Aws::invoked(vec![Reply::json(&well())]);
    let ran = sendslot(&aws, &["status"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(aws.payloads()[0]["action"], "status");
    assert_eq!(
        ran.out,
        "\
all is well: 1,234 booked, 617 waiting, 98.0/s may be sent

now        2026-12-01 13:40:00 UTC
budget     100/s, 50,000 a day, from account; 98.0/s of it may be sent now
ahead      1,234 booked, the last in 13 s; 617 waiting for a slot
sent 24 h  21,900 recipients
refreshed  20 s ago by quota-refresh
redis      answers, version 9.1.2, up 2 h 5 min, 3.4 MB

lane      booked  waiting  sent 1 h  sent 24 h  uncertain  parked  intake   send  refused  dead
priority      34       17        90        900          -       -       ?      ?        ?     ?
bulk       1,200      600     2,100     21,000          -       -   1,510  1,225        -     -

minute  priority   bulk
13:40         34  1,200

tenant  booked  waiting  sent 1 h  sent 24 h  uncertain  parked
acme     1,000      500     2,000     20,000          -       -
beta       234      117       190      1,900          -       -
"
    );
}

/// A stack where much isn't.
fn unwell() -> Value {
    let mut status = well();
    status["budget"]["factor"] = json!(512);
    status["budget"]["effective_rate"] = json!(49.0);
    status["blocked"] = json!({ "left_ms": 90_000, "reason": "sending_disabled" });
    status["last_refresh"]["at_ms"] = json!(NOW - 480_000);
    status["refused_10s"] = json!(4);
    status["sent_24h"] = json!(48_000);
    status["paused"] = json!([{ "tenant": "acme", "since_ms": NOW - 60_000, "until_ms": null, "reason": "complaints (feedback)" }]);
    status["lanes"][1]["queues"]["send_dead"]["visible"] = json!(12);
    status["tenants"][1]["lanes"]["bulk"]["parked_uncertain"] = json!(2);
    status["redis"]["eviction"] = json!("allkeys-lru");
    status
}

#[test]
fn what_is_not_well_comes_first_with_what_to_run() {
    let aws = Aws::invoked(vec![Reply::json(&unwell())]);
    let ran = sendslot(&aws, &["status", "--region", "eu-west-3"]);
    assert_eq!(ran.code, 0);
    let (first, _) = ran.out.split_once("\n\nnow ").unwrap();
    assert_eq!(
        first,
        "\
NOT WELL: 9 things to look at, the worst first, with what to run next

  ! nobody may send: sending_disabled, for 1 min 30 s yet
      aws sesv2 get-account
  ! the budget was last refreshed 8 min ago, and should be each minute
      sendslot --region eu-west-3 refresh
  ! the provider refused mail as too much: 50 % of the rate is used (49.0/s), and it comes back by itself
      sendslot --region eu-west-3 watch
  ! the day's quota is nearly used: 48,000 of 50,000 in 24 hours; what is over it waits
      aws sesv2 get-account
  ! 4 recipients refused as too many in the last 10 s
      sendslot --region eu-west-3 watch
  ! tenant acme is paused since 2026-12-01 13:39:00 UTC, until it is resumed: complaints (feedback)
      sendslot --region eu-west-3 resume acme --rate 9/s   # once the cause is gone
  ! 2 mails of tenant beta may have been sent, and nobody knows: parked until somebody decides
      sendslot --region eu-west-3 redrive --from parked --tenant beta --reason uncertain --resend --rate 9/s --dry-run
  ! 12 dead letters in lane bulk: 0 refused when handed in, 12 not sent
      sendslot --region eu-west-3 redrive --lane bulk --rate 9/s --dry-run
  ! Redis may drop bookings when its memory is full: its maxmemory-policy is allkeys-lru, and must be noeviction
      sendslot --region eu-west-3 watch"
    );
}

#[test]
fn status_as_json_adds_what_is_not_well() {
    let aws = Aws::invoked(vec![Reply::json(&unwell())]);
    let ran = sendslot(&aws, &["status", "--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let told = ran.json();
    assert_eq!(told["well"], false);
    assert_eq!(told["problems"].as_array().unwrap().len(), 9);
    assert_eq!(told["problems"][0]["next"], "aws sesv2 get-account");
    assert_eq!(told["budget"]["limit"], "100/s");
    assert_eq!(told["lanes"][1]["queues"]["send_dead"]["visible"], 12);
    assert_eq!(told["tenants"][0]["lanes"]["bulk"]["booked"], 1_000);
}

#[test]
fn without_redis_the_state_is_not_known() {
    let status = json!({ "redis": { "ok": false, "error": "connection refused" } });
    let aws = Aws::invoked(vec![Reply::json(&status)]);
    let ran = sendslot(&aws, &["status"]);
    assert_eq!(ran.code, 3);
    assert_eq!(
        ran.out,
        "\
NOT WELL: one thing to look at, with what to run next

  ! Redis can't be used: connection refused; mail is kept or sent as RedisDownPolicy says
      sendslot watch
"
    );
    let ran = sendslot(&aws, &["tenant", "list"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("redis_unavailable"), "{}", ran.err);
}

#[test]
fn tenants_are_listed() {
    let aws = Aws::invoked(vec![Reply::json(&unwell())]);
    let ran = sendslot(&aws, &["tenant", "list"]);
    assert_eq!(ran.code, 0);
    assert_eq!(
        ran.out,
        "\
tenant  state   set            weight  sent 1 h  sent 24 h  bounced  complained  parked
acme    paused  sendslot-acme       3     2,000     20,000   1.25 %      0.01 %       -
beta    sends   -                   1       190      1,900        -           -       -
"
    );
    let ran = sendslot(&aws, &["tenant", "list", "--json"]);
    let told = ran.json();
    assert_eq!(told["tenants"][0]["tenant"], "acme");
    assert_eq!(
        told["tenants"][0]["paused"]["reason"],
        "complaints (feedback)"
    );
    assert_eq!(told["tenants"][1]["paused"], Value::Null);
}

#[test]
fn no_tenants_exits_with_3() {
    let aws = Aws::invoked(vec![Reply::json(&json!({ "redis": { "ok": true } }))]);
    let ran = sendslot(&aws, &["tenant", "list"]);
    assert_eq!(ran.code, 3);
    assert!(ran.out.contains("make tenant"), "{}", ran.out);
}

/// The same a second later, so many sent since.
fn later(seconds: u64, sent: u64) -> Reply {
    let mut status = well();
    status["now_ms"] = json!(NOW + seconds * 1_000);
    status["lanes"][1]["sent_24h"] = json!(21_000 + sent);
    Reply::json(&status)
}

#[test]
fn watch_has_a_line_a_look_where_there_is_no_terminal() {
    let aws = Aws::invoked(vec![later(0, 0), later(1, 90), later(2, 196)]);
    let ran = sendslot(&aws, &["watch", "--every", "50ms", "--ticks", "3"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(
        ran.out,
        "\
2026-12-01 13:40:00 UTC  sends        -  booked   1,234 (13 s)  waiting     617  priority 34  bulk 1,200
2026-12-01 13:40:01 UTC  sends   90.0/s  booked   1,234 (13 s)  waiting     617  priority 34  bulk 1,200
2026-12-01 13:40:02 UTC  sends   98.0/s  booked   1,234 (13 s)  waiting     617  priority 34  bulk 1,200
"
    );
    assert_eq!(aws.payloads().len(), 3);
}

#[test]
fn watch_as_json_is_lines_of_all_that_is_known() {
    let aws = Aws::invoked(vec![later(0, 0), later(1, 90)]);
    let ran = sendslot(
        &aws,
        &["watch", "--json", "--every", "50ms", "--ticks", "2"],
    );
    let lines = ran.lines();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["sends_per_second"], Value::Null);
    assert_eq!(lines[1]["sends_per_second"], 90.0);
    assert_eq!(lines[1]["well"], true);
    assert_eq!(lines[1]["booked"]["bulk"], 1_200);
}

#[test]
fn watch_outlives_a_look_that_fails() {
    let fails =
        Reply::json(&json!({ "error": { "code": "timeout", "message": "it took too long" } }));
    let aws = Aws::invoked(vec![later(0, 0), fails, later(2, 100)]);
    let ran = sendslot(&aws, &["watch", "--every", "50ms", "--ticks", "3"]);
    assert_eq!(ran.code, 0);
    assert!(
        ran.out
            .contains("error: control: timeout: it took too long\n"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("sends   50.0/s"), "{}", ran.out);
}

#[test]
fn watch_ends_at_once_where_the_first_look_fails() {
    let aws = Aws::invoked(vec![Reply::lambda(403, "AccessDeniedException")]);
    let ran = sendslot(&aws, &["watch"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("lambda:InvokeFunction"), "{}", ran.err);
}

#[test]
fn ctrl_c_ends_watch_well() {
    let aws = Aws::invoked(vec![later(0, 0)]);
    let child = at(&aws.url, &["watch", "--every", "50ms"]).spawn().unwrap();
    aws.wait_for(2);
    thread::sleep(Duration::from_millis(200));
    interrupt(&child);
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.lines().count() >= 2);
}
