//! What a provider's answer means for a message, in terms no provider owns.
//!
//! Three steps, each pure: the bare facts of one attempt are an [`Answer`]; [`Outcome::of_ses`] judges
//! them; [`Outcome::next`] says what becomes of the message. What nobody recognises is
//! [`Outcome::Unknown`], which is tried again and then set aside: only a message that the provider
//! names as unacceptable is ever given up.

use crate::units::Millis;

/// How many times one message is tried before it goes to the dead-letter queue.
pub const MAX_ATTEMPTS: u32 = 5;

/// How long to stay away when the 24-hour quota is used up. SES advises up to ten minutes, and it is
/// within the 15 minutes that a queue can delay a message.
pub const DAILY_QUOTA_PAUSE: Millis = Millis::from_secs(600);

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
    /// The account sends faster than it may.
    RateThrottled {
        /// How long the provider asked us to stay away, when it did.
        retry_after: Option<Millis>,
    },
    /// The account has used up its 24-hour quota.
    DailyQuota,
    /// Sending is paused, for the account or for the configuration set.
    Paused,
    /// The account was shut down by the provider.
    Suspended,
    /// The provider won't take this message, now or later.
    Rejected,
    /// The provider can't make sense of this request, now or later.
    BadRequest,
    /// The sender's address or domain is not verified: an operator can cure that.
    NotVerified,
    /// A template, configuration set or tenant doesn't exist: an operator can cure that.
    NotFound,
    /// Our credentials or permissions were refused: not the message's fault.
    Denied,
    /// The provider failed and said so.
    Unavailable {
        /// How long the provider asked us to stay away, when it did.
        retry_after: Option<Millis>,
    },
    /// The request never left.
    NotSent,
    /// The request left, and nobody knows whether it was accepted.
    Uncertain,
    /// An answer that this version doesn't know.
    Unknown,
}

/// What becomes of a message after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Leave a mark that it was sent, and delete it.
    Commit,
    /// Log and count it, and delete it.
    Delete,
    /// Give it a new slot.
    Retry {
        /// Attempts so far, the failed one included.
        attempts: u32,
        /// Not before this has passed, whatever slot is free.
        not_before: Millis,
    },
    /// Set it aside on the dead-letter queue.
    DeadLetter {
        /// A short code for the operator.
        reason: &'static str,
        /// Whether its send id may be sent again. `false`: the claim is kept.
        free: bool,
    },
}

impl Outcome {
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
            "SendingPausedException" => Self::Paused,
            "AccountSuspendedException" => Self::Suspended,
            "MailFromDomainNotVerifiedException" => Self::NotVerified,
            // SES reports an unverified sender, and any recipient of a sandbox account, as rejected.
            "MessageRejected" if text.contains("not verified") => Self::NotVerified,
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

    /// What an HTTP status alone says. A gateway that got no answer from what is behind it (502, 504)
    /// knows no more than we do after a time-out, and a success that can't be read is no refusal.
    const fn of_status(status: u16, retry_after: Option<Millis>) -> Self {
        match status {
            401 | 403 => Self::Denied,
            429 => Self::RateThrottled { retry_after },
            200..=299 | 502 | 504 => Self::Uncertain,
            500..=599 => Self::Unavailable { retry_after },
            _ => Self::Unknown,
        }
    }

    /// The outcome's name in logs, metrics and dead-letter attributes.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::RateThrottled { .. } => "rate_throttled",
            Self::DailyQuota => "daily_quota",
            Self::Paused => "paused",
            Self::Suspended => "suspended",
            Self::Rejected => "rejected",
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

    /// What becomes of a message that had failed `attempts` times before this.
    #[must_use]
    pub const fn next(self, attempts: u32) -> Next {
        let not_before = match self {
            Self::Sent => return Next::Commit,
            Self::Rejected | Self::BadRequest => return Next::Delete,
            Self::Uncertain => {
                return Next::DeadLetter {
                    reason: "uncertain",
                    free: false,
                };
            }
            Self::RateThrottled {
                retry_after: Some(pause),
            }
            | Self::Unavailable {
                retry_after: Some(pause),
            } => pause,
            Self::DailyQuota => DAILY_QUOTA_PAUSE,
            Self::RateThrottled { .. }
            | Self::Unavailable { .. }
            | Self::Paused
            | Self::Suspended
            | Self::NotVerified
            | Self::NotFound
            | Self::Denied
            | Self::NotSent
            | Self::Unknown => Millis(0),
        };
        let attempts = attempts.saturating_add(1);
        if attempts >= MAX_ATTEMPTS {
            return Next::DeadLetter {
                reason: "attempts_exhausted",
                free: true,
            };
        }
        Next::Retry {
            attempts,
            not_before,
        }
    }
}

