//! Enough of SES v2 for the AWS SDK and CLI, with enforced limits and a record of every arrival.
//! `--help` is the manual.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use ses_simulator::account::ConfigurationSet;
use ses_simulator::args::{self, Args, Command};
use ses_simulator::record::Record;
use ses_simulator::{Simulator, serve};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// One thread is plenty for thousands of requests per second, and keeps arrivals in order.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell if standard error is closed.
            let _ = writeln!(io::stderr(), "ses-simulator: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    match args::parse(env::args().skip(1))? {
        Command::Help => write!(io::stdout(), "{}", args::HELP)?,
        Command::Version => writeln!(io::stdout(), "{}", env!("CARGO_PKG_VERSION"))?,
        Command::Serve(args) => start(args).await?,
    }
    Ok(())
}

async fn start(args: Args) -> Result<(), Box<dyn Error>> {
    let record = match &args.record {
        Some(path) => Record::in_file(path)
            .map_err(|error| format!("failed to open record {}: {error}", path.display()))?,
        None => Record::default(),
    };
    let simulator = Simulator::new(args.settings, record);
    let sending = ConfigurationSet {
        sending_enabled: true,
    };
    for name in &args.configuration_sets {
        simulator
            .account(|account, _| account.create_set(name, sending))
            .map_err(|error| format!("configuration set {name:?}: {}", error.message))?;
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let listener = TcpListener::bind(&args.listen)
        .await
        .map_err(|error| format!("failed to listen on {}: {error}", args.listen))?;
    writeln!(
        io::stdout(),
        "listening on http://{}",
        listener.local_addr()?
    )?;
    serve(listener, simulator, async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
    .await?;
    Ok(())
}
