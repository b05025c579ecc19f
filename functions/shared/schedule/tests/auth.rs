//! Who Redis lets in, and to what: the user of the template, against a server with access control; passwords that
//! change, authentication that ends, and TLS.
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't set itself up has failed"
)]

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use redis::{FromRedisValue, aio::MultiplexedConnection};
use sendslot_domain::{
    Budget, Cell, Lane, Millis, Moment, Rate, SendId, TenantName,
    budget::Settings,
    suppression::{AddressDigest, Cause},
    window::Caps,
};
use sendslot_schedule::{
    Ask, Asked, Booking, Claim, ClaimAsk, Credentials, End, Ending, Fed, Keys, Login,
    NoCredentials, Note, Purpose, Schedule, ScheduleError, Seed, Standing, Tenant, Terms, Told,
    Unused, What, testing::PrivateServer,
};
use tokio::net::{TcpListener, UnixStream};
use tokio_rustls::{TlsAcceptor, rustls};

const USER: &str = "fns-1";
/// A call with all that it may need, as the crate promises.
const CALL_WITHIN: Duration = Duration::from_secs(3);

/// What the template lets the functions' user do, for this budget.
fn access(budget: &str) -> Vec<String> {
    let template = include_str!("../../../../infra/cache.yaml");
    let (_, rest) = template.split_once("AccessString: !Sub >-\n").unwrap();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let deep = indent(rest.lines().next().unwrap());
    let lines = rest.lines().take_while(|line| indent(line) == deep);
    let words: Vec<_> = lines
        .flat_map(str::split_whitespace)
        .map(|word| word.replace("${Budget}", budget))
        .collect();
    assert!(words.len() > 10, "{words:?}");
    words
}

/// A server that lets in the user of the template and, for the test, an administrator.
struct Guarded {
    server: PrivateServer,
    admin: Mutex<MultiplexedConnection>,
}

impl Guarded {
    async fn start(password: &str) -> Self {
        let server = PrivateServer::start();
        let mut admin = server.connection().await;
        let root = "ACL SETUSER root on >root ~* &* +@all";
        run::<()>(&mut admin, root).await.unwrap();
        run::<()>(&mut admin, "AUTH root root").await.unwrap();
        // As ElastiCache leaves it.
        let off = "ACL SETUSER default off resetkeys -@all";
        run::<()>(&mut admin, off).await.unwrap();
        let guarded = Self {
            server,
            admin: Mutex::new(admin),
        };
        let set = format!("ACL SETUSER {USER} >{password} {}", access("ses").join(" "));
        guarded.run::<()>(&set).await;
        guarded
    }

    async fn run<T: FromRedisValue>(&self, words: &str) -> T {
        let mut admin = self.admin.lock().unwrap().clone();
        run(&mut admin, words).await.unwrap()
    }

    fn as_user(&self, login: &Arc<Pass>) -> Schedule {
        let keys = Keys::of("ses").unwrap();
        Schedule::connect_as(&self.server.url(), keys, login.clone()).unwrap()
    }

    /// What the server logged as denied, in its words.
    async fn denied(&self) -> Vec<String> {
        let log: Vec<redis::Value> = self.run("ACL LOG").await;
        log.iter().map(|entry| format!("{entry:?}")).collect()
    }
}

async fn run<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    words: &str,
) -> redis::RedisResult<T> {
    let mut command = redis::Cmd::new();
    command.arg(words.split(' ').collect::<Vec<_>>());
    command.query_async(connection).await
}

/// A provider that keeps a password, and looks at what it is now when Redis refuses it.
#[derive(Default)]
struct Pass {
    now: Mutex<String>,
    kept: Mutex<Option<String>>,
    lasts: Option<Duration>,
    asked: AtomicUsize,
    refused: AtomicUsize,
}

impl Pass {
    fn new(password: &str) -> Arc<Self> {
        Self::lasting(password, None)
    }

