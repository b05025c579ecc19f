//! Hands in a file of mail: `sendslot enqueue FILE`.
//!
//! ```text
//! file ──> lines ──> rows, checked ──> batches ──> queue, some at a time ──> checkpoint
//!          └──── a thread of its own ────┘                      └──> refused rows
//! ```
//!
//! # What is promised
//! - **Memory doesn't grow with the file.** Some batches are ahead of those on their way, which are [`FLYING_BYTES`] at most.
//! - **A kill costs nothing but time.** What the queue has taken is noted at once. What was on its way when the process died
//!   may have been taken, too, and is handed in again under the same send ids: the stack sends each once, as it does with
//!   whatever SQS delivers twice.
//! - **A bad row stops no other.** It is checked here as `reserve` will check it; why it is refused stands in the file of
//!   refused rows, by line, without anything of the mail.
//!
//! Whether a tenant is known only the stack can say: such mail is dead-lettered there. Two mails under one send id in a file
//! aren't found here either, since that would take memory: the stack sends one, and dead-letters the other if it differs.
//!
//! # Layout
//! - [`lines`], [`csv`], [`rows`]: from bytes to send requests.
//! - [`batches`]: reads the file on a thread of its own.
//! - [`sender`]: one batch onto the queue, with its retries.
//! - [`checkpoint`]: what was handed in.
//! - [`report`]: what is told, and the refused rows.

mod batches;
mod checkpoint;
mod csv;
mod lines;
mod report;
mod rows;
mod sender;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use futures_util::{StreamExt, stream::FuturesUnordered};
use sendslot_domain::{Lane, Moment};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::interval,
};

use self::{
    batches::{Batch, Batches, Source},
    checkpoint::{Checkpoint, Header, Progress, Settled, Unfit},
    report::{RefusedRows, Teller},
    rows::Defaults,
};
pub use self::{
    report::Report,
    rows::{Entry, Format, Refused},
    sender::{CallFailed, Failed, Queue, Sqs},
};
use crate::{error::Error, exit::Exit, output::Output, text};

/// The most bytes on their way at once, so that large mails take no more memory than small ones.
const FLYING_BYTES: usize = 8 * 1_048_576;
/// How many batches may be settled before one that isn't: what a checkpoint has out of order stays small.
const MOST_AHEAD: usize = 1024;
/// How often what is noted is put on the disk: it outlives this process at once, and the machine after so long.
const TO_DISK: Duration = Duration::from_secs(2);
/// How often the bar moves.
const TICK: Duration = Duration::from_millis(200);

const AFTER: &str = r#"JSON Lines: each line is a send request, {"send_id": …, "tenant": …, "from": …, "to": […], "content": …}.

CSV: the first line names the columns: send_id, tenant, from, to, cc, bcc, reply_to, expires_at, send_at, subject, text, html. Several addresses have `;` between them. With --template all columns but the first nine are the template's data.

Interrupted or killed, the same command goes on where it was. What was on its way at a kill is handed in again under the same send ids, and the stack sends each once: so change neither the file nor the send ids in between. With --campaign they come from the line's number.

A row that can't be right is left out, and listed in FILE.refused with its line and why; the exit code is 4 then."#;

/// What to hand in, and how.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER)]
pub struct EnqueueArgs {
    /// The file; `-` is standard input, which can't be resumed.
    pub file: PathBuf,
    /// How it is written; without, its name says it (.csv, .jsonl or .ndjson).
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// The lane: `priority` or `bulk`.
    #[arg(long, default_value = "bulk")]
    pub lane: Lane,
    /// The tenant of rows that name none.
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,
    /// The sender of rows that name none.
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<String>,
    /// SES's template; its data are the columns that are no fields of a request, or a line's "data".
    #[arg(long, value_name = "NAME")]
    pub template: Option<String>,
    /// Makes send ids, NAME-LINE, where there are none.
    #[arg(long, value_name = "NAME")]
    pub campaign: Option<String>,
    /// Batches on their way at once.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub in_flight: u16,
    /// How often a batch is tried, with growing pauses of at most 5 s.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub tries: u32,
    /// Where it is noted what was handed in; without, FILE.checkpoint.
    #[arg(long, value_name = "PATH")]
    pub checkpoint: Option<PathBuf>,
    /// Where refused rows are listed, with their lines; without, FILE.refused.
    #[arg(long, value_name = "PATH")]
    pub refused: Option<PathBuf>,
}

