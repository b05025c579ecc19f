//! JSON log lines with the keys of Powertools for AWS Lambda.
//!
//! A line holds `timestamp`, `level`, `message` and the event's own fields, and under `span` the
//! `service`, `cold_start` and `function_request_id` of the invocation.

use std::{
    env,
    sync::atomic::{AtomicBool, Ordering},
};

use lambda_runtime::{
    Context,
    tracing::{Span, info_span, subscriber},
};
use subscriber::{EnvFilter, filter::LevelFilter, fmt};

/// Starts logging to standard output. The level is `POWERTOOLS_LOG_LEVEL`, else
/// `AWS_LAMBDA_LOG_LEVEL` (what Lambda sets from the function's logging configuration), else
/// `INFO`. A second call does nothing.
pub fn init() {
    let level = level(|name| env::var(name).ok());
    let filter = EnvFilter::builder()
        .with_default_directive(level.into())
        .parse_lossy("");
    // An error here means that logging has been started before.
    let _started = fmt()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_target(false)
        .with_env_filter(filter)
        .try_init();
}

fn level(var: impl Fn(&str) -> Option<String>) -> LevelFilter {
    ["POWERTOOLS_LOG_LEVEL", "AWS_LAMBDA_LOG_LEVEL"]
        .into_iter()
        .filter_map(var)
        .find_map(|text| match text.to_ascii_uppercase().as_str() {
            "WARNING" => Some(LevelFilter::WARN),
            "CRITICAL" | "FATAL" => Some(LevelFilter::ERROR),
            text => text.parse().ok(),
        })
        .unwrap_or(LevelFilter::INFO)
}

/// The span that an invocation's log lines belong to.
#[must_use]
pub fn invocation(service: &str, context: &Context) -> Span {
    static WARM: AtomicBool = AtomicBool::new(false);
    let cold_start = !WARM.swap(true, Ordering::Relaxed);
    info_span!(
        "invocation",
        service,
        cold_start,
        function_request_id = context.request_id
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powertools_level_goes_before_lambdas() {
        let set = |own: &'static str, lambda: &'static str| {
            level(move |name| {
                let value = if name.starts_with("POWER") {
                    own
                } else {
                    lambda
                };
                (!value.is_empty()).then(|| value.to_owned())
            })
        };
        assert_eq!(set("", ""), LevelFilter::INFO);
        assert_eq!(set("", "DEBUG"), LevelFilter::DEBUG);
        assert_eq!(set("WARNING", "DEBUG"), LevelFilter::WARN);
        assert_eq!(set("loud", "FATAL"), LevelFilter::ERROR);
    }
}
