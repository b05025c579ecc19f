//! `sendslot status`.

use sendslot_runtime::control::{Ask, LaneStatus, Request, Status, TenantLane};
use serde::Serialize;

use crate::{
    error::Error,
    exit::Exit,
    health::{Problem, held, problems},
    invoke::{Invoker, SHORT, caller},
    output::Output,
    stack::Stack,
    text::{bytes, count, indent, line, moment, per_second, several, some, span_ms, table},
};

/// The most tenants in a text: the busiest. `tenant list` names all.
const MOST_TENANTS: usize = 15;
/// Minutes ahead that a text shows.
const MOST_MINUTES: usize = 5;

/// How things stand, for programs.
#[derive(Serialize)]
struct Told<'a> {
    /// Whether there are no problems.
    well: bool,
    problems: &'a [Problem],
    #[serde(flatten)]
    status: &'a Status,
}

pub(crate) async fn status(stack: &Stack, again: &str, out: &mut Output) -> Result<Exit, Error> {
    let status = ask(&stack.control()?).await?;
    let problems = problems(&status, again);
    if out.json() {
        out.value(&Told {
            well: problems.is_empty(),
            problems: &problems,
            status: &status,
        })?;
    } else {
        out.say(&text(&status, &problems, None))?;
    }
    // Without Redis nothing is known.
    Ok(if status.redis.ok {
        Exit::Done
    } else {
        Exit::Nothing
    })
}

/// Asks how things stand.
pub(crate) async fn ask(control: &Invoker) -> Result<Status, Error> {
    let request = Request::Status(Ask { caller: caller() });
    control.ask(&request, SHORT).await
}

/// All of it. `sends` is the measured rate, if it was measured.
pub(crate) fn text(status: &Status, problems: &[Problem], sends: Option<f64>) -> String {
    let mut parts = vec![headline(status, problems)];
    if !problems.is_empty() {
        let all = problems
            .iter()
            .map(|problem| format!("  ! {}\n      {}", problem.what, problem.next));
        parts.push(all.collect::<Vec<String>>().join("\n"));
    }
    if status.redis.ok {
        parts.push(facts(status, sends));
    }
    parts.extend(lanes(status));
    if status.redis.ok {
        parts.extend(minutes(status));
        parts.extend(tenants(status));
    }
    parts.join("\n\n")
}

/// Whether all is well.
pub(crate) fn headline(status: &Status, problems: &[Problem]) -> String {
    match problems.len() {
        0 => format!(
            "all is well: {} booked, {} waiting, {} may be sent",
            count(booked(status)),
            count(waiting(status)),
            status
                .budget
                .as_ref()
                .map_or_else(String::new, |budget| per_second(budget.effective_rate)),
        ),
        1 => "NOT WELL: one thing to look at, with what to run next".to_owned(),
        many => {
            format!("NOT WELL: {many} things to look at, the worst first, with what to run next")
        }
    }
}

/// Recipients booked ahead.
pub(crate) const fn booked(status: &Status) -> u64 {
    status.booked.priority + status.booked.bulk
}

/// Recipients in line.
pub(crate) fn waiting(status: &Status) -> u64 {
    status.lanes.iter().map(|lane| lane.all.waiting).sum()
}

fn facts(status: &Status, sends: Option<f64>) -> String {
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: String| facts.push(format!("{name:<9}  {value}"));
    fact("now", moment(status.now_ms));
    if let Some(sends) = sends {
        fact("sends", per_second(sends));
    }
    if let Some(budget) = &status.budget {
        let day = budget.daily_quota.map_or_else(
            || "no daily quota".to_owned(),
            |quota| format!("{} a day", count(quota)),
        );
        fact(
            "budget",
            format!(
                "{}, {day}, from {}; {} of it may be sent now",
                line(&budget.limit),
                line(&budget.source),
                per_second(budget.effective_rate)
            ),
        );
    }
    fact(
        "ahead",
        format!(
            "{} booked, the last in {}; {} waiting for a slot",
            count(booked(status)),
            span_ms(status.booked_ahead_seconds.saturating_mul(1_000)),
            count(waiting(status))
        ),
    );
    let beside = if status.unscheduled > 0 {
        format!(
            "; {} or more went past the schedule",
            count(status.unscheduled)
        )
    } else {
        String::new()
    };
    fact(
        "sent 24 h",
        format!("{}{beside}", several(status.sent_24h, "recipient")),
    );
    if let Some(last) = &status.last_refresh {
        let ago = span_ms(status.now_ms.saturating_sub(last.at_ms));
        fact("refreshed", format!("{ago} ago by {}", line(&last.caller)));
    }
    fact("redis", redis(status));
    facts.join("\n")
}

