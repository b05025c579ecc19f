//! Reads a `SendEmail` body and checks it as SES does, as far as that is cheap.
//!
//! What leaves here holds no subject or content; addresses are apart, for the events alone.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::Value;

use crate::errors::{ApiError, ErrorKind};

/// The most recipients of one message.
const MAX_RECIPIENTS: usize = 50;
const MAX_HEADERS: usize = 15;
const MAX_TAG_LENGTH: usize = 256;
const SIMULATOR_DOMAIN: &str = "simulator.amazonses.com";

/// What the limits and the record need of one request, as far as it could be read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// To, Cc and Bcc together.
    pub recipients: u32,
    /// Those of them that count against the daily quota: all but the mailbox simulator's.
    pub counted: u32,
    /// The configuration set named.
    pub configuration_set: Option<String>,
    /// Legal tags, as name and value.
    pub tags: Vec<(String, String)>,
}

impl Summary {
    /// The value of the first tag of this name.
    #[must_use]
    pub fn tag(&self, name: &str) -> Option<&str> {
        let found = self.tags.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Who a mail is from and to, without the names. Personal: never in the record.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The sender; a raw message may have it in its content alone.
    pub from: Option<String>,
    /// To, Cc and Bcc, in this order.
    pub to: Vec<String>,
}

/// One request that arrived: what is known of it, and what is wrong with it.
#[derive(Debug)]
pub struct Received {
    /// What could be read, also of an invalid request.
    pub summary: Summary,
    /// The addresses, likewise.
    pub addresses: Addresses,
    /// The first thing wrong with it, regardless of limits and of the state of the account.
    pub defect: Option<ApiError>,
}

impl Received {
    /// A request whose body never became readable.
    #[must_use]
    pub fn unreadable(defect: ApiError) -> Self {
        Self {
            summary: Summary::default(),
            addresses: Addresses::default(),
            defect: Some(defect),
        }
    }
}

/// Reads the body of a `SendEmail` request.
#[must_use]
pub fn read(body: &[u8]) -> Received {
    match serde_json::from_slice::<SendEmail<'_>>(body) {
        Ok(mail) => Received {
            summary: mail.summary(),
            addresses: mail.addresses(),
            defect: mail.check().err(),
        },
        // Only the place: serde's own text may quote a value, and values are personal here.
        Err(error) => Received::unreadable(ApiError::new(
            ErrorKind::Serialization,
            format!(
                "body is not a SendEmail request: fault at line {}, column {}",
                error.line(),
                error.column()
            ),
        )),
    }
}

/// Whether this may name a tag, hold a tag's value, or name a configuration set.
#[must_use]
pub fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", bound(deserialize = "'de: 'a"))]
struct SendEmail<'a> {
    from_email_address: Option<Text<'a>>,
    destination: Option<Destination<'a>>,
    content: Option<Content<'a>>,
    email_tags: Option<Vec<Tag<'a>>>,
    configuration_set_name: Option<Text<'a>>,
}

/// Borrowed from the body where it holds no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", bound(deserialize = "'de: 'a"))]
#[expect(clippy::struct_field_names, reason = "SES's names")]
struct Destination<'a> {
    to_addresses: Option<Vec<Text<'a>>>,
    cc_addresses: Option<Vec<Text<'a>>>,
    bcc_addresses: Option<Vec<Text<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", bound(deserialize = "'de: 'a"))]
struct Content<'a> {
    simple: Option<Simple<'a>>,
    raw: Option<Raw<'a>>,
    template: Option<Template<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", bound(deserialize = "'de: 'a"))]
struct Simple<'a> {
    subject: Option<Part<'a>>,
    body: Option<Body<'a>>,
    headers: Option<Vec<Header<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", bound(deserialize = "'de: 'a"))]
struct Part<'a> {
    data: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", bound(deserialize = "'de: 'a"))]
struct Body<'a> {
    text: Option<Part<'a>>,
    html: Option<Part<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", bound(deserialize = "'de: 'a"))]
