//! How Redis is reached.

use std::{sync::Arc, time::Duration};

use redis::{
    Client,
    aio::{ConnectionManager, ConnectionManagerConfig},
};

use crate::{Keys, Schedule, ScheduleError, script::Scripts};

/// A call that takes longer has failed: scripts take microseconds, so only a lost server does.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// A handshake with TLS takes a few round trips inside one region.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

impl Schedule {
    /// The schedule behind a `redis://` or `rediss://` URL (the latter is TLS, checked against the
    /// system's certificate authorities). Nothing is sent before the first call; a lost connection is made
    /// anew by the call that finds it lost, or the next.
    ///
    /// Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// When the URL is no Redis URL.
    pub fn connect(url: &str, keys: Keys) -> Result<Self, ScheduleError> {
        Self::connect_behind(url, keys, "")
    }

    pub(crate) fn connect_behind(
        url: &str,
        keys: Keys,
        prelude: &str,
    ) -> Result<Self, ScheduleError> {
        // Without a provider named, rustls can't tell which of those built in to take. Installing fails
        // only if one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::open(url).map_err(ScheduleError::Url)?;
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(2)
            .set_min_delay(Duration::from_millis(50))
            .set_max_delay(Duration::from_millis(500))
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_response_timeout(Some(ANSWER_WITHIN));
        let connection =
            ConnectionManager::new_lazy_with_config(client, config).map_err(ScheduleError::Url)?;
        Ok(Self {
            connection,
            keys,
            scripts: Arc::new(Scripts::behind(prelude)),
        })
    }

    /// The keys in use.
    #[must_use]
    pub const fn keys(&self) -> &Keys {
        &self.keys
    }
}