fn redis(status: &Status) -> String {
    let redis = &status.redis;
    let mut parts = vec!["answers".to_owned()];
    parts.extend(
        redis
            .version
            .as_deref()
            .map(|version| format!("version {}", line(version))),
    );
    parts.extend(
        redis
            .uptime_seconds
            .map(|up| format!("up {}", span_ms(up.saturating_mul(1_000)))),
    );
    parts.extend(
        redis
            .used_memory
            .map(|used| match redis.max_memory.filter(|most| *most > 0) {
                Some(most) => format!("{} of {}", bytes(used), bytes(most)),
                None => bytes(used),
            }),
    );
    parts.join(", ")
}

fn numbers(lane: &TenantLane) -> Vec<String> {
    let numbers = [
        lane.booked,
        lane.waiting,
        lane.sent_1h,
        lane.sent_24h,
        lane.uncertain,
        lane.parked,
    ];
    numbers.into_iter().map(some).collect()
}

fn lanes(status: &Status) -> Option<String> {
    if status.lanes.is_empty() {
        return None;
    }
    let queue = |lane: &LaneStatus, queue: &str| {
        let held = lane.queues.get(queue).map(held);
        held.map_or_else(|| "?".to_owned(), some)
    };
    let rows = status.lanes.iter().map(|lane| {
        let mut row = vec![lane.lane.clone()];
        // The queues may answer while Redis doesn't.
        row.extend(if status.redis.ok {
            numbers(&lane.all)
        } else {
            vec!["?".to_owned(); 6]
        });
        row.extend(["intake", "send", "intake_dead", "send_dead"].map(|name| queue(lane, name)));
        row
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let head = [
        "lane",
        "booked",
        "waiting",
        "sent 1 h",
        "sent 24 h",
        "uncertain",
        "parked",
        "intake",
        "send",
        "refused",
        "dead",
    ];
    Some(table(1, &head, &rows))
}

fn minutes(status: &Status) -> Option<String> {
    if status.minutes.is_empty() {
        return None;
    }
    let rows = status.minutes.iter().take(MOST_MINUTES).map(|minute| {
        let at = moment(minute.at_ms);
        vec![
            at.get(11..16).unwrap_or(&at).to_owned(),
            some(minute.priority),
            some(minute.bulk),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let mut text = table(1, &["minute", "priority", "bulk"], &rows);
    let more = status.minutes.len().saturating_sub(MOST_MINUTES);
    if more > 0 {
        let left = status.minutes.iter().skip(MOST_MINUTES);
        let left: u64 = left.map(|minute| minute.priority + minute.bulk).sum();
        let minutes = several(u64::try_from(more).unwrap_or_default(), "minute");
        text = format!("{text}\nand {} in {minutes} after", count(left));
    }
    Some(text)
}

fn tenants(status: &Status) -> Option<String> {
    let mut busy: Vec<(&str, TenantLane)> = status
        .tenants
        .iter()
        .map(|tenant| {
            let mut sum = TenantLane::default();
            for lane in tenant.lanes.values() {
                sum.booked += lane.booked;
                sum.waiting += lane.waiting;
                sum.sent_1h += lane.sent_1h;
                sum.sent_24h += lane.sent_24h;
                sum.uncertain += lane.uncertain;
                sum.parked += lane.parked;
            }
            (tenant.tenant.as_str(), sum)
        })
        .collect();
    busy.sort_by_key(|(_, lane)| {
        std::cmp::Reverse((lane.booked + lane.waiting + lane.parked, lane.sent_1h))
    });
    if busy.is_empty() {
        return None;
    }
    let rows = busy.iter().take(MOST_TENANTS).map(|(tenant, lane)| {
        let mut row = vec![(*tenant).to_owned()];
        row.extend(numbers(lane));
        row
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let head = [
        "tenant",
        "booked",
        "waiting",
        "sent 1 h",
        "sent 24 h",
        "uncertain",
        "parked",
    ];
    let mut text = table(1, &head, &rows);
    let more = busy.len().saturating_sub(MOST_TENANTS);
    if more > 0 {
        text = format!(
            "{text}\n{}",
            indent(&format!("and {more} more: sendslot tenant list"))
        );
    }
    Some(text)
}
