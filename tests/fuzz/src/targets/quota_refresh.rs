//! quota-refresh: it asks nobody more than it should, and answers `CloudFormation` what it asked.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use quota_refresh::{
    Event, Handler, Settings,
    event::ResponseUrl,
    ports::{
        Account, CallError, Control, Durations, Kind, Mapping, Mappings, Page, Parameters, Respond,
        Sets, Suppression, SuppressionPage,
    },
    settings::Scaling,
};
use sendslot_domain::Millis;
use sendslot_runtime::{ByLane, control};
use serde_json::Value;
use tokio::time::Instant;

use super::Target;
use crate::weather::{Clock, Weather, locked};

const TIMEOUT: Duration = Duration::from_mins(1);
/// SES gives its control plane one call a second.
const PACE: Duration = Duration::from_secs(1);
const PARAMETERS: [&str; 4] = [
    r#"{"version":1}"#,
    "",
    "null",
    r#"{"version":1,"weight":-1}"#,
];

#[derive(Default)]
struct Did {
    /// Calls of SES: when each began, and ended if it has.
    ses: Vec<(Instant, Option<Instant>)>,
    accounts: usize,
    sets: usize,
    suppression: usize,
    pages: usize,
    control: Vec<Value>,
    durations: usize,
    mappings: usize,
    scales: usize,
    put: Vec<Value>,
}

impl Did {
    /// Whether anybody was asked anything, but for the answer to `CloudFormation`.
    fn nothing(&self) -> bool {
        self.ses.is_empty()
            && self.control.is_empty()
            && self.pages + self.durations + self.mappings + self.scales == 0
    }
}

struct World {
    weather: Weather,
    answers: Arc<[String]>,
    did: Mutex<Did>,
}

#[derive(Clone)]
struct Outside(Arc<World>);

impl Outside {
    fn did(&self) -> MutexGuard<'_, Did> {
        locked(&self.0.did)
    }

    async fn call(&self) -> Result<(), CallError> {
        let weather = &self.0.weather;
        let called = weather.call().await;
        let kinds = [Kind::Busy, Kind::Missing, Kind::Other];
        let codes = [
            "TooManyRequestsException",
            "NotFoundException",
            "BadRequestException",
        ];
        called.map_err(|_| {
            let which = usize::try_from(weather.below(3)).unwrap_or(0);
            CallError {
                code: codes[which].to_owned(),
                message: "why".to_owned(),
                kind: kinds[which],
            }
        })
    }

    async fn ses(&self) -> Result<(), CallError> {
        let number = {
            let mut did = self.did();
            did.ses.push((Instant::now(), None));
            did.ses.len() - 1
        };
        let called = self.call().await;
        self.did().ses[number].1 = Some(Instant::now());
        called
    }
}

impl Account for Outside {
    async fn account(&self) -> Result<control::Account, CallError> {
        self.did().accounts += 1;
        self.ses().await?;
        let numbers = [14.0, 0.0, -1.0, f64::NAN, f64::MAX];
        let weather = &self.0.weather;
        let most = if weather.is_fair() { 1 } else { 5 };
        let number = || numbers[usize::try_from(weather.below(most)).unwrap_or(0)];
        Ok(control::Account {
            max_send_rate: Some(number()),
            max_24_hour_send: Some(number()),
            sent_last_24_hours: Some(number()),
            sending_enabled: Some(true),
            enforcement: Some("HEALTHY".to_owned()),
            production: Some(true),
        })
    }
}

impl Parameters for Outside {
    async fn page(&self, path: &str, _: Option<String>) -> Result<Page, CallError> {
        assert_eq!(path, "/stack/tenants");
        self.did().pages += 1;
        self.call().await?;
        let weather = &self.0.weather;
        let value = PARAMETERS[usize::try_from(weather.below(4)).unwrap_or(0)];
        Ok(Page {
            parameters: vec![("/stack/tenants/acme".to_owned(), value.to_owned())],
            next: weather.fails_once_in(2).then(|| "next".to_owned()),
        })
    }
}

impl Control for Outside {
    async fn ask(&self, request: Vec<u8>) -> Result<Vec<u8>, CallError> {
        let request = serde_json::from_slice(&request).unwrap_or_default();
        self.did().control.push(request);
        self.call().await?;
        Ok(self.0.weather.changed(&self.0.answers).into_bytes())
    }
}

impl Sets for Outside {
    async fn sends(&self, _: &str) -> Result<Option<bool>, CallError> {
        self.did().sets += 1;
        self.ses().await?;
        Ok([None, Some(true), Some(false)][usize::try_from(self.0.weather.below(3)).unwrap_or(0)])
    }
}

impl Suppression for Outside {
    async fn suppressed(
        &self,
        _: Option<u64>,
        _: Option<String>,
    ) -> Result<SuppressionPage, CallError> {
        self.did().suppression += 1;
        self.ses().await?;
        let weather = &self.0.weather;
        Ok(SuppressionPage {
            addresses: vec![("ann@example.com".to_owned(), "BOUNCE".to_owned())],
            next: weather.once_in(2).then(|| weather.below(9).to_string()),
        })
    }
}

impl Durations for Outside {
    async fn mean(&self, _: &str) -> Result<Option<Millis>, CallError> {
        self.did().durations += 1;
        self.call().await?;
        let weather = &self.0.weather;
        Ok(weather.once_in(2).then(|| Millis(weather.below(100_000))))
    }
}

impl Mappings for Outside {
    async fn mapping(&self, _: &str) -> Result<Mapping, CallError> {
        self.did().mappings += 1;
        self.call().await?;
        let weather = &self.0.weather;
        Ok(Mapping {
            concurrency: weather.once_in(2).then_some(10),
            in_motion: weather.once_in(8),
        })
    }

