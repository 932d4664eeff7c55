//! Orders to disconnect a client, which no ordinary client can carry out.

use tracing::{debug, warn};

/// Counts them.
#[derive(Debug, Default)]
pub(crate) struct Offenders(u64);

impl Offenders {
    /// Notes one more, loudly at first.
    pub(crate) fn note(&mut self, client_id: &str) {
        self.0 += 1;
        if self.0 == 1 {
            warn!(
                client_id,
                "an ordinary client cannot disconnect another; offenders stay connected"
            );
        } else {
            debug!(client_id, offenders = self.0, "an offender stays connected");
        }
    }
}
