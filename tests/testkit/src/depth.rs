//! How many seeds the longest tests run.

use std::env;

/// Value of `STATESTORE_TEST_DEPTH`: `quick`, `full` (the default) or `long`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// For each change: at most half the seeds, and smaller versions of the largest small worlds.
    Quick,
    /// Everything.
    Full,
    /// For the nightly workflow: ten times the seeds of a durable store, and twice the kills.
    Long,
}

impl Depth {
    /// Reads the variable.
    ///
    /// # Panics
    /// If it has another value.
    #[must_use]
    pub fn of_this_run() -> Self {
        #[expect(clippy::disallowed_methods, reason = "selects the runs, not their content")]
        let value = env::var("STATESTORE_TEST_DEPTH");
        match value.as_deref() {
            Ok("quick") => Self::Quick,
            Err(env::VarError::NotPresent) | Ok("full") => Self::Full,
            Ok("long") => Self::Long,
            other => panic!("STATESTORE_TEST_DEPTH is quick, full or long, not {other:?}"),
        }
    }

    /// Returns the number for this depth.
    #[must_use]
    pub const fn choose<T: Copy>(self, quick: T, full: T, long: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
            Self::Long => long,
        }
    }
}
