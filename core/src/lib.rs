//! The state store protocol of Azure IoT Operations, sans I/O: no sockets, clock, randomness or
//! `std`.
//!
//! Azure IoT Operations keeps shared state in a key-value store that clients reach over MQTT 5.
//! Requests and replies are RESP3-like payloads, versions are hybrid logical clocks, fencing tokens
//! exclude stale writers, and clients can watch keys for changes. This crate implements both ends
//! of that protocol, client and store. It performs no I/O: bytes and clock readings are arguments,
//! values and bytes are results.
//!
//! # The layers
//!
//! Each layer is a public API and can be used without the layers above it.
//!
#![cfg_attr(
    feature = "machines",
    doc = "* Machines ([`client`], [`store`], [`lock`], [`machine`], [`transport`]): what to send when."
)]
//! * Codec ([`resp`], [`message`]): the messages, and their encoding as bytes.
//! * Rules ([`hlc`], [`topic`], [`glob`], [`rules`]): the order of clock values, the topics, the
//!   patterns of keys, and which writes are allowed.
//!
//! The types that most programs need are re-exported at the root: [`Version`], [`FencingToken`],
//! [`Now`], [`BufferTooSmall`] and, with the feature `machines`, `Client`, `Store`, `Lock`, their
//! configurations, `Request`, `Event`, `Outcome`, `Transmit` and `Incoming`.
//!
//! # A request and its reply
//!
//! A client encodes and a store decodes the same type, [`RequestPayload`](message::RequestPayload): a
//! [`Command`](message::Command) about one key, or a [`Scan`](message::Scan) of many.
//!
//! ```
//! use statestore_proto::message::{Command, Dialect, Reply, RequestPayload};
//!
//! // A client encodes a request ...
//! let mut payload = [0; 64];
//! let command = Command::Get { key: "SETKEY2" };
//! let len = command.encode_into(&mut payload)?;
//! assert_eq!(&payload[..len], b"*2\r\n$3\r\nGET\r\n$7\r\nSETKEY2\r\n");
//!
//! // ... a store decodes it and encodes a reply ...
//! let request = RequestPayload::decode(&payload[..len])?;
//! assert_eq!(request, RequestPayload::Command(Command::Get { key: b"SETKEY2".as_slice() }));
//! let mut reply = [0; 64];
//! let len = Reply::Value("VALUE5").encode_into(Dialect::Deployed, &mut reply)?;
//!
//! // ... and the client decodes the reply to that kind of command.
//! let reply = Reply::decode(&reply[..len], command.kind())?;
//! assert_eq!(reply, Reply::Value(b"VALUE5".as_slice()));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! # Where to start
//!
//! The folder `examples` of this package contains whole programs:
//!
//! * `blocking_client` and `blocking_store` drive the machines over a plain TCP socket, with
//!   the MQTT session of `statestore-mqtt` in `examples/mqtt5`.
//! * `bare_metal` is a client without an allocator.
//! * `compare_and_swap` is a store on top of an existing database, using only the [`rules`].
//!
//! # The poll contract
//!
//! A machine receives inputs through `handle`, `submit` and `watch`. Its `poll_*` methods return
//! packets to send, events, and the next deadline; the lock returns requests for a client instead
//! of packets. The module `machine` lists what a driver owes a machine. For every machine of this
//! crate:
//!
//! 1. **Any order.** Polls and inputs can be interleaved freely. A caller need not drain one queue
//!    before the next call.
//! 2. **Idle is free.** A poll without output is O(1), however many requests are outstanding.
//! 3. **Deadlines advance.** After a `Timeout` with `now` at or past `poll_timeout()`, the next
//!    deadline is `None` or later than `now`.
//! 4. **Early is harmless.** A `Timeout` before the deadline, or repeated, changes nothing.
//! 5. **Bounded.** Every queue and table has a limit in [`limits`], with its reason. Only `submit`,
//!    `watch`, `acquire` and `try_acquire` report that a queue is full. A store reports it before
//!    the next message:
#![cfg_attr(
    feature = "machines",
    doc = "   [`can_receive`](machine::Machine::can_receive) is then false."
)]
#![cfg_attr(not(feature = "machines"), doc = "   `Machine::can_receive` is then false.")]
//! 6. **Exactly once.** Every accepted `submit` or `acquire` yields exactly one completion, even if
//!    the connection is lost.
//! 7. **Local damage.** A malformed or hostile message affects at most the request that it names.
//!    No input panics.
//! 8. **Replayable.** The same configuration and calls give the same outputs, byte for byte. The
//!    order of a hash table never affects an output.
//!
//! # Features
//!
//! * `machines` (default): the machines, and messages in `Bytes`. It enables `alloc`, and four of the
//!   dependencies: `bytes`, `foldhash`, `hashbrown` and `siphasher`.
//! * `alloc`: owned messages (`Vec<u8>`), and node ids longer than
//!   [`NodeId::INLINE_MAX`](hlc::NodeId::INLINE_MAX) bytes. Without it, the crate neither allocates
//!   nor links `alloc`.
//!
//! The features only add items; they do not change the result of calls that succeed without them.
//!
//! # Guarantees
//!
//! * No input panics.
//! * Decoding borrows and allocates nothing. Encoding computes the exact length first.
//! * No function reads a clock, the environment or a source of randomness, so equal calls give
//!   equal results.
//! * `Debug` and `Display` never print values.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::expect_used,
        clippy::panic,
        clippy::todo,
        clippy::unimplemented,
        clippy::unreachable,
        clippy::unwrap_used,
    )
)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "alloc")]
extern crate alloc;

#[cfg(feature = "machines")]
pub mod backoff;
mod buffer;
#[cfg(feature = "machines")]
pub mod client;
#[cfg(feature = "machines")]
mod deadlines;
mod debug;
pub mod glob;
pub mod hlc;
mod inline;
#[cfg(feature = "machines")]
mod invariant;
pub mod limits;
#[cfg(feature = "machines")]
pub mod lock;
#[cfg(feature = "machines")]
pub mod machine;
pub mod message;
pub mod resp;
pub mod rules;
#[cfg(feature = "machines")]
mod slab;
#[cfg(feature = "machines")]
pub mod statistics;
#[cfg(feature = "machines")]
pub mod store;
pub mod time;
pub mod topic;
#[cfg(feature = "machines")]
pub mod transport;

// The types that most programs need; the modules hold the rest.
pub use buffer::BufferTooSmall;
#[cfg(feature = "machines")]
#[doc(inline)]
pub use client::{Client, ClientConfig, Event, Outcome, Request};
#[doc(inline)]
pub use hlc::{FencingToken, Version};
#[cfg(feature = "machines")]
#[doc(inline)]
pub use lock::{Lock, LockConfig};
#[cfg(feature = "machines")]
#[doc(inline)]
pub use store::{Store, StoreConfig};
#[doc(inline)]
pub use time::Now;
#[cfg(feature = "machines")]
#[doc(inline)]
pub use transport::{Incoming, Transmit};

/// The program in the README of this package.
#[cfg(all(doctest, feature = "alloc"))]
#[doc = include_str!("../README.md")]
struct Readme;
