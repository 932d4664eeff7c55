//! What a program can do about a lead from beside its store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use statestore_tokio::JournalError;
use tokio::sync::Mutex as Gate;
use tokio::sync::MutexGuard as Passage;

use crate::client::Etcd;
use crate::error::Failure;
use crate::known::Known;
use crate::lease::Lease;
use crate::role::{Role, RoleSender};

/// The lead of a journal that a store has taken: to ask for, and to give back.
#[derive(Clone, Debug)]
pub struct Leadership(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    held: Mutex<Option<Arc<Held>>>,
    /// Open while no commit is under way.
    gate: Gate<()>,
    role: RoleSender,
    known: Known,
}

/// A lead.
pub(crate) struct Held {
    pub(crate) etcd: Etcd,
    pub(crate) lease: Lease,
}

impl Leadership {
    pub(crate) fn new(role: RoleSender, known: Known) -> Self {
        Self(Arc::new(Inner { held: Mutex::default(), gate: Gate::default(), role, known }))
    }

    /// Whether nobody else can lead now, by a clock that goes on in a suspend (on Linux `CLOCK_BOOTTIME`): the last renewal was sent less than four fifths of the lease
    /// ago. The rest is the margin.
    ///
    /// An answer that is given at once after this said yes is at most as old as this process stood still in between: stopped,
    /// swapped out, or on a machine that was suspended just then. To be sure of more, commit: also one without records is known to be
    /// done only while nobody else leads.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held().is_some_and(|held| held.lease.is_held())
    }

    /// Gives the lead back after the commit that is under way, if there is one, so that another leads at once instead of after the
    /// lease. The store can commit nothing any more and ends with the next commit; shut it down first, and nothing is cut off.
    /// Does nothing where there is no lead.
    ///
    /// # Errors
    /// [`JournalError`] when etcd does not say that it has it back. Then the lease runs out.
    pub async fn resign(&self) -> Result<(), JournalError> {
        let _passage = self.pass().await;
        let Some(held) = self.lock().take() else { return Ok(()) };
        self.0.role.tell(Role::Lost { reason: "resigned".to_owned() });
        held.lease.revoke(&held.etcd).await.map_err(JournalError::from)
    }

    /// How far the chain was seen to get.
    pub(crate) fn known(&self) -> &Known {
        &self.0.known
    }

    /// Waits until no commit is under way; none is before this is dropped.
    pub(crate) async fn pass(&self) -> Passage<'_, ()> {
        self.0.gate.lock().await
    }

    pub(crate) fn held(&self) -> Option<Arc<Held>> {
        self.lock().clone()
    }

    pub(crate) fn hold(&self, etcd: Etcd, lease: Lease) {
        *self.lock() = Some(Arc::new(Held { etcd, lease }));
    }

    /// The store is gone: the lease runs out unless it is given back.
    pub(crate) fn abandon(&self) {
        if let Some(held) = self.held() {
            held.lease.stop();
        }
        self.0.role.tell(Role::Lost { reason: "the store has ended".to_owned() });
    }

    /// Nothing that is done with it can panic.
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Held>>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// What a failure says about the role.
pub(crate) fn ended(failure: &Failure) -> Role {
    match failure {
        Failure::Deposed(reason) => Role::Deposed { reason: reason.clone() },
        failure if failure.may_pass() => Role::Lost { reason: failure.to_string() },
        failure => Role::Failed { reason: failure.to_string() },
    }
}
