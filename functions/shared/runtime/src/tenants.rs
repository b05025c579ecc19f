//! Whose mail may go, and what is known of them.
//!
//! A deployment that follows its account knows its tenants from Redis, where `control` keeps them; others know those of the
//! template. What Redis said is good for a minute, and for longer while Redis can't be asked.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sendslot_domain::TenantName;
use sendslot_schedule::{Schedule, ScheduleError};
use tokio::time::{Instant, timeout};
use tracing::{error, warn};

use crate::{Seeded, TenantSettings, settings::BudgetSettings};

/// Where tenants are asked for.
pub trait AskTenants: Sync {
    /// The settings of tenants, one each, as [`Schedule::tenants`] says.
    fn tenants(
        &self,
        tenants: &[TenantName],
    ) -> impl Future<Output = Result<Vec<Option<String>>, ScheduleError>> + Send;
}

impl AskTenants for Seeded {
    async fn tenants(&self, tenants: &[TenantName]) -> Result<Vec<Option<String>>, ScheduleError> {
        self.call(|schedule| async move { schedule.tenants(tenants).await })
            .await
    }
}

impl AskTenants for Schedule {
    async fn tenants(&self, tenants: &[TenantName]) -> Result<Vec<Option<String>>, ScheduleError> {
        Self::tenants(self, tenants).await
    }
}

/// How long it is good for that a tenant is known.
const KNOWN_FOR: Duration = Duration::from_mins(1);
/// How long it is good for that one isn't: somebody may just be setting it up.
const UNKNOWN_FOR: Duration = Duration::from_secs(5);
/// The longest that asking may take.
const ASK_TIMEOUT: Duration = Duration::from_millis(500);

/// What is known of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is one, with these settings.
    As(Arc<TenantSettings>),
    /// There is no such tenant.
    Unknown,
    /// Nobody could be asked.
    NotTold,
}

/// What was said of a tenant, and when.
type Said = (Instant, Option<Arc<TenantSettings>>);

/// The tenants that one process knows.
#[derive(Clone, Debug)]
pub struct Tenants {
    deployed: HashMap<TenantName, Arc<TenantSettings>>,
    /// Whether Redis knows better.
    asks: bool,
    said: Arc<Mutex<HashMap<TenantName, Said>>>,
}

impl Tenants {
    /// Those of the template, until Redis is asked.
    #[must_use]
    pub fn new(settings: &BudgetSettings) -> Self {
        let tenants = settings.tenants.iter().cloned();
        let deployed = tenants.map(|tenant| {
            let settings = TenantSettings {
                configuration_set: tenant.configuration_set,
                ..TenantSettings::default()
            };
            (tenant.name, Arc::new(settings))
        });
        Self {
            deployed: deployed.collect(),
            asks: settings.follows_account,
            said: Arc::default(),
        }
    }

    /// Those that Redis knows, and no others.
    #[must_use]
    pub fn asked() -> Self {
        Self {
            deployed: HashMap::new(),
            asks: true,
            said: Arc::default(),
        }
    }

    /// What is known of these, asking in one round trip for what has to be asked.
    pub async fn of<'a>(
        &self,
        redis: &impl AskTenants,
        names: impl Iterator<Item = &'a TenantName>,
    ) -> HashMap<TenantName, Known> {
        let names: BTreeSet<&TenantName> = names.collect();
        if self.asks {
            let stale: Vec<TenantName> = names
                .iter()
                .filter(|name| !self.is_fresh(name))
                .map(|name| (*name).clone())
                .collect();
            if !stale.is_empty() {
                self.ask(redis, stale).await;
            }
        }
        let known = names
            .into_iter()
            .map(|name| (name.clone(), self.known(name)));
        known.collect()
    }

    fn said(&self) -> std::sync::MutexGuard<'_, HashMap<TenantName, Said>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_fresh(&self, name: &TenantName) -> bool {
        self.said().get(name).is_some_and(|(at, set)| {
            at.elapsed()
                < if set.is_some() {
                    KNOWN_FOR
                } else {
                    UNKNOWN_FOR
                }
        })
    }

    async fn ask(&self, redis: &impl AskTenants, names: Vec<TenantName>) {
        let why = match timeout(ASK_TIMEOUT, redis.tenants(&names)).await {
            Ok(Ok(told)) if told.len() == names.len() => {
                let now = Instant::now();
                let told = names.into_iter().zip(told).filter_map(|(name, text)| {
                    let settings = match text.map(|text| TenantSettings::from_json(&text)) {
                        None => None,
                        Some(Ok(settings)) => Some(Arc::new(settings)),
                        Some(Err(error)) => {
                            // Another version's: whatever was known of it stays.
                            error!(tenant = %name, %error, "a tenant's settings can't be read");
                            return None;
                        }
                    };
                    Some((name, (now, settings)))
                });
                let mut said = self.said();
                // Names that anybody makes up must not fill the memory. Those that are known stay, for when nobody can be asked.
                said.retain(|_, (at, settings)| settings.is_some() || at.elapsed() < UNKNOWN_FOR);
                return said.extend(told);
            }
            Ok(Ok(_)) => "an answer that doesn't fit".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        warn!(error = why, "tenants can't be asked for");
    }

    fn known(&self, name: &TenantName) -> Known {
        if !self.asks {
            let deployed = self.deployed.get(name).cloned();
            return deployed.map_or(Known::Unknown, Known::As);
        }
        match self.said().get(name) {
            Some((_, Some(settings))) => Known::As(settings.clone()),
            Some((at, None)) if at.elapsed() < UNKNOWN_FOR => Known::Unknown,
            _ => match self.deployed.get(name) {
                Some(settings) => Known::As(settings.clone()),
                None => Known::NotTold,
            },
        }
    }
}
