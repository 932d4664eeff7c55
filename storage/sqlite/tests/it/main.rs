//! The journal in a directory.

mod support;

mod crashes;
mod journal;
