//! A private server for tests, and a clock that tests can set.
//!
//! Nothing here falls back to "no server, no test": a missing server is a failure that says what to do.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use redis::{FromRedisValue, aio::MultiplexedConnection};
use sendslot_domain::{Lane, Moment, TenantName};

use crate::{Keys, Schedule, ScheduleError, connection::IDLE_AT_MOST};

/// Names the server's executable; `make test` sets it to the one in `.venv`.
pub const SERVER_VARIABLE: &str = "SENDSLOT_VALKEY_SERVER";

/// Servers started by this process, so that each has a folder of its own.
static SERVERS: AtomicU32 = AtomicU32::new(0);

/// A valkey-server (or redis-server) of the test's own on a Unix socket, without persistence, which ends
/// with this value.
pub struct PrivateServer {
    child: Child,
    folder: PathBuf,
}

impl PrivateServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    /// When there is no server to start, or it doesn't come up: a test can't pass without it.
    #[must_use]
    pub fn start() -> Self {
        let number = SERVERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("sendslot-{}-{number}", std::process::id()));
        if let Err(error) = std::fs::create_dir_all(&folder) {
            panic!(
                "a folder for the test's server can't be made at {}: {error}",
                folder.display()
            );
        }
        let child = launch(&folder);
        let mut server = Self { child, folder };
        server.wait_until_ready();
        server
    }

    /// Ends the server at once. What it held is lost, and connections are refused from now on.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts a killed server again, empty, at the same address.
    ///
    /// # Panics
    /// When it doesn't come up.
    pub fn restart(&mut self) {
        self.kill();
        self.child = launch(&self.folder);
        self.wait_until_ready();
    }

    /// Freezes the server: it accepts connections and answers nothing.
    ///
    /// # Panics
    /// When it can't be told.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// Lets a frozen server go on.
    ///
    /// # Panics
    /// When it can't be told.
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([format!("-{signal}"), self.child.id().to_string()])
            .status();
        assert!(
            sent.is_ok_and(|sent| sent.success()),
            "the test's server can't be sent SIG{signal}"
        );
    }

    /// Has the server run a command, over a connection made for it.
    ///
    /// # Panics
    /// When the server is gone or refuses.
    pub async fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        command.arg(words);
        match command.query_async(&mut self.connection().await).await {
            Ok(answer) => answer,
            Err(error) => panic!("{}: {error}", words.join(" ")),
        }
    }

    fn wait_until_ready(&mut self) {
        let mut said = String::new();
        let mut lines = BufReader::new(match self.child.stdout.take() {
            Some(output) => output,
            None => panic!("the server's output can't be read"),
        });
        let started = Instant::now();
        loop {
            let before = said.len();
            let read = lines.read_line(&mut said).unwrap_or(0);
            if said[before..].contains("Ready to accept connections")
                || said[before..].contains("ready to accept connections")
            {
                break;
            }
            assert!(
                read > 0 && started.elapsed() < Duration::from_secs(20),
                "the test's server did not come up:\n{said}"
            );
        }
        // Nobody reads on, so the server must not block on a full pipe: it logs next to nothing.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    }

    /// The server's address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.folder.join("socket").display())
    }

    /// A plain connection.
    ///
    /// # Panics
    /// When the server is gone.
    pub async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url());
        match client {
            Ok(client) => match client.get_multiplexed_async_connection().await {
                Ok(connection) => connection,
                Err(error) => panic!("the test's server is gone: {error}"),
            },
            Err(error) => panic!("the test's server has an unusable address: {error}"),
        }
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn launch(folder: &Path) -> Child {
    let program = std::env::var(SERVER_VARIABLE).unwrap_or_else(|_| "valkey-server".to_owned());
    // The server starts in a folder of its own, where a relative path would name something else.
    let program = std::fs::canonicalize(&program).unwrap_or_else(|_| PathBuf::from(program));
    let child = Command::new(&program)
        .args([
            "--port",
            "0",
            "--unixsocket",
            "socket",
            "--save",
            "",
            "--appendonly",
            "no",
        ])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    match child {
        Ok(child) => child,
        Err(error) => panic!(
            "{} can't be started ({error}): run `make test`, or set {SERVER_VARIABLE} to a \
             valkey-server or redis-server",
            program.display()
        ),
    }
}