    fn lasting(password: &str, lasts: Option<Duration>) -> Arc<Self> {
        Arc::new(Self {
            now: Mutex::new(password.into()),
            lasts,
            ..Self::default()
        })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Login for Pass {
    fn credentials(&self) -> Asked<'_> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut kept = self.kept.lock().unwrap();
        let password = kept.get_or_insert_with(|| self.now.lock().unwrap().clone());
        let credentials = Credentials {
            user: Some(USER.into()),
            password: password.clone(),
            lasts: self.lasts,
        };
        Box::pin(std::future::ready(Ok(credentials)))
    }

    fn refused(&self, credentials: &Credentials) {
        self.refused.fetch_add(1, Ordering::SeqCst);
        let mut kept = self.kept.lock().unwrap();
        kept.take_if(|kept| *kept == credentials.password);
    }

    fn look_at(&self) -> &'static str {
        "the test's own password"
    }
}

fn tenant() -> TenantName {
    "acme".parse().unwrap()
}

fn a_seed() -> Seed {
    let budget = Budget::new(Settings {
        limit: "100".parse().unwrap(),
        headroom: "0.9".parse().unwrap(),
        guard: "0.95".parse().unwrap(),
        burst: None,
        reserve: Rate::ZERO,
        slice: "0.1".parse().unwrap(),
        caps: Caps {
            hour: Some(10_000),
            day: Some(100_000),
        },
        horizon: Millis::from_secs(2),
    });
    Seed {
        source: "deploy".into(),
        budget: budget.unwrap(),
        tenants: vec![
            (tenant(), Tenant::default()),
            ("beta".parse().unwrap(), Tenant::default()),
        ],
    }
}

fn an_ask(tenant: TenantName, standing: Standing) -> Ask {
    Ask {
        tenant,
        cost: 1,
        standing,
    }
}

async fn book(schedule: &Schedule) -> Result<(), ScheduleError> {
    let ask = an_ask(tenant(), Standing::New);
    schedule.book(Lane::Bulk, &[ask]).await.map(drop)
}

fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Moment(since.as_millis().try_into().unwrap())
}

