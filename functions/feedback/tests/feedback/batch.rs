//! What each event comes to, and what holds nothing up.

use feedback::event::{Event, Kind};
use sendslot_domain::suppression::Cause;
use sendslot_mail::digest;
use sendslot_schedule::Told;
use serde_json::json;

use crate::fakes::{NOW, Rig, bounce, complaint, event, sent, tenant};

fn read(body: &str) -> Event {
    Event::read(body, NOW).unwrap()
}

#[test]
fn only_what_bounced_for_good_and_was_tried_tells_against_a_tenant() {
    for (kind, sub_type, expected, suppresses) in [
        ("Permanent", "General", Kind::Bounced, true),
        ("Permanent", "NoEmail", Kind::Bounced, true),
        ("Permanent", "Suppressed", Kind::BouncedSuppressed, true),
        (
            "Permanent",
            "OnAccountSuppressionList",
            Kind::BouncedSuppressed,
            true,
        ),
        ("Transient", "MailboxFull", Kind::BouncedTransient, false),
        (
            "Undetermined",
            "Undetermined",
            Kind::BouncedTransient,
            false,
        ),
    ] {
        let event = read(&bounce("tenant-1", "a", kind, sub_type));
        assert_eq!((event.kind, event.recipients), (expected, 1), "{sub_type}");
        assert_eq!(event.reason.as_deref(), Some(sub_type));
        let list = suppresses.then(|| (Cause::Bounce, vec![digest("ann@example.com")]));
        assert_eq!(event.suppress, list, "{kind} {sub_type}");
        let counts = event.kind.told() == Told::Bounced;
        assert_eq!(counts, expected == Kind::Bounced);
    }
}

#[test]
fn a_complaint_is_one_persons_whoever_it_may_be() {
    let event = read(&complaint("tenant-1", "a", &json!({})));
    assert_eq!((event.kind, event.recipients), (Kind::Complained, 1));
    let both = vec![digest("ann@example.com"), digest("bob@example.com")];
    assert_eq!(event.suppress, Some((Cause::Complaint, both)));
    let on_list = json!({"complaintSubType": "OnAccountSuppressionList"});
    let event = read(&complaint("tenant-1", "a", &on_list));
    assert_eq!(event.kind.told(), Told::Else);
    let event = read(&complaint(
        "tenant-1",
        "a",
        &json!({"complaintFeedbackType": "not-spam"}),
    ));
    assert_eq!((event.kind.told(), event.suppress), (Told::Else, None));
}

#[test]
fn nobody_else_and_no_test_address_is_put_on_the_list() {
    let object = json!({"bounceType": "Permanent", "feedbackId": "f", "bouncedRecipients": [
        {"emailAddress": "Bounce+1@SIMULATOR.amazonses.com"}, {"emailAddress": "victim@example.com"},
        {"emailAddress": "Ann <ANN@example.com>"}]});
    let mut body = event("tenant-1", "a", "Bounce", "bounce", &object);
    body["detail"]["mail"]["destination"] =
        json!(["bounce+1@simulator.amazonses.com", "ann@example.com"]);
    let event = read(&body.to_string());
    assert_eq!(event.recipients, 3);
    assert_eq!(
        event.suppress,
        Some((Cause::Bounce, vec![digest("ann@example.com")]))
    );
}

#[test]
fn what_is_logged_is_a_code_and_never_an_address() {
    for reason in [
        "ann@example.com",
        "550 <ann@example.com> unknown",
        "a\nb",
        "",
    ] {
        let event = read(&bounce("tenant-1", "a", "Transient", reason));
        assert_eq!(event.reason, None, "{reason}");
    }
    // What can't be read is named by its place.
    let mut body = event("tenant-1", "a", "Send", "send", &json!({}));
    body["detail"]["mail"]["destination"] = json!("ann@example.com");
    let unknown = Event::read(&body.to_string(), NOW).unwrap_err().to_string();
    assert!(unknown.contains("detail.mail.destination"), "{unknown}");
    assert!(!unknown.contains('@'), "{unknown}");
}

#[test]
fn a_body_of_two_events_is_none() {
    let body = sent("tenant-1", "m-1");
    assert!(Event::read(&format!("{body} \n"), NOW).is_ok());
    let unknown = Event::read(&body.repeat(2), NOW).unwrap_err().to_string();
    let column = format!("line 1 column {}", body.len() + 1);
    assert!(unknown.contains(&column), "{unknown}");
}

