//! Reads the file and cuts it into batches, on a thread of its own: checking rows takes about as long as handing them in.

use std::{
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    path::Path,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
};

use sendslot_domain::{Lane, Moment};
use sendslot_runtime::queue::{MAX_BYTES, MAX_ENTRIES};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::{
    checkpoint::Done,
    csv::{Read, Records},
    lines::{Line, Lines, Place},
    rows::{Columns, Defaults, Entry, Format, Refused, check, fill},
};

/// How many batches are made ahead of what is on its way, so that neither side waits for the other's pauses.
const AHEAD: usize = 64;
/// How many bytes they have at most, but for one batch.
const AHEAD_BYTES: usize = 4 * 1_048_576;
/// How many refused rows one batch covers at most, so that it stays small whatever the file holds.
const MOST_REFUSED: usize = 200;
/// How much of the file is read at once, in bytes.
const BUFFER: usize = 256 * 1024;

/// Some rows of the file, one after the other: those that may leave, and those that may not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// The first of its rows, from 0.
    pub first: u64,
    /// The row after its last.
    pub end: u64,
    /// Where in the file it ends.
    pub place: Place,
    /// What goes to the queue.
    pub entries: Vec<Entry>,
    /// What doesn't.
    pub refused: Vec<Refused>,
}

impl Batch {
    /// Bytes of all bodies.
    pub(super) fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.body.len()).sum()
    }
}

/// Why the file can't be read on.
#[derive(Debug)]
pub(super) enum Broken {
    Io(io::Error),
    /// The columns can't be.
    Columns(String),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "can't read it: {error}"),
            Self::Columns(why) => f.write_str(why),
        }
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What is made ahead, in bytes.
#[derive(Clone, Default)]
struct Room(Arc<(Mutex<usize>, Condvar)>);

impl Room {
    /// Waits until there is room, and takes so much of it.
    fn take(&self, bytes: usize) {
        let (taken, freed) = &*self.0;
        let taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = freed.wait_while(taken, |taken| *taken > AHEAD_BYTES);
        *wait.unwrap_or_else(PoisonError::into_inner) += bytes;
    }

    fn free(&self, bytes: usize) {
        let (taken, freed) = &*self.0;
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        *taken = taken.saturating_sub(bytes);
        freed.notify_one();
    }
}

/// The batches, in the file's order.
pub(super) struct Batches {
    from: Receiver<Result<Batch, Broken>>,
    room: Room,
}

impl Batches {
    /// The next one, or why there is none; nothing at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Batch, Broken>> {
        let batch = self.from.recv().await;
        if let Some(Ok(batch)) = &batch {
            self.room.free(batch.bytes());
        }
        batch
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        // Whoever waits for room is to see that nobody receives any more.
        self.from.close();
        self.room.free(usize::MAX);
    }
}

/// Where batches go.
struct Outlet {
    to: Sender<Result<Batch, Broken>>,
    room: Room,
}

/// What is read, and how.
pub(super) struct Source<C> {
    pub format: Format,
    pub lane: Lane,
    pub defaults: Defaults,
    /// The time, by which a row's expiry is judged.
    pub clock: C,
    /// What was handed in before.
    pub done: Done,
}

/// Reads the file, or standard input without one, on a thread of its own. The thread ends when nobody receives any more.
pub(super) fn read<C>(file: Option<&Path>, source: Source<C>) -> io::Result<Batches>
where
    C: Fn() -> Moment + Send + 'static,
{
    let file = file.map(File::open).transpose()?;
    let (to, from) = channel(AHEAD);
    let room = Room::default();
    let to = Outlet {
        to,
        room: room.clone(),
    };
    thread::Builder::new()
        .name("rows".to_owned())
        .spawn(move || {
            let place = source.done.place;
            let ended = match file {
                None => cut(
                    Lines::new(
                        BufReader::with_capacity(BUFFER, io::stdin()),
                        Place::default(),
                    ),
                    source,
                    &to,
                ),
                Some(file) => with_file(file, place, source, &to),
            };
            if let Err(broken) = ended {
                // Nobody to tell, if they are gone.
                let _ = to.to.blocking_send(Err(broken));
            }
        })?;
    Ok(Batches { from, room })
}

fn with_file<C: Fn() -> Moment>(
    mut file: File,
    place: Place,
    mut source: Source<C>,
    to: &Outlet,
) -> Result<(), Broken> {
    if source.format == Format::Csv && place.byte > 0 {
        // The names of the columns stand at the beginning.
        let mut lines = Lines::new(BufReader::with_capacity(BUFFER, &file), Place::default());
        let columns = columns(&mut lines, &source.defaults)?;
        file.seek(SeekFrom::Start(place.byte))?;
        let lines = Lines::new(BufReader::with_capacity(BUFFER, file), place);
        return Cutter::new(&mut source, to).csv(lines, columns);
    }
    file.seek(SeekFrom::Start(place.byte))?;
    cut(
        Lines::new(BufReader::with_capacity(BUFFER, file), place),
        source,
        to,
    )
}

fn cut<R: BufRead, C: Fn() -> Moment>(
    mut lines: Lines<R>,
    mut source: Source<C>,
    to: &Outlet,
) -> Result<(), Broken> {
    match source.format {
        Format::Jsonl => Cutter::new(&mut source, to).jsonl(lines),
        Format::Csv => {
            let columns = columns(&mut lines, &source.defaults)?;
            Cutter::new(&mut source, to).csv(lines, columns)
        }
    }
}

