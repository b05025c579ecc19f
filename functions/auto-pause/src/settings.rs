//! The environment, read once at start-up.

use std::{env, fmt};

use sendslot_runtime::settings::{Problem, SettingsError};

/// What the function needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its name in logs and metrics (`POWERTOOLS_SERVICE_NAME`).
    pub service: String,
    /// Where its metrics go (`POWERTOOLS_METRICS_NAMESPACE`).
    pub namespace: String,
    /// The function that has Redis, by name or ARN (`SENDSLOT_CONTROL_FUNCTION`).
    pub control_function: String,
    /// The topic that it hears of alarms by (`SENDSLOT_ALARM_TOPIC_ARN`).
    pub alarm_topic: Topic,
    /// The topic that people hear of pauses by; nothing, and nobody is told (`SENDSLOT_NOTIFY_TOPIC_ARN`).
    pub notify_topic: Option<Topic>,
    /// Whether everybody is paused when the account itself is over (`SENDSLOT_PAUSE_ACCOUNT`).
    pub pause_account: bool,
}

/// A topic of SNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    arn: String,
    region: String,
    account: String,
}

impl Topic {
    /// The topic with this ARN; nothing if it isn't one.
    #[must_use]
    pub fn of(arn: &str) -> Option<Self> {
        let parts: Vec<_> = arn.split(':').collect();
        let ["arn", partition, "sns", region, account, name] = parts[..] else {
            return None;
        };
        let digits = account.len() == 12 && account.bytes().all(|b| b.is_ascii_digit());
        let said = [partition, region, name]
            .iter()
            .all(|part| !part.is_empty());
        (digits && said).then(|| Self {
            arn: arn.to_owned(),
            region: region.to_owned(),
            account: account.to_owned(),
        })
    }

    /// Its ARN.
    #[must_use]
    pub fn arn(&self) -> &str {
        &self.arn
    }

    /// Its Region.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// Its account: twelve digits.
    #[must_use]
    pub fn account(&self) -> &str {
        &self.account
    }
}

impl Settings {
    /// Reads the process environment.
    ///
    /// # Errors
    /// When a variable is missing or wrong; the error names all of them.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::read(|name| env::var(name).ok())
    }

    /// Reads the variables that `get` knows. One that is set to nothing counts as not set.
    ///
    /// # Errors
    /// As [`Settings::from_env`].
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let mut vars = Variables {
            get: &get,
            problems: Vec::new(),
        };
        let service = vars.needed("POWERTOOLS_SERVICE_NAME", "auto-pause", any);
        let namespace = vars.optional("POWERTOOLS_METRICS_NAMESPACE", "Sendslot", any);
        let control_function = vars.needed("SENDSLOT_CONTROL_FUNCTION", "sendslot-control", any);
        let alarm_topic = vars.needed("SENDSLOT_ALARM_TOPIC_ARN", TOPIC, topic);
        let notify_topic = vars.optional("SENDSLOT_NOTIFY_TOPIC_ARN", TOPIC, topic);
        let pause_account = vars.optional("SENDSLOT_PAUSE_ACCOUNT", "off", switch);
        let read = (|| {
            Some(Self {
                service: service?,
                namespace: namespace.unwrap_or_else(|| "Sendslot".to_owned()),
                control_function: control_function?,
                alarm_topic: alarm_topic?,
                notify_topic,
                pause_account: pause_account.unwrap_or(false),
            })
        })();
        match read {
            Some(settings) if vars.problems.is_empty() => Ok(settings),
            _ => Err(SettingsError(vars.problems)),
        }
    }
}

const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:sendslot";

/// Reads variables and collects what is wrong with them.
struct Variables<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    problems: Vec<Problem>,
}