#[test]
fn events_differ_where_what_happened_differs_and_not_otherwise() {
    let delivered = |time: &str, to: &str| {
        let object = json!({"timestamp": time, "recipients": [to]});
        read(&event("tenant-1", "a", "Delivery", "delivery", &object).to_string()).id
    };
    let first = delivered("2026-11-30T17:30:01.100Z", "ann@example.com");
    assert_eq!(
        first,
        delivered("2026-11-30T17:30:01.100Z", "ann@example.com")
    );
    assert_ne!(
        first,
        delivered("2026-11-30T17:30:01.101Z", "ann@example.com")
    );
    assert_ne!(
        first,
        delivered("2026-11-30T17:30:01.100Z", "bob@example.com")
    );
    assert_eq!(first.len(), 32);
    let send = read(&sent("tenant-1", "a"));
    assert_eq!(send.id, send.sent_id);
    assert_ne!(send.id, read(&sent("tenant-1", "b")).id);
    assert_ne!(send.id, read(&sent("tenant-2", "a")).id);
}

#[tokio::test(start_paused = true)]
async fn each_event_counts_once_in_any_order() {
    let rig = Rig::new();
    let (send, bounced) = (
        sent("tenant-1", "a"),
        bounce("tenant-1", "a", "Permanent", "General"),
    );
    // The bounce comes first: that the mail was sent is known from it.
    let first = rig.run(&[bounced.clone(), bounced.clone()]).await;
    assert_eq!(
        ["Sent", "Bounced", "Duplicate"].map(|name| first.count(name)),
        [2, 1, 1]
    );
    let again = rig.run(&[send, bounced]).await;
    assert_eq!(
        ["Sent", "Bounced", "Duplicate"].map(|name| again.count(name)),
        [0, 0, 1]
    );
    let counts = rig.fake.world().counts[&tenant("tenant-1")];
    assert_eq!((counts.sent, counts.bounced), (2, 1));
    assert_eq!(rig.fake.world().fed.len(), 2, "one call a batch");
    assert_eq!(first.count("FeedbackLagMs"), 1000);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_or_is_not_ours_holds_nothing_up() {
    let rig = Rig::new();
    let mut foreign = event("tenant-1", "a", "Send", "send", &json!({}));
    foreign["source"] = json!("my.app");
    let handled = rig
        .run(&[
            String::new(),
            "null".to_owned(),
            "{\"source\":".to_owned(),
            foreign.to_string(),
            event("tenant-1", "a", "Forward", "forward", &json!({})).to_string(),
            sent("tenant-1", "no send id"),
            sent("nobody", "a"),
            event("tenant-1", "a", "Open", "open", &json!({})).to_string(),
            sent("tenant-1", "a"),
        ])
        .await;
    assert_eq!(handled.back, [""; 0]);
    assert_eq!((handled.count("Unknown"), handled.count("Sent")), (7, 2));
    assert_eq!(rig.fake.world().fed[0].len(), 1);
}

#[tokio::test(start_paused = true)]
async fn while_redis_is_away_events_come_back_and_others_are_done_with() {
    for call in ["tenants", "feed", "hangs-tenants", "hangs-feed"] {
        let rig = Rig::new();
        rig.fail(&[call]);
        let bodies = [
            sent("tenant-1", "a"),
            "broken".to_owned(),
            sent("tenant-1", "b"),
        ];
        let handled = rig.run(&bodies).await;
        assert_eq!(handled.back, ["0", "2"], "{call}");
        assert_eq!(
            (handled.count("Sent"), handled.count("Unknown")),
            (0, 1),
            "{call}"
        );
        rig.fail(&[]);
        let handled = rig.run(&bodies).await;
        assert_eq!(
            (handled.back.len(), handled.count("Sent")),
            (0, 4),
            "{call}"
        );
    }
}

#[tokio::test]
async fn mail_of_another_stacks_tenant_of_the_same_name_is_not_ours() {
    let rig = Rig::new();
    let through = |set: &str| {
        let mut event = event("tenant-1", set, "Send", "send", &json!({}));
        event["detail"]["mail"]["tags"]["ses:configuration-set"] = json!([set]);
        event.to_string()
    };
    let handled = rig
        .run(&[through("tenant-1-set"), through("other-tenant-1")])
        .await;
    assert!(handled.back.is_empty());
    assert_eq!((handled.count("Sent"), handled.count("Unknown")), (2, 1));
    let fed = rig.fake.world().fed.concat();
    assert_eq!(fed.len(), 1, "{fed:?}");
}
