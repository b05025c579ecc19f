//! Tenants: settings as deployed and from parameters, with today's warm-up caps.

use std::collections::{BTreeMap, BTreeSet};

use sendslot_domain::{
    TenantName,
    warm_up::{Date, DateError, Step, WarmUp, WarmUpError, span_named, tighter},
    window::Caps,
};
use sendslot_runtime::{
    TenantSettings,
    control::{InvalidTenant, TenantParameter},
    settings::Tenant as Deployed,
};
use sendslot_schedule::Tenant;
use serde::Deserialize;
use serde_json::Value;

/// The version of parameters that is known.
const VERSION: u64 = 1;

/// Who may send, and through which configuration set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenants(pub(crate) BTreeMap<TenantName, (Tenant, Option<String>)>);

/// A parameter's JSON. Fields that aren't known are another version's.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Form {
    version: Option<u64>,
    configuration_set: Option<String>,
    weight: Option<u64>,
    hourly_cap: Option<u64>,
    daily_cap: Option<u64>,
    warm_up: Option<WarmUpForm>,
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
    set: Option<String>,
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
        let set = match form.configuration_set.as_deref() {
            None | Some("") => None,
            // A configuration set's name follows the rules of a tenant's.
            Some(set) => Some(set.parse::<TenantName>()?.to_string()),
        };
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
            set,
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
            all.insert(
                tenant.name.clone(),
                (settings, tenant.configuration_set.clone()),
            );
        }
        for (name, value) in parameters {
            // They were good when they were noted; a version before may not know them.
            match (name.parse(), Settings::read(value)) {
                (Ok(name), Ok(settings)) => {
                    all.insert(name, (settings.tenant(today), settings.set));
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
        let tenants = self.0.iter();
        tenants
            .filter_map(|(name, (_, set))| {
                let settings = TenantSettings {
                    configuration_set: set.clone(),
                    ..TenantSettings::default()
                };
                Some((name.clone(), settings.to_json().ok()?))
            })
            .collect()
    }

    /// Every configuration set.
    pub(crate) fn sets(&self) -> BTreeSet<String> {
        self.0.values().filter_map(|(_, set)| set.clone()).collect()
    }

    /// Those whose mail goes through a configuration set.
    pub(crate) fn through<'a>(&'a self, set: &'a str) -> impl Iterator<Item = &'a TenantName> {
        let tenants = self.0.iter();
        tenants
            .filter(move |(_, (_, of))| of.as_deref() == Some(set))
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
