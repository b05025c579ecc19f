//! How many batches are sent at once follows the budget.

use sendslot_domain::{
    Lane, Rate,
    concurrency::{self, Load},
};
use tokio::time::timeout_at;
use tracing::{info, warn};

use crate::{
    ports::{CallError, Durations, Mapping, Mappings},
    settings::Scaling,
    times::Times,
};

/// What came of it. None of it fails a refresh: the mappings go on as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scaled {
    /// How many mappings were changed.
    pub(crate) changed: usize,
    /// How many calls failed.
    pub(crate) failed: usize,
}

/// Sets the mappings to what carries the rate, where that is worth it.
pub(crate) async fn follow(
    outside: &(impl Durations + Mappings),
    scaling: &Scaling,
    rate: Rate,
    times: Times,
) -> Scaled {
    let mut scaled = Scaled::default();
    let mean = within(times, outside.mean(&scaling.function)).await;
    let Ok(duration) = mean.inspect_err(|error| warned(error, "the sends' duration")) else {
        // Not taken for the default: the next refresh, which measures again, would undo it.
        scaled.failed = 1;
        return scaled;
    };
    let wanted = concurrency::wanted(&Load {
        rate,
        batch: None,
        duration,
        reserved: scaling.reserved,
    });
    for lane in Lane::ALL {
        let Some(uuid) = scaling.mappings.get(lane) else {
            continue;
        };
        match within(times, outside.mapping(uuid)).await {
            Ok(Mapping {
                in_motion: true, ..
            }) => info!(%lane, "the mapping is about to change: left for the next refresh"),
            Ok(Mapping { concurrency, .. })
                if concurrency.is_none_or(|now| concurrency::moves(now, wanted)) =>
            {
                if let Err(error) = within(times, outside.scale(uuid, wanted)).await {
                    warned(&error, "a mapping's concurrency");
                    scaled.failed += 1;
                    continue;
                }
                scaled.changed += 1;
                let duration_ms = duration.map(|duration| duration.0);
                info!(
                    %lane, was = concurrency, now = wanted, rate = %rate, duration_ms,
                    "batches that are sent at once"
                );
            }
            Ok(_) => {}
            Err(error) => {
                warned(&error, "a mapping");
                scaled.failed += 1;
            }
        }
    }
    scaled
}

async fn within<T>(
    times: Times,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let answer = timeout_at(times.call_by(), call).await;
    answer.unwrap_or_else(|_| Err(CallError::timeout()))
}

fn warned(error: &CallError, what: &str) {
    let CallError { code, message, .. } = error;
    warn!(code, error = message, "{what} could not be read or set");
}
