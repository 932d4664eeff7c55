//! Errors of a capture.

use crate::codec::FORMAT;

/// Reason why a frame of a capture cannot be replayed. The frames before it are usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The bytes are corrupt, or not a capture.
    #[error("not a frame of a capture, or a corrupt one")]
    Damaged,
    /// The capture does not begin with a configuration.
    #[error("not a capture of a store: it does not begin with a configuration")]
    NoCapture,
    /// A later version of this crate wrote the capture.
    #[error("capture of format {0}, which is later than {FORMAT}")]
    Later(u8),
    /// A frame is intact, but its fields are malformed.
    #[error("malformed fields in an intact frame")]
    Unreadable,
    /// The limits of the captured store exceed those of a replay.
    #[error("the limits of the captured store exceed those of a replay")]
    TooLarge,
}
