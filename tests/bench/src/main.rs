//! Measures `book.lua` against a bare cursor script: both on one private server, in turns, in one run, so
//! that what the machine does meanwhile hits both alike. Prints a table and writes `out/bench.json`.
//!
//! - **plain**: calls a second on eight plain connections, each waiting for its answer.
//! - **server**: what the server says it spent in a call (`INFO commandstats`).
//! - **flat**: commands, cells read and server time for one booking behind a backlog of 0, 10,000 and
//!   1,000,000, with no booking horizon.
#![expect(clippy::print_stdout, reason = "the table is the point")]

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use redis::{Connection, Script, Value};
use sendslot_domain::{Budget, Millis, budget::Settings};
use sendslot_schedule::{
    Keys, Schedule, Seed,
    testing::{PrivateServer, book_script},
};
use serde_json::{Value as Json, json};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CONNECTIONS: usize = 8;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(700);

/// One way to call a script.
struct Contender {
    name: &'static str,
    script: Script,
    keys: Vec<String>,
    arguments: Vec<String>,
    /// Slots that one call gives out.
    slots: u32,
}

impl Contender {
    fn call(&self, connection: &mut Connection) -> Result<Value> {
        let mut call = self.script.prepare_invoke();
        for key in &self.keys {
            call.key(key);
        }
        for argument in &self.arguments {
            call.arg(argument);
        }
        Ok(call.invoke(connection)?)
    }
}

/// What one round showed.
#[derive(Clone, Copy)]
struct Round {
    calls_per_second: f64,
    server_us: f64,
}

fn main() -> Result<()> {
    let server = PrivateServer::start();
    let client = redis::Client::open(server.url())?;
    let keys = Keys::of("bench")?;
    let contenders = contenders(&keys);

    let mut rounds: BTreeMap<&str, Vec<Round>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for contender in &contenders {
            reset(&server, &keys)?;
            rounds
                .entry(contender.name)
                .or_default()
                .push(round(&client, contender)?);
        }
    }

    // Ratios within a round, then their median: rounds differ more than contenders do.
    let ratio = |name: &str, of: &dyn Fn(Round, Round) -> f64| {
        median(
            rounds[name]
                .iter()
                .zip(&rounds["cursor"])
                .map(|(ours, base)| of(*ours, *base))
                .collect(),
        )
    };
    let plain = |slots: f64| {
        move |ours: Round, base: Round| slots * ours.calls_per_second / base.calls_per_second
    };
    let mut report = json!({
        "ratio_single_plain": round3(ratio("book_1", &plain(1.0))),
        "ratio_single_server": round3(ratio("book_1", &|ours, base| base.server_us / ours.server_us)),
        "ratio_10": round3(ratio("book_10", &plain(10.0))),
        "ratio_1000": round3(ratio("book_1000", &plain(1000.0))),
    });
    println!(
        "{:<12}{:>14}{:>14}{:>16}",
        "script", "calls/s", "slots/s", "server µs/call"
    );
    for contender in &contenders {
        let of = |pick: &dyn Fn(&Round) -> f64| {
            median(rounds[contender.name].iter().map(pick).collect())
        };
        let calls = of(&|round| round.calls_per_second);
        let slots = calls * f64::from(contender.slots);
        let server_us = of(&|round| round.server_us);
        println!(
            "{:<12}{calls:>14.0}{slots:>14.0}{server_us:>16.2}",
            contender.name
        );
        report[contender.name] = json!({
            "calls_per_second": calls.round(),
            "slots_per_second": slots.round(),
            "server_us_per_call": round3(server_us),
        });
    }
    println!();
    println!(
        "{:<12}{:>14}{:>14}{:>16}",
        "backlog", "commands", "cells read", "server µs/call"
    );
    let mut flat = Vec::new();
    for backlog in [0, 10_000, 1_000_000] {
        reset(&server, &keys)?;
        flat.push(behind(&client, &contenders, backlog)?);
    }
    report["flat"] = Json::Array(flat);
    for name in [
        "ratio_single_plain",
        "ratio_single_server",
        "ratio_10",
        "ratio_1000",
    ] {
        println!("{name:<24}{:>10}", report[name]);
    }
    fs::create_dir_all("out")?;
    fs::write(
        Path::new("out/bench.json"),
        serde_json::to_string_pretty(&report)? + "\n",
    )?;
    println!("written to out/bench.json");
    Ok(())
}

fn contenders(keys: &Keys) -> Vec<Contender> {
    let (script, book_keys) = book_script(keys);
    let book = |name, slots: u32| Contender {
        name,
        script: script.clone(),
        keys: book_keys.to_vec(),
        arguments: ["bulk", "acme", "1", &slots.to_string(), "new"]
            .map(str::to_owned)
            .to_vec(),
        slots,
    };
    vec![
        Contender {
            name: "cursor",
            script: Script::new(include_str!("cursor.lua")),
            keys: vec!["cursor".to_owned()],
            arguments: vec!["98".to_owned()],
            slots: 1,
        },
        book("book_1", 1),
        book("book_10", 10),
        book("book_1000", 1000),
    ]
}