struct Raw<'a> {
    data: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", bound(deserialize = "'de: 'a"))]
#[expect(clippy::struct_field_names, reason = "SES's names")]
struct Template<'a> {
    template_name: Option<Text<'a>>,
    template_arn: Option<Text<'a>>,
    template_content: Option<serde::de::IgnoredAny>,
    template_data: Option<Text<'a>>,
    headers: Option<Vec<Header<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", bound(deserialize = "'de: 'a"))]
struct Header<'a> {
    name: Text<'a>,
    value: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", bound(deserialize = "'de: 'a"))]
struct Tag<'a> {
    name: Text<'a>,
    value: Text<'a>,
}

impl SendEmail<'_> {
    fn recipients(&self) -> impl Iterator<Item = &str> {
        let destination = self.destination.iter();
        let lists = destination.flat_map(|d| [&d.to_addresses, &d.cc_addresses, &d.bcc_addresses]);
        lists.flatten().flatten().map(|address| &*address.0)
    }

    fn tags(&self) -> impl Iterator<Item = (&str, &str)> {
        let tags = self.email_tags.iter().flatten();
        tags.map(|tag| (&*tag.name.0, &*tag.value.0))
    }

    fn summary(&self) -> Summary {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let counted = self.recipients().filter(|address| !is_simulator(address));
        let legal = self.tags().filter(|tag| check_tag(*tag).is_ok());
        let set = self.configuration_set_name.as_ref();
        Summary {
            recipients: count(self.recipients().count()),
            counted: count(counted.count()),
            configuration_set: set.map(|name| name.0.to_string()),
            tags: legal
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        }
    }

    fn addresses(&self) -> Addresses {
        let from = self.from_email_address.as_ref();
        Addresses {
            from: from.map(|from| bare(&from.0).to_owned()),
            to: self.recipients().map(bare).map(str::to_owned).collect(),
        }
    }

    fn check(&self) -> Result<(), ApiError> {
        let content = self
            .content
            .as_ref()
            .ok_or_else(|| bad("missing Content"))?;
        let needs_sender = content.check()?;
        let sender = self.from_email_address.as_ref();
        match sender {
            Some(address) => check_address(&address.0)?,
            None if needs_sender => return Err(bad("missing FromEmailAddress")),
            None => {}
        }
        if self.destination.is_none() {
            return Err(bad("missing Destination"));
        }
        match self.recipients().count() {
            0 => return Err(bad("Destination names no recipient")),
            1..=MAX_RECIPIENTS => {}
            _ => return Err(bad("Recipient count exceeds 50.")),
        }
        self.recipients().try_for_each(check_address)?;
        self.tags().try_for_each(check_tag)
    }
}

impl Content<'_> {
    /// Checks the one content there must be; says whether it needs a sender beside it.
    fn check(&self) -> Result<bool, ApiError> {
        match (&self.simple, &self.raw, &self.template) {
            (Some(simple), None, None) => simple.check().map(|()| true),
            (None, Some(raw), None) => raw.check().map(|()| false),
            (None, None, Some(template)) => template.check().map(|()| true),
            _ => Err(bad(
                "Content must hold exactly one of Simple, Raw and Template",
            )),
        }
    }
}

impl Simple<'_> {
    fn check(&self) -> Result<(), ApiError> {
        if !self.subject.as_ref().is_some_and(Part::has_data) {
            return Err(bad("missing Content.Simple.Subject.Data"));
        }
        let parts = self.body.iter().flat_map(|body| [&body.text, &body.html]);
        if !parts.flatten().any(Part::has_data) {
            return Err(bad("Content.Simple.Body needs Text.Data or Html.Data"));
        }
        check_headers(self.headers.as_deref())
    }
}

impl Part<'_> {
    fn has_data(&self) -> bool {
        self.data.is_some()
    }
}