impl EnqueueArgs {
    /// Onto whose intake queue it goes.
    #[must_use]
    pub const fn lane(&self) -> Lane {
        self.lane
    }

    /// The file, unless it is standard input.
    fn path(&self) -> Option<&Path> {
        Some(self.file.as_path()).filter(|file| *file != Path::new("-"))
    }

    fn known_format(&self) -> Result<Format, Error> {
        let extension = self
            .file
            .extension()
            .map(|ext| ext.to_string_lossy().to_ascii_lowercase());
        match (self.format, extension.as_deref()) {
            (Some(format), _) => Ok(format),
            (None, Some("csv")) => Ok(Format::Csv),
            (None, Some("jsonl" | "ndjson")) => Ok(Format::Jsonl),
            _ => Err(Error::Other(format!(
                "{}: its name doesn't say how it is written\n  do: give --format csv or --format jsonl",
                self.file.display()
            ))),
        }
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            tenant: self.tenant.clone(),
            from: self.from.clone(),
            template: self.template.clone(),
            campaign: self.campaign.clone(),
        }
    }

    /// What makes other mail of the same file.
    fn options(&self, format: Format, queue: &str) -> BTreeMap<String, String> {
        let from = self.from.as_deref().map(checkpoint::digest);
        let given = [
            ("format", Some(format.as_str().to_owned())),
            ("lane", Some(self.lane.to_string())),
            ("queue", Some(queue.to_owned())),
            ("tenant", self.tenant.clone()),
            ("from", from),
            ("template", self.template.clone()),
            ("campaign", self.campaign.clone()),
        ];
        let given = given
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect()
    }
}

/// A path beside the file.
fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(ending);
    name.into()
}

