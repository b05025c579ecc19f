//! The loop of redrive.

use std::thread;

use serde_json::{Value, json};

use crate::{
    aws::{Aws, Reply},
    run::{Ran, at, interrupt, sendslot},
};

fn some(redriven: u64, remaining: u64) -> Reply {
    // What stays is told by each call.
    Reply::json(&json!({
        "redriven": redriven, "passed": 1, "left": { "bad_address": 1 }, "remaining": remaining, "done": false,
        "retry_after_ms": 50,
    }))
}

fn last() -> Reply {
    Reply::json(&json!({
        "redriven": 40, "ended": 3, "passed": 1, "remaining": 2, "done": true, "retry_after_ms": 0,
        "left": { "bad_address": 2 },
        "listed": [
            { "lane": "bulk", "tenant": "acme", "send_id": "order-1", "reason": "bad_address", "detail": "no domain" },
            { "lane": "bulk", "tenant": null, "send_id": null, "reason": "bad_address", "detail": "no\u{1b}JSON" },
        ],
    }))
}

#[test]
fn it_asks_until_all_is_done_and_says_what_was_left() {
    let aws = Aws::invoked(vec![some(100, 142), some(100, 42), last()]);
    let args = [
        "redrive",
        "--rate",
        "20/s",
        "--lane",
        "bulk",
        "--tenant",
        "acme",
        "--reason",
        "attempts_exhausted",
        "--older-than",
        "1h",
        "--younger-than",
        "2d",
        "--resend",
    ];
    let ran = sendslot(&aws, &args);
    assert_eq!(ran.code, 4, "{}", ran.err);
    let asked = aws.payloads();
    assert_eq!(asked.len(), 3);
    for mut asked in asked {
        let caller = asked.as_object_mut().unwrap().remove("caller").unwrap();
        assert!(caller.as_str().unwrap().starts_with("cli:ann@"));
        assert_eq!(
            asked,
            json!({
                "action": "redrive", "from": "dead", "lane": "bulk", "tenant": "acme", "reason": "attempts_exhausted",
                "older_than_seconds": 3_600, "younger_than_seconds": 172_800, "rate": "20/s", "seconds": 10, "resend": true,
                "dry_run": false,
            })
        );
    }
    let (first, rest) = ran.out.split_once('\n').unwrap();
    assert!(first.starts_with("240 mails redriven at "), "{first}");
    assert_eq!(
        rest,
        "\
3 mails had ended before, and were taken off
1 mail weren't asked for
2 mails left, since they can't succeed as they are:
  reason       mails
  bad_address      2

  lane  tenant  send id  reason       why
  bulk  acme    order-1  bad_address  no domain
  bulk  ?       ?        bad_address  no JSON
"
    );
    let progress: Vec<&str> = ran.err.lines().collect();
    assert_eq!(progress.len(), 2, "{}", ran.err);
    assert!(
        progress[0].starts_with("100 redriven, 142 remain, "),
        "{}",
        ran.err
    );
    assert!(
        progress[1].starts_with("200 redriven, 42 remain, "),
        "{}",
        ran.err
    );
}

#[test]
fn all_done_and_nothing_left_exits_with_0() {
    let all = json!({ "redriven": 7, "remaining": 0, "done": true });
    let aws = Aws::invoked(vec![Reply::json(&all)]);
    let ran = sendslot(
        &aws,
        &[
            "redrive", "--rate", "20/s", "--from", "parked", "--tenant", "acme",
        ],
    );
    assert_eq!(ran.code, 0);
    assert_eq!(aws.payloads()[0]["from"], "parked");
}

