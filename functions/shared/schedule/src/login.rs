//! What a new connection says to be let in.

use std::{fmt, pin::Pin, time::Duration};

/// A user and its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user; without one it is the URL's, or else Redis's `default`.
    pub user: Option<String>,
    /// The user's password, or a token that stands for one.
    pub password: String,
    /// How long the server keeps a connection that was let in with them. Calls get a new one
    /// [a call's longest time](crate::Schedule::connect) before that. Without it, a connection may stay for ever.
    pub lasts: Option<Duration>,
}

impl fmt::Debug for Credentials {
    /// Leaves the password out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("lasts", &self.lasts)
            .finish_non_exhaustive()
    }
}

/// Why there are no credentials; without anything secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoCredentials(pub String);

/// What [`Login::credentials`] returns.
pub type Asked<'a> = Pin<Box<dyn Future<Output = Result<Credentials, NoCredentials>> + Send + 'a>>;

/// Where credentials come from. It is asked at each new connection, so that it can hand out what is only good for
/// some minutes, or has been changed since.
pub trait Login: Send + Sync {
    /// Credentials for one new connection. It has 2 s; a call that takes longer is dropped.
    fn credentials(&self) -> Asked<'_>;

    /// Redis refused these, perhaps because they are out of date. It may be told so several times.
    fn refused(&self, credentials: &Credentials);

    /// What to look at when Redis refuses them, in words that can follow "see".
    fn look_at(&self) -> &str;
}
