//! Writing the budget.

use sendslot_domain::{
    Budget, Lane, Millis, Moment, TenantName, budget::GUARD_TICKS, schedule::Tenant, window::Span,
};

use crate::{Schedule, ScheduleError, script::Named};

/// A budget and its tenants, and who says so.
#[derive(Clone, Debug)]
pub struct Seed {
    /// Where the numbers come from: `deploy` for template parameters.
    pub source: String,
    /// What may be sent.
    pub budget: Budget,
    /// Who may send, and how much.
    pub tenants: Vec<(TenantName, Tenant)>,
}

impl Seed {
    /// Tells it from any other.
    #[must_use]
    pub fn digest(&self) -> String {
        // The SHA-1 that Redis names scripts by.
        redis::Script::new(&format!("{self:?}"))
            .get_hash()
            .to_owned()
    }
}

impl Schedule {
    /// The same schedule, whose bookings and claims fail with [`ScheduleError::Stale`] unless Redis holds this seed's budget.
    #[must_use]
    pub fn expecting(&self, seed: &Seed) -> Self {
        Self {
            expects: Some(seed.digest().into()),
            ..self.clone()
        }
    }

    /// Writes the budget, unless Redis holds the same already or one from another source. Answers whether
    /// anything was written.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn seed(&self, seed: &Seed) -> Result<bool, ScheduleError> {
        let (book, claim, words) = (
            book_numbers(&seed.budget.for_tenants(seed.tenants.len())),
            claim_numbers(&seed.budget),
            words(&seed.budget),
        );
        let script = &self.scripts.seed;
        let mut call = script.prepare();
        call.key(&self.keys.budget).key(&self.keys.schedule);
        call.arg(&seed.source)
            .arg(seed.digest())
            .arg(book.len())
            .arg(claim.len())
            .arg(words.len());
        call.arg(&book).arg(&claim);
        for (field, value) in &words {
            call.arg(*field).arg(value);
        }
        for (name, tenant) in &seed.tenants {
            call.arg(name.as_str())
                .arg(tenant.weight)
                .arg(tenant.caps.hour.unwrap_or(0))
                .arg(tenant.caps.day.unwrap_or(0));
        }
        let written: u8 = Named::call(&call, &self.connection, &self.keys.budget).await?;
        Ok(written == 1)
    }

    /// Tells that so many recipients, granted then, were refused as too many a second; a claim cuts the rate by it. Answers
    /// with the [`sendslot_domain::budget::FACTOR_ONE`]ths of the rate that may be used.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn slow(&self, granted: Moment, recipients: u32) -> Result<u64, ScheduleError> {
        let mut call = self.scripts.slow.prepare();
        call.key(&self.keys.budget).key(&self.keys.throttled);
        call.arg(granted.0).arg(recipients);
        Named::call(&call, &self.connection, &self.keys.budget).await
    }

    /// Ends a block for one of these reasons. Answers whether there was one.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn unblock(&self, reasons: &[&str]) -> Result<bool, ScheduleError> {
        let mut call = self.scripts.unblock.prepare();
        call.key(&self.keys.budget);
        for reason in reasons {
            call.arg(*reason);
        }
        let ended: u8 = Named::call(&call, &self.connection, &self.keys.budget).await?;
        Ok(ended == 1)
    }

    /// Lets nobody send or book for `length`, or twice as long as the last time if that is just over and was for the same
    /// reason (a word), up to `longest`. Answers with how long that is yet.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn block(
        &self,
        length: Millis,
        longest: Millis,
        reason: &str,
    ) -> Result<Millis, ScheduleError> {
        let mut call = self.scripts.block.prepare();
        call.key(&self.keys.budget);
        call.arg(length.0).arg(longest.0).arg(reason);
        let left: u64 = Named::call(&call, &self.connection, &self.keys.budget).await?;
        Ok(Millis(left))
    }
}

/// What `book.lua` runs on, in the order in which it unpacks them.
fn book_numbers(budget: &Budget) -> [f64; 13] {
    let (share, slice) = (budget.reserve_share(), budget.slice());
    let cap = |span, lane| exact(budget.cap(span, lane).unwrap_or(0));
    [
        exact(budget.rate().num()),
        exact(budget.rate().den()),
        exact(share.num),
        exact(share.den),
        budget.reserve().per_second(),
        exact(budget.largest_shared()),
        exact(budget.horizon().0),
        exact(slice.num),
        exact(slice.den),
        cap(Span::Hour, Lane::Priority),
        cap(Span::Hour, Lane::Bulk),
        cap(Span::Day, Lane::Priority),
        cap(Span::Day, Lane::Bulk),
    ]
}

/// What `claim.lua` runs on, likewise. The guard's rate is per tick there.
fn claim_numbers(budget: &Budget) -> [f64; 7] {
    let (rate, share) = (budget.guard_rate(), budget.guard_share());
    [
        rate.num(),
        rate.den() * GUARD_TICKS,
        share.num,
        share.den,
        u64::from(budget.burst()),
        budget.largest_shared(),
        budget.most_per_second(),
    ]
    .map(exact)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a budget's numbers are below 2^53"
)]
const fn exact(number: u64) -> f64 {
    number as f64
}

/// The settings, for people.
fn words(budget: &Budget) -> [(&'static str, String); 9] {
    let cap = |cap: Option<u64>| cap.map_or_else(|| "none".to_owned(), |cap| cap.to_string());
    let slice = budget.slice();
    [
        ("limit", budget.limit().to_string()),
        ("headroom", budget.headroom().per_second().to_string()),
        ("guard", budget.guard().per_second().to_string()),
        ("burst", budget.burst().to_string()),
        ("reserve", budget.reserve().to_string()),
        ("slice", format!("{}/{}", slice.num, slice.den)),
        ("hourly_cap", cap(budget.caps().hour)),
        ("daily_quota", cap(budget.caps().day)),
        ("horizon_seconds", budget.horizon().whole_secs().to_string()),
    ]
}
