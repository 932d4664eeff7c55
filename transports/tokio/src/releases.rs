//! Locks that are being given back while nobody waits for it.

use tokio::sync::watch;

use crate::drive::GOODBYE_MAX;

/// How many there are of one handle.
pub(crate) struct Releases(watch::Sender<usize>);

/// One of them, until it is dropped.
pub(crate) struct Release(watch::Sender<usize>);

impl Releases {
    /// One more.
    pub(crate) fn begin(&self) -> Release {
        self.0.send_modify(|count| *count += 1);
        Release(self.0.clone())
    }

    /// Waits until there is none, but not for long.
    pub(crate) async fn done(&self) {
        let mut count = self.0.subscribe();
        let none = count.wait_for(|count| *count == 0);
        let _ = tokio::time::timeout(GOODBYE_MAX, none).await;
    }
}

impl Default for Releases {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
