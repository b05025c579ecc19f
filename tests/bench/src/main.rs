//! Measures `book.lua` against a bare cursor script: both on one private server, in turns, in one run, so
//! that what the machine does meanwhile hits both alike. Prints tables and writes `out/bench.json`.
//!
//! - **plain**: calls a second on eight plain connections, each waiting for its answer.
//! - **server**: what the server says it spent in a call (`INFO commandstats`).
//! - **all rules on**: slice, weights, and the windows of an hour and a day. The ratios are those of it.
//! - **flat**: commands, cells read and server time for one booking behind a backlog of 0, 10,000 and 1,000,000, with 1,
//!   100 and 10,000 tenants of unequal backlog and with no, one and two windows: all of it booked, or nearly all of it
//!   waiting in line.
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
use sendslot_domain::{Budget, Lane, Millis, TenantName, budget::Settings, window::Caps};
use sendslot_schedule::{
    Keys, Schedule, Seed, Tenant,
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
    /// What it is called with, in turns: keys and arguments.
    calls: Vec<(Vec<String>, Vec<String>)>,
    /// Slots that one call gives out.
    slots: u32,
    /// What it runs on.
    setting: Setting,
}

/// What a schedule is set up with.
#[derive(Clone, Copy)]
struct Setting {
    limit: &'static str,
    tenants: u32,
    windows: usize,
    /// In seconds; without, nobody ever waits.
    horizon: Option<u64>,
}

/// The simplest there is, with room for any backlog.
const SIMPLE: Setting = Setting {
    limit: "100",
    tenants: 1,
    windows: 0,
    horizon: None,
};
/// All rules on. The limit is so high that everything asked for in a round fits into the longest horizon.
const ALL_ON: Setting = Setting {
    limit: "10000",
    tenants: 100,
    windows: 2,
    horizon: Some(900),
};

impl Contender {
    fn call(&self, connection: &mut Connection, turn: u64) -> Result<Value> {
        let (keys, arguments) = &self.calls[usize::try_from(turn)? % self.calls.len()];
        let mut call = self.script.prepare_invoke();
        for key in keys {
            call.key(key);
        }
        for argument in arguments {
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
    let mut report = json!({});
    compare(&server, &client, &keys, &mut report)?;
    println!();
    report["flat"] = flat(&server, &client, &keys)?;
    fs::create_dir_all("out")?;
    fs::write(
        Path::new("out/bench.json"),
        serde_json::to_string_pretty(&report)? + "\n",
    )?;
    println!("written to out/bench.json");
    Ok(())
}

/// All contenders in turns.
fn compare(
    server: &PrivateServer,
    client: &redis::Client,
    keys: &Keys,
    report: &mut Json,
) -> Result<()> {
    let contenders = [
        Contender {
            name: "cursor",
            script: Script::new(include_str!("cursor.lua")),
            calls: vec![(vec!["cursor".to_owned()], vec!["98".to_owned()])],
            slots: 1,
            setting: SIMPLE,
        },
        book(keys, "book_1", 1, SIMPLE)?,
        book(keys, "all_on_1", 1, ALL_ON)?,
        book(keys, "all_on_10", 10, ALL_ON)?,
        book(keys, "all_on_1000", 1000, ALL_ON)?,
    ];
    let mut rounds: BTreeMap<&str, Vec<Round>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for contender in &contenders {
            reset(server, keys, contender.setting)?;
            rounds
                .entry(contender.name)
                .or_default()
                .push(round(client, contender)?);
        }
    }
    println!(
        "{:<14}{:>12}{:>14}{:>16}",
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
            "{:<14}{calls:>12.0}{slots:>14.0}{server_us:>16.2}",
            contender.name
        );
        report[contender.name] = json!({
            "calls_per_second": calls.round(),
            "slots_per_second": slots.round(),
            "server_us_per_call": round3(server_us),
        });
    }

    // Ratios within a round, then their median: rounds differ more than contenders do.
    let ratio = |name: &str, of: &dyn Fn(Round, Round) -> f64| {
        let pairs = rounds[name].iter().zip(&rounds["cursor"]);
        median(pairs.map(|(ours, base)| of(*ours, *base)).collect())
    };
    let plain = |slots: f64| {
        move |ours: Round, base: Round| slots * ours.calls_per_second / base.calls_per_second
    };
    let server_time = |ours: Round, base: Round| base.server_us / ours.server_us;
    println!();
    for (name, ratio) in [
        ("ratio_single_plain", ratio("all_on_1", &plain(1.0))),
        ("ratio_single_server", ratio("all_on_1", &server_time)),
        ("ratio_10", ratio("all_on_10", &plain(10.0))),
        ("ratio_1000", ratio("all_on_1000", &plain(1000.0))),
        ("ratio_simple_plain", ratio("book_1", &plain(1.0))),
        ("ratio_simple_server", ratio("book_1", &server_time)),
    ] {
        println!("{name:<24}{:>10}", round3(ratio));
        report[name] = json!(round3(ratio));
    }
    Ok(())
}

