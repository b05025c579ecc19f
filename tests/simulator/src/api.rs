//! The HTTP side of SES v2: paths and JSON as the AWS SDKs write and read them.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Simulator;
use crate::account::{Account, ConfigurationSet};
use crate::calls::Operation;
use crate::clock::Micros;
use crate::errors::{ApiError, ErrorKind};
use crate::request::{self, Received};
use crate::suppression::{Query, Reason};
use crate::wire::Scissors;

/// SES takes messages of 40 MB; base64 and the rest of the request come on top.
const MAX_BODY: usize = 56 * 1024 * 1024;

type Body = Result<Bytes, BytesRejection>;

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
        .route(
            "/v2/email/suppression/addresses",
            get(list_suppressed).put(put_suppressed),
        )
        .route(
            "/v2/email/suppression/addresses/{address}",
            get(get_suppressed).delete(delete_suppressed),
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

/// Carries out a call other than `SendEmail`, as the account's plan for it says.
async fn call(
    simulator: &Simulator,
    scissors: Scissors,
    operation: Operation,
    set: Option<&str>,
    act: impl FnOnce(&mut Account, Micros) -> Result<Value, ApiError>,
) -> Response {
    let plan = simulator
        .account(|account, now| account.call(now, operation, set, |account| act(account, now)));
    if !plan.latency.is_zero() {
        tokio::time::sleep(plan.latency).await;
    }
    if let Some(cut) = plan.cut {
        scissors.cut(cut);
    }
    plan.answer.map(Json).into_response()
}

async fn get_account(
    State(simulator): State<Arc<Simulator>>,
    ConnectInfo(scissors): ConnectInfo<Scissors>,
) -> Response {
    let operation = Operation::GetAccount;
    call(&simulator, scissors, operation, None, |account, now| {
        let sent = account.sent_last_24_hours(now);
        let settings = account.settings();
        Ok(json!({
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
    .await
}

/// The sending switch as the SDKs write it: what they leave out is false, the default of the API.
#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct SendingOptions {
    sending_enabled: bool,
}

async fn put_account_sending(
    State(simulator): State<Arc<Simulator>>,
    ConnectInfo(scissors): ConnectInfo<Scissors>,
    body: Body,
) -> Response {
    let options = parse::<SendingOptions>(body);
    let operation = Operation::PutAccountSendingAttributes;
    call(&simulator, scissors, operation, None, |account, _| {
        account.set_sending(options?.sending_enabled);
        Ok(json!({}))
    })
    .await
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CreateConfigurationSet {
    configuration_set_name: String,
    sending_options: Option<SendingOptions>,
}

async fn create_configuration_set(
    State(simulator): State<Arc<Simulator>>,
    ConnectInfo(scissors): ConnectInfo<Scissors>,
    body: Body,
) -> Response {
    let request = parse::<CreateConfigurationSet>(body);
    let name = request.as_ref().ok();
    let name = name.map(|request| request.configuration_set_name.clone());
    let operation = Operation::CreateConfigurationSet;
    call(
        &simulator,
        scissors,
        operation,
        name.as_deref(),
        |account, _| {
            let request = request?;
            let options = request.sending_options;
            let set = ConfigurationSet {
                sending_enabled: options.is_none_or(|options| options.sending_enabled),
            };
            account.create_set(&request.configuration_set_name, set)?;
            Ok(json!({}))
        },
    )
    .await
}

/// All in one page.
async fn list_configuration_sets(
    State(simulator): State<Arc<Simulator>>,
    ConnectInfo(scissors): ConnectInfo<Scissors>,
) -> Response {
    let operation = Operation::ListConfigurationSets;
    call(&simulator, scissors, operation, None, |account, _| {
        let names: Vec<&str> = account.set_names().collect();
        Ok(json!({ "ConfigurationSets": names }))
    })
    .await
}

async fn get_configuration_set(
    State(simulator): State<Arc<Simulator>>,
    ConnectInfo(scissors): ConnectInfo<Scissors>,
    Path(name): Path<String>,
) -> Response {
    let operation = Operation::GetConfigurationSet;
    call(
        &simulator,
        scissors,
        operation,
        Some(&name),
        |account, _| {
            let set = account.set(&name)?;
            Ok(json!({
                "ConfigurationSetName": name,
                "SendingOptions": { "SendingEnabled": set.sending_enabled },
                "Tags": [],
            }))
        },
    )
    .await
}

async fn delete_configuration_set(
    State(simulator): State<Arc<Simulator>>,
    ConnectInfo(scissors): ConnectInfo<Scissors>,
    Path(name): Path<String>,
) -> Response {
    let operation = Operation::DeleteConfigurationSet;
    call(
        &simulator,
        scissors,
        operation,
        Some(&name),
        |account, _| {
            account.delete_set(&name)?;
            Ok(json!({}))
        },
    )
    .await
}

async fn put_configuration_set_sending(
    State(simulator): State<Arc<Simulator>>,
    ConnectInfo(scissors): ConnectInfo<Scissors>,
    Path(name): Path<String>,
    body: Body,
) -> Response {
    let options = parse::<SendingOptions>(body);
    let operation = Operation::PutConfigurationSetSendingOptions;
    call(
        &simulator,
        scissors,
        operation,
        Some(&name),
        |account, _| {
            account.set_set_sending(&name, options?.sending_enabled)?;
            Ok(json!({}))
        },
    )
    .await
}

async fn list_suppressed(
    State(simulator): State<Arc<Simulator>>,
    ConnectInfo(scissors): ConnectInfo<Scissors>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = Query::read(&query.unwrap_or_default());
    let operation = Operation::ListSuppressedDestinations;
    call(&simulator, scissors, operation, None, |account, now| {
        Ok(account.suppressions().page(&query?, now))
    })
    .await
}

async fn get_suppressed(
    State(simulator): State<Arc<Simulator>>,
    ConnectInfo(scissors): ConnectInfo<Scissors>,
    Path(address): Path<String>,
) -> Response {
    let operation = Operation::GetSuppressedDestination;
    call(&simulator, scissors, operation, None, |account, now| {
        account.suppressions().shown(&address, now)
    })
    .await
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PutSuppressed {
    email_address: String,
    reason: Reason,
}

async fn put_suppressed(
    State(simulator): State<Arc<Simulator>>,
    ConnectInfo(scissors): ConnectInfo<Scissors>,
    body: Body,
) -> Response {
    let request = parse_personal::<PutSuppressed>(body);
    let operation = Operation::PutSuppressedDestination;
    call(&simulator, scissors, operation, None, |account, now| {
        let PutSuppressed {
            email_address,
            reason,
        } = request?;
        if request::domain(&email_address).is_none() {
            return Err(ApiError::new(
                ErrorKind::BadRequest,
                "EmailAddress is not valid.",
            ));
        }
        account.suppressions_mut().put(&email_address, reason, now);
        Ok(json!({}))
    })
    .await
}

async fn delete_suppressed(
    State(simulator): State<Arc<Simulator>>,
    ConnectInfo(scissors): ConnectInfo<Scissors>,
    Path(address): Path<String>,
) -> Response {
    let operation = Operation::DeleteSuppressedDestination;
    call(&simulator, scissors, operation, None, |account, now| {
        account.suppressions_mut().delete(&address, now)?;
        Ok(json!({}))
    })
    .await
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

/// As `parse`, with an error that quotes nothing of the body.
fn parse_personal<T: DeserializeOwned>(body: Body) -> Result<T, ApiError> {
    parse(body).map_err(|error| ApiError {
        message: "the body is not of the expected form".to_owned(),
        ..error
    })
}

fn unreadable(rejection: &BytesRejection) -> ApiError {
    let kind = match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ErrorKind::BadRequest,
        _ => ErrorKind::Serialization,
    };
    ApiError::new(kind, rejection.body_text())
}
