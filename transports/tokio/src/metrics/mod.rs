//! Statistics of a handle and of a store.

pub(crate) mod histogram;
#[cfg(feature = "metrics")]
pub(crate) mod recorder;
pub(crate) mod stats;
pub(crate) mod table;
