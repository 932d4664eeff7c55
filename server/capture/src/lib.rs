//! Captures the inputs and outputs of a store, and replays them: for reports of faults.
//!
//! Equal inputs have equal outputs, so the inputs are enough to reproduce a fault. A
//! [`CapturedStore`] is a [`Store`](statestore_proto::store::Store) that writes each input with its
//! time, and each output. A [`Replay`] repeats the inputs on a new store and reports each output
//! that differs. The results of the embedder's callbacks (the
//! [authorizer](statestore_proto::store::StoreConfig::authorizer), the predicate of
//! [durable keys](statestore_proto::store::StoreConfig::durable_keys), the
//! [policy of expiries](statestore_proto::store::StoreConfig::expiry_policy)) are captured too, since
//! a replay does not have the callbacks.
//!
//! ```
//! use bytes::Bytes;
//! use statestore_capture::{CapturedStore, Next, Replay, next_frame};
//! use statestore_proto::store::StoreConfig;
//! use statestore_proto::time::Now;
//! use statestore_proto::topic;
//! use statestore_proto::transport::{Incoming, Transmit};
//!
//! let mut store = CapturedStore::capturing(StoreConfig::new(7), None);
//! let payload = Bytes::from_static(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
//! let mut request = Incoming::new(topic::REQUEST, &payload);
//! request.response_topic = Some("clients/c/response");
//! request.correlation_data = Some(b"0123456789abcdef");
//! store.handle_publish(Now::default(), &request);
//! assert!(matches!(store.poll_transmit(), Some(Transmit::Publish(_))));
//!
//! let capture = store.take_capture();
//! let (mut replay, mut rest) = (Replay::new(), &capture[..]);
//! while let Next::Frame(frame, behind) = next_frame(rest)? {
//!     assert!(replay.play(frame)?.is_none(), "equal inputs have equal outputs");
//!     rest = behind;
//! }
//! assert_eq!(replay.played().messages, 1);
//! # Ok::<(), statestore_capture::CaptureError>(())
//! ```
//!
//! # Content
//!
//! A capture contains keys, values, client ids, topics and the configuration with the
//! [secret of SCAN tokens](statestore_proto::store::StoreConfig::scan_secret). It does not contain
//! the hash seed, since no output depends on it.
//!
//! With a redaction key, each value is replaced by another of the same length. Equal values stay
//! equal, different values stay different, and only the key reverses the replacement. A request
//! that cannot be decoded is replaced by a short one that is refused for the same reason.
//!
//! A redacted replay does not find the recorded response of an earlier store, so it executes a
//! redelivered request of that store again and may report a difference.
//!
//! # Format
//!
//! ```text
//! (length (4)   checksum (4)   kind (1)   fields …) …
//! ```
//!
//! The first frame contains the configuration, and begins the part of one store. Captures may be
//! concatenated. A truncated capture is usable up to its last whole frame.
//!
//! The limits of the captured store bound the memory of a replay. A capture is refused if more than
//! 2^20 packets or 2^30 bytes may wait in its store.

#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

extern crate alloc;

mod callbacks;
mod capture;
mod captured_store;
mod codec;
mod error;
mod frame;
mod inputs;
mod outputs;
mod redaction;
mod replay;
mod settings;

pub use capture::end_frame;
pub use captured_store::CapturedStore;
pub use error::CaptureError;
pub use frame::{Frame, Next, next_frame};
pub use replay::{Difference, Played, Replay};
