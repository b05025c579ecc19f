//! The events that SES publishes of a mail, as it hands them to EventBridge.
//!
//! Unlike the record they name addresses, as SES's own do.

use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::clock::Micros;
use crate::request::{Addresses, Summary, domain, mailbox};
use crate::suppression::Reason;

/// The account of every ARN here: the one that emulators of AWS take for theirs.
const ACCOUNT: &str = "000000000000";
const REGION: &str = "us-east-1";
const REPORTING_MTA: &str = "a1-1.smtp-out.amazonses.com";

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When it happened, and from when on it may be published.
    pub at: Micros,
    /// EventBridge's `DetailType`.
    pub detail_type: &'static str,
    /// The ARN of the configuration set that publishes it.
    pub resource: String,
    /// EventBridge's `Detail`.
    pub detail: Value,
}

/// Here mailboxes do as their names say, and count and are suppressed as any other.
const BOUNCES_DOMAIN: &str = "bounces.example";

/// What becomes of a recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The mail arrives.
    Delivered,
    /// It arrives late, and SES says so before.
    Delayed,
    /// There is no such mailbox.
    Bounced,
    /// The mailbox is full: it may take mail another time.
    SoftBounced,
    /// On the list that SES keeps for all accounts.
    GloballySuppressed,
    /// On the account's own list.
    Suppressed(Reason),
    /// The mail arrives, and its reader complains.
    Complained,
    /// SES refuses the whole mail.
    Rejected,
    /// The template can't be filled in: no mail at all.
    NotRendered,
}

impl Fate {
    /// As the mailbox simulator has it (`reject@` is ours: SES rejects for a virus in the content), or the name at
    /// `bounces.example`.
    #[must_use]
    pub fn of(address: &str) -> Self {
        match mailbox(address).as_deref() {
            Some("bounce") => return Self::Bounced,
            Some("complaint") => return Self::Complained,
            Some("suppressionlist") => return Self::GloballySuppressed,
            Some("reject") => return Self::Rejected,
            _ => {}
        }
        if !domain(address).is_some_and(|domain| domain.eq_ignore_ascii_case(BOUNCES_DOMAIN)) {
            return Self::Delivered;
        }
        let name = address.to_ascii_lowercase();
        let named = [
            ("bounce", Self::Bounced),
            ("complaint", Self::Complained),
            ("softbounce", Self::SoftBounced),
            ("delay", Self::Delayed),
            ("renderfail", Self::NotRendered),
        ];
        let fate = named.iter().find(|(begin, _)| name.starts_with(begin));
        fate.map_or(Self::Delivered, |(_, fate)| *fate)
    }

    /// Why SES puts the recipient on the account's suppression list, if it does.
    #[must_use]
    pub fn suppresses(self) -> Option<Reason> {
        match self {
            Self::Bounced => Some(Reason::Bounce),
            Self::Complained => Some(Reason::Complaint),
            _ => None,
        }
    }
}

