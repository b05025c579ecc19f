//! `sendslot watch`.

use std::collections::VecDeque;

use sendslot_runtime::control::Status;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use super::status::{ask, booked, headline, text, waiting};
use crate::{
    args::WatchArgs,
    error::Error,
    exit::Exit,
    health::{Problem, problems},
    output::Output,
    stack::Stack,
    stop::Stop,
    text::{count, moment, per_second, span_ms},
};

/// Sends per second are of so long, ms: what one look sees jumps about.
const MEASURED_MS: u64 = 5_000;
/// Home, and nothing below.
const REDRAW: &str = "\x1b[H\x1b[J";

/// One look, for programs.
#[derive(Serialize)]
struct Look<'a> {
    well: bool,
    problems: &'a [Problem],
    /// Recipients per second of the last seconds; nothing before the second look.
    sends_per_second: Option<f64>,
    #[serde(flatten)]
    status: &'a Status,
}

pub(crate) async fn watch(
    stack: &Stack,
    args: &WatchArgs,
    again: &str,
    out: &mut Output,
) -> Result<Exit, Error> {
    let control = stack.control()?;
    let stop = Stop::listen();
    let mut ticks = interval(args.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut meter = Meter::default();
    let mut looks = 0_u64;
    loop {
        let look = async {
            ticks.tick().await;
            ask(&control).await
        };
        let seen = tokio::select! {
            seen = look => seen,
            () = stop.asked() => return Ok(Exit::Done),
        };
        match seen {
            Ok(status) => {
                let sends = meter.look(&status);
                let problems = problems(&status, again);
                show(&status, &problems, sends, out)?;
            }
            // What never worked won't; what did may come back, and somebody watches for just that.
            Err(error) if looks == 0 || args.ticks == Some(looks + 1) => return Err(error),
            Err(error) => {
                out.value(&error.value())?;
                out.say(&error.text())?;
            }
        }
        looks += 1;
        if args.ticks == Some(looks) {
            return Ok(Exit::Done);
        }
    }
}

fn show(
    status: &Status,
    problems: &[Problem],
    sends: Option<f64>,
    out: &mut Output,
) -> Result<(), Error> {
    if out.json() {
        return out.value(&Look {
            well: problems.is_empty(),
            problems,
            sends_per_second: sends,
            status,
        });
    }
    if out.terminal() {
        let text = text(status, problems, sends);
        return out.say(&format!("{REDRAW}{text}\n\nCtrl-C ends"));
    }
    out.say(&row(status, problems, sends))
}

/// One look as one line.
fn row(status: &Status, problems: &[Problem], sends: Option<f64>) -> String {
    let at = moment(status.now_ms);
    if !status.redis.ok {
        return format!(
            "{}: {}",
            headline(status, problems),
            problems.first().map_or("", |problem| &problem.what)
        );
    }
    let sends = sends.map_or_else(|| "-".to_owned(), per_second);
    let mut row = format!(
        "{at}  sends {sends:>8}  booked {:>7} ({})  waiting {:>7}",
        count(booked(status)),
        span_ms(status.booked_ahead_seconds.saturating_mul(1_000)),
        count(waiting(status))
    );
    for lane in &status.lanes {
        row = format!("{row}  {} {}", lane.lane, count(lane.all.booked));
    }
    if let Some(first) = problems.first() {
        let more = match problems.len() {
            1 => String::new(),
            many => format!(" (and {} more)", many - 1),
        };
        row = format!("{row}  ! {}{more}", first.what);
    }
    row
}

/// Sends per second, from what was sent in all.
#[derive(Default)]
struct Meter {
    /// When, by Redis's clock, and how many by then; the oldest first.
    seen: VecDeque<(u64, u64)>,
}

impl Meter {
    /// Takes a look; answers the rate since some seconds before.
    fn look(&mut self, status: &Status) -> Option<f64> {
        if !status.redis.ok {
            self.seen.clear();
            return None;
        }
        let sent = if status.lanes.is_empty() {
            status.sent_24h
        } else {
            status.lanes.iter().map(|lane| lane.all.sent_24h).sum()
        };
        self.take(status.now_ms, sent)
    }

    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    fn take(&mut self, at_ms: u64, sent: u64) -> Option<f64> {
        // What was sent a day ago falls out of the count, and clocks can be set back: begin anew.
        if self
            .seen
            .back()
            .is_some_and(|&(at, was)| sent < was || at_ms < at)
        {
            self.seen.clear();
        }
        self.seen.push_back((at_ms, sent));
        // The oldest stays for as long as the one after it isn't old enough.
        while self
            .seen
            .get(1)
            .is_some_and(|&(at, _)| at + MEASURED_MS <= at_ms)
        {
            self.seen.pop_front();
        }
        let &(since, was) = self.seen.front()?;
        let took = at_ms.saturating_sub(since);
        (took > 0).then(|| (sent - was) as f64 * 1_000.0 / took as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_of_the_last_seconds() {
        let mut meter = Meter::default();
        assert_eq!(meter.take(1_000, 50), None);
        assert_eq!(meter.take(2_000, 150), Some(100.0));
        assert_eq!(meter.take(6_000, 550), Some(100.0));
        // The first look is too old now: 400 in 5 s since the second.
        assert_eq!(meter.take(7_000, 550), Some(80.0));
        // The day's count fell: nobody knows.
        assert_eq!(meter.take(8_000, 300), None);
        assert_eq!(meter.take(9_000, 310), Some(10.0));
    }

    #[test]
    fn no_time_is_no_rate() {
        let mut meter = Meter::default();
        assert_eq!(meter.take(1_000, 5), None);
        assert_eq!(meter.take(1_000, 9), None);
    }
}
