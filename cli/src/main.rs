//! Wires the command to the shell.

use std::{io, process::ExitCode};

use clap::Parser;
use sendslot::{args::Args, commands, error::Error, output::Output};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    let mut out = Output::standard(args.global.json);
    // On the heap, as the SDK's calls are large.
    match Box::pin(commands::run(&args, &mut out)).await {
        Ok(exit) => exit.into(),
        // Whoever reads has seen enough, as `| head` does.
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell if these can't be written either.
            let _ = out.value(&error.value());
            let _ = out.remark(&error.text());
            ExitCode::from(error.exit())
        }
    }
}