/// The events of a mail that was accepted at `at` and whose events happen at `then`, in order; `fates` are its recipients', in
/// their order.
/// Only a mail that names a configuration set has any.
#[must_use]
pub fn of(
    summary: &Summary,
    addresses: &Addresses,
    fates: &[Fate],
    message_id: &str,
    at: Micros,
    then: Micros,
) -> Vec<Event> {
    let Some(set) = &summary.configuration_set else {
        return Vec::new();
    };
    let mail = mail(summary, addresses, set, message_id, at);
    let event = |detail_type, event_type: &str, own: &str, object: Value| Event {
        at: then,
        detail_type,
        resource: arn("configuration-set", set),
        detail: json!({ "eventType": event_type, "mail": mail, own: object }),
    };
    let with = |wanted: &[Fate]| -> Vec<&str> {
        let all = addresses.to.iter().zip(fates);
        let those = all.filter(|(_, fate)| wanted.contains(fate));
        those.map(|(address, _)| address.as_str()).collect()
    };

    if !with(&[Fate::NotRendered]).is_empty() {
        let object = json!({
            "errorMessage": "Attribute 'name' is not present in the rendering data.",
            "templateName": "simulated",
        });
        let detail_type = "Email Rendering Failed";
        return vec![event(detail_type, "Rendering Failure", "failure", object)];
    }
    if !with(&[Fate::Rejected]).is_empty() {
        let object = json!({ "reason": "Bad content" });
        return vec![event("Email Rejected", "Reject", "reject", object)];
    }
    let mut events = vec![event("Email Sent", "Send", "send", json!({}))];
    let delayed = with(&[Fate::Delayed]);
    if !delayed.is_empty() {
        let object = delay(&delayed, then);
        let detail_type = "Email Delivery Delayed";
        events.push(event(detail_type, "DeliveryDelay", "deliveryDelay", object));
    }
    let delivered = with(&[Fate::Delivered, Fate::Complained, Fate::Delayed]);
    if !delivered.is_empty() {
        let object = json!({
            "timestamp": timestamp(then),
            "processingTimeMillis": then.saturating_sub(at) / 1000,
            "recipients": delivered,
            "smtpResponse": "250 2.6.0 Message received",
            "reportingMTA": REPORTING_MTA,
        });
        events.push(event("Email Delivered", "Delivery", "delivery", object));
    }
    for kind in BOUNCES {
        let bounced = with(&[kind.fate]);
        if !bounced.is_empty() {
            let object = bounce(&kind, &bounced, message_id, then);
            events.push(event("Email Bounced", "Bounce", "bounce", object));
        }
    }
    for (fate, subtype) in [
        (Fate::Complained, None),
        (Fate::Suppressed(Reason::Complaint), Some(ON_LIST)),
    ] {
        let complained = with(&[fate]);
        if !complained.is_empty() {
            let object = complaint(&complained, subtype, message_id, then);
            let detail_type = "Email Complaint Received";
            events.push(event(detail_type, "Complaint", "complaint", object));
        }
    }
    events
}

/// SES's word for what it didn't try to deliver since the account's suppression list has the recipient.
const ON_LIST: &str = "OnAccountSuppressionList";

/// A way to bounce, in SES's words.
struct BounceKind {
    fate: Fate,
    bounce_type: &'static str,
    subtype: &'static str,
    status: &'static str,
    diagnosis: &'static str,
}

const BOUNCES: [BounceKind; 4] = [
    BounceKind {
        fate: Fate::Bounced,
        bounce_type: "Permanent",
        subtype: "General",
        status: "5.1.1",
        diagnosis: "smtp; 550 5.1.1 user unknown",
    },
    BounceKind {
        fate: Fate::SoftBounced,
        bounce_type: "Transient",
        subtype: "MailboxFull",
        status: "4.2.2",
        diagnosis: "smtp; 452 4.2.2 mailbox full",
    },
    BounceKind {
        fate: Fate::GloballySuppressed,
        bounce_type: "Permanent",
        subtype: "Suppressed",
        status: "5.1.1",
        diagnosis: "Amazon SES has suppressed sending to this address",
    },
    BounceKind {
        fate: Fate::Suppressed(Reason::Bounce),
        bounce_type: "Permanent",
        subtype: ON_LIST,
        status: "5.1.1",
        diagnosis: "Amazon SES did not send the message to this address",
    },
];

fn bounce(kind: &BounceKind, addresses: &[&str], message_id: &str, then: Micros) -> Value {
    let recipients = addresses.iter().map(|address| {
        json!({
            "emailAddress": address,
            "action": "failed",
            "status": kind.status,
            "diagnosticCode": kind.diagnosis,
        })
    });
    let label = kind.subtype.to_ascii_lowercase();
    let label = if kind.fate == Fate::Bounced {
        "bounce"
    } else {
        &label
    };
    json!({
        "feedbackId": format!("{message_id}-{label}"),
        "bounceType": kind.bounce_type,
        "bounceSubType": kind.subtype,
        "bouncedRecipients": recipients.collect::<Vec<_>>(),
        "timestamp": timestamp(then),
        "reportingMTA": format!("dsn; {REPORTING_MTA}"),
    })
}

fn complaint(addresses: &[&str], subtype: Option<&str>, message_id: &str, then: Micros) -> Value {
    let recipients = addresses.iter();
    let recipients = recipients.map(|address| json!({ "emailAddress": address }));
    let label = if subtype.is_some() {
        "complaint-listed"
    } else {
        "complaint"
    };
    json!({
        "feedbackId": format!("{message_id}-{label}"),
        "complaintSubType": subtype,
        "complainedRecipients": recipients.collect::<Vec<_>>(),
        "timestamp": timestamp(then),
        "userAgent": "Amazon SES Mailbox Simulator",
        "complaintFeedbackType": "abuse",
        "arrivalDate": timestamp(then),
    })
}