/// A [`Schedule`] that takes a new connection when the one it has was unused for `idle_at_most`.
///
/// # Errors
/// When the URL is no Redis URL.
pub fn impatient(url: &str, keys: Keys, idle_at_most: Duration) -> Result<Schedule, ScheduleError> {
    Schedule::connect_behind(url, keys, "", idle_at_most, None)
}

/// A [`Schedule`] whose scripts read the time from a key that the test sets, instead of from TIME.
pub struct Clocked {
    /// The schedule.
    pub schedule: Schedule,
    connection: MultiplexedConnection,
}

const CLOCK: &str = "sendslot:{test}:clock";

/// Stands in front of each script and answers TIME from the key; the rest goes through.
const CLOCK_PRELUDE: &str = "\
local server = redis
local redis = setmetatable({
  call = function(command, ...)
    if command ~= 'TIME' then
      return server.call(command, ...)
    end
    local ms = tonumber(server.call('GET', 'sendslot:{test}:clock'))
    return { tostring(math.floor(ms / 1000)), tostring(ms % 1000 * 1000) }
  end,
}, { __index = server })
";

impl Clocked {
    /// A schedule on the server, with keys of its own.
    ///
    /// # Panics
    /// When the server is gone.
    pub async fn new(server: &PrivateServer, keys: Keys) -> Self {
        let schedule =
            Schedule::connect_behind(&server.url(), keys, CLOCK_PRELUDE, IDLE_AT_MOST, None);
        let schedule = match schedule {
            Ok(schedule) => schedule,
            Err(error) => panic!("{error}"),
        };
        Self {
            schedule,
            connection: server.connection().await,
        }
    }

    /// Sets the clock.
    ///
    /// # Errors
    /// When the server is gone.
    pub async fn set(&mut self, now: Moment) -> Result<(), redis::RedisError> {
        redis::cmd("SET")
            .arg(CLOCK)
            .arg(now.0)
            .query_async(&mut self.connection)
            .await
    }

    /// Slows down to `factor` ÷ 1024 of the budget's rate, as after refusals that have led to a cut just now.
    ///
    /// # Errors
    /// When the server is gone.
    pub async fn slow_to(&mut self, factor: u64) -> Result<(), redis::RedisError> {
        let now: u64 = redis::cmd("GET")
            .arg(CLOCK)
            .query_async(&mut self.connection)
            .await?;
        redis::cmd("HSET")
            .arg(&self.schedule.keys().budget)
            .arg("factor")
            .arg(factor)
            .arg("slowed")
            .arg(format!("{now}|{now}|0|{now}"))
            .exec_async(&mut self.connection)
            .await
    }

    /// Empties the server.
    ///
    /// # Errors
    /// When the server is gone.
    pub async fn flush(&mut self) -> Result<(), redis::RedisError> {
        redis::cmd("FLUSHALL")
            .query_async(&mut self.connection)
            .await
    }
}

/// `book.lua` and the keys of a call with one run, for benches that call it without this crate's client.
#[must_use]
pub fn book_script(keys: &Keys, lane: Lane, tenant: &TenantName) -> (redis::Script, Vec<String>) {
    let script = redis::Script::new(include_str!("lua/book.lua"));
    let of_lane = [keys.ends(lane), keys.asked(lane)];
    let keys = [&keys.budget, &keys.schedule]
        .into_iter()
        .cloned()
        .chain(of_lane.map(str::to_owned))
        .chain([keys.guard.clone(), keys.tenant(tenant)])
        .collect();
    (script, keys)
}
