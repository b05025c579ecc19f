//! Hands every function random events, and checks what it does with them: no panic, no wrong pause, nothing lost, nothing twice.
//!
//! `fuzz [--inputs N] [--seed S] [--file F] [function…]`: so many events for each of the functions, or for all; or one event from a file. The
//! same seed makes the same events. An event that finds something is written to `out/fuzz/`, and the exit code is 1 then.
#![expect(clippy::print_stdout, reason = "the table is the point")]

mod given;
mod ledger;
mod mutate;
mod targets;
mod weather;

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Mutex,
    time::Instant,
};

use mutate::Mutator;
use rand::{SeedableRng, rngs::StdRng};
use weather::locked;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str = "fuzz [--inputs N] [--seed S] [--file F] [function…]";
/// The panics that nobody has looked at yet, wherever they happened: functions survive some of their own.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What the command line says.
struct Args {
    inputs: u64,
    seed: u64,
    file: Option<PathBuf>,
    functions: Vec<String>,
}

/// An event that shows a fault.
struct Finding {
    number: u64,
    input: String,
    told: String,
}

/// What came of a function's events.
struct Run {
    inputs: u64,
    seconds: f64,
    outcomes: BTreeMap<&'static str, u64>,
    finding: Option<Finding>,
}

fn main() -> Result<ExitCode> {
    let args = args(env::args().skip(1))?;
    panic::set_hook(Box::new(|panic| {
        let text = panic.payload_as_str().unwrap_or("a panic");
        let at = panic.location().map(ToString::to_string);
        locked(&PANICS).push(format!("{text} ({})", at.unwrap_or_default()));
    }));
    println!("seed {}", args.seed);
    println!(
        "{:<14} {:>9} {:>8} {:>9}  outcomes",
        "function", "inputs", "seconds", "inputs/s"
    );
    let mut found = false;
    for name in &args.functions {
        let run = fuzz(name, &args)?;
        print(name, &run);
        if let Some(finding) = run.finding {
            found = true;
            tell(name, &args, &finding)?;
        }
    }
    Ok(ExitCode::from(u8::from(found)))
}

fn args(mut words: impl Iterator<Item = String>) -> Result<Args> {
    let mut args = Args {
        inputs: 10_000,
        seed: 1,
        file: None,
        functions: Vec::new(),
    };
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .ok_or(format!("{word}: a value is missing: {USAGE}"))
        };
        match word.as_str() {
            "--inputs" => args.inputs = value()?.parse()?,
            "--seed" => args.seed = value()?.parse()?,
            "--file" => args.file = Some(value()?.into()),
            name if targets::ALL.contains(&name) => args.functions.push(word),
            _ => {
                let all = targets::ALL.join(", ");
                return Err(format!("{word:?} is none of {all}: {USAGE}").into());
            }
        }
    }
    if args.functions.is_empty() {
        args.functions = targets::ALL.map(str::to_owned).into();
    }
    Ok(args)
}

/// Hands a function its events: those of the corpus first, then changed ones, until one shows a fault.
fn fuzz(name: &str, args: &Args) -> Result<Run> {
    let corpus = match &args.file {
        Some(file) => vec![fs::read_to_string(file)?],
        None => corpus(name)?,
    };
    let inputs = if args.file.is_some() { 1 } else { args.inputs };
    let Some(mut target) = targets::named(name) else {
        return Err(format!("{name} is no function").into());
    };
    let mut mutator = Mutator::new(StdRng::seed_from_u64(args.seed));
    let mut run = Run {
        inputs: 0,
        seconds: 0.0,
        outcomes: BTreeMap::new(),
        finding: None,
    };
    let began = Instant::now();
    for number in 0..inputs {
        let unchanged = usize::try_from(number).ok().and_then(|n| corpus.get(n));
        let input = unchanged.cloned().unwrap_or_else(|| mutator.input(&corpus));
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| target.run(&input)));
        run.inputs += 1;
        let panics = std::mem::take(&mut *locked(&PANICS));
        match outcome {
            Ok(outcome) if panics.is_empty() => *run.outcomes.entry(outcome).or_default() += 1,
            _ => {
                let told = panics.join("; ");
                run.finding = Some(Finding {
                    number,
                    input,
                    told,
                });
                break;
            }
        }
    }
    run.seconds = began.elapsed().as_secs_f64();
    Ok(run)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A function's sample events, by name.
fn corpus(name: &str) -> Result<Vec<String>> {
    let folder = root().join("events").join(name);
    let paths = fs::read_dir(&folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    let mut texts: Vec<String> = paths
        .iter()
        .map(fs::read_to_string)
        .collect::<std::io::Result<_>>()?;
    if texts.is_empty() {
        return Err(format!("no events in {}", folder.display()).into());
    }
    let more: Vec<String> = texts
        .iter()
        .filter_map(|text| targets::made_of(name, text))
        .collect();
    texts.extend(more);
    Ok(texts)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn print(name: &str, run: &Run) {
    let Run {
        inputs, seconds, ..
    } = run;
    let rate = *inputs as f64 / seconds.max(0.001);
    let mut outcomes: Vec<_> = run.outcomes.iter().collect();
    outcomes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let outcomes: Vec<String> = outcomes
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    let outcomes = outcomes.join(", ");
    println!("{name:<14} {inputs:>9} {seconds:>8.1} {rate:>9.0}  {outcomes}");
}

/// Prints what was found, and keeps the event.
fn tell(name: &str, args: &Args, finding: &Finding) -> Result<()> {
    let Finding {
        number,
        input,
        told,
    } = finding;
    let folder = Path::new("out/fuzz");
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("{name}-{number}.json"));
    fs::write(&path, input)?;
    println!(
        "FOUND by {name} with input {number} of seed {}: {told}",
        args.seed
    );
    let short: String = input.chars().take(400).collect();
    println!("  the input is in {}, and begins: {short}", path.display());
    println!("  again: fuzz --file {} {name}", path.display());
    Ok(())
}
