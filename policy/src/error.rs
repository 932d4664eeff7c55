//! What is wrong with a document.

use alloc::string::String;

/// What is wrong with a document, where, and what to do about it. Nothing of it can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, {path}: {problem}")]
pub struct PolicyError {
    /// Line, from 1.
    pub line: usize,
    /// The way from the top to what is wrong, for example `rules[2].principals`.
    pub path: String,
    /// What is wrong, and the remedy.
    pub problem: String,
}
