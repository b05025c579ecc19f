//! Writing the budget.

use sendslot_domain::{Budget, TenantName, budget::GUARD_TICKS};

use crate::{Schedule, ScheduleError, script::Named};

/// A budget and its tenants, and who says so.
#[derive(Clone, Debug)]
pub struct Seed {
    /// Where the numbers come from: `deploy` for template parameters.
    pub source: String,
    /// What may be sent.
    pub budget: Budget,
    /// Who may send.
    pub tenants: Vec<TenantName>,
}

impl Schedule {
    /// Writes the budget, unless Redis holds the same already or one from another source. Answers whether
    /// anything was written.
    ///
    /// # Errors
    /// When Redis can't be reached.
    pub async fn seed(&self, seed: &Seed) -> Result<bool, ScheduleError> {
        let (book, claim, words) = (
            book_numbers(&seed.budget),
            claim_numbers(&seed.budget),
            words(&seed.budget),
        );
        let script = &self.scripts.seed;
        let mut call = script.prepare();
        call.key(&self.keys.budget).key(&self.keys.schedule);
        call.arg(&seed.source)
            .arg(book.len())
            .arg(claim.len())
            .arg(words.len());
        call.arg(&book).arg(&claim);
        for (field, value) in &words {
            call.arg(*field).arg(value);
        }
        for tenant in &seed.tenants {
            call.arg(tenant.as_str());
        }
        let written: u8 = Named::call(&call, &self.connection, &self.keys.budget).await?;
        Ok(written == 1)
    }
}

/// What `book.lua` runs on, in the order in which it unpacks them.
fn book_numbers(budget: &Budget) -> [f64; 7] {
    let share = budget.reserve_share();
    let [num, den, share_num, share_den, largest] = [
        budget.rate().num(),
        budget.rate().den(),
        share.num,
        share.den,
        budget.largest_shared(),
    ]
    .map(exact);
    [
        num,
        den,
        share_num,
        share_den,
        budget.reserve().per_second(),
        largest,
        exact(budget.horizon().0),
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
fn words(budget: &Budget) -> [(&'static str, String); 6] {
    [
        ("limit", budget.limit().to_string()),
        ("headroom", budget.headroom().per_second().to_string()),
        ("guard", budget.guard().per_second().to_string()),
        ("burst", budget.burst().to_string()),
        ("reserve", budget.reserve().to_string()),
        ("horizon_seconds", budget.horizon().whole_secs().to_string()),
    ]
}
