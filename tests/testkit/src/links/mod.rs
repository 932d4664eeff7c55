//! Suites of tests that every link passes; each adapter runs them by a macro.

pub mod acknowledgement_suite;
mod either;
pub mod failover;
pub mod local_suite;
pub mod suite;
pub mod tls_suite;

pub use either::Either;

use statestore_tokio::{Error, StateStore, VersionedValue};
use tokio::task::JoinSet;

/// Requests for distinct keys, in progress.
#[must_use]
pub fn gets(store: &StateStore, count: usize) -> JoinSet<Result<Option<VersionedValue>, Error>> {
    let mut calls = JoinSet::new();
    for key in 0..count {
        let call = store.get(format!("key {key}"));
        calls.spawn(async move { call.await });
    }
    calls
}
