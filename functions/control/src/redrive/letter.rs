//! Which dead letters go again, and as what. Pure.

use sendslot_domain::{Lane, Millis, Moment, SendId, TenantName};
use sendslot_mail::{Envelope, SendRequest, request};
use sendslot_runtime::{
    control::LeftMail,
    queue::{self, Attribute, Message},
};
use sendslot_schedule::{Ask, Slot, Standing};
use serde::Deserialize;

use super::Wanted;
use crate::ports::Letter;

/// When a request first reached us, as `reserve` reads it.
const FIRST_SEEN: &str = "SendslotFirstSeen";
/// What SQS moved itself has no reason of ours.
const BY_SQS: &str = "received_too_often";
/// Reasons that may have gone: who was nobody's tenant may be one now, and a cap may be higher.
const MAY_PASS: [&str; 4] = ["unknown_tenant", "over_cap", "attempts_exhausted", BY_SQS];
/// Of these, whoever dead-lettered it had not claimed it.
const NEVER_CLAIMED: [&str; 2] = ["unknown_tenant", "over_cap"];

/// Which of a lane's dead-letter queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Of requests, behind `reserve`.
    Intake,
    /// Of envelopes, behind `send`.
    Send,
}

/// A letter that may go.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) receipt: String,
    pub(crate) tenant: Option<TenantName>,
    pub(crate) send_id: Option<SendId>,
    pub(crate) cost: u32,
    pub(crate) content: Content,
    body: String,
    first_seen: Option<Moment>,
}

/// What a letter holds.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// What a producer wrote, or what stands for it.
    Request,
    /// A mail that had a slot, with since when somebody may have claimed it.
    Envelope(Box<Envelope>),
}

/// What becomes of a letter.
pub(crate) enum Verdict {
    Goes(Candidate),
    /// Nobody asked for it: its receipt.
    Passed(String),
    /// It can't succeed: its receipt, and why.
    Left(String, LeftMail),
}

/// What a large mail that was far ahead is on its way as: where it is.
#[derive(Deserialize)]
struct Pointer {
    sendslot_ahead: String,
}

/// Says what becomes of a letter. What first reached us longer ago than `oldest` is of no more use.
pub(crate) fn judge(
    letter: Letter,
    lane: Lane,
    place: Place,
    wanted: &Wanted,
    now: Moment,
    oldest: Millis,
) -> Verdict {
    let Letter {
        receipt,
        body,
        reason,
        detail,
        first_seen,
        sent,
        ..
    } = letter;
    let reason = reason.unwrap_or_else(|| BY_SQS.to_owned());
    if wanted.reason.as_ref().is_some_and(|asked| *asked != reason) {
        return Verdict::Passed(receipt);
    }
    let read = match place {
        Place::Send => of_envelope(&body),
        Place::Intake => of_request(&body, now),
    };
    let (tenant, send_id) = match &read {
        Ok(read) => (read.tenant.clone(), read.send_id.clone()),
        Err(_) => (tenant_of(&body), request::send_id_of(&body)),
    };
    let seen = first_seen
        .or(read.as_ref().ok().and_then(|read| read.first_seen))
        .unwrap_or(sent);
    let is_theirs = wanted
        .tenant
        .as_ref()
        .is_none_or(|asked| tenant.as_ref() == Some(asked));
    if !is_theirs || !wanted.is_of_age(seen, now) {
        return Verdict::Passed(receipt);
    }
    let left = |reason: &str, detail: &str| LeftMail {
        lane: lane.to_string(),
        tenant: tenant.as_ref().map(ToString::to_string),
        send_id: send_id.as_ref().map(ToString::to_string),
        reason: reason.to_owned(),
        detail: detail.to_owned(),
    };
    if !MAY_PASS.contains(&reason.as_str()) && reason != "uncertain" {
        return Verdict::Left(receipt, left(&reason, &detail));
    }
    let read = match read {
        Ok(read) => read,
        Err((code, why)) => return Verdict::Left(receipt, left(&code, &why)),
    };
    let ends = read.expires_at.unwrap_or(Moment(u64::MAX));
    if now >= ends.min(seen + oldest) {
        return Verdict::Left(receipt, left("expired", "it is of no more use"));
    }
    let mut content = read.content;
    if let Content::Envelope(envelope) = &mut content {
        if (envelope.uncertain || reason == "uncertain") && !wanted.resend {
            let why = "it may have been sent: resend sends it all the same";
            return Verdict::Left(receipt, left("uncertain", why));
        }
        if !NEVER_CLAIMED.contains(&reason.as_str()) {
            let since = envelope.suspect_since.unwrap_or(envelope.first_seen);
            envelope.suspect_since = Some(since);
        }
    }
    Verdict::Goes(Candidate {
        receipt,
        tenant,
        send_id,
        cost: read.cost,
        content,
        first_seen: first_seen.or(Some(seen)),
        body,
    })
}

