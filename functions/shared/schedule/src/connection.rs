//! How Redis is reached, and what is done when it isn't.
//!
//! A [`Link`] holds one connection, which its clones share. The connection is dropped, and the next call makes
//! a new one to the address of the URL, which is resolved anew, when:
//! - an answer is late, or its caller gave up waiting: the server may be frozen, or the connection lead nowhere
//!   after a failover. (The crate's own `ConnectionManager` keeps a connection after a time-out.)
//! - the server closed it, also while nobody was calling: no call is lost on a connection known to be closed.
//! - the server isn't the one to ask: READONLY, MASTERDOWN, CLUSTERDOWN.
//! - it was unused for [`IDLE_AT_MOST`]: the network on the way forgets it, and a call sent into it is a call whose
//!   end nobody knows.
//! - its authentication is about to end ([`Credentials::lasts`]). Calls under way on it end there, in peace.
//! - the server says NOAUTH or WRONGPASS. The next call asks for fresh credentials, since a password may have been
//!   changed.
//!
//! A call that failed isn't sent again, since nobody knows whether the server ran it. Two answers say that it
//! didn't: NOSCRIPT, after which the script is loaded, and MOVED, which is followed once.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, ProtocolVersion, PushInfo,
    PushKind, RedisError, RedisFuture, RedisResult, ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    make_extension_error,
};
use tokio::sync::OnceCell;

use crate::{Credentials, Keys, Login, Schedule, ScheduleError, script::Scripts};

/// What [`Login::credentials`] may take: a token is signed at once, a secret is one call over TLS.
pub(crate) const CREDENTIALS_WITHIN: Duration = Duration::from_secs(2);

/// Resolving the name, the handshake with TLS, and HELLO: a few round trips inside one region.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Scripts take a few milliseconds, so only a server in trouble takes longer.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// A call with all that it may need: a connection, loading a script, following MOVED.
pub(crate) const CALL_WITHIN: Duration = Duration::from_secs(3);
/// Lambda's and NAT's networks forget a connection that was silent for 350 s.
pub(crate) const IDLE_AT_MOST: Duration = Duration::from_mins(5);

impl Schedule {
    /// The schedule behind a `redis://` or `rediss://` URL (the latter is TLS, checked against the
    /// system's certificate authorities). Nothing is sent before the first call. A call connects if it finds no
    /// connection, and ends within 3 s whatever happens: at once when connections are refused, after 1 s when
    /// connecting or an answer takes longer. Later calls work as soon as Redis does.
    ///
    /// # Errors
    /// When the URL is no Redis URL.
    pub fn connect(url: &str, keys: Keys) -> Result<Self, ScheduleError> {
        Self::connect_behind(url, keys, "", IDLE_AT_MOST, None)
    }

    /// The same, with credentials from `login` in place of the URL's.
    ///
    /// # Errors
    /// When the URL is no Redis URL.
    pub fn connect_as(url: &str, keys: Keys, login: Arc<dyn Login>) -> Result<Self, ScheduleError> {
        Self::connect_behind(url, keys, "", IDLE_AT_MOST, Some(login))
    }

    pub(crate) fn connect_behind(
        url: &str,
        keys: Keys,
        prelude: &str,
        idle_at_most: Duration,
        login: Option<Arc<dyn Login>>,
    ) -> Result<Self, ScheduleError> {
        Ok(Self {
            connection: Link::open(url, idle_at_most, login)?,
            keys,
            scripts: Arc::new(Scripts::behind(prelude)),
            expects: None,
        })
    }

    /// The keys in use.
    #[must_use]
    pub const fn keys(&self) -> &Keys {
        &self.keys
    }
}

/// The way to Redis. Clones share one connection.
#[derive(Clone)]
pub(crate) struct Link(Arc<Shared>);

struct Shared {
    /// Where the URL leads.
    configured: Client,
    /// Whose credentials new connections have; without it, the URL's.
    login: Option<Arc<dyn Login>>,
    idle_at_most: Duration,
    current: Mutex<Current>,
}

impl Shared {
    fn line_to(&self, client: Client) -> Arc<Line> {
        Line::to(client, self.login.clone())
    }
}

struct Current {
    line: Arc<Line>,
    /// When a call last took it.
    used: Past,
}

/// A time gone by. Two clocks, since either may stand still while the process is frozen.
#[derive(Clone, Copy)]
struct Past(Instant, SystemTime);

impl Past {
    fn now() -> Self {
        Self(Instant::now(), SystemTime::now())
    }

