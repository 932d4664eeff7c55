//! The golden vectors: their reader is that of the conformance suite.

use std::path::{Path, PathBuf};

pub use statestore_verify::vectors::*;

/// Folder of the vector files.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors")
}
