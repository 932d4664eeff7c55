//! Record everything that a store is told and gives out, and run it again: what a report of a fault needs.
//!
//! Equal calls have equal outputs, so the calls are enough. A [`RecordedStore`] is a [`Store`] that notes each call as it
//! is made, with its time, and what came of it; a [`Replay`] makes the same calls of a new store and says where it gives out
//! something else. What the embedder's own functions have answered (the [authorizer](super::StoreConfig::authorizer), the
//! [selector of durable keys](super::StoreConfig::durable_keys)) is noted with the call, since a replay does not have them.
//!
//! ```
//! use bytes::Bytes;
//! use statestore_proto::mqtt::{Incoming, Transmit};
//! use statestore_proto::store::recording::{Next, RecordedStore, Replay, next_frame};
//! use statestore_proto::store::{Principal, StoreConfig};
//! use statestore_proto::time::Now;
//! use statestore_proto::topic;
//!
//! let mut store = RecordedStore::recording(StoreConfig::new(7), None);
//! let payload = Bytes::from_static(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
//! let mut request = Incoming::new(topic::REQUEST, &payload);
//! request.response_topic = Some("clients/c/response");
//! request.correlation_data = Some(b"0123456789abcdef");
//! store.handle_publish(Now::default(), Principal::of(&request), &request);
//! assert!(matches!(store.poll_transmit(), Some(Transmit::Publish(_))));
//!
//! let recording = store.take_recording();
//! let (mut replay, mut rest) = (Replay::new(), &recording[..]);
//! while let Next::Frame(frame, behind) = next_frame(rest)? {
//!     assert!(replay.play(frame)?.is_none(), "the same calls have the same outputs");
//!     rest = behind;
//! }
//! assert_eq!(replay.played().messages, 1);
//! # Ok::<(), statestore_proto::store::recording::RecordingError>(())
//! ```
//!
//! # What is in it
//!
//! Keys, values, client ids, topics and the configuration, with the secret of its [tokens](super::StoreConfig::scan_secret). A
//! recording with a redaction key has other values in place of the stored ones: of the same length, equal where these are
//! equal and different where they are different, which nobody can undo without the key. A request that cannot be read
//! is replaced by a short one that is refused for the same reason. An answer that an earlier store left in a journal is
//! not found again in a redacted replay, which the answer to a request that is delivered once more shows.
//!
//! The hash seed is not in it; no output depends on it.
//!
//! # The form
//!
//! ```text
//! (length (4)   checksum (4)   kind (1)   fields …) …
//! ```
//!
//! It begins with the configuration, and where another store begins, so does its part of the recording. Recordings may be
//! joined. One that was cut short is good up to its last whole frame. Replays are bounded as the recorded store was;
//! a recording with limits of more than 2^20 packets or 2^30 bytes that wait to be sent is refused.

mod frame;
mod oracle;
mod redaction;
mod replay;
mod sent;
mod settings;
mod told;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

pub use frame::{Frame, Next, next_frame};
pub use replay::{Difference, Played, Replay};

use super::codec::{bytes, encode_records};
use super::{Batch, BatchId, Handled, Principal, Record, Store, StoreConfig};
use crate::machine::{Input, Machine};
use crate::mqtt::{Incoming, Transmit};
use crate::time::{Instant, Now};
use oracle::Answers;
use redaction::Redaction;

/// What each recording begins with, and its form. One that is later is refused.
const MAGIC: &[u8] = b"state store recording";
const FORMAT: u8 = 1;

/// Why a recording cannot be played, or not on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// It was changed since, or is something else. What comes before is good.
    #[error("no frame of a recording, or a damaged one")]
    Damaged,
    /// It does not begin with a configuration.
    #[error("no recording of a store")]
    NoRecording,
    /// It was written by a later version of this crate.
    #[error("a recording of form {0}, which is later than {FORMAT}")]
    Later(u8),
    /// A frame is whole and does not say what its kind has to.
    #[error("a frame that cannot be read")]
    Unreadable,
    /// Its store may have held more than a replay has room for.
    #[error("limits that are larger than a replay has room for")]
    TooLarge,
}

/// A [`Store`] that is recorded, or is not. Whatever changes a store is called on this; the rest is read through it.
///
/// Recording takes a copy of each message, and a text of each packet that is sent: what is not
/// [taken](Self::take_recording) adds up, so take it after every few calls.
pub struct RecordedStore {
    store: Store,
    recorder: Option<Box<Recorder>>,
}

struct Recorder {
    out: Vec<u8>,
    answers: Arc<Answers>,
    redaction: Option<Redaction>,
    /// Whether it could not go on.
    has_ended: bool,
}

impl RecordedStore {
    /// A store that is not recorded.
    #[must_use]
    pub fn new(config: StoreConfig) -> Self {
        Self { store: Store::new(config), recorder: None }
    }

    /// A store that is recorded from its beginning. With a `redaction` key values are replaced; draw it at random, use
    /// it once and forget it.
    #[must_use]
    pub fn recording(mut config: StoreConfig, redaction: Option<[u8; 16]>) -> Self {
        let answers = Answers::new();
        let mut out = Vec::new();
        frame::push(&mut out, |out| {
            out.push(told::BEGUN);
            out.extend_from_slice(MAGIC);
            out.push(FORMAT);
            settings::write(out, &config, redaction.is_some());
        });
        config.authorizer =
            config.authorizer.take().map(|allows| oracle::noted_authorizer(&answers, allows));
        config.durable_keys =
            config.durable_keys.take().map(|selects| oracle::noted_selector(&answers, selects));
        let redaction = redaction.map(Redaction::new);
        let recorder = Recorder { out, answers, redaction, has_ended: false };
        Self { store: Store::new(config), recorder: Some(Box::new(recorder)) }
    }

