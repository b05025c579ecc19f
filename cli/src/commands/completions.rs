//! `sendslot completions`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{args::Args, error::Error, exit::Exit, output::Output};

pub(crate) fn completions(shell: Shell, out: &mut Output) -> Result<Exit, Error> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "sendslot", &mut script);
    out.raw(&script)?;
    Ok(Exit::Done)
}
