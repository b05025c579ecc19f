//! feedback: nobody is paused but whoever bounces and complaints are told of, and who is over a limit.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use aws_lambda_events::sqs::SqsEvent;
use feedback::{
    Feedback,
    ports::{Events, Pauses},
};
use sendslot_domain::{Millis, TenantName, reputation::Counts, suppression::AddressDigest};
use sendslot_mail::digest;
use sendslot_runtime::{
    AskTenants, FeedbackSettings,
    switch::{Switch, SwitchError},
};
use sendslot_schedule::{Counted, Fed, ScheduleError, Told};
use serde_json::Value;
use tokio::time::Instant;

use super::{Target, outside::NOW};
use crate::{
    given::{Given, json},
    weather::{Clock, Weather, locked},
};

/// The longest that a batch may take: a third of the function's time.
const LONGEST: Duration = Duration::from_secs(10);
/// The tenant that is over its limits whatever an event says, and its configuration set.
const OVER: &str = "tenant-1";
const SET: &str = "tenant-1-set";

#[derive(Default)]
struct Did {
    fed: Vec<Fed>,
    paused: Vec<String>,
    switched: Vec<(String, bool)>,
}

struct World {
    weather: Weather,
    /// Whether it is paused already.
    stands: bool,
    did: Mutex<Did>,
}

#[derive(Clone)]
struct Outside(Arc<World>);

impl Outside {
    fn did(&self) -> MutexGuard<'_, Did> {
        locked(&self.0.did)
    }

    async fn redis(&self) -> Result<(), ScheduleError> {
        let called = self.0.weather.call().await;
        called.map_err(|_| ScheduleError::NoBudget("ses".to_owned()))
    }
}

/// One has sent little and nearly all of it came back; of all others' mail nothing does.
fn counted(tenant: &TenantName) -> Counted {
    let counts = if tenant.as_str() == OVER {
        Counts {
            sent: 2_000,
            bounced: 1_000,
            complained: 100,
        }
    } else {
        Counts {
            sent: 1_000_000,
            bounced: 100,
            complained: 10,
        }
    };
    Counted {
        hour: counts,
        day: counts,
    }
}

impl Events for Outside {
    async fn feed(
        &self,
        _: Millis,
        events: &[Fed],
    ) -> Result<Vec<(bool, Option<Counted>)>, ScheduleError> {
        assert!(!events.is_empty(), "a call for nothing");
        self.did().fed.extend_from_slice(events);
        self.redis().await?;
        let answer = |event: &Fed| {
            let tells = matches!(event.told, Told::Bounced | Told::Complained);
            let is_new = !self.0.weather.once_in(4);
            (is_new, tells.then(|| counted(&event.tenant)))
        };
        Ok(events.iter().map(answer).collect())
    }
}

impl Pauses for Outside {
    async fn paused(&self) -> Result<Vec<TenantName>, ScheduleError> {
        self.redis().await?;
        let stands = self.0.stands.then(|| OVER.parse().ok()).flatten();
        Ok(stands.into_iter().collect())
    }

    async fn pause(&self, tenant: &TenantName, _: &str) -> Result<(), ScheduleError> {
        assert!(!self.0.stands, "it is paused already");
        self.did().paused.push(tenant.to_string());
        self.redis().await
    }
}

