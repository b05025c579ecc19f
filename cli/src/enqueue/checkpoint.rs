//! What was handed in, in a file that is only ever added to.
//!
//! The first line ties it to the mail file: its size, a digest of parts of it, and the options that matter. Each batch that
//! the queue took adds, in one write, a line for each of its refused rows and then its own:
//!
//! ```text
//! r <line> <code> <message>
//! b <first row> <row after its last> <accepted> <where it ends: bytes> <lines>
//! d <rows> <accepted> <refused>
//! ```
//!
//! Whatever follows the last whole `b` was being written when the process died: those rows are read again. `d` is the last
//! line, once all is done. Batches end in any order, a bounded distance apart.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{File, OpenOptions, TryLockError},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{lines::Place, rows::Refused};

/// How many parts of the file the digest is of, and how many bytes of each: beginning and end, and between.
const PARTS: u64 = 32;
const PART: u64 = 4096;

/// How every checkpoint begins.
const BEGINS: &str = "{\"sendslot_enqueue\":";

/// The first line: what the rest belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// The version of this form.
    pub sendslot_enqueue: u32,
    /// The file's size.
    pub bytes: u64,
    /// Of parts of the file.
    pub digest: String,
    /// The options that make other mail of the same file, by name. An address among them is a digest.
    pub options: BTreeMap<String, String>,
}

impl Header {
    /// Of this file.
    pub(super) fn of(file: &Path, options: BTreeMap<String, String>) -> io::Result<Self> {
        let mut file = File::open(file)?;
        let bytes = file.metadata()?.len();
        let mut digest = Sha256::new();
        let mut part = Vec::new();
        let last = bytes.saturating_sub(PART);
        for at in 0..=PARTS {
            file.seek(SeekFrom::Start(
                last / PARTS * at + last % PARTS * at / PARTS,
            ))?;
            part.clear();
            (&file).take(PART).read_to_end(&mut part)?;
            digest.update(&part);
        }
        Ok(Self {
            sendslot_enqueue: 1,
            bytes,
            digest: hex(&digest.finalize()),
            options,
        })
    }

    /// What is different in the other, in words for whoever started it.
    fn differs(&self, other: &Self) -> Option<String> {
        if self.sendslot_enqueue != other.sendslot_enqueue {
            return Some("it was written by another version of this command".to_owned());
        }
        if (self.bytes, &self.digest) != (other.bytes, &other.digest) {
            return Some("the file has changed since".to_owned());
        }
        let names = self.options.keys().chain(other.options.keys());
        let name = names
            .into_iter()
            .find(|name| self.options.get(*name) != other.options.get(*name))?;
        let way = if name == "queue" {
            "another queue".to_owned()
        } else {
            format!("another --{name}")
        };
        Some(format!("it was begun with {way}"))
    }
}

/// A digest of a text that isn't written down.
pub(super) fn digest(text: &str) -> String {
    hex(&Sha256::digest(text)[..8])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Rows that are settled: all below `next`, and some ranges beyond it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// The first row that isn't.
    pub next: u64,
    /// Where in the file that row begins.
    pub place: Place,
    /// What is settled beyond, in order.
    beyond: Vec<Range<u64>>,
}

impl Done {
    /// Whether this row is settled.
    pub(super) fn holds(&self, row: u64) -> bool {
        let after = self.beyond.partition_point(|range| range.end <= row);
        row < self.next
            || self
                .beyond
                .get(after)
                .is_some_and(|range| range.contains(&row))
    }
}

/// A batch that is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    pub rows: Range<u64>,
    pub accepted: u64,
    pub place: Place,
    pub refused: Vec<Refused>,
}

/// How far it has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    next: u64,
    place: Place,
    /// Settled, but not all before them, by their first row.
    beyond: BTreeMap<u64, Settled>,
    /// Rows that the queue took.
    pub accepted: u64,
    /// Rows that were refused.
    pub refused: u64,
    /// Whether all is done.
    pub done: bool,
}

impl Progress {
    /// Settles a batch; answers the refused rows of all that are settled in a row now, in the file's order.
    pub(super) fn settle(&mut self, settled: Settled) -> Vec<Refused> {
        self.accepted += settled.accepted;
        self.refused += settled.refused.len() as u64;
        self.beyond.insert(settled.rows.start, settled);
        let mut refused = Vec::new();
        while let Some(first) = self
            .beyond
            .first_entry()
            .filter(|first| *first.key() <= self.next)
        {
            let settled = first.remove();
            self.next = self.next.max(settled.rows.end);
            self.place = settled.place;
            refused.extend(settled.refused);
        }
        refused
    }

    /// The refused rows of what is settled beyond, in order: for when no more comes.
    pub(super) fn rest(&self) -> impl Iterator<Item = &Refused> {
        self.beyond.values().flat_map(|settled| &settled.refused)
    }

    /// How many batches are settled before one that isn't.
    pub(super) fn ahead(&self) -> usize {
        self.beyond.len()
    }

    /// Where the first row stands that isn't settled.
    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// The same, for whoever reads the file.
    pub(super) fn settled(&self) -> Done {
        Done {
            next: self.next,
            place: self.place,
            beyond: self
                .beyond
                .values()
                .map(|settled| settled.rows.clone())
                .collect(),
        }
    }
}

