//! Metrics in the embedded metric format, by the conventions of Powertools for AWS Lambda.
//!
//! One line of JSON on standard output becomes metrics without an API call. Each distinct set of
//! dimension values is billed as a metric of its own, so there are two: `service`, and `lane` where
//! it matters. Reasons and send ids belong in logs.

use std::{
    io::{self, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use sendslot_domain::{Lane, Millis};
use serde_json::{Map, Value, json};

/// The metrics of one invocation, in one lane.
#[derive(Clone, Debug)]
pub struct Metrics {
    namespace: String,
    service: String,
    lane: Option<Lane>,
    values: Vec<(&'static str, &'static str, u64)>,
    gauges: Vec<(&'static str, &'static str, f64)>,
}

impl Metrics {
    /// No metrics yet, for `service` and, where given, `lane`.
    #[must_use]
    pub fn new(namespace: &str, service: &str, lane: Option<Lane>) -> Self {
        Self {
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            lane,
            values: Vec::new(),
            gauges: Vec::new(),
        }
    }

    /// Adds to a count. A zero is kept too: it lets an alarm tell "none" from "no data".
    pub fn count(&mut self, name: &'static str, amount: usize) {
        let amount = u64::try_from(amount).unwrap_or(u64::MAX);
        match self.values.iter_mut().find(|(known, ..)| *known == name) {
            Some((.., value)) => *value += amount,
            None => self.values.push((name, "Count", amount)),
        }
    }

    /// Keeps the greatest of the durations given under this name.
    pub fn longest(&mut self, name: &'static str, duration: Millis) {
        match self.values.iter_mut().find(|(known, ..)| *known == name) {
            Some((.., value)) => *value = duration.0.max(*value),
            None => self.values.push((name, "Milliseconds", duration.0)),
        }
    }

    /// What is the case now, such as a rate (`unit` is one of CloudWatch's). What is no number is left out.
    pub fn gauge(&mut self, name: &'static str, unit: &'static str, value: f64) {
        if value.is_finite() {
            self.gauges.retain(|(known, ..)| *known != name);
            self.gauges.push((name, unit, value));
        }
    }

    /// What was counted or kept under this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        let found = self.values.iter().find(|(known, ..)| *known == name);
        found.map(|(.., value)| *value)
    }

    /// The line, without its end, as of `now_ms` (Unix milliseconds); nothing when there are no
    /// metrics.
    #[must_use]
    pub fn line(&self, now_ms: u64) -> Option<String> {
        if self.values.is_empty() && self.gauges.is_empty() {
            return None;
        }
        let mut dimensions = vec!["service"];
        let mut line = Map::new();
        line.insert("service".into(), self.service.as_str().into());
        if let Some(lane) = self.lane {
            dimensions.push("lane");
            line.insert("lane".into(), lane.as_str().into());
        }
        let counts = self.values.iter().map(|(name, unit, _)| (name, unit));
        let gauges = self.gauges.iter().map(|(name, unit, _)| (name, unit));
        let metrics: Vec<Value> = counts
            .chain(gauges)
            .map(|(name, unit)| json!({ "Name": name, "Unit": unit }))
            .collect();
        let directive = json!({
            "Namespace": self.namespace,
            "Dimensions": [dimensions],
            "Metrics": metrics,
        });
        line.insert(
            "_aws".into(),
            json!({ "Timestamp": now_ms, "CloudWatchMetrics": [directive] }),
        );
        for (name, _, value) in &self.values {
            line.insert((*name).into(), (*value).into());
        }
        for (name, _, value) in &self.gauges {
            line.insert((*name).into(), (*value).into());
        }
        Some(Value::Object(line).to_string())
    }

    /// Writes the line to standard output. Metrics that can't be written are lost: no mail is held
    /// up for them.
    pub fn flush(self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        });
        if let Some(line) = self.line(now) {
            let _lost = writeln!(io::stdout().lock(), "{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_the_embedded_metric_format() {
        let mut metrics = Metrics::new("Sendslot", "reserve", Some(Lane::Bulk));
        assert_eq!(metrics.line(0), None);
        metrics.count("Booked", 3);
        metrics.count("Booked", 4);
        metrics.count("Refused", 0);
        metrics.longest("BookedAheadMs", Millis(900));
        metrics.longest("BookedAheadMs", Millis(20));
        let line = metrics.line(1_700_000_000_000).unwrap_or_default();
        assert!(!line.contains('\n'));
        let line: Value = serde_json::from_str(&line).unwrap_or_default();
        assert_eq!(
            line,
            json!({
                "_aws": {
                    "Timestamp": 1_700_000_000_000_u64,
                    "CloudWatchMetrics": [{
                        "Namespace": "Sendslot",
                        "Dimensions": [["service", "lane"]],
                        "Metrics": [
                            { "Name": "Booked", "Unit": "Count" },
                            { "Name": "Refused", "Unit": "Count" },
                            { "Name": "BookedAheadMs", "Unit": "Milliseconds" },
                        ],
                    }],
                },
                "service": "reserve",
                "lane": "bulk",
                "Booked": 7,
                "Refused": 0,
                "BookedAheadMs": 900,
            })
        );
    }

    #[test]
    fn a_gauge_holds_the_last_number() {
        let mut metrics = Metrics::new("Sendslot", "control", None);
        metrics.gauge("SendRate", "Count/Second", 14.0);
        metrics.gauge("SendRate", "Count/Second", 0.5);
        metrics.gauge("QuotaUsedPercent", "Percent", f64::NAN);
        let line: Value =
            serde_json::from_str(&metrics.line(0).unwrap_or_default()).unwrap_or_default();
        assert_eq!(line["SendRate"], json!(0.5));
        assert_eq!(
            line["_aws"]["CloudWatchMetrics"][0]["Metrics"],
            json!([{ "Name": "SendRate", "Unit": "Count/Second" }])
        );
    }

    #[test]
    fn without_a_lane_the_service_is_the_only_dimension() {
        let mut metrics = Metrics::new("Sendslot", "send", None);
        metrics.count("Throttled", 1);
        let line: Value =
            serde_json::from_str(&metrics.line(0).unwrap_or_default()).unwrap_or_default();
        assert_eq!(
            line["_aws"]["CloudWatchMetrics"][0]["Dimensions"],
            json!([["service"]])
        );
    }
}
