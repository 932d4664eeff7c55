//! Attempts to open a connection, and to open it again after it was lost.

use std::time::Duration;

use statestore_tokio::{LinkError, LinkErrorKind, Status};
use tokio::time::{Instant, sleep, timeout};

use crate::failure::Failure;
use crate::notices::Notices;

/// Pause before a lost connection is opened again.
const RETRY: Duration = Duration::from_secs(1);

/// Pause before the first connection is tried again. It is short, since the user waits.
const FIRST_RETRY: Duration = Duration::from_millis(200);

/// The attempts to open one connection.
pub(super) struct Reconnection {
    /// The purpose of the connection, for messages.
    purpose: &'static str,
    /// Time limit of all attempts until the first connection, and of each attempt after it.
    limit: Duration,
    /// Time of the first attempt.
    since: Instant,
    was_connected: bool,
    /// Error of the last attempt before the first connection. An attempt that the time limit cuts
    /// off does not show a cause.
    last_error: Option<LinkError>,
    notices: Notices,
}

impl Reconnection {
    pub(super) fn new(purpose: &'static str, limit: Duration) -> Self {
        Self {
            purpose,
            limit,
            since: Instant::now(),
            was_connected: false,
            last_error: None,
            notices: Notices::default(),
        }
    }

    /// Awaits an attempt to connect, at most for its time limit.
    pub(super) async fn attempt<T>(
        &self,
        connecting: impl Future<Output = Result<T, LinkError>>,
    ) -> Result<T, LinkError> {
        timeout(self.attempt_limit(), connecting).await.unwrap_or_else(|_| {
            Err(LinkError::new(LinkErrorKind::TimedOut, "no connection in time"))
        })
    }

    /// Time limit of the next attempt.
    fn attempt_limit(&self) -> Duration {
        match self.was_connected {
            true => self.limit,
            false => self.limit.saturating_sub(self.since.elapsed()),
        }
    }

    /// Records a connection. Returns whether it is the first one.
    pub(super) fn record_connection(&mut self) -> bool {
        !std::mem::replace(&mut self.was_connected, true)
    }

    /// Waits before the next attempt. Fails after a permanent error, or if the time limit of the
    /// first connection has passed.
    pub(super) async fn retry(&mut self, error: LinkError) -> Result<(), Failure> {
        if !self.was_connected && error.is_transient() && self.attempt_limit() > FIRST_RETRY {
            self.last_error = Some(error);
            sleep(FIRST_RETRY).await;
            return Ok(());
        }
        if !error.is_transient() || !self.was_connected {
            let is_cut_off = error.kind() == LinkErrorKind::TimedOut;
            let earlier = self.last_error.take().filter(|_| is_cut_off);
            let error = earlier.unwrap_or(error);
            return Err(Failure::stopped(&Status::Offline { last_error: Some(error) }));
        }
        let text = format_args!("the connection that {} was lost: {error}", self.purpose);
        self.notices.print("lost", text);
        sleep(RETRY).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn attempt_that_is_cut_off_ends_with_the_cause_of_an_earlier_one() {
        let mut reconnection = Reconnection::new("reads", Duration::from_secs(10));
        let silent = LinkError::new(LinkErrorKind::Proxy, "the proxy opened no connection");
        let failed = reconnection.attempt(async {
            sleep(Duration::from_secs(6)).await;
            Err::<(), _>(silent)
        });
        let error = failed.await.expect_err("the error of the proxy");
        reconnection.retry(error).await.expect("another attempt");
        let hanging = reconnection.attempt(std::future::pending::<Result<(), LinkError>>());
        let error = hanging.await.expect_err("the time limit");
        assert_eq!(error.kind(), LinkErrorKind::TimedOut);
        let failure = reconnection.retry(error).await.expect_err("no time is left").to_string();
        assert!(failure.contains("the proxy opened no connection; check --proxy"), "{failure}");
    }
}
