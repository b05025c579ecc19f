//! The account's numbers and the settings make a budget.

use sendslot_domain::{
    Budget, Rate,
    account::{Known, bounded, bounded_quota},
    budget::{BudgetError, Settings as BudgetNumbers},
};
use sendslot_runtime::ControlSettings;

use crate::notes::Count;

/// A budget, and where it comes from.
pub(crate) struct Numbers {
    /// The budget.
    pub(crate) budget: Budget,
    /// `account`, or `settings` while the account was never known.
    pub(crate) source: &'static str,
    /// What of the settings was cut to fit.
    pub(crate) warnings: Vec<String>,
}

/// The budget of what is known; nothing while nothing is.
///
/// What others use of the account's quota isn't ours; a bound of the settings is one on what goes through the schedule,
/// and holds besides.
///
/// # Errors
/// When the settings make no budget at this limit.
pub(crate) fn numbers(
    settings: &ControlSettings,
    known: Option<&Known>,
    count: Option<&Count>,
) -> Result<Option<Numbers>, BudgetError> {
    let (limit, quota, source) = match (known, settings.limit) {
        (Some(known), most) => {
            let quota = known.daily_quota;
            let ours = quota.map(|quota| count.map_or(quota, |count| count.part_of(quota)));
            (bounded(known.limit, most), ours, "account")
        }
        (None, Some(limit)) => (limit, None, "settings"),
        (None, None) => return Ok(None),
    };
    let mut numbers = settings.numbers;
    numbers.limit = limit;
    numbers.caps.day = bounded_quota(quota, settings.daily_quota);
    let warnings = cut(&mut numbers);
    Ok(Some(Numbers {
        budget: Budget::new(numbers)?,
        source,
        warnings,
    }))
}

/// The most that may be sent in any 24 hours, by whomever: the lower of the account's quota and the settings' bound.
pub(crate) fn quota(settings: &ControlSettings, known: Option<&Known>) -> Option<u64> {
    bounded_quota(
        known.and_then(|known| known.daily_quota),
        settings.daily_quota,
    )
}

/// How much of it is used, percent; the greater of the account's and the bound's.
#[expect(clippy::cast_precision_loss, reason = "for people, and below 2^53")]
pub(crate) fn used_percent(
    settings: &ControlSettings,
    known: Option<&Known>,
    ours: u64,
    foreign: u64,
) -> Option<f64> {
    let of = |used: u64, quota: Option<u64>| Some(used as f64 * 100.0 / quota? as f64);
    let account = of(ours + foreign, known.and_then(|known| known.daily_quota));
    let bound = of(ours, settings.daily_quota);
    account.into_iter().chain(bound).reduce(f64::max)
}

/// Cuts what was set for a larger limit, and says so.
fn cut(numbers: &mut BudgetNumbers) -> Vec<String> {
    let mut warnings = Vec::new();
    let limit = numbers.limit;
    let most = u32::try_from((limit.num() / limit.den()).max(1)).unwrap_or(u32::MAX);
    if let Some(burst) = numbers.burst.filter(|burst| *burst > most) {
        numbers.burst = Some(most);
        warnings.push(format!(
            "burst {burst} is more than the limit of {limit} allows, {most} is used: lower SENDSLOT_BURST, or leave it out"
        ));
    }
    let half = limit.times(numbers.headroom).times(Rate::HALF);
    if numbers.reserve > half {
        let reserve = numbers.reserve;
        numbers.reserve = half;
        warnings.push(format!(
            "reserve {reserve} is more than half of what a limit of {limit} allows, {half} is used: lower SENDSLOT_RESERVE"
        ));
    }
    warnings
}
