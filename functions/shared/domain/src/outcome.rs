//! What a provider's answer means for a message, in terms no provider owns.
//!
//! Three steps, each pure: the bare facts of one attempt are an [`Answer`]; [`Outcome::of_ses`] judges
//! them; [`Outcome::consequence`] says what becomes of the message, of the schedule, and what is counted. What nobody recognises
//! is [`Outcome::Unknown`], which is tried again and then set aside: only a message that the provider names as unacceptable
//! is ever given up. [`table`] is all of it, for people.

use crate::units::Millis;

/// How many times one message is tried whose failures may be its own fault, before it goes to the dead-letter queue. With
/// [`pause_after`] that is half an hour.
pub const MAX_ATTEMPTS: u32 = 10;
/// How long nobody sends when the 24-hour quota is used up. SES advises up to ten minutes.
pub const DAILY_QUOTA_PAUSE: Millis = Millis::from_secs(600);
/// How long nobody sends at first when the account can't; each time that it still can't, twice as long.
pub const ACCOUNT_PAUSE: Millis = Millis::from_secs(60);
/// The longest that nobody sends without asking the provider again, as long as a queue can delay a message.
pub const LONGEST_PAUSE: Millis = Millis::from_secs(900);
/// How long a tenant is taken to be paused after the provider said so. After that one of its messages asks anew.
pub const TENANT_PAUSE: Millis = Millis::from_secs(60);

/// The bare facts of one attempt to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The provider took the message and gave it this id.
    Accepted {
        /// The provider's own message id.
        id: String,
    },
    /// The provider answered with an error.
    Error {
        /// The HTTP status.
        status: u16,
        /// The error code, empty when the answer had none.
        code: String,
        /// The error text, empty when the answer had none. It may name addresses: never log it.
        text: String,
        /// The `Retry-After` header, when there was one.
        retry_after: Option<Millis>,
    },
    /// No answer, and the request surely never left: no connection could be made.
    NotSent,
    /// No answer that can be read, and the request may have arrived: a time-out, a broken connection.
    Lost,
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The provider took the message.
    Sent,
    /// Nobody was asked: the deployment only books and records, and this message would have been sent now.
    Shadowed,
    /// The account sends faster than it may.
    RateThrottled {
        /// How long the provider asked us to stay away, when it did.
        retry_after: Option<Millis>,
    },
    /// The account has used up its 24-hour quota.
    DailyQuota,
    /// Sending is paused for the configuration set.
    SetPaused,
    /// Sending is paused for the provider's tenant.
    TenantPaused,
    /// Sending is paused for the account.
    AccountPaused,
    /// Sending is paused, and the provider doesn't say for whom: ask it whether the account sends.
    Paused,
    /// The account was shut down by the provider.
    Suspended,
    /// The provider won't take this message, now or later.
    Rejected,
    /// The recipient is on the provider's suppression list.
    Suppressed,
    /// The provider can't make sense of this request, a template's among them, now or later.
    BadRequest,
    /// The sender's address or domain is not verified: an operator can cure that.
    NotVerified,
    /// A template, configuration set or tenant doesn't exist: an operator can cure that.
    NotFound,
    /// Our credentials or permissions were refused: not the message's fault.
    Denied,
    /// The provider failed before it took the message, and said so.
    Unavailable {
        /// How long the provider asked us to stay away, when it did.
        retry_after: Option<Millis>,
    },
    /// The request never left.
    NotSent,
    /// The request left, and nobody knows whether it was accepted.
    Uncertain,
    /// A refusal that this version doesn't know.
    Unknown,
}