impl AskTenants for Outside {
    async fn tenants(&self, names: &[TenantName]) -> Result<Vec<Option<String>>, ScheduleError> {
        self.redis().await?;
        let of = |name: &TenantName| match name.as_str() {
            OVER => Some(format!(r#"{{"configuration_set":"{SET}"}}"#)),
            // So that a name which was changed a little is one.
            other if other.starts_with("tenant") || other.starts_with("acme") => {
                Some("{}".to_owned())
            }
            _ => None,
        };
        Ok(names.iter().map(of).collect())
    }
}

impl Switch for Outside {
    async fn switch(&self, set: &str, sending: bool) -> Result<(), SwitchError> {
        self.did().switched.push((set.to_owned(), sending));
        let called = self.0.weather.call().await;
        called.map_err(|_| SwitchError::Failed("why".to_owned()))
    }
}

pub(crate) struct Feed {
    clock: Clock,
    settings: FeedbackSettings,
}

impl Feed {
    pub(crate) fn new() -> Self {
        let read = FeedbackSettings::read(|name| match name {
            "POWERTOOLS_SERVICE_NAME" => Some("feedback".to_owned()),
            "SENDSLOT_REDIS_URL" => Some("redis://127.0.0.1:1".to_owned()),
            _ => None,
        });
        Self {
            clock: Clock::new(),
            settings: read.unwrap_or_else(|error| panic!("{error}")),
        }
    }
}

impl Target for Feed {
    fn run(&mut self, input: &str) -> &'static str {
        let Ok(event) = serde_json::from_str::<SqsEvent>(input) else {
            return "not read";
        };
        let given = Given::read(input);
        let weather = Weather::of(input);
        let outside = Outside(Arc::new(World {
            stands: weather.once_in(4),
            weather,
            did: Mutex::default(),
        }));
        let handler = Feedback::new(outside.clone(), outside.clone(), self.settings.clone());
        let (response, took) = self.clock.run(async {
            let start = Instant::now();
            let (response, _) = handler.handle(event, NOW).await;
            (response, start.elapsed())
        });
        assert!(took <= LONGEST, "it took {took:?}");
        let records = given.records();
        let bodies: Vec<Value> = records.iter().filter_map(|(_, body)| json(body)).collect();
        let did = outside.did();
        check(&did, &bodies);
        let back = response.batch_item_failures;
        assert!(back.len() <= records.len(), "more come again than came");
        for failure in &back {
            let id = &failure.item_identifier;
            let came = records.iter().any(|(known, _)| known == id);
            assert!(came, "a message {id:?} comes again that never came");
        }
        let fair = outside.0.weather.is_fair();
        assert!(
            back.is_empty() || !fair,
            "nothing failed, and {} come again",
            back.len()
        );
        // The other way round, too: who should be paused is.
        let must = fair && !outside.0.stands && did.fed.iter().any(tells_against_it);
        assert!(!must || did.paused.len() == 1, "not paused");
        match (did.paused.len(), did.fed.len(), back.len()) {
            (1.., ..) => "paused",
            (_, _, 1..) => "some come again",
            (_, 1.., _) => "taken in",
            _ => "none of ours",
        }
    }
}

fn tells_against_it(fed: &Fed) -> bool {
    fed.tenant.as_str() == OVER && matches!(fed.told, Told::Bounced | Told::Complained)
}

fn check(did: &Did, bodies: &[Value]) {
    let told = bodies.iter().any(tells_against);
    let other = did.paused.iter().find(|tenant| *tenant != OVER);
    assert_eq!(other, None, "a wrong pause");
    assert!(did.paused.len() <= 1, "paused twice");
    assert!(
        did.paused.is_empty() || told,
        "a pause without a bounce or complaint"
    );
    let off = (SET.to_owned(), false);
    let wrong = did.switched.iter().find(|switched| **switched != off);
    assert_eq!(wrong, None, "a wrong switch");
    assert!(
        did.switched.len() <= did.paused.len(),
        "a switch without a pause"
    );
    assert!(did.fed.len() <= 2 * bodies.len(), "more events than came");
    let suppressed = did.fed.iter().filter_map(|fed| fed.suppress.as_ref());
    let mut suppressed = suppressed.flat_map(|(_, digests)| digests).peekable();
    if suppressed.peek().is_some() {
        let sent_to: Vec<AddressDigest> = bodies.iter().flat_map(sent_to).collect();
        assert!(
            suppressed.all(|digest| sent_to.contains(digest)),
            "nobody was sent to there"
        );
    }
}

/// Whom a mail went to that an event is of.
fn sent_to(body: &Value) -> Vec<AddressDigest> {
    let all = body["detail"]["mail"]["destination"].as_array();
    let all = all.into_iter().flatten().filter_map(Value::as_str);
    all.map(digest).collect()
}

/// Whether an event is a bounce for good, or a complaint, of the tenant's mail; read in another way than the function does.
fn tells_against(body: &Value) -> bool {
    let detail = &body["detail"];
    let tags = &detail["mail"]["tags"];
    let last = |name: &str| {
        tags[name]
            .as_array()
            .and_then(|all| all.last())
            .and_then(Value::as_str)
    };
    let is_its = last("tenant") == Some(OVER);
    let is_ours = last("ses:configuration-set").is_none_or(|set| set == SET);
    let kind = if detail["eventType"].is_null() {
        &detail["notificationType"]
    } else {
        &detail["eventType"]
    };
    let counts = match kind.as_str() {
        Some("Bounce") => {
            let bounce = &detail["bounce"];
            let listed = ["Suppressed", "OnAccountSuppressionList"];
            bounce["bounceType"] == "Permanent"
                && !listed
                    .iter()
                    .any(|sub_type| bounce["bounceSubType"] == **sub_type)
        }
        Some("Complaint") => {
            let complaint = &detail["complaint"];
            complaint["complaintSubType"] != "OnAccountSuppressionList"
                && complaint["complaintFeedbackType"] != "not-spam"
        }
        _ => false,
    };
    body["source"] == "aws.ses" && is_its && is_ours && counts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bounce(tenant: &str, kind: &str, sub_type: &str) -> Value {
        json!({ "source": "aws.ses", "detail": {
            "eventType": "Bounce",
            "bounce": { "bounceType": kind, "bounceSubType": sub_type },
            "mail": { "tags": { "tenant": ["x", tenant] } },
        } })
    }

    #[test]
    fn a_pause_is_right_by_a_bounce_for_good_of_that_tenant() {
        let did = |tenant: &str| Did {
            paused: vec![tenant.to_owned()],
            ..Did::default()
        };
        check(&did(OVER), &[bounce(OVER, "Permanent", "General")]);
        for (tenant, body) in [
            ("tenant-2", bounce("tenant-2", "Permanent", "General")),
            (OVER, bounce("tenant-2", "Permanent", "General")),
            (OVER, bounce(OVER, "Transient", "General")),
            (OVER, bounce(OVER, "Permanent", "Suppressed")),
            (OVER, json!(null)),
        ] {
            let found = std::panic::catch_unwind(|| check(&did(tenant), &[body])).is_err();
            assert!(found, "{tenant}");
        }
    }

    #[test]
    #[should_panic(expected = "nobody was sent to there")]
    fn a_suppression_of_a_stranger_is_found() {
        let event = sendslot_schedule::Fed {
            id: String::new(),
            tenant: OVER.parse().unwrap(),
            send_id: "m".parse().unwrap(),
            told: Told::Bounced,
            recipients: 1,
            sent_at: NOW,
            suppress: Some((
                sendslot_domain::suppression::Cause::Bounce,
                vec![digest("ann@example.com")],
            )),
        };
        let did = Did {
            fed: vec![event],
            ..Did::default()
        };
        check(&did, &[bounce(OVER, "Permanent", "General")]);
    }
}
