//! Whose mail may go, and through which configuration set.
//!
//! A deployment that follows its account knows its tenants from Redis, where `control` keeps them; others know those of the
//! template. What Redis said is good for a minute, and for longer while Redis can't be asked.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sendslot_domain::TenantName;
use sendslot_runtime::settings::BudgetSettings;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::{batch::failure, ports::Sets};

/// How long it is good for that a tenant is known.
const KNOWN_FOR: Duration = Duration::from_mins(1);
/// How long it is good for that one isn't: somebody may just be setting it up.
const UNKNOWN_FOR: Duration = Duration::from_secs(5);
/// The longest that asking may take.
const ASK_TIMEOUT: Duration = Duration::from_millis(500);

/// What is known of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Its mail goes through this configuration set, or through none.
    As(Option<String>),
    /// There is no such tenant.
    Unknown,
    /// Nobody could be asked.
    NotTold,
}

/// What was said of a tenant, and when.
type Said = (Instant, Option<Option<String>>);

/// The tenants that one process knows.
#[derive(Clone, Debug)]
pub(crate) struct Tenants {
    deployed: HashMap<TenantName, Option<String>>,
    /// Whether Redis knows better.
    asks: bool,
    said: Arc<Mutex<HashMap<TenantName, Said>>>,
}

impl Tenants {
    pub(crate) fn new(settings: &BudgetSettings) -> Self {
        let tenants = settings.tenants.iter().cloned();
        Self {
            deployed: tenants.map(|t| (t.name, t.configuration_set)).collect(),
            asks: settings.follows_account,
            said: Arc::default(),
        }
    }

    /// What is known of these, asking in one round trip for what has to be asked.
    pub(crate) async fn of<'a>(
        &self,
        redis: &impl Sets,
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

    async fn ask(&self, redis: &impl Sets, names: Vec<TenantName>) {
        match timeout(ASK_TIMEOUT, redis.sets(&names)).await {
            Ok(Ok(sets)) if sets.len() == names.len() => {
                let now = Instant::now();
                let mut said = self.said();
                said.extend(
                    names
                        .into_iter()
                        .zip(sets)
                        .map(|(name, set)| (name, (now, set))),
                );
            }
            failed => warn!(error = failure(failed), "tenants can't be asked for"),
        }
    }

    fn known(&self, name: &TenantName) -> Known {
        if !self.asks {
            let deployed = self.deployed.get(name).cloned();
            return deployed.map_or(Known::Unknown, Known::As);
        }
        match self.said().get(name) {
            Some((_, Some(set))) => Known::As(set.clone()),
            Some((at, None)) if at.elapsed() < UNKNOWN_FOR => Known::Unknown,
            _ => match self.deployed.get(name) {
                Some(set) => Known::As(set.clone()),
                None => Known::NotTold,
            },
        }
    }
}