    async fn scale(&self, _: &str, concurrency: u32) -> Result<(), CallError> {
        assert!(
            (2..=1000).contains(&concurrency),
            "SQS takes 2 to 1,000, not {concurrency}"
        );
        self.did().scales += 1;
        self.call().await
    }
}

impl Respond for Outside {
    async fn put(&self, _: &ResponseUrl, body: &str) -> Result<(), String> {
        let answer = serde_json::from_str(body).unwrap_or_default();
        self.did().put.push(answer);
        let called = self.call().await;
        called.map_err(|error| error.to_string())
    }
}

pub(crate) struct QuotaRefresh {
    clock: Clock,
    answers: Arc<[String]>,
}

impl QuotaRefresh {
    pub(crate) fn new() -> Self {
        let budget = r#""budget":{"limit":"14/s","daily_quota":50000,"source":"account","changed":true,"was":{"limit":"10/s"}},"factor":1024"#;
        let walk = r#""walk":{"began_ms":1796040643000,"since_ms":null,"token":"p1"}"#;
        let answers = [
            format!("{{{budget}}}"),
            format!(r#"{{{budget},"pending":true,"verify":["acme-set","beta-set"]}}"#),
            format!("{{{budget},{walk}}}"),
            format!(r#"{{{budget},{walk},"verify":["acme-set"]}}"#),
            format!(r#"{{"new":1,{walk}}}"#),
            r#"{"error":{"code":"redis_unavailable","message":"why"}}"#.to_owned(),
        ];
        Self {
            clock: Clock::new(),
            answers: answers.into(),
        }
    }
}

fn settings() -> Settings {
    Settings {
        service: "quota-refresh".to_owned(),
        namespace: "Sendslot".to_owned(),
        control_function: "control".to_owned(),
        tenants_path: "/stack/tenants".to_owned(),
        scaling: Some(Scaling {
            function: "send".to_owned(),
            mappings: ByLane {
                priority: Some("1".to_owned()),
                bulk: Some("2".to_owned()),
            },
            reserved: None,
        }),
    }
}

impl Target for QuotaRefresh {
    fn run(&mut self, input: &str) -> &'static str {
        let Ok(event) = serde_json::from_str::<Value>(input) else {
            return "no JSON";
        };
        let url = event["ResponseURL"].as_str().filter(|url| !url.is_empty());
        let is_custom = event.get("RequestType").is_some() || event.get("ResponseURL").is_some();
        let Ok(read) = Event::read(&event) else {
            assert!(is_custom && url.is_none(), "it can be answered");
            return "refused";
        };
        let outside = Outside(Arc::new(World {
            weather: Weather::of(input),
            answers: self.answers.clone(),
            did: Mutex::default(),
        }));
        let handler = Handler::new(outside.clone(), settings());
        let (answer, took) = self.clock.run(async {
            let start = Instant::now();
            let (answer, _) = handler.handle(read, start + TIMEOUT).await;
            (answer, start.elapsed())
        });
        assert!(took <= TIMEOUT, "it took {took:?}");
        let did = outside.did();
        bounds(&did);
        let refreshes = !is_custom
            || ["Create", "Update"]
                .iter()
                .any(|kind| event["RequestType"] == **kind);
        assert!(refreshes || did.nothing(), "asked for nothing");
        assert_eq!(
            did.put.is_empty(),
            !is_custom,
            "CloudFormation is answered if it asks"
        );
        for put in &did.put {
            assert_eq!(put, &did.put[0], "the same answer each time");
            let known = ["Create", "Update", "Delete"]
                .iter()
                .any(|kind| event["RequestType"] == **kind);
            assert_eq!(put["Status"], if known { "SUCCESS" } else { "FAILED" });
            for (name, given) in [
                ("StackId", "StackId"),
                ("RequestId", "RequestId"),
                ("LogicalResourceId", "LogicalResourceId"),
            ] {
                assert_eq!(put[name], event[given].as_str().unwrap_or_default());
            }
        }
        match answer {
            Err(_) => "not answered",
            Ok(_) if is_custom => "answered",
            Ok(answer) if answer["refreshed"] == true => "refreshed",
            Ok(_) => "not refreshed",
        }
    }
}

/// How often an invocation may ask whom.
fn bounds(did: &Did) {
    assert!(did.accounts <= 1 && did.durations <= 1, "asked twice");
    assert!(
        did.mappings <= 2 && did.scales <= did.mappings,
        "two mappings"
    );
    assert!(did.sets <= control::MOST_TO_VERIFY, "{} sets", did.sets);
    assert!(
        did.suppression <= 21,
        "{} pages of addresses",
        did.suppression
    );
    assert!(did.pages <= 600, "{} pages of parameters", did.pages);
    assert!(did.put.len() <= 5, "{} answers", did.put.len());
    let of = |action: &str| {
        did.control
            .iter()
            .filter(|asked| asked["action"] == action)
            .count()
    };
    let (refreshes, pages) = (of("refresh"), of("suppress"));
    assert_eq!(
        refreshes + pages,
        did.control.len(),
        "nothing else is asked"
    );
    // Twice, and four times each while control is busy.
    assert!(
        refreshes <= 8 && pages <= 4 * (did.suppression + 1),
        "{:?}",
        did.control
    );
    for pair in did.ses.windows(2) {
        let before = pair[0].1.unwrap_or(pair[0].0);
        assert!(
            pair[1].0 - before >= PACE,
            "SES is asked more than once a second"
        );
    }
}
