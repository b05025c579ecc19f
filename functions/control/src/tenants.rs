//! Tenants: settings as deployed and from parameters, with today's warm-up caps.

use std::collections::{BTreeMap, BTreeSet};

use sendslot_domain::{
    TenantName,
    reputation::{Limit, Thresholds},
    warm_up::{Date, DateError, Step, WarmUp, WarmUpError, span_named, tighter},
    window::Caps,
};
use sendslot_runtime::{
    TenantSettings,
    control::{InvalidTenant, TenantParameter},
    settings::Tenant as Deployed,
    tenant::{LimitSettings, ListUnsubscribe, ThresholdSettings},
};
use sendslot_schedule::Tenant;
use serde::Deserialize;
use serde_json::Value;

/// The version of parameters that is known.
const VERSION: u64 = 1;

/// Who may send, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenants(pub(crate) BTreeMap<TenantName, (Tenant, TenantSettings)>);

/// A parameter's JSON. Fields that aren't known are another version's; `null` is as if a field weren't there.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Form {
    version: Option<u64>,
    configuration_set: Option<String>,
    ses_tenant: Option<String>,
    weight: Option<u64>,
    hourly_cap: Option<u64>,
    daily_cap: Option<u64>,
    warm_up: Option<WarmUpForm>,
    lane: Option<String>,
    uncertain: Option<String>,
    list_unsubscribe: Option<ListUnsubscribeForm>,
    thresholds: Option<ThresholdsForm>,
}

