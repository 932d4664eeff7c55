//! State of the connection of a handle or a store.

use std::fmt;

use tokio::sync::watch;

use crate::closed::{CloseReason, StoreClosed};
use crate::link::LinkError;

/// State of the connection of a handle or a store. It does not show whether a store is subscribed
/// at that broker; only a response shows that.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Not connected, or not subscribed yet. The next attempt is made automatically.
    Offline {
        /// Error of the last attempt or connection, if any.
        last_error: Option<LinkError>,
    },
    /// Connected and subscribed.
    Online,
    /// Ended: a retry is pointless, or the journal of the store failed.
    Failed(CloseReason),
    /// Ended as requested.
    Stopped,
}

/// A short text, with the reason if it is known.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offline { last_error: None } => f.write_str("offline"),
            Self::Offline { last_error: Some(error) } => write!(f, "offline: {error}"),
            Self::Online => f.write_str("online"),
            Self::Failed(reason) => write!(f, "failed: {reason}"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

impl Status {
    /// Returns whether the handle or the store has ended: it does not connect again.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Stopped)
    }

    /// Reason for the lack of a connection, as text.
    #[must_use]
    pub fn reason(&self) -> Option<&dyn fmt::Display> {
        match self {
            Self::Offline { last_error } => last_error.as_ref().map(|error| error as _),
            Self::Failed(reason) => Some(reason),
            Self::Online | Self::Stopped => None,
        }
    }

    /// Error of the link, if it failed.
    #[must_use]
    pub const fn link_error(&self) -> Option<&LinkError> {
        match self {
            Self::Offline { last_error } => last_error.as_ref(),
            Self::Failed(reason) => reason.link_error(),
            Self::Online | Self::Stopped => None,
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

    /// Waits for a status that differs from the one that this method or [`current`](Self::current)
    /// returned last; `None` when the handle or the store has ended. Of several changes only the
    /// last is returned. Cancel safe.
    pub async fn changed(&mut self) -> Option<Status> {
        self.0.changed().await.ok()?;
        Some(self.0.borrow_and_update().clone())
    }

    /// Waits until the drive loop has ended. Returns the reason.
    pub(crate) async fn wait_closed(mut self) -> StoreClosed {
        while self.0.changed().await.is_ok() {}
        self.closed()
    }

    /// Waits until the connection is online.
    ///
    /// # Errors
    /// [`StoreClosed`] if the handle or the store has ended.
    pub(crate) async fn wait_connected(mut self) -> Result<(), StoreClosed> {
        let over = |status: &Status| !matches!(status, Status::Offline { .. });
        let is_online = self.0.wait_for(over).await.is_ok_and(|status| *status == Status::Online);
        if is_online { Ok(()) } else { Err(self.closed()) }
    }

    /// Reason for the end.
    pub(crate) fn closed(&self) -> StoreClosed {
        let reason = match &*self.0.borrow() {
            Status::Failed(reason) => Some(reason.clone()),
            Status::Online | Status::Offline { .. } | Status::Stopped => None,
        };
        StoreClosed { reason }
    }
}
