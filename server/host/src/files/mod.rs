//! Files of settings: their contents, their versions, and the errors of loading them.

mod error;
mod file;
#[cfg(feature = "server")]
pub(crate) mod permissions;

pub use error::{LoadError, LoadErrorKind};
#[cfg(feature = "server")]
pub(crate) use file::BYTE_ORDER_MARK;
pub use file::{FileContents, FileVersion, ReadError, ReloadFile};
