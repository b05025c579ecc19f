//! What an invocation's time is spent on, so that Lambda never cuts it short.

use std::time::Duration;

use tokio::time::Instant;

/// What is kept for metrics and the answer.
const CLOSING: Duration = Duration::from_secs(2);
/// What is kept for answering CloudFormation: three tries that hang ([`PUT`]) and the pauses between them.
const RESPONDING: Duration = Duration::from_secs(12);
/// The longest that one try to answer CloudFormation may take.
pub(crate) const PUT: Duration = Duration::from_secs(3);
/// The longest that SES may take to say what the account may send. It takes 0.1 s.
pub(crate) const ACCOUNT: Duration = Duration::from_secs(5);
/// The longest that reading the tenants' settings may take: pages of ten, each some 0.13 s with the pause behind it, so some 2,300
/// tenants.
const TENANTS: Duration = Duration::from_secs(30);
/// The longest that any other call may take.
pub(crate) const CALL: Duration = Duration::from_secs(4);
/// The longest that a refresh goes on reading the suppression list: at one page a second some 15 pages of 1,000 addresses.
const WALK: Duration = Duration::from_secs(20);
/// The longest that `control` may take: more than its own timeout of 10 s, so that it isn't given up while it still runs.
pub(crate) const CONTROL: Duration = Duration::from_secs(12);

/// When the parts of a refresh must have ended.
///
/// | part | may take | must have ended before the end |
/// |---|---|---|
/// | asking SES for the account | 5 s | 12 s |
/// | reading the tenants' settings, meanwhile | 30 s | 12 s |
/// | asking `control` | 12 s | |
/// | reading sending switches | | 12 s |
/// | asking `control` again | 12 s | |
/// | setting how many batches are sent at once | | |
/// | reading the suppression list | 20 s | 12 s |
/// | asking `control` to take a page of it | 12 s | |
///
/// The end is 2 s before the invocation's deadline, or 12 s when CloudFormation waits for an answer. With a timeout of less than a
/// minute there is less of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    start: Instant,
    control: Duration,
    end: Instant,
}

impl Times {
    /// Of a refresh that begins now and ends then.
    pub(crate) fn until(end: Instant) -> Self {
        let start = Instant::now();
        let control = CONTROL.min(left(end) / 4);
        Self {
            start,
            control,
            end,
        }
    }

    pub(crate) fn account_by(self) -> Instant {
        (self.start + ACCOUNT).min(self.switches_by())
    }

    pub(crate) fn tenants_by(self) -> Instant {
        (self.start + TENANTS).min(self.switches_by())
    }

    /// When an answer of `control` must be there that is asked now.
    pub(crate) fn control_by(self) -> Instant {
        (Instant::now() + self.control).min(self.end)
    }

    pub(crate) fn switches_by(self) -> Instant {
        before(self.end, self.control)
    }

    /// When the last page of the suppression list must be there, if reading it begins now: `control` is still to take it.
    pub(crate) fn walk_by(self) -> Instant {
        (Instant::now() + WALK).min(self.switches_by())
    }

    /// When a call must have ended that begins now.
    pub(crate) fn call_by(self) -> Instant {
        (Instant::now() + CALL).min(self.end)
    }
}

/// When a refresh must have ended, for an invocation that is cut short then.
pub(crate) fn refresh_by(deadline: Instant) -> Instant {
    before(deadline, CLOSING.min(left(deadline) / 2))
}

/// When a refresh must have ended while CloudFormation waits, and when the last try to answer it.
pub(crate) fn respond_by(deadline: Instant) -> (Instant, Instant) {
    let left = left(deadline);
    let refresh = before(deadline, RESPONDING.min(left / 2));
    (refresh, before(deadline, (CLOSING / 2).min(left / 10)))
}

fn left(moment: Instant) -> Duration {
    moment.saturating_duration_since(Instant::now())
}

/// So long before a moment. (One that no clock can show is long past.)
fn before(moment: Instant, time: Duration) -> Instant {
    moment.checked_sub(time).unwrap_or(moment)
}
