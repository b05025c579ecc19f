//! The simulator's own paths, for tests: settings, records, faults and events.

use std::io;
use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Map, Value, json};

use crate::Simulator;
use crate::faults::{self, Fault};
use crate::publisher::Counts;
use crate::settings::Settings;

pub(crate) fn routes() -> Router<Arc<Simulator>> {
    Router::new()
        .route("/_simulator/settings", get(settings).put(change_settings))
        .route("/_simulator/record", get(record).delete(clear_record))
        .route("/_simulator/calls", get(calls).delete(clear_calls))
        .route(
            "/_simulator/faults",
            get(faults).put(set_faults).delete(clear_faults),
        )
        .route("/_simulator/events", get(events))
}

async fn settings(State(simulator): State<Arc<Simulator>>) -> Json<Settings> {
    simulator.account(|account, _| Json(account.settings().clone()))
}

/// Answers with all settings as they are now.
async fn change_settings(State(simulator): State<Arc<Simulator>>, body: Bytes) -> Response {
    let changes = match object(&body) {
        Ok(changes) => changes,
        Err(message) => return refused(&message),
    };
    simulator.account(|account, now| match account.change(now, &changes) {
        Ok(()) => Json(account.settings().clone()).into_response(),
        Err(error) => refused(&error.to_string()),
    })
}

async fn record(State(simulator): State<Arc<Simulator>>) -> impl IntoResponse {
    let array = simulator.account(|account, _| account.record().to_json_array());
    ([(header::CONTENT_TYPE, "application/json")], array)
}

async fn clear_record(State(simulator): State<Arc<Simulator>>) -> Response {
    cleared(simulator.account(|account, _| account.clear_record()))
}

async fn calls(State(simulator): State<Arc<Simulator>>) -> impl IntoResponse {
    let array = simulator.account(|account, _| account.calls().to_json_array());
    ([(header::CONTENT_TYPE, "application/json")], array)
}

async fn clear_calls(State(simulator): State<Arc<Simulator>>) -> Response {
    cleared(simulator.account(|account, _| account.clear_calls()))
}

fn cleared(result: io::Result<()>) -> Response {
    match result {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => {
            let message = format!("failed to empty the record file: {error}");
            let body = Json(json!({ "message": message }));
            (StatusCode::INTERNAL_SERVER_ERROR, body).into_response()
        }
    }
}

async fn faults(State(simulator): State<Arc<Simulator>>) -> Json<Value> {
    simulator.account(|account, _| shown(account.faults()))
}

/// Answers with all faults as they are now.
async fn set_faults(State(simulator): State<Arc<Simulator>>, body: Bytes) -> Response {
    let body = match object(&body) {
        Ok(body) => body,
        Err(message) => return refused(&message),
    };
    match faults::parse(&body) {
        Ok(rules) => simulator.account(|account, _| {
            account.set_faults(rules);
            shown(account.faults()).into_response()
        }),
        Err(error) => refused(&error.to_string()),
    }
}

async fn clear_faults(State(simulator): State<Arc<Simulator>>) -> StatusCode {
    simulator.account(|account, _| account.set_faults(Vec::new()));
    StatusCode::NO_CONTENT
}

fn shown(rules: &[Fault]) -> Json<Value> {
    Json(json!({ "faults": rules }))
}

async fn events(State(simulator): State<Arc<Simulator>>) -> Json<Counts> {
    Json(simulator.events.counts())
}

fn object(body: &[u8]) -> Result<Map<String, Value>, String> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("body must be a JSON object".to_owned()),
        Err(error) => Err(format!("body is not JSON: {error}")),
    }
}

fn refused(message: &str) -> Response {
    let body = Json(json!({ "message": message }));
    (StatusCode::BAD_REQUEST, body).into_response()
}
