//! How a command ended, for the shell.

use std::process::ExitCode;

/// How a command ended. Errors are [`crate::error::Error`], which has exit codes, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: it is done.
    Done,
    /// 3: what was looked for isn't there.
    Nothing,
    /// 4: it is done in part: rows were refused, or mail was left.
    Partly,
    /// 130: it was interrupted.
    Interrupted,
}

impl Exit {
    /// The number.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Nothing => 3,
            Self::Partly => 4,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