fn columns<R: BufRead>(lines: &mut Lines<R>, defaults: &Defaults) -> Result<Columns, Broken> {
    let mut records = Records::new();
    let names = match records.next(lines)? {
        Read::Record => records
            .fields()
            .ok_or("the names of the columns aren't UTF-8: save the file as UTF-8"),
        Read::Bad(why) => Err(why),
        Read::End => Err("it is empty: the first line has the names of the columns"),
    };
    let names = names.map_err(|why| Broken::Columns(format!("line 1: {why}")))?;
    Columns::read(&names, defaults).map_err(|why| Broken::Columns(format!("line 1: {why}")))
}

/// Makes batches of rows.
struct Cutter<'a, C> {
    source: &'a mut Source<C>,
    to: &'a Outlet,
    batch: Batch,
    bytes: usize,
}

/// Nobody wants more.
struct Gone;

impl<'a, C: Fn() -> Moment> Cutter<'a, C> {
    fn new(source: &'a mut Source<C>, to: &'a Outlet) -> Self {
        let batch = Batch {
            first: source.done.next,
            end: source.done.next,
            place: source.done.place,
            ..Batch::default()
        };
        Self {
            source,
            to,
            batch,
            bytes: 0,
        }
    }

    fn jsonl<R: BufRead>(mut self, mut lines: Lines<R>) -> Result<(), Broken> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let line = lines.at().line + 1;
            let read = lines.next(&mut bytes)?;
            if read == Line::End {
                break;
            }
            let known = bytes.trim_ascii();
            if known.is_empty() {
                continue;
            }
            let row = if self.skips() {
                None
            } else if read == Line::TooLong {
                Some(Err(refused(
                    line,
                    "too_large",
                    "longer than a mail can be: leave it out or make it smaller",
                )))
            } else {
                let known = if line == 1 {
                    known.strip_prefix(b"\xef\xbb\xbf").unwrap_or(known)
                } else {
                    known
                };
                Some(
                    str::from_utf8(known)
                        .map_err(|_| refused(line, "not_utf8", "no UTF-8: write it as UTF-8"))
                        .and_then(|text| {
                            let body = fill(text, line, &self.source.defaults);
                            check(line, body, self.source.lane, (self.source.clock)())
                        }),
                )
            };
            if self.take(row, lines.at()).is_err() {
                return Ok(());
            }
        }
        let _ = self.hand_over();
        Ok(())
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "it reads the file to its end"
    )]
    fn csv<R: BufRead>(mut self, mut lines: Lines<R>, columns: Columns) -> Result<(), Broken> {
        let mut records = Records::new();
        loop {
            let line = lines.at().line + 1;
            let read = records.next(&mut lines)?;
            if read == Read::End {
                break;
            }
            let line = line + records.empty_before();
            let row = if self.skips() {
                None
            } else {
                Some(self.record(&records, read, line, &columns))
            };
            if self.take(row, lines.at()).is_err() {
                return Ok(());
            }
        }
        let _ = self.hand_over();
        Ok(())
    }

    fn record(
        &self,
        records: &Records,
        read: Read,
        line: u64,
        columns: &Columns,
    ) -> Result<Entry, Refused> {
        if let Read::Bad(why) = read {
            return Err(refused(line, "malformed_csv", why));
        }
        let (has, wants) = (records.len(), columns.len());
        if has != wants {
            let why = format!(
                "{has} fields, but there are {wants} columns: put fields with commas in quotes, and leave none out"
            );
            return Err(refused(line, "malformed_csv", &why));
        }
        let cells = records
            .fields()
            .ok_or_else(|| refused(line, "not_utf8", "no UTF-8: write it as UTF-8"))?;
        let body = columns.request(line, &cells);
        check(line, body.into(), self.source.lane, (self.source.clock)())
    }

    /// Whether the next row was handed in before.
    fn skips(&self) -> bool {
        self.source.done.holds(self.batch.end)
    }

    /// Takes a row, or nothing of one that was handed in before.
    fn take(&mut self, row: Option<Result<Entry, Refused>>, place: Place) -> Result<(), Gone> {
        let Some(row) = row else {
            self.hand_over()?;
            self.batch.end += 1;
            self.batch.first = self.batch.end;
            self.batch.place = place;
            return Ok(());
        };
        match row {
            Ok(entry) => {
                if self.bytes + entry.body.len() > MAX_BYTES {
                    self.hand_over()?;
                }
                self.bytes += entry.body.len();
                self.batch.entries.push(entry);
            }
            Err(refused) => self.batch.refused.push(refused),
        }
        self.batch.end += 1;
        self.batch.place = place;
        if self.batch.entries.len() == MAX_ENTRIES || self.batch.refused.len() == MOST_REFUSED {
            self.hand_over()?;
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<(), Gone> {
        if self.batch.first == self.batch.end {
            return Ok(());
        }
        let next = Batch {
            first: self.batch.end,
            end: self.batch.end,
            place: self.batch.place,
            ..Batch::default()
        };
        self.bytes = 0;
        let batch = std::mem::replace(&mut self.batch, next);
        self.to.room.take(batch.bytes());
        self.to.to.blocking_send(Ok(batch)).map_err(|_| Gone)
    }
}

fn refused(line: u64, code: &str, message: &str) -> Refused {
    Refused {
        line,
        code: code.to_owned(),
        message: message.to_owned(),
    }
}