/// Hands the file in, on the queue of that URL.
///
/// # Errors
/// When the file, its checkpoint or the queue can't be used; run again, it goes on where it was.
pub async fn enqueue(
    sqs: &aws_sdk_sqs::Client,
    queue_url: &str,
    args: &EnqueueArgs,
    out: &mut Output,
) -> Result<Exit, Error> {
    let clock = || {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Moment(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    };
    let (exit, _) = run(&Sqs::new(sqs, queue_url), queue_url, args, clock, out).await?;
    Ok(exit)
}

/// The same, with the queue and its name, and the time by which rows expire.
///
/// # Errors
/// As [`enqueue`].
pub async fn run<C>(
    queue: &impl Queue,
    name: &str,
    args: &EnqueueArgs,
    clock: C,
    out: &mut Output,
) -> Result<(Exit, Report), Error>
where
    C: Fn() -> Moment + Send + 'static,
{
    let format = args.known_format()?;
    let refused = args
        .refused
        .clone()
        .or_else(|| Some(beside(args.path()?, ".refused")));
    let mut desk = Desk::open(args, &args.options(format, name), RefusedRows::new(refused))?;
    let resumed = desk.progress.accepted + desk.progress.refused;
    let bytes = args
        .path()
        .and_then(|path| fs::metadata(path).ok())
        .map(|file| file.len());
    let mut teller = Teller::new(bytes, desk.progress.place().byte);
    if desk.progress.done {
        return desk
            .already(args, out)
            .map(|report| (report.exit(), report));
    }
    if resumed > 0 {
        out.remark(&format!(
            "goes on after {} handed in before",
            text::several(resumed, "row")
        ))?;
    }
    let source = Source {
        format,
        lane: args.lane,
        defaults: args.defaults(),
        clock,
        done: desk.progress.settled(),
    };
    let from =
        batches::read(args.path(), source).map_err(|error| of_file(args, &error.to_string()))?;
    let stop = Flight {
        queue,
        args,
        desk: &mut desk,
        teller: &mut teller,
        resumed,
    }
    .fly(from, out)
    .await;
    teller.end();
    let report = desk.report(&teller, resumed, matches!(stop, Ok(Ended::All)));
    let ended = desk.end(&report).map_err(|error| of_files(args, &error));
    match stop.and_then(|stop| ended.map(|()| stop)) {
        Ok(stop) => {
            tell(&report, stop, &desk, args, out)?;
            let exit = if stop == Ended::All {
                report.exit()
            } else {
                Exit::Interrupted
            };
            Ok((exit, report))
        }
        Err(error) => {
            out.remark(&went_so_far(&report, &desk, args))?;
            Err(error)
        }
    }
}

impl Report {
    /// How a command ends that settled all of its file.
    const fn exit(&self) -> Exit {
        if self.refused > 0 {
            Exit::Partly
        } else {
            Exit::Done
        }
    }
}

/// The end, in words.
fn tell(
    report: &Report,
    ended: Ended,
    desk: &Desk,
    args: &EnqueueArgs,
    out: &mut Output,
) -> Result<(), Error> {
    let mut told = format!(
        "{} accepted, {} refused, in {:.1} s: {}",
        text::several(report.accepted, "row"),
        text::count(report.refused),
        report.seconds,
        text::per_second(report.rows_per_second),
    );
    if let Some(path) = desk.refused.path() {
        told = format!(
            "{told}\nwhich lines were refused, and why: {}",
            path.display()
        );
    }
    if ended == Ended::Interrupted {
        told = format!("{told}\n{}", went_so_far(report, desk, args));
    }
    out.say(&told)?;
    out.value(report)
}

/// How to go on.
fn went_so_far(report: &Report, desk: &Desk, args: &EnqueueArgs) -> String {
    let settled = text::several(report.rows, "row");
    match &desk.checkpoint {
        Some(checkpoint) => format!(
            "{settled} of {} are noted in {}: run the same command again to go on",
            args.file.display(),
            checkpoint.path().display()
        ),
        None => format!(
            "{settled} of standard input are handed in, all up to line {} among them: go on from there",
            desk.progress.place().line
        ),
    }
}

/// What is written down.
struct Desk {
    checkpoint: Option<Checkpoint>,
    progress: Progress,
    refused: RefusedRows,
}

impl Desk {
    fn open(
        args: &EnqueueArgs,
        options: &BTreeMap<String, String>,
        mut refused: RefusedRows,
    ) -> Result<Self, Error> {
        let opened = match args.path() {
            None => None,
            Some(file) => {
                let header = Header::of(file, options.clone())
                    .map_err(|error| of_file(args, &format!("can't read it: {error}")))?;
                let path = args
                    .checkpoint
                    .clone()
                    .unwrap_or_else(|| beside(file, ".checkpoint"));
                let opened = Checkpoint::open(&path, &header, |row| refused.add(row));
                Some(opened.map_err(|error| unfit(&path, &error))?)
            }
        };
        let (checkpoint, progress) = opened.map_or_else(
            || (None, Progress::default()),
            |(checkpoint, progress)| (Some(checkpoint), progress),
        );
        refused.clear().map_err(|error| of_files(args, &error))?;
        Ok(Self {
            checkpoint,
            progress,
            refused,
        })
    }

    /// Notes a batch that is settled.
    fn settle(&mut self, batch: Batch, mut never: Vec<Refused>) -> io::Result<()> {
        let accepted = (batch.entries.len() - never.len()) as u64;
        never.extend(batch.refused);
        never.sort_by_key(|refused| refused.line);
        let settled = Settled {
            rows: batch.first..batch.end,
            accepted,
            place: batch.place,
            refused: never,
        };
        if let Some(checkpoint) = &self.checkpoint {
            checkpoint.settle(&settled)?;
        }
        for refused in self.progress.settle(settled) {
            self.refused.add(&refused)?;
        }
        Ok(())
    }

    fn report(&self, teller: &Teller, resumed: u64, done: bool) -> Report {
        let (accepted, refused, seconds) = (
            self.progress.accepted,
            self.progress.refused,
            teller.seconds(),
        );
        let rows = accepted + refused;
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let rows_per_second = (rows - resumed) as f64 / seconds.max(0.001);
        Report {
            rows,
            accepted,
            refused,
            resumed,
            seconds: (seconds * 1000.0).round() / 1000.0,
            rows_per_second: (rows_per_second * 10.0).round() / 10.0,
            done,
        }
    }

    /// What there is to write at the end, however it came.
    fn end(&mut self, report: &Report) -> io::Result<()> {
        for refused in self.progress.rest() {
            self.refused.add(refused)?;
        }
        self.refused.flush()?;
        match &self.checkpoint {
            Some(checkpoint) if report.done => checkpoint.finish(&self.progress),
            Some(checkpoint) => checkpoint.file().sync_data(),
            None => Ok(()),
        }
    }

    /// Nothing was left to do.
    fn already(&mut self, args: &EnqueueArgs, out: &mut Output) -> Result<Report, Error> {
        self.refused
            .flush()
            .map_err(|error| of_files(args, &error))?;
        let (accepted, refused) = (self.progress.accepted, self.progress.refused);
        let report = Report {
            rows: accepted + refused,
            accepted,
            refused,
            resumed: accepted + refused,
            seconds: 0.0,
            rows_per_second: 0.0,
            done: true,
        };
        let checkpoint = self
            .checkpoint
            .as_ref()
            .map(|checkpoint| checkpoint.path().display().to_string())
            .unwrap_or_default();
        out.say(&format!(
            "all {} of {} were handed in already: {} accepted, {} refused\nto hand it in anew remove {checkpoint}; what was sent isn't sent again under the same send ids",
            text::several(report.rows, "row"),
            args.file.display(),
            text::count(accepted),
            text::count(refused),
        ))?;
        out.value(&report)?;
        Ok(report)
    }
}

/// How it ended, where nothing failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    All,
    Interrupted,
}

