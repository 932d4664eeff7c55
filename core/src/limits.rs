//! The protocol's numbers, each with its reason.

use core::time::Duration;

/// Bytes in an MQTT topic name or any other MQTT string: its length is sent in 16 bits.
pub const TOPIC_BYTES_MAX: usize = 65_535;

/// How far a timestamp may be ahead of the local clock: one minute, and exactly one minute is still accepted.
///
/// The protocol asks clients to keep their clock within this of the store's. It bounds what a wrong clock can do to
/// everybody else's versions.
pub const CLOCK_DRIFT_MAX: Duration = Duration::from_secs(60);

/// The greatest counter that a clock of ours issues: one deployed parser reads it into a signed 32-bit integer.
///
/// A clock that gets there moves its wall part on by one millisecond instead.
pub const COUNTER_MAX: u64 = i32::MAX as u64;

/// Elements in the longest request: `SET key value NEX operand PX milliseconds`.
pub const COMMAND_ELEMENTS_MAX: usize = 7;
