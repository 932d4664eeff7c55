//! Errors in a document.

use alloc::string::String;

/// An error in a document, with its place and its fix, without any value: another file may have been
/// given by mistake. No part of such a document is applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, {path}: {problem}")]
pub struct PolicyError {
    /// Line, from 1.
    pub line: usize,
    /// Path from the top to the error, for example `rules[2].principals`.
    pub path: String,
    /// Description of the error and its fix.
    pub problem: String,
}
