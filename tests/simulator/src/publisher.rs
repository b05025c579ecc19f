//! Posts events to EventBridge in the background, so that no send waits for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::Simulator;
use crate::clock::Micros;
use crate::events::Event;

/// The most entries of one `PutEvents`.
const BATCH: usize = 10;
/// How many requests may be under way at once.
pub(crate) const WORKERS: usize = 4;
/// The pauses before a request is tried again.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1600),
];
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most events that wait; those beyond are lost.
const MOST_WAITING: usize = 100_000;
const MAX_ANSWER: usize = 1024 * 1024;

type HttpClient = Client<HttpConnector, Body>;

/// What became of the events so far.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Counts {
    /// Neither published nor lost yet.
    pub(crate) waiting: usize,
    /// Taken by EventBridge.
    pub(crate) published: usize,
    /// Given up.
    pub(crate) lost: usize,
    /// Why the last attempt failed that did.
    pub(crate) last_error: Option<String>,
}

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<Event>,
    counts: Counts,
}

/// The events that wait, by the time at which they may go.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    more: Notify,
}

impl Queue {
    /// Adds events. Never waits.
    pub(crate) fn push(&self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let mut inner = self.lock();
        if inner.events.len() + events.len() > MOST_WAITING {
            inner.counts.lost += events.len();
            inner.counts.last_error = Some("too many events wait".to_owned());
            return;
        }
        inner.counts.waiting += events.len();
        for event in events {
            // By time, and those of one time as they came.
            let place = inner.events.partition_point(|other| other.at <= event.at);
            inner.events.insert(place, event);
        }
        drop(inner);
        self.more.notify_one();
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    /// Takes the next events that are due, at least one and at most a batch.
    async fn take(&self, now: impl Fn() -> Micros) -> Vec<Event> {
        loop {
            match self.take_due(now()) {
                Ok(batch) => return batch,
                Err(Some(wait)) => sleep(wait).await,
                Err(None) => self.more.notified().await,
            }
        }
    }

    /// Takes what is due; or tells how long until something is, if anything waits.
    fn take_due(&self, now: Micros) -> Result<Vec<Event>, Option<Duration>> {
        let mut inner = self.lock();
        let first = inner.events.front().ok_or(None)?;
        if first.at > now {
            return Err(Some(Duration::from_micros(first.at - now)));
        }
        let due = inner.events.iter().take(BATCH);
        let due = due.take_while(|event| event.at <= now).count();
        let batch = inner.events.drain(..due).collect();
        if !inner.events.is_empty() {
            self.more.notify_one();
        }
        Ok(batch)
    }

    /// Counts what became of events that were taken.
    fn settle(&self, published: usize, lost: usize, error: Option<String>) {
        let counts = &mut self.lock().counts;
        counts.waiting -= published + lost;
        counts.published += published;
        counts.lost += lost;
        if error.is_some() {
            counts.last_error = error;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Publishes for ever.
pub(crate) async fn work(simulator: Arc<Simulator>) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    loop {
        let batch = simulator.events.take(|| simulator.now()).await;
        publish(&client, &simulator, batch).await;
    }
}

async fn publish(client: &HttpClient, simulator: &Simulator, mut batch: Vec<Event>) {
    let mut pauses = PAUSES.iter();
    loop {
        let endpoint = simulator.account(|account, _| account.settings().events_endpoint.clone());
        let attempt = put_events(client, &endpoint, &batch);
        let attempt = timeout(TIMEOUT, attempt).await;
        let attempt = attempt.unwrap_or_else(|_| Err("no answer within 5 s".to_owned()));
        let before = batch.len();
        let error = match attempt {
            Ok(results) => {
                let error = results.iter().find_map(Entry::error);
                let mut results = results.iter();
                batch.retain(|_| results.next().is_some_and(|entry| entry.error().is_some()));
                error
            }
            Err(error) => Some(error),
        };
        let pause = pauses.next().filter(|_| !batch.is_empty());
        let lost = if pause.is_none() { batch.len() } else { 0 };
        simulator.events.settle(before - batch.len(), lost, error);
        let Some(pause) = pause else { return };
        sleep(*pause).await;
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PutEventsAnswer {
    entries: Vec<Entry>,
}

/// What became of one event of a request.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    error_code: Option<String>,
    error_message: Option<String>,
}

impl Entry {
    fn error(&self) -> Option<String> {
        let code = self.error_code.as_deref()?;
        let message = self.error_message.as_deref().unwrap_or_default();
        Some(format!("{code}: {message}"))
    }
}

/// One `PutEvents`: what became of each event, or why the request failed as a whole.
async fn put_events(
    client: &HttpClient,
    endpoint: &str,
    batch: &[Event],
) -> Result<Vec<Entry>, String> {
    if endpoint.is_empty() {
        return Err("events_endpoint is empty".to_owned());
    }
    let body = json!({ "Entries": batch.iter().map(entry).collect::<Vec<_>>() });
    let request = Request::post(endpoint)
        .header(header::CONTENT_TYPE, "application/x-amz-json-1.1")
        .header("x-amz-target", "AWSEvents.PutEvents")
        .body(Body::from(body.to_string()))
        .map_err(|error| error.to_string())?;
    let response = client.request(request).await;
    let response = response.map_err(|error| format!("failed to reach {endpoint}: {error}"))?;
    let status = response.status();
    let body = to_bytes(Body::new(response.into_body()), MAX_ANSWER).await;
    let body = body.map_err(|error| format!("failed to read the answer: {error}"))?;
    if !status.is_success() {
        return Err(format!("{status}: {}", String::from_utf8_lossy(&body)));
    }
    let answer: PutEventsAnswer = serde_json::from_slice(&body)
        .map_err(|error| format!("the answer is not that of PutEvents: {error}"))?;
    Ok(answer.entries)
}

fn entry(event: &Event) -> Value {
    json!({
        "Time": event.at / 1_000_000,
        "Source": "aws.ses",
        "Resources": [event.resource],
        "DetailType": event.detail_type,
        "Detail": event.detail.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(times: impl IntoIterator<Item = Micros>) -> Vec<Event> {
        let event = |at| Event {
            at,
            detail_type: "Email Sent",
            resource: String::new(),
            detail: json!({}),
        };
        times.into_iter().map(event).collect()
    }

    #[test]
    fn what_is_due_goes_in_batches_of_ten() {
        let queue = Queue::default();
        assert_eq!(queue.take_due(0), Err(None));
        queue.push(events(1..=25));
        assert_eq!(queue.take_due(0), Err(Some(Duration::from_micros(1))));
        let sizes = [10, 10, 4].map(|_| queue.take_due(24).unwrap().len());
        assert_eq!(sizes, [10, 10, 4]);
        assert_eq!(queue.take_due(24), Err(Some(Duration::from_micros(1))));
        assert_eq!(queue.counts().waiting, 25, "none is published yet");
    }

    #[test]
    fn what_is_due_first_goes_first() {
        let queue = Queue::default();
        queue.push(events([5, 2, 9]));
        queue.push(events([1, 5]));
        let due = queue.take_due(9).unwrap();
        let times: Vec<_> = due.iter().map(|event| event.at).collect();
        assert_eq!(times, [1, 2, 5, 5, 9]);
    }

    #[test]
    fn a_full_queue_loses_what_comes() {
        let queue = Queue::default();
        for _ in 0..MOST_WAITING / 10 {
            queue.push(events(0..10));
        }
        queue.push(events(0..1));
        let counts = queue.counts();
        assert_eq!((counts.waiting, counts.lost), (MOST_WAITING, 1));
    }
}
