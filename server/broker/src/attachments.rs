//! Attachments of the host and of other clients in this process.

use alloc::collections::BTreeMap;

use crate::ids::{LocalId, SessionId};
use statestore_mqtt::Reason;

/// Session of each attachment, or the reason why the attachment has ended.
///
/// An ended attachment remains until the client detaches, so that the client learns the reason.
#[derive(Debug, Default)]
pub(crate) struct Attachments(BTreeMap<LocalId, Result<SessionId, Reason>>);

impl Attachments {
    pub(crate) fn insert(&mut self, id: LocalId, session: SessionId) {
        self.0.insert(id, Ok(session));
    }

    /// Returns the session of an attachment.
    ///
    /// # Errors
    /// The reason why the attachment has ended.
    pub(crate) fn session(&self, id: LocalId) -> Result<SessionId, Reason> {
        self.0.get(&id).copied().unwrap_or(Err(Reason::UNSPECIFIED_ERROR))
    }

    /// Ends an attachment with a reason.
    pub(crate) fn end(&mut self, id: LocalId, reason: Reason) {
        self.0.insert(id, Err(reason));
    }

    /// Removes an attachment. Returns its session if it had not ended.
    pub(crate) fn remove(&mut self, id: LocalId) -> Option<SessionId> {
        self.0.remove(&id)?.ok()
    }
}