/// What becomes of a message after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Leave a mark that it was sent, and delete it.
    Commit,
    /// Leave a mark that it was refused for good, log and count it, and delete it.
    Delete,
    /// Give it a new slot.
    Again {
        /// Whether this was an attempt, a wait that was no fault of its own, or neither.
        counts: Counts,
        /// Not before this has passed, whatever slot is free.
        not_before: Millis,
        /// And so much longer at most: a caller draws evenly from zero to this, so that what failed together doesn't come
        /// back together.
        spread: Millis,
    },
    /// Set it aside until its tenant may send.
    Park,
    /// Wait for the provider's event that it was sent; without one, do what the lane's policy says.
    Confirm,
    /// Set it aside on the dead-letter queue, its send id free to be sent again.
    DeadLetter {
        /// A short code for the operator.
        reason: &'static str,
    },
}

/// What a failure adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Neither.
    Nothing,
    /// Its attempts, of which it has [`MAX_ATTEMPTS`].
    Attempt,
    /// Its holds, which only lengthen the next pause: it is held until its greatest age.
    Hold,
}

/// What an attempt says about all other mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// The rate is too high: [`crate::adaptive`].
    Slow {
        /// And nobody sends for just that long, when the provider said so.
        stay_away: Option<Millis>,
    },
    /// Nobody sends for so long.
    Block {
        /// How long at least; twice as long each time in a row, up to [`LONGEST_PAUSE`].
        length: Millis,
        /// Why: a word.
        reason: &'static str,
    },
    /// The message's tenant sends nothing for so long.
    Pause {
        /// How long.
        length: Millis,
    },
}

/// Everything that follows from an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consequence {
    /// For the message.
    pub next: Next,
    /// For all others.
    pub effect: Effect,
    /// The metric that counts it.
    pub metric: &'static str,
}

/// How often a message was tried, and held, before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// Failed attempts that may have been its own fault.
    pub attempts: u32,
    /// Waits that were no fault of its own.
    pub holds: u32,
}

/// How long a message stays away after its n-th failure in a row, from 1: 2 s, doubled by each further one, 900 s at most.
#[must_use]
pub const fn pause_after(failures: u32) -> Millis {
    if failures >= 10 {
        return LONGEST_PAUSE;
    }
    Millis::from_secs(1 << failures)
}

/// How long a message is held, while Redis can't be used, that was held so often before: 5 s, doubled each time, 900 s at
/// most. A caller draws from half of it to all of it, so that what was held together doesn't come back together.
#[must_use]
pub const fn hold_for(holds: u32) -> Millis {
    let doublings = if holds < 8 { holds } else { 8 };
    let whole = Millis(5000 << doublings);
    if whole.0 < LONGEST_PAUSE.0 {
        whole
    } else {
        LONGEST_PAUSE
    }
}

/// Again, half of the pause at least and all of it at most.
const fn again(counts: Counts, failures: u32) -> Next {
    let half = Millis(pause_after(failures).0 / 2);
    Next::Again {
        counts,
        not_before: half,
        spread: half,
    }
}

impl Outcome {
    /// One of each, as [`table`] lists them.
    pub const ALL: [Self; 19] = [
        Self::Sent,
        Self::Shadowed,
        Self::RateThrottled { retry_after: None },
        Self::DailyQuota,
        Self::SetPaused,
        Self::TenantPaused,
        Self::AccountPaused,
        Self::Paused,
        Self::Suspended,
        Self::Rejected,
        Self::Suppressed,
        Self::BadRequest,
        Self::NotVerified,
        Self::NotFound,
        Self::Denied,
        Self::Unavailable { retry_after: None },
        Self::NotSent,
        Self::Uncertain,
        Self::Unknown,
    ];

