//! Mail of tenants that may not send is parked, and goes when its tenant is resumed: `control` replays it.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use sendslot_mail::Envelope;
use sendslot_runtime::{
    bucket::Parking,
    parking::{ParkedKey, Reason},
};
use tokio::time::{Instant, timeout_at};

use crate::{
    answer::{Failure, Outcome},
    booking::LATE,
};

/// The longest that parking one mail may take.
const PARK_TIMEOUT: Duration = Duration::from_secs(1);
/// How many are parked at a time.
const AT_ONCE: usize = 16;

/// A mail to be parked.
pub(crate) struct Aside {
    /// Which request it is of.
    pub(crate) index: usize,
    /// The mail, with nothing booked.
    pub(crate) envelope: Envelope,
}

/// Parks all of them until the moment `by`; what isn't parked by then comes again. Twice is once: a mail has one key.
pub(crate) async fn park_all(
    bucket: &impl Parking,
    all: Vec<Aside>,
    by: Instant,
) -> Vec<(usize, Outcome)> {
    let parked = stream::iter(all).map(async |Aside { index, envelope }| {
        let outcome = match park(bucket, &envelope, by).await {
            Ok(()) => Outcome::Parked,
            Err(error) => Outcome::Failed(Failure::Park(error)),
        };
        (index, outcome)
    });
    parked.buffer_unordered(AT_ONCE).collect().await
}

async fn park(bucket: &impl Parking, envelope: &Envelope, by: Instant) -> Result<(), String> {
    let key = ParkedKey {
        tenant: envelope.tenant.clone(),
        first_seen: envelope.first_seen,
        reason: Reason::Paused,
        lane: envelope.lane,
        send_id: envelope.send_id.clone(),
    };
    let body = envelope.to_json().map_err(|error| error.to_string())?;
    let by = by.min(Instant::now() + PARK_TIMEOUT);
    let put = bucket.park(key.to_string(), body);
    timeout_at(by, put)
        .await
        .unwrap_or_else(|_| Err(LATE.to_owned()))
}
