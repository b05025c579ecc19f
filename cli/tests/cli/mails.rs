//! Single mails and tenants: find, cancel, pause, resume; refresh.

use serde_json::{Value, json};

use crate::{
    aws::{Aws, Reply},
    run::{Ran, sendslot},
};

/// Runs it on this answer: how it ended, and what was asked without its caller.
fn on(answer: &Value, args: &[&str]) -> (Ran, Value) {
    let aws = Aws::invoked(vec![Reply::json(answer)]);
    let ran = sendslot(&aws, args);
    let mut asked = aws.payloads();
    assert_eq!(asked.len(), 1);
    let mut asked = asked.remove(0);
    let caller = asked.as_object_mut().unwrap().remove("caller").unwrap();
    let caller = caller.as_str().unwrap();
    let (user, host) = caller.split_once('@').unwrap();
    assert_eq!(user, "cli:ann");
    assert!(
        !host.is_empty() && !host.contains(char::is_whitespace),
        "{caller:?}"
    );
    (ran, asked)
}

fn found() -> Value {
    json!({
        "tenant": "acme", "send_id": "order-1", "state": "booked", "since_ms": 1_796_132_400_000_u64,
        "lane": "bulk", "recipients": 2, "due_ms": 1_796_132_460_000_u64, "reason": null,
        "history": [
            { "at_ms": 1_796_132_390_000_u64, "what": "waiting", "due_ms": 1_796_132_450_000_u64 },
            { "at_ms": 1_796_132_395_000_u64, "what": "parked", "reason": "paused" },
            { "at_ms": 1_796_132_400_000_u64, "what": "booked", "due_ms": 1_796_132_460_000_u64 },
        ],
    })
}

#[test]
fn a_mail_is_found() {
    let (ran, asked) = on(&found(), &["find", "acme", "order-1"]);
    assert_eq!(ran.code, 0);
    assert_eq!(
        asked,
        json!({ "action": "find", "tenant": "acme", "send_id": "order-1" })
    );
    assert_eq!(
        ran.out,
        "\
order-1 of acme: booked, it has its slot
  since       2026-12-01 13:40:00 UTC
  slot        2026-12-01 13:41:00 UTC
  lane        bulk
  recipients  2

when                     what
2026-12-01 13:39:50 UTC  waiting  for 2026-12-01 13:40:50 UTC
2026-12-01 13:39:55 UTC  parked   paused
2026-12-01 13:40:00 UTC  booked   for 2026-12-01 13:41:00 UTC
"
    );
}

#[test]
fn a_found_mail_as_json_is_what_control_says() {
    let (ran, _) = on(&found(), &["find", "acme", "order-1", "--json"]);
    assert_eq!((ran.code, ran.json(), ran.err.as_str()), (0, found(), ""));
}

#[test]
fn a_mail_that_nobody_knows_exits_with_3() {
    let unknown =
        json!({ "tenant": "acme", "send_id": "order-9", "state": "unknown", "history": [] });
    let (ran, _) = on(&unknown, &["find", "acme", "order-9"]);
    assert_eq!(ran.code, 3);
    assert_eq!(
        ran.out,
        "order-9 of acme: unknown, nothing is remembered of it: it never came, or ended more than a day ago\n"
    );
}

#[test]
fn a_mail_is_cancelled() {
    let done = json!({ "tenant": "acme", "send_id": "order-1", "was": "booked", "may_have_been_sent": false, "released": true });
    let (ran, asked) = on(&done, &["cancel", "acme", "order-1"]);
    assert_eq!(ran.code, 0);
    assert_eq!(
        asked,
        json!({ "action": "cancel", "tenant": "acme", "send_id": "order-1" })
    );
    assert_eq!(
        ran.out,
        "order-1 of acme is cancelled; it was booked, and its slot is free for others\n"
    );
    let (ran, _) = on(&done, &["cancel", "acme", "order-1", "--json"]);
    assert_eq!((ran.code, ran.json()), (0, done));
}

