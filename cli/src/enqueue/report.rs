//! What is told while it goes on, and at its end.

use std::{
    fs::{self, File},
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::json;

use super::rows::Refused;
use crate::{error::Error, output::Output, text};

/// How often it is told, where there is no bar.
pub(super) const EVERY: Duration = Duration::from_secs(5);

/// What became of the file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Rows that are settled: accepted and refused, by earlier runs, too.
    pub rows: u64,
    /// Rows that the queue took.
    pub accepted: u64,
    /// Rows that were refused.
    pub refused: u64,
    /// Rows that earlier runs had settled.
    pub resumed: u64,
    /// How long this run took, in seconds.
    pub seconds: f64,
    /// Rows that this run settled, a second.
    pub rows_per_second: f64,
    /// Whether all of the file is settled.
    pub done: bool,
}

/// Tells how far it is.
pub(super) struct Teller {
    bar: Option<ProgressBar>,
    bytes: Option<u64>,
    began: Instant,
    /// Where in the file this run began, in bytes.
    from: u64,
    told: Instant,
}

impl Teller {
    /// Of a file of so many bytes; nothing of standard input.
    pub(super) fn new(bytes: Option<u64>, from: u64) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::stderr());
            let form = if bytes.is_some() {
                "{bar:30} {percent:>3} %  {msg}"
            } else {
                "{spinner}  {msg}"
            };
            bar.set_style(
                ProgressStyle::with_template(form).unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar
        });
        Self {
            bar,
            bytes,
            began: Instant::now(),
            from,
            told: Instant::now(),
        }
    }

    /// How long it has been.
    pub(super) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Tells it, if it is time.
    pub(super) fn tell(&mut self, report: &Report, at: u64, out: &mut Output) -> Result<(), Error> {
        let left = self.left(at);
        if let Some(bar) = &self.bar {
            bar.set_position(at);
            bar.set_message(line(report, left));
        }
        if self.told.elapsed() < EVERY {
            return Ok(());
        }
        self.told = Instant::now();
        let percent = self
            .bytes
            .filter(|bytes| *bytes > 0)
            .map(|bytes| at.min(bytes) * 100 / bytes);
        if self.bar.is_none() && !out.json() {
            let percent = percent
                .map(|percent| format!("{percent} %, "))
                .unwrap_or_default();
            out.remark(&format!("{percent}{}", line(report, left)))?;
        }
        out.value(&json!({ "progress": {
            "rows": report.rows,
            "accepted": report.accepted,
            "refused": report.refused,
            "rows_per_second": report.rows_per_second,
            "percent": percent,
            "seconds_left": left.map(|left| left.as_secs()),
        }}))
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// How long it will take yet, if the rest goes as this run has gone.
    fn left(&self, at: u64) -> Option<Duration> {
        let (all, gone) = (
            self.bytes?,
            at.checked_sub(self.from).filter(|gone| *gone > 0)?,
        );
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let part = all.saturating_sub(at) as f64 / gone as f64;
        Duration::try_from_secs_f64(self.seconds() * part).ok()
    }
}

fn line(report: &Report, left: Option<Duration>) -> String {
    let left = left
        .map(|left| format!(", {} left", text::span(left)))
        .unwrap_or_default();
    let refused = match report.refused {
        0 => String::new(),
        refused => format!(", {} refused", text::count(refused)),
    };
    let (accepted, rate) = (
        text::count(report.accepted),
        text::per_second(report.rows_per_second),
    );
    format!("{accepted} accepted{refused}, {rate}{left}")
}

/// The file of refused rows, made when there is one.
pub(super) struct RefusedRows {
    path: Option<PathBuf>,
    file: Option<csv::Writer<File>>,
}

impl RefusedRows {
    /// Written there, or nowhere.
    pub(super) const fn new(path: Option<PathBuf>) -> Self {
        Self { path, file: None }
    }

    /// Takes away what an earlier run wrote, unless this one has written already.
    pub(super) fn clear(&self) -> io::Result<()> {
        let Some(path) = self.path.as_ref().filter(|_| self.file.is_none()) else {
            return Ok(());
        };
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Adds one.
    pub(super) fn add(&mut self, refused: &Refused) -> io::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        if self.file.is_none() {
            let mut file = csv::Writer::from_path(path)?;
            file.write_record(["line", "code", "message"])?;
            self.file = Some(file);
        }
        if let Some(file) = &mut self.file {
            file.write_record([&refused.line.to_string(), &refused.code, &refused.message])?;
        }
        Ok(())
    }

    /// Has all of it in the file.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), csv::Writer::flush)
    }

    /// Where it is, if there is one.
    pub(super) fn path(&self) -> Option<&Path> {
        self.file.as_ref().and(self.path.as_deref())
    }
}
