//! MQTT 5 without I/O: a codec that validates packets without copies and without an allocator, and
//! a client session as a state machine.
//!
//! | Module | Content |
//! |---|---|
//! | [`packet`] | the fifteen packets and their header |
//! | [`property`] | properties, and the packets and values that are allowed for them |
//! | [`topic`] | topic names, filters and shares |
//! | [`reason`](Reason) | reason codes |
//! | [`wire`] | integers, strings and lengths |
//! | [`frame`] | division of a byte stream into packets, with the feature `alloc` |
//! | [`session`] | a client session as a state machine, with the feature `alloc` |
//!
//! Decoding borrows from the received bytes. [`Header::read`](packet::Header::read) checks type,
//! flags and length in the first bytes of a packet, so an invalid packet is rejected before it is
//! buffered. [`Packet::decode`](packet::Packet::decode) then validates the whole packet: topic
//! names contain no wildcards, strings are UTF-8 without NUL, and a property that may occur once
//! occurs at most once. The work is linear in the length of the packet, and no input causes a
//! panic.
//!
//! Properties remain encoded and in order, so a server forwards them unaltered.
//!
//! The codec does not apply the rules of a session: when a packet may be sent, which topic aliases
//! and packet identifiers are in use, and how many messages may be unacknowledged. [`session`]
//! applies them for a client.
//!
//! The codec needs no feature. The feature `alloc`, on by default, adds encoding into a
//! `bytes::BytesMut`, [`frame`] and [`session`].
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

mod alias;
mod error;
#[cfg(feature = "alloc")]
pub mod frame;
mod hidden;
mod kind;
pub mod packet;
pub mod property;
mod qos;
mod reason;
#[cfg(feature = "alloc")]
pub mod session;
pub mod topic;
pub mod wire;

pub use alias::Alias;
pub use error::{Malformed, Unwritable};
pub use kind::Kind;
pub use qos::Qos;
pub use reason::Reason;

/// The example in the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
