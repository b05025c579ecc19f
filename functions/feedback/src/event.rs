//! From a message's body to what it tells: SES's event in EventBridge's envelope.
//!
//! Both are read leniently: fields that aren't needed may be missing, null or new. What SES leaves out of an event
//! is assumed so that the event still counts.

use std::fmt::Write;

use sendslot_domain::{
    Lane, Moment, SendId, TenantName,
    suppression::{AddressDigest, Cause},
};
use sendslot_mail::digest;
use sendslot_schedule::Told;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Mail to here is a test: what becomes of it says nothing of the address.
const SIMULATOR: &str = "simulator.amazonses.com";
/// The longest code that is logged, in characters.
const LONGEST_CODE: usize = 64;

/// One event of our mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What tells it from all others, and is the same when it is handed over again: 32 hexadecimal digits.
    pub id: String,
    /// The id of the event that the provider has accepted this mail.
    pub sent_id: String,
    /// What happened.
    pub kind: Kind,
    /// On whose behalf the mail went.
    pub tenant: TenantName,
    /// The mail.
    pub send_id: SendId,
    /// The lane it went through, if its tag says so.
    pub lane: Option<Lane>,
    /// The configuration set that it went through, if SES says so.
    pub configuration_set: Option<String>,
    /// The provider's own id of the mail.
    pub message_id: Option<String>,
    /// Of how many recipients it tells, at least one.
    pub recipients: u32,
    /// How many recipients the mail has, at least one.
    pub addressed: u32,
    /// When the provider accepted the mail, on its clock.
    pub sent_at: Moment,
    /// When it happened, on the provider's clock, if that is told.
    pub at: Option<Moment>,
    /// Why, as the provider's code.
    pub reason: Option<String>,
    /// Whom nobody may be sent to from now on, and why.
    pub suppress: Option<(Cause, Vec<AddressDigest>)>,
}

/// What happened to a mail, or to some of its recipients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The provider has accepted it.
    Sent,
    /// The recipients' server has accepted it.
    Delivered,
    /// It is late.
    Delayed,
    /// It bounced for good.
    Bounced,
    /// It bounced, and another may arrive.
    BouncedTransient,
    /// The provider didn't try: the recipients are on its list of those that nobody may be sent to.
    BouncedSuppressed,
    /// Somebody complained.
    Complained,
    /// A report like a complaint, which says that the mail is none to complain of.
    NotSpam,
    /// The provider found something bad in it and didn't send it.
    Rejected,
    /// Its template and data don't fit, and it wasn't sent.
    RenderingFailed,
    /// A recipient did something with it that isn't counted here: opened it, followed a link, changed a subscription.
    Ignored,
}

impl Kind {
    /// As it is logged.
    #[must_use]
    pub const fn outcome(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Delivered => "delivered",
            Self::Delayed => "delayed",
            Self::Bounced => "bounced",
            Self::BouncedTransient => "bounced_transient",
            Self::BouncedSuppressed => "bounced_suppressed",
            Self::Complained => "complained",
            Self::NotSpam => "not_spam",
            Self::Rejected => "rejected",
            Self::RenderingFailed => "rendering_failed",
            Self::Ignored => "ignored",
        }
    }

    /// The metric that its recipients are counted in.
    #[must_use]
    pub const fn metric(self) -> Option<&'static str> {
        match self {
            Self::Sent => Some("Sent"),
            Self::Delivered => Some("Delivered"),
            Self::Delayed => Some("Delayed"),
            Self::Bounced => Some("Bounced"),
            Self::BouncedTransient => Some("BouncedTransient"),
            Self::BouncedSuppressed => Some("BouncedSuppressed"),
            Self::Complained => Some("Complained"),
            Self::Rejected => Some("Rejected"),
            Self::RenderingFailed => Some("RenderingFailed"),
            Self::NotSpam | Self::Ignored => None,
        }
    }

    /// What of it counts for or against a tenant.
    #[must_use]
    pub const fn told(self) -> Told {
        match self {
            Self::Sent => Told::Sent,
            Self::Bounced => Told::Bounced,
            Self::Complained => Told::Complained,
            _ => Told::Else,
        }
    }

    /// Whether it can only happen to a mail that the provider has accepted and sent on.
    #[must_use]
    pub const fn follows_sent(self) -> bool {
        matches!(
            self,
            Self::Delivered
                | Self::Delayed
                | Self::Bounced
                | Self::BouncedTransient
                | Self::Complained
                | Self::NotSpam
        )
    }
}

