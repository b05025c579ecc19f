//! Enough of SES v2 for the AWS SDK and CLI, with enforced limits and a record of every arrival.
//!
//! # Layout
//!
//! Pure, with the time as an argument:
//! * [`limits`]: the send rate, in two models, and the daily quota.
//! * [`latency`]: how long answers take.
//! * [`request`]: reads and checks a `SendEmail` body.
//! * [`settings`]: what can be set.
//! * [`faults`]: which requests fail on purpose.
//! * [`suppression`]: whom SES lets nobody send to.
//! * [`events`]: what SES publishes of a mail.
//! * [`calls`]: the operations other than `SendEmail`, with their limit.
//! * [`account`]: puts these together and decides what happens to a request.
//!
//! At the edges:
//! * [`errors`]: SES's error shapes.
//! * [`record`]: the record of arrivals, in memory and in a file.
//! * [`clock`]: the one clock.
//! * `api` and `control`: the HTTP paths.
//! * `wire`: connections that can be cut without an answer.
//! * `publisher`: posts the events to EventBridge.
//! * [`args`]: the command line.

pub mod account;
mod api;
pub mod args;
pub mod calls;
pub mod clock;
mod control;
pub mod errors;
pub mod events;
pub mod faults;
pub mod latency;
pub mod limits;
mod publisher;
pub mod record;
pub mod request;
pub mod settings;
pub mod suppression;
mod wire;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware;
use axum::response::Response;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::account::Account;
use crate::clock::{Clock, Micros};
use crate::publisher::Queue;
use crate::record::Record;
use crate::settings::Settings;
use crate::wire::{Scissors, Wires};

/// How long requests under way may take once the server was told to stop.
const GRACE: Duration = Duration::from_secs(3);

static REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");

/// The account behind the server, with its clock.
#[derive(Debug)]
pub struct Simulator {
    clock: Clock,
    account: Mutex<Account>,
    events: Queue,
    requests: AtomicU64,
}

impl Simulator {
    /// A simulator of an account that has not sent yet.
    #[must_use]
    pub fn new(settings: Settings, record: Record) -> Self {
        let clock = Clock::start();
        Self {
            account: Mutex::new(Account::new(settings, record, clock.now())),
            clock,
            events: Queue::default(),
            requests: AtomicU64::new(0),
        }
    }

    fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Does something with the account. The time is read with the account in hand, so that times
    /// rise in the order of decisions.
    pub fn account<T>(&self, act: impl FnOnce(&mut Account, Micros) -> T) -> T {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut account, self.clock.now())
    }
}

/// Serves until `stop` completes; then finishes the requests under way, for at most three seconds.
/// Events that then still wait are not published.
///
/// # Errors
/// The listener failed.
pub async fn serve(
    listener: TcpListener,
    simulator: Simulator,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let simulator = Arc::new(simulator);
    // Dropped at the end, which stops them.
    let mut publishers = JoinSet::new();
    for _ in 0..publisher::WORKERS {
        publishers.spawn(publisher::work(Arc::clone(&simulator)));
    }
    let routes: Router = api::routes()
        .merge(control::routes())
        .layer(middleware::map_response_with_state(
            Arc::clone(&simulator),
            add_request_id,
        ))
        .with_state(simulator);
    let routes = routes.into_make_service_with_connect_info::<Scissors>();
    let (stopping, stopped) = tokio::sync::oneshot::channel();
    let server = axum::serve(Wires(listener), routes).with_graceful_shutdown(async move {
        stop.await;
        let _ = stopping.send(());
    });
    let overdue = async {
        let _ = stopped.await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        result = server.into_future() => result,
        () = overdue => Ok(()),
    }
}

async fn add_request_id(
    State(simulator): State<Arc<Simulator>>,
    mut response: Response,
) -> Response {
    let count = simulator.requests.fetch_add(1, Ordering::Relaxed);
    let id = format!("00000000-0000-4000-8000-{count:012x}");
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(&REQUEST_ID, id);
    }
    response
}