fn delay(addresses: &[&str], then: Micros) -> Value {
    /// SES tries for 14 hours.
    const TRIES_FOR: Micros = 14 * 3_600_000_000;
    let recipients = addresses.iter().map(|address| {
        json!({
            "emailAddress": address,
            "status": "4.4.1",
            "diagnosticCode": "smtp; 421 4.4.1 unable to connect to remote host",
        })
    });
    json!({
        "timestamp": timestamp(then),
        "delayType": "TransientCommunicationFailure",
        "expirationTime": timestamp(then + TRIES_FOR),
        "delayedRecipients": recipients.collect::<Vec<_>>(),
        "reportingMTA": REPORTING_MTA,
    })
}

/// The part that all events of a mail share.
fn mail(
    summary: &Summary,
    addresses: &Addresses,
    set: &str,
    message_id: &str,
    at: Micros,
) -> Value {
    let source = addresses.from.as_deref().unwrap_or_default();
    let domain = source.rsplit_once('@').map_or("", |(_, domain)| domain);
    let mut tags = json!({
        "ses:operation": ["SendEmail"],
        "ses:configuration-set": [set],
        "ses:from-domain": [domain],
    });
    for (name, value) in &summary.tags {
        // The last of a name stands.
        tags[name] = json!([value]);
    }
    json!({
        "timestamp": timestamp(at),
        "messageId": message_id,
        "source": source,
        "sourceArn": arn("identity", domain),
        "sendingAccountId": ACCOUNT,
        "destination": addresses.to,
        "tags": tags,
    })
}

fn arn(kind: &str, name: &str) -> String {
    format!("arn:aws:ses:{REGION}:{ACCOUNT}:{kind}/{name}")
}

