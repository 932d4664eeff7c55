//! Stage 3: the policy of the embedder.

use crate::message::{Command, RequestKind};
use crate::store::{Access, Principal, Refused, Store};
use crate::transport::Incoming;

impl Store {
    /// Checks whether the sender may execute a command.
    pub(super) fn authorize(
        &self,
        sender: Principal<'_>,
        incoming: &Incoming<'_>,
        command: &Command<&[u8]>,
    ) -> Result<(), Refused> {
        let is_write = command.kind().is_write();
        let access = if is_write { Access::Write } else { Access::Read };
        let is_fenced = is_write && incoming.properties.fencing_token.is_some();
        for access in [Some(access), is_fenced.then_some(Access::Fence)].into_iter().flatten() {
            if !self.is_allowed(sender, access, command.key()) {
                return Err(Refused::AccessDenied(access));
            }
        }
        let is_watch = matches!(command.kind(), RequestKind::Watch | RequestKind::Unwatch);
        if is_watch && sender.client_id().is_none_or(str::is_empty) {
            return Err(Refused::UnknownClientId);
        }
        check_source(sender, incoming)
    }

    /// Returns whether the policy allows this access.
    pub(in crate::store) fn is_allowed(
        &self,
        sender: Principal<'_>,
        access: Access,
        key: &[u8],
    ) -> bool {
        self.config.authorizer.as_ref().is_none_or(|allows| allows(&sender, access, key))
    }
}

/// Checks that a verified sender does not claim another client id.
pub(in crate::store) fn check_source(
    sender: Principal<'_>,
    incoming: &Incoming<'_>,
) -> Result<(), Refused> {
    let source = incoming.claimed_source();
    if sender.is_verified() && source.is_some() && source != sender.client_id() {
        return Err(Refused::SourceMismatch);
    }
    Ok(())
}
