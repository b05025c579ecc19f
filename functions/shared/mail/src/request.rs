//! What producers put on an intake queue, read and checked.
//!
//! The JSON Schema is checked first; what a schema can't say follows here: addresses, recipients
//! counted together, the expiry against the clock, headers and tags that are the provider's or ours,
//! raw content, the size with the envelope.

use std::sync::LazyLock;

use base64::{Engine, prelude::BASE64_STANDARD};
use jsonschema::{
    JsonType, ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind},
};
use sendslot_domain::{Cell, Lane, Moment, SendId, TenantName};
use serde::Deserialize;
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{Content, Envelope, Header, Mail, Refusal, SCHEMA, address, json};

/// How many days ahead a mail may be handed in.
pub const MAX_AHEAD_DAYS: u64 = 366;

/// How many recipients SES takes in one mail.
pub const MAX_RECIPIENTS: usize = 50;

/// How many bytes a body may have, the request's as well as its envelope's: what SQS takes in one
/// message, less 1 KiB for the attributes that a wait or a dead letter adds.
pub const MAX_BYTES: usize = 1_048_576 - 1024;

/// The tags that `send` puts on each mail.
const OUR_TAGS: [&str; 5] = ["send_id", "tenant", "lane", "slot_ms", "grant_ms"];

/// Headers that SES writes from the request's own fields, or that say who sends and who receives.
const THEIR_HEADERS: [&str; 21] = [
    "arc-authentication-results",
    "arc-message-signature",
    "arc-seal",
    "authentication-results",
    "bcc",
    "cc",
    "content-disposition",
    "content-transfer-encoding",
    "content-type",
    "date",
    "dkim-signature",
    "from",
    "message-id",
    "mime-version",
    "received",
    "reply-to",
    "return-path",
    "sender",
    "subject",
    "to",
    "delivered-to",
];

/// A valid request for one mail.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// The producer's idempotency key, scoped by tenant.
    pub send_id: SendId,
    /// On whose behalf the mail goes.
    pub tenant: TenantName,
    /// What the producer asked for; see [`SendRequest::lane_on`].
    pub lane: Option<Lane>,
    /// When the mail is of no more use.
    pub expires_at: Option<Moment>,
    /// When it is to be sent; nothing, or what is past, is now.
    pub send_at: Option<Moment>,
    /// [`Mail::fingerprint`].
    pub fingerprint: String,
    /// The mail.
    pub mail: Mail,
}

/// The request as JSON has it, once the schema holds.
#[derive(Deserialize)]
struct Wire {
    send_id: String,
    tenant: String,
    lane: Option<String>,
    expires_at: Option<String>,
    send_at: Option<String>,
    from: String,
    #[serde(default)]
    to: Vec<String>,
    #[serde(default)]
    cc: Vec<String>,
    #[serde(default)]
    bcc: Vec<String>,
    #[serde(default)]
    reply_to: Vec<String>,
    #[serde(default)]
    tags: std::collections::BTreeMap<String, String>,
    content: Content,
}

impl SendRequest {
    /// Reads and checks a request's text at the moment `now`.
    ///
    /// # Errors
    /// The first reason to refuse it.
    pub fn parse(text: &str, now: Moment) -> Result<Self, Refusal> {
        fits(text.len())?;
        let value = json::parse(text)?;
        if let Some(error) = schema().iter_errors(&value).next() {
            return Err(refusal(&error));
        }
        // From the text, not from the value: template data must stay as it was written.
        let wire: Wire = serde_json::from_str(text).map_err(|e| bad_json(&e))?;
        let expires_at = wire
            .expires_at
            .as_deref()
            .map(|text| moment(text, now))
            .transpose()?;
        let send_at = wire.send_at.as_deref().map(ahead).transpose()?;
        check_ahead(send_at, expires_at, now)?;
        let mail = Mail {
            from: wire.from,
            to: wire.to,
            cc: wire.cc,
            bcc: wire.bcc,
            reply_to: wire.reply_to,
            tags: wire.tags,
            content: wire.content,
        };
        check(&mail)?;
        let request = Self {
            send_id: wire.send_id.parse().map_err(Refusal::BadSendId)?,
            tenant: wire.tenant.parse().map_err(Refusal::BadTenant)?,
            lane: wire
                .lane
                .map(|lane| lane.parse())
                .transpose()
                .map_err(|_| Refusal::UnknownLane)?,
            expires_at,
            send_at,
            fingerprint: mail.fingerprint().map_err(|e| bad_json(&e))?,
            mail,
        };
        request.check_envelope()
    }

