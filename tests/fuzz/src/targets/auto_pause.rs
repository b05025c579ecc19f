//! auto-pause: nobody is paused but by a message of our topic that tells of the very alarm which CloudWatch confirms.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use auto_pause::{
    Handler, Settings,
    ports::{Account, Alarms, CallError, Control, Described, Notify, Readings},
    settings::Topic,
};
use sendslot_runtime::switch::{Switch, SwitchError};
use serde_json::Value;
use tokio::time::Instant;

use super::Target;
use crate::weather::{Clock, Failed, Weather, locked};

const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:sendslot-reputation";
const PEOPLE: &str = "arn:aws:sns:eu-west-1:123456789012:ops";
const TIMEOUT: Duration = Duration::from_secs(30);
/// It has fired, and is ours.
const BOUNCES: &str = "sendslot-acme-bounces";
/// So has the account's.
const ACCOUNT: &str = "sendslot-account-bounces";
/// It says that it has fired, and its metric is fine.
const COMPLAINTS: &str = "sendslot-acme-complaints";
/// It has fired, and tells others than us.
const OTHERS: &str = "sendslot-beta-bounces";
const ANSWERS: [&str; 6] = [
    r#"{"tenants":["acme"],"already":false,"since_ms":1796040643000,"reason":"r (auto-pause)","not_switched":[]}"#,
    r#"{"tenants":["acme"],"already":true,"since_ms":1796040643000,"reason":"r (auto-pause)","not_switched":[]}"#,
    r#"{"tenants":[],"already":true,"since_ms":1796040643000,"reason":"r (auto-pause)","not_switched":[]}"#,
    r#"{"error":{"code":"unknown_set","message":"why"}}"#,
    r#"{"error":{"code":"redis_unavailable","message":"why"}}"#,
    "null",
];

#[derive(Default)]
struct Did {
    asked: Vec<Value>,
    switched: Vec<(String, bool)>,
    stops: usize,
    told: usize,
}

struct World {
    weather: Weather,
    did: Mutex<Did>,
}

#[derive(Clone)]
struct Outside(Arc<World>);

impl Outside {
    async fn call(&self) -> Result<(), CallError> {
        let called = self.0.weather.call().await;
        called.map_err(|Failed| CallError::new("Throttling", "why"))
    }

    fn did(&self) -> std::sync::MutexGuard<'_, Did> {
        locked(&self.0.did)
    }
}

impl Alarms for Outside {
    async fn alarm(&self, name: &str) -> Result<Option<Described>, CallError> {
        self.call().await?;
        let (metric, set, actions, threshold) = match name {
            BOUNCES => (
                "Reputation.BounceRate",
                Some("acme"),
                vec![PEOPLE, TOPIC],
                0.05,
            ),
            ACCOUNT => ("Reputation.BounceRate", None, vec![TOPIC], 0.05),
            COMPLAINTS => ("Reputation.ComplaintRate", Some("acme"), vec![TOPIC], 0.001),
            OTHERS => ("Reputation.BounceRate", Some("beta"), vec![PEOPLE], 0.05),
            _ => return Ok(None),
        };
        let dimension = |set: &str| ("ses:configuration-set".to_owned(), set.to_owned());
        Ok(Some(Described {
            arn: format!("arn:aws:cloudwatch:eu-west-1:123456789012:alarm:{name}"),
            state: "ALARM".to_owned(),
            namespace: "AWS/SES".to_owned(),
            metric: metric.to_owned(),
            dimensions: set.into_iter().map(dimension).collect(),
            acts: true,
            actions: actions.into_iter().map(str::to_owned).collect(),
            comparison: "GreaterThanOrEqualToThreshold".to_owned(),
            threshold: Some(threshold),
            period: Duration::from_mins(5),
            evaluation_periods: 1,
        }))
    }
}

