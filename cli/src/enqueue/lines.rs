//! Lines of a file, one at a time, in bounded memory, with where each ends.

use std::io::{self, BufRead};

/// The longest line that is looked at, in bytes: a mail of the greatest size with every character of it quoted.
pub(super) const MOST: usize = 2 * 1_048_576 + 65_536;

/// Where in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Bytes before it.
    pub byte: u64,
    /// Lines before it.
    pub line: u64,
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A whole line, with its end; the last one may have none.
    Whole,
    /// More than [`MOST`]: its beginning. The rest of it is passed over.
    TooLong,
    /// Nothing is left.
    End,
}

/// Reads lines, and takes them back.
pub(super) struct Lines<R> {
    from: R,
    /// What was taken back: it comes first.
    again: Vec<u8>,
    /// How much of it was read.
    taken: usize,
    at: Place,
}

impl<R: BufRead> Lines<R> {
    /// Of what is read from `from`, which stands at `at`.
    pub(super) const fn new(from: R, at: Place) -> Self {
        Self {
            from,
            again: Vec::new(),
            taken: 0,
            at,
        }
    }

    /// Where the next line begins.
    pub(super) const fn at(&self) -> Place {
        self.at
    }

    /// Reads the next line onto the end of `to`, which gets [`MOST`] bytes more at most.
    pub(super) fn next(&mut self, to: &mut Vec<u8>) -> io::Result<Line> {
        let most = to.len() + MOST;
        let (mut any, mut long) = (false, false);
        loop {
            let back = self.taken < self.again.len();
            let chunk = if back {
                &self.again[self.taken..]
            } else {
                self.from.fill_buf()?
            };
            if chunk.is_empty() {
                break;
            }
            any = true;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(chunk.len(), |end| end + 1);
            let room = most - to.len();
            long |= length > room;
            to.extend_from_slice(&chunk[..length.min(room)]);
            if back {
                self.taken += length;
            } else {
                self.from.consume(length);
            }
            self.at.byte += length as u64;
            if end.is_some() {
                self.at.line += 1;
                break;
            }
        }
        Ok(match (any, long) {
            (false, _) => Line::End,
            (true, false) => Line::Whole,
            (true, true) => Line::TooLong,
        })
    }

    /// Takes back what was read last: whole lines, or all that there was.
    pub(super) fn back(&mut self, bytes: &[u8]) {
        let mut again = bytes.to_vec();
        again.extend_from_slice(&self.again[self.taken..]);
        self.again = again;
        self.taken = 0;
        self.at.byte -= bytes.len() as u64;
        self.at.line -= bytes
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.ends_with(b"\n"))
            .count() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<R: BufRead>(lines: &mut Lines<R>) -> (Line, String) {
        let mut to = Vec::new();
        let line = lines.next(&mut to).unwrap();
        (line, String::from_utf8(to).unwrap())
    }

    #[test]
    fn lines_know_where_they_are_and_can_be_taken_back() {
        // A buffer smaller than a line.
        let from = io::BufReader::with_capacity(2, &b"one\ntwo\n\nlast"[..]);
        let mut lines = Lines::new(from, Place::default());
        assert_eq!(line(&mut lines), (Line::Whole, "one\n".to_owned()));
        assert_eq!(lines.at(), Place { byte: 4, line: 1 });
        assert_eq!(line(&mut lines), (Line::Whole, "two\n".to_owned()));
        lines.back(b"two\n");
        assert_eq!(lines.at(), Place { byte: 4, line: 1 });
        lines.back(b"one\n");
        assert_eq!(line(&mut lines).1, "one\n");
        assert_eq!(line(&mut lines).1, "two\n");
        assert_eq!(line(&mut lines), (Line::Whole, "\n".to_owned()));
        assert_eq!(line(&mut lines), (Line::Whole, "last".to_owned()));
        assert_eq!(lines.at(), Place { byte: 13, line: 3 });
        assert_eq!(line(&mut lines), (Line::End, String::new()));
    }

    #[test]
    fn a_line_without_end_takes_no_more_memory_than_allowed() {
        let long = vec![b'x'; MOST + 100_000];
        let all = [long.as_slice(), b"\nnext\n"].concat();
        let mut lines = Lines::new(&all[..], Place::default());
        let mut to = Vec::new();
        assert_eq!(lines.next(&mut to).unwrap(), Line::TooLong);
        assert_eq!(to.len(), MOST);
        assert_eq!(lines.at().byte, long.len() as u64 + 1);
        assert_eq!(line(&mut lines), (Line::Whole, "next\n".to_owned()));
    }
}