/// The time as SES writes it, such as `2026-09-21T14:13:20.123Z`.
fn timestamp(at: Micros) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at) * 1000);
    let time = time.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        time.year(),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.millisecond()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Micros = 1_790_000_000_123_457;
    const THEN: Micros = AT + 50_000;

    fn events(set: Option<&str>, to: &[&str]) -> Vec<Event> {
        let summary = Summary {
            configuration_set: set.map(str::to_owned),
            tags: vec![("send_id".to_owned(), "order-1".to_owned())],
            ..Summary::default()
        };
        let addresses = Addresses {
            from: Some("shop@example.com".to_owned()),
            to: to.iter().map(|&address| address.to_owned()).collect(),
        };
        let fates: Vec<_> = to.iter().map(|address| Fate::of(address)).collect();
        of(&summary, &addresses, &fates, "0100-1", AT, THEN)
    }

    fn types(to: &[&str]) -> Vec<&'static str> {
        let events = events(Some("acme-set"), to);
        events.iter().map(|event| event.detail_type).collect()
    }

    #[test]
    fn a_mail_is_sent_and_delivered() {
        let events = events(Some("acme-set"), &["a@example.com", "b@example.com"]);
        assert_eq!(events.len(), 2);
        let mail = json!({
            "timestamp": "2026-09-21T14:13:20.123Z",
            "messageId": "0100-1",
            "source": "shop@example.com",
            "sourceArn": "arn:aws:ses:us-east-1:000000000000:identity/example.com",
            "sendingAccountId": "000000000000",
            "destination": ["a@example.com", "b@example.com"],
            "tags": {
                "ses:operation": ["SendEmail"],
                "ses:configuration-set": ["acme-set"],
                "ses:from-domain": ["example.com"],
                "send_id": ["order-1"],
            },
        });
        let sent = json!({"eventType": "Send", "mail": mail, "send": {}});
        assert_eq!(
            (events[0].detail_type, &events[0].detail),
            ("Email Sent", &sent)
        );
        let delivered = json!({"eventType": "Delivery", "mail": mail, "delivery": {
            "timestamp": "2026-09-21T14:13:20.173Z",
            "processingTimeMillis": 50,
            "recipients": ["a@example.com", "b@example.com"],
            "smtpResponse": "250 2.6.0 Message received",
            "reportingMTA": "a1-1.smtp-out.amazonses.com",
        }});
        assert_eq!(
            (events[1].detail_type, &events[1].detail),
            ("Email Delivered", &delivered)
        );
        for event in events {
            assert_eq!(event.at, THEN);
            let set = "arn:aws:ses:us-east-1:000000000000:configuration-set/acme-set";
            assert_eq!(event.resource, set);
        }
    }

    #[test]
    fn no_configuration_set_publishes_nothing() {
        assert_eq!(events(None, &["a@example.com"]), []);
    }

    #[test]
    fn the_mailbox_simulator_decides() {
        let bounce = "Bounce+x@simulator.amazonses.com";
        let complaint = "complaint@Simulator.amazonses.com";
        let reject = "reject+1@simulator.amazonses.com";
        assert_eq!(types(&[bounce]), ["Email Sent", "Email Bounced"]);
        assert_eq!(
            types(&[complaint]),
            ["Email Sent", "Email Delivered", "Email Complaint Received"]
        );
        assert_eq!(types(&["a@example.com", reject]), ["Email Rejected"]);
        for ordinary in ["bounce@example.com", "bouncer@simulator.amazonses.com"] {
            assert_eq!(types(&[ordinary]), ["Email Sent", "Email Delivered"]);
        }
    }

    #[test]
    fn mailboxes_at_bounces_example_do_as_their_names_say() {
        for (address, expected) in [
            (
                "bounce@bounces.example",
                vec!["Email Sent", "Email Bounced"],
            ),
            (
                "Bounce-17@Bounces.example",
                vec!["Email Sent", "Email Bounced"],
            ),
            (
                "softbounce@bounces.example",
                vec!["Email Sent", "Email Bounced"],
            ),
            (
                "complaint3@bounces.example",
                vec!["Email Sent", "Email Delivered", "Email Complaint Received"],
            ),
            (
                "delay@bounces.example",
                vec!["Email Sent", "Email Delivery Delayed", "Email Delivered"],
            ),
            ("renderfail@bounces.example", vec!["Email Rendering Failed"]),
            (
                "anybody@bounces.example",
                vec!["Email Sent", "Email Delivered"],
            ),
            (
                "bounce@sub.bounces.example",
                vec!["Email Sent", "Email Delivered"],
            ),
            (
                "suppressionlist@simulator.amazonses.com",
                vec!["Email Sent", "Email Bounced"],
            ),
        ] {
            assert_eq!(types(&[address]), expected, "{address}");
        }
        let kind = |address: &str| {
            let bounce = events(Some("s"), &[address])[1].detail["bounce"].clone();
            ["bounceType", "bounceSubType"].map(|name| bounce[name].as_str().unwrap().to_owned())
        };
        assert_eq!(
            kind("softbounce@bounces.example"),
            ["Transient", "MailboxFull"]
        );
        let listed = "suppressionlist@simulator.amazonses.com";
        assert_eq!(kind(listed), ["Permanent", "Suppressed"]);
    }

    #[test]
    fn each_recipient_is_in_the_event_of_its_fate() {
        let to = [
            "a@example.com",
            "bounce@simulator.amazonses.com",
            "complaint@simulator.amazonses.com",
        ];
        let events = events(Some("s"), &to);
        let detail = |index: usize| events[index].detail.clone();
        assert_eq!(events.len(), 4);
        assert_eq!(detail(1)["delivery"]["recipients"], json!([to[0], to[2]]));
        let bounce = detail(2)["bounce"].clone();
        assert_eq!(bounce["bounceType"], "Permanent");
        assert_eq!(bounce["bounceSubType"], "General");
        assert_eq!(bounce["bouncedRecipients"].as_array().unwrap().len(), 1);
        assert_eq!(bounce["bouncedRecipients"][0]["emailAddress"], to[1]);
        let complaint = detail(3)["complaint"].clone();
        assert_eq!(complaint["complaintFeedbackType"], "abuse");
        assert_eq!(
            complaint["complainedRecipients"],
            json!([{"emailAddress": to[2]}])
        );
        assert_ne!(bounce["feedbackId"], complaint["feedbackId"]);
    }
}