    /// What an answer of SES means.
    ///
    /// Text comes before code, because SES doesn't document which exception carries the text of an
    /// exhausted quota; both come before the status.
    #[must_use]
    pub fn of_ses(answer: &Answer) -> Self {
        let (status, code, text, retry_after) = match answer {
            Answer::Accepted { .. } => return Self::Sent,
            Answer::NotSent => return Self::NotSent,
            Answer::Lost => return Self::Uncertain,
            Answer::Error {
                status,
                code,
                text,
                retry_after,
            } => (*status, code.as_str(), text, *retry_after),
        };
        let text = text.to_ascii_lowercase();
        if text.contains("daily message quota exceeded") {
            return Self::DailyQuota;
        }
        if text.contains("maximum sending rate exceeded") {
            return Self::RateThrottled { retry_after };
        }
        match code {
            "TooManyRequestsException"
            | "ThrottlingException"
            | "Throttling"
            | "LimitExceededException" => Self::RateThrottled { retry_after },
            "SendingPausedException" => Self::who_is_paused(&text),
            "ConfigurationSetSendingPausedException" => Self::SetPaused,
            "AccountSendingPausedException" => Self::AccountPaused,
            "AccountSuspendedException" => Self::Suspended,
            "MailFromDomainNotVerifiedException" => Self::NotVerified,
            // SES reports an unverified sender, and any recipient of a sandbox account, as rejected.
            "MessageRejected" if text.contains("not verified") => Self::NotVerified,
            "MessageRejected" if text.contains("suppress") => Self::Suppressed,
            "MessageRejected" => Self::Rejected,
            "BadRequestException" => Self::BadRequest,
            "NotFoundException" => Self::NotFound,
            "AccessDeniedException"
            | "ExpiredTokenException"
            | "IncompleteSignature"
            | "InvalidClientTokenId"
            | "InvalidSignatureException"
            | "MissingAuthenticationToken"
            | "MissingAuthenticationTokenException"
            | "NotAuthorized"
            | "OptInRequired"
            | "SignatureDoesNotMatch"
            | "UnrecognizedClientException" => Self::Denied,
            _ => Self::of_status(status, retry_after),
        }
    }

    fn who_is_paused(text: &str) -> Self {
        if text.contains("configuration set") {
            Self::SetPaused
        } else if text.contains("tenant") {
            Self::TenantPaused
        } else if text.contains("account") {
            Self::AccountPaused
        } else {
            Self::Paused
        }
    }

    /// What an HTTP status alone says. A server that failed (500), or a gateway that got no answer from what is behind it
    /// (502, 504), may have taken the message first; one that has no room (503) has not. A success that can't be read is
    /// no refusal.
    const fn of_status(status: u16, retry_after: Option<Millis>) -> Self {
        match status {
            401 | 403 => Self::Denied,
            429 => Self::RateThrottled { retry_after },
            503 => Self::Unavailable { retry_after },
            200..=299 | 500..=599 => Self::Uncertain,
            _ => Self::Unknown,
        }
    }