/// Why there is no checkpoint to go on from.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfit {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("another process is handing in the same file")]
    Locked,
    #[error("its first line is no checkpoint's")]
    Foreign,
    #[error("{0}")]
    Other(String),
}

/// The file.
#[derive(Debug)]
pub(super) struct Checkpoint {
    path: PathBuf,
    file: Arc<File>,
}

impl Checkpoint {
    /// Opens it, or makes it; `settled` gets the refused rows of before, in the file's order.
    pub(super) fn open(
        path: &Path,
        header: &Header,
        mut refused: impl FnMut(&Refused) -> io::Result<()>,
    ) -> Result<(Self, Progress), Unfit> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Unfit::Locked,
            TryLockError::Error(error) => Unfit::Io(error),
        })?;
        let mut progress = Progress::default();
        let end = replay(&file, header, &mut progress, &mut refused)?;
        if end < file.metadata()?.len() {
            // Torn when the process died.
            file.set_len(end)?;
        }
        let it = Self {
            path: path.to_owned(),
            file: Arc::new(file),
        };
        if end == 0 {
            let line = serde_json::to_string(header).map_err(io::Error::from)?;
            it.append(&format!("{line}\n"))?;
            it.file.sync_data()?;
        }
        Ok((it, progress))
    }

    /// Adds a batch.
    pub(super) fn settle(&self, settled: &Settled) -> io::Result<()> {
        let mut text = String::new();
        for Refused {
            line,
            code,
            message,
        } in &settled.refused
        {
            let _ = writeln!(text, "r {line} {code} {message}");
        }
        let Settled {
            rows,
            accepted,
            place,
            ..
        } = settled;
        let (start, end, Place { byte, line }) = (rows.start, rows.end, place);
        let _ = writeln!(text, "b {start} {end} {accepted} {byte} {line}");
        self.append(&text)
    }

    /// Adds that all is done.
    pub(super) fn finish(&self, progress: &Progress) -> io::Result<()> {
        let Progress {
            next,
            accepted,
            refused,
            ..
        } = progress;
        self.append(&format!("d {next} {accepted} {refused}\n"))?;
        self.file.sync_data()
    }

    /// What puts it on the disk: what was added survives the machine then, not only the process.
    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn append(&self, text: &str) -> io::Result<()> {
        // In one call, so that a process that dies tears one line at most.
        (&*self.file).write_all(text.as_bytes())
    }
}

/// Reads what is there; answers where its last whole entry ends.
fn replay(
    file: &File,
    header: &Header,
    progress: &mut Progress,
    refused: &mut impl FnMut(&Refused) -> io::Result<()>,
) -> Result<u64, Unfit> {
    let mut from = BufReader::new(file);
    let mut line = String::new();
    from.read_line(&mut line)?;
    if !line.ends_with('\n') {
        // Empty, or it died with its first line; anything else isn't ours to write over.
        let ours = line.starts_with(BEGINS) || BEGINS.starts_with(&line);
        return if ours { Ok(0) } else { Err(Unfit::Foreign) };
    }
    let before: Header = serde_json::from_str(&line).map_err(|_| Unfit::Foreign)?;
    if let Some(why) = before.differs(header) {
        return Err(Unfit::Other(why));
    }
    let (mut at, mut end) = (line.len() as u64, line.len() as u64);
    let mut pending = Vec::new();
    loop {
        line.clear();
        // A torn line may end within a character.
        let mut bytes = std::mem::take(&mut line).into_bytes();
        from.read_until(b'\n', &mut bytes)?;
        let Some(text) = bytes.strip_suffix(b"\n") else {
            return Ok(end);
        };
        at += bytes.len() as u64;
        let text = str::from_utf8(text).unwrap_or_default();
        match entry(text) {
            Some(Line::Refused(one)) => pending.push(one),
            Some(Line::Batch(mut settled)) => {
                settled.refused = std::mem::take(&mut pending);
                for one in progress.settle(settled) {
                    refused(&one)?;
                }
                end = at;
            }
            Some(Line::Done) => {
                progress.done = true;
                end = at;
            }
            // As after a machine that lost power: what follows is of no use.
            None => return Ok(end),
        }
        bytes.clear();
        line = String::from_utf8(bytes).unwrap_or_default();
    }
}

enum Line {
    Refused(Refused),
    Batch(Settled),
    Done,
}

fn entry(text: &str) -> Option<Line> {
    let (kind, rest) = text.split_once(' ')?;
    match kind {
        "r" => {
            let mut words = rest.splitn(3, ' ');
            Some(Line::Refused(Refused {
                line: words.next()?.parse().ok()?,
                code: words.next()?.to_owned(),
                message: words.next()?.to_owned(),
            }))
        }
        "b" => {
            let numbers: Result<Vec<u64>, _> = rest.split(' ').map(str::parse).collect();
            let [first, end, accepted, byte, line] = numbers.ok()?.try_into().ok()?;
            Some(Line::Batch(Settled {
                rows: first..end,
                accepted,
                place: Place { byte, line },
                refused: Vec::new(),
            }))
        }
        "d" => Some(Line::Done),
        _ => None,
    }
}
