//! Every key there is.

use std::fmt;

use sendslot_domain::{Lane, SendId, TenantName, tenant::NameError};

/// The keys of one budget. All carry its name as hash tag, so a script's keys share a cluster slot.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: String,
    pub(crate) budget: String,
    pub(crate) schedule: String,
    pub(crate) guard: String,
    pub(crate) paused: String,
    pub(crate) throttled: String,
    pub(crate) account: String,
    pub(crate) tenants: String,
    pub(crate) suppressed: String,
    pub(crate) replays: String,
    pub(crate) uncertain: String,
    ends: [String; 2],
    asked: [String; 2],
}

impl Keys {
    /// The keys of the budget with this name, such as `ses`.
    ///
    /// # Errors
    /// When the name has other characters than a tenant's may have: it stands inside braces in every key.
    pub fn of(budget: &str) -> Result<Self, NameError> {
        let name: TenantName = budget.parse()?;
        let prefix = format!("sendslot:{{{name}}}:");
        let key = |what: &str| format!("{prefix}{what}");
        Ok(Self {
            budget: key("budget"),
            schedule: key("schedule"),
            guard: key("guard"),
            paused: key("paused"),
            throttled: key("throttled"),
            account: key("account"),
            tenants: key("tenants"),
            suppressed: key("suppressed"),
            replays: key("replays"),
            uncertain: key("uncertain"),
            ends: Lane::ALL.map(|lane| key(&format!("ends:{lane}"))),
            asked: Lane::ALL.map(|lane| key(&format!("asked:{lane}"))),
            prefix,
        })
    }

    /// A lane's waiting lines, by when each ends.
    pub(crate) fn ends(&self, lane: Lane) -> &str {
        &self.ends[lane as usize]
    }

    /// The same, by when somebody of each last asked.
    pub(crate) fn asked(&self, lane: Lane) -> &str {
        &self.asked[lane as usize]
    }

    /// What one tenant has booked, and its place in the lines.
    pub(crate) fn tenant(&self, tenant: &TenantName) -> String {
        format!("{}tenant:{tenant}", self.prefix)
    }

    /// What the provider told of a tenant's mail.
    pub(crate) fn counts(&self, tenant: &TenantName) -> String {
        format!("{}counts:{tenant}", self.prefix)
    }

    /// That an event of the provider was taken in.
    pub(crate) fn event(&self, id: &str) -> String {
        format!("{}event:{id}", self.prefix)
    }

    /// The claim on one send id of a tenant. Neither name can hold a colon, so no two claims share a key.
    #[must_use]
    pub fn claim(&self, tenant: &TenantName, send_id: &SendId) -> String {
        format!("{}claim:{tenant}:{send_id}", self.prefix)
    }

    /// How many recipients a tenant has sent to.
    pub(crate) fn sent(&self, tenant: &TenantName) -> String {
        format!("{}sent:{tenant}", self.prefix)
    }

    /// What happened to one send id of a tenant.
    pub(crate) fn trace(&self, tenant: &TenantName, send_id: &SendId) -> String {
        format!("{}trace:{tenant}:{send_id}", self.prefix)
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.prefix)
    }
}
