//! Comparison of statestore with its peers. All sides take turns in one run, so a machine that
//! slows down slows all of them.
//!
//! `cargo run --release -p statestore-ratios -- codec` runs a suite.
//!
//! [`suites`] has the comparisons, one module and one table entry each. [`peers`] has other codecs,
//! [`engines`] other durable stores, and [`bare`] programs on an MQTT library alone.
//! [`server_thread`] runs servers in threads, [`folder`] holds their data, [`race`] measures time,
//! and [`report`] prints. A suite asserts that all sides return the expected results before it
//! measures them.

pub mod bare;
pub mod engines;
pub mod folder;
pub mod peers;
pub mod race;
pub mod report;
pub mod server_thread;
pub mod suites;