impl Readings for Outside {
    async fn highest(
        &self,
        metric: &str,
        _: &[(String, String)],
        _: Duration,
        _: Duration,
    ) -> Result<Option<f64>, CallError> {
        self.call().await?;
        Ok(match metric {
            "Reputation.BounceRate" => Some(0.07),
            "Reputation.ComplaintRate" => Some(0.000_9),
            other => panic!("the metric {other:?} is read, which is none of ours"),
        })
    }
}

impl Control for Outside {
    async fn ask(&self, request: Vec<u8>) -> Result<Vec<u8>, CallError> {
        let request = serde_json::from_slice(&request);
        self.did().asked.push(request.unwrap_or_default());
        self.call().await?;
        let weather = &self.0.weather;
        let most = if weather.is_fair() { 2 } else { 6 };
        let answer = usize::try_from(weather.below(most)).unwrap_or(0);
        Ok(ANSWERS[answer].as_bytes().to_vec())
    }
}

impl Switch for Outside {
    async fn switch(&self, set: &str, sending: bool) -> Result<(), SwitchError> {
        self.did().switched.push((set.to_owned(), sending));
        let called = self.call().await;
        called.map_err(|error| SwitchError::Failed(error.to_string()))
    }
}

impl Account for Outside {
    async fn stop(&self) -> Result<(), CallError> {
        self.did().stops += 1;
        self.call().await
    }
}

impl Notify for Outside {
    async fn notify(&self, topic: &str, subject: &str, _: &str) -> Result<(), CallError> {
        assert_eq!(topic, PEOPLE, "only people are told");
        assert!((1..=100).contains(&subject.len()) && subject.is_ascii());
        self.did().told += 1;
        self.call().await
    }
}

pub(crate) struct AutoPause {
    clock: Clock,
}

impl AutoPause {
    pub(crate) fn new() -> Self {
        Self {
            clock: Clock::new(),
        }
    }
}

impl Target for AutoPause {
    fn run(&mut self, input: &str) -> &'static str {
        let Ok(event) = serde_json::from_str::<Value>(input) else {
            return "no JSON";
        };
        let weather = Weather::of(input);
        let pause_account = weather.once_in(2);
        let (Some(alarm_topic), notify_topic) = (Topic::of(TOPIC), Topic::of(PEOPLE)) else {
            panic!("{TOPIC} is no topic");
        };
        let settings = Settings {
            service: "auto-pause".to_owned(),
            namespace: "Sendslot".to_owned(),
            control_function: "control".to_owned(),
            alarm_topic,
            notify_topic,
            pause_account,
        };
        let did = Mutex::default();
        let outside = Outside(Arc::new(World { weather, did }));
        let handler = Handler::new(outside.clone(), settings);
        let (answer, took) = self.clock.run(async {
            let start = Instant::now();
            let (answer, _) = handler.handle(&event, start + TIMEOUT).await;
            (answer, start.elapsed())
        });
        assert!(took <= TIMEOUT, "it took {took:?}");
        let told = fired(&event);
        check(&outside.did(), &told, pause_account);
        match answer {
            Err(_) => "to be made again",
            Ok(answer) => label(&answer),
        }
    }
}

/// The alarms that an event says have fired, one for each message, read in another way than the function does.
fn fired(event: &Value) -> Vec<String> {
    let records = event["Records"].as_array().map_or(&[][..], Vec::as_slice);
    let told = records.iter().filter_map(|record| {
        let ours = record["EventSource"] == "aws:sns" && record["Sns"]["TopicArn"] == TOPIC;
        let text = record["Sns"]["Message"].as_str().filter(|_| ours)?;
        let message: Value = serde_json::from_str(text).ok()?;
        let name = message["AlarmName"].as_str()?;
        (message["NewStateValue"] == "ALARM").then(|| name.to_owned())
    });
    told.collect()
}