    /// The lane it travels in: the queue's when it came through one, else what the producer asked
    /// for, else bulk.
    ///
    /// # Errors
    /// When it asks for another lane than the queue's.
    pub fn lane_on(&self, queue: Option<Lane>) -> Result<Lane, Refusal> {
        match (self.lane, queue) {
            (Some(asked), Some(queue)) if asked != queue => {
                Err(Refusal::WrongLane { asked, queue })
            }
            (asked, queue) => Ok(queue.or(asked).unwrap_or(Lane::Bulk)),
        }
    }

    /// The mail with its slot.
    #[must_use]
    pub fn into_envelope(
        self,
        lane: Lane,
        slot: Moment,
        cells: Vec<(Cell, u32)>,
        first_seen: Moment,
    ) -> Envelope {
        Envelope {
            send_id: self.send_id,
            tenant: self.tenant,
            lane,
            slot,
            cells,
            attempts: 0,
            holds: 0,
            suspect_since: None,
            uncertain: false,
            void: None,
            resend: false,
            first_seen,
            expires_at: self.expires_at,
            fingerprint: self.fingerprint,
            mail: self.mail,
        }
    }

    /// Refuses what would not fit a queue message with the longest envelope it can get.
    fn check_envelope(self) -> Result<Self, Refusal> {
        let (lane, send_at) = (self.lane, self.send_at);
        // The last millisecond and second before the year 2287, when numbers grow a digit.
        let (slot, cell) = (Moment(9_999_999_999_999), Cell(9_999_999_999));
        let cells = vec![(cell, 1); self.mail.cost() as usize];
        let mut envelope = self.into_envelope(Lane::Priority, slot, cells, slot);
        (envelope.attempts, envelope.holds) = (u32::MAX, u32::MAX);
        (envelope.uncertain, envelope.resend) = (true, true);
        envelope.suspect_since = Some(slot);
        envelope.void =
            Some(["00000000-0000-0000-0000-000000000000"; Envelope::MOST_VOID].join(","));
        fits(envelope.json_bytes().map_err(|e| bad_json(&e))?)?;
        Ok(Self {
            send_id: envelope.send_id,
            tenant: envelope.tenant,
            lane,
            expires_at: envelope.expires_at,
            send_at,
            fingerprint: envelope.fingerprint,
            mail: envelope.mail,
        })
    }
}

/// The send id of a request that may be refused, when one can be made out: for logs and answers.
#[must_use]
pub fn send_id_of(text: &str) -> Option<SendId> {
    #[derive(Deserialize)]
    struct Only {
        send_id: String,
    }
    serde_json::from_str::<Only>(text)
        .ok()?
        .send_id
        .parse()
        .ok()
}

fn fits(bytes: usize) -> Result<(), Refusal> {
    if bytes > MAX_BYTES {
        return Err(Refusal::TooLarge {
            bytes,
            max: MAX_BYTES,
        });
    }
    Ok(())
}

fn bad_json(error: &serde_json::Error) -> Refusal {
    Refusal::MalformedJson {
        line: error.line(),
        column: error.column(),
    }
}

/// A moment, from RFC 3339; nothing if it is none. Before 1970 is past as well.
fn rfc3339(text: &str) -> Option<Moment> {
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    let ms = at.unix_timestamp_nanos() / 1_000_000;
    Some(Moment(u64::try_from(ms).unwrap_or(0)))
}

/// When it is to be sent.
fn ahead(text: &str) -> Result<Moment, Refusal> {
    rfc3339(text).ok_or(Refusal::BadSendAt)
}

