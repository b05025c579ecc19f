//! The command line.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::settings::{Settings, SettingsError};

/// The manual.
pub const HELP: &str = "\
Enough of SES v2 for the AWS SDK and CLI, with enforced limits and a record of every arrival.

Usage: ses-simulator [--FLAG VALUE]...

  --listen ADDRESS           where to listen [127.0.0.1:0]; port 0 is any free port.
                             Prints `listening on http://ADDRESS` when ready.
  --record FILE              also write the record here, as JSON Lines; emptied at start
  --configuration-set NAME   make this configuration set; may be given again
  --help, --version

Settings, which PUT /_simulator/settings changes under the same names with `_` for `-`:

  --rate N                   MaxSendRate, recipients per second [100]; 11.2 and 0.8 will do
  --model bucket|window      how the rate is enforced [bucket]:
                               bucket: capacity N, refilled at N/s. A message to more than N goes
                               when the bucket is full, and leaves it in debt.
                               window: never more than N in any one second. A message to more
                               than N goes when the second before it is empty.
  --daily N                  Max24HourSend, recipients in a rolling 24 h [50000]; -1: no limit
  --sent-elsewhere N         recipients that others sent in the last 24 h [0]: they are in
                             SentLast24Hours, and use up the daily quota
  --control-rate N           calls other than SendEmail, per second, together [-1]; -1: no limit.
                             1 is what to be ready for
  --daily-error NAME         the exception for it [TooManyRequestsException]; or
                             LimitExceededException, ThrottlingException
  --latency-median-ms MS     median latency of a SendEmail answer [80]; 0: none
  --latency-p99-ms MS        its 99th percentile [250]; log-normal
  --seed N                   determines latencies and faults, in order of arrival [1]
  --sending-enabled BOOL     the account's sending switch [true]
  --production-access BOOL   out of the sandbox, as GetAccount says [true]
  --enforcement STATUS       HEALTHY, PROBATION or SHUTDOWN (account suspended) [HEALTHY]
  --events-endpoint URL      the EventBridge to publish events to, http only []; none if empty
  --event-delay-ms MS        how long after a mail its events happen [50]
  --event-spread-ms MS       up to so much later each is published, out of order [0]
  --events-twice BOOL        each event is published twice [false]

Control:

  GET    /_simulator/settings   all settings
  PUT    /_simulator/settings   changes those in the JSON object, all or none
  GET    /_simulator/record     the record, as a JSON array
  DELETE /_simulator/record     empties record and file; the limits keep what was sent
  GET    /_simulator/calls      the calls other than SendEmail, as a JSON array
  DELETE /_simulator/calls      forgets them
  GET    /_simulator/faults     the faults on purpose
  PUT    /_simulator/faults     replaces them all; the README lists the kinds
  DELETE /_simulator/faults     no faults any more
  GET    /_simulator/events     how many events wait, were published, were lost

SIGTERM and SIGINT stop it; requests under way are finished.
";

/// What the command line asks for.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Print [`HELP`].
    Help,
    /// Print the version.
    Version,
    /// Serve.
    Serve(Args),
}

/// How to serve.
#[derive(Debug, PartialEq)]
pub struct Args {
    /// The address to listen on.
    pub listen: String,
    /// The record's file.
    pub record: Option<PathBuf>,
    /// Configuration sets to make.
    pub configuration_sets: Vec<String>,
    /// The settings at start.
    pub settings: Settings,
}

/// A command line that was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ArgsError {
    /// Not a flag.
    #[error("unexpected argument {0:?}: see --help")]
    Unexpected(String),
    /// The last flag stands alone.
    #[error("{0} needs a value: see --help")]
    NoValue(String),
    /// A setting is unknown or has a wrong value.
    #[error("{0}: see --help")]
    Setting(#[from] SettingsError),
}

/// Reads the arguments after the program's name. A flag's value follows it, or `=`.
///
/// # Errors
/// As [`ArgsError`] lists.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command, ArgsError> {
    let mut arguments = arguments.into_iter();
    let mut listen = "127.0.0.1:0".to_owned();
    let mut record = None;
    let mut configuration_sets = Vec::new();
    let mut changes = Map::new();
    while let Some(argument) = arguments.next() {
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        match flag {
            "--help" | "-h" => return Ok(Command::Help),
            "--version" | "-V" => return Ok(Command::Version),
            _ => {}
        }
        let Some(name) = flag.strip_prefix("--") else {
            return Err(ArgsError::Unexpected(argument));
        };
        let value = value.or_else(|| arguments.next());
        let value = value.ok_or_else(|| ArgsError::NoValue(flag.to_owned()))?;
        match name {
            "listen" => listen = value,
            "record" => record = Some(PathBuf::from(value)),
            "configuration-set" => configuration_sets.push(value),
            _ => {
                // Numbers and booleans as JSON, the rest as text.
                let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
                changes.insert(name.replace('-', "_"), value);
            }
        }
    }
    Ok(Command::Serve(Args {
        listen,
        record,
        configuration_sets,
        settings: Settings::default().with(&changes)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, ArgsError> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    fn served(line: &str) -> Args {
        match parsed(line) {
            Ok(Command::Serve(args)) => args,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn nothing_given_is_all_defaults() {
        let args = served("");
        assert_eq!(args.settings, Settings::default());
        assert_eq!(args.listen, "127.0.0.1:0");
        assert_eq!(args.record, None);
    }

    #[test]
    fn flags_are_read_in_both_forms() {
        let args = served(
            "--listen [::1]:8000 --record=out/r.jsonl --rate 11.2 --daily=-1 --model window \
             --sending-enabled false --configuration-set a --configuration-set b",
        );
        assert_eq!(args.listen, "[::1]:8000");
        assert_eq!(args.record, Some(PathBuf::from("out/r.jsonl")));
        assert_eq!(args.configuration_sets, ["a", "b"]);
        let shown = serde_json::to_value(&args.settings).unwrap();
        assert_eq!(shown["rate"], 11.2);
        assert_eq!(shown["daily"], -1);
        assert_eq!(shown["model"], "window");
        assert_eq!(shown["sending_enabled"], false);
    }

    #[test]
    fn help_and_version_come_first() {
        assert_eq!(parsed("--rate 5 --help"), Ok(Command::Help));
        assert_eq!(parsed("-V"), Ok(Command::Version));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, expected) in [
            ("100", r#"unexpected argument "100""#),
            ("--rate", "--rate needs a value"),
            (
                "--rate fast",
                r#"rate: expected recipients per second, 0.000001 to 1000000, got "fast""#,
            ),
            ("--speed 1", r#"unknown setting "speed""#),
            ("--latency-median-ms 300", "must not be below"),
        ] {
            let message = parsed(line).unwrap_err().to_string();
            assert!(message.contains(expected), "{line}: {message}");
            assert!(message.ends_with("see --help"), "{line}: {message}");
        }
    }

    #[test]
    fn every_setting_is_in_the_manual_with_its_default() {
        let settings = serde_json::to_value(Settings::default()).unwrap();
        for (name, value) in settings.as_object().unwrap() {
            let flag = format!("--{} ", name.replace('_', "-"));
            let (_, rest) = HELP
                .split_once(&flag)
                .unwrap_or_else(|| panic!("{flag} is missing"));
            let entry = rest.split("\n  --").next().unwrap();
            let shown = value.as_f64().map_or_else(
                || value.to_string().replace('"', ""),
                |number| number.to_string(),
            );
            assert!(
                entry.contains(&format!("[{shown}]")),
                "{flag} lacks [{shown}]"
            );
        }
    }
}
