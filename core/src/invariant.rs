//! Impossible cases: what no input can cause, only a bug in this crate.

/// Returns `found`, which is `Some` unless an invariant is broken.
///
/// With debug assertions, which tests and fuzz targets have, `None` panics. Without, the caller
/// leaves out what it cannot do, so that a bug harms one request at most.
#[inline]
#[track_caller]
pub(crate) fn invariant<T>(found: Option<T>) -> Option<T> {
    debug_assert!(found.is_some(), "an invariant is broken");
    found
}