/// Batches on their way.
struct Flight<'a, Q> {
    queue: &'a Q,
    args: &'a EnqueueArgs,
    desk: &'a mut Desk,
    teller: &'a mut Teller,
    resumed: u64,
}

impl<Q: Queue> Flight<'_, Q> {
    /// Hands in all that comes. Whatever stops it, what is on its way is waited for and noted.
    async fn fly(self, mut from: Batches, out: &mut Output) -> Result<Ended, Error> {
        let (queue, args) = (self.queue, self.args);
        let mut flying = FuturesUnordered::new();
        let (mut bytes, mut read) = (0, 0);
        let mut next: Option<Batch> = None;
        // Why nothing more is begun.
        let mut stop: Option<Result<Ended, Error>> = None;
        let mut asked = false;
        let (mut signals, mut tick, mut to_disk) =
            (Signals::listen()?, interval(TICK), ToDisk::new());
        loop {
            if stop.is_none()
                && let Some(batch) = next.take_if(|batch| {
                    let room = bytes == 0 || bytes + batch.bytes() <= FLYING_BYTES;
                    room && flying.len() < usize::from(args.in_flight)
                })
            {
                read = batch.place.byte;
                bytes += batch.bytes();
                flying.push(async move {
                    let sent = sender::send(queue, &batch.entries, args.tries).await;
                    (batch, sent)
                });
            }
            if flying.is_empty()
                && let Some(stop) = stop
            {
                return stop;
            }
            let ahead = self.desk.progress.ahead() < MOST_AHEAD;
            tokio::select! {
                biased;
                () = signals.next() => {
                    if asked {
                        // Asked twice: what is on its way isn't waited for.
                        return Ok(Ended::Interrupted);
                    }
                    asked = true;
                    stop = stop.or(Some(Ok(Ended::Interrupted)));
                    out.remark(&format!("stops: waits for {} on their way", text::several(flying.len() as u64, "batch")))?;
                }
                batch = from.next(), if stop.is_none() && next.is_none() && ahead => match batch {
                    Some(Ok(batch)) => next = Some(batch),
                    Some(Err(broken)) => stop = Some(Err(of_file(args, &broken.to_string()))),
                    None => stop = Some(Ok(Ended::All)),
                },
                Some((batch, sent)) = flying.next() => {
                    bytes -= batch.bytes();
                    match sent.map(|never| self.desk.settle(batch, never)) {
                        Ok(Err(error)) => stop = Some(Err(of_files(args, &error))),
                        // The first error says what it was.
                        Err(error) if !matches!(stop, Some(Err(_))) => stop = Some(Err(error)),
                        Ok(Ok(())) | Err(_) => {}
                    }
                }
                _ = tick.tick() => {
                    let report = self.desk.report(self.teller, self.resumed, false);
                    self.teller.tell(&report, read, out)?;
                    to_disk.now_and_then(self.desk.checkpoint.as_ref());
                }
            }
        }
    }
}

