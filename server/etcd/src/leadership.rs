//! Handle of a program to the leadership of its store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use statestore_tokio::JournalError;
use tokio::sync::Mutex as CommitMutex;
use tokio::sync::MutexGuard as CommitLock;

use crate::client::Etcd;
use crate::error::Failure;
use crate::known_head::KnownHead;
use crate::lease::Lease;
use crate::role::{Role, RoleSender};

/// Checks and resigns the leadership of a journal that a store owns.
#[derive(Clone, Debug)]
pub struct Leadership(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    held: Mutex<Option<Arc<HeldLease>>>,
    /// Locked during a commit.
    commits: CommitMutex<()>,
    role: RoleSender,
    known: KnownHead,
}

/// The lease of the leader, and the etcd that has granted it.
pub(crate) struct HeldLease {
    pub(crate) etcd: Etcd,
    pub(crate) lease: Lease,
}

impl Leadership {
    pub(crate) fn new(role: RoleSender, known: KnownHead) -> Self {
        Self(Arc::new(Inner {
            held: Mutex::default(),
            commits: CommitMutex::default(),
            role,
            known,
        }))
    }

    /// Returns whether no other store can lead now: the last successful renewal was sent less than
    /// four fifths of the lease ago. The rest is the margin. The clock continues during a suspend
    /// (on Linux, `CLOCK_BOOTTIME`).
    ///
    /// A response that is sent directly after this returned `true` can be as old as the time for
    /// which the process was stopped or swapped out, or its machine suspended, in between. A commit
    /// is stronger: even without records it only succeeds if no other store leads.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held().is_some_and(|held| held.lease.is_held())
    }

    /// Resigns the leadership after the current commit, so that another store leads at once instead
    /// of after the lease. Shut the store down first: its next commit fails and ends it. Does
    /// nothing if the journal does not lead.
    ///
    /// # Errors
    /// [`JournalError`] if etcd does not confirm that the lease is revoked. The lease then expires.
    pub async fn resign(&self) -> Result<(), JournalError> {
        let _commit_lock = self.lock_commits().await;
        let Some(held) = self.lock().take() else { return Ok(()) };
        self.0.role.set(Role::Lost { reason: "resigned".to_owned() });
        held.lease.revoke(&held.etcd).await.map_err(JournalError::from)
    }

    /// Returns the latest head that was seen.
    pub(crate) fn known(&self) -> &KnownHead {
        &self.0.known
    }

    /// Waits for the current commit, and blocks the next one until the result is dropped.
    pub(crate) async fn lock_commits(&self) -> CommitLock<'_, ()> {
        self.0.commits.lock().await
    }

    pub(crate) fn held(&self) -> Option<Arc<HeldLease>> {
        self.lock().clone()
    }

    pub(crate) fn hold(&self, etcd: Etcd, lease: Lease) {
        *self.lock() = Some(Arc::new(HeldLease { etcd, lease }));
    }

    /// Stops renewing the lease, because the store was dropped. [`resign`](Self::resign) can still
    /// revoke it.
    pub(crate) fn abandon(&self) {
        if let Some(held) = self.held() {
            held.lease.stop();
        }
        self.0.role.set(Role::Lost { reason: "the store has ended".to_owned() });
    }

    /// The lock cannot be poisoned in an invalid state, because no operation under it panics.
    fn lock(&self) -> MutexGuard<'_, Option<Arc<HeldLease>>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for HeldLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldLease").field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// Returns the role after a failure.
pub(crate) fn role_after(failure: &Failure) -> Role {
    match failure {
        Failure::Deposed(reason) => Role::Deposed { reason: reason.clone() },
        failure if failure.may_pass() => Role::Lost { reason: failure.to_string() },
        failure => Role::Failed { reason: failure.to_string() },
    }
}
