//! MQTT 5 without I/O: the packets, read and written without copies, without an allocator, and without trust; and a broker
//! as a state machine.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`packet`] | the fifteen packets and how they begin |
//! | [`property`] | properties: which stand where, how often, and with what values |
//! | [`topic`] | topic names, filters and shares |
//! | [`reason`](Reason) | reason codes and in which packets they are |
//! | [`wire`] | integers, texts and lengths |
//! | [`broker`] | a whole broker as a state machine, with the feature `alloc` |
//!
//! Reading borrows from the received bytes. [`Header::read`](packet::Header::read) looks at the first bytes of a packet and
//! refuses it there if its type, its flags or its length are not in order, so that nothing of it needs to be kept;
//! [`Packet::decode`](packet::Packet::decode) then takes it whole, and checks everything that can be told from the packet
//! alone. What comes out of it can be trusted to be well-formed: topic names have no wildcards, texts are UTF-8 without
//! NUL, a property that may come once comes once. Work is linear in the length of the packet, and no input panics.
//!
//! Properties stay the bytes that they were, in order, so that a server forwards them unaltered.
//!
//! Not here, because it is for the session that a packet belongs to: who may send it and when, which topic aliases and
//! packet identifiers are in use, and how many messages may be on their way.
//!
//! No feature is needed for any of this. With `alloc`, which is on by default, packets are written to a
//! `bytes::BytesMut` too, and there is the broker.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

#[cfg(feature = "alloc")]
pub mod broker;
mod error;
mod kind;
pub mod packet;
pub mod property;
mod qos;
mod reason;
pub mod topic;
pub mod wire;

pub use error::{Malformed, Unwritable};
pub use kind::Kind;
pub use qos::Qos;
pub use reason::Reason;

/// The program in the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