    fn elapsed(&self) -> Duration {
        let Self(instant, time) = self;
        instant.elapsed().max(time.elapsed().unwrap_or_default())
    }
}

/// One connection, or the attempt at it: all who wait for it share its outcome.
struct Line {
    client: Client,
    login: Option<Arc<dyn Login>>,
    connection: OnceCell<RedisResult<Open>>,
    /// The server has closed it.
    lost: Arc<AtomicBool>,
}

/// A connection that was let in.
struct Open {
    connection: MultiplexedConnection,
    /// What let it in, if that wasn't the URL.
    given: Option<Credentials>,
    /// When that was asked for.
    since: Past,
}

impl Link {
    fn open(
        url: &str,
        idle_at_most: Duration,
        login: Option<Arc<dyn Login>>,
    ) -> Result<Self, ScheduleError> {
        // Without a provider named, rustls can't tell which of those built in to take. Installing fails
        // only if one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::open(url).map_err(ScheduleError::Url)?;
        let info = client.get_connection_info().clone();
        // Version 3 tells of a closed connection before the next call; the library's name is of no use to anybody
        // and costs two commands.
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        let configured =
            Client::open(info.set_redis_settings(settings)).map_err(ScheduleError::Url)?;
        let current = Mutex::new(Current {
            line: Line::to(configured.clone(), login.clone()),
            used: Past::now(),
        });
        Ok(Self(Arc::new(Shared {
            configured,
            login,
            idle_at_most,
            current,
        })))
    }

    /// A call within [`CALL_WITHIN`].
    ///
    /// # Errors
    /// The call's, or that it took longer.
    pub(crate) async fn bound<T>(
        &self,
        call: impl Future<Output = RedisResult<T>>,
    ) -> RedisResult<T> {
        tokio::time::timeout(CALL_WITHIN, call)
            .await
            .unwrap_or_else(|_| Err(late(&self.0.configured, "end of the call", CALL_WITHIN)))
    }

    /// Sends one command, and follows MOVED once.
    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let line = self.line().await;
        let answer = self.send_on(&line, command).await;
        let Err(error) = &answer else {
            return answer;
        };
        let Some(client) = moved_to(error, &line.client) else {
            return answer;
        };
        let line = self.follow(&line, client);
        let answer = self.send_on(&line, command).await;
        if matches!(&answer, Err(error) if is_moved(error)) {
            self.leave(&line);
        }
        answer
    }

    async fn send_on(&self, line: &Arc<Line>, command: &Cmd) -> RedisResult<Value> {
        let open = match line.connection.get_or_init(|| line.connect()).await {
            Ok(open) => open,
            Err(error) => {
                self.leave(line);
                return Err(error.clone());
            }
        };
        let mut unanswered = Unanswered {
            link: self,
            line: Some(line),
        };
        let mut connection = open.connection.clone();
        let answer = connection.send_packed_command(command).await;
        unanswered.line = None;
        let answer = answer.and_then(Value::extract_error);
        answer.map_err(|error| {
            if is_fatal(&error) {
                self.leave(line);
            }
            let error = line.name_user(error, open.given.as_ref());
            name_place(&line.client, error)
        })
    }

    /// The connection to use now.
    async fn line(&self) -> Arc<Line> {
        // A connection closed meanwhile is known to be, once the runtime has polled its sockets (the first time) and
        // run what that woke (the second). It takes a few microseconds.
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        let mut current = self.lock();
        if current.used.elapsed() > self.0.idle_at_most || current.line.is_over() {
            current.line = self.0.line_to(self.0.configured.clone());
        }
        current.used = Past::now();
        current.line.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        let current = self.0.current.lock();
        current.unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the connection, unless another call has done so already.
    fn leave(&self, line: &Arc<Line>) {
        self.replace(line, || self.0.configured.clone());
    }

    /// Goes to where the slot is now, unless another call has gone there, or elsewhere, already. What isn't reached
    /// there, or fails later, is looked for at the URL's address again.
    fn follow(&self, line: &Arc<Line>, client: Client) -> Arc<Line> {
        self.replace(line, || client)
    }

    fn replace(&self, line: &Arc<Line>, client: impl FnOnce() -> Client) -> Arc<Line> {
        let mut current = self.lock();
        if Arc::ptr_eq(&current.line, line) {
            current.line = self.0.line_to(client());
        }
        current.line.clone()
    }
}