#[test]
fn a_mail_in_doubt_is_cancelled_and_that_is_said() {
    let done = json!({ "tenant": "acme", "send_id": "order-1", "was": "uncertain", "may_have_been_sent": true });
    let (ran, _) = on(&done, &["cancel", "acme", "order-1"]);
    assert_eq!(ran.code, 0);
    assert!(ran.out.contains("may have been sent before"), "{}", ran.out);
}

#[test]
fn cancelling_what_nobody_knows_exits_with_3() {
    let done = json!({ "tenant": "acme", "send_id": "order-9", "was": "unknown" });
    let (ran, _) = on(&done, &["cancel", "acme", "order-9"]);
    assert_eq!(ran.code, 3);
    assert!(
        ran.out.contains("if it comes, it isn't sent"),
        "{}",
        ran.out
    );
}

#[test]
fn too_late_to_cancel_is_a_failure() {
    let failure = json!({ "error": { "code": "too_late", "message": "it is sent" } });
    let (ran, _) = on(&failure, &["cancel", "acme", "order-1"]);
    assert_eq!(ran.code, 1);
    assert_eq!(
        ran.err,
        "error: control: too_late: it is sent\n  do: see `sendslot find TENANT SEND_ID` for how it went\n"
    );
}

#[test]
fn a_tenant_is_paused_and_how_to_undo_it_is_said() {
    let done = json!({ "tenants": ["acme"], "already": false, "since_ms": 1_796_132_400_000_u64,
                       "reason": "bad list (cli:ann@host)", "not_switched": ["shared"] });
    let (ran, asked) = on(
        &done,
        &[
            "pause",
            "acme",
            "--reason",
            "bad list",
            "--region",
            "eu-west-3",
        ],
    );
    assert_eq!(ran.code, 0);
    assert_eq!(
        asked,
        json!({ "action": "pause", "tenant": "acme", "reason": "bad list", "account": false, "switched": false })
    );
    assert_eq!(
        ran.out,
        "\
acme is paused since 2026-12-01 13:40:00 UTC: bad list (cli:ann@host)
what was granted may still go within two seconds; all else is kept
SES's configuration set shared is still on (others send through it, or switching failed): only what comes through here is kept back
to undo: sendslot --region eu-west-3 resume acme
"
    );
}

#[test]
fn a_tenant_is_resumed_at_a_rate() {
    let done = json!({ "tenant": "acme", "was_paused": true, "rate": 20.0 });
    let (ran, asked) = on(
        &done,
        &[
            "resume",
            "acme",
            "--rate",
            "20/s",
            "--reason",
            "list cleaned",
        ],
    );
    assert_eq!(ran.code, 0);
    assert_eq!(
        asked,
        json!({ "action": "resume", "tenant": "acme", "rate": "20/s", "reason": "list cleaned" })
    );
    assert_eq!(
        ran.out,
        "acme may send again; mail that is parked goes at 20.0/s\nto follow: sendslot watch\n"
    );
}

#[test]
fn a_refresh_asks_quota_refresh() {
    let budget = json!({ "limit": "14/s", "daily_quota": 50_000, "source": "account", "changed": true, "was": null });
    let answer = json!({ "refreshed": true, "control": {
        "budget": budget, "factor": 1024, "warnings": ["the limit was cut"],
        "invalid_tenants": [{ "name": "beta", "problem": "no JSON", "kept": true }],
    }});
    let aws = Aws::invoked(vec![Reply::json(&answer)]);
    let ran = sendslot(&aws, &["refresh"]);
    assert_eq!(ran.code, 4);
    assert_eq!(
        ran.out,
        "\
the budget is 14/s, 50,000 a day, from account; changed
tenant beta: no JSON; its last good settings hold
note: the limit was cut
"
    );
    let asked = aws.asked();
    assert_eq!(
        asked[1].path,
        "/2015-03-31/functions/sendslot-quota-refresh/invocations"
    );
    assert_eq!(asked[1].body, "{}");
    let failure = json!({ "refreshed": false, "error": { "code": "redis_unavailable", "message": "no answer" } });
    let aws = Aws::invoked(vec![Reply::json(&failure)]);
    let ran = sendslot(&aws, &["refresh"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err
            .starts_with("error: control: redis_unavailable: no answer\n"),
        "{}",
        ran.err
    );
}
