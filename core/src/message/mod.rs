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
//!
//! # What a request must carry
//!
//! A payload is half of a request; the other half are properties of the PUBLISH that brings it, at QoS 1 to
//! [`topic::REQUEST`](crate::topic::REQUEST), not retained.
//!
//! | Property | GET | SET | DEL, VDEL | KEYNOTIFY |
//! |---|---|---|---|---|
//! | Response Topic | must | must | must | must |
//! | Correlation Data: any bytes, 16 for deployed stores and clients | must | must | must | must |
//! | Message Expiry Interval: the time limit in seconds, rounded up | should | should | should | should |
//! | Content Type: [`property::CONTENT_TYPE`] | should | should | should | should |
//! | `__ts`: the clock of the sender, at most a minute ahead of the store's | may | must | may | may |
//! | `__ft`: a fencing token | | for a fenced key | for a fenced key | |
//! | `__srcId`: the MQTT client id of the sender | should | should | should | should[^id] |
//! | `__protVer`: `1.0` asks for the deployed [`Dialect`] | should | should | should | should |
//! | `aio-persistence`: `true` keeps the key on disk | | may | | |
//! | `statestore-incarnation`: empty, asks [which store](Incarnation) answers | may | may | may | may |
//!
//! Where nothing stands, a store does not look. The names with underscores and the two below them are user properties:
//! [`property::RequestProperties`] writes them, for the client machine too. For the topics see [`topic`](crate::topic).
//!
//! [^id]: A store that is not part of the broker knows from it, or from a
//!     [response topic](crate::topic::ResponseTopic) of the recommended form, whom to notify: one of the two must be there.

mod command;
mod error;
mod incarnation;
mod notification;
pub mod property;
mod reply;
mod scan;

pub use command::{Command, CommandKind, Condition, Expiry, Operand, WordCase};
pub use error::{PeerError, PeerErrorKind, Refusal, ServiceError, UnknownText};
pub use incarnation::Incarnation;
pub use notification::Notification;
pub use reply::Reply;
#[cfg(feature = "alloc")]
pub(crate) use scan::listed_len;
pub use scan::{Page, PageParts, Scan, ScanReply};

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
