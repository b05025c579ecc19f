//! What the function is invoked with: messages of SNS, each of which should tell that an alarm of CloudWatch has changed its state.
//!
//! They are read one by one and field by field: one that can't be read says nothing of its neighbours.

use serde_json::Value;

use crate::settings::Topic;

/// The namespace of SES's metrics.
pub const NAMESPACE: &str = "AWS/SES";
/// The dimension that says of which configuration set a reputation metric is.
pub const SET: &str = "ses:configuration-set";
/// The most characters of an alarm's name (CloudWatch API Reference, `MetricAlarm`).
const LONGEST_NAME: usize = 255;
/// The most characters of a configuration set's name (SES API v2 Reference, `CreateConfigurationSet`).
const LONGEST_SET: usize = 64;

/// An alarm that is said to have fired. Nothing of it is to be believed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// Its name.
    pub name: String,
    /// Its ARN; nothing if the message doesn't say.
    pub arn: Option<String>,
    /// What it watches.
    pub metric: Metric,
    /// Whose.
    pub of: Of,
}

/// A reputation metric. Its values are ratios: 0.05 is 5 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// `Reputation.BounceRate`
    BounceRate,
    /// `Reputation.ComplaintRate`
    ComplaintRate,
}

impl Metric {
    /// Its name in CloudWatch.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BounceRate => "Reputation.BounceRate",
            Self::ComplaintRate => "Reputation.ComplaintRate",
        }
    }

    fn named(name: &str) -> Option<Self> {
        let all = [Self::BounceRate, Self::ComplaintRate];
        all.into_iter().find(|metric| metric.as_str() == name)
    }
}

/// Whose reputation an alarm watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of {
    /// That of a configuration set's mail.
    Set(String),
    /// The account's.
    Account,
}

impl Of {
    /// The dimensions of its metric, names and values.
    #[must_use]
    pub fn dimensions(&self) -> Vec<(String, String)> {
        match self {
            Self::Set(set) => vec![(SET.to_owned(), set.clone())],
            Self::Account => Vec::new(),
        }
    }
}

/// Why a message changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// The event, or this part of it, isn't SNS's.
    #[error("no message of SNS")]
    NotSns,
    /// It is another topic's.
    #[error("it comes from another topic than SENDSLOT_ALARM_TOPIC_ARN")]
    ForeignTopic,
    /// It has another form than CloudWatch's messages.
    #[error("not the state of an alarm as CloudWatch tells it")]
    Unreadable,
    /// It tells of another account's alarm.
    #[error("an alarm of another account")]
    ForeignAccount,
    /// It tells of an alarm over other alarms.
    #[error("a composite alarm: it watches no metric")]
    Composite,
    /// The alarm is over.
    #[error("the alarm is OK: whoever is paused stays so until somebody resumes it")]
    Ok,
    /// The alarm doesn't know.
    #[error("the alarm has insufficient data")]
    InsufficientData,
    /// It watches something else.
    #[error("no alarm on a reputation metric of SES")]
    OtherMetric,
    /// It isn't known whose reputation it is.
    #[error("neither the account's reputation nor that of one configuration set")]
    OtherDimensions,
}

impl Ignored {
    /// Whether it belongs to everyday's business of a topic that alarms are told by.
    pub(crate) const fn is_usual(self) -> bool {
        matches!(
            self,
            Self::Ok | Self::InsufficientData | Self::OtherMetric | Self::Composite
        )
    }
}

/// Reads the messages of an event that come from this topic; never none. What isn't an alarm that fires is told by why it isn't.
#[must_use]
pub fn read(event: &Value, ours: &Topic) -> Vec<Result<Alarm, Ignored>> {
    match event.get("Records").and_then(Value::as_array) {
        Some(records) if !records.is_empty() => {
            records.iter().map(|record| one(record, ours)).collect()
        }
        _ => vec![Err(Ignored::NotSns)],
    }
}

fn one(record: &Value, ours: &Topic) -> Result<Alarm, Ignored> {
    if record["EventSource"] != "aws:sns" {
        return Err(Ignored::NotSns);
    }
    let sns = &record["Sns"];
    let topic = sns["TopicArn"].as_str().ok_or(Ignored::NotSns)?;
    if topic != ours.arn() {
        return Err(Ignored::ForeignTopic);
    }
    let message = sns["Message"].as_str().ok_or(Ignored::NotSns)?;
    let message: Value = serde_json::from_str(message).map_err(|_| Ignored::Unreadable)?;
    alarm(&message, ours)
}

fn alarm(message: &Value, ours: &Topic) -> Result<Alarm, Ignored> {
    let text = |field: &Value| field.as_str().map(str::to_owned);
    let name = text(&message["AlarmName"]).ok_or(Ignored::Unreadable)?;
    if name.is_empty() || name.chars().count() > LONGEST_NAME {
        return Err(Ignored::Unreadable);
    }
    // Messages of before 2020, and those of emulators, have none.
    let arn = match &message["AlarmArn"] {
        Value::Null => None,
        arn => Some(text(arn).ok_or(Ignored::Unreadable)?),
    };
    let account = message["AWSAccountId"].as_str();
    if account.ok_or(Ignored::Unreadable)? != ours.account() {
        return Err(Ignored::ForeignAccount);
    }
    let trigger = &message["Trigger"];
    if message.get("AlarmRule").is_some() {
        return Err(Ignored::Composite);
    }
    match message["NewStateValue"].as_str() {
        Some("ALARM") if trigger.is_object() => {}
        Some("OK") => return Err(Ignored::Ok),
        Some("INSUFFICIENT_DATA") => return Err(Ignored::InsufficientData),
        _ => return Err(Ignored::Unreadable),
    }
    // An alarm on an expression over several metrics names none.
    let metric = trigger["MetricName"].as_str().and_then(Metric::named);
    let metric = metric
        .filter(|_| trigger["Namespace"] == NAMESPACE)
        .ok_or(Ignored::OtherMetric)?;
    let of = of(&trigger["Dimensions"])?;
    Ok(Alarm {
        name,
        arn,
        metric,
        of,
    })
}

/// Whose reputation it is, by the dimensions of its metric: `[{"name": …, "value": …}]`. (Emulators write the names as CloudWatch's API
/// does, with capitals.)
fn of(dimensions: &Value) -> Result<Of, Ignored> {
    let dimensions = match dimensions {
        Value::Null => return Ok(Of::Account),
        Value::Array(dimensions) => dimensions.as_slice(),
        _ => return Err(Ignored::Unreadable),
    };
    let [dimension] = dimensions else {
        return if dimensions.is_empty() {
            Ok(Of::Account)
        } else {
            Err(Ignored::OtherDimensions)
        };
    };
    let text = |small: &str, capital: &str| {
        let field = dimension.get(small).or_else(|| dimension.get(capital));
        field.and_then(Value::as_str).ok_or(Ignored::Unreadable)
    };
    let set = text("value", "Value")?;
    let known = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_set = !set.is_empty() && set.len() <= LONGEST_SET && set.chars().all(known);
    if text("name", "Name")? == SET && is_set {
        return Ok(Of::Set(set.to_owned()));
    }
    Err(Ignored::OtherDimensions)
}