    /// What was recorded since the last call: whole frames, to be written one after the other.
    #[must_use]
    pub fn take_recording(&mut self) -> Vec<u8> {
        self.recorder.as_mut().map_or_else(Vec::new, |recorder| core::mem::take(&mut recorder.out))
    }

    /// Ends the recording, with a last frame that says why; that is still to be [taken](Self::take_recording).
    pub fn end_recording(&mut self, why: &str) {
        self.note(|recorder, _| recorder.end(why));
    }

    /// Whether what happens now is recorded.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.recorder.as_ref().is_some_and(|recorder| !recorder.has_ended)
    }

    /// See [`Store::restore`].
    pub fn restore(&mut self, now: Now, record: &Record) {
        self.store.restore(now, record);
        self.note(|recorder, _| {
            let replaced = recorder.redaction.as_ref().map(|redaction| redaction.record(record));
            let records = encode_records([replaced.as_ref().unwrap_or(record)]);
            recorder.push(|out| {
                out.push(told::RESTORED);
                told::now(out, now);
                bytes(out, &records);
            });
        });
    }

    /// See [`Store::handle_publish`].
    pub fn handle_publish(
        &mut self,
        now: Now,
        from: Principal<'_>,
        incoming: &Incoming<'_>,
    ) -> Handled {
        let handled = self.store.handle_publish(now, from, incoming);
        self.note(|recorder, store| {
            let Some(answers) = recorder.answers.drain() else {
                return recorder.end("more keys were asked about at once than a recording takes");
            };
            let case = store.config.word_case;
            let redaction = recorder.redaction.as_ref();
            let replaced = redaction.map(|redaction| redaction.request(incoming.payload, case));
            let payload = replaced.as_deref().unwrap_or(incoming.payload);
            let is_whole = frame::push(&mut recorder.out, |out| {
                told::message(out, now, from, incoming, payload, &answers);
            });
            if !is_whole {
                recorder.end(TOO_LONG);
            }
        });
        handled
    }

    /// See [`Store::handle_persisted`].
    pub fn handle_persisted(&mut self, id: BatchId) {
        self.store.handle_persisted(id);
        self.note(|recorder, _| recorder.push(|out| told::persisted(out, id)));
    }

    /// See [`Store::poll_transmit`].
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let transmit = self.store.poll_transmit()?;
        self.note(|recorder, _| {
            let redaction = recorder.redaction.as_ref();
            let text = sent::packet(&transmit, redaction, redaction.is_some());
            recorder.push(|out| {
                out.push(told::SENT);
                out.extend_from_slice(text.as_bytes());
            });
        });
        Some(transmit)
    }

    /// See [`Store::poll_records`].
    #[must_use]
    pub fn poll_records(&mut self) -> Option<Batch> {
        self.poll_records_within(usize::MAX)
    }

    /// See [`Store::poll_records_within`].
    #[must_use]
    pub fn poll_records_within(&mut self, count: usize) -> Option<Batch> {
        let batch = self.store.poll_records_within(count)?;
        self.note(|recorder, _| {
            let redaction = recorder.redaction.as_ref();
            let text = sent::batch(&batch, redaction, redaction.is_some());
            recorder.push(|out| {
                out.push(told::RECORDS);
                super::codec::number(out, count as u64);
                out.extend_from_slice(text.as_bytes());
            });
        });
        Some(batch)
    }

    fn note(&mut self, note: impl FnOnce(&mut Recorder, &Store)) {
        if let Some(recorder) = self.recorder.as_mut().filter(|recorder| !recorder.has_ended) {
            note(recorder, &self.store);
        }
    }
}

const TOO_LONG: &str = "a message was longer than a recording takes";

impl Recorder {
    fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if !frame::push(&mut self.out, write) {
            self.end(TOO_LONG);
        }
    }

    fn end(&mut self, why: &str) {
        push_end(&mut self.out, why);
        self.has_ended = true;
    }
}

/// The last frame of a recording, for whoever writes it and cannot go on.
#[must_use]
pub fn end_frame(why: &str) -> Vec<u8> {
    let mut out = Vec::new();
    push_end(&mut out, why);
    out
}

fn push_end(out: &mut Vec<u8>, why: &str) {
    frame::push(out, |out| {
        out.push(told::ENDED);
        out.extend_from_slice(why.as_bytes());
    });
}

impl Deref for RecordedStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Machine for RecordedStore {
    fn handle(&mut self, now: Now, input: Input<'_>) {
        if let Input::Message(incoming) = input {
            self.handle_publish(now, Principal::of(incoming), incoming);
            return;
        }
        self.store.handle(now, input);
        self.note(|recorder, _| recorder.push(|out| told::input(out, now, input)));
    }

    fn poll_transmit(&mut self) -> Option<Transmit> {
        Self::poll_transmit(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.store.poll_timeout()
    }

    fn is_ready(&self) -> bool {
        self.store.is_ready()
    }

    fn wants_messages(&self) -> bool {
        self.store.has_room()
    }
}

impl fmt::Debug for RecordedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedStore")
            .field("store", &self.store)
            .field("is_recorded", &self.is_recorded())
            .finish()
    }
}
