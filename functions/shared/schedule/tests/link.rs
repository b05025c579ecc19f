//! What a call does when Redis isn't there, or isn't the one to ask: it fails soon and says why, and the same
//! [`Schedule`] works again as soon as Redis does.
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't set itself up has failed"
)]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use sendslot_domain::{
    Budget, Cell, Lane, Millis, Rate, TenantName, budget::Settings, window::Caps,
};
use sendslot_schedule::{
    Ask, Booking, Keys, Schedule, ScheduleError, Seed, Standing, Tenant, Unused,
    testing::{PrivateServer, impatient},
};
use tokio::time::timeout;

/// A call that needs neither a new connection nor an answer that doesn't come.
const AT_ONCE: Duration = Duration::from_millis(700);
/// A call that waits for a connection or an answer, and not for both.
const ONE_WAIT: Duration = Duration::from_millis(1900);

fn connect(url: &str) -> Schedule {
    Schedule::connect(url, Keys::of("link").unwrap()).unwrap()
}

fn tenant() -> TenantName {
    "acme".parse().unwrap()
}

async fn seed(schedule: &Schedule) -> Result<bool, ScheduleError> {
    let budget = Budget::new(Settings {
        limit: "100".parse().unwrap(),
        headroom: "0.9".parse().unwrap(),
        guard: "0.95".parse().unwrap(),
        burst: None,
        reserve: Rate::ZERO,
        slice: Rate::ZERO,
        caps: Caps::default(),
        horizon: Millis::from_secs(600),
    });
    let seed = Seed {
        source: "deploy".into(),
        budget: budget.unwrap(),
        tenants: vec![(tenant(), Tenant::default())],
    };
    schedule.seed(&seed).await
}

/// A call that writes.
async fn book(schedule: &Schedule) -> Result<(), ScheduleError> {
    let ask = Ask {
        tenant: tenant(),
        cost: 1,
        standing: Standing::New,
    };
    let booked = schedule.book(Lane::Bulk, &[ask]).await?;
    assert!(matches!(booked[..], [Booking::Slot(_)]), "{booked:?}");
    Ok(())
}

/// A call to which a [`Fake`] has an answer.
async fn release(schedule: &Schedule) -> Result<(), ScheduleError> {
    let unused = Unused {
        tenant: tenant(),
        goes: Cell(1),
        cells: vec![(Cell(1), 1)],
        slot_only: false,
    };
    schedule.release(Lane::Bulk, &[unused]).await
}

/// The call fails as unavailable within the time, and says so with these words.
async fn fails(
    call: impl Future<Output = Result<(), ScheduleError>>,
    within: Duration,
    words: &[&str],
) {
    let started = Instant::now();
    let error = call.await.unwrap_err();
    let took = started.elapsed();
    assert!(error.is_unavailable(), "{error}");
    let said = error.to_string();
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
    assert!(took < within, "{took:?}: {said}");
}