/// Why a body is no event of ours. Says where, never what is there: that may be an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// It can't be read.
    #[error("not an event as SES writes it, at {0}")]
    Unreadable(String),
    /// It isn't SES's.
    #[error("not of SES, at source")]
    Source,
    /// Something that this version doesn't know happened.
    #[error("an event type that this version doesn't know, at detail.eventType")]
    Type,
    /// Its mail isn't ours: we name tenant and send id in tags.
    #[error("of mail that isn't ours, at detail.mail.tags")]
    Foreign,
}

impl Event {
    /// Reads a message's body. Times that SES left out are taken to be `now`.
    ///
    /// # Errors
    /// When it is no event of our mail.
    pub fn read(body: &str, now: Moment) -> Result<Self, Unknown> {
        let envelope = parse(body)?;
        if envelope.source.as_deref() != Some("aws.ses") {
            return Err(Unknown::Source);
        }
        let detail = envelope
            .detail
            .ok_or_else(|| Unknown::Unreadable("detail".to_owned()))?;
        let named = detail.event_type.as_deref();
        let named = named.or(detail.notification_type.as_deref());
        let what = what(named.ok_or(Unknown::Type)?, &detail).ok_or(Unknown::Type)?;
        let mail = detail.mail.as_ref().ok_or(Unknown::Foreign)?;
        let tags = mail.tags.as_ref().ok_or(Unknown::Foreign)?;
        let tenant: Option<TenantName> = tag(tags.tenant.as_ref());
        let send_id: Option<SendId> = tag(tags.send_id.as_ref());
        let (tenant, send_id) = tenant.zip(send_id).ok_or(Unknown::Foreign)?;

        let at = moment(envelope.time.as_deref()).or_else(|| moment(what.timestamp));
        let sent_at = moment(mail.timestamp.as_deref()).or(at).unwrap_or(now);
        let message_id = mail.message_id.as_deref().unwrap_or_default();
        let of = [tenant.as_str(), send_id.as_str(), message_id];
        let addressed = count(mail.destination.as_ref().map_or(0, Vec::len));
        let mut parts = vec![what.name];
        parts.extend(what.which);
        parts.extend(&what.addresses);
        let suppress = what
            .cause
            .map(|cause| (cause, suppressed(&what.addresses, mail)));
        Ok(Self {
            id: id(&of, &parts),
            sent_id: id(&of, &["Send"]),
            kind: what.kind,
            lane: tag(tags.lane.as_ref()),
            configuration_set: tag(tags.configuration_set.as_ref()),
            message_id: code(message_id),
            recipients: what.recipients.unwrap_or(addressed),
            addressed,
            sent_at,
            at,
            reason: what.reason.and_then(code),
            suppress: suppress.filter(|(_, digests)| !digests.is_empty()),
            tenant,
            send_id,
        })
    }
}

/// What an event says of its own.
struct What<'a> {
    /// Its type, in one spelling.
    name: &'static str,
    kind: Kind,
    /// Of how many, unless of all.
    recipients: Option<u32>,
    /// What tells it from others of the same type and mail, beside the addresses.
    which: Option<&'a str>,
    timestamp: Option<&'a str>,
    reason: Option<&'a str>,
    /// Of whom.
    addresses: Vec<&'a str>,
    /// Why nobody may send to these.
    cause: Option<Cause>,
}

impl<'a> What<'a> {
    const fn of_all(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            recipients: None,
            which: None,
            timestamp: None,
            reason: None,
            addresses: Vec::new(),
            cause: None,
        }
    }

    /// Of some of a mail's recipients, at a time.
    fn of_some(
        name: &'static str,
        kind: Kind,
        addresses: Vec<&'a str>,
        timestamp: Option<&'a str>,
    ) -> Self {
        Self {
            recipients: Some(count(addresses.len())),
            which: timestamp,
            timestamp,
            addresses,
            ..Self::of_all(name, kind)
        }
    }
}

