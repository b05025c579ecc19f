//! How the time of a release or a replay is shared out, so that Lambda never cuts it short.

use std::time::Duration;

use tokio::time::Instant;

/// Nothing more is taken on when less than this is left: a booking and all that follows it fit into it.
pub const CLOSING: Duration = Duration::from_secs(6);
/// What is kept for everything after a booking. What was booked must get to its queue.
const AFTER_BOOKING: Duration = Duration::from_secs(5);
/// What is kept for everything after the queues. They have had 2.5 s: an attempt that hangs, and another.
const AFTER_QUEUES: Duration = Duration::from_millis(2_500);
/// What is kept for everything after removing what was released from the bucket.
const AFTER_REMOVING: Duration = Duration::from_secs(1);
/// What is kept for metrics and the answer, after what came to nothing was given back.
const ANSWER: Duration = Duration::from_millis(500);

/// When an invocation is cut short, and what has to be done before.
///
/// | part | must have ended before that |
/// |---|---|
/// | taking on: reading parked mail | 6 s |
/// | booking | 5 s |
/// | queues | 2.5 s |
/// | removing released mail from the bucket | 1 s |
/// | giving back what came to nothing | 0.5 s |
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// The invocation is cut short then.
    #[must_use]
    pub const fn at(moment: Instant) -> Self {
        Self(moment)
    }

    /// Takes nothing more on after so long, and later than this in no case.
    pub(crate) fn after(self, time: Duration) -> Self {
        let own = Instant::now() + time + CLOSING;
        Self(own.min(self.0))
    }

    /// Whether nothing more may be taken on.
    pub(crate) fn is_near(self) -> bool {
        Instant::now() >= self.take_by()
    }

    pub(crate) fn take_by(self) -> Instant {
        self.before(CLOSING)
    }

    pub(crate) fn book_by(self) -> Instant {
        self.before(AFTER_BOOKING)
    }

    pub(crate) fn put_by(self) -> Instant {
        self.before(AFTER_QUEUES)
    }

    pub(crate) fn remove_by(self) -> Instant {
        self.before(AFTER_REMOVING)
    }

    pub(crate) fn undo_by(self) -> Instant {
        self.before(ANSWER)
    }

    /// So long before it. (A moment that no clock can show is long past.)
    fn before(self, time: Duration) -> Instant {
        self.0.checked_sub(time).unwrap_or(self.0)
    }
}
