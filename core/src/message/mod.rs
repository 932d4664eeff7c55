//! Messages of the protocol: requests, responses and notifications, for client and store alike.
//!
//! The types are generic over the container of their bytes: `&[u8]` or `&str` to borrow, `Bytes` or
//! `Vec<u8>` to own, arrays on bare metal. Decoding borrows; `map` converts to another container:
//!
//! ```
//! # #[cfg(feature = "machines")] {
//! use bytes::Bytes;
//! use statestore_proto::message::Command;
//!
//! let payload = Bytes::from_static(b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
//! let borrowed = Command::decode(&payload)?;
//! let owned: Command<Bytes> = borrowed.map(|slice| payload.slice_ref(slice)); // no copy
//! # let _ = owned;
//! # }
//! # Ok::<(), statestore_proto::message::PeerError>(())
//! ```
//!
//! # Properties of a request
//!
//! A request consists of its payload and of properties of the PUBLISH, which is sent at QoS 1, not
//! retained, to [`topic::REQUEST`](crate::topic::REQUEST).
//!
//! | Property | GET, SCAN | SET | DEL, VDEL | KEYNOTIFY |
//! |---|---|---|---|---|
//! | Response Topic | must | must | must | must |
//! | Correlation Data | must | must | must | must |
//! | Message Expiry Interval | should | should | should | should |
//! | Content Type | should | should | should | should |
//! | `__ts` | may | must | may | may |
//! | `__ft` | | for a fenced key | for a fenced key | |
//! | `__srcId` | should | should | should | should |
//! | `__protVer` | should | should | should | should |
//! | `aio-persistence` | | may | | |
//! | `statestore-incarnation` | may | may | may | may |
//!
//! A store ignores a property where the table is empty.
//!
//! * Correlation Data: any bytes; deployed stores and clients use 16.
//! * Message Expiry Interval: the timeout in seconds, rounded up.
//! * Content Type: [`property::CONTENT_TYPE`].
//! * `__ts`: the sender's clock, at most a minute ahead of the store's clock.
//! * `__ft`: a fencing token.
//! * `__srcId`: the MQTT client id of the sender. A store that is not part of the broker needs it
//!   to send notifications, unless the [response topic](crate::topic::ResponseTopic) has the
//!   recommended form.
//! * `__protVer`: `1.0` selects the deployed [`Dialect`].
//! * `aio-persistence`: `true` persists the key.
//! * `statestore-incarnation`: empty, requests the [`Incarnation`] of the store.
//!
//! The properties from `__ts` on are user properties. [`property::RequestProperties`] writes them,
//! and the client machine uses it too.

mod command;
mod decode;
mod error;
mod incarnation;
mod kind;
mod notification;
mod page;
pub mod property;
mod reply;
mod request;
mod response;
mod scan;

pub use command::{Command, Condition, Expiry, Operand};
pub use decode::WordCase;
pub use error::{PeerError, PeerErrorKind, Refusal, ServiceError, UnknownText};
pub use incarnation::Incarnation;
pub use kind::RequestKind;
pub use notification::Notification;
#[cfg(feature = "machines")]
pub(crate) use page::listed_len;
pub use page::{Page, PageEncoder};
pub use reply::Reply;
pub use request::RequestPayload;
pub use response::Response;
pub use scan::Scan;

use crate::buffer::{BufferTooSmall, Length, Sink, Slice};
pub use crate::debug::Key as KeyPreview;

/// The wire form that an encoder writes. Decoders accept both.
///
/// The public specification and the deployed clients differ in the reply *not applied* (`-1` or
/// `:-1`) and in the verb of a delete notification (`DEL` or `DELETE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The form of the deployed clients.
    #[default]
    Deployed,
    /// The form of the public specification.
    Spec,
}

impl Dialect {
    /// Dialect of a requester: deployed clients send `__protVer` with each request.
    #[must_use]
    pub const fn of_request(has_protocol_version: bool) -> Self {
        if has_protocol_version { Self::Deployed } else { Self::Spec }
    }
}

/// Declares the methods of a message that encode it, in the dialect if it has one.
macro_rules! encoders {
    ([$($generics:tt)*] $message:ty $(, $dialect:ident)?) => {
        impl<$($generics)*> $message {
            /// Exact length of the payload in bytes.
            #[must_use]
            #[inline]
            pub fn encoded_len(&self $(, $dialect: Dialect)?) -> usize {
                encoders!(@ self $($dialect)?).len()
            }

            /// Writes the payload to the start of `out` and returns its length.
            ///
            /// # Errors
            /// [`BufferTooSmall`](crate::BufferTooSmall) if `out` is shorter than
            /// [`encoded_len`](Self::encoded_len); `out` is then unchanged.
            #[inline]
            pub fn encode_into(
                &self,
                $($dialect: Dialect,)?
                out: &mut [u8],
            ) -> Result<usize, crate::BufferTooSmall> {
                encoders!(@ self $($dialect)?).put_into(out)
            }

            /// The payload, in one allocation of its exact length.
            #[cfg(feature = "alloc")]
            #[must_use]
            #[inline]
            pub fn encode(&self $(, $dialect: Dialect)?) -> alloc::vec::Vec<u8> {
                encoders!(@ self $($dialect)?).to_vec()
            }
        }
    };
    (@ $message:ident) => { $message };
    (@ $message:ident $dialect:ident) => { $message.wire($dialect) };
}

use encoders;

/// A message whose exact length is computed before it is written.
trait Encode {
    fn put(&self, sink: &mut impl Sink);

    #[inline]
    fn len(&self) -> usize {
        Length::of(|length| self.put(length))
    }

    #[inline]
    fn put_into(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        let len = self.len();
        self.put(&mut Slice::new(out, len)?);
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
