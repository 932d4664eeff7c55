//! The state of a lock, as guarded writes need it.

use statestore_proto::hlc::FencingToken;
use statestore_proto::lock::{LossReason, NotAcquired};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::closed::StoreClosed;

/// Reason why a lock is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockLost {
    /// The lock is no longer held.
    #[error("the lock is lost: {0}")]
    Lost(LossReason),
    /// The handle is closed, so that nothing renews the lock.
    #[error("the lock is lost: {0}")]
    Closed(StoreClosed),
}

/// State of a lock, published by its task.
#[derive(Clone, Debug)]
pub(crate) enum LockStatus {
    Waiting,
    Held { token: FencingToken, until: Instant },
    Over(LockEnd),
}

/// Reason for the end of a lock.
#[derive(Clone, Debug)]
pub(crate) enum LockEnd {
    AcquireFailed(NotAcquired),
    Lost(LossReason),
    Released { confirmed: bool },
    Closed(StoreClosed),
}

/// The connection of guarded writes to the task of their lock.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    status: watch::Receiver<LockStatus>,
    fenced_out: mpsc::Sender<FencingToken>,
}

impl Fence {
    pub(crate) const fn new(
        status: watch::Receiver<LockStatus>,
        fenced_out: mpsc::Sender<FencingToken>,
    ) -> Self {
        Self { status, fenced_out }
    }

    /// The newest token while the lock is held; `None` also if the lease has run out and the task
    /// has not noticed yet.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.held_token().ok()
    }

    /// The end of the lease unless it is renewed; `None` if the lock is not held.
    pub(crate) fn held_until(&self) -> Option<Instant> {
        match *self.status.borrow() {
            LockStatus::Held { until, .. } if Instant::now() < until => Some(until),
            _ => None,
        }
    }

    /// Handles a write that was refused for this token. Returns whether the lock is lost; if not, a
    /// write with a newer token of the same holding came first.
    pub(crate) async fn handle_fenced_out(&self, token: FencingToken) -> bool {
        let is_newest = self.token().as_ref() == Some(&token);
        if is_newest {
            // A task that has ended needs no report.
            let _ = self.fenced_out.send(token).await;
        }
        is_newest
    }

    /// Waits until the lock is held or over.
    pub(crate) async fn wait_decided(&self) -> LockStatus {
        self.until(|status| !matches!(status, LockStatus::Waiting)).await
    }

    /// Waits until the lock is lost.
    pub(crate) async fn wait_lost(&self) -> LockLost {
        match self.wait_over().await {
            LockEnd::Lost(loss) => LockLost::Lost(loss),
            LockEnd::Closed(closed) => LockLost::Closed(closed),
            // Neither can happen while the guard of an acquired lock exists.
            LockEnd::AcquireFailed(_) | LockEnd::Released { .. } => {
                LockLost::Lost(LossReason::Expired)
            }
        }
    }

    /// Returns the newest token.
    ///
    /// # Errors
    /// The reason why the lock is lost. Its lease may have run out before its task noticed.
    pub(crate) fn held_token(&self) -> Result<FencingToken, LockLost> {
        match &*self.status.borrow() {
            LockStatus::Held { token, until } if Instant::now() < *until => Ok(token.clone()),
            LockStatus::Over(LockEnd::Lost(loss)) => Err(LockLost::Lost(loss.clone())),
            LockStatus::Over(LockEnd::Closed(closed)) => Err(LockLost::Closed(closed.clone())),
            _ => Err(LockLost::Lost(LossReason::Expired)),
        }
    }

    /// Waits until the lock is over.
    pub(crate) async fn wait_over(&self) -> LockEnd {
        match self.until(|status| matches!(status, LockStatus::Over(_))).await {
            LockStatus::Over(end) => end,
            LockStatus::Waiting | LockStatus::Held { .. } => closed(),
        }
    }

    async fn until(&self, reached: impl FnMut(&LockStatus) -> bool) -> LockStatus {
        let mut status = self.status.clone();
        let reached = status.wait_for(reached).await.map(|status| status.clone());
        // The runtime has ended and with it the task, so the lock is no longer renewed.
        reached.unwrap_or_else(|_| LockStatus::Over(closed()))
    }
}

const fn closed() -> LockEnd {
    LockEnd::Closed(StoreClosed { reason: None })
}
