//! Which configuration sets may send.

use std::time::Duration;

use sendslot_runtime::control::SetSwitch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{info, warn};

use crate::{
    ports::{CallError, Kind, Sets},
    times::CALL,
};

/// From the end of one call to SES's control plane to the beginning of the next. SES takes one a second for the whole account, all
/// such operations together but those that send (Amazon SES Developer Guide, "Service quotas", API throttling limits). From
/// the end, because requests travel unequally long.
pub(crate) const PACE: Duration = Duration::from_secs(1);
/// So many calls in a row that fail, and no more are made in this refresh.
const GIVEN_UP: u32 = 2;

/// Reads the switches in this order, as many as there is time for. SES was last asked at `asked`, and then at what is answered.
///
/// What couldn't be read isn't in the answer; `control` names it again at the next refresh.
pub(crate) async fn read(
    sets: &impl Sets,
    names: &[String],
    mut asked: Instant,
    by: Instant,
) -> (Vec<SetSwitch>, Instant) {
    let mut read = Vec::new();
    let mut failed = 0;
    for set in names {
        let next = asked + PACE;
        if next >= by || failed == GIVEN_UP {
            let left = names.len() - read.len();
            info!(
                left,
                "not all configuration sets could be read: the rest next time"
            );
            break;
        }
        sleep_until(next).await;
        let until = (Instant::now() + CALL).min(by);
        let answer = timeout_at(until, sets.sends(set)).await;
        asked = Instant::now();
        match answer.unwrap_or_else(|_| Err(CallError::timeout())) {
            Ok(Some(sending)) => {
                failed = 0;
                if !sending {
                    warn!(set, "SES lets nobody send through this configuration set");
                }
                read.push(SetSwitch {
                    set: set.clone(),
                    sending,
                });
            }
            Ok(None) => warn!(
                set,
                "SES didn't say whether this configuration set may send"
            ),
            Err(CallError {
                kind: Kind::Missing,
                ..
            }) => {
                failed = 0;
                warn!(
                    set,
                    "there is no such configuration set: SES refuses its tenant's mail"
                );
            }
            Err(error) if error.kind == Kind::Busy => {
                info!(
                    set,
                    code = error.code,
                    "SES is asked too often: the rest next time"
                );
                break;
            }
            Err(error) => {
                failed += 1;
                let CallError { code, message, .. } = error;
                warn!(set, code, error = message, "configuration set not read");
            }
        }
    }
    (read, asked)
}
