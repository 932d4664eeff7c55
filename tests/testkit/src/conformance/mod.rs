//! Suites for every store and every handle, over any transport.

pub mod handles;
pub mod suite;