/// What a booking costs behind backlogs.
fn flat(server: &PrivateServer, client: &redis::Client, keys: &Keys) -> Result<Json> {
    println!(
        "{:<10}{:>10}{:>10}{:>12}{:>12}{:>12}{:>18}",
        "", "tenants", "windows", "backlog", "commands", "cells read", "server µs/call"
    );
    let mut rows = Vec::new();
    // Booked without a horizon, or, as windows end with the longest there is, at a limit that fits everything into it; and
    // waiting, nearly all of it.
    let fits = Setting {
        tenants: 1,
        ..ALL_ON
    };
    let waiting = Setting {
        horizon: Some(60),
        ..SIMPLE
    };
    for of in [SIMPLE, fits, waiting] {
        for (tenants, windows) in [(1, 0), (1, 1), (1, 2), (100, 2), (10_000, 2)] {
            for backlog in [0, 10_000, 1_000_000] {
                let setting = Setting {
                    tenants,
                    windows,
                    ..of
                };
                let is_waiting = of.horizon == waiting.horizon;
                let ends = of.horizon.is_none() && windows > 0;
                if !ends && (backlog > 0 || !is_waiting) {
                    reset(server, keys, setting)?;
                    rows.push(behind(client, keys, setting, backlog)?);
                }
            }
        }
    }
    Ok(Json::Array(rows))
}

fn tenant(n: u32) -> Result<TenantName> {
    Ok(format!("tenant-{n}").parse()?)
}

/// Calls that each book so many slots for one of the tenants, in turns.
fn book(keys: &Keys, name: &'static str, slots: u32, setting: Setting) -> Result<Contender> {
    let mut script = None;
    let mut calls = Vec::new();
    for n in 0..setting.tenants {
        let tenant = tenant(n)?;
        let (book, keys) = book_script(keys, Lane::Bulk, &tenant);
        script = Some(book);
        let arguments = ["bulk", tenant.as_str(), "1", &slots.to_string(), "new"];
        calls.push((keys, arguments.map(str::to_owned).to_vec()));
    }
    Ok(Contender {
        name,
        script: script.ok_or("no tenants")?,
        calls,
        slots,
        setting,
    })
}

/// An empty server with a budget of 98 % of the limit, 2 a second of it reserved.
fn reset(server: &PrivateServer, keys: &Keys, setting: Setting) -> Result<()> {
    // Windows are counted and never full.
    let cap = |nth| (setting.windows >= nth).then_some(Caps::MAX);
    let settings = Settings {
        limit: setting.limit.parse()?,
        headroom: "0.98".parse()?,
        guard: "0.99".parse()?,
        burst: None,
        reserve: "2".parse()?,
        slice: "0.05".parse()?,
        caps: Caps {
            day: cap(1),
            hour: cap(2),
        },
        horizon: Millis::from_secs(setting.horizon.unwrap_or(60)),
    };
    let budget = Budget::new(settings)?;
    let tenants = (0..setting.tenants).map(|n| {
        let settings = Tenant {
            weight: 1 + n % 3,
            ..Tenant::default()
        };
        Ok((tenant(n)?, settings))
    });
    let seed = Seed {
        source: "bench".to_owned(),
        budget: match setting.horizon {
            Some(_) => budget,
            None => budget.without_horizon(),
        },
        tenants: tenants.collect::<Result<_>>()?,
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
    contender.call(&mut control, 0)?;
    let _: () = redis::cmd("CONFIG").arg("RESETSTAT").query(&mut control)?;
    let started = Instant::now();
    let calls: u64 = thread::scope(|scope| {
        let worker = || -> Result<u64> {
            let mut connection = client.get_connection()?;
            let mut calls = 0;
            while started.elapsed() < ROUND {
                contender.call(&mut connection, calls)?;
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

/// What one booking costs behind a backlog, in which the first tenants have most.
fn behind(client: &redis::Client, keys: &Keys, setting: Setting, backlog: u32) -> Result<Json> {
    const CALLS: u32 = 2000;
    let mut connection = client.get_connection()?;
    let one = book(keys, "one", 1, setting)?;
    let whole: f64 = (1..=setting.tenants).map(|n| 1.0 / f64::from(n)).sum();
    for n in 0..setting.tenants {
        let share = f64::from(backlog) / f64::from(n + 1) / whole;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of the backlog, which is a u32"
        )]
        let mut left = share.ceil() as u32;
        while left > 0 && backlog > 0 {
            let (keys, arguments) = &one.calls[usize::try_from(n)?];
            let count = left.min(1000);
            left -= count;
            let mut call = one.script.prepare_invoke();
            for key in keys {
                call.key(key);
            }
            call.arg(&arguments[..3]).arg(count).arg("new");
            let _: Value = call.invoke(&mut connection)?;
        }
    }
    one.call(&mut connection, 0)?;
    let _: () = redis::cmd("CONFIG")
        .arg("RESETSTAT")
        .query(&mut connection)?;
    let mut cells = 0;
    for turn in 0..CALLS {
        if let Value::Array(answer) = one.call(&mut connection, u64::from(turn))?
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
    let Setting {
        tenants,
        windows,
        horizon,
        ..
    } = setting;
    let what = if horizon == Some(60) {
        "waiting"
    } else {
        "booked"
    };
    println!(
        "{what:<10}{tenants:>10}{windows:>10}{backlog:>12}{commands:>12}{cells:>12}{server_us:>18}"
    );
    Ok(json!({
        "backlog_is": what,
        "tenants": tenants,
        "windows": windows,
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