/// Puts the checkpoint on the disk from time to time, on a thread that may wait for it.
struct ToDisk {
    last: Instant,
    under_way: Option<JoinHandle<()>>,
}

impl ToDisk {
    fn new() -> Self {
        Self {
            last: Instant::now(),
            under_way: None,
        }
    }

    fn now_and_then(&mut self, checkpoint: Option<&Checkpoint>) {
        let due = self.last.elapsed() >= TO_DISK;
        let idle = self.under_way.as_ref().is_none_or(JoinHandle::is_finished);
        if let (Some(checkpoint), true, true) = (checkpoint, due, idle) {
            let file: Arc<fs::File> = checkpoint.file();
            self.last = Instant::now();
            // If the disk fails, the end of it all says so.
            self.under_way = Some(spawn_blocking(move || drop(file.sync_data())));
        }
    }
}

/// Ctrl-C, and the end that a service manager wishes.
struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn listen() -> Result<Self, Error> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| {
            signal(kind).map_err(|error| Error::Other(format!("can't listen for signals: {error}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    #[cfg(not(unix))]
    const fn listen() -> Result<Self, Error> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        // Without it nothing but a kill stops it, which costs nothing but time.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// An error of the mail file.
fn of_file(args: &EnqueueArgs, what: &str) -> Error {
    Error::Other(format!("{}: {what}", args.file.display()))
}

/// An error of what is written beside it.
fn of_files(args: &EnqueueArgs, error: &io::Error) -> Error {
    Error::Other(format!(
        "can't write beside {}: {error}\n  do: see whether the disk is full, or give --checkpoint and --refused in another folder",
        args.file.display()
    ))
}

/// An error of the checkpoint.
fn unfit(path: &Path, error: &Unfit) -> Error {
    let shown = path.display();
    Error::Other(match error {
        Unfit::Io(error) => format!(
            "the checkpoint {shown} can't be used: {error}\n  do: give --checkpoint PATH where this user may write"
        ),
        Unfit::Locked => format!(
            "the checkpoint {shown} can't be used: {error}\n  do: wait for it, or stop it first"
        ),
        Unfit::Foreign => format!(
            "{shown} is no checkpoint, and isn't written over\n  do: remove it, or give --checkpoint PATH"
        ),
        Unfit::Other(why) => format!(
            "the checkpoint {shown} doesn't fit: {why}\n  do: restore the file and the options to go on; or give another --checkpoint, or remove it, to hand the file in from its beginning: rows with the send ids of before aren't sent twice"
        ),
    })
}
