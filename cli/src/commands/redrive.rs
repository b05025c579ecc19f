//! `sendslot redrive`: asks `control` for some seconds of it at a time, so that it can be followed, and stopped between two calls.

use std::{collections::BTreeMap, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sendslot_domain::Rate;
use sendslot_runtime::control::{LeftMail, MOST_LISTED, Redrive, Redriven, Request};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::{
    args::RedriveArgs,
    error::Error,
    exit::Exit,
    invoke::{Invoker, LONG, caller},
    output::Output,
    stack::Stack,
    stop::Stop,
    text::{count, indent, line, per_second, several, span, table},
};

/// How long one call goes on, s: progress is seen and Ctrl-C heeded that often. Each looks at all that is left again.
const CALL_SECONDS: u64 = 10;
/// A dry run has one call, s.
const DRY_SECONDS: u64 = 30;
/// The least and the longest pause between two calls.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_mins(1));
/// So many calls in a row may fail for what passes.
const MOST_FAILED: u32 = 5;

/// After so long without a mail that went, and ten times as long as one takes, it is given up.
const NOTHING_GOES: Duration = Duration::from_mins(10);

/// What came of all calls so far.
#[derive(Clone, Debug, Default, Serialize)]
struct Sum {
    /// Nothing was changed.
    dry_run: bool,
    /// They go again; in a dry run: they would.
    redriven: u64,
    /// They had ended already.
    ended: u64,
    /// They weren't asked for.
    passed: u64,
    /// They stay, since they can't succeed, by reason.
    left: BTreeMap<String, u64>,
    /// The first of these.
    listed: Vec<LeftMail>,
    /// About how many are there now: these and others.
    remaining: u64,
    /// So far, mails per second.
    rate: f64,
    /// At that rate, for what remains; nothing while there is no rate.
    eta_seconds: Option<u64>,
    /// All was looked at, and nothing that was asked for is left to go.
    done: bool,
    /// Ctrl-C ended it.
    interrupted: bool,
}

pub(crate) async fn redrive(
    stack: &Stack,
    args: &RedriveArgs,
    again: &str,
    out: &mut Output,
) -> Result<Exit, Error> {
    let control = stack.control()?;
    let request = Request::Redrive(request(args));
    let mut sum = Sum {
        dry_run: args.dry_run,
        ..Sum::default()
    };
    let bar = bar(out);
    let ended = go(&control, &request, args.rate, &mut sum, &bar, out).await;
    bar.finish_and_clear();
    if let Err(error) = ended {
        // What was done is told first: it stays done.
        if sum.redriven > 0 {
            out.remark(&format!(
                "{} redriven before this; the same command goes on",
                several(sum.redriven, "mail")
            ))?;
        }
        return Err(error);
    }
    out.value(&sum)?;
    if !out.json() {
        out.say(&text(&sum, args, again))?;
    }
    Ok(if sum.interrupted {
        Exit::Interrupted
    } else if sum.left.values().any(|left| *left > 0) || !sum.done {
        Exit::Partly
    } else {
        Exit::Done
    })
}

fn request(args: &RedriveArgs) -> Redrive {
    Redrive {
        from: Some(args.from.as_str().to_owned()),
        lane: args.lane.map(|lane| lane.to_string()),
        tenant: args.tenant.clone(),
        reason: args.reason.clone(),
        older_than_seconds: args.older_than.map(|time| time.as_secs()),
        younger_than_seconds: args.younger_than.map(|time| time.as_secs()),
        rate: args.rate.to_string(),
        seconds: Some(if args.dry_run {
            DRY_SECONDS
        } else {
            CALL_SECONDS
        }),
        resend: args.resend,
        dry_run: args.dry_run,
        caller: caller(),
    }
}

/// Calls until all is done, or until Ctrl-C.
async fn go(
    control: &Invoker,
    request: &Request,
    rate: Rate,
    sum: &mut Sum,
    bar: &ProgressBar,
    out: &mut Output,
) -> Result<(), Error> {
    let stop = Stop::listen();
    let start = Instant::now();
    let (mut failed, mut went) = (0, start);
    let patience = NOTHING_GOES.max(Duration::from_secs_f64(10.0 / rate.per_second().max(0.001)));
    loop {
        let call = control.ask::<Redriven>(request, LONG);
        let (answer, stopped) = to_its_end(call, &stop, bar, out).await?;
        sum.interrupted = stopped;
        let pause = match answer {
            Ok(answer) => {
                failed = 0;
                if answer.redriven + answer.ended > 0 {
                    went = Instant::now();
                }
                let pause = Duration::from_millis(answer.retry_after_ms);
                add(sum, answer, start.elapsed());
                progress(sum, bar, out)?;
                pause
            }
            Err(error) if error.passes() && failed < MOST_FAILED => {
                failed += 1;
                bar.suspend(|| out.remark(&format!("{error}; trying again")))?;
                Duration::from_secs(1 << failed)
            }
            Err(error) => return Err(error),
        };
        if sum.done || sum.interrupted || sum.dry_run || went.elapsed() > patience {
            return Ok(());
        }
        tokio::select! {
            () = sleep(pause.clamp(PAUSES.0, PAUSES.1)) => {}
            () = stop.asked() => {
                sum.interrupted = true;
                return Ok(());
            }
        }
    }
}

/// Waits for a call's answer, and says whether Ctrl-C came meanwhile. A call that was begun is done in any case: only a second
/// Ctrl-C doesn't wait for what it says.
async fn to_its_end(
    call: impl Future<Output = Result<Redriven, Error>>,
    stop: &Stop,
    bar: &ProgressBar,
    out: &mut Output,
) -> Result<(Result<Redriven, Error>, bool), Error> {
    let mut call = std::pin::pin!(call);
    tokio::select! {
        answer = &mut call => return Ok((answer, false)),
        () = stop.asked() => {}
    }
    let remark =
        "stopping after this call, in some seconds; Ctrl-C again doesn't wait for its answer";
    bar.suspend(|| out.remark(remark))?;
    tokio::select! {
        answer = &mut call => Ok((answer, true)),
        () = stop.asked() => Ok((Ok(Redriven::default()), true)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a duration, and it saturates"
)]
fn add(sum: &mut Sum, answer: Redriven, took: Duration) {
    sum.redriven += answer.redriven;
    sum.ended += answer.ended;
    // What stays is seen again by each call. The one that ends it has seen all of it, and any other perhaps a part.
    if answer.done {
        (sum.passed, sum.left, sum.listed) = (answer.passed, answer.left, answer.listed);
    } else {
        sum.passed = sum.passed.max(answer.passed);
        for (reason, left) in answer.left {
            let most = sum.left.entry(reason).or_default();
            *most = left.max(*most);
        }
        for mail in answer.listed {
            if sum.listed.len() < MOST_LISTED && !sum.listed.contains(&mail) {
                sum.listed.push(mail);
            }
        }
    }
    sum.remaining = answer.remaining;
    sum.done = answer.done;
    sum.rate = sum.redriven as f64 / took.as_secs_f64().max(0.001);
    // A dry run has no rate: it doesn't send.
    if sum.dry_run {
        sum.rate = 0.0;
    }
    sum.eta_seconds = (sum.rate > 0.0).then(|| (sum.remaining as f64 / sum.rate) as u64);
}

/// A bar on standard error, if that is a terminal.
fn bar(out: &Output) -> ProgressBar {
    let target = if out.json() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} redriven  {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn progress(sum: &Sum, bar: &ProgressBar, out: &mut Output) -> Result<(), Error> {
    // The last one is the result.
    if out.json() && !sum.done && !sum.interrupted && !sum.dry_run {
        return out.value(sum);
    }
    let rate = per_second(sum.rate);
    let eta = sum.eta_seconds.map_or_else(
        || "no time known".to_owned(),
        |eta| format!("{} to go", span(Duration::from_secs(eta))),
    );
    if bar.is_hidden() {
        if sum.done || sum.dry_run || out.json() {
            return Ok(());
        }
        return out.remark(&format!(
            "{} redriven, {} remain, {rate}, {eta}",
            count(sum.redriven),
            count(sum.remaining)
        ));
    }
    bar.set_length(sum.redriven + sum.remaining);
    bar.set_position(sum.redriven);
    bar.set_message(format!("{} remain, {rate}, {eta}", count(sum.remaining)));
    Ok(())
}

fn text(sum: &Sum, args: &RedriveArgs, again: &str) -> String {
    let mails = several(sum.redriven, "mail");
    let mut text = if sum.redriven == 0 {
        "nothing was found that can go".to_owned()
    } else if sum.dry_run {
        format!("{mails} would go again; nothing was changed")
    } else {
        format!("{mails} redriven at {}", per_second(sum.rate))
    };
    if sum.ended > 0 {
        text = format!(
            "{text}\n{} had ended before, and were taken off",
            several(sum.ended, "mail")
        );
    }
    if sum.passed > 0 {
        text = format!("{text}\n{} weren't asked for", several(sum.passed, "mail"));
    }
    let left: u64 = sum.left.values().sum();
    if left > 0 {
        text = format!(
            "{text}\n{} left, since they can't succeed as they are:",
            several(left, "mail")
        );
        let rows = sum
            .left
            .iter()
            .map(|(reason, left)| vec![line(reason), count(*left)]);
        let rows: Vec<Vec<String>> = rows.collect();
        text = format!("{text}\n{}", indent(&table(1, &["reason", "mails"], &rows)));
        if !sum.listed.is_empty() {
            text = format!("{text}\n\n{}", indent(&listed(&sum.listed)));
        }
        if u64::try_from(sum.listed.len()).is_ok_and(|listed| listed < left) {
            text = format!("{text}\n  … and more");
        }
    }
    if sum.interrupted {
        text = format!(
            "{text}\nstopped: {} remain; to go on, the same again: {}",
            count(sum.remaining),
            command(args, again)
        );
    } else if !sum.done {
        text = format!(
            "{text}\nnot all was looked at, or it doesn't go on: about {} are there; the log of control says more",
            count(sum.remaining)
        );
    }
    if sum.dry_run && sum.redriven > 0 {
        text = format!("{text}\nto do it: {}", command(args, again));
    }
    text
}

fn listed(mails: &[LeftMail]) -> String {
    let or = |text: &Option<String>| text.as_deref().map_or_else(|| "?".to_owned(), line);
    let rows = mails.iter().map(|mail| {
        vec![
            mail.lane.clone(),
            or(&mail.tenant),
            or(&mail.send_id),
            line(&mail.reason),
            line(&mail.detail),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    table(5, &["lane", "tenant", "send id", "reason", "why"], &rows)
}

/// The command that goes on, without `--dry-run`.
fn command(args: &RedriveArgs, again: &str) -> String {
    let mut command = format!("{again} redrive --rate {}", args.rate);
    let time = |time: &Option<Duration>| time.map(|time| format!("{}ms", time.as_millis()));
    for (option, value) in [
        (
            "--from",
            (args.from != crate::args::From::Dead).then(|| args.from.as_str().to_owned()),
        ),
        ("--lane", args.lane.map(|lane| lane.to_string())),
        ("--tenant", args.tenant.clone()),
        ("--reason", args.reason.clone()),
        ("--older-than", time(&args.older_than)),
        ("--younger-than", time(&args.younger_than)),
    ] {
        if let Some(value) = value {
            command = format!("{command} {option} {value}");
        }
    }
    if args.resend {
        command.push_str(" --resend");
    }
    command
}