impl Raw<'_> {
    fn check(&self) -> Result<(), ApiError> {
        let data = self.data.as_ref().map_or("", |data| &*data.0);
        match BASE64.decode(data) {
            Ok(message) if !message.is_empty() => Ok(()),
            Ok(_) => Err(bad("missing Content.Raw.Data")),
            Err(_) => Err(bad("Content.Raw.Data is not base64")),
        }
    }
}

impl Template<'_> {
    fn check(&self) -> Result<(), ApiError> {
        let named = self.template_name.is_some() || self.template_arn.is_some();
        if !named && self.template_content.is_none() {
            return Err(bad("Content.Template names no template"));
        }
        if let Some(data) = &self.template_data
            && !serde_json::from_str::<Value>(&data.0).is_ok_and(|value| value.is_object())
        {
            return Err(bad("Content.Template.TemplateData is not a JSON object"));
        }
        check_headers(self.headers.as_deref())
    }
}

fn check_headers(headers: Option<&[Header<'_>]>) -> Result<(), ApiError> {
    let headers = headers.unwrap_or_default();
    if headers.len() > MAX_HEADERS {
        return Err(bad("more than 15 headers"));
    }
    let name_is_legal = |name: &str| {
        matches!(name.len(), 1..=126) && name.bytes().all(|b| b.is_ascii_graphic() && b != b':')
    };
    let value_is_legal = |value: &str| {
        matches!(value.len(), 1..=995) && value.bytes().all(|b| matches!(b, b' '..=b'~'))
    };
    let legal =
        |header: &Header<'_>| name_is_legal(&header.name.0) && value_is_legal(&header.value.0);
    match headers.iter().position(|header| !legal(header)) {
        Some(index) => Err(bad(format!(
            "illegal name or value in header {}",
            index + 1
        ))),
        None => Ok(()),
    }
}

fn check_tag((name, value): (&str, &str)) -> Result<(), ApiError> {
    // Two names with a colon are SES's own: they set the Feedback-ID header.
    let known = matches!(name, "ses:feedback-id-a" | "ses:feedback-id-b");
    let is_legal = |text: &str| is_word(text) && text.len() <= MAX_TAG_LENGTH;
    if !known && !is_legal(name) {
        return Err(bad(
            "Invalid tag name: only 1 to 256 alphanumeric ASCII characters, '_', and '-' are allowed.",
        ));
    }
    if !is_legal(value) {
        return Err(bad(format!(
            "Invalid value of tag <{name}>: only 1 to 256 alphanumeric ASCII characters, '_', and '-' are allowed."
        )));
    }
    Ok(())
}

/// The domain of `user@domain` or `Name <user@domain>`.
pub(crate) fn domain(address: &str) -> Option<&str> {
    let address = address.trim_end();
    let address = address.strip_suffix('>').unwrap_or(address);
    let (local, domain) = address.rsplit_once('@')?;
    let complete = !local.is_empty() && !local.ends_with('<') && !domain.trim().is_empty();
    complete.then(|| domain.trim())
}

fn is_simulator(address: &str) -> bool {
    domain(address).is_some_and(|domain| domain.eq_ignore_ascii_case(SIMULATOR_DOMAIN))
}

/// `user@domain` of `Name <user@domain>`.
fn bare(address: &str) -> &str {
    let address = address.trim();
    let inner = address.strip_suffix('>').and_then(|a| a.rsplit_once('<'));
    inner.map_or(address, |(_, inner)| inner.trim())
}

/// Which mailbox of the mailbox simulator a bare address names, in lower case and without label.
#[must_use]
pub fn mailbox(address: &str) -> Option<String> {
    let (local, _) = address.rsplit_once('@').filter(|_| is_simulator(address))?;
    let (name, _) = local.split_once('+').unwrap_or((local, ""));
    Some(name.to_ascii_lowercase())
}

fn check_address(address: &str) -> Result<(), ApiError> {
    if domain(address).is_none() {
        return Err(bad("Missing final '@domain'"));
    }
    if address.chars().any(char::is_control) {
        return Err(bad("address contains control characters"));
    }
    Ok(())
}

fn bad(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::BadRequest, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn valid() -> Value {
        json!({
            "FromEmailAddress": "Shop <shop@example.com>",
            "Destination": {
                "ToAddresses": ["a@example.com", "Name <b@Simulator.AmazonSES.com>"],
                "CcAddresses": ["c@example.com"],
                "BccAddresses": ["success+label@simulator.amazonses.com"],
            },
            "Content": {"Simple": {"Subject": {"Data": "s"}, "Body": {"Text": {"Data": "t"}}}},
            "ConfigurationSetName": "acme-set",
            "EmailTags": [{"Name": "tenant", "Value": "acme"}],
        })
    }

    /// The valid request with the value at `path` replaced, or removed for null.
    fn with(path: &str, value: Value) -> Received {
        let mut request = valid();
        let (parent, key) = path.rsplit_once('/').unwrap();
        let parent = request
            .pointer_mut(parent)
            .unwrap()
            .as_object_mut()
            .unwrap();
        if value.is_null() {
            parent.remove(key);
        } else {
            parent.insert(key.to_owned(), value);
        }
        read(request.to_string().as_bytes())
    }

    fn defect(path: &str, value: Value) -> String {
        with(path, value)
            .defect
            .map_or(String::new(), |e| e.message)
    }

    #[test]
    fn a_valid_request_is_summed_up() {
        let received = read(valid().to_string().as_bytes());
        assert_eq!(received.defect, None);
        assert_eq!(
            received.summary,
            Summary {
                recipients: 4,
                counted: 2,
                configuration_set: Some("acme-set".to_owned()),
                tags: vec![("tenant".to_owned(), "acme".to_owned())],
            }
        );
        assert_eq!(received.summary.tag("tenant"), Some("acme"));
        assert_eq!(received.summary.tag("lane"), None);
    }

    #[test]
    fn every_content_is_read() {
        let contents = [
            json!({"Simple": {"Subject": {"Data": ""}, "Body": {"Html": {"Data": "h"}},
                              "Headers": [{"Name": "X-A", "Value": "1"}]}}),
            json!({"Raw": {"Data": "RnJvbTogYQ=="}}),
            json!({"Template": {"TemplateName": "t", "TemplateData": "{}"}}),
            json!({"Template": {"TemplateContent": {"Subject": "s"}}}),
        ];
        for content in contents {
            assert_eq!(defect("/Content", content.clone()), "", "{content}");
        }
    }

    #[test]
    fn raw_content_brings_its_own_sender_but_not_its_recipients() {
        let mut request = valid();
        request["Content"] = json!({"Raw": {"Data": "RnJvbTogYQ=="}});
        request.as_object_mut().unwrap().remove("FromEmailAddress");
        assert_eq!(read(request.to_string().as_bytes()).defect, None);
        request.as_object_mut().unwrap().remove("Destination");
        let message = read(request.to_string().as_bytes()).defect.unwrap().message;
        assert_eq!(message, "missing Destination");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let addresses = |n: usize| json!({"ToAddresses": vec!["a@example.com"; n]});
        let simple = "/Content/Simple";
        let header = |name: &str, value: &str| json!([{"Name": name, "Value": value}]);
        let cases = [
            ("/Destination", json!(null), "missing Destination"),
            ("/Destination", json!({}), "no recipient"),
            ("/Destination", addresses(0), "no recipient"),
            ("/Destination", addresses(51), "exceeds 50"),
            (
                "/Destination",
                json!({"ToAddresses": ["a.example.com"]}),
                "'@domain'",
            ),
            ("/Destination", json!({"ToAddresses": ["a@"]}), "'@domain'"),
            (
                "/Destination",
                json!({"ToAddresses": ["N <@b.example>"]}),
                "'@domain'",
            ),
            (
                "/Destination",
                json!({"ToAddresses": ["a\n@b.example"]}),
                "control",
            ),
            ("/FromEmailAddress", json!(null), "missing FromEmailAddress"),
            ("/FromEmailAddress", json!("shop"), "'@domain'"),
            ("/Content", json!(null), "missing Content"),
            ("/Content", json!({}), "exactly one"),
            (
                "/Content/Raw",
                json!({"Data": "RnJvbTogYQ=="}),
                "exactly one",
            ),
            ("/Content", json!({"Raw": {"Data": "?"}}), "not base64"),
            ("/Content", json!({"Raw": {}}), "missing Content.Raw.Data"),
            ("/Content", json!({"Template": {}}), "names no template"),
            (
                "/Content",
                json!({"Template": {"TemplateName": "t", "TemplateData": "[]"}}),
                "not a JSON object",
            ),
            ("/Content/Simple/Subject", json!(null), "Subject.Data"),
            ("/Content/Simple/Body", json!({}), "Text.Data or Html.Data"),
            ("/Content/Simple/Headers", header("A:B", "1"), "header 1"),
            ("/Content/Simple/Headers", header("A", "é"), "header 1"),
            (
                "/Content/Simple/Headers",
                json!(vec![json!({"Name": "A", "Value": "1"}); 16]),
                "more than 15",
            ),
            (
                "/EmailTags",
                json!([{"Name": "a b", "Value": "v"}]),
                "tag name",
            ),
            (
                "/EmailTags",
                json!([{"Name": "a", "Value": "v.w"}]),
                "tag <a>",
            ),
            (
                "/EmailTags",
                json!([{"Name": "a", "Value": "v".repeat(257)}]),
                "tag <a>",
            ),
        ];
        for (path, value, expected) in cases {
            let message = defect(path, value.clone());
            assert!(message.contains(expected), "{path} {value}: {message:?}");
        }
        assert_eq!(defect("/Destination", addresses(50)), "");
        assert_eq!(
            defect(
                "/EmailTags",
                json!([{"Name": "ses:feedback-id-a", "Value": "v"}])
            ),
            ""
        );
        assert_eq!(
            defect(
                &format!("{simple}/Headers"),
                header("List-Unsubscribe", "<x>")
            ),
            ""
        );
    }

    #[test]
    fn an_invalid_request_is_still_counted_without_its_illegal_tags() {
        let tags =
            json!([{"Name": "to", "Value": "a@example.com"}, {"Name": "send_id", "Value": "s-1"}]);
        let received = with("/EmailTags", tags);
        assert!(received.defect.is_some());
        assert_eq!(received.summary.recipients, 4);
        assert_eq!(received.summary.tag("send_id"), Some("s-1"));
        assert_eq!(received.summary.tag("to"), None);
    }

    #[test]
    fn malformed_json_names_the_place_and_quotes_nothing() {
        for body in [
            r#"{"FromEmailAddress": "a@example.com""#,
            r#"{"EmailTags": "a@example.com"}"#,
        ] {
            let received = read(body.as_bytes());
            assert_eq!(received.summary, Summary::default());
            let defect = received.defect.unwrap();
            assert_eq!(defect.kind, ErrorKind::Serialization);
            assert!(defect.message.contains("line 1"), "{}", defect.message);
            assert!(
                !defect.message.contains("example.com"),
                "{}",
                defect.message
            );
        }
    }

    #[test]
    fn addresses_lose_their_names() {
        let addresses = read(valid().to_string().as_bytes()).addresses;
        let expected = [
            "a@example.com",
            "b@Simulator.AmazonSES.com",
            "c@example.com",
            "success+label@simulator.amazonses.com",
        ];
        assert_eq!(addresses.from.as_deref(), Some("shop@example.com"));
        assert_eq!(addresses.to, expected);
        let mailboxes = addresses.to.iter().map(|address| mailbox(address));
        let expected = [None, Some("b"), None, Some("success")];
        assert!(mailboxes.eq(expected.map(|name| name.map(str::to_owned))));
    }

    #[test]
    fn escapes_are_read() {
        let body = valid()
            .to_string()
            .replace("a@example.com", r"\u0061@example.com");
        assert_eq!(read(body.as_bytes()).defect, None);
    }
}