    /// The outcome's name in logs, metrics and dead-letter attributes.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Shadowed => "shadow",
            Self::RateThrottled { .. } => "rate_throttled",
            Self::DailyQuota => "daily_quota",
            Self::SetPaused => "set_paused",
            Self::TenantPaused => "tenant_paused",
            Self::AccountPaused => "account_paused",
            Self::Paused => "paused",
            Self::Suspended => "suspended",
            Self::Rejected => "rejected",
            Self::Suppressed => "suppressed",
            Self::BadRequest => "bad_request",
            Self::NotVerified => "not_verified",
            Self::NotFound => "not_found",
            Self::Denied => "denied",
            Self::Unavailable { .. } => "unavailable",
            Self::NotSent => "not_sent",
            Self::Uncertain => "uncertain",
            Self::Unknown => "unknown",
        }
    }

    /// Everything that follows, for a message that was tried so often before.
    #[must_use]
    pub const fn consequence(self, tries: Tries) -> Consequence {
        Consequence {
            next: self.next(tries),
            effect: self.effect(),
            metric: self.metric(),
        }
    }

    const fn next(self, tries: Tries) -> Next {
        match self {
            Self::Sent | Self::Shadowed => Next::Commit,
            Self::Rejected | Self::Suppressed | Self::BadRequest => Next::Delete,
            Self::SetPaused | Self::TenantPaused => Next::Park,
            Self::Uncertain => Next::Confirm,
            Self::RateThrottled { retry_after } => Next::Again {
                counts: Counts::Nothing,
                not_before: match retry_after {
                    Some(pause) => pause,
                    None => Millis(0),
                },
                spread: Millis::from_secs(2),
            },
            Self::DailyQuota | Self::AccountPaused | Self::Suspended | Self::Denied => {
                Next::Again {
                    counts: Counts::Nothing,
                    not_before: Millis(0),
                    spread: Millis(0),
                }
            }
            Self::NotSent | Self::Paused => again(Counts::Hold, tries.holds.saturating_add(1)),
            Self::NotVerified | Self::NotFound | Self::Unavailable { .. } | Self::Unknown => {
                let attempts = tries.attempts.saturating_add(1);
                if attempts >= MAX_ATTEMPTS {
                    return Next::DeadLetter {
                        reason: "attempts_exhausted",
                    };
                }
                match self {
                    Self::Unavailable {
                        retry_after: Some(pause),
                    } => Next::Again {
                        counts: Counts::Attempt,
                        not_before: pause,
                        spread: pause_after(attempts),
                    },
                    _ => again(Counts::Attempt, attempts),
                }
            }
        }
    }

    const fn effect(self) -> Effect {
        match self {
            Self::RateThrottled { retry_after } => Effect::Slow {
                stay_away: retry_after,
            },
            Self::DailyQuota => Effect::Block {
                length: DAILY_QUOTA_PAUSE,
                reason: "daily_quota",
            },
            Self::AccountPaused => Effect::Block {
                length: ACCOUNT_PAUSE,
                reason: "account_paused",
            },
            Self::Suspended => Effect::Block {
                length: ACCOUNT_PAUSE,
                reason: "suspended",
            },
            Self::Denied => Effect::Block {
                length: ACCOUNT_PAUSE,
                reason: "denied",
            },
            Self::SetPaused | Self::TenantPaused => Effect::Pause {
                length: TENANT_PAUSE,
            },
            Self::Sent
            | Self::Shadowed
            | Self::Rejected
            | Self::Suppressed
            | Self::BadRequest
            | Self::NotVerified
            | Self::NotFound
            | Self::Unavailable { .. }
            | Self::NotSent
            // Whoever it concerns isn't known: nobody is held back for it.
            | Self::Paused
            | Self::Uncertain
            | Self::Unknown => Effect::None,
        }
    }

    const fn metric(self) -> &'static str {
        match self {
            Self::Sent => "Sent",
            Self::Shadowed => "Shadowed",
            Self::RateThrottled { .. } => "Throttled",
            Self::DailyQuota | Self::AccountPaused | Self::Suspended => "Blocked",
            Self::Denied => "Denied",
            Self::SetPaused | Self::TenantPaused | Self::Paused => "Paused",
            Self::Rejected | Self::BadRequest => "Rejected",
            Self::Suppressed => "Suppressed",
            Self::Uncertain => "Uncertain",
            Self::NotVerified
            | Self::NotFound
            | Self::Unavailable { .. }
            | Self::NotSent
            | Self::Unknown => "Failed",
        }
    }

    /// When it is the outcome, for people.
    const fn when(self) -> &'static str {
        match self {
            Self::Sent => "accepted",
            Self::Shadowed => "isn't asked, with `Shadow=true`",
            Self::RateThrottled { .. } => {
                "429, `TooManyRequestsException`, `ThrottlingException`, `LimitExceededException`, \"Maximum sending rate exceeded\""
            }
            Self::DailyQuota => "\"Daily message quota exceeded\" in any error",
            Self::SetPaused => "`SendingPausedException` that names the configuration set",
            Self::TenantPaused => "`SendingPausedException` that names the tenant",
            Self::AccountPaused => "`SendingPausedException` that names the account",
            Self::Paused => {
                "`SendingPausedException` that names nobody, and `GetAccount`, which tells account from set, doesn't answer"
            }
            Self::Suspended => "`AccountSuspendedException`",
            Self::Rejected => "`MessageRejected`",
            Self::Suppressed => "`MessageRejected` that says \"suppress…\"",
            Self::BadRequest => {
                "`BadRequestException`, also of a template; a mail no request can be made of"
            }
            Self::NotVerified => {
                "`MailFromDomainNotVerifiedException`, `MessageRejected` that says \"not verified\""
            }
            Self::NotFound => "`NotFoundException`: template, set or tenant",
            Self::Denied => {
                "401, 403, `AccessDeniedException`, `ExpiredTokenException` and their kin"
            }
            Self::Unavailable { .. } => "503",
            Self::NotSent => "no connection: the request never left",
            Self::Uncertain => {
                "a time-out, a connection that broke, 500 and all other 5xx but 503, an answer that can't be read"
            }
            Self::Unknown => "any other refusal",
        }
    }
}

