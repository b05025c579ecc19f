//! What is written, and where: results to standard output, and all else to standard error.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::error::Error;

/// Where results and remarks go. With `--json`, standard output has JSON and nothing else.
pub struct Output {
    json: bool,
    terminal: bool,
    results: Box<dyn Write + Send>,
    remarks: Box<dyn Write + Send>,
}

impl Output {
    /// Standard output and standard error.
    #[must_use]
    pub fn standard(json: bool) -> Self {
        Self {
            json,
            terminal: io::stdout().is_terminal(),
            results: Box::new(io::stdout()),
            remarks: Box::new(io::stderr()),
        }
    }

    /// Elsewhere, which is no terminal: for tests.
    #[must_use]
    pub fn to(
        json: bool,
        results: impl Write + Send + 'static,
        remarks: impl Write + Send + 'static,
    ) -> Self {
        Self {
            json,
            terminal: false,
            results: Box::new(results),
            remarks: Box::new(remarks),
        }
    }

    /// Whether results are JSON.
    #[must_use]
    pub const fn json(&self) -> bool {
        self.json
    }

    /// Whether results go to a terminal.
    #[must_use]
    pub const fn terminal(&self) -> bool {
        self.terminal
    }

    /// A result for people, a line or more: to standard output, or with `--json` to standard error.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn say(&mut self, text: &str) -> Result<(), Error> {
        let to = if self.json {
            &mut self.remarks
        } else {
            &mut self.results
        };
        writeln!(to, "{text}")
            .and_then(|()| to.flush())
            .map_err(Error::Output)
    }

    /// A remark for people, a line or more: to standard error.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn remark(&mut self, text: &str) -> Result<(), Error> {
        writeln!(self.remarks, "{text}").map_err(Error::Output)
    }

    /// A result for programs, on a line of its own: nothing without `--json`.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn value(&mut self, value: &impl Serialize) -> Result<(), Error> {
        if !self.json {
            return Ok(());
        }
        serde_json::to_writer(&mut self.results, value)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(self.results))
            .and_then(|()| self.results.flush())
            .map_err(Error::Output)
    }

    /// Text as it is to standard output, whatever was asked for.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.results
            .write_all(bytes)
            .and_then(|()| self.results.flush())
            .map_err(Error::Output)
    }
}
