//! What the bytes mean: commands, replies and notifications, the same for both ends.
//!
//! The types are generic over what holds the bytes: `&[u8]` and `&str` when borrowing, `Bytes` or `Vec<u8>` when
//! owning, arrays on bare metal. Decoding always borrows; `map` lifts the result into another container:
//!
//! ```
//! # #[cfg(feature = "alloc")] {
//! use bytes::Bytes;
//! use statestore_proto::message::Command;
//!
//! let payload = Bytes::from_static(b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
//! let owned: Command<Bytes> = Command::decode(&payload)?.map(|slice| payload.slice_ref(slice)); // no copy
//! # let _ = owned;
//! # }
//! # Ok::<(), statestore_proto::message::PeerError>(())
//! ```

mod command;
mod error;
mod incarnation;
mod notification;
pub mod property;
mod reply;

pub use command::{Command, CommandKind, Condition, Expiry, Operand, WordCase};
pub use error::{PeerError, PeerErrorKind, Refusal, ServiceError, UnknownText};
pub use incarnation::Incarnation;
pub use notification::Notification;
pub use reply::Reply;

pub use crate::debug::Key as KeyPreview;
use crate::resp::{Length, Sink};

/// Which of two wire forms a message is written in. Every decoder reads both.
///
/// The public protocol page and the deployed clients disagree on how *not applied* is written (`-1` or `:-1`) and on
/// the verb of a delete notification (`DEL` or `DELETE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// What the deployed clients read and write.
    #[default]
    Deployed,
    /// What the public protocol page shows.
    Page,
}

impl Dialect {
    /// The dialect of a requester: deployed clients send `__protVer` with each request.
    #[must_use]
    pub const fn of_request(has_protocol_version: bool) -> Self {
        if has_protocol_version { Self::Deployed } else { Self::Page }
    }
}

/// A message that knows its exact length before it is written.
trait Encode {
    fn put(&self, sink: &mut impl Sink);

    #[inline]
    fn len(&self) -> usize {
        Length::of(|length| self.put(length))
    }

    #[inline]
    fn put_into(&self, out: &mut [u8]) -> Result<usize, crate::resp::BufferTooSmall> {
        let len = self.len();
        self.put(&mut crate::resp::Slice::new(out, len)?);
        Ok(len)
    }

    /// One allocation of the exact length.
    #[cfg(feature = "alloc")]
    #[inline]
    fn to_vec(&self) -> alloc::vec::Vec<u8> {
        let mut out = alloc::vec::Vec::with_capacity(self.len());
        self.put(&mut out);
        out
    }
}
