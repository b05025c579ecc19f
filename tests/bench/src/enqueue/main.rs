//! Measures `sendslot enqueue` against the bare AWS SDK: the same batches of ten, as many on their way at once, to the same
//! queue, in turns, in one run. The SDK has its batches ready in memory; `enqueue` reads them from a file, checks each row and
//! writes its checkpoint. Then the program itself, as a child, with its peak memory. Prints tables, writes `out/enqueue.json`,
//! and fails if a figure falls short.
//!
//! The queue is a stand-in on loopback, a process of its own, that answers after 10 ms, as SQS does in its own region. With a
//! queue's URL as an argument, that one instead. For comparison, and not asked for: one that answers at once. Then nothing is
//! waited for, and what is compared is the processors' time for reading, checking and noting a row with that for sending it.
#![expect(clippy::print_stdout, reason = "the table is the point")]

mod stand_in;

use std::{
    error::Error,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use aws_sdk_sqs::{
    Client, Config,
    config::{BehaviorVersion, Credentials, Region, retry::RetryConfig},
    types::SendMessageBatchRequestEntry,
};
use clap::Parser;
use futures_util::{TryStreamExt, stream};
use sendslot::{
    enqueue::{EnqueueArgs, enqueue},
    output::Output,
};
use serde_json::{Value as Json, json};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: usize = 7;
const ROWS: usize = 20_000;
const IN_FLIGHT: usize = 16;
/// Of the child whose memory is watched: one file, and one ten times as long.
const LONG: [usize; 2] = [20_000, 200_000];
/// What nothing is asked of.
const AT_ONCE: &str = "at_once";
const LEAST_RATIO: f64 = 0.9;
const MOST_MEMORY: u64 = 100_000_000;

#[derive(Parser)]
struct Only {
    #[command(flatten)]
    args: EnqueueArgs,
}

/// A child that ends with us.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["stand-in", milliseconds] = arguments[..] {
        stand_in::serve(Duration::from_millis(milliseconds.parse()?)).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let folder = std::env::temp_dir().join(format!("enqueue-bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let measured = measure(&folder, arguments.first().copied()).await;
    fs::remove_dir_all(&folder)?;
    let (report, held) = measured?;
    fs::create_dir_all("out")?;
    fs::write(
        "out/enqueue.json",
        serde_json::to_string_pretty(&report)? + "\n",
    )?;
    println!("written to out/enqueue.json");
    Ok(if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn measure(folder: &Path, queue: Option<&str>) -> Result<(Json, bool)> {
    let file = folder.join("mail.jsonl");
    let bodies = write(&file, ROWS)?;
    println!(
        "{:<22}{:>14}{:>14}{:>8}{:>18}{:>18}",
        "queue", "SDK rows/s", "enqueue", "ratio", "SDK CPU µs/row", "enqueue CPU"
    );
    let (mut report, mut held) = (json!({}), true);
    let kinds: &[(&str, Option<u64>)] = match queue {
        Some(_) => &[("given", None)],
        None => &[("10_ms", Some(10)), (AT_ONCE, Some(0))],
    };
    for (name, milliseconds) in kinds {
        let server = milliseconds.map(stand_in).transpose()?;
        let url = server
            .as_ref()
            .map(|(_, url)| url.as_str())
            .or(queue)
            .unwrap_or_default();
        let (sdk, ours) = in_turns(url, &bodies, &file).await?;
        let ratio = ours.rows_per_second / sdk.rows_per_second;
        held &= ratio >= LEAST_RATIO || *name == AT_ONCE;
        println!(
            "{name:<22}{:>14.0}{:>14.0}{ratio:>8.2}{:>18.0}{:>18.0}",
            sdk.rows_per_second, ours.rows_per_second, sdk.cpu_us, ours.cpu_us
        );
        report[name] = json!({ "sdk_rows_per_second": sdk.rows_per_second, "rows_per_second": ours.rows_per_second, "ratio": ratio,
            "sdk_cpu_us_per_row": sdk.cpu_us, "cpu_us_per_row": ours.cpu_us });
    }
    for rows in LONG {
        let (_server, url) = stand_in(0)?;
        let memory = memory_of_a_child(&folder.join(format!("long-{rows}.jsonl")), rows, &url)?;
        held &= memory < MOST_MEMORY;
        println!("peak memory of {rows} rows: {:.1} MB", memory_mb(memory));
        report["memory_bytes"][rows.to_string()] = memory.into();
    }
    println!(
        "asked: a ratio of {LEAST_RATIO} or more, and less than {} MB",
        MOST_MEMORY / 1_000_000
    );
    Ok((report, held))
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn memory_mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Rows of a campaign; their bodies.
fn write(file: &Path, rows: usize) -> Result<Vec<String>> {
    let text = "A letter of a common length. ".repeat(10);
    let bodies: Vec<String> = (0..rows)
        .map(|n| {
            format!(
                r#"{{"send_id":"news-{n:07}","tenant":"tenant-1","from":"Shop <shop@example.com>","to":["someone-{n}@example.org"],"content":{{"simple":{{"subject":"News for {n}","text":"{text}"}}}}}}"#
            )
        })
        .collect();
    fs::write(file, bodies.join("\n"))?;
    Ok(bodies)
}

/// A queue that answers after so long, and its URL.
fn stand_in(milliseconds: u64) -> Result<(Ends, String)> {
    let child = Command::new(std::env::current_exe()?)
        .args(["stand-in", &milliseconds.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut child = Ends(child);
    let output = child.0.stdout.take().ok_or("no output")?;
    let mut url = String::new();
    io::BufRead::read_line(&mut io::BufReader::new(output), &mut url)?;
    Ok((child, url.trim().to_owned()))
}

/// What one round showed.
#[derive(Clone, Copy)]
struct Round {
    rows_per_second: f64,
    cpu_us: f64,
}

async fn in_turns(url: &str, bodies: &[String], file: &Path) -> Result<(Round, Round)> {
    let sqs = client(url);
    let (mut sdk, mut ours) = (Vec::new(), Vec::new());
    // The first of each opens connections and reads code into caches.
    for round in 0..=ROUNDS {
        let bare = timed(bodies.len(), bare(&sqs, url, bodies)).await?;
        let through = timed(bodies.len(), through(&sqs, url, file)).await?;
        if round > 0 {
            sdk.push(bare);
            ours.push(through);
        }
    }
    Ok((median(&sdk), median(&ours)))
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
async fn timed(rows: usize, run: impl Future<Output = Result<()>>) -> Result<Round> {
    let (began, cpu) = (Instant::now(), cpu_seconds()?);
    run.await?;
    let (took, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    Ok(Round {
        rows_per_second: rows as f64 / took,
        cpu_us: cpu * 1e6 / rows as f64,
    })
}

fn median(rounds: &[Round]) -> Round {
    let of = |pick: fn(&Round) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(pick).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    Round {
        rows_per_second: of(|round| round.rows_per_second),
        cpu_us: of(|round| round.cpu_us),
    }
}

/// What this process has used of the processors, in seconds.
fn cpu_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit_once(')').ok_or("no stat")?.1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks / 100.0)
}

fn client(url: &str) -> Client {
    let endpoint = url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "bench"))
        .http_client(sendslot_runtime::aws::http_client())
        .retry_config(RetryConfig::disabled())
        .endpoint_url(endpoint);
    Client::from_conf(config.build())
}

/// The SDK alone.
async fn bare(sqs: &Client, url: &str, bodies: &[String]) -> Result<()> {
    stream::iter(bodies.chunks(10).map(Ok))
        .try_for_each_concurrent(IN_FLIGHT, |batch| async move {
            let entries = batch.iter().enumerate().map(|(index, body)| {
                SendMessageBatchRequestEntry::builder()
                    .id(index.to_string())
                    .message_body(body)
                    .message_group_id("tenant-1")
                    .build()
            });
            let entries = entries.collect::<std::result::Result<Vec<_>, _>>()?;
            let answer = sqs
                .send_message_batch()
                .queue_url(url)
                .set_entries(Some(entries))
                .send()
                .await?;
            if answer.failed().is_empty() {
                Ok(())
            } else {
                Err("an entry failed".into())
            }
        })
        .await
}

/// What the command does.
async fn through(sqs: &Client, url: &str, file: &Path) -> Result<()> {
    let checkpoint = file.with_extension("checkpoint");
    let _ = fs::remove_file(&checkpoint);
    let line = [
        "x".into(),
        file.to_owned(),
        "--checkpoint".into(),
        checkpoint,
        "--in-flight".into(),
        PathBuf::from(IN_FLIGHT.to_string()),
    ];
    let args = Only::try_parse_from(line)?.args;
    let mut out = Output::to(false, io::sink(), io::sink());
    enqueue(sqs, url, &args, &mut out)
        .await
        .map_err(|error| error.to_string())?;
    Ok(())
}

/// Runs the program on a file of so many rows; its peak memory, in bytes.
fn memory_of_a_child(file: &Path, rows: usize, url: &str) -> Result<u64> {
    write(file, rows)?;
    let program = std::env::current_exe()?.with_file_name("sendslot");
    let endpoint = url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    let child = Command::new(&program)
        .args([
            "--endpoint-url",
            &endpoint,
            "--region",
            "us-east-1",
            "enqueue",
        ])
        .arg(file)
        .envs([
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}: build it with `make cli`", program.display()))?;
    let mut child = Ends(child);
    let mut peak = 0;
    loop {
        let status =
            fs::read_to_string(format!("/proc/{}/status", child.0.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kb = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        peak = peak.max(kb.unwrap_or(0) * 1024);
        if let Some(ended) = child.0.try_wait()? {
            let mut why = String::new();
            if !ended.success() {
                let _ = write!(why, "the program ended with {ended}");
                return Err(why.into());
            }
            return Ok(peak);
        }
        thread::sleep(Duration::from_millis(2));
    }
}
