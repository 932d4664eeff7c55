//! What guarded writes need to know of their lock.

use statestore_proto::hlc::FencingToken;
use statestore_proto::lock::{LossReason, NotAcquired};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::error::StoreClosed;

/// How a lock stands, as its task says.
#[derive(Clone, Debug)]
pub(crate) enum LockStatus {
    Waiting,
    Held { token: FencingToken, until: Instant },
    Over(End),
}

/// How it came to its end.
#[derive(Clone, Debug)]
pub(crate) enum End {
    GaveUp(NotAcquired),
    Lost(LossReason),
    Released { confirmed: bool },
    Closed(StoreClosed),
}

/// What guarded writes need of a lock.
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

    /// The newest token, while the lock is held, whether or not its task had time to say otherwise.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        match &*self.status.borrow() {
            LockStatus::Held { token, until } if Instant::now() < *until => Some(token.clone()),
            _ => None,
        }
    }

    /// Until when the lock is held unless it is renewed.
    pub(crate) fn held_until(&self) -> Option<Instant> {
        match *self.status.borrow() {
            LockStatus::Held { until, .. } if Instant::now() < until => Some(until),
            _ => None,
        }
    }

    /// Handles a write refused for this token. Returns whether that means that the lock is lost; if not, a
    /// write with a newer token of the same holding was first.
    pub(crate) async fn fenced_out(&self, token: FencingToken) -> bool {
        let is_newest = self.token().as_ref() == Some(&token);
        if is_newest {
            // A task that is gone knows.
            let _ = self.fenced_out.send(token).await;
        }
        is_newest
    }

    /// Waits until the lock is held or over.
    pub(crate) async fn decided(&self) -> LockStatus {
        self.until(|status| !matches!(status, LockStatus::Waiting)).await
    }

    pub(crate) async fn ended(&self) -> End {
        match self.until(|status| matches!(status, LockStatus::Over(_))).await {
            LockStatus::Over(end) => end,
            LockStatus::Waiting | LockStatus::Held { .. } => closed(),
        }
    }

    async fn until(&self, reached: impl FnMut(&LockStatus) -> bool) -> LockStatus {
        let mut status = self.status.clone();
        let reached = status.wait_for(reached).await.map(|status| status.clone());
        // Without its task, which ends with its runtime, nothing renews the lock.
        reached.unwrap_or_else(|_| LockStatus::Over(closed()))
    }
}

const fn closed() -> End {
    End::Closed(StoreClosed { reason: None, is_journal: false })
}