/// A letter's text, read.
struct Read {
    tenant: Option<TenantName>,
    send_id: Option<SendId>,
    cost: u32,
    first_seen: Option<Moment>,
    expires_at: Option<Moment>,
    content: Content,
}

fn of_envelope(body: &str) -> Result<Read, (String, String)> {
    let envelope = Envelope::from_json(body)
        .map_err(|error| ("bad_envelope".to_owned(), error.to_string()))?;
    Ok(Read {
        tenant: Some(envelope.tenant.clone()),
        send_id: Some(envelope.send_id.clone()),
        cost: envelope.mail.cost(),
        first_seen: Some(envelope.first_seen),
        expires_at: envelope.expires_at,
        content: Content::Envelope(Box::new(envelope)),
    })
}

fn of_request(body: &str, now: Moment) -> Result<Read, (String, String)> {
    if let Ok(Pointer { sendslot_ahead }) = serde_json::from_str(body) {
        let tenant = sendslot_ahead.split('/').nth(1);
        return Ok(Read {
            tenant: tenant.and_then(|tenant| tenant.parse().ok()),
            send_id: None,
            cost: 1,
            first_seen: None,
            expires_at: None,
            content: Content::Request,
        });
    }
    let request = SendRequest::parse(body, now)
        .map_err(|refusal| (refusal.code().to_owned(), refusal.to_string()))?;
    Ok(Read {
        tenant: Some(request.tenant),
        send_id: Some(request.send_id),
        cost: request.mail.cost(),
        first_seen: None,
        expires_at: request.expires_at,
        content: Content::Request,
    })
}

/// The tenant that a text names, if it can be made out.
fn tenant_of(body: &str) -> Option<TenantName> {
    #[derive(Deserialize)]
    struct Head {
        tenant: String,
    }
    serde_json::from_str::<Head>(body).ok()?.tenant.parse().ok()
}

impl Candidate {
    /// Whose mail it is, and which.
    pub(crate) fn name(&self) -> Option<(TenantName, SendId)> {
        Some((self.tenant.clone()?, self.send_id.clone()?))
    }

    /// Why it stays.
    pub(crate) fn left(&self, lane: Lane, reason: &str, detail: &str) -> LeftMail {
        LeftMail {
            lane: lane.to_string(),
            tenant: self.tenant.as_ref().map(ToString::to_string),
            send_id: self.send_id.as_ref().map(ToString::to_string),
            reason: reason.to_owned(),
            detail: detail.to_owned(),
        }
    }

    /// What its slot is asked with, if it had one: it isn't new, and goes before all who wait.
    pub(crate) fn ask(&self) -> Option<Ask> {
        let Content::Envelope(envelope) = &self.content else {
            return None;
        };
        Some(Ask {
            tenant: envelope.tenant.clone(),
            cost: self.cost,
            standing: Standing::Again,
        })
    }

    /// The message for its intake queue: as it came.
    pub(crate) fn as_request(&self) -> Message {
        let seen = self
            .first_seen
            .map(|at| Attribute::number(FIRST_SEEN, at.0));
        Message {
            body: self.body.clone(),
            delay_seconds: 0,
            attributes: seen.into_iter().collect(),
            group: self.tenant.as_ref().map(ToString::to_string),
        }
    }

    /// The message for its send queue, with its new slot.
    ///
    /// # Errors
    /// As [`Envelope::to_json`].
    pub(crate) fn as_envelope(
        &self,
        lane: Lane,
        slot: &Slot,
        resend: bool,
    ) -> Result<Message, serde_json::Error> {
        let Content::Envelope(envelope) = &self.content else {
            return Ok(self.as_request());
        };
        let mut envelope = (**envelope).clone();
        envelope.lane = lane;
        envelope.slot = slot.at;
        envelope.cells.clone_from(&slot.cells);
        (envelope.attempts, envelope.holds) = (0, 0);
        if resend {
            (envelope.uncertain, envelope.suspect_since) = (false, None);
            envelope.resend = true;
        }
        let longest = u64::from(queue::MAX_DELAY_SECONDS);
        let delay = slot.delay.whole_secs().min(longest);
        Ok(Message {
            body: envelope.to_json()?,
            delay_seconds: u16::try_from(delay).unwrap_or(queue::MAX_DELAY_SECONDS),
            attributes: Vec::new(),
            group: Some(envelope.tenant.to_string()),
        })
    }
}
