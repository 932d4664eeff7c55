//! Notifications of changes. The topic contains the key, the user properties the version.

use core::fmt;

use super::{Dialect, Encode, PeerError, PeerErrorKind, encoders};
use crate::buffer::Sink;
use crate::debug::Value;
use crate::resp::decode_array;

/// A change of a watched key, over any container `B` of bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Notification<B> {
    /// `NOTIFY SET VALUE value`: the key was set to this value.
    Set(B),
    /// `NOTIFY DELETE` or `NOTIFY DEL`: the key was deleted or has expired.
    Deleted,
}

const NOTIFY: &[u8] = b"NOTIFY";
const SET: &[u8] = b"SET";
const VALUE: &[u8] = b"VALUE";
const DELETE: &[u8] = b"DELETE";
const DEL: &[u8] = b"DEL";

/// Number of elements of the longest notification.
const ELEMENTS_MAX: usize = 4;

impl<'a> Notification<&'a [u8]> {
    /// Decodes a whole payload in either dialect. Borrows; allocates nothing.
    ///
    /// # Errors
    /// [`PeerError`] if the payload is not a notification.
    ///
    /// ```
    /// use statestore_proto::message::Notification;
    ///
    /// let payload = b"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$3\r\nabc\r\n";
    /// assert_eq!(Notification::decode(payload)?, Notification::Set(b"abc".as_slice()));
    /// # Ok::<(), statestore_proto::message::PeerError>(())
    /// ```
    #[inline]
    pub fn decode(payload: &'a [u8]) -> Result<Self, PeerError> {
        let blobs = decode_array::<ELEMENTS_MAX>(payload)?;
        match *blobs.as_slice() {
            [NOTIFY, SET, VALUE, value] if blobs.total() == ELEMENTS_MAX => Ok(Self::Set(value)),
            [NOTIFY, DELETE | DEL] => Ok(Self::Deleted),
            _ => Err(PeerError { kind: PeerErrorKind::UnexpectedNotification, at: 0 }),
        }
    }
}

impl<B> Notification<B> {
    /// Converts the container of the value; `f` must preserve the bytes.
    pub fn map<C>(self, f: impl FnOnce(B) -> C) -> Notification<C> {
        match self {
            Self::Set(value) => Notification::Set(f(value)),
            Self::Deleted => Notification::Deleted,
        }
    }
}

encoders!([B: AsRef<[u8]>] Notification<B>, dialect);

impl<B: AsRef<[u8]>> Notification<B> {
    const fn wire(&self, dialect: Dialect) -> Wire<'_, B> {
        Wire { notification: self, dialect }
    }
}

/// A notification in one dialect.
struct Wire<'a, B> {
    notification: &'a Notification<B>,
    dialect: Dialect,
}

impl<B: AsRef<[u8]>> Encode for Wire<'_, B> {
    #[inline]
    fn put(&self, sink: &mut impl Sink) {
        match (self.notification, self.dialect) {
            (Notification::Set(value), _) => {
                sink.put(b"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n");
                sink.put_blob(value.as_ref());
            }
            (Notification::Deleted, Dialect::Deployed) => {
                sink.put(b"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n");
            }
            (Notification::Deleted, Dialect::Spec) => {
                sink.put(b"*2\r\n$6\r\nNOTIFY\r\n$3\r\nDEL\r\n");
            }
        }
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Notification<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(value) => write!(f, "Set({:?})", Value(value.as_ref())),
            Self::Deleted => f.write_str("Deleted"),
        }
    }
}
