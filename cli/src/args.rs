//! The command line.

use std::{str::FromStr, time::Duration};

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use sendslot_domain::{Lane, Rate};

use crate::{enqueue::EnqueueArgs, plan::PlanArgs};

/// The stack's name if none is given, as `make deploy` has it.
pub const STACK: &str = "sendslot";

const AFTER: &str = "\
Exit codes:
    0  done
    1  failed; standard error says what, where, and what to do
    2  the command line isn't right
    3  what was looked for isn't there, or its state isn't known
    4  done in part: rows were refused, mail was left, settings weren't taken
  130  interrupted

Credentials and region are found as the AWS CLI finds them: AWS_PROFILE, AWS_REGION, single
sign-on, a credential process, the role of a container or an instance. With --json, standard
output has one JSON document, or a line of JSON each where a command goes on, and all that is for
people goes to standard error.";

/// Runs a Sendslot stack: sees how it stands, feeds it, stops and restarts mail.
#[derive(Parser, Clone, Debug)]
#[command(name = "sendslot", version, after_help = AFTER, max_term_width = 100)]
pub struct Args {
    /// What all commands have.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What all commands have.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Options of all commands")]
pub struct Global {
    /// Name of the stack in CloudFormation.
    #[arg(long, global = true, env = "SENDSLOT_STACK", default_value = STACK)]
    pub stack: String,
    /// AWS region; without, `AWS_REGION` or the profile says it.
    #[arg(long, global = true)]
    pub region: Option<String>,
    /// Profile of the AWS configuration; without, `AWS_PROFILE` says it.
    #[arg(long, global = true)]
    pub profile: Option<String>,
    /// Where AWS is, such as a local stack; without, `AWS_ENDPOINT_URL` says it.
    #[arg(long, global = true, value_name = "URL")]
    pub endpoint_url: Option<String>,
    /// Results as JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

impl Global {
    /// How this command would be called again: its name and what was said of the stack.
    #[must_use]
    pub fn again(&self) -> String {
        let mut again = "sendslot".to_owned();
        // The environment says it again.
        let said = |name: &str, value: &str| std::env::var(name).is_ok_and(|said| said == value);
        if self.stack != STACK && !said("SENDSLOT_STACK", &self.stack) {
            again = format!("{again} --stack {}", self.stack);
        }
        for (option, value) in [
            ("--region", &self.region),
            ("--profile", &self.profile),
            ("--endpoint-url", &self.endpoint_url),
        ] {
            if let Some(value) = value {
                again = format!("{again} {option} {value}");
            }
        }
        again
    }
}

/// What to do.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Say how the stack stands: whether all is well, and what isn't.
    Status,
    /// The same again and again: sends per second, what is booked ahead, lanes, tenants.
    Watch(WatchArgs),
    /// Say where a mail is, and how it got there.
    Find(MailArgs),
    /// Keep a tenant's mail back until it is resumed.
    Pause(PauseArgs),
    /// Let a tenant send again, its parked mail first.
    Resume(ResumeArgs),
    /// Don't send a mail that isn't sent yet.
    Cancel(MailArgs),
    /// Have dead-lettered or parked mail go again, at a rate.
    Redrive(RedriveArgs),
    /// Hand in mail from a file.
    Enqueue(EnqueueArgs),
    /// Say what a campaign takes: time, waits, money.
    Plan(PlanArgs),
    /// Tenants.
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Take in the account's limits and the tenants' settings now; it is done each minute anyway.
    Refresh,
    /// Print a script that completes this command's words in a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// Of tenants.
#[derive(Subcommand, Clone, Debug)]
pub enum TenantCommand {
    /// Name the tenants, what they have sent, and what of it bounced or was complained about.
    List,
}

/// How long to watch.
#[derive(ClapArgs, Clone, Debug)]
pub struct WatchArgs {
    /// Time between two looks, such as `1s` or `500ms`.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = span)]
    pub every: Duration,
    /// End after so many looks; without, Ctrl-C ends it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ticks: Option<u64>,
}

/// Which mail.
#[derive(ClapArgs, Clone, Debug)]
pub struct MailArgs {
    /// Whose mail it is.
    pub tenant: String,
    /// Its send id.
    pub send_id: String,
}

/// Whom to pause.
#[derive(ClapArgs, Clone, Debug)]
pub struct PauseArgs {
    /// The tenant.
    pub tenant: String,
    /// Why, for whoever looks next: at most 200 characters.
    #[arg(long)]
    pub reason: String,
}

/// Whom to resume.
#[derive(ClapArgs, Clone, Debug)]
pub struct ResumeArgs {
    /// The tenant.
    pub tenant: String,
    /// How fast its parked mail goes, such as `20/s`; without, a quarter of what may be sent.
    #[arg(long)]
    pub rate: Option<Rate>,
    /// Why, for the log.
    #[arg(long)]
    pub reason: Option<String>,
}

/// Which mail goes again, and how fast.
#[derive(ClapArgs, Clone, Debug)]
pub struct RedriveArgs {
    /// How fast, such as `20/s`: below what may be sent. All redrives of a lane share it: the last one's counts.
    #[arg(long)]
    pub rate: Rate,
    /// Where it is.
    #[arg(long, value_enum, default_value_t = From::Dead)]
    pub from: From,
    /// One lane only: `priority` or `bulk`.
    #[arg(long)]
    pub lane: Option<Lane>,
    /// One tenant only. What is parked needs one.
    #[arg(long, required_if_eq("from", "parked"))]
    pub tenant: Option<String>,
    /// Only what is there for this reason, such as `attempts_exhausted`.
    #[arg(long)]
    pub reason: Option<String>,
    /// Only what was handed in so long ago or longer, such as `1h`.
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub older_than: Option<Duration>,
    /// Only what was handed in so long ago at most, such as `2d`.
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub younger_than: Option<Duration>,
    /// Also mail that may have been sent: it may arrive twice.
    #[arg(long)]
    pub resend: bool,
    /// Look, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// Where mail waits to go again.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The dead-letter queues.
    Dead,
    /// The bucket of parked mail.
    Parked,
}

impl From {
    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Parked => "parked",
        }
    }
}

/// Reads a time such as `500ms`, `90s`, `15m`, `1h` or `2d`; more than nothing.
fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: give a whole number and ms, s, m, h or d, as 90s");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number = u64::from_str(number).map_err(|_| wrong())?;
    let ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let ms = number.checked_mul(ms).filter(|ms| *ms > 0);
    ms.map(Duration::from_millis).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let ms = |text| span(text).map(|time| time.as_millis()).ok();
        assert_eq!(ms("250ms"), Some(250));
        assert_eq!(ms("90s"), Some(90_000));
        assert_eq!(ms("15m"), Some(900_000));
        assert_eq!(ms("1h"), Some(3_600_000));
        assert_eq!(ms("2d"), Some(172_800_000));
        for text in [
            "",
            "5",
            "h",
            "-1s",
            "1.5h",
            "0s",
            "1 h",
            "99999999999999999999s",
            "9999999999999999d",
        ] {
            assert_eq!(ms(text), None, "{text:?}");
        }
    }
}