/// Whether a mail can be kept until then, and is of use then.
fn check_ahead(
    send_at: Option<Moment>,
    expires_at: Option<Moment>,
    now: Moment,
) -> Result<(), Refusal> {
    let Some(at) = send_at else {
        return Ok(());
    };
    if now.until(at).whole_secs() > MAX_AHEAD_DAYS * 86_400 {
        return Err(Refusal::TooFarAhead);
    }
    if expires_at.is_some_and(|end| end <= at) {
        return Err(Refusal::ExpiresFirst);
    }
    Ok(())
}

/// A moment after `now`, from RFC 3339.
fn moment(text: &str, now: Moment) -> Result<Moment, Refusal> {
    let at = rfc3339(text).ok_or(Refusal::BadExpiry)?;
    if at <= now {
        Err(Refusal::Expired)
    } else {
        Ok(at)
    }
}

/// What a schema can't say about a mail.
fn check(mail: &Mail) -> Result<(), Refusal> {
    let one = ("/from", std::slice::from_ref(&mail.from));
    let many: [(&str, &[String]); 4] = [
        ("/to", &mail.to),
        ("/cc", &mail.cc),
        ("/bcc", &mail.bcc),
        ("/reply_to", &mail.reply_to),
    ];
    match mail.recipients().count() {
        0 => return Err(Refusal::NoRecipients),
        1..=MAX_RECIPIENTS => {}
        count => return Err(Refusal::TooManyRecipients { count }),
    }
    for (field, list) in std::iter::once(one).chain(many) {
        for (index, text) in list.iter().enumerate() {
            address::check(text).map_err(|problem| Refusal::BadAddress {
                at: if field == "/from" {
                    field.to_owned()
                } else {
                    format!("{field}/{index}")
                },
                problem,
            })?;
        }
    }
    if mail
        .tags
        .keys()
        .any(|name| OUR_TAGS.contains(&name.as_str()))
    {
        return Err(Refusal::BadTag {
            problem: "send_id, tenant, lane, slot_ms and grant_ms are set by Sendslot: choose other names",
        });
    }
    match &mail.content {
        Content::Simple(simple) => check_headers(&simple.headers, "/content/simple/headers"),
        Content::Template(template) => {
            check_headers(&template.headers, "/content/template/headers")
        }
        Content::Raw(raw) => check_raw(&raw.data),
    }
}

/// Whether a header is the provider's to set. `X-SES-…` chooses configuration set, tenant and tags;
/// `Resent-…` names other recipients.
fn is_theirs(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("x-ses-")
        || name.starts_with("resent-")
        || THEIR_HEADERS.contains(&name.as_str())
}

fn check_headers(headers: &[Header], field: &str) -> Result<(), Refusal> {
    match headers.iter().position(|header| is_theirs(&header.name)) {
        Some(index) => Err(Refusal::BadHeader {
            at: format!("{field}/{index}/name"),
            problem: "this header is set by the provider: use the request's own fields, or leave it out",
        }),
        None => Ok(()),
    }
}

/// A MIME message begins with its headers. It may hold any but `X-SES-…`, which would choose another
/// configuration set or tenant than the request's.
fn check_raw(data: &str) -> Result<(), Refusal> {
    let bad = |problem| Refusal::BadContent {
        at: "/content/raw/data".to_owned(),
        problem,
    };
    let message = BASE64_STANDARD.decode(data).map_err(|_| {
        bad("no base64: use the standard alphabet with padding, without line breaks")
    })?;
    let no_headers =
        "no MIME message: begin with lines of the form Name: value, then an empty line";
    let mut names = 0;
    for line in message.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line.first() {
            None => break,
            // The line before goes on.
            Some(b' ' | b'\t') if names > 0 => continue,
            Some(_) => {}
        }
        let colon = line
            .iter()
            .position(|byte| *byte == b':')
            .ok_or_else(|| bad(no_headers))?;
        let name = &line[..colon];
        if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
            return Err(bad(no_headers));
        }
        if name
            .get(..6)
            .is_some_and(|start| start.eq_ignore_ascii_case(b"x-ses-"))
        {
            return Err(bad(
                "an X-SES- header: use the request's own fields, or leave it out",
            ));
        }
        names += 1;
    }
    if names == 0 {
        Err(bad(no_headers))
    } else {
        Ok(())
    }
}