fn check(did: &Did, fired: &[String], pause_account: bool) {
    let count = |name: &str| fired.iter().filter(|told| *told == name).count();
    let (of_set, of_account) = (count(BOUNCES), count(ACCOUNT));
    let may_stop = if pause_account { of_account } else { 0 };
    let (mut sets, mut accounts) = (0, 0);
    for asked in &did.asked {
        assert_eq!(asked["action"], "pause", "{asked}");
        assert!(asked.get("tenant").is_none(), "{asked}");
        if asked["account"] == true {
            accounts += 1;
        } else {
            assert_eq!(asked["configuration_set"], "acme", "{asked}");
            sets += 1;
        }
    }
    assert!(sets <= of_set, "a wrong pause: {:?}", did.asked);
    assert!(accounts <= may_stop, "a wrong pause: {:?}", did.asked);
    assert!(did.stops <= may_stop, "the account was stopped");
    let off = ("acme".to_owned(), false);
    let wrong = did.switched.iter().find(|switched| **switched != off);
    assert_eq!(wrong, None, "a wrong switch");
    assert!(did.switched.len() <= of_set, "a wrong switch");
    assert!(
        did.told <= of_set + of_account,
        "people were told too often"
    );
}

fn label(answer: &Value) -> &'static str {
    let messages = answer["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let outcomes = messages
        .iter()
        .filter_map(|message| message["outcome"].as_str());
    let outcomes: BTreeSet<&str> = outcomes.collect();
    let known = [
        "paused",
        "account_paused",
        "account_over",
        "not_confirmed",
        "ignored",
    ];
    let found = known.into_iter().find(|known| outcomes.contains(known));
    found.unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(topic: &str, name: &str, state: &str) -> Value {
        let message = json!({ "AlarmName": name, "NewStateValue": state }).to_string();
        json!({ "EventSource": "aws:sns", "Sns": { "TopicArn": topic, "Message": message } })
    }

    #[test]
    fn only_our_topics_alarms_have_fired() {
        let event = json!({ "Records": [
            message(TOPIC, BOUNCES, "ALARM"),
            message(TOPIC, ACCOUNT, "OK"),
            message(PEOPLE, ACCOUNT, "ALARM"),
            json!({}),
        ] });
        assert_eq!(fired(&event), [BOUNCES]);
        assert!(fired(&json!([])).is_empty());
    }

    fn paused(asked: &Value) -> Did {
        Did {
            asked: vec![asked.clone()],
            ..Did::default()
        }
    }

    #[test]
    fn a_pause_is_right_by_the_alarm_that_is_of_it() {
        let (set, all) = (
            json!({ "action": "pause", "configuration_set": "acme" }),
            json!({ "action": "pause", "account": true }),
        );
        check(&paused(&set), &[BOUNCES.to_owned()], false);
        check(&paused(&all), &[ACCOUNT.to_owned()], true);
        let found = |did: Did, fired: &str, all: bool| {
            let fired = [fired.to_owned()];
            std::panic::catch_unwind(|| check(&did, &fired, all)).is_err()
        };
        assert!(found(paused(&set), COMPLAINTS, true));
        assert!(found(paused(&set), ACCOUNT, true));
        assert!(found(paused(&all), ACCOUNT, false));
        assert!(found(
            paused(&json!({ "action": "pause", "configuration_set": "beta" })),
            BOUNCES,
            true
        ));
        assert!(found(
            paused(&json!({ "action": "resume", "configuration_set": "acme" })),
            BOUNCES,
            true
        ));
        let switched = |set: &str, sending| Did {
            switched: vec![(set.to_owned(), sending)],
            ..Did::default()
        };
        assert!(!found(switched("acme", false), BOUNCES, false));
        assert!(found(switched("acme", true), BOUNCES, false));
        assert!(found(switched("beta", false), BOUNCES, false));
        assert!(found(switched("acme", false), OTHERS, false));
        let stopped = || Did {
            stops: 1,
            ..Did::default()
        };
        assert!(!found(stopped(), ACCOUNT, true));
        assert!(found(stopped(), ACCOUNT, false));
    }
}
