//! Records of CSV, read strictly: what a lenient reader makes of bad quoting would go out as mail.
//!
//! As RFC 4180 has it: commas, a field in quotes or without any, a quote within quotes doubled, lines that end in LF or
//! CRLF. Where the quoting is wrong only the first line of the record is given up, and reading goes on with the next
//! line: a quote too many takes no row with it but its own.

use std::io::{self, BufRead};

use super::lines::{Line, Lines, MOST};

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A record.
    Record,
    /// A line that is none, and why.
    Bad(&'static str),
    /// Nothing is left.
    End,
}

const STRAY: &str = "a quote within a field that doesn't begin with one: put the field in quotes, and double those in it";
const AFTER: &str = "more after a field's closing quote: double the quotes within a field";
const OPEN: &str = "a field's closing quote is missing";
const LONG: &str = "longer than a mail can be";

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a field.
    Start,
    Plain,
    Quoted,
    /// After a quote within quotes.
    Quote,
}

/// One record after the other, in the same memory.
pub(super) struct Records {
    /// The record as it stands in the file.
    raw: Vec<u8>,
    /// Its fields, one after the other.
    values: Vec<u8>,
    /// Where in them each ends.
    ends: Vec<usize>,
    /// Empty lines that were passed over before it.
    empty: u64,
}

impl Records {
    pub(super) const fn new() -> Self {
        Self {
            raw: Vec::new(),
            values: Vec::new(),
            ends: Vec::new(),
            empty: 0,
        }
    }

    /// Reads the next record; lines with nothing on them are passed over.
    pub(super) fn next<R: BufRead>(&mut self, lines: &mut Lines<R>) -> io::Result<Read> {
        self.empty = 0;
        loop {
            let read = self.one(lines)?;
            if read != Read::Record || self.ends.len() > 1 || !self.values.is_empty() {
                return Ok(read);
            }
            // One empty field: an empty line, unless it was quoted.
            if self.raw.first() == Some(&b'"') {
                return Ok(read);
            }
            self.empty += 1;
        }
    }

    /// How many empty lines were passed over before the record.
    pub(super) const fn empty_before(&self) -> u64 {
        self.empty
    }

    /// How many fields there are.
    pub(super) const fn len(&self) -> usize {
        self.ends.len()
    }

    /// The fields in order; none if one of them isn't UTF-8.
    pub(super) fn fields(&self) -> Option<Vec<&str>> {
        let mut start = 0;
        let fields = self.ends.iter().map(|&end| {
            let field = str::from_utf8(&self.values[start..end]).ok();
            start = end;
            field
        });
        fields.collect()
    }

    fn one<R: BufRead>(&mut self, lines: &mut Lines<R>) -> io::Result<Read> {
        self.raw.clear();
        self.values.clear();
        self.ends.clear();
        let (mut state, mut first) = (State::Start, None);
        loop {
            let from = self.raw.len();
            if from > MOST {
                lines.back(&self.raw[first.unwrap_or(from)..]);
                return Ok(Read::Bad(OPEN));
            }
            let line = lines.next(&mut self.raw)?;
            let first = *first.get_or_insert(self.raw.len());
            let bad = match line {
                Line::End if from == 0 => return Ok(Read::End),
                Line::End => Some(OPEN),
                // What was passed over can't be taken back.
                Line::TooLong => return Ok(Read::Bad(LONG)),
                Line::Whole => match self.go_on(from, &mut state) {
                    Ok(true) => return Ok(Read::Record),
                    Ok(false) => None,
                    Err(why) => Some(why),
                },
            };
            if let Some(why) = bad {
                lines.back(&self.raw[first..]);
                return Ok(Read::Bad(why));
            }
        }
    }

