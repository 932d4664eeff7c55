//! Compares the versions of the store with the clock of this machine.

use std::time::Duration;

use statestore_proto::hlc::HlcRef;
use statestore_proto::message::property::TIMESTAMP;
use statestore_proto::message::{Refusal, Reply, RequestKind};
use tokio::time::sleep;

use super::{StoreChecks, unix_ms};

/// Clock skew in milliseconds that causes a warning.
const SKEW_WARNING: u64 = 5_000;

/// Clock skew in milliseconds that stores and clients accept by default.
const SKEW_MAX: u64 = 60_000;

/// Smallest limit of clock skew in milliseconds that a store can be configured to, less the time of
/// a request.
const CONFIGURED_SKEW_MIN: u64 = 900;

/// Time in which the versions of a store advance, if they follow its clock.
const TICK: Duration = Duration::from_millis(5);

const SYNCHRONIZE: &str = "synchronize both clocks, for example with NTP";

impl StoreChecks<'_, '_> {
    /// Compares the version of the test key with the time of its SET, both in milliseconds.
    pub(super) async fn check_clock(&mut self, store: u64, here: u64) {
        let ahead = here.saturating_sub(store);
        // Stores may be configured to a lower limit.
        if (CONFIGURED_SKEW_MIN..=SKEW_MAX).contains(&ahead)
            && let Some(error) = self.clock_refusal().await
        {
            self.report.fail(
                "clock",
                format!(
                    "the store's clock is {} behind this machine's, more than the store allows: \
                     {error}",
                    seconds(ahead)
                ),
                format!("{SYNCHRONIZE}; limit: `serve --max-clock-drift`"),
            );
            return;
        }
        let skew = store.abs_diff(here);
        let side = if store > here { "ahead of" } else { "behind" };
        let seen = format!("the store's clock is {} {side} this machine's", seconds(skew));
        if skew > SKEW_MAX {
            let remedy = format!("{SYNCHRONIZE}: timestamps ahead are refused");
            self.report.fail("clock", format!("{seen} (limit 60 s)"), remedy);
        } else if skew <= SKEW_WARNING {
            self.report.pass("clock", seen);
        } else if store > here && self.are_versions_ahead(store).await {
            self.report.pass(
                "clock",
                format!(
                    "versions are {} ahead: a client moved them, as `statestore verify` does, or \
                     the store's clock was set back; they follow it again after that time",
                    seconds(skew)
                ),
            );
        } else {
            let remedy = format!("{SYNCHRONIZE}: a clock ahead moves all versions");
            self.report.warn("clock", format!("{seen} (limit 60 s)"), remedy);
        }
    }

    /// Sends a SET with the time of this machine. Returns the error if the store refuses the time.
    async fn clock_refusal(&mut self) -> Option<String> {
        let timestamp = format!("{}:0:doctor", unix_ms());
        let set = self.set_command();
        let exchange = self.requests.send_at(&timestamp, &set).await;
        match Reply::decode(&exchange.responses.first()?.payload, RequestKind::Set) {
            Ok(Reply::Error(error)) if error.known() == Some(Refusal::TimestampSkew) => {
                Some(String::from_utf8_lossy(error.text()).into_owned())
            }
            _ => None,
        }
    }

    /// Returns whether versions are ahead of the store's clock: then only their counter advances.
    async fn are_versions_ahead(&mut self, store: u64) -> bool {
        sleep(TICK).await;
        let set = self.set_command();
        let exchange = self.requests.send(&set).await;
        let version = exchange.responses.first().and_then(|first| first.user(TIMESTAMP));
        let version = version.and_then(|version| HlcRef::parse(version).ok());
        version.is_some_and(|version| version.wall().as_millis() == store)
    }
}

fn seconds(millis: u64) -> String {
    format!("{}.{:03} s", millis / 1_000, millis % 1_000)
}
