//! Instruction counts of [paths](crate::paths), and their comparison with a baseline.
//!
//! A count depends on the source, the compiler and the target, but hardly on the machine. For a
//! target with musl it includes the allocator and the memory functions of the toolchain, not those
//! of the system. So a baseline from one machine holds for another one.

mod baseline;
mod callgrind;

pub use baseline::{Baseline, Comparison, LIMIT_PERCENT, Toolchain};
pub use callgrind::{COUNT, CountError, count};
