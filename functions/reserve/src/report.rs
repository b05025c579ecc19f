//! What is logged and counted of a batch. Nothing of it is of the mail itself.

use sendslot_domain::{Lane, SendId};
use sendslot_runtime::{Metrics, ReserveSettings};

use crate::answer::{Outcome, Ticket};

/// The counts of a lane's part of a batch; each is there, zero or not.
const COUNTS: [&str; 10] = [
    "Accepted",
    "Booked",
    "Waiting",
    "Refused",
    "EnqueueFailed",
    "RedisDown",
    "Parked",
    "Suppressed",
    "SuppressedRecipients",
    "Cancelled",
];

/// Logs what went wrong and counts everything, lane by lane.
pub(crate) fn report(outcomes: &[(Ticket, Outcome)], settings: &ReserveSettings) -> Vec<Metrics> {
    let common = &settings.common;
    let mut all = Vec::new();
    for lane in Lane::ALL {
        let here = outcomes.iter().filter(|(ticket, _)| ticket.lane == lane);
        let mut here = here.peekable();
        if here.peek().is_none() {
            continue;
        }
        let mut metrics = Metrics::new(&common.namespace, &common.service, Some(lane));
        for name in COUNTS {
            metrics.count(name, 0);
        }
        if settings.slots_only {
            metrics.count("SlotsOnly", 0);
        }
        for (ticket, outcome) in here {
            count(lane, ticket, outcome, &mut metrics);
        }
        let of = |name| metrics.get(name).unwrap_or_default();
        tracing::info!(
            lane = lane.as_str(),
            accepted = of("Accepted"),
            booked = of("Booked"),
            waiting = of("Waiting"),
            refused = of("Refused"),
            failed = of("EnqueueFailed"),
            slots_only = of("SlotsOnly"),
            redis_down = of("RedisDown"),
            parked = of("Parked"),
            suppressed = of("Suppressed"),
            "batch"
        );
        all.push(metrics);
    }
    all
}

fn count(lane: Lane, ticket: &Ticket, outcome: &Outcome, metrics: &mut Metrics) {
    let (lane, send_id) = (lane.as_str(), ticket.send_id.as_ref().map(SendId::as_str));
    if !ticket.suppressed.is_empty() {
        let recipients = ticket.suppressed.len();
        metrics.count("SuppressedRecipients", recipients);
        let outcome = match outcome {
            Outcome::Suppressed => "suppressed",
            _ => "recipients_suppressed",
        };
        tracing::info!(lane, send_id, outcome, recipients);
    }
    match outcome {
        Outcome::Booked { delay, .. } => {
            metrics.count("Booked", 1);
            metrics.longest("BookedAheadMs", *delay);
        }
        Outcome::Waiting { .. } | Outcome::Ahead { .. } => metrics.count("Waiting", 1),
        Outcome::Parked => {
            metrics.count("Parked", 1);
            tracing::info!(lane, send_id, outcome = "parked");
        }
        Outcome::Suppressed => metrics.count("Suppressed", 1),
        Outcome::Cancelled => {
            metrics.count("Cancelled", 1);
            tracing::info!(lane, send_id, outcome = "cancelled");
        }
        Outcome::Held { .. } | Outcome::Unbooked { .. } => metrics.count("RedisDown", 1),
        // Booked, but not accepted: nothing of the mail is here.
        Outcome::Slot { delay, .. } => {
            metrics.count("Booked", 1);
            metrics.count("SlotsOnly", 1);
            return metrics.longest("BookedAheadMs", *delay);
        }
        Outcome::RetryAfter { .. } => return,
        Outcome::Refused(refusal) => {
            metrics.count("Refused", 1);
            let (reason, detail) = (refusal.code(), refusal.to_string());
            return tracing::warn!(lane, send_id, reason, detail, "refused");
        }
        Outcome::Failed(failure) => {
            metrics.count("EnqueueFailed", 1);
            return tracing::error!(lane, send_id, %failure, "comes again");
        }
    }
    metrics.count("Accepted", usize::from(ticket.fresh));
}
