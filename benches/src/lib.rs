//! What the benches of statestore share.
//!
//! * `cargo bench -p statestore-benches` runs the criterion benches: our own times, with history.
//! * `cargo run --release -p statestore-benches --bin ratios -- codec` compares us with peers. Ours and theirs take
//!   turns in one run, so that a machine that slows down slows all of them.
//!
//! [`stage`] holds a filled store and a connected client; [`cases`] the messages and, written by an independent writer,
//! their bytes; [`packets`] a request as an MQTT packet; [`peers`] the other
//! implementations; [`engines`] other stores that keep what is written; [`aside`] runs servers; [`race`] the stopwatch;
//! [`suites`] the comparisons, one module and one table entry each. Nothing is timed before it was asserted that every side
//! gives the expected result.

pub mod aside;
pub mod bare;
pub mod cases;
pub mod engines;
pub mod packets;
pub mod peers;
pub mod race;
pub mod report;
pub mod stage;
pub mod suites;
pub mod wire;
