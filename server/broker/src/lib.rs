//! An MQTT 5 broker as a state machine: bytes in, bytes out, and the time as an argument.
//!
//! It implements sessions, QoS 0 to 2, flow control, retained messages, wills, shared
//! subscriptions, subscription options and identifiers, topic aliases in both directions,
//! keep-alive, message and session expiry, and takeover. It forwards the properties of a message
//! unchanged and in order, and appends the subscription identifiers and the topic alias of the
//! receiving connection.
//!
//! # Driving it
//!
//! Call [`handle_accept`](Broker::handle_accept) for each new connection. While
//! [`wants_input`](Broker::wants_input) is true, pass the bytes that were read to
//! [`handle_bytes`](Broker::handle_bytes). Write the bytes that
//! [`poll_output`](Broker::poll_output) returns. Call [`handle_closed`](Broker::handle_closed) when
//! the connection is closed. [`poll_wake`](Broker::poll_wake) returns the connections and
//! attachments that must be polled, and [`poll_timeout`](Broker::poll_timeout) returns the time of
//! the next [`handle_timeout`](Broker::handle_timeout).
//!
//! Calls may come in any order, and none of them blocks. `now` is the time since a moment that the
//! embedder chooses, and never decreases.
//!
//! # Fairness between clients
//!
//! Long operations are split into turns:
//!
//! * The search for the retained messages of a new subscription. Each call of `handle_timeout` does
//!   one part.
//! * Wills and session ends that are due together. Each call of `handle_timeout` does one part.
//! * Packets that were read together, and the filters of one packet. One turn ends after some
//!   thousand visited subscribers or some hundred added filter levels
//!   ([`has_yielded`](Broker::has_yielded)).
//!
//! A connection that is new, or that recently exceeded a turn, is throttled: all its packets wait
//! for its turn ([`Limits::slow_start`]). Reconnecting therefore does not help a client to avoid
//! its turns.
//!
//! Messages for the host are queued per sender. Senders with one outstanding message have priority.
//! After each round of these, one sender with more outstanding messages gets a turn. After each
//! round of those, one sender that has disconnected gets a turn.
//!
//! Four operations are not split, because each takes only a few milliseconds at the default limits
//! on a small server (without the time in the [`Acl`]):
//!
//! * Forwarding one message to all subscribers: 4 ms for 10,000 connected clients, 2 ms for 10,000
//!   disconnected clients.
//! * Ending a session with all its subscriptions: 3 ms for 12,000 filter levels, which is the most
//!   that fits into its memory limit.
//! * Evicting the sessions that use the most memory: 1 ms for 300 of 10,000.
//! * Operator actions on all clients, for 10,000 connections: [`recheck`](Broker::recheck) 1 ms,
//!   [`disconnect_all`](Broker::disconnect_all) and [`redirect`](Broker::redirect) 6 ms.
//!
//! # Example
//!
//! A client connects and receives its CONNACK:
//!
//! ```
//! use core::time::Duration;
//! use bytes::BytesMut;
//! use statestore_mqtt::Reason;
//! use statestore_broker::{Broker, Config, Output};
//! use statestore_mqtt::packet::{Connect, Packet};
//!
//! let mut broker = Broker::new(Config::default());
//! let now = Duration::ZERO;
//! let id = broker.handle_accept(now, None)?;
//!
//! // The bytes that a socket has read.
//! let mut received = BytesMut::new();
//! Packet::Connect(Connect {
//!     client_id: "lamp",
//!     clean_start: true,
//!     keep_alive: 60,
//!     properties: (),
//!     will: None,
//!     user_name: None,
//!     password: None,
//! })
//! .encode(&mut received)?;
//! broker.handle_bytes(now, id, &received);
//!
//! // The bytes to write to the socket.
//! let mut out = BytesMut::new();
//! assert_eq!(broker.poll_output(now, id, &mut out), Output::Idle);
//! let Packet::ConnAck(connack) = Packet::decode(&out)? else { panic!("expected a CONNACK") };
//! assert_eq!(connack.reason, Reason::SUCCESS);
//! assert!(broker.is_connected("lamp"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The host, and other clients in the same process
//!
//! A service in the same process can be the host of the broker:
//! [`attach_host`](Broker::attach_host). The host knows the verified sender of each message. It is
//! notified when a client has disconnected, after all messages of this client. It can
//! [deliver](Broker::deliver) messages to a client that has not subscribed.
//!
//! Messages for the host wait in one queue per sender, and senders take turns, so a burst of one
//! client does not delay the others. A sender whose unread messages use a quarter of its memory
//! limit gets no turn until it reads. Other clients in the process can [attach](Broker::attach)
//! too.
//!
//! # Memory limits
//!
//! Everything that a client can make the broker store is counted in bytes ([`Limits`]). A session
//! that exceeds its own limit is ended. When the broker's limit is exceeded, the session that uses
//! the most memory is ended. In both cases the DISCONNECT contains *quota exceeded*. While a
//! session exists, a message at QoS 1 or 2 is dropped only if it has expired or exceeds the
//! client's Maximum Packet Size.
//!
//! # Behaviour that MQTT leaves open
//!
//! * A client with overlapping subscriptions, shared ones included, receives a message once, with
//!   the highest QoS and all subscription identifiers.
//! * PUBACK and PUBREC contain *no matching subscribers* if there are none.
//! * If a connection is ended because of its memory use, its session ends too.
//! * Enhanced authentication supports [one method](Config::authentication_method) with one packet
//!   from the client. Other methods are rejected with *bad authentication method*. While a
//!   reauthentication is undecided, nothing is read from the client.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod aliases;
mod attachments;
mod broker;
mod budget;
mod config;
mod connection;
mod connections;
mod event;
mod filter_batch;
mod ids;
mod inbox;
mod incidents;
mod memory;
mod message;
mod names;
mod network;
mod outgoing;
mod owner;
mod pending;
mod retained;
mod session;
mod sessions;
mod shares;
mod stats;
mod subscription_index;
mod table;
mod timers;
mod wakes;
mod wills;

pub use broker::{Broker, Busy, LocalEvent, Output};
pub use config::{Acl, Admission, AllowAll, Config, Limits, SenderDetails};
pub use event::{Event, Redirect, Refused, Wake};
pub use ids::{ConnectionId, LocalId};
pub use incidents::{Incident, IncidentKind};
pub use message::Message;
pub use network::network;
pub use stats::Stats;

/// Compiles the example in the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