/// The longest that a retry is put off beyond its new slot: 2 s after the first failure, doubled by
/// each further one. A caller draws evenly from zero to this, so that what failed together
/// doesn't come back together.
#[must_use]
pub const fn longest_jitter(attempts: u32) -> Millis {
    let doublings = if attempts < MAX_ATTEMPTS {
        attempts
    } else {
        MAX_ATTEMPTS
    };
    Millis::from_secs(1 << doublings)
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

    #[test]
    fn each_answer_of_ses_has_its_outcome() {
        for (status, code, text, outcome) in [
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
                "Sending is paused for this configuration set",
                Outcome::Paused,
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
            (500, "", "", DOWN),
            (500, "InternalFailure", "", DOWN),
            (503, "ServiceUnavailable", "", DOWN),
            (502, "", "", Outcome::Uncertain),
            (504, "", "", Outcome::Uncertain),
            (200, "", "", Outcome::Uncertain),
            (302, "", "", Outcome::Unknown),
            (400, "", "", Outcome::Unknown),
            (404, "", "", Outcome::Unknown),
            (418, "Teapot", "short and stout", Outcome::Unknown),
        ] {
            assert_eq!(error(status, code, text), outcome, "{status} {code} {text}");
        }
        assert_eq!(
            Outcome::of_ses(&Answer::Accepted { id: "1".into() }),
            Outcome::Sent
        );
        assert_eq!(Outcome::of_ses(&Answer::NotSent), Outcome::NotSent);
        assert_eq!(Outcome::of_ses(&Answer::Lost), Outcome::Uncertain);
    }

    /// Every outcome there is. The match makes the compiler ask for a new one here.
    fn all() -> Vec<Outcome> {
        let all = vec![
            Outcome::Sent,
            RATE,
            Outcome::DailyQuota,
            Outcome::Paused,
            Outcome::Suspended,
            Outcome::Rejected,
            Outcome::BadRequest,
            Outcome::NotVerified,
            Outcome::NotFound,
            Outcome::Denied,
            DOWN,
            Outcome::NotSent,
            Outcome::Uncertain,
            Outcome::Unknown,
        ];
        for outcome in &all {
            match outcome {
                Outcome::Sent
                | Outcome::RateThrottled { .. }
                | Outcome::DailyQuota
                | Outcome::Paused
                | Outcome::Suspended
                | Outcome::Rejected
                | Outcome::BadRequest
                | Outcome::NotVerified
                | Outcome::NotFound
                | Outcome::Denied
                | Outcome::Unavailable { .. }
                | Outcome::NotSent
                | Outcome::Uncertain
                | Outcome::Unknown => {}
            }
        }
        all
    }

    #[test]
    fn only_what_the_provider_names_unacceptable_is_given_up() {
        for outcome in all() {
            let given_up = outcome.next(0) == Next::Delete;
            assert_eq!(
                given_up,
                matches!(outcome, Outcome::Rejected | Outcome::BadRequest),
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn only_what_surely_was_not_accepted_is_tried_again() {
        for outcome in all() {
            let again = matches!(outcome.next(0), Next::Retry { attempts: 1, .. });
            let never = matches!(
                outcome,
                Outcome::Sent | Outcome::Rejected | Outcome::BadRequest | Outcome::Uncertain
            );
            assert_eq!(again, !never, "{outcome:?}");
        }
        assert_eq!(
            Outcome::Uncertain.next(0),
            Next::DeadLetter {
                reason: "uncertain",
                free: false
            }
        );
    }

    #[test]
    fn the_fifth_failure_is_the_last() {
        assert_eq!(
            RATE.next(3),
            Next::Retry {
                attempts: 4,
                not_before: Millis(0)
            }
        );
        let end = Next::DeadLetter {
            reason: "attempts_exhausted",
            free: true,
        };
        assert_eq!(RATE.next(4), end);
        assert_eq!(RATE.next(u32::MAX), end);
        assert_eq!(Outcome::Sent.next(4), Next::Commit);
    }

    #[test]
    fn a_retry_stays_away_as_long_as_it_was_told_to() {
        let told = Some(Millis(7_000));
        for outcome in [
            Outcome::RateThrottled { retry_after: told },
            Outcome::Unavailable { retry_after: told },
        ] {
            assert_eq!(
                outcome.next(0),
                Next::Retry {
                    attempts: 1,
                    not_before: Millis(7_000)
                }
            );
        }
        assert_eq!(
            Outcome::DailyQuota.next(1),
            Next::Retry {
                attempts: 2,
                not_before: DAILY_QUOTA_PAUSE
            }
        );
    }

    #[test]
    fn jitter_grows_with_the_attempts_and_stays_bounded() {
        let longest: Vec<u64> = [1, 2, 3, 4, 9]
            .map(|attempts| longest_jitter(attempts).whole_secs())
            .into();
        assert_eq!(longest, [2, 4, 8, 16, 32]);
    }

    #[test]
    fn every_outcome_has_a_code_of_its_own() {
        let codes: std::collections::BTreeSet<_> =
            all().iter().map(|outcome| outcome.code()).collect();
        assert_eq!(codes.len(), all().len());
    }
}