/// Reads an event by its type; nothing where this version doesn't know it.
fn what<'a>(named: &str, detail: &'a Detail) -> Option<What<'a>> {
    Some(match named {
        "Send" => What::of_all("Send", Kind::Sent),
        "Delivery" => {
            let own = detail.delivery.as_ref();
            let all = own.and_then(|own| own.recipients.as_ref());
            let addresses = all.into_iter().flatten().map(String::as_str).collect();
            let timestamp = own.and_then(|own| own.timestamp.as_deref());
            What::of_some("Delivery", Kind::Delivered, addresses, timestamp)
        }
        "DeliveryDelay" => {
            let own = detail.delivery_delay.as_ref();
            let addresses = addresses(own.and_then(|own| own.delayed_recipients.as_ref()));
            let timestamp = own.and_then(|own| own.timestamp.as_deref());
            What {
                reason: own.and_then(|own| own.delay_type.as_deref()),
                ..What::of_some("DeliveryDelay", Kind::Delayed, addresses, timestamp)
            }
        }
        "Bounce" => bounce(detail.bounce.as_ref()),
        "Complaint" => complaint(detail.complaint.as_ref()),
        "Reject" => What {
            reason: detail.reject.as_ref().and_then(|own| own.reason.as_deref()),
            ..What::of_all("Reject", Kind::Rejected)
        },
        "Rendering Failure" | "RenderingFailure" => {
            let own = detail.failure.as_ref();
            What {
                reason: own.and_then(|own| own.template_name.as_deref()),
                ..What::of_all("Rendering Failure", Kind::RenderingFailed)
            }
        }
        "Open" => What::of_all("Open", Kind::Ignored),
        "Click" => What::of_all("Click", Kind::Ignored),
        "Subscription" => What::of_all("Subscription", Kind::Ignored),
        _ => return None,
    })
}

/// Only what bounced for good counts against a tenant, and only where the provider has tried.
fn bounce(own: Option<&Bounce>) -> What<'_> {
    let addresses = addresses(own.and_then(|own| own.bounced_recipients.as_ref()));
    let timestamp = own.and_then(|own| own.timestamp.as_deref());
    let reason = own.and_then(|own| own.bounce_sub_type.as_deref());
    let is_permanent = own.and_then(|own| own.bounce_type.as_deref()) == Some("Permanent");
    let kind = match reason {
        _ if !is_permanent => Kind::BouncedTransient,
        Some("Suppressed" | "OnAccountSuppressionList") => Kind::BouncedSuppressed,
        _ => Kind::Bounced,
    };
    What {
        which: own.and_then(|own| own.feedback_id.as_deref()).or(timestamp),
        reason,
        cause: is_permanent.then_some(Cause::Bounce),
        ..What::of_some("Bounce", kind, addresses, timestamp)
    }
}

/// A complaint is one person's. Most providers of mailboxes don't say whose, so SES lists all recipients that it may be of.
fn complaint(own: Option<&Complaint>) -> What<'_> {
    let addresses = addresses(own.and_then(|own| own.complained_recipients.as_ref()));
    let timestamp = own.and_then(|own| own.timestamp.as_deref());
    let feedback = own.and_then(|own| own.complaint_feedback_type.as_deref());
    let sub_type = own.and_then(|own| own.complaint_sub_type.as_deref());
    let kind = match (sub_type, feedback) {
        (Some("OnAccountSuppressionList"), _) => Kind::BouncedSuppressed,
        (_, Some("not-spam")) => Kind::NotSpam,
        _ => Kind::Complained,
    };
    What {
        recipients: Some(1),
        which: own.and_then(|own| own.feedback_id.as_deref()).or(timestamp),
        reason: sub_type.or(feedback),
        cause: (kind != Kind::NotSpam).then_some(Cause::Complaint),
        ..What::of_some("Complaint", kind, addresses, timestamp)
    }
}

fn addresses(recipients: Option<&Vec<Recipient>>) -> Vec<&str> {
    let all = recipients.into_iter().flatten();
    all.filter_map(|one| one.email_address.as_deref()).collect()
}

/// Those of the addresses that nobody may be sent to. A bounce names whom the far server says it is about, which may be somebody else than
/// the mail went to: nobody may have others put on the list, which is all tenants'.
fn suppressed(addresses: &[&str], mail: &Mail) -> Vec<AddressDigest> {
    let destination = mail.destination.iter().flatten();
    let sent_to: Vec<_> = destination.map(|address| digest(address)).collect();
    let of_whom = addresses.iter().filter(|address| !is_simulator(address));
    let digests = of_whom.map(|address| digest(address));
    digests.filter(|digest| sent_to.contains(digest)).collect()
}