impl Variables<'_> {
    fn needed<T, E: fmt::Display>(
        &mut self,
        variable: &str,
        example: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let before = self.problems.len();
        let read = self.optional(variable, example, parse);
        if read.is_none() && self.problems.len() == before {
            self.problem(variable, "is not set".into(), example);
        }
        read
    }

    fn optional<T, E: fmt::Display>(
        &mut self,
        variable: &str,
        example: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = (self.get)(variable)?;
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        parse(text)
            .map_err(|e| self.problem(variable, format!("is {text:?}: {e}"), example))
            .ok()
    }

    fn problem(&mut self, variable: &str, what: String, example: &'static str) {
        self.problems.push(Problem {
            variable: variable.to_owned(),
            what,
            example,
        });
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "one of several parsers, and others refuse"
)]
fn any(text: &str) -> Result<String, &'static str> {
    Ok(text.to_owned())
}

fn topic(text: &str) -> Result<Topic, &'static str> {
    Topic::of(text).ok_or("no ARN of an SNS topic")
}

fn switch(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("neither on nor off"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: &[(&str, &str)] = &[
        ("POWERTOOLS_SERVICE_NAME", "auto-pause"),
        ("SENDSLOT_CONTROL_FUNCTION", "stack-control"),
        (
            "SENDSLOT_ALARM_TOPIC_ARN",
            "arn:aws:sns:eu-west-1:123456789012:reputation",
        ),
    ];

    fn read(changes: &[(&str, &str)]) -> Result<Settings, String> {
        let settings = Settings::read(|name| {
            let found = changes.iter().chain(SET).find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        settings.map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_not_set_has_the_deployed_defaults() {
        let settings = read(&[
            ("SENDSLOT_NOTIFY_TOPIC_ARN", ""),
            ("SENDSLOT_PAUSE_ACCOUNT", " "),
        ]);
        let settings = settings.unwrap();
        assert_eq!(settings.namespace, "Sendslot");
        assert_eq!(settings.notify_topic, None);
        assert!(!settings.pause_account);
        assert_eq!(settings.alarm_topic.account(), "123456789012");
        assert_eq!(settings.alarm_topic.region(), "eu-west-1");
    }

    #[test]
    fn people_are_told_and_the_account_is_paused_where_that_is_wanted() {
        let settings = read(&[
            (
                "SENDSLOT_NOTIFY_TOPIC_ARN",
                "arn:aws-cn:sns:cn-north-1:123456789012:ops",
            ),
            ("SENDSLOT_PAUSE_ACCOUNT", "on"),
        ]);
        let settings = settings.unwrap();
        assert!(settings.pause_account);
        let arn = settings.notify_topic.map(|topic| topic.arn().to_owned());
        assert_eq!(
            arn.as_deref(),
            Some("arn:aws-cn:sns:cn-north-1:123456789012:ops")
        );
    }

    #[test]
    fn every_problem_is_named() {
        let Err(SettingsError(problems)) = Settings::read(|_| None) else {
            panic!("an empty environment was taken")
        };
        let named: Vec<_> = problems.iter().map(|p| p.variable.as_str()).collect();
        assert_eq!(named, SET.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        let problem = |variable: &str, text: &str, what: &str, example: &str| {
            let expected = format!(
                "bad settings: {variable} is {text:?}: {what}, set it to for example {example:?}"
            );
            assert_eq!(read(&[(variable, text)]), Err(expected));
        };
        for arn in [
            "reputation",
            "arn:aws:sqs:eu-west-1:123456789012:reputation",
            "arn:aws:sns:eu-west-1:12345678901:reputation",
            "arn:aws:sns:eu-west-1:12345678901x:reputation",
            "arn:aws:sns::123456789012:reputation",
            "arn:aws:sns:eu-west-1:123456789012:",
            "arn:aws:sns:eu-west-1:123456789012:reputation:3f9a7b1c",
        ] {
            problem(
                "SENDSLOT_ALARM_TOPIC_ARN",
                arn,
                "no ARN of an SNS topic",
                TOPIC,
            );
            problem(
                "SENDSLOT_NOTIFY_TOPIC_ARN",
                arn,
                "no ARN of an SNS topic",
                TOPIC,
            );
        }
        problem(
            "SENDSLOT_PAUSE_ACCOUNT",
            "true",
            "neither on nor off",
            "off",
        );
    }
}