#[derive(Debug, Deserialize)]
struct WarmUpForm {
    start: String,
    schedule: Vec<StepForm>,
    /// The last day that has a cap.
    #[serde(default)]
    ends: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct StepForm {
    day: u32,
    cap: u64,
    per: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListUnsubscribeForm {
    url: Option<String>,
    mailto: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ThresholdsForm {
    bounce_hour: Option<LimitForm>,
    bounce_day: Option<LimitForm>,
    complaint_hour: Option<LimitForm>,
    complaint_day: Option<LimitForm>,
}

/// What is missing of it is as usual.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LimitForm {
    percent: Option<f64>,
    sent: Option<u64>,
    events: Option<u64>,
}

/// The fields of each part of a parameter, by its path.
const FIELDS: [(&str, &[&str]); 5] = [
    (
        "",
        &[
            "version",
            "configuration_set",
            "ses_tenant",
            "weight",
            "hourly_cap",
            "daily_cap",
            "warm_up",
            "lane",
            "uncertain",
            "list_unsubscribe",
            "thresholds",
        ],
    ),
    ("warm_up", &["start", "schedule", "ends"]),
    ("list_unsubscribe", &["url", "mailto"]),
    ("thresholds", &LIMITS),
    ("warm_up.schedule", &["day", "cap", "per"]),
];
/// All limits of a tenant.
const LIMITS: [&str; 4] = [
    "bounce_hour",
    "bounce_day",
    "complaint_hour",
    "complaint_day",
];
/// The fields of a limit.
const LIMIT: [&str; 3] = ["percent", "sent", "events"];

/// The longest address to unsubscribe at, in characters: a header has 998, and the placeholder grows.
const LONGEST_URL: usize = 800;
/// The longest address of a mailbox (RFC 5321), in characters.
const LONGEST_MAILBOX: usize = 254;
/// What stands for a mail's send id.
const SEND_ID: &str = "{send_id}";

/// A parameter that can't be used.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(
        "{0} is no object: write the tenant's settings as JSON, such as {{\"version\": 1, \"weight\": 1}}"
    )]
    Shape(&'static str),
    #[error("{0}")]
    Field(String),
    #[error("version is {0}: this version of the function knows {VERSION}")]
    Version(u64),
    #[error("configuration_set: {0}")]
    Set(#[from] sendslot_domain::tenant::NameError),
    #[error("ses_tenant: {0:?} is no name: give 1 to 64 of the characters A-Z a-z 0-9 _ -")]
    SesTenant(String),
    #[error("lane is {0:?}: give priority or bulk, or null for the usual one")]
    Lane(String),
    #[error("uncertain is {0:?}: give resend or park, or null for what its lane does")]
    Uncertain(String),
    #[error("list_unsubscribe.url: {0}")]
    Url(&'static str),
    #[error(
        "list_unsubscribe.mailto: no plain address: write one such as unsubscribe@example.com, of letters, digits and . _ + - ="
    )]
    Mailto,
    #[error(
        "thresholds.{0}.percent is {1}: give more than 0 and at most 100, with at most 4 decimals"
    )]
    Percent(&'static str, f64),
    #[error("thresholds.{0}.events is 0: give at least 1")]
    Events(&'static str),
    #[error("weight is {0}: give a whole number from 1 to {max}", max = Tenant::MAX_WEIGHT)]
    Weight(u64),
    #[error("{0} is {1}: give 1 to {max} recipients, or null for no cap", max = Caps::MAX)]
    Cap(&'static str, u64),
    #[error("warm_up.start: {0}")]
    Start(#[from] DateError),
    #[error("warm_up.schedule: {0}")]
    WarmUp(#[from] WarmUpError),
}

/// A parameter that can be used.
struct Settings {
    told: TenantSettings,
    weight: u32,
    caps: Caps,
    warm_up: Option<WarmUp>,
}

impl Settings {
    fn read(value: &Value) -> Result<Self, Problem> {
        if !value.is_object() {
            return Err(Problem::Shape(match value {
                Value::Null => "null",
                Value::Array(_) => "a list",
                Value::String(_) => "a text, or no JSON,",
                _ => "a number or a truth value",
            }));
        }
        let form: Form = serde_path_to_error::deserialize(value)
            .map_err(|error| Problem::Field(format!("{}: {}", error.path(), error.inner())))?;
        let version = form.version.unwrap_or(VERSION);
        if version != VERSION {
            return Err(Problem::Version(version));
        }
        let told = told(&form)?;
        let weight = form
            .weight
            .unwrap_or_else(|| Tenant::default().weight.into());
        let weighs = u32::try_from(weight).ok();
        let weighs = weighs.filter(|weight| (1..=Tenant::MAX_WEIGHT).contains(weight));
        let cap = |name, cap: Option<u64>| match cap {
            Some(cap) if !(1..=Caps::MAX).contains(&cap) => Err(Problem::Cap(name, cap)),
            cap => Ok(cap),
        };
        Ok(Self {
            told,
            weight: weighs.ok_or(Problem::Weight(weight))?,
            caps: Caps {
                hour: cap("hourly_cap", form.hourly_cap)?,
                day: cap("daily_cap", form.daily_cap)?,
            },
            warm_up: form.warm_up.map(warm_up).transpose()?,
        })
    }

    fn tenant(&self, today: Date) -> Tenant {
        let warm_up = self.warm_up.as_ref();
        let warm_up = warm_up
            .map(|warm_up| warm_up.caps(today))
            .unwrap_or_default();
        Tenant {
            weight: self.weight,
            caps: tighter(self.caps, warm_up),
        }
    }
}

fn warm_up(form: WarmUpForm) -> Result<WarmUp, Problem> {
    let steps = form.schedule.into_iter().map(|step| {
        Ok::<_, WarmUpError>(Step {
            day: step.day,
            cap: step.cap,
            per: span_named(&step.per)?,
        })
    });
    let steps = steps.collect::<Result<_, _>>()?;
    Ok(WarmUp::new(form.start.parse()?, steps, form.ends)?)
}

/// What the functions must know of a tenant. Empty texts stand for nothing: templates can't leave a field out.
fn told(form: &Form) -> Result<TenantSettings, Problem> {
    let configuration_set = match set(form.configuration_set.as_ref()) {
        None => None,
        // A configuration set's name follows the rules of a tenant's.
        Some(set) => Some(set.parse::<TenantName>()?.to_string()),
    };
    let of_words =
        |text: Option<&String>, words: [&str; 2], problem: fn(String) -> Problem| match set(text) {
            Some(word) if !words.contains(&word) => Err(problem(word.to_owned())),
            word => Ok(word.map(str::to_owned)),
        };
    let lane = of_words(form.lane.as_ref(), ["priority", "bulk"], Problem::Lane)?;
    let uncertain = of_words(
        form.uncertain.as_ref(),
        ["resend", "park"],
        Problem::Uncertain,
    )?;
    let ses_tenant = set(form.ses_tenant.as_ref()).map(str::to_owned);
    if let Some(name) = ses_tenant.as_ref().filter(|name| !is_ses_tenant(name)) {
        return Err(Problem::SesTenant(name.clone()));
    }
    let list_unsubscribe = form.list_unsubscribe.as_ref().map(list_unsubscribe);
    let limits = form.thresholds.as_ref();
    let usual = Thresholds::default();
    let limit = |name, form: Option<&LimitForm>, usual| {
        form.map(|form| limit(name, form, usual)).transpose()
    };
    Ok(TenantSettings {
        shares_set: false, // that is for all of them to tell
        configuration_set,
        ses_tenant,
        lane,
        uncertain,
        list_unsubscribe: list_unsubscribe.transpose()?.flatten(),
        thresholds: match limits {
            None => ThresholdSettings::default(),
            Some(of) => ThresholdSettings {
                bounce_hour: limit(LIMITS[0], of.bounce_hour.as_ref(), usual.bounce_hour)?,
                bounce_day: limit(LIMITS[1], of.bounce_day.as_ref(), usual.bounce_day)?,
                complaint_hour: limit(LIMITS[2], of.complaint_hour.as_ref(), usual.complaint_hour)?,
                complaint_day: limit(LIMITS[3], of.complaint_day.as_ref(), usual.complaint_day)?,
            },
        },
    })
}

fn set(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

fn is_ses_tenant(name: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    name.len() <= 64 && name.chars().all(known)
}

fn limit(name: &'static str, form: &LimitForm, usual: Limit) -> Result<LimitSettings, Problem> {
    let ppm = form.percent.map_or(Some(usual.ppm), ppm);
    let ppm = ppm.ok_or(Problem::Percent(name, form.percent.unwrap_or_default()))?;
    let events = form.events.unwrap_or(usual.events);
    if events == 0 {
        return Err(Problem::Events(name));
    }
    Ok(LimitSettings {
        ppm,
        sent: form.sent.unwrap_or(usual.sent),
        events,
    })
}

/// A part in a hundred as one in a million, if it is one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be from 1 to a million"
)]
fn ppm(percent: f64) -> Option<u32> {
    let ppm = percent * 10_000.0;
    let whole = ppm.round();
    let is_whole = (ppm - whole).abs() < 1e-6; // 0.07 × 10000 isn't 700 in floating-point numbers
    (is_whole && (1.0..=f64::from(Limit::WHOLE)).contains(&whole)).then_some(whole as u32)
}

fn list_unsubscribe(form: &ListUnsubscribeForm) -> Result<Option<ListUnsubscribe>, Problem> {
    let (url, mailto) = (set(form.url.as_ref()), set(form.mailto.as_ref()));
    let url = match (url, mailto) {
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            return Err(Problem::Url(
                "it is missing: one click needs it, mailto stands only beside it",
            ));
        }
        (Some(url), _) => url,
    };
    if let Some(problem) = url_problem(url) {
        return Err(Problem::Url(problem));
    }
    if mailto.is_some_and(|address| !is_plain_address(address)) {
        return Err(Problem::Mailto);
    }
    Ok(Some(ListUnsubscribe {
        url: url.to_owned(),
        mailto: mailto.unwrap_or_default().to_owned(),
    }))
}

fn url_problem(url: &str) -> Option<&'static str> {
    if url.chars().count() > LONGEST_URL {
        return Some("more than 800 characters long: give a shorter one");
    }
    let fits = |c: char| c.is_ascii_graphic() && !matches!(c, '<' | '>');
    if !url.chars().all(fits) {
        return Some(
            "holds a space, < or >, or what isn't printable ASCII: write it in percent signs, such as %20",
        );
    }
    let Some(rest) = url.strip_prefix("https://") else {
        return Some("doesn't begin with https://: mail readers post to no other");
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() || host.contains(['{', '}']) {
        return Some("names no host after https://");
    }
    rest.replace(SEND_ID, "")
        .contains(['{', '}'])
        .then_some("holds { or } that isn't of {send_id}, the only placeholder")
}

/// Whether it can stand in a header's `<mailto:…>` as it is.
fn is_plain_address(text: &str) -> bool {
    let Some((local, domain)) = text.split_once('@') else {
        return false;
    };
    let of_local = |c: char| c.is_ascii_alphanumeric() || ".!$'*+=^_`|~-".contains(c);
    let of_label = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_label = |label: &str| {
        !label.is_empty()
            && label.chars().all(of_label)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_local = local
        .split('.')
        .all(|part| !part.is_empty() && part.chars().all(of_local));
    text.len() <= LONGEST_MAILBOX
        && is_local
        && domain.contains('.')
        && domain.split('.').all(is_label)
}

/// The fields of a parameter that nobody knows, by their paths.
pub(crate) fn unknown_fields(parameter: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut look = |path: &str, value: &Value, known: &[&str]| {
        let fields = value
            .as_object()
            .into_iter()
            .flat_map(|object| object.keys());
        let fields = fields.filter(|field| !known.contains(&field.as_str()));
        unknown.extend(fields.map(|field| match path {
            "" => field.clone(),
            path => format!("{path}.{field}"),
        }));
    };
    for (path, known) in FIELDS {
        let parts = path.split('.').filter(|part| !part.is_empty());
        let at = parts.fold(parameter, |value, part| &value[part]);
        match at.as_array() {
            None => look(path, at, known),
            Some(steps) => steps.iter().for_each(|step| look(path, step, known)),
        }
    }
    for name in LIMITS {
        let path = format!("thresholds.{name}");
        look(&path, &parameter["thresholds"][name], &LIMIT);
    }
    unknown
}

/// Takes the parameters that can be used; of the others, the last good ones stay. A tenant whose parameter is gone is as deployed
/// again, or gone.
pub(crate) fn taken(
    parameters: &[TenantParameter],
    last: &BTreeMap<String, Value>,
) -> (BTreeMap<String, Value>, Vec<InvalidTenant>) {
    let (mut good, mut invalid) = (BTreeMap::new(), Vec::new());
    for TenantParameter { name, settings } in parameters {
        let usable = name
            .parse::<TenantName>()
            .map_err(|error| error.to_string());
        let usable =
            usable.and_then(|_| Settings::read(settings).map_err(|problem| problem.to_string()));
        let Err(problem) = usable else {
            good.insert(name.clone(), settings.clone());
            continue;
        };
        let kept = last.get(name);
        if let Some(settings) = kept {
            good.insert(name.clone(), settings.clone());
        }
        tracing::error!(
            tenant = name,
            problem,
            kept = kept.is_some(),
            "a tenant's parameter isn't taken"
        );
        invalid.push(InvalidTenant {
            name: name.clone(),
            problem,
            kept: kept.is_some(),
        });
    }
    (good, invalid)
}

impl Tenants {
    /// All tenants, with their caps of today; a parameter goes before what is deployed.
    pub(crate) fn of(
        deployed: &[Deployed],
        parameters: &BTreeMap<String, Value>,
        today: Date,
    ) -> Self {
        let mut all = BTreeMap::new();
        for tenant in deployed {
            let settings = Tenant {
                weight: tenant.weight,
                ..Tenant::default()
            };
            let told = TenantSettings {
                configuration_set: tenant.configuration_set.clone(),
                ..TenantSettings::default()
            };
            all.insert(tenant.name.clone(), (settings, told));
        }
        for (name, value) in parameters {
            // They were good when they were noted; a version before may not know them.
            match (name.parse(), Settings::read(value)) {
                (Ok(name), Ok(settings)) => {
                    all.insert(name, (settings.tenant(today), settings.told));
                }
                (_, Err(problem)) => {
                    tracing::error!(tenant = name, %problem, "a tenant's noted settings can't be used");
                }
                (Err(error), _) => tracing::error!(tenant = name, %error, "no tenant's name"),
            }
        }
        Self(all)
    }

    /// As the schedule takes them.
    pub(crate) fn seed(&self) -> Vec<(TenantName, Tenant)> {
        let tenants = self.0.iter();
        tenants
            .map(|(name, (tenant, _))| (name.clone(), *tenant))
            .collect()
    }

    /// What the other functions must know of each, as JSON.
    pub(crate) fn by_name(&self) -> Vec<(TenantName, String)> {
        let (mut all, mut shared) = (BTreeSet::new(), BTreeSet::new());
        let sets = self.0.values();
        for set in sets.filter_map(|(_, told)| told.configuration_set.as_deref()) {
            if !all.insert(set) {
                shared.insert(set);
            }
        }
        let tenants = self.0.iter();
        tenants
            .filter_map(|(name, (_, told))| {
                let mut told = told.clone();
                let set = told.configuration_set.as_deref();
                told.shares_set = set.is_some_and(|set| shared.contains(set));
                Some((name.clone(), told.to_json().ok()?))
            })
            .collect()
    }

    /// The configuration set that a tenant's mail goes through.
    pub(crate) fn set(&self, tenant: &TenantName) -> Option<&str> {
        let (_, told) = self.0.get(tenant)?;
        told.configuration_set.as_deref()
    }

    /// Every configuration set.
    pub(crate) fn sets(&self) -> BTreeSet<String> {
        let sets = self.0.values();
        sets.filter_map(|(_, told)| told.configuration_set.clone())
            .collect()
    }

    /// Those whose mail goes through a configuration set.
    pub(crate) fn through<'a>(&'a self, set: &'a str) -> impl Iterator<Item = &'a TenantName> {
        let tenants = self.0.iter();
        tenants
            .filter(move |(_, (_, told))| told.configuration_set.as_deref() == Some(set))
            .map(|(name, _)| name)
    }
}

/// Whether it is a tenant, as deployed or by its parameter.
pub(crate) fn is_known(
    tenant: &TenantName,
    deployed: &[Deployed],
    parameters: &BTreeMap<String, Value>,
) -> bool {
    deployed.iter().any(|known| known.name == *tenant) || parameters.contains_key(tenant.as_str())
}