/// An empty server with a budget of 98 a second, 2 of them reserved, and no horizon.
fn reset(server: &PrivateServer, keys: &Keys) -> Result<()> {
    let settings = Settings {
        limit: "100".parse()?,
        headroom: "0.98".parse()?,
        guard: "0.99".parse()?,
        burst: None,
        reserve: "2".parse()?,
        horizon: Millis::from_secs(900),
    };
    let seed = Seed {
        source: "bench".to_owned(),
        budget: Budget::new(settings)?.without_horizon(),
        tenants: vec!["acme".parse()?],
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let _: () = redis::cmd("FLUSHALL")
            .query_async(&mut server.connection().await)
            .await?;
        Schedule::connect(&server.url(), keys.clone())?
            .seed(&seed)
            .await?;
        Ok(())
    })
}

/// Calls from all connections for a while.
fn round(client: &redis::Client, contender: &Contender) -> Result<Round> {
    let mut control = client.get_connection()?;
    contender.call(&mut control)?;
    let _: () = redis::cmd("CONFIG").arg("RESETSTAT").query(&mut control)?;
    let started = Instant::now();
    let calls: u64 = thread::scope(|scope| {
        let worker = || -> Result<u64> {
            let mut connection = client.get_connection()?;
            let mut calls = 0;
            while started.elapsed() < ROUND {
                contender.call(&mut connection)?;
                calls += 1;
            }
            Ok(calls)
        };
        let workers: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|_| Err("a worker panicked".into()))
            })
            .sum::<Result<u64>>()
    })?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(Round {
        calls_per_second: as_float(calls) / seconds,
        server_us: stats(&mut control)?.server_us("evalsha"),
    })
}

/// What one booking costs behind a backlog.
fn behind(client: &redis::Client, contenders: &[Contender], backlog: u32) -> Result<Json> {
    const CALLS: u32 = 2000;
    let mut connection = client.get_connection()?;
    let (one, thousand) = (&contenders[1], &contenders[3]);
    for _ in 0..backlog / thousand.slots {
        thousand.call(&mut connection)?;
    }
    one.call(&mut connection)?;
    let _: () = redis::cmd("CONFIG")
        .arg("RESETSTAT")
        .query(&mut connection)?;
    let mut cells = 0;
    for _ in 0..CALLS {
        if let Value::Array(answer) = one.call(&mut connection)?
            && let Some(Value::Int(looked)) = answer.get(2)
        {
            cells += looked;
        }
    }
    let stats = stats(&mut connection)?;
    let inner: u64 = stats
        .calls
        .iter()
        .filter(|(name, _)| !["evalsha", "config|resetstat", "info"].contains(&name.as_str()))
        .map(|(_, n)| n)
        .sum();
    let per_call = |n: f64| round3(n / f64::from(CALLS));
    let (commands, cells) = (
        per_call(as_float(inner)),
        per_call(as_float(u64::try_from(cells)?)),
    );
    let server_us = round3(stats.server_us("evalsha"));
    println!("{backlog:<12}{commands:>14}{cells:>14}{server_us:>16}");
    Ok(json!({
        "backlog": backlog,
        "commands_per_reservation": commands,
        "cells_read_per_reservation": cells,
        "server_us_per_reservation": server_us,
    }))
}

/// The server's own count of what it did.
struct Stats {
    calls: BTreeMap<String, u64>,
    us_per_call: BTreeMap<String, f64>,
}

impl Stats {
    fn server_us(&self, command: &str) -> f64 {
        self.us_per_call.get(command).copied().unwrap_or(f64::NAN)
    }
}

fn stats(connection: &mut Connection) -> Result<Stats> {
    let text: String = redis::cmd("INFO").arg("commandstats").query(connection)?;
    let mut stats = Stats {
        calls: BTreeMap::new(),
        us_per_call: BTreeMap::new(),
    };
    for line in text
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_"))
    {
        let Some((name, fields)) = line.split_once(':') else {
            continue;
        };
        for (field, value) in fields.split(',').filter_map(|field| field.split_once('=')) {
            match field {
                "calls" => drop(stats.calls.insert(name.to_owned(), value.trim().parse()?)),
                "usec_per_call" => drop(
                    stats
                        .us_per_call
                        .insert(name.to_owned(), value.trim().parse()?),
                ),
                _ => {}
            }
        }
    }
    Ok(stats)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn round3(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn as_float(count: u64) -> f64 {
    count as f64
}
