//! The will of a session.

use alloc::boxed::Box;
use core::fmt;

use bytes::{Bytes, BytesMut};

use crate::error::Unwritable;
use crate::hidden::Hidden;
use crate::property::{Encode as _, Property};
use crate::qos::Qos;

/// The message that the server publishes when the connection ends without a normal DISCONNECT.
#[derive(Clone)]
pub struct Will {
    pub(super) topic: Box<str>,
    pub(super) payload: Bytes,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) delay: u32,
    pub(super) properties: Result<Bytes, Unwritable>,
}

impl Will {
    /// A will at QoS 0 that is not retained and not delayed.
    pub fn new(topic: impl Into<Box<str>>, payload: impl Into<Bytes>) -> Self {
        Self {
            topic: topic.into(),
            payload: payload.into(),
            qos: Qos::AtMostOnce,
            retain: false,
            delay: 0,
            properties: Ok(Bytes::new()),
        }
    }

    /// QoS of the will [default: 0].
    #[must_use]
    pub const fn qos(mut self, qos: Qos) -> Self {
        self.qos = qos;
        self
    }

    /// Sets whether the server retains the will [default: false].
    #[must_use]
    pub const fn retain(mut self, retain: bool) -> Self {
        self.retain = retain;
        self
    }

    /// Seconds between the end of the connection and the will [default: 0].
    #[must_use]
    pub const fn delay(mut self, seconds: u32) -> Self {
        self.delay = seconds;
        self
    }

    /// Properties of the will except the delay [default: none]. [`check`](super::Options::check)
    /// reports properties that a will cannot have.
    #[must_use]
    pub fn properties(mut self, properties: &[Property<'_>]) -> Self {
        let mut bytes = BytesMut::new();
        self.properties = properties.put(&mut bytes).map(|()| bytes.freeze());
        self
    }
}

/// The payload is omitted.
impl fmt::Debug for Will {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Will")
            .field("topic", &self.topic)
            .field("payload", &Hidden(&self.payload))
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .field("delay", &self.delay)
            .finish_non_exhaustive()
    }
}
