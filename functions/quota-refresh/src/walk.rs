//! SES's suppression list: read page by page at SES's pace, and handed to `control`, which keeps the place.
//!
//! Of an address nothing leaves this function but its digest; nothing of it is logged.

use sendslot_mail::digest;
use sendslot_runtime::control::{Failure, Request, Suppress, Suppressed, SuppressedAddress, Walk};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{info, warn};

use crate::{
    event::RESOURCE,
    ports::{CallError, Kind, Outside, SuppressionPage},
    refresh::{ask, failure},
    switches::PACE,
    times::{CALL, Times},
};

/// Where a walk stands that begins anew: no token that SES gives is empty, so it names the first page.
const ANEW: &str = "";

/// What came of a walk, as far as it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    /// Pages that `control` has taken.
    pub(crate) pages: usize,
    /// Whether one couldn't be read or handed over.
    pub(crate) failed: bool,
}

/// Goes on with a walk as far as there is time for. SES was last asked at `asked`. What isn't read is left for the next time.
pub(crate) async fn read(
    outside: &impl Outside,
    mut walk: Walk,
    mut asked: Instant,
    times: Times,
) -> Walked {
    let by = times.walk_by();
    let (mut walked, mut anew) = (Walked::default(), false);
    loop {
        let next = asked + PACE;
        // Only what can end: a call that is cut short at the end of the time would read as one that failed.
        if next + CALL > by {
            let pages = walked.pages;
            info!(
                pages,
                "the suppression list isn't read to its end: the rest next time"
            );
            return walked;
        }
        sleep_until(next).await;
        let token = walk.token.clone().filter(|token| token != ANEW);
        let has_token = token.is_some();
        let answer = timeout_at(times.call_by(), outside.suppressed(walk.since_ms, token)).await;
        asked = Instant::now();
        let (told, is_page) = match answer.unwrap_or_else(|_| Err(CallError::timeout())) {
            Ok(page) => (suppress(walk.clone(), page), true),
            Err(error) if has_token && !anew && is_stale(&error) => {
                anew = true;
                warn!(
                    code = error.code,
                    "SES doesn't know the place in the suppression list any more: it is read anew"
                );
                (from_the_start(walk.clone()), false)
            }
            Err(CallError {
                code,
                message,
                kind,
            }) => {
                walked.failed = true;
                if kind == Kind::Busy {
                    info!(
                        code,
                        "SES is asked too often: the suppression list is read next time"
                    );
                } else {
                    warn!(
                        code,
                        error = message,
                        "the suppression list can't be read: next time"
                    );
                }
                return walked;
            }
        };
        let goes_on = match hand_over(outside, told, times).await {
            Ok(suppressed) => suppressed.walk,
            Err(Failure { code, message }) => {
                walked.failed = true;
                warn!(
                    code,
                    error = message,
                    "a page of the suppression list wasn't taken: it is read again next time"
                );
                return walked;
            }
        };
        walked.pages += usize::from(is_page);
        match goes_on {
            None => return walked,
            // Neither SES nor `control` may have this read for ever.
            Some(same) if same == walk => {
                walked.failed = true;
                warn!("the same page of the suppression list is named again: next time");
                return walked;
            }
            Some(next) => walk = next,
        }
    }
}

/// Whether SES doesn't take the token that it gave. Nothing else of the request can be wrong one time and right another.
fn is_stale(error: &CallError) -> bool {
    matches!(
        error.code.as_str(),
        "InvalidNextTokenException" | "BadRequestException"
    )
}

/// A page as `control` takes it.
fn suppress(walk: Walk, page: SuppressionPage) -> Suppress {
    let entry = |(address, reason): (String, String)| SuppressedAddress {
        digest: digest(&address).to_string(),
        cause: reason.to_lowercase(),
    };
    Suppress {
        entries: page.addresses.into_iter().map(entry).collect(),
        walk,
        next: page.next,
        caller: Some(RESOURCE.to_owned()),
    }
}

/// What has `control` go back to the first page: nobody, and that this is where the walk goes on.
fn from_the_start(walk: Walk) -> Suppress {
    Suppress {
        walk,
        next: Some(ANEW.to_owned()),
        caller: Some(RESOURCE.to_owned()),
        ..Suppress::default()
    }
}

async fn hand_over(
    outside: &impl Outside,
    told: Suppress,
    times: Times,
) -> Result<Suppressed, Failure> {
    let request = Request::Suppress(told);
    let request =
        serde_json::to_vec(&request).map_err(|error| failure("bad_request", &error.to_string()))?;
    ask(outside, request, times).await
}
