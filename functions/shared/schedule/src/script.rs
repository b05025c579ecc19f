//! The Lua files, and how they are called.

use redis::{FromRedisValue, Script, ScriptInvocation, aio::ConnectionManager};

use crate::ScheduleError;

/// One script under its file's name.
pub(crate) struct Named {
    pub(crate) name: &'static str,
    script: Script,
}

/// All scripts.
pub(crate) struct Scripts {
    pub(crate) seed: Named,
    pub(crate) book: Named,
    pub(crate) release: Named,
    pub(crate) pause: Named,
    pub(crate) claim: Named,
    pub(crate) commit: Named,
}

impl Scripts {
    /// The scripts as they stand in their files, behind `prelude` (empty but in tests).
    pub(crate) fn behind(prelude: &str) -> Self {
        let named = |name, code: &str| Named {
            name,
            script: Script::new(&format!("{prelude}{code}")),
        };
        Self {
            seed: named("seed", include_str!("lua/seed.lua")),
            book: named("book", include_str!("lua/book.lua")),
            release: named("release", include_str!("lua/release.lua")),
            pause: named("pause", include_str!("lua/pause.lua")),
            claim: named("claim", include_str!("lua/claim.lua")),
            commit: named("commit", include_str!("lua/commit.lua")),
        }
    }
}

impl Named {
    pub(crate) fn prepare(&self) -> ScriptInvocation<'_> {
        self.script.prepare_invoke()
    }

    /// Calls by digest; a server that doesn't hold the script (new, flushed, failed over) is given it.
    pub(crate) async fn call<T: FromRedisValue>(
        invocation: &ScriptInvocation<'_>,
        connection: &ConnectionManager,
        budget: &str,
    ) -> Result<T, ScheduleError> {
        let answer = invocation.invoke_async(&mut connection.clone()).await;
        answer.map_err(|error: redis::RedisError| {
            if error.code() == Some("NOBUDGET") {
                ScheduleError::NoBudget(budget.to_owned())
            } else {
                ScheduleError::Redis(error)
            }
        })
    }

    pub(crate) fn unreadable(&self, answer: &impl std::fmt::Debug) -> ScheduleError {
        ScheduleError::Answer {
            script: self.name,
            answer: format!("{answer:?}"),
        }
    }
}
