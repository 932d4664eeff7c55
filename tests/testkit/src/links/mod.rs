//! Suites of tests that every link passes; each adapter runs them by a macro.

pub mod acknowledgement_suite;
pub mod failover;
pub mod local_suite;
pub mod suite;
pub mod tls_suite;
