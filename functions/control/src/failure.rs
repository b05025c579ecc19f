//! Why something wasn't done, as whoever asked is told.

use sendslot_runtime::control::Failure;
use sendslot_schedule::{Look, ScheduleError};

/// Why Redis didn't do it.
#[expect(clippy::needless_pass_by_value, reason = "it is for `map_err`")]
pub(crate) fn redis_failure(error: ScheduleError) -> Failure {
    if error.is_unavailable() {
        return Failure {
            code: "redis_unavailable".to_owned(),
            message: format!("{error}; ask again when redis can be reached"),
        };
    }
    Failure {
        code: "redis_failed".to_owned(),
        message: error.to_string(),
    }
}

/// A call that was given up.
pub(crate) fn late(whose: &str) -> Failure {
    Failure {
        code: "timeout".to_owned(),
        message: format!("no answer of {whose} in time: ask again"),
    }
}

/// A request that can't be done as it is.
pub(crate) fn bad_field(message: String) -> Failure {
    Failure {
        code: "bad_field".to_owned(),
        message,
    }
}

/// Nothing can be booked without a budget.
pub(crate) fn has_budget(look: &Look) -> Result<(), Failure> {
    if look.budget.contains_key("source") {
        return Ok(());
    }
    Err(Failure {
        code: "no_budget".to_owned(),
        message: "redis holds no budget yet: ask again after the next refresh".to_owned(),
    })
}

/// That the bucket can't be used.
pub(crate) fn bucket_failed(error: impl std::fmt::Display) -> Failure {
    Failure {
        code: "bucket_failed".to_owned(),
        message: format!("parked mail can't be had: {error}"),
    }
}

/// What the bucket has answered in time.
pub(crate) fn listed<T, E>(answer: Result<Result<T, String>, E>) -> Result<T, Failure> {
    match answer {
        Ok(answer) => answer.map_err(bucket_failed),
        Err(_) => Err(late("S3")),
    }
}
