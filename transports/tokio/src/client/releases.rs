//! Counts the locks of a handle that are being released, so that a shutdown can wait for them.

use tokio::sync::watch;

use crate::drive::SHUTDOWN_MAX;

/// The number of releases in progress.
pub(crate) struct Releases(watch::Sender<usize>);

/// One release in progress, until it is dropped.
pub(crate) struct Release(watch::Sender<usize>);

impl Releases {
    /// Begins a release.
    pub(crate) fn begin(&self) -> Release {
        self.0.send_modify(|count| *count += 1);
        Release(self.0.clone())
    }

    /// Waits until all releases are done, for at most [`SHUTDOWN_MAX`].
    pub(crate) async fn wait_done(&self) {
        let mut count = self.0.subscribe();
        let none = count.wait_for(|count| *count == 0);
        let _ = tokio::time::timeout(SHUTDOWN_MAX, none).await;
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
