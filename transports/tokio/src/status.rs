//! How a handle or a store stands with its broker.

use std::fmt;

use tokio::sync::watch;

use crate::error::StoreClosed;

/// How a handle or a store stands with its broker. Whether a store listens behind that broker, only its answers tell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Not connected, or what is needed is not subscribed yet. Another try is made by itself.
    Offline {
        /// Why the last try or the last connection failed, if there was one.
        reason: Option<String>,
    },
    /// Connected, and what is needed is subscribed.
    Online,
    /// Given up: another try would not mend it.
    Failed {
        /// Why.
        reason: String,
    },
    /// Given up: what this store writes cannot be kept, or what was kept cannot be read. Whatever was not safe was not
    /// acknowledged, so the broker delivers it again to the next store.
    JournalFailed {
        /// Why.
        reason: String,
    },
    /// Ended, as it was told to.
    Stopped,
}

/// In a few words, with the reason where it is known.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Offline { .. } => "offline",
            Self::Online => "online",
            Self::Failed { .. } | Self::JournalFailed { .. } => "failed",
            Self::Stopped => "stopped",
        })?;
        self.reason().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

impl Status {
    /// Why it is not online, where that is known.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Offline { reason } => reason.as_deref(),
            Self::Online | Self::Stopped => None,
            Self::Failed { reason } | Self::JournalFailed { reason } => Some(reason),
        }
    }
}

/// Follows the [`Status`] of a handle or a store.
#[derive(Clone, Debug)]
pub struct StatusWatch(watch::Receiver<Status>);

impl StatusWatch {
    pub(crate) const fn new(status: watch::Receiver<Status>) -> Self {
        Self(status)
    }

    /// The status now.
    #[must_use]
    pub fn current(&mut self) -> Status {
        self.0.borrow_and_update().clone()
    }

    /// Waits for another status than the one that this or [`current`](Self::current) gave last; `None` when the handle or
    /// the store has ended. Of several changes only the last is told. Cancel safe.
    pub async fn changed(&mut self) -> Option<Status> {
        self.0.changed().await.ok()?;
        Some(self.0.borrow_and_update().clone())
    }

    /// Waits until nothing follows.
    pub(crate) async fn ended(mut self) {
        while self.0.changed().await.is_ok() {}
    }

    /// Waits until it is online.
    pub(crate) async fn online(mut self) -> Result<(), StoreClosed> {
        let over = |status: &Status| !matches!(status, Status::Offline { .. });
        let is_online = self.0.wait_for(over).await.is_ok_and(|status| *status == Status::Online);
        if is_online { Ok(()) } else { Err(self.closed()) }
    }

    /// Why it has ended.
    pub(crate) fn closed(&self) -> StoreClosed {
        let (reason, is_journal) = match &*self.0.borrow() {
            Status::Failed { reason } => (Some(reason.clone()), false),
            Status::JournalFailed { reason } => (Some(reason.clone()), true),
            Status::Online | Status::Offline { .. } | Status::Stopped => (None, false),
        };
        StoreClosed { reason, is_journal }
    }
}
