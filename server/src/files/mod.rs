//! Files of settings: their contents, their versions, and the errors of loading them.

mod error;
mod file;
#[cfg(feature = "server")]
pub(crate) mod permissions;

pub use error::{LoadError, LoadErrorKind};
pub use file::{FileContents, FileVersion, ReadError, ReloadFile};
