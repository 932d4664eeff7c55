//! The boundary between a machine and its MQTT 5 transport.
//!
//! A transport turns each PUBLISH that it receives into an [`Incoming`] and adds every user
//! property by name and value; it need not know which ones matter. A machine's output is a
//! [`Transmit`].
//!
//! # From one end to the other
//!
//! A broker forwards a [`Publish`] of a client to the store, where it arrives as an [`Incoming`],
//! and vice versa. This example connects the two without a broker by [`Publish::with_incoming`],
//! which also suits tests.
//!
//! ```
//! use statestore_proto::client::{Client, ClientConfig, Event, Request};
//! use statestore_proto::machine::{Input, Machine as _};
//! use statestore_proto::transport::{ReasonCode, Transmit};
//! use statestore_proto::store::{Store, StoreConfig};
//! use statestore_proto::time::Now;
//!
//! let now = Now::default();
//! let mut client = Client::new(ClientConfig::new("thermostat-7", *b"8 random"))?;
//! let mut store = Store::new(StoreConfig::new(0));
//! client.handle(now, Input::Connected { session_present: false });
//! let id = client.submit(now, Request::set("boiler", "21"))?;
//! while let Some(transmit) = client.poll_transmit() {
//!     match transmit {
//!         Transmit::Subscribe { token, .. } => {
//!             client.handle(now, Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
//!         }
//!         Transmit::Publish(request) => {
//!             request.with_incoming(|incoming| {
//!                 store.handle_publish(now, incoming);
//!             });
//!         }
//!         _ => {}
//!     }
//!     while let Some(transmit) = store.poll_transmit() {
//!         if let Transmit::Publish(reply) = transmit {
//!             reply.with_incoming(|incoming| client.handle(now, Input::Message(incoming)));
//!         }
//!     }
//! }
//! assert_eq!(store.get(now, b"boiler").unwrap().value, b"21");
//! assert_eq!(client.poll_event(), Some(Event::Ready));
//! assert!(matches!(client.poll_event(), Some(Event::Completed { id: done, .. }) if done == id));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

mod correlation;
mod incoming;
mod publish;
mod reason_code;

use alloc::sync::Arc;

pub use correlation::Correlation;
pub use incoming::{Access, Incoming, Properties, Rights};
pub use publish::Publish;
pub(crate) use publish::{Answers, Purpose};
pub use reason_code::ReasonCode;

use crate::topic::TopicError;

/// Quality of service of a PUBLISH. The machines of this crate send at
/// [`AtLeastOnce`](Self::AtLeastOnce).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Qos {
    /// 0
    AtMostOnce,
    /// 1
    #[default]
    AtLeastOnce,
    /// 2
    ExactlyOnce,
}

/// The transport's id of a received message, to acknowledge it later: for example its packet id and
/// the number of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delivery(pub u64);

/// Declares an id that a machine issues.
macro_rules! token {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) u64);

        impl $name {
            /// The value with this number, for a transport or an engine that carries the number
            /// instead, and for replays.
            #[must_use]
            pub const fn from_raw(number: u64) -> Self {
                Self(number)
            }

            /// The number.
            #[must_use]
            pub const fn into_raw(self) -> u64 {
                self.0
            }
        }
    };
}

pub(crate) use token;

token! {
    /// Identifies a SUBSCRIBE of a machine, to report its SUBACK.
    SubscribeToken
}

token! {
    /// Identifies a PUBLISH of a machine, to report its PUBACK.
    PublishToken
}

/// An output of a machine, for its transport to carry out in order.
#[expect(clippy::large_enum_variant, reason = "nearly all packets are of the large variant")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transmit {
    /// Subscribe to one filter at QoS 1 and report the SUBACK with this token.
    Subscribe {
        /// The topic filter.
        filter: Arc<str>,
        /// Token to report the SUBACK with.
        token: SubscribeToken,
    },
    /// Publish at QoS 1, not retained.
    Publish(Publish),
    /// Acknowledge a received message. Its responses were polled before.
    Acknowledge(Delivery),
    /// Disconnect a client. A transport that cannot do so counts it and continues.
    Disconnect {
        /// MQTT client id of the client to disconnect.
        client_id: Arc<str>,
        /// Response topic of its request, for a log.
        response_topic: Arc<str>,
        /// The rule that the response topic violates.
        offence: TopicError,
    },
}
