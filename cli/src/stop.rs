//! Ctrl-C.

use std::sync::Arc;

use tokio::{signal, sync::Notify};

/// Waits for Ctrl-C, and keeps one that comes while nobody waits.
pub struct Stop(Arc<Notify>);

impl Stop {
    /// From now on Ctrl-C doesn't end the process. Where that can't be had it still does.
    #[must_use]
    pub fn listen() -> Self {
        let notify = Arc::<Notify>::default();
        let stop = notify.clone();
        tokio::spawn(async move {
            while signal::ctrl_c().await.is_ok() {
                stop.notify_one();
            }
        });
        Self(notify)
    }

    /// Until Ctrl-C.
    pub async fn asked(&self) {
        self.0.notified().await;
    }
}
