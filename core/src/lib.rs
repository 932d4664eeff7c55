//! The state store protocol as pure functions and values: no sockets, no clock, no randomness, no `std`.
//!
//! Azure IoT Operations keeps shared state in a key-value store that is reached over MQTT 5: requests and replies are
//! RESP3-like payloads, versions are hybrid logical clocks, stale writers are fenced off by tokens, and watchers are
//! told of changes. This crate holds both ends of that protocol and performs no I/O: bytes, timestamps and clock
//! readings come in as arguments, values and bytes go out.
//!
//! # The layers
//!
//! Each is a public API of its own; take as few as you need.
//!
//! | Layer | Modules | What it knows |
//! |---|---|---|
#![cfg_attr(
    feature = "alloc",
    doc = "| machines | [`client`], [`store`], [`lock`], [`machine`], [`mqtt`] | what to send when, at both ends |"
)]
//! | codec | [`resp`], [`message`] | what the bytes are, and what they mean |
//! | rules | [`hlc`], [`topic`], [`glob`], [`rules`] | how clocks order, where messages go, which keys a pattern means, which writes are allowed |
//!
//! # A request and its reply
//!
//! The same [`Command`](message::Command) is what a client sends and what a store receives:
//!
//! ```
//! use statestore_proto::message::{Command, Dialect, Reply};
//!
//! // A client writes the request ...
//! let mut payload = [0; 64];
//! let command = Command::Get { key: "SETKEY2" };
//! let len = command.encode_into(&mut payload)?;
//! assert_eq!(&payload[..len], b"*2\r\n$3\r\nGET\r\n$7\r\nSETKEY2\r\n");
//!
//! // ... a store reads it and answers ...
//! let request = Command::decode(&payload[..len])?;
//! assert_eq!(request, Command::Get { key: b"SETKEY2".as_slice() });
//! let mut answer = [0; 64];
//! let len = Reply::Value("VALUE5").encode_into(Dialect::Deployed, &mut answer)?;
//!
//! // ... and the client reads the reply in the light of what it asked.
//! assert_eq!(Reply::decode(&answer[..len], command.kind())?, Reply::Value(b"VALUE5".as_slice()));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! # Where to begin
//!
//! The folder `examples` of this package holds whole programs: `blocking_client` and `blocking_store` drive the machines
//! over a plain TCP socket, with a small MQTT 5 session in `examples/mqtt5`; `bare_metal` is a client without an allocator;
//! `compare_and_swap` is a store over somebody else's database, made of the [`rules`] alone.
//!
//! # The poll contract
//!
//! The machines take what happens through `handle_*` (and `submit`, `watch`), and are asked through `poll_*` what to
//! send, what to tell, and when to be woken. For every machine of this crate:
//!
//! 1. **Any order.** Polls and handles interleave freely; nothing has to be drained before the next call.
//! 2. **Idle is free.** A poll with nothing to say is O(1), whatever is outstanding.
//! 3. **Deadlines advance.** After `handle_timeout(now)` with `now` at or past `poll_timeout()`, the next deadline is
//!    none or later than `now`.
//! 4. **Early is harmless.** `handle_timeout` before the deadline, or twice, changes nothing.
//! 5. **Bounded.** Every queue and table has a limit in [`limits`], with its reason; only `submit`, `watch`, `acquire`
//!    and `try_acquire` answer that it is full. A store says so before (`Store::has_room`).
//! 6. **Exactly once.** Every accepted `submit` or `acquire` yields exactly one completion, whatever happens.
//! 7. **Local damage.** A malformed or hostile message affects at most the request it names. No input panics.
//! 8. **Replayable.** Same configuration and same calls, same outputs, byte for byte. Hash order never reaches an output.
//!
//! # Features
//!
//! * `alloc` (default): the machines, owned messages (`Vec<u8>`, `Bytes`) and node ids longer than
//!   [`NodeId::INLINE_MAX`](hlc::NodeId::INLINE_MAX) bytes. Without it nothing in this crate allocates and `alloc` is
//!   not linked. The feature only adds; it never changes what existing calls do with input they already accept.
//!
//! # Promises
//!
//! No input panics. Decoding borrows and allocates nothing; encoding computes the exact length first. Nothing here
//! reads a clock, the environment or a source of randomness, so equal calls give equal results. Values never appear in
//! `Debug` or `Display` output.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "alloc")]
extern crate alloc;

#[cfg(feature = "alloc")]
pub mod client;
#[cfg(feature = "alloc")]
mod deadlines;
mod debug;
pub mod glob;
pub mod hlc;
pub mod limits;
#[cfg(feature = "alloc")]
pub mod lock;
#[cfg(feature = "alloc")]
pub mod machine;
pub mod message;
#[cfg(feature = "alloc")]
pub mod mqtt;
pub mod resp;
pub mod rules;
#[cfg(feature = "alloc")]
pub mod statistics;
#[cfg(feature = "alloc")]
pub mod store;
pub mod time;
pub mod topic;

/// The program in the README of this package.
#[cfg(all(doctest, feature = "alloc"))]
#[doc = include_str!("../README.md")]
struct Readme;
