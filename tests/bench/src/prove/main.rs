//! Proves the schedule's figures in simulated time: hours of mail in seconds, by the pure model, and by the scripts on a
//! private server where that is said. Prints a table of what was asked and what was seen, writes `out/prove.json`, and fails
//! if a figure falls short.
//!
//! With `quick` there is less mail: for tests.
#![expect(clippy::print_stdout, reason = "the table is the point")]

mod cases;
mod desk;
mod world;

use std::{error::Error, fs, path::Path, process::ExitCode};

use serde_json::{Value as Json, json};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// One figure.
struct Figure {
    what: String,
    asked: String,
    seen: String,
    holds: bool,
}

fn main() -> Result<ExitCode> {
    let quick = std::env::args().any(|argument| argument == "quick");
    let mut figures = Vec::new();
    let mut show = |figure: Figure| {
        println!(
            "{:<6}{}\n      asked {}; seen {}",
            if figure.holds { "ok" } else { "FAILS" },
            figure.what,
            figure.asked,
            figure.seen,
        );
        figures.push(figure);
    };
    cases::all(quick, &mut show)?;
    let held = figures.iter().all(|figure| figure.holds);
    let rows = figures.iter().map(|figure| {
        json!({
            "what": figure.what,
            "asked": figure.asked,
            "seen": figure.seen,
            "holds": figure.holds,
        })
    });
    fs::create_dir_all("out")?;
    fs::write(
        Path::new("out/prove.json"),
        serde_json::to_string_pretty(&Json::Array(rows.collect()))? + "\n",
    )?;
    println!("written to out/prove.json");
    Ok(if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
