//! The HTTP side of SES v2: paths and JSON as the AWS SDKs write and read them.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Simulator;
use crate::account::ConfigurationSet;
use crate::errors::{ApiError, ErrorKind};
use crate::request::{self, Received};
use crate::wire::Scissors;

/// SES takes messages of 40 MB; base64 and the rest of the request come on top.
const MAX_BODY: usize = 56 * 1024 * 1024;

type Body = Result<Bytes, BytesRejection>;
type Answer = Result<Json<Value>, ApiError>;

pub(crate) fn routes() -> Router<Arc<Simulator>> {
    let set = "/v2/email/configuration-sets/{name}";
    Router::new()
        .route("/v2/email/outbound-emails", post(send_email))
        .route("/v2/email/account", get(get_account))
        .route("/v2/email/account/sending", put(put_account_sending))
        // Older SDKs list with GET on the path that creates.
        .route(
            "/v2/email/configuration-sets",
            post(create_configuration_set).get(list_configuration_sets),
        )
        .route(
            "/v2/email/list-configuration-sets",
            post(list_configuration_sets),
        )
        .route(
            set,
            get(get_configuration_set).delete(delete_configuration_set),
        )
        .route(
            "/v2/email/configuration-sets/{name}/sending",
            put(put_configuration_set_sending),
        )
        .fallback(unknown_operation)
        .method_not_allowed_fallback(unknown_operation)
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

/// The request has been read when this is called: that is its arrival.
async fn send_email(
    State(simulator): State<Arc<Simulator>>,
    ConnectInfo(scissors): ConnectInfo<Scissors>,
    body: Body,
) -> Response {
    let received = match body {
        Ok(body) => request::read(&body),
        Err(rejection) => Received::unreadable(unreadable(&rejection)),
    };
    let plan = simulator.account(|account, now| account.send(now, received));
    simulator.events.push(plan.events);
    if !plan.latency.is_zero() {
        tokio::time::sleep(plan.latency).await;
    }
    if let Some(cut) = plan.cut {
        scissors.cut(cut);
    }
    match plan.answer {
        Ok(id) => Json(json!({ "MessageId": id })).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn get_account(State(simulator): State<Arc<Simulator>>) -> Json<Value> {
    simulator.account(|account, now| {
        let sent = account.sent_last_24_hours(now);
        let settings = account.settings();
        Json(json!({
            "DedicatedIpAutoWarmupEnabled": false,
            "EnforcementStatus": settings.enforcement,
            "ProductionAccessEnabled": settings.production_access,
            "SendQuota": {
                "Max24HourSend": settings.daily,
                "MaxSendRate": settings.rate,
                "SentLast24Hours": sent,
            },
            "SendingEnabled": settings.sending_enabled,
            "SuppressionAttributes": { "SuppressedReasons": ["BOUNCE", "COMPLAINT"] },
        }))
    })
}

/// The sending switch as the SDKs write it: what they leave out is false, the default of the API.
#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct SendingOptions {
    sending_enabled: bool,
}

async fn put_account_sending(State(simulator): State<Arc<Simulator>>, body: Body) -> Answer {
    let options: SendingOptions = parse(body)?;
    simulator.account(|account, _| account.set_sending(options.sending_enabled));
    Ok(Json(json!({})))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CreateConfigurationSet {
    configuration_set_name: String,
    sending_options: Option<SendingOptions>,
}

async fn create_configuration_set(State(simulator): State<Arc<Simulator>>, body: Body) -> Answer {
    let request: CreateConfigurationSet = parse(body)?;
    let set = ConfigurationSet {
        sending_enabled: request
            .sending_options
            .is_none_or(|options| options.sending_enabled),
    };
    simulator.account(|account, _| account.create_set(&request.configuration_set_name, set))?;
    Ok(Json(json!({})))
}

/// All in one page.
async fn list_configuration_sets(State(simulator): State<Arc<Simulator>>) -> Json<Value> {
    let names: Vec<String> =
        simulator.account(|account, _| account.set_names().map(str::to_owned).collect());
    Json(json!({ "ConfigurationSets": names }))
}

async fn get_configuration_set(
    State(simulator): State<Arc<Simulator>>,
    Path(name): Path<String>,
) -> Answer {
    let set = simulator.account(|account, _| account.set(&name))?;
    Ok(Json(json!({
        "ConfigurationSetName": name,
        "SendingOptions": { "SendingEnabled": set.sending_enabled },
        "Tags": [],
    })))
}

async fn delete_configuration_set(
    State(simulator): State<Arc<Simulator>>,
    Path(name): Path<String>,
) -> Answer {
    simulator.account(|account, _| account.delete_set(&name))?;
    Ok(Json(json!({})))
}

async fn put_configuration_set_sending(
    State(simulator): State<Arc<Simulator>>,
    Path(name): Path<String>,
    body: Body,
) -> Answer {
    let options: SendingOptions = parse(body)?;
    let enabled = options.sending_enabled;
    simulator.account(|account, _| account.set_set_sending(&name, enabled))?;
    Ok(Json(json!({})))
}

async fn unknown_operation() -> ApiError {
    ApiError::new(
        ErrorKind::UnknownOperation,
        "the simulator has no such operation",
    )
}

fn parse<T: DeserializeOwned>(body: Body) -> Result<T, ApiError> {
    let body = body.map_err(|rejection| unreadable(&rejection))?;
    serde_json::from_slice(&body)
        .map_err(|error| ApiError::new(ErrorKind::Serialization, error.to_string()))
}

fn unreadable(rejection: &BytesRejection) -> ApiError {
    let kind = match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ErrorKind::BadRequest,
        _ => ErrorKind::Serialization,
    };
    ApiError::new(kind, rejection.body_text())
}
