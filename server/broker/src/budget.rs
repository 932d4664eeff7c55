//! Work limit of a turn.

/// Maximum work units of one turn. A unit is one visited tree node, subscription or member of a
/// shared subscription.
const WORK_MAX: usize = 4_096;

/// Bytes of a message per work unit.
const BYTES_PER_UNIT: usize = 64;

/// Work units of a filter without its levels.
const FILTER_WORK: usize = 32;

/// Work units of a filter level: adding or removing it allocates or frees a node.
const LEVEL_WORK: usize = 8;

/// Work of the current turn.
///
/// Input of a connection and `handle_timeout` start a turn. Calls in between, such as the end of a
/// connection, continue it. Many connections that end together therefore share one turn, and the
/// wills beyond it wait for `handle_timeout`.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    spent: usize,
}

impl Budget {
    /// Starts a turn.
    pub(crate) const fn restart(&mut self) {
        self.spent = 0;
    }

    pub(crate) const fn spend(&mut self, units: usize) {
        self.spent += units;
    }

    /// Spends the work of copying a message.
    pub(crate) const fn spend_bytes(&mut self, bytes: usize) {
        self.spend(bytes / BYTES_PER_UNIT);
    }

    /// Spends the work of adding or removing a filter.
    pub(crate) fn spend_filter(&mut self, filter: &str) {
        self.spend(FILTER_WORK + LEVEL_WORK * filter.split('/').count());
    }

    /// Returns whether the turn must end.
    pub(crate) const fn is_exceeded(&self) -> bool {
        self.spent > WORK_MAX
    }
}
