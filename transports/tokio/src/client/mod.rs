//! The handle of an application: requests, watches, and the task behind them.

pub(crate) mod batch;
pub(crate) mod call;
pub(crate) mod error;
pub(crate) mod fence;
pub(crate) mod handle;
pub(crate) mod keys;
pub(crate) mod pattern_watch;
pub(crate) mod releases;
pub(crate) mod replacements;
pub(crate) mod task;
pub(crate) mod typed;
pub(crate) mod watch;
pub(crate) mod watchers;