    /// Reads on from there: whether the record has ended.
    fn go_on(&mut self, from: usize, state: &mut State) -> Result<bool, &'static str> {
        let mut at = from;
        while at < self.raw.len() {
            let byte = self.raw[at];
            let last = at + 1 == self.raw.len();
            let ends_line = byte == b'\n' || byte == b'\r' && (last || self.raw[at + 1] == b'\n');
            *state = match (*state, byte) {
                (State::Quoted, b'"') => State::Quote,
                (State::Start, b'"') => State::Quoted,
                (State::Quote, b'"') => {
                    self.values.push(b'"');
                    State::Quoted
                }
                (State::Plain, b'"') => return Err(STRAY),
                (State::Start | State::Plain | State::Quote, _) if ends_line => {
                    self.ends.push(self.values.len());
                    return Ok(true);
                }
                (State::Start | State::Plain | State::Quote, b',') => {
                    self.ends.push(self.values.len());
                    State::Start
                }
                (State::Quote, _) => return Err(AFTER),
                (State::Quoted, _) => {
                    self.values.push(byte);
                    State::Quoted
                }
                (State::Start | State::Plain, _) => {
                    self.values.push(byte);
                    State::Plain
                }
            };
            at += 1;
        }
        if *state == State::Quoted {
            return Ok(false);
        }
        // The file's last line, without an end.
        self.ends.push(self.values.len());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::lines::Place, *};

    /// All records and what was bad, each with the line that it began on.
    fn read(text: &[u8]) -> Vec<(u64, Result<Vec<String>, &'static str>)> {
        let mut lines = Lines::new(io::BufReader::with_capacity(3, text), Place::default());
        let (mut records, mut all) = (Records::new(), Vec::new());
        loop {
            let line = lines.at().line + 1;
            match records.next(&mut lines).unwrap() {
                Read::End => return all,
                Read::Bad(why) => all.push((line, Err(why))),
                Read::Record => {
                    let fields = records.fields().expect("UTF-8");
                    all.push((line, Ok(fields.into_iter().map(str::to_owned).collect())));
                }
            }
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "beside errors")]
    fn ok(fields: &[&str]) -> Result<Vec<String>, &'static str> {
        Ok(fields.iter().map(|&field| field.to_owned()).collect())
    }

    #[test]
    fn records_are_read() {
        let text = b"a,b\r\n\"x, \"\"y\"\"\n2\",\n1,\"\"\nlast,line";
        let expected = vec![
            (1, ok(&["a", "b"])),
            (2, ok(&["x, \"y\"\n2", ""])),
            (4, ok(&["1", ""])),
            (5, ok(&["last", "line"])),
        ];
        assert_eq!(read(text), expected);
    }

    #[test]
    fn a_bad_record_takes_no_other_with_it() {
        let text = b"a,\"open\n1,2\nx\"y,3\n\"q\"z,4\n5,6\n";
        let expected = vec![
            (1, Err(AFTER)), // its quote closes in line 3, where more follows
            (2, ok(&["1", "2"])),
            (3, Err(STRAY)),
            (4, Err(AFTER)),
            (5, ok(&["5", "6"])),
        ];
        assert_eq!(read(text), expected);
        assert_eq!(
            read(b"\"open\n1,2\n"),
            vec![(1, Err(OPEN)), (2, ok(&["1", "2"]))]
        );
    }

    #[test]
    fn a_quote_that_never_closes_takes_neither_rows_nor_memory() {
        let row = format!("{},1\n", "x".repeat(10_000));
        let text = format!("a,\"open\n{}", row.repeat(500));
        let all = read(text.as_bytes());
        assert_eq!(all[0], (1, Err(OPEN)));
        assert_eq!(all.len(), 501);
        assert!(all[1..].iter().all(|(_, record)| record.is_ok()));
        assert_eq!(all[500].0, 501);
    }

    #[test]
    fn what_another_writer_writes_is_read_back() {
        let rows = [
            vec!["", "a b", "\"", "\"\"", ",", "\n", "\r\n", "ü,\"x\"\ny"],
            vec!["1", "", "", "", "", "", "", ""],
            vec![" lead", "trail ", "'", ";", "\t", "a\nb\nc", "\"a\"", "z"],
        ];
        for end in [csv::Terminator::CRLF, csv::Terminator::Any(b'\n')] {
            let mut writer = csv::WriterBuilder::new()
                .terminator(end)
                .from_writer(Vec::new());
            for row in &rows {
                writer.write_record(row).unwrap();
            }
            let text = writer.into_inner().unwrap();
            let read: Vec<_> = read(&text)
                .into_iter()
                .map(|(_, record)| record.unwrap())
                .collect();
            assert_eq!(read, rows);
        }
    }
}
