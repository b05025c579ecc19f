//! What people are told. No word of it is from a message: the alarm was confirmed, and its tenants are ours.

use aws_smithy_types::date_time::{DateTime, Format};
use sendslot_runtime::control::Paused;
use serde_json::json;

use crate::handler::Shared;

/// The most characters of a subject, of ASCII (SNS API Reference, "Publish").
const LONGEST_SUBJECT: usize = 100;

/// A subject and a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) subject: String,
    pub(crate) text: String,
}

impl Notice {
    /// A subject holds neither line breaks nor what isn't ASCII.
    fn new(subject: &str, lines: &[String]) -> Self {
        let printed = |c: &char| c.is_ascii() && !c.is_ascii_control();
        let subject = subject.chars().filter(printed).take(LONGEST_SUBJECT);
        Self {
            subject: subject.collect(),
            text: lines.join("\n") + "\n",
        }
    }
}

/// These were paused.
pub(crate) fn paused<O>(
    shared: &Shared<O>,
    set: &str,
    reason: &str,
    paused: &Paused,
    switched: bool,
) -> Notice {
    let tenants = &paused.tenants;
    let subject = match tenants.as_slice() {
        [one] => format!("Sendslot paused {one}"),
        _ => format!("Sendslot paused {} tenants of {set}", tenants.len()),
    };
    let mut lines = vec![
        format!("Paused: {}", tenants.join(", ")),
        format!("Configuration set: {set}"),
        // That of the pause that holds, which somebody else may have made.
        format!("Why: {}", if paused.already { &paused.reason } else { reason }),
        format!("Since: {}", moment(paused.since_ms)),
        "By: auto-pause, for an alarm of CloudWatch that was confirmed".to_owned(),
        String::new(),
        "Nothing more of theirs is sent. Mail that waits, and what comes meanwhile, is parked until they are resumed."
            .to_owned(),
    ];
    if !switched {
        lines.push(
            "SES could not be told to let nothing through the configuration set: only mail that goes through Sendslot is held \
             back. That is tried again."
                .to_owned(),
        );
    }
    lines.push(String::new());
    lines.push(
        "Once it is known where the bounces or complaints come from, resume with:".to_owned(),
    );
    lines.extend(tenants.iter().map(|tenant| resume(shared, tenant)));
    Notice::new(&subject, &lines)
}

/// `control` can't be asked, so only SES holds the mail back.
pub(crate) fn switched_off<O>(shared: &Shared<O>, set: &str, reason: &str) -> Notice {
    let lines = [
        format!("Switched off at SES: the configuration set {set}"),
        format!("Why: {reason}"),
        "By: auto-pause, for an alarm of CloudWatch that was confirmed".to_owned(),
        String::new(),
        "Its tenant could not be paused in Redis, as control didn't do it: SES refuses its mail instead. That is tried again; if no \
         message follows that it is paused, look at control's log."
            .to_owned(),
        String::new(),
        "Once it is known where the bounces or complaints come from, resume the tenant with:".to_owned(),
        resume(shared, "TENANT"),
    ];
    Notice::new(&format!("Sendslot switched off {set} at SES"), &lines)
}

/// The account is over, and that pauses nobody.
pub(crate) fn account_over<O>(shared: &Shared<O>, reason: &str) -> Notice {
    let lines = [
        format!("The account itself is over its threshold: {reason}"),
        "By: auto-pause, for an alarm of CloudWatch that was confirmed".to_owned(),
        String::new(),
        "Nobody is paused for it, as PauseAccount is off. SES may pause the whole account: find whose mail it is, and pause \
         them with:"
            .to_owned(),
        invoke(
            shared,
            &json!({ "action": "pause", "tenant": "TENANT", "reason": "REASON" }).to_string(),
        ),
    ];
    Notice::new(
        "Sendslot: the account is over its threshold, nobody is paused",
        &lines,
    )
}

/// Everybody is paused.
pub(crate) fn account_paused<O>(shared: &Shared<O>, reason: &str, stopped: bool) -> Notice {
    let mut lines = vec![
        "Paused: everybody".to_owned(),
        format!("Why: {reason}"),
        "By: auto-pause, for an alarm of CloudWatch that was confirmed, as PauseAccount is on"
            .to_owned(),
        String::new(),
    ];
    if stopped {
        lines.push(
            "Sending is switched off for the account in this Region. Mail waits meanwhile."
                .to_owned(),
        );
    } else {
        lines.push(
            "Sending could not be switched off for the account: nobody sends for two minutes. That is tried again.".to_owned(),
        );
    }
    lines.extend([
        String::new(),
        "Once it is known where the bounces or complaints come from, resume with the following; it counts within two minutes:"
            .to_owned(),
        format!(
            "aws sesv2 put-account-sending-attributes --region {} --sending-enabled",
            shared.settings.alarm_topic.region()
        ),
    ]);
    Notice::new("Sendslot paused the whole account", &lines)
}

/// How to resume a tenant.
fn resume<O>(shared: &Shared<O>, tenant: &str) -> String {
    invoke(
        shared,
        &json!({ "action": "resume", "tenant": tenant }).to_string(),
    )
}

/// How to ask `control` for something.
fn invoke<O>(shared: &Shared<O>, payload: &str) -> String {
    format!(
        "aws lambda invoke --region {} --function-name {} --cli-binary-format raw-in-base64-out --payload '{payload}' /dev/stdout",
        shared.settings.alarm_topic.region(),
        shared.settings.control_function,
    )
}

/// A moment of the Redis clock, as people read it.
fn moment(ms: u64) -> String {
    let moment = DateTime::from_secs(i64::try_from(ms / 1_000).unwrap_or(i64::MAX));
    moment
        .fmt(Format::DateTime)
        .unwrap_or_else(|_| format!("{ms} ms after the Unix epoch"))
}
