//! What AWS asks for it, and what a mail takes of it: `docs/prices.json` and `docs/costs.json`, as they were when this was built.

use serde::Deserialize;

const PRICES: &str = include_str!("../../docs/prices.json");
const COSTS: &str = include_str!("../../docs/costs.json");

/// List prices, in dollars.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Prices {
    /// Of this region.
    pub region: String,
    /// On this day.
    pub as_of: String,
    /// A request to SQS.
    pub sqs_request: f64,
    /// More for one with a `MessageGroupId`.
    pub sqs_fair_request_surcharge: f64,
    /// An invocation.
    pub lambda_request: f64,
    /// A second of a gigabyte.
    pub lambda_gb_second: f64,
    /// A recipient.
    pub ses_mail: f64,
    /// A gigabyte of logs.
    pub cloudwatch_logs_gb: f64,
}

/// What one mail takes, as `make costs` counts it: all of it but waits, as there are none in what it sends.
#[derive(Clone, Debug, PartialEq)]
pub struct PerMail {
    /// Whether it was counted. Otherwise it is an assumption.
    pub counted: bool,
    /// At this many recipients per second. Batches are smaller where it is slower, and everything is a little more.
    pub rate_per_second: f64,
    /// Requests to SQS.
    pub sqs_requests: f64,
    /// Those of them that have a `MessageGroupId`.
    pub sqs_grouped: f64,
    /// Invocations.
    pub lambda_requests: f64,
    /// Seconds of a gigabyte.
    pub lambda_gb_seconds: f64,
    /// Bytes of logs.
    pub log_bytes: f64,
    /// Calls to Redis.
    pub redis_calls: f64,
    /// Bytes that it leaves in Redis until its mark ends.
    pub redis_bytes: f64,
    /// Mails in a batch of `reserve`.
    pub reserve_batch: f64,
    /// Of a batch of `reserve`, seconds of a gigabyte.
    pub reserve_gb_seconds: f64,
}

#[derive(Deserialize)]
struct Costs {
    #[serde(default = "yes")]
    counted: bool,
    rate_per_second: f64,
    sqs_requests: f64,
    lambda_requests: f64,
    lambda_gb_seconds: f64,
    log_bytes: f64,
    redis_calls: f64,
    redis_bytes: f64,
    events: Option<Stretch>,
}

const fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct Stretch {
    mails: f64,
    requests: Vec<(String, String, String, String, Requests)>,
    invocations: std::collections::BTreeMap<String, Runs>,
}

#[derive(Deserialize)]
struct Requests {
    grouped: f64,
}

#[derive(Deserialize)]
struct Runs {
    count: f64,
    billed_ms: f64,
    memory_mb: f64,
}

/// The prices.
///
/// # Errors
/// Never, as a test reads them.
pub fn prices() -> Result<Prices, serde_json::Error> {
    serde_json::from_str(PRICES)
}

/// What a mail takes.
///
/// # Errors
/// Never, as a test reads it.
pub fn per_mail() -> Result<PerMail, serde_json::Error> {
    of(COSTS)
}

fn of(text: &str) -> Result<PerMail, serde_json::Error> {
    let Costs {
        counted,
        rate_per_second,
        sqs_requests,
        lambda_requests,
        lambda_gb_seconds,
        log_bytes,
        redis_calls,
        redis_bytes,
        events,
    } = serde_json::from_str(text)?;
    let events = events.filter(|events| events.mails > 0.0);
    let grouped = events.as_ref().map(|events| {
        let sqs = events
            .requests
            .iter()
            .filter(|(service, ..)| service == "sqs");
        sqs.map(|(.., requests)| requests.grouped).sum::<f64>() / events.mails
    });
    let reserve = events.as_ref().and_then(|events| {
        let runs = events
            .invocations
            .get("reserve")
            .filter(|runs| runs.count > 0.0)?;
        Some((
            events.mails / runs.count,
            runs.billed_ms / 1000.0 * runs.memory_mb / 1024.0 / runs.count,
        ))
    });
    // Not counted: ten in a batch, a twentieth of a second at 512 MB.
    let (reserve_batch, reserve_gb_seconds) = reserve.unwrap_or((10.0, 0.025));
    Ok(PerMail {
        counted,
        rate_per_second,
        sqs_requests,
        sqs_grouped: grouped.unwrap_or(0.3),
        lambda_requests,
        lambda_gb_seconds,
        log_bytes,
        redis_calls,
        redis_bytes,
        reserve_batch,
        reserve_gb_seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_are_read() {
        let prices = prices().unwrap();
        assert_eq!(prices.region, "us-east-1");
        assert!(prices.sqs_request > 0.0 && prices.ses_mail > prices.sqs_request);
        let per_mail = per_mail().unwrap();
        assert!(per_mail.sqs_requests >= per_mail.sqs_grouped);
        assert!(
            (1.0..=10.0).contains(&per_mail.reserve_batch),
            "{per_mail:?}"
        );
    }

    #[test]
    fn what_was_counted_is_taken_apart() {
        let text = r#"{"sqs_requests":1.0,"lambda_requests":0.4,"lambda_gb_seconds":0.1,"log_bytes":500.0,"redis_calls":0.3,
            "redis_bytes":800,"rate_per_second":100.0,"events":{"mails":3000,"ses_requests":1,
            "requests":[["sqs","SendMessageBatch","function","send",{"count":1,"billed":400,"grouped":400,"size":1}],
                        ["s3","PutObject","function","",{"count":1,"billed":1,"grouped":7,"size":1}],
                        ["sqs","SendMessageBatch","other","intake",{"count":1,"billed":300,"grouped":200,"size":1}]],
            "invocations":{"reserve":{"count":600,"cold":1,"billed_ms":12000,"memory_mb":512,"log_bytes":1}}}}"#;
        let per_mail = of(text).unwrap();
        assert!(per_mail.counted);
        assert!((per_mail.sqs_grouped - 0.2).abs() < 1e-9);
        assert!((per_mail.reserve_batch - 5.0).abs() < 1e-9);
        assert!((per_mail.reserve_gb_seconds - 0.01).abs() < 1e-9);
    }
}