/// Drops the connection when a caller gives up waiting, which its own time-out makes it do.
struct Unanswered<'a> {
    link: &'a Link,
    line: Option<&'a Arc<Line>>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(line) = self.line {
            self.link.leave(line);
        }
    }
}

impl ConnectionLike for Link {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(self.send(command))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a redis::Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        // A script does in one command what a pipeline would do in several.
        let error = (ErrorKind::Client, "pipelines are not sent over this link");
        Box::pin(std::future::ready(Err(error.into())))
    }

    fn get_db(&self) -> i64 {
        self.0
            .configured
            .get_connection_info()
            .redis_settings()
            .db()
    }
}

impl Line {
    fn to(client: Client, login: Option<Arc<dyn Login>>) -> Arc<Self> {
        Arc::new(Self {
            client,
            login,
            connection: OnceCell::new(),
            lost: Arc::default(),
        })
    }

    /// Whether a call that starts now should take another: closed, or closed before the call would be over.
    fn is_over(&self) -> bool {
        let ends = || {
            let open = self.connection.get()?.as_ref().ok()?;
            let lasts = open.given.as_ref()?.lasts?;
            Some(open.since.elapsed() + CALL_WITHIN > lasts)
        };
        self.lost.load(Ordering::Acquire) || ends().unwrap_or(false)
    }

    async fn connect(&self) -> RedisResult<Open> {
        let since = Past::now();
        let (client, given) = match &self.login {
            None => (self.client.clone(), None),
            Some(login) => {
                let given = ask(login.as_ref()).await?;
                (as_user(&self.client, &given)?, Some(given))
            }
        };
        let lost = self.lost.clone();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_response_timeout(Some(ANSWER_WITHIN))
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    lost.store(true, Ordering::Release);
                }
                Ok::<(), ()>(())
            });
        let connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await;
        match connection {
            Ok(connection) => Ok(Open {
                connection,
                given,
                since,
            }),
            Err(error) => Err(self.unconnected(error, given.as_ref())),
        }
    }

    /// Why there is no connection.
    fn unconnected(&self, error: RedisError, given: Option<&Credentials>) -> RedisError {
        if about_user(&error).is_some() {
            return self.name_user(error, given);
        }
        if error.is_timeout() {
            return late(&self.client, "connection", CONNECT_WITHIN);
        }
        let kind = if error.is_connection_refusal() {
            io::ErrorKind::ConnectionRefused
        } else {
            io::ErrorKind::NotConnected
        };
        let what = format!("no connection to {}: {}", place(&self.client), said(&error));
        io::Error::new(kind, what).into()
    }

    /// An error that is about the user says which one, and what to look at; if the user wasn't let in, its login gets
    /// to know. Other errors stay as they are.
    fn name_user(&self, error: RedisError, given: Option<&Credentials>) -> RedisError {
        let Some(code) = about_user(&error) else {
            return error;
        };
        let settings = self.client.get_connection_info().redis_settings();
        let user = given
            .and_then(|given| given.user.as_deref())
            .or(settings.username())
            .unwrap_or("default");
        let advice = if code == "NOPERM" {
            "its ACL must allow the keys and commands that infra/cache.yaml has as AccessString"
                .to_owned()
        } else {
            if let (Some(login), Some(given)) = (&self.login, given) {
                login.refused(given);
            }
            let place = self.login.as_deref().map(Login::look_at);
            let place = place.unwrap_or("the user and password in the URL");
            format!("see {place}, and its ACL")
        };
        let detail = error.detail().unwrap_or_default();
        let detail = format!("{detail} (as user {user:?}: {advice})");
        make_extension_error(code.to_owned(), Some(detail))
    }
}

async fn ask(login: &dyn Login) -> RedisResult<Credentials> {
    let asked = tokio::time::timeout(CREDENTIALS_WITHIN, login.credentials()).await;
    let why = match asked {
        Ok(Ok(given)) => return Ok(given),
        Ok(Err(why)) => why.to_string(),
        Err(_) => format!(
            "none within {CREDENTIALS_WITHIN:?}: see {}",
            login.look_at()
        ),
    };
    let kind = ErrorKind::AuthenticationFailed;
    Err((kind, "no credentials for redis", why).into())
}

/// The same place, as this user.
fn as_user(client: &Client, given: &Credentials) -> RedisResult<Client> {
    let info = client.get_connection_info().clone();
    let mut settings = info.redis_settings().clone().set_password(&given.password);
    if let Some(user) = &given.user {
        settings = settings.set_username(user);
    }
    Client::open(info.set_redis_settings(settings))
}