fn is_simulator(address: &str) -> bool {
    let domain = address.rsplit_once('@').map_or("", |(_, domain)| domain);
    let domain = domain.trim_end_matches(|c: char| c == '>' || c.is_whitespace());
    domain.eq_ignore_ascii_case(SIMULATOR)
}

/// A mail has a recipient, whether its event names one or not.
fn count(listed: usize) -> u32 {
    u32::try_from(listed).unwrap_or(u32::MAX).max(1)
}

/// The last value of a tag: ours come after what a producer has set.
fn tag<T: std::str::FromStr>(values: Option<&Vec<String>>) -> Option<T> {
    values?.last()?.parse().ok()
}

fn moment(text: Option<&str>) -> Option<Moment> {
    let at = OffsetDateTime::parse(text?, &Rfc3339).ok()?;
    let millis = at.unix_timestamp_nanos() / 1_000_000;
    Some(Moment(u64::try_from(millis).ok()?))
}

/// What may be logged: a word or two such as `MailboxFull` or `Bad content`. Some of them are as the recipient's server wrote them, and
/// may hold anything.
fn code(text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ' ');
    let fits = !text.is_empty() && text.len() <= LONGEST_CODE;
    (fits && text.chars().all(is_plain)).then(|| text.to_owned())
}

fn id(of: &[&str], parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in of.iter().chain(parts) {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    let mut id = String::with_capacity(32);
    for byte in &hash.finalize()[..16] {
        let _written = write!(id, "{byte:02x}");
    }
    id
}

fn parse(text: &str) -> Result<Envelope, Unknown> {
    let reader = &mut serde_json::Deserializer::from_str(text);
    let place = |error: &serde_json::Error| {
        let (line, column) = (error.line(), error.column());
        format!("line {line} column {column}")
    };
    let envelope = serde_path_to_error::deserialize(&mut *reader).map_err(|error| {
        // Not the error's own text: it shows what it found.
        Unknown::Unreadable(match error.path().to_string().as_str() {
            "." => place(error.inner()),
            path => path.to_owned(),
        })
    })?;
    // Two events in one body are none: the second would be lost.
    let end = reader.end();
    end.map_err(|error| Unknown::Unreadable(place(&error)))?;
    Ok(envelope)
}

#[derive(Deserialize)]
struct Envelope {
    source: Option<String>,
    time: Option<String>,
    detail: Option<Detail>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Detail {
    event_type: Option<String>,
    /// What SES calls it where it isn't published through a configuration set.
    notification_type: Option<String>,
    mail: Option<Mail>,
    delivery: Option<Delivery>,
    delivery_delay: Option<DeliveryDelay>,
    bounce: Option<Bounce>,
    complaint: Option<Complaint>,
    reject: Option<Reject>,
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mail {
    timestamp: Option<String>,
    message_id: Option<String>,
    destination: Option<Vec<String>>,
    tags: Option<Tags>,
}

#[derive(Deserialize)]
struct Tags {
    tenant: Option<Vec<String>>,
    send_id: Option<Vec<String>>,
    lane: Option<Vec<String>>,
    #[serde(rename = "ses:configuration-set")]
    configuration_set: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Delivery {
    timestamp: Option<String>,
    recipients: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeliveryDelay {
    timestamp: Option<String>,
    delay_type: Option<String>,
    delayed_recipients: Option<Vec<Recipient>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "they are SES's")]
struct Bounce {
    timestamp: Option<String>,
    feedback_id: Option<String>,
    bounce_type: Option<String>,
    bounce_sub_type: Option<String>,
    bounced_recipients: Option<Vec<Recipient>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "they are SES's")]
struct Complaint {
    timestamp: Option<String>,
    feedback_id: Option<String>,
    complaint_sub_type: Option<String>,
    complaint_feedback_type: Option<String>,
    complained_recipients: Option<Vec<Recipient>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recipient {
    email_address: Option<String>,
}

#[derive(Deserialize)]
struct Reject {
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Failure {
    template_name: Option<String>,
}