/// How many connections the server has had, less the one made for asking.
async fn connections(server: &PrivateServer) -> usize {
    let info: String = server.run(&["INFO", "stats"]).await;
    let (_, rest) = info.split_once("total_connections_received:").unwrap();
    rest.lines().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_server_that_is_gone_refuses_at_once_and_works_when_it_is_back() {
    let mut server = PrivateServer::start();
    let schedule = connect(&server.url());
    seed(&schedule).await.unwrap();
    book(&schedule).await.unwrap();
    server.kill();
    for _ in 0..3 {
        fails(
            book(&schedule),
            AT_ONCE,
            &["no connection to", "is it running"],
        )
        .await;
    }
    server.restart();
    let empty = book(&schedule).await.unwrap_err();
    assert!(matches!(empty, ScheduleError::NoBudget(_)), "{empty}");
    assert!(!empty.is_unavailable());
    assert!(seed(&schedule).await.unwrap());
    book(&schedule).await.unwrap();
}

#[tokio::test]
async fn a_server_that_was_never_there_can_come_later() {
    let mut server = PrivateServer::start();
    server.kill();
    let schedule = connect(&server.url());
    fails(book(&schedule), AT_ONCE, &["no connection to"]).await;
    server.restart();
    assert!(seed(&schedule).await.unwrap());
}

/// A Lambda process stands still between invocations, and the server restarts meanwhile.
#[tokio::test]
async fn a_connection_closed_while_the_process_was_frozen_costs_no_call() {
    let mut server = PrivateServer::start();
    let schedule = connect(&server.url());
    seed(&schedule).await.unwrap();
    server.restart();
    // Blocks the runtime, which therefore can't see the connection closed.
    std::thread::sleep(Duration::from_millis(1100));
    assert!(seed(&schedule).await.unwrap());
}

#[tokio::test]
async fn a_frozen_server_costs_a_second_a_call_and_works_when_it_goes_on() {
    let server = PrivateServer::start();
    let schedule = connect(&server.url());
    seed(&schedule).await.unwrap();
    server.freeze();
    fails(book(&schedule), ONE_WAIT, &["no answer within 1s"]).await;
    fails(book(&schedule), ONE_WAIT, &["no connection within 1s"]).await;
    server.thaw();
    book(&schedule).await.unwrap();
}

#[tokio::test]
async fn many_calls_share_one_new_connection() {
    let server = PrivateServer::start();
    let schedule = connect(&server.url());
    seed(&schedule).await.unwrap();
    let before = connections(&server).await;
    server.freeze();
    let together = async |end: fn(Result<(), ScheduleError>)| {
        let calls: Vec<_> = (0..40)
            .map(|_| {
                let schedule = schedule.clone();
                tokio::spawn(async move { book(&schedule).await })
            })
            .collect();
        for call in calls {
            end(call.await.unwrap());
        }
    };
    let started = Instant::now();
    together(|answer| assert!(answer.unwrap_err().is_unavailable())).await;
    assert!(started.elapsed() < ONE_WAIT, "{:?}", started.elapsed());
    server.thaw();
    together(|answer| answer.unwrap()).await;
    assert_eq!(
        connections(&server).await - before,
        2,
        "the new one and that of the question"
    );
}

/// After a failover the old address's connection may lead nowhere, without anybody having closed it.
#[tokio::test]
async fn a_connection_that_leads_nowhere_is_left() {
    let fake = Fake::start(|connection, _| match connection {
        0 | 2 => None,
        _ => Some(":0\r\n".into()),
    });
    let schedule = connect(&fake.url());
    fails(release(&schedule), ONE_WAIT, &["no answer within 1s"]).await;
    release(&schedule).await.unwrap();
    release(&schedule).await.unwrap();
    assert_eq!(fake.connections(), 2, "it is kept while it works");

    // So it is when the caller has less patience than the link.
    let fake = Fake::start(|connection, _| (connection > 0).then(|| ":0\r\n".into()));
    let schedule = connect(&fake.url());
    let patience = Duration::from_millis(500);
    timeout(patience, release(&schedule)).await.unwrap_err();
    timeout(patience, release(&schedule))
        .await
        .unwrap()
        .unwrap();
}

/// A call that fails late, on a connection that another has left already, takes nothing from those after it.
#[tokio::test]
async fn a_late_failure_leaves_the_new_connection_alone() {
    let fake = Fake::start(|connection, _| (connection > 0).then(|| ":0\r\n".into()));
    let schedule = connect(&fake.url());
    let late = async { fails(release(&schedule), ONE_WAIT, &["no answer within 1s"]).await };
    let others = async {
        let patience = Duration::from_millis(300);
        timeout(patience, release(&schedule)).await.unwrap_err();
        release(&schedule).await.unwrap();
    };
    tokio::join!(late, others);
    release(&schedule).await.unwrap();
    assert_eq!(fake.connections(), 2);
}

#[tokio::test]
async fn a_connection_unused_for_long_is_not_used_again() {
    let fake = Fake::start(|_, _| Some(":0\r\n".into()));
    let keys = Keys::of("link").unwrap();
    let schedule = impatient(&fake.url(), keys, Duration::from_secs(1)).unwrap();
    release(&schedule).await.unwrap();
    release(&schedule).await.unwrap();
    assert_eq!(fake.connections(), 1);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    release(&schedule).await.unwrap();
    assert_eq!(fake.connections(), 2);
}

#[tokio::test]
async fn a_replica_is_left_for_the_primary() {
    let server = PrivateServer::start();
    let schedule = connect(&server.url());
    seed(&schedule).await.unwrap();
    let before = connections(&server).await;
    let _: () = server.run(&["REPLICAOF", "127.0.0.1", "1"]).await;
    for _ in 0..2 {
        fails(book(&schedule), AT_ONCE, &["READONLY", "a replica"]).await;
    }
    let _: () = server.run(&["REPLICAOF", "NO", "ONE"]).await;
    book(&schedule).await.unwrap();
    assert_eq!(
        connections(&server).await - before,
        2 + 3,
        "a new one after each READONLY, and those of the test"
    );
}

#[tokio::test]
async fn a_full_server_says_so_and_works_when_it_has_memory() {
    let server = PrivateServer::start();
    let schedule = connect(&server.url());
    seed(&schedule).await.unwrap();
    book(&schedule).await.unwrap();
    let _: () = server.run(&["CONFIG", "SET", "maxmemory", "1"]).await;
    fails(book(&schedule), AT_ONCE, &["OOM", "memory is full"]).await;
    let _: () = server.run(&["CONFIG", "SET", "maxmemory", "0"]).await;
    book(&schedule).await.unwrap();
}

#[tokio::test]
async fn too_few_replicas_say_so() {
    let server = PrivateServer::start();
    let schedule = connect(&server.url());
    seed(&schedule).await.unwrap();
    let few = ["CONFIG", "SET", "min-replicas-to-write", "1"];
    let _: () = server.run(&few).await;
    fails(
        book(&schedule),
        AT_ONCE,
        &["NOREPLICAS", "too few replicas"],
    )
    .await;
    let _: () = server
        .run(&["CONFIG", "SET", "min-replicas-to-write", "0"])
        .await;
    book(&schedule).await.unwrap();
}

#[tokio::test]
async fn a_script_of_others_that_runs_too_long_says_so() {
    let server = PrivateServer::start();
    let schedule = connect(&server.url());
    seed(&schedule).await.unwrap();
    let _: () = server
        .run(&["CONFIG", "SET", "busy-reply-threshold", "10"])
        .await;
    let mut other = server.connection().await;
    let endless = tokio::spawn(async move {
        let _: Result<(), _> = redis::cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .query_async(&mut other)
            .await;
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    fails(book(&schedule), AT_ONCE, &["BUSY", "runs too long"]).await;
    let _: () = server.run(&["SCRIPT", "KILL"]).await;
    endless.await.unwrap();
    book(&schedule).await.unwrap();
}

#[tokio::test]
async fn scripts_are_loaded_again_after_a_flush() {
    let server = PrivateServer::start();
    let schedule = connect(&server.url());
    seed(&schedule).await.unwrap();
    book(&schedule).await.unwrap();
    let _: () = server.run(&["SCRIPT", "FLUSH"]).await;
    book(&schedule).await.unwrap();
}

#[tokio::test]
async fn a_server_that_reads_its_data_says_so() {
    let fake = Fake::start(|_, command| {
        Some(if command < 2 {
            "-LOADING Redis is loading the dataset in memory\r\n".into()
        } else {
            ":0\r\n".into()
        })
    });
    let schedule = connect(&fake.url());
    for _ in 0..2 {
        fails(release(&schedule), AT_ONCE, &["LOADING", "reads its data"]).await;
    }
    release(&schedule).await.unwrap();
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn other_passing_errors_say_what_to_look_at() {
    for (error, word) in [
        ("MASTERDOWN Link with MASTER is down", "a replica"),
        ("CLUSTERDOWN The cluster is down", "CLUSTER INFO"),
        ("TRYAGAIN Multiple keys request", "being moved"),
        ("ASK 1 127.0.0.1:1", "being moved"),
        ("MISCONF Errors writing to disk", "its log"),
        ("NOAUTH Authentication required.", "its ACL"),
        ("NOPERM User has no permissions", "its ACL"),
        ("WRONGPASS invalid username-password pair", "its ACL"),
        ("ERR max number of clients reached", "clients"),
    ] {
        let fake = Fake::start(move |_, command| {
            Some(match command {
                0 => format!("-{error}\r\n"),
                _ => ":0\r\n".into(),
            })
        });
        let schedule = connect(&fake.url());
        let code = error.split(' ').next().unwrap();
        fails(release(&schedule), AT_ONCE, &[code, word]).await;
        release(&schedule).await.unwrap();
    }
}

#[tokio::test]
async fn a_connection_that_is_no_longer_let_in_is_left() {
    let fake = Fake::start(|connection, _| {
        Some(match connection {
            0 => "-NOAUTH Authentication required.\r\n".into(),
            _ => ":0\r\n".into(),
        })
    });
    let schedule = connect(&format!("redis://us:hunter2@127.0.0.1:{}", fake.port));
    let words = [
        "NOAUTH",
        "as user \"us\"",
        "the user and password in the URL",
    ];
    fails(release(&schedule), AT_ONCE, &words).await;
    release(&schedule).await.unwrap();
    assert_eq!(fake.connections(), 2);
    assert_eq!(fake.hello(), "HELLO 3 AUTH us hunter2");
}

/// What is wrong with a script stays wrong however often it is called.
#[tokio::test]
async fn errors_of_a_script_are_not_of_redis() {
    for answer in [
        "-ERR user_script:1: attempt to index a nil value script: 12ab, on @user_script:1.\r\n",
        "-WRONGTYPE Operation against a key holding the wrong kind of value script: 12ab\r\n",
        "+unexpected\r\n",
    ] {
        let fake = Fake::start(move |_, _| Some(answer.into()));
        let error = release(&connect(&fake.url())).await.unwrap_err();
        assert!(!error.is_unavailable(), "{error}");
    }
}

#[tokio::test]
async fn moved_is_followed_once_and_kept_to() {
    let owner = Fake::start(|_, _| Some(":0\r\n".into()));
    let port = owner.port;
    // It has nothing to say but MOVED, without the host, which is its own.
    let first = Fake::start(move |_, _| Some(format!("-MOVED 7 :{port}\r\n")));
    let schedule = connect(&first.url());
    release(&schedule).await.unwrap();
    release(&schedule).await.unwrap();
    let counts = (first.commands(), owner.commands(), owner.connections());
    assert_eq!(counts, (1, 2, 1));
}

#[tokio::test]
async fn moved_twice_is_an_error_and_the_next_call_starts_over() {
    let owner = Fake::start(|_, _| Some(":0\r\n".into()));
    let right = owner.port;
    let stale = Fake::start(|_, _| Some("-MOVED 7 127.0.0.1:1\r\n".into()));
    let wrong = stale.port;
    let first = Fake::start(move |_, command| {
        let port = if command == 0 { wrong } else { right };
        Some(format!("-MOVED 7 127.0.0.1:{port}\r\n"))
    });
    let schedule = connect(&first.url());
    fails(release(&schedule), AT_ONCE, &["MOVED", "don't agree"]).await;
    release(&schedule).await.unwrap();
    assert_eq!((first.commands(), stale.commands()), (2, 1));
}

#[tokio::test]
async fn a_place_moved_to_that_is_not_there_is_left_for_the_first() {
    // Nothing listens there, since the listener is gone when the port is known.
    let gone = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .unwrap();
    let first = Fake::start(move |_, command| {
        Some(match command {
            0 => format!("-MOVED 7 {gone}\r\n"),
            _ => ":0\r\n".into(),
        })
    });
    let schedule = connect(&first.url());
    let place = gone.to_string();
    fails(release(&schedule), AT_ONCE, &["no connection to", &place]).await;
    release(&schedule).await.unwrap();
}

/// The settings of the URL hold where MOVED leads, too.
#[tokio::test]
async fn moved_keeps_the_password() {
    let owner = Fake::start(|_, _| Some(":0\r\n".into()));
    let port = owner.port;
    let first = Fake::start(move |_, _| Some(format!("-MOVED 7 127.0.0.1:{port}\r\n")));
    let url = format!("redis://us:secret@127.0.0.1:{}", first.port);
    release(&connect(&url)).await.unwrap();
    let hellos = [first.hello(), owner.hello()];
    assert_eq!(hellos, ["HELLO 3 AUTH us secret"; 2]);
}

#[tokio::test]
async fn a_call_ends_in_time_whatever_is_slow() {
    // Each step stays below its own second: connecting, MOVED, connecting again, the answer.
    let slow = Duration::from_millis(800);
    let owner = Fake::slow(slow, |_, _| Some(":0\r\n".into()));
    let port = owner.port;
    let first = Fake::slow(slow, move |_, _| Some(format!("-MOVED 7 :{port}\r\n")));
    let schedule = connect(&first.url());
    let within = Duration::from_millis(3700);
    fails(release(&schedule), within, &["within 3s"]).await;
}

/// Connecting costs one command, and a script the server doesn't know two; nothing else is sent.
#[tokio::test]
async fn a_call_costs_one_command() {
    let server = PrivateServer::start();
    let schedule = connect(&server.url());
    seed(&schedule).await.unwrap();
    let _: () = server.run(&["CONFIG", "RESETSTAT"]).await;
    for _ in 0..10 {
        book(&schedule.clone()).await.unwrap();
    }
    let stats: String = server.run(&["INFO", "commandstats"]).await;
    let calls = |command: &str| {
        let (_, rest) = stats.split_once(&format!("cmdstat_{command}:calls="))?;
        rest.split(',').next()?.parse::<u32>().ok()
    };
    assert_eq!(calls("evalsha"), Some(11), "{stats}");
    assert_eq!(calls("script|load"), Some(1), "{stats}");
    assert_eq!((calls("ping"), calls("hello")), (None, None), "{stats}");

    let fake = Fake::start(|_, _| Some(":0\r\n".into()));
    release(&connect(&fake.url())).await.unwrap();
    assert_eq!((fake.hello().as_str(), fake.commands()), ("HELLO 3", 1));
}

/// A server on a port of its own that says OK to HELLO, and to each other command what the test has it say.
struct Fake {
    port: u16,
    heard: Arc<Heard>,
}

#[derive(Default)]
struct Heard {
    connections: AtomicUsize,
    commands: AtomicUsize,
    hello: std::sync::Mutex<String>,
}

impl Fake {
    /// `answer` gets the number of the connection and of the command, from 0; without one, nothing is said.
    fn start(answer: impl Fn(usize, usize) -> Option<String> + Send + Clone + 'static) -> Self {
        Self::slow(Duration::ZERO, answer)
    }

    /// Each answer takes a while, also that to HELLO.
    fn slow(
        takes: Duration,
        answer: impl Fn(usize, usize) -> Option<String> + Send + Clone + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::<Heard>::default();
        let ears = heard.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = ears.connections.fetch_add(1, Ordering::SeqCst);
                let (ears, answer) = (ears.clone(), answer.clone());
                std::thread::spawn(move || {
                    let stream = stream.unwrap();
                    let mut input = BufReader::new(stream.try_clone().unwrap());
                    while let Some(command) = read(&mut input) {
                        std::thread::sleep(takes);
                        let answer = if command[0] == "HELLO" {
                            *ears.hello.lock().unwrap() = command.join(" ");
                            Some("+OK\r\n".to_owned())
                        } else {
                            answer(connection, ears.commands.fetch_add(1, Ordering::SeqCst))
                        };
                        if let Some(answer) = answer {
                            let _ = (&stream).write_all(answer.as_bytes());
                        }
                    }
                });
            }
        });
        Self { port, heard }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn connections(&self) -> usize {
        self.heard.connections.load(Ordering::SeqCst)
    }

    /// How many came, not counting HELLO.
    fn commands(&self) -> usize {
        self.heard.commands.load(Ordering::SeqCst)
    }

    /// The last HELLO.
    fn hello(&self) -> String {
        self.heard.hello.lock().unwrap().clone()
    }
}

/// A command's words; none at the end of the stream.
fn read(input: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let number = |input: &mut BufReader<TcpStream>| -> Option<usize> {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        line.get(1..)?.trim().parse().ok()
    };
    let words = number(input)?;
    (0..words)
        .map(|_| {
            let mut word = vec![0; number(input)? + 2];
            input.read_exact(&mut word).ok()?;
            word.truncate(word.len() - 2);
            String::from_utf8(word).ok()
        })
        .collect()
}