/// The published schema, compiled once.
fn schema() -> &'static Validator {
    static COMPILED: LazyLock<Validator> = LazyLock::new(|| compiled(SCHEMA));
    &COMPILED
}

/// One of the published schemas, ready for use.
#[expect(
    clippy::expect_used,
    reason = "part of the program, not input: every test here compiles it"
)]
pub(crate) fn compiled(schema: &str) -> Validator {
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    jsonschema::draft202012::new(&schema).expect("the schema is valid")
}

/// What a schema's error means to a producer. The validator's own texts quote what they found, which
/// may be personal; none of them is used.
pub(crate) fn refusal(error: &ValidationError<'_>) -> Refusal {
    let place = error.instance_path().as_str();
    let at = json::shown(place);
    let text = error.instance().as_str();
    let kind = error.kind();
    match kind {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            return Refusal::MissingField {
                at: format!("{at}/{name}"),
            };
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let name = unexpected.first().map_or("", String::as_str);
            let name = name.replace('~', "~0").replace('/', "~1");
            return Refusal::UnknownField {
                at: json::shown(&format!("{place}/{name}")),
            };
        }
        _ => {}
    }
    match (place, text) {
        ("/send_id", Some(text)) => {
            if let Err(why) = text.parse::<SendId>() {
                return Refusal::BadSendId(why);
            }
        }
        ("/tenant", Some(text)) => {
            if let Err(why) = text.parse::<TenantName>() {
                return Refusal::BadTenant(why);
            }
        }
        ("/lane", Some(_)) => return Refusal::UnknownLane,
        ("/to" | "/cc" | "/bcc", _) if matches!(kind, ValidationErrorKind::MaxItems { .. }) => {
            return Refusal::TooManyRecipients {
                count: error.instance().as_array().map_or(0, Vec::len),
            };
        }
        ("/content", _) if !matches!(kind, ValidationErrorKind::Type { .. }) => {
            return Refusal::BadContent {
                at,
                problem: "give exactly one of simple, template and raw",
            };
        }
        ("/content/simple", _) if matches!(kind, ValidationErrorKind::AnyOf { .. }) => {
            return Refusal::BadContent {
                at,
                problem: "no body: give text, html or both",
            };
        }
        _ => {}
    }
    if place.starts_with("/tags") {
        return Refusal::BadTag {
            problem: "give an object of at most 40 names and values, each 1 to 256 of A-Z a-z 0-9 _ -",
        };
    }
    if place.ends_with("/name") && text.is_some() && place.contains("/headers/") {
        return Refusal::BadHeader {
            at,
            problem: "no header name: use 1 to 126 visible ASCII characters but the colon",
        };
    }
    if place.ends_with("/value") && text.is_some() && place.contains("/headers/") {
        return Refusal::BadHeader {
            at,
            problem: "no header value: use 1 to 870 printable ASCII characters",
        };
    }
    let problem = match kind {
        ValidationErrorKind::Type { kind } => match kind {
            TypeKind::Single(JsonType::Object) => "wrong type: give an object".to_owned(),
            TypeKind::Single(wanted) => format!("wrong type: give {wanted}"),
            TypeKind::Multiple(_) => "wrong type".to_owned(),
        },
        ValidationErrorKind::MaxItems { limit } => format!("too many: at most {limit}"),
        ValidationErrorKind::MinLength { limit } => {
            format!("too short: at least {limit} characters")
        }
        ValidationErrorKind::MaxLength { limit } => format!("too long: at most {limit} characters"),
        ValidationErrorKind::Minimum { limit } => format!("too small: at least {limit}"),
        ValidationErrorKind::Maximum { limit } => format!("too large: at most {limit}"),
        ValidationErrorKind::Pattern { pattern } => format!("must match {pattern}"),
        other => format!("breaks the schema's {:?}", other.keyword()),
    };
    let at = if at.is_empty() {
        "the request".to_owned()
    } else {
        at
    };
    Refusal::BadValue { at, problem }
}
