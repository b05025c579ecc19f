//! The simulator's own paths, for tests: settings and record.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};

use crate::Simulator;
use crate::settings::Settings;

pub(crate) fn routes() -> Router<Arc<Simulator>> {
    Router::new()
        .route("/_simulator/settings", get(settings).put(change_settings))
        .route("/_simulator/record", get(record).delete(clear_record))
}

async fn settings(State(simulator): State<Arc<Simulator>>) -> Json<Settings> {
    simulator.account(|account, _| Json(account.settings().clone()))
}

/// Answers with all settings as they are now.
async fn change_settings(State(simulator): State<Arc<Simulator>>, body: Bytes) -> Response {
    let changes = match serde_json::from_slice(&body) {
        Ok(Value::Object(changes)) => changes,
        Ok(_) => return refused("body must be a JSON object of settings"),
        Err(error) => return refused(&format!("body is not JSON: {error}")),
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
    match simulator.account(|account, _| account.clear_record()) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => {
            let message = format!("failed to empty the record file: {error}");
            let body = Json(json!({ "message": message }));
            (StatusCode::INTERNAL_SERVER_ERROR, body).into_response()
        }
    }
}

fn refused(message: &str) -> Response {
    let body = Json(json!({ "message": message }));
    (StatusCode::BAD_REQUEST, body).into_response()
}