#[test]
fn with_json_it_tells_its_progress_in_lines() {
    let aws = Aws::invoked(vec![some(100, 142), some(100, 42), last()]);
    let ran = sendslot(&aws, &["--json", "redrive", "--rate", "20/s"]);
    assert_eq!(ran.code, 4);
    assert_eq!(ran.err, "");
    let lines = ran.lines();
    let field =
        |name: &str| -> Vec<Value> { lines.iter().map(|line| line[name].clone()).collect() };
    assert_eq!(field("redriven"), [100, 200, 240]);
    assert_eq!(field("remaining"), [142, 42, 2]);
    assert_eq!(field("done"), [false, false, true]);
    assert_eq!(lines[2]["left"], json!({ "bad_address": 2 }));
    assert_eq!(lines[2]["listed"][0]["send_id"], "order-1");
    assert!(lines[0]["rate"].as_f64().unwrap() > 0.0);
    assert!(lines[0]["eta_seconds"].is_u64());
}

#[test]
fn a_dry_run_asks_once_and_says_how_to_do_it() {
    let would = json!({ "redriven": 240, "remaining": 240, "done": true });
    let aws = Aws::invoked(vec![Reply::json(&would)]);
    let ran = sendslot(
        &aws,
        &[
            "redrive",
            "--rate",
            "20/s",
            "--lane",
            "bulk",
            "--older-than",
            "1h",
            "--dry-run",
        ],
    );
    assert_eq!(ran.code, 0);
    let asked = aws.payloads();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0]["dry_run"], true);
    assert_eq!(
        ran.out,
        "\
240 mails would go again; nothing was changed
to do it: sendslot redrive --rate 20/s --lane bulk --older-than 3600000ms
"
    );
}

#[test]
fn what_passes_is_tried_again() {
    let passes =
        Reply::json(&json!({ "error": { "code": "redis_unavailable", "message": "no answer" } }));
    let aws = Aws::invoked(vec![some(100, 40), passes, last()]);
    let ran = sendslot(&aws, &["redrive", "--rate", "20/s"]);
    assert_eq!(ran.code, 4);
    assert!(ran.out.starts_with("140 mails redriven"), "{}", ran.out);
    assert!(
        ran.err
            .contains("redis_unavailable: no answer; trying again"),
        "{}",
        ran.err
    );
}

#[test]
fn what_does_not_pass_ends_it_and_says_what_was_done() {
    let fails = Reply::json(
        &json!({ "error": { "code": "bad_field", "message": "rate: above what may be sent" } }),
    );
    let aws = Aws::invoked(vec![some(100, 40), fails]);
    let ran = sendslot(&aws, &["redrive", "--rate", "20/s"]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.out, "");
    assert!(
        ran.err.contains("100 mails redriven before this; the same command goes on\nerror: control: bad_field: rate: above what may be sent"),
        "{}",
        ran.err
    );
}

#[test]
fn ctrl_c_stops_it_between_two_calls() {
    let long = json!({ "redriven": 100, "remaining": 42, "done": false, "retry_after_ms": 60_000 });
    let aws = Aws::invoked(vec![Reply::json(&long)]);
    let child = at(&aws.url, &["redrive", "--rate", "20/s", "--lane", "bulk"])
        .spawn()
        .unwrap();
    aws.wait_for(1);
    thread::sleep(std::time::Duration::from_millis(500));
    interrupt(&child);
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{}", ran.err);
    assert!(
        ran.out.ends_with("stopped: 42 remain; to go on, the same again: sendslot redrive --rate 20/s --lane bulk\n"),
        "{}",
        ran.out
    );
    assert_eq!(aws.payloads().len(), 1);
}

#[test]
fn ctrl_c_within_a_call_waits_for_its_answer() {
    let slow = Aws::answering(|asked| {
        if asked.payload().is_none() {
            return crate::aws::stack(&crate::aws::OUTPUTS);
        }
        thread::sleep(std::time::Duration::from_secs(2));
        some(100, 42)
    });
    let child = at(&slow.url, &["redrive", "--rate", "20/s"])
        .spawn()
        .unwrap();
    slow.wait_for(1);
    thread::sleep(std::time::Duration::from_millis(300));
    interrupt(&child);
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{}", ran.err);
    assert!(ran.err.contains("stopping after this call"), "{}", ran.err);
    assert!(ran.out.starts_with("100 mails redriven at "), "{}", ran.out);
    assert_eq!(slow.payloads().len(), 1);
}
