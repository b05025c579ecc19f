//! The Lua files, and how they are called.

use redis::{ErrorKind, FromRedisValue, RedisError, Script, ScriptInvocation, Value};

use crate::{ScheduleError, connection::Link};

/// One script under its file's name.
pub(crate) struct Named {
    pub(crate) name: &'static str,
    script: Script,
}

/// All scripts.
pub(crate) struct Scripts {
    pub(crate) seed: Named,
    pub(crate) book: Named,
    pub(crate) book_mail: Named,
    pub(crate) release: Named,
    pub(crate) pause: Named,
    pub(crate) resume: Named,
    pub(crate) slow: Named,
    pub(crate) block: Named,
    pub(crate) claim: Named,
    pub(crate) commit: Named,
    pub(crate) look: Named,
    pub(crate) note: Named,
    pub(crate) unblock: Named,
    pub(crate) tenants: Named,
    pub(crate) tenant: Named,
    pub(crate) feed: Named,
    pub(crate) counts: Named,
    pub(crate) suppress: Named,
    pub(crate) sweep: Named,
    pub(crate) draw: Named,
    pub(crate) cancel: Named,
    pub(crate) find: Named,
    pub(crate) trace: Named,
    pub(crate) tally: Named,
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
            book_mail: named(
                "book_mail",
                concat!(
                    "local function book(KEYS, ARGV)\n",
                    include_str!("lua/book.lua"),
                    "\nend\n",
                    include_str!("lua/book_mail.lua")
                ),
            ),
            release: named("release", include_str!("lua/release.lua")),
            pause: named("pause", include_str!("lua/pause.lua")),
            resume: named("resume", include_str!("lua/resume.lua")),
            slow: named("slow", include_str!("lua/slow.lua")),
            block: named("block", include_str!("lua/block.lua")),
            claim: named("claim", include_str!("lua/claim.lua")),
            commit: named("commit", include_str!("lua/commit.lua")),
            look: named("look", include_str!("lua/look.lua")),
            unblock: named("unblock", include_str!("lua/unblock.lua")),
            note: named("note", include_str!("lua/note.lua")),
            tenants: named("tenants", include_str!("lua/tenants.lua")),
            tenant: named("tenant", include_str!("lua/tenant.lua")),
            feed: named("feed", include_str!("lua/feed.lua")),
            counts: named("counts", include_str!("lua/counts.lua")),
            suppress: named("suppress", include_str!("lua/suppress.lua")),
            sweep: named("sweep", include_str!("lua/sweep.lua")),
            draw: named("draw", include_str!("lua/draw.lua")),
            cancel: named("cancel", include_str!("lua/cancel.lua")),
            find: named("find", include_str!("lua/find.lua")),
            tally: named("tally", include_str!("lua/tally.lua")),
            trace: named("trace", include_str!("lua/trace.lua")),
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
        link: &Link,
        budget: &str,
    ) -> Result<T, ScheduleError> {
        let mut connection = link.clone();
        let call = invocation.invoke_async::<Value>(&mut connection);
        let answer = link.bound(call).await.map_err(|error| match error.code() {
            Some("NOBUDGET") => ScheduleError::NoBudget(budget.to_owned()),
            Some("STALE") => ScheduleError::Stale(budget.to_owned()),
            _ => ScheduleError::Redis(error),
        })?;
        // Not the crate's own error, which a garbled answer of the network would have too.
        T::from_redis_value(answer).map_err(|error| {
            let kind = ErrorKind::UnexpectedReturnType;
            let error = (kind, "a script's answer can't be read", error.to_string());
            ScheduleError::Redis(RedisError::from(error))
        })
    }

    pub(crate) fn unreadable(&self, answer: &impl std::fmt::Debug) -> ScheduleError {
        ScheduleError::Answer {
            script: self.name,
            answer: format!("{answer:?}"),
        }
    }
}