/// The call fails as unavailable, and says so with these words and without those.
async fn fails(
    call: impl Future<Output = Result<(), ScheduleError>>,
    words: &[&str],
    secrets: &[&str],
) {
    let started = Instant::now();
    let error = call.await.unwrap_err();
    assert!(started.elapsed() < CALL_WITHIN + Duration::from_millis(700));
    assert!(error.is_unavailable(), "{error}");
    let said = format!("{error} {error:?}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
    for secret in secrets {
        assert!(!said.contains(secret), "{secret:?} is in {said:?}");
    }
}

/// A password as long as a token of IAM with a session token, and of the same characters.
fn token() -> String {
    let session = "IQoJb3JpZ2luX2Vj%2FEXAMPLE%2Btoken%3D%3D".repeat(40);
    format!("cache/?Action=connect&User={USER}&X-Amz-Expires=900&X-Amz-Security-Token={session}")
}

/// Every script, in ways that lead it far.
async fn every_script(schedule: &Schedule) {
    assert!(schedule.seed(&a_seed()).await.unwrap());
    let beta: TenantName = "beta".parse().unwrap();
    let mut slots = Vec::new();
    for round in 0..40 {
        let of = if round % 2 == 0 {
            tenant()
        } else {
            beta.clone()
        };
        let asks = vec![an_ask(of, Standing::New); 10];
        for lane in Lane::ALL {
            slots.extend(schedule.book(lane, &asks).await.unwrap());
        }
    }
    let booked = |b: &Booking| matches!(b, Booking::Slot(_));
    assert!(slots.iter().any(booked), "{slots:?}");
    assert!(!slots.iter().all(booked), "nobody had to wait");
    let unused = Unused {
        tenant: tenant(),
        goes: Cell(1),
        cells: vec![(Cell(1), 1)],
        slot_only: false,
    };
    schedule.release(Lane::Bulk, &[unused]).await.unwrap();

    let terms = Terms {
        lane: Lane::Bulk,
        lease: Millis(45_000),
        longest_wait: Millis(2000),
        memory: Millis(100_000),
        resend_after: None,
    };
    let ask = |id: &str| ClaimAsk {
        tenant: tenant(),
        send_id: id.parse().unwrap(),
        fingerprint: "f".into(),
        cost: 1,
        slot: now(),
        suspect_since: None,
        void: None,
        purpose: Purpose::Send,
    };
    let asks = [ask("a"), ask("b")];
    let claims = schedule.claim("me", terms, &asks).await.unwrap();
    assert!(
        claims.iter().all(|c| matches!(c, Claim::Go { .. })),
        "{claims:?}"
    );
    schedule.renew("me", terms, &asks).await.unwrap();
    let end = |id: &str, how| End {
        tenant: tenant(),
        send_id: id.parse().unwrap(),
        how,
        cost: 1,
    };
    let ends = [end("a", Ending::Sent), end("b", Ending::Free)];
    schedule
        .commit("me", Lane::Bulk, Millis(100_000), &ends)
        .await
        .unwrap();
    schedule.slow(now(), 5).await.unwrap();
    schedule
        .pause(&tenant(), Some(Millis(60_000)), "test")
        .await
        .unwrap();
    assert!(schedule.resume(&tenant()).await.unwrap());
    let (length, longest) = (Millis(1000), Millis(10_000));
    schedule.block(length, longest, "test").await.unwrap();
    assert!(schedule.unblock(&["test"]).await.unwrap());
    schedule.look().await.unwrap();
    every_script_of_feedback(schedule).await;
    every_script_of_operators(schedule).await;
}

async fn every_script_of_operators(schedule: &Schedule) {
    let memory = Millis(100_000);
    let ids = ["a", "x", "y"].map(|id| id.parse::<SendId>().unwrap());
    let asks = vec![an_ask(tenant(), Standing::New); 2];
    let traced = [Some(ids[1].clone()), None];
    let booked = schedule.book_mail(Lane::Bulk, &asks, &traced, &[AddressDigest([7; 16])]);
    booked.await.unwrap();
    let note = Note {
        tenant: tenant(),
        send_id: ids[1].clone(),
        lane: Lane::Bulk,
        cost: 1,
        what: What::Dead {
            reason: "test".into(),
        },
    };
    schedule.trace(&[note.clone(), note], memory).await.unwrap();
    let mails = ids.clone().map(|id| (tenant(), id));
    let found = schedule.find(&mails).await.unwrap();
    assert!(
        found[0].claim.is_some() && !found[1].steps.is_empty(),
        "{found:?}"
    );
    schedule.cancel(&tenant(), &ids[1], memory).await.unwrap();
    schedule.tally(&[tenant()], memory).await.unwrap();
    schedule.draw_dead(Lane::Bulk, 1, 0, 5.0).await.unwrap();
    let health = schedule.health().await.unwrap();
    assert!(
        health.version.is_some() && health.used_memory > Some(0),
        "{health:?}"
    );
}

async fn every_script_of_feedback(schedule: &Schedule) {
    let (note, gone) = ([("walked", "1".to_owned())], [("walked", String::new())]);
    schedule.note(&note).await.unwrap();
    schedule.note(&gone).await.unwrap();
    let tenants = [(tenant(), "{}".to_owned())];
    schedule.write_tenants(&tenants).await.unwrap();
    let held = schedule.tenants(&[tenant()]).await.unwrap();
    assert_eq!(held, [Some("{}".to_owned())]);

    let address = |n| AddressDigest([n; 16]);
    let event = |id: &str, told, ago: Millis| Fed {
        id: id.into(),
        tenant: tenant(),
        send_id: "a".parse().unwrap(),
        told,
        recipients: 1,
        sent_at: Moment(now().0 - ago.0),
        suppress: (told == Told::Bounced).then(|| (Cause::Bounce, vec![address(1)])),
    };
    let day = Millis(86_000_000);
    // A mail of now, one that leaves the windows soon, and one told of twice; the tenant was resumed before, from when on is counted.
    let events = [
        event("1", Told::Sent, Millis(0)),
        event("2", Told::Sent, day),
        event("3", Told::Bounced, Millis(0)),
        event("3", Told::Bounced, Millis(0)),
        event("4", Told::Complained, Millis(0)),
        event("5", Told::Else, Millis(0)),
    ];
    let fed = schedule.feed(Millis(100_000), &events).await.unwrap();
    let new: Vec<_> = fed.iter().map(|(new, _)| *new).collect();
    assert_eq!(new, [true, true, true, false, true, true]);
    schedule.counts(&[tenant()]).await.unwrap();

    let listed: Vec<_> = (2..200).map(|n| (address(n), Cause::Complaint)).collect();
    assert_eq!(schedule.suppress(&listed).await.unwrap(), 198);
    schedule.sweep(0).await.unwrap();
    let asks = [an_ask(tenant(), Standing::New)];
    let addresses = [address(0), address(1), address(199)];
    let booked = schedule.book_for(Lane::Bulk, &asks, &addresses);
    assert_eq!(booked.await.unwrap().1, [1, 2]);
    schedule.pause(&tenant(), None, "test").await.unwrap();
    let booked = schedule.book_for(Lane::Bulk, &asks, &addresses);
    assert_eq!(booked.await.unwrap(), (vec![Booking::Paused], vec![1, 2]));

    schedule.set_replay(&tenant(), 2.0).await.unwrap();
    assert_eq!(schedule.draw(&tenant(), 5, 0, 1.0).await.unwrap(), 1);
    schedule.end_replay(&tenant()).await.unwrap();
}

#[tokio::test]
async fn the_templates_user_runs_every_script() {
    let guarded = Guarded::start(&token()).await;
    let login = Pass::new(&token());
    every_script(&guarded.as_user(&login)).await;
    assert_eq!(guarded.denied().await, [""; 0]);
    assert_eq!(login.asked(), 1);
}

#[tokio::test]
async fn the_templates_user_can_do_nothing_else() {
    let guarded = Guarded::start("pass").await;
    let url = format!("{}?user={USER}&pass=pass", guarded.server.url());
    let client = redis::Client::open(url).unwrap();
    let mut user = client.get_multiplexed_async_connection().await.unwrap();
    for denied in [
        "KEYS *",
        "SCAN 0",
        "FLUSHALL",
        "FLUSHDB",
        "CONFIG GET maxmemory",
        "ACL LIST",
        "ACL WHOAMI",
        "EVAL return 0",
        "SCRIPT FLUSH",
        "CLIENT LIST",
        "MONITOR",
        "PUBLISH a b",
        "GET sendslot:{ses}:budget",
        "HGET sendslot:{other}:budget source",
        "SET other 1",
        "MGET sendslot:{ses}:budget other",
        "DEL sendslot:{ses2}:budget",
    ] {
        let answer = run::<redis::Value>(&mut user, denied).await;
        let error = answer.expect_err(denied);
        assert_eq!(error.code(), Some("NOPERM"), "{denied}: {error}");
    }
    let allowed = "HGET sendslot:{ses}:budget source";
    run::<Option<String>>(&mut user, allowed).await.unwrap();
    let _: () = guarded.run("ACL LOG RESET").await;
    // Scripts don't widen it.
    for code in [
        "return redis.call('FLUSHALL')",
        "return redis.call('GET', 'x')",
    ] {
        let mut load = redis::cmd("SCRIPT");
        let sha: String = load
            .arg("LOAD")
            .arg(code)
            .query_async(&mut user)
            .await
            .unwrap();
        let call = format!("EVALSHA {sha} 0");
        let error = run::<redis::Value>(&mut user, &call).await.unwrap_err();
        assert!(
            error.to_string().contains("ACL failure in script"),
            "{error}"
        );
    }
    assert_eq!(guarded.denied().await.len(), 2);
}

#[tokio::test]
async fn another_budget_is_denied_and_the_error_names_the_user() {
    let guarded = Guarded::start("pass-1").await;
    let other = Schedule::connect_as(
        &guarded.server.url(),
        Keys::of("other").unwrap(),
        Pass::new("pass-1"),
    );
    let words = ["NOPERM", "as user \"fns-1\"", "AccessString"];
    fails(book(&other.unwrap()), &words, &["pass-1"]).await;

    // So is a command that a script needs and the user lost; it works again with the next call.
    let schedule = guarded.as_user(&Pass::new("pass-1"));
    schedule.seed(&a_seed()).await.unwrap();
    let _: () = guarded.run("ACL SETUSER fns-1 -time").await;
    fails(book(&schedule), &words, &["pass-1"]).await;
    let _: () = guarded.run("ACL SETUSER fns-1 +time").await;
    book(&schedule).await.unwrap();
}

#[tokio::test]
async fn nobody_is_let_in_without_a_user() {
    let guarded = Guarded::start("pass-1").await;
    let anonymous = Schedule::connect(&guarded.server.url(), Keys::of("ses").unwrap()).unwrap();
    let words = ["NOAUTH", "as user \"default\"", "in the URL", "its ACL"];
    fails(book(&anonymous), &words, &[]).await;
    let url = format!("{}?user=fns-1&pass=guess-1", guarded.server.url());
    let guessing = Schedule::connect(&url, Keys::of("ses").unwrap()).unwrap();
    let words = ["WRONGPASS", "as user \"fns-1\"", "in the URL", "its ACL"];
    fails(book(&guessing), &words, &["guess-1", "pass-1"]).await;
}

#[tokio::test]
async fn a_password_that_is_changed_costs_one_call() {
    let guarded = Guarded::start("first-1").await;
    let login = Pass::new("first-1");
    let schedule = guarded.as_user(&login);
    schedule.seed(&a_seed()).await.unwrap();
    *login.now.lock().unwrap() = "second-2".into();
    let _: () = guarded.run("ACL SETUSER fns-1 resetpass >second-2").await;
    // A connection that was let in stays.
    book(&schedule).await.unwrap();
    assert_eq!(login.asked(), 1);
    let _: i64 = guarded.run("CLIENT KILL USER fns-1").await;
    let words = [
        "WRONGPASS",
        "as user \"fns-1\"",
        "see the test's own password",
    ];
    fails(book(&schedule), &words, &["first-1", "second-2"]).await;
    assert_eq!(login.refused.load(Ordering::SeqCst), 1);
    for _ in 0..3 {
        book(&schedule).await.unwrap();
    }
    assert_eq!(login.asked(), 3);

    // As long as both are wrong, each call says so.
    let _: () = guarded.run("ACL SETUSER fns-1 resetpass >third-3").await;
    let _: i64 = guarded.run("CLIENT KILL USER fns-1").await;
    for _ in 0..3 {
        fails(book(&schedule), &words, &["second-2", "third-3"]).await;
    }
    // A user that is turned off is refused likewise, and comes back.
    *login.now.lock().unwrap() = "third-3".into();
    let _: () = guarded.run("ACL SETUSER fns-1 off").await;
    fails(book(&schedule), &words, &["third-3"]).await;
    let _: () = guarded.run("ACL SETUSER fns-1 on").await;
    book(&schedule).await.unwrap();
}

#[tokio::test]
async fn a_connection_whose_authentication_ends_is_replaced_without_an_error() {
    let guarded = Guarded::start("pass").await;
    let login = Pass::lasting("pass", Some(CALL_WITHIN + Duration::from_millis(300)));
    let schedule = guarded.as_user(&login);
    schedule.seed(&a_seed()).await.unwrap();
    let started = Instant::now();
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let schedule = schedule.clone();
            tokio::spawn(async move {
                let mut calls = 0;
                while started.elapsed() < Duration::from_secs(2) {
                    book(&schedule).await.unwrap();
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let mut calls = 0;
    for caller in callers {
        calls += caller.await.unwrap();
    }
    let asked = login.asked();
    // Once each 300 ms, and not more than that: callers share the new one, too.
    assert!(
        (4..=9).contains(&asked),
        "{asked} connections, {calls} calls"
    );
    assert!(calls > 20 * asked, "{asked} connections, {calls} calls");
    // Those left are closed when nobody uses them any more.
    let list: String = guarded.run("CLIENT LIST").await;
    let open = list.matches("user=fns-1").count();
    assert_eq!(open, 1, "{list}");
}

/// The call under way when the authentication is about to end has all the time it may take.
#[tokio::test]
async fn a_call_under_way_ends_on_the_connection_it_has() {
    let guarded = Guarded::start("pass").await;
    let login = Pass::lasting("pass", Some(CALL_WITHIN + Duration::from_millis(1500)));
    let schedule = guarded.as_user(&login);
    schedule.seed(&a_seed()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    guarded.server.freeze();
    let of = |schedule: &Schedule| {
        let schedule = schedule.clone();
        tokio::spawn(async move { book(&schedule).await })
    };
    let before = of(&schedule);
    tokio::time::sleep(Duration::from_millis(600)).await;
    let after = of(&schedule);
    tokio::time::sleep(Duration::from_millis(150)).await;
    guarded.server.thaw();
    before.await.unwrap().unwrap();
    after.await.unwrap().unwrap();
    assert_eq!(login.asked(), 2);
}

/// Fails, or never answers.
struct Broken(Option<&'static str>);

impl Login for Broken {
    fn credentials(&self) -> Asked<'_> {
        Box::pin(async {
            match self.0 {
                Some(why) => Err(NoCredentials(why.into())),
                None => std::future::pending().await,
            }
        })
    }

    fn refused(&self, _: &Credentials) {}

    fn look_at(&self) -> &'static str {
        "the test"
    }
}

#[tokio::test]
async fn credentials_that_are_not_to_be_had_are_an_error_in_time() {
    let server = PrivateServer::start();
    let keys = || Keys::of("ses").unwrap();
    let broken = |why| Schedule::connect_as(&server.url(), keys(), Arc::new(Broken(why))).unwrap();
    let words = ["no credentials", "the secret is gone"];
    fails(book(&broken(Some("the secret is gone"))), &words, &[]).await;
    let words = ["no credentials", "none within 2s", "see the test"];
    fails(book(&broken(None)), &words, &["is it running"]).await;
}

/// A certificate authority in a file, and a way into the server over TLS with a certificate of it for `localhost`.
struct Terminator {
    port: u16,
    authority: PathBuf,
}

impl Terminator {
    async fn start(server: &PrivateServer) -> Self {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

        let mut of_authority = CertificateParams::new([]).unwrap();
        of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = of_authority.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(of_authority, key);
        let key = KeyPair::generate().unwrap();
        let of_server = CertificateParams::new(["localhost".into()]).unwrap();
        let certificate = of_server.signed_by(&key, &issuer).unwrap();
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            );
        let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
        let socket = server.url().replace("redis+unix://", "");
        let file = Path::new(&socket).with_file_name("authority.pem");
        std::fs::write(&file, authority).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((outside, _)) = listener.accept().await {
                let (acceptor, socket) = (acceptor.clone(), socket.clone());
                tokio::spawn(async move {
                    let mut outside = acceptor.accept(outside).await?;
                    let mut inside = UnixStream::connect(socket).await?;
                    tokio::io::copy_bidirectional(&mut outside, &mut inside).await
                });
            }
        });
        Self {
            port,
            authority: file,
        }
    }
}

const TLS_URL: &str = "SENDSLOT_TEST_TLS_URL";

/// What authorities are trusted is read from the environment, which a process can't change for itself alone.
#[test]
#[ignore = "run by the test below, in an environment of its own"]
fn one_call_over_tls() {
    let url = std::env::var(TLS_URL).unwrap();
    let keys = Keys::of("ses").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let schedule = Schedule::connect_as(&url, keys, Pass::new("pass")).unwrap();
        if let Err(error) = schedule.seed(&a_seed()).await {
            panic!("{error}");
        }
        book(&schedule).await.unwrap();
    });
}

#[tokio::test]
async fn tls_is_spoken_with_those_whom_the_systems_authorities_vouch_for() {
    let guarded = Guarded::start("pass").await;
    let tls = Terminator::start(&guarded.server).await;
    let child = async |host: &str, trusted: Option<&Path>| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "one_call_over_tls", "--ignored", "--nocapture"])
            .env(TLS_URL, format!("rediss://{host}:{}", tls.port))
            .env_remove("SSL_CERT_FILE")
            .env_remove("SSL_CERT_DIR");
        if let Some(file) = trusted {
            child.env("SSL_CERT_FILE", file);
        }
        let output = tokio::task::spawn_blocking(move || child.output().unwrap()).await;
        let output = output.unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    let (worked, said) = child("localhost", Some(&tls.authority)).await;
    assert!(worked, "{said}");
    assert!(said.contains("1 passed"), "{said}");
    let (worked, said) = child("localhost", None).await;
    assert!(!worked && said.contains("UnknownIssuer"), "{said}");
    let (worked, said) = child("127.0.0.1", Some(&tls.authority)).await;
    assert!(!worked && said.contains("not valid for name"), "{said}");
}
