//! Whole packets from a byte stream.

use core::fmt;

use bytes::BytesMut;

use crate::error::Malformed;
use crate::packet::Header;

/// Splits the bytes of a stream into whole packets, for a program that forwards or inspects them.
/// A client uses a [`Session`](crate::session::Session) instead.
///
/// Packets are not copied: each one shares the memory that it was received in.
///
/// # Memory
///
/// If the caller takes all packets before it reads again, the buffer contains at most one
/// incomplete packet of the maximum size and the bytes of one read.
///
/// # Example
///
/// ```
/// use statestore_mqtt::Kind;
/// use statestore_mqtt::frame::Framed;
/// use statestore_mqtt::packet::Packet;
///
/// let mut framed = Framed::new(64 << 10);
/// framed.buffer_mut().extend_from_slice(&[0xc0, 0x00, 0xd0]);
/// let packet = framed.next_packet()?.expect("a whole packet");
/// assert_eq!(Packet::decode(&packet)?.kind(), Kind::PingReq);
/// assert_eq!(framed.next_packet()?, None);
///
/// framed.buffer_mut().extend_from_slice(&[0x00]);
/// let packet = framed.next_packet()?.expect("a whole packet");
/// assert_eq!(Packet::decode(&packet)?.kind(), Kind::PingResp);
/// # Ok::<(), statestore_mqtt::Malformed>(())
/// ```
pub struct Framed {
    buffer: BytesMut,
    maximum: usize,
}

impl Framed {
    /// An empty buffer for packets of at most `maximum` bytes, header included.
    #[must_use]
    pub fn new(maximum: usize) -> Self {
        Self { buffer: BytesMut::new(), maximum }
    }

    /// The buffer, to append received bytes to it.
    pub const fn buffer_mut(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Received bytes that are not part of a returned packet.
    #[must_use]
    pub fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    /// Returns the next packet, or `None` if more bytes are needed. Only its type and its length
    /// are checked: [`Packet::decode`](crate::packet::Packet::decode) checks the contents.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not the beginning of a packet, or if the packet exceeds the
    /// maximum size. The stream cannot be continued then: later calls return the same error.
    pub fn next_packet(&mut self) -> Result<Option<BytesMut>, Malformed> {
        match Header::read(&self.buffer, self.maximum)? {
            Some(Header { len, .. }) if len <= self.buffer.len() => {
                Ok(Some(self.buffer.split_to(len)))
            }
            _ => Ok(None),
        }
    }
}

/// The bytes are omitted.
impl fmt::Debug for Framed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Framed")
            .field("buffered", &self.buffer.len())
            .field("maximum", &self.maximum)
            .finish()
    }
}