fn place(client: &Client) -> &ConnectionAddr {
    client.get_connection_info().addr()
}

fn late(client: &Client, what: &str, within: Duration) -> RedisError {
    let what = format!("{}: no {what} within {within:?}", place(client));
    io::Error::new(io::ErrorKind::TimedOut, what).into()
}

/// An error of the network doesn't say with whom.
fn name_place(client: &Client, error: RedisError) -> RedisError {
    if error.is_timeout() {
        late(client, "answer", ANSWER_WITHIN)
    } else if error.is_io_error() {
        let what = format!("{}: lost before the answer: {error}", place(client));
        io::Error::new(io::ErrorKind::BrokenPipe, what).into()
    } else {
        error
    }
}

/// Whether the next call needs another connection.
fn is_fatal(error: &RedisError) -> bool {
    let elsewhere = matches!(
        error.kind(),
        ErrorKind::Server(
            ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::ClusterDown
        )
    );
    elsewhere
        || error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
}

/// What it says if that is that the user isn't let in, or not to all it needs.
fn about_user(error: &RedisError) -> Option<&'static str> {
    match error.code()? {
        "NOAUTH" => Some("NOAUTH"),
        "WRONGPASS" => Some("WRONGPASS"),
        "NOPERM" => Some("NOPERM"),
        // What a script may not do is an error of the script to some versions.
        "ERR" if error.detail()?.starts_with("ACL failure in script") => Some("NOPERM"),
        _ => None,
    }
}

fn is_moved(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::Moved)
}

/// Where MOVED sends to, with the settings of `from`. All our keys share one slot, so everything is there.
fn moved_to(error: &RedisError, from: &Client) -> Option<Client> {
    if !is_moved(error) {
        return None;
    }
    let (address, _slot) = error.redirect_node()?;
    // The last colon, since the host may be an IPv6 address.
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let info = from.get_connection_info();
    let mut to = info.addr().clone();
    match &mut to {
        ConnectionAddr::Tcp(old_host, old_port)
        | ConnectionAddr::TcpTls {
            host: old_host,
            port: old_port,
            ..
        } => {
            // A server that doesn't know its own name leaves it out: the same host.
            if !host.is_empty() && host != "?" {
                host.clone_into(old_host);
            }
            *old_port = port;
        }
        _ => to = ConnectionAddr::Tcp(host.to_owned(), port),
    }
    Client::open(info.clone().set_addr(to)).ok()
}

/// What Redis said, with its own word for it.
fn said(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (None, Some(detail)) if error.kind() == ErrorKind::AuthenticationFailed => {
            format!("no credentials: {detail}")
        }
        _ => error.to_string(),
    }
}

/// What Redis said, and what to look at.
pub(crate) fn told(error: &RedisError) -> String {
    let advice = match error.code() {
        _ if error.is_io_error() => {
            "is it running, and do the URL, the subnets and the security groups lead to it?"
        }
        Some("READONLY" | "MASTERDOWN") => {
            "this is a replica: the next call resolves the name anew; if that doesn't help, the URL isn't the primary's"
        }
        Some("LOADING") => "it has started and reads its data: works when it is done",
        Some("CLUSTERDOWN") => "a part of the cluster is missing: see CLUSTER INFO",
        Some("TRYAGAIN" | "ASK") => "the slot is being moved: works when that is done",
        Some("MOVED") => "the cluster's nodes don't agree on who has the slot: see CLUSTER SLOTS",
        Some("OOM") => "its memory is full: see INFO memory, and give it more",
        Some("NOREPLICAS") => "too few replicas follow it: see INFO replication",
        Some("BUSY") => "a script, not of this call, runs too long: see SLOWLOG GET",
        Some("MISCONF") => "it can't save its data: see its log and disk",
        _ => return said(error),
    };
    format!("{} ({advice})", said(error))
}

/// Whether it says that Redis can't be used at the moment, rather than that a script is wrong. An error code of a
/// script's own must be told apart before.
pub(crate) fn is_unavailable(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::UnexpectedReturnType
        | ErrorKind::Server(ServerErrorKind::CrossSlot | ServerErrorKind::ExecAbort) => false,
        ErrorKind::Server(ServerErrorKind::ResponseError) => {
            // Redis names the script in whatever one has run into.
            !error.detail().is_some_and(|said| said.contains("script"))
        }
        _ => error.code() != Some("WRONGTYPE"),
    }
}