/// All outcomes and what follows from them, as a table in Markdown.
#[must_use]
pub fn table() -> String {
    let mut text = String::from(
        "| outcome | when SES answers | the message | all others | counted as |\n|---|---|---|---|---|\n",
    );
    for outcome in Outcome::ALL {
        let Consequence {
            next,
            effect,
            metric,
        } = outcome.consequence(Tries::default());
        let next = match next {
            Next::Commit => "marked as sent, deleted".to_owned(),
            Next::Delete => "marked as rejected, logged, deleted".to_owned(),
            Next::Park => "parked in S3 until its tenant may send".to_owned(),
            Next::Confirm => {
                "waits for SES's `Send` event, then as the lane's policy says: sent again or parked"
                    .to_owned()
            }
            Next::DeadLetter { .. } => "dead-lettered".to_owned(),
            Next::Again { counts, .. } => match counts {
                Counts::Nothing => "a new slot; no attempt".to_owned(),
                Counts::Hold => {
                    "a new slot after a pause that doubles up to 900 s; no attempt".to_owned()
                }
                Counts::Attempt => format!(
                    "a new slot after a pause that doubles up to 900 s; dead-lettered after {MAX_ATTEMPTS} attempts"
                ),
            },
        };
        let effect = match effect {
            Effect::None => "–".to_owned(),
            Effect::Slow { .. } => "the rate is halved, measured, and climbs back; with `Retry-After`, nobody sends until then, too".to_owned(),
            Effect::Block { length, .. } if length >= LONGEST_PAUSE => {
                format!("nobody sends for {} s", length.whole_secs())
            }
            Effect::Block { length, .. } => format!(
                "nobody sends for {} s, then twice as long each time, up to {} s",
                length.whole_secs(),
                LONGEST_PAUSE.whole_secs()
            ),
            Effect::Pause { length } => {
                format!("its tenant is taken to be paused for {} s", length.whole_secs())
            }
        };
        let row = [outcome.code(), outcome.when(), &next, &effect, metric];
        text += &["| ", &row.join(" | "), " |\n"].concat();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Outcome = Outcome::RateThrottled { retry_after: None };
    const DOWN: Outcome = Outcome::Unavailable { retry_after: None };

    fn error(status: u16, code: &str, text: &str) -> Outcome {
        Outcome::of_ses(&Answer::Error {
            status,
            code: code.into(),
            text: text.into(),
            retry_after: None,
        })
    }

    /// Status, code and text of an answer, and its outcome.
    const ANSWERS: &[(u16, &str, &str, Outcome)] = &[
        (
            429,
            "TooManyRequestsException",
            "Maximum sending rate exceeded.",
            RATE,
        ),
        (
            400,
            "ThrottlingException",
            "Maximum sending rate exceeded",
            RATE,
        ),
        (400, "ThrottlingException", "Rate exceeded", RATE),
        (400, "LimitExceededException", "", RATE),
        (429, "", "", RATE),
        (
            400,
            "ThrottlingException",
            "Daily message quota exceeded",
            Outcome::DailyQuota,
        ),
        (
            429,
            "TooManyRequestsException",
            "DAILY MESSAGE QUOTA EXCEEDED.",
            Outcome::DailyQuota,
        ),
        (
            400,
            "LimitExceededException",
            "daily message quota exceeded",
            Outcome::DailyQuota,
        ),
        (
            400,
            "SendingPausedException",
            "Sending is paused for configuration set <a>.",
            Outcome::SetPaused,
        ),
        (
            400,
            "SendingPausedException",
            "Sending paused for this account.",
            Outcome::AccountPaused,
        ),
        (
            400,
            "SendingPausedException",
            "Sending status of tenant a is DISABLED",
            Outcome::TenantPaused,
        ),
        (400, "SendingPausedException", "", Outcome::Paused),
        (
            400,
            "MessageRejected",
            "Address is on the suppression list",
            Outcome::Suppressed,
        ),
        (400, "AccountSuspendedException", "", Outcome::Suspended),
        (
            400,
            "MessageRejected",
            "Mail contains a virus",
            Outcome::Rejected,
        ),
        (
            400,
            "MessageRejected",
            "Email address is not verified.",
            Outcome::NotVerified,
        ),
        (
            400,
            "MailFromDomainNotVerifiedException",
            "",
            Outcome::NotVerified,
        ),
        (
            400,
            "BadRequestException",
            "Illegal address",
            Outcome::BadRequest,
        ),
        (
            404,
            "NotFoundException",
            "Template t does not exist",
            Outcome::NotFound,
        ),
        (403, "AccessDeniedException", "", Outcome::Denied),
        (400, "ExpiredTokenException", "", Outcome::Denied),
        (403, "", "", Outcome::Denied),
        (500, "", "", Outcome::Uncertain),
        (500, "InternalFailure", "", Outcome::Uncertain),
        (507, "", "", Outcome::Uncertain),
        (503, "ServiceUnavailable", "", DOWN),
        (502, "", "", Outcome::Uncertain),
        (504, "", "", Outcome::Uncertain),
        (200, "", "", Outcome::Uncertain),
        (302, "", "", Outcome::Unknown),
        (400, "", "", Outcome::Unknown),
        (404, "", "", Outcome::Unknown),
        (418, "Teapot", "short and stout", Outcome::Unknown),
    ];

    #[test]
    fn each_answer_of_ses_has_its_outcome() {
        for &(status, code, text, outcome) in ANSWERS {
            assert_eq!(error(status, code, text), outcome, "{status} {code} {text}");
        }
        assert_eq!(
            Outcome::of_ses(&Answer::Accepted { id: "1".into() }),
            Outcome::Sent
        );
        assert_eq!(Outcome::of_ses(&Answer::NotSent), Outcome::NotSent);
        assert_eq!(Outcome::of_ses(&Answer::Lost), Outcome::Uncertain);
    }

    fn next(outcome: Outcome, attempts: u32, holds: u32) -> Next {
        outcome.consequence(Tries { attempts, holds }).next
    }

    #[test]
    fn only_what_the_provider_names_unacceptable_is_given_up() {
        for outcome in Outcome::ALL {
            let given_up = next(outcome, 0, 0) == Next::Delete;
            let named = matches!(
                outcome,
                Outcome::Rejected | Outcome::Suppressed | Outcome::BadRequest
            );
            assert_eq!(given_up, named, "{outcome:?}");
        }
    }

    #[test]
    fn only_what_surely_was_not_accepted_is_tried_again() {
        for outcome in Outcome::ALL {
            let again = matches!(next(outcome, 0, 0), Next::Again { .. } | Next::Park);
            let never = matches!(
                outcome,
                Outcome::Sent
                    | Outcome::Shadowed
                    | Outcome::Rejected
                    | Outcome::Suppressed
                    | Outcome::BadRequest
                    | Outcome::Uncertain
            );
            assert_eq!(again, !never, "{outcome:?}");
        }
        assert_eq!(next(Outcome::Uncertain, 9, 9), Next::Confirm);
    }

    #[test]
    fn only_what_may_be_the_messages_own_fault_is_ever_dead_lettered() {
        for outcome in Outcome::ALL {
            let own = matches!(
                outcome,
                Outcome::NotVerified
                    | Outcome::NotFound
                    | Outcome::Unavailable { .. }
                    | Outcome::Unknown
            );
            let dead = |attempts| {
                matches!(
                    next(outcome, attempts, u32::MAX),
                    Next::DeadLetter {
                        reason: "attempts_exhausted"
                    }
                )
            };
            assert!(!dead(MAX_ATTEMPTS - 2), "{outcome:?}");
            assert_eq!(dead(MAX_ATTEMPTS - 1), own, "{outcome:?}");
            assert_eq!(dead(u32::MAX), own, "{outcome:?}");
        }
    }

    #[test]
    fn what_is_nobodys_fault_holds_everybody_back() {
        for outcome in Outcome::ALL {
            let effect = outcome.consequence(Tries::default()).effect;
            let blocks = matches!(effect, Effect::Block { .. });
            let account = matches!(
                outcome,
                Outcome::DailyQuota | Outcome::AccountPaused | Outcome::Suspended | Outcome::Denied
            );
            assert_eq!(blocks, account, "{outcome:?}");
        }
        let effect = Outcome::SetPaused.consequence(Tries::default()).effect;
        assert!(matches!(effect, Effect::Pause { .. }));
    }

    #[test]
    fn a_message_stays_away_as_long_as_it_was_told_to() {
        let told = Millis(7_000);
        let retry_after = Some(told);
        let throttled = Outcome::RateThrottled { retry_after }.consequence(Tries::default());
        assert!(matches!(throttled.next, Next::Again { not_before, .. } if not_before == told));
        assert_eq!(
            throttled.effect,
            Effect::Slow {
                stay_away: Some(told)
            },
            "it slows everybody down as every throttle does"
        );
        let down = next(Outcome::Unavailable { retry_after }, 0, 0);
        assert!(
            matches!(down, Next::Again { not_before, counts: Counts::Attempt, .. } if not_before == told)
        );
    }

    #[test]
    fn a_pause_of_nobody_knows_whom_holds_the_message_alone() {
        let tries = Tries {
            attempts: MAX_ATTEMPTS,
            holds: 2,
        };
        let paused = Outcome::Paused.consequence(tries);
        let half = Millis(pause_after(3).0 / 2);
        let held = Next::Again {
            counts: Counts::Hold,
            not_before: half,
            spread: half,
        };
        assert_eq!((paused.next, paused.effect), (held, Effect::None));
    }

    #[test]
    fn pauses_double_and_stay_bounded() {
        let seconds = [1, 2, 3, 9, 10, 11, u32::MAX].map(|n| pause_after(n).whole_secs());
        assert_eq!(seconds, [2, 4, 8, 512, 900, 900, 900]);
        let all: u64 = (1..MAX_ATTEMPTS).map(|n| pause_after(n).whole_secs()).sum();
        assert_eq!(all, 1022, "seconds, of which half is the least");
    }

    #[test]
    fn every_outcome_has_a_code_of_its_own() {
        let codes: std::collections::BTreeSet<_> =
            Outcome::ALL.iter().map(|outcome| outcome.code()).collect();
        assert_eq!(codes.len(), Outcome::ALL.len());
    }

    /// docs/outcomes.md is written by `SENDSLOT_WRITE_DOCS=1 cargo test -p sendslot-domain`.
    #[test]
    fn the_table_in_the_docs_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/outcomes.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (begin, end) = ("<!-- table -->\n", "<!-- end of table -->");
        let (before, rest) = text.split_once(begin).unwrap();
        let (found, after) = rest.split_once(end).unwrap();
        if std::env::var_os("SENDSLOT_WRITE_DOCS").is_some() {
            std::fs::write(path, format!("{before}{begin}{}{end}{after}", table())).unwrap();
        } else {
            assert!(found == table(), "run: make docs");
        }
    }
}
