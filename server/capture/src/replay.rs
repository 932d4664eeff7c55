//! Replays of captures.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use statestore_proto::machine::Machine as _;
use statestore_proto::message::{KeyPreview, RequestPayload};
use statestore_proto::store::{BatchId, Principal, Store, decode_records};

use crate::callbacks::{
    Results, replayed_authorizer, replayed_durable_keys, replayed_expiry_policy,
};
use crate::codec::{FORMAT, Reader};
use crate::frame::{Frame, MAGIC};
use crate::inputs::{self, Message};
use crate::{CaptureError, CapturedStore, outputs, settings};

/// Replays a capture on a new store, frame by frame.
#[derive(Default)]
pub struct Replay {
    part: Option<Part>,
    played: Played,
    /// The redaction key of the copy, if this replay makes one.
    redaction: Option<[u8; 16]>,
    /// The copy of earlier parts that was not taken yet.
    copied: Vec<u8>,
}

/// The part of one store.
struct Part {
    store: CapturedStore,
    results: Arc<Results>,
    is_redacted: bool,
    /// A description of the latest message.
    latest: String,
    ended: Option<String>,
}

/// Counts of the frames that were played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Frames of all kinds.
    pub frames: u64,
    /// Stores.
    pub stores: u64,
    /// Records from which stores were restored.
    pub restored: u64,
    /// Messages received.
    pub messages: u64,
    /// Packets sent.
    pub sent: u64,
    /// Batches of records.
    pub batches: u64,
}

/// An output that differs between capture and replay. Its texts contain keys and values; its
/// `Debug` form contains no output.
#[derive(Clone, PartialEq, Eq)]
pub struct Difference {
    /// The frame of the output; the first frame is 1.
    pub frame: u64,
    /// The latest message before it: its number, its client, and the verb and key or pattern if the
    /// request can be decoded.
    pub after: String,
    /// The output in the capture.
    pub captured: String,
    /// The output of the replay; `None` if the output is missing.
    pub replayed: Option<String>,
}

impl fmt::Debug for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Difference")
            .field("frame", &self.frame)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

impl Replay {
    /// Creates a replay.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a replay that makes a redacted copy of the capture, to be
    /// [taken](Self::take_capture). See [`CapturedStore::capturing`] for the key.
    #[must_use]
    pub fn redacting(key: [u8; 16]) -> Self {
        Self { redaction: Some(key), ..Self::default() }
    }

    /// Removes and returns the [redacted copy](Self::redacting) that was made since the last call.
    #[must_use]
    pub fn take_capture(&mut self) -> Vec<u8> {
        let mut copied = core::mem::take(&mut self.copied);
        if let Some(part) = &mut self.part {
            copied.append(&mut part.store.take_capture());
        }
        copied
    }

    /// Counts of the frames that were played.
    #[must_use]
    pub const fn played(&self) -> Played {
        self.played
    }

    /// The current store.
    #[must_use]
    pub fn store(&self) -> Option<&Store> {
        self.part.as_ref().map(|part| part.store.store())
    }

    /// The reason for the end of the capture; `None` if it was truncated.
    #[must_use]
    pub fn ended(&self) -> Option<&str> {
        self.part.as_ref()?.ended.as_deref()
    }

    /// Plays one frame: repeats an input, or compares an output with that of the store.
    ///
    /// # Errors
    /// [`CaptureError`] if the frame is invalid. What was played before stays valid; play no later
    /// frame.
    pub fn play(&mut self, frame: Frame<'_>) -> Result<Option<Difference>, CaptureError> {
        self.played.frames += 1;
        let mut reader = Reader(frame.0);
        let kind = reader.byte().ok_or(CaptureError::Unreadable)?;
        if kind == inputs::BEGIN {
            return self.begin(reader).map(|()| None);
        }
        let part = self.part.as_mut().ok_or(CaptureError::NoCapture)?;
        part.play(kind, reader, &mut self.played)
    }

    fn begin(&mut self, mut reader: Reader<'_>) -> Result<(), CaptureError> {
        let rest = reader.0.strip_prefix(MAGIC).ok_or(CaptureError::NoCapture)?;
        reader.0 = rest;
        match reader.byte() {
            Some(FORMAT) => {}
            Some(later) if later > FORMAT => return Err(CaptureError::Later(later)),
            _ => return Err(CaptureError::Unreadable),
        }
        let (mut config, flags) = settings::read(&mut reader)?;
        let results = Results::new();
        if flags.has_authorizer {
            config = config.authorizer(replayed_authorizer(&results));
        }
        if flags.has_durable_keys {
            config = config.durable_keys(replayed_durable_keys(&results));
        }
        if flags.has_expiry_policy {
            config = config.expiry_policy(replayed_expiry_policy(&results));
        }
        let store = match self.redaction {
            Some(key) => CapturedStore::capturing(config, Some(key)),
            None => CapturedStore::new(config),
        };
        self.copied = self.take_capture();
        let is_redacted = flags.is_redacted;
        self.part = Some(Part { store, results, is_redacted, latest: String::new(), ended: None });
        self.played.stores += 1;
        Ok(())
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("played", &self.played).finish_non_exhaustive()
    }
}

impl Part {
    fn play(
        &mut self,
        kind: u8,
        mut reader: Reader<'_>,
        played: &mut Played,
    ) -> Result<Option<Difference>, CaptureError> {
        let unreadable = CaptureError::Unreadable;
        match kind {
            inputs::RESTORE => {
                let now = inputs::read_time(&mut reader).ok_or(unreadable)?;
                let records = reader.bytes().ok_or(unreadable)?;
                for record in decode_records(records).map_err(|_| unreadable)? {
                    self.store.restore(now, &record);
                    played.restored += 1;
                }
                Ok(None)
            }
            inputs::MESSAGE => {
                let message = Message::read(&mut reader).ok_or(unreadable)?;
                played.messages += 1;
                self.message(&message, played)
            }
            inputs::PERSISTED => {
                let id = reader.number().ok_or(unreadable)?;
                self.store.handle_persisted(BatchId::from_raw(id));
                Ok(None)
            }
            inputs::STORAGE_FULL => {
                let is_full = inputs::read_storage_full(&mut reader).ok_or(unreadable)?;
                self.store.set_storage_full(is_full);
                Ok(None)
            }
            inputs::TRANSMIT => {
                played.sent += 1;
                let transmit = self.store.poll_transmit();
                let text = transmit.map(|transmit| {
                    let mut text = String::new();
                    let _ = outputs::write_transmit(&mut text, &transmit, None, self.is_redacted);
                    text
                });
                self.compare(reader, text, played)
            }
            inputs::BATCH => {
                played.batches += 1;
                let count = reader.number().ok_or(unreadable)?;
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                let batch = self.store.poll_records_within(count);
                let text = batch.map(|batch| outputs::batch_text(&batch, None, self.is_redacted));
                self.compare(reader, text, played)
            }
            inputs::END => {
                let why = core::str::from_utf8(reader.0).map_err(|_| unreadable)?;
                self.store.end_capture(why);
                self.ended = Some(why.into());
                Ok(None)
            }
            kind => {
                let (now, input) = inputs::read_input(kind, &mut reader).ok_or(unreadable)?;
                self.store.handle(now, input);
                Ok(None)
            }
        }
    }

    fn message(
        &mut self,
        message: &Message<'_>,
        played: &Played,
    ) -> Result<Option<Difference>, CaptureError> {
        let unreadable = CaptureError::Unreadable;
        let incoming = message.incoming().ok_or(unreadable)?;
        if !self.results.fill(message.results) {
            return Err(unreadable);
        }
        let client_id = Principal::of(&incoming).client_id().unwrap_or_default();
        let (number, client) = (played.messages, KeyPreview(client_id.as_bytes()));
        self.latest = match RequestPayload::decode(incoming.payload) {
            Ok(request) => {
                let (kind, subject) = (request.kind(), KeyPreview(request.subject()));
                format!("message {number}: {kind} {subject:?} from {client:?}")
            }
            Err(_) => format!("message {number} from {client:?}"),
        };
        self.store.handle_publish(message.now, &incoming);
        let (captured, replayed) = self.results.counts();
        Ok((captured != replayed).then(|| Difference {
            frame: played.frames,
            after: self.latest.clone(),
            captured: format!("{captured} calls of the authorizer, the durable-keys predicate and the policy of expiries"),
            replayed: Some(format!("{replayed}")),
        }))
    }

    fn compare(
        &self,
        reader: Reader<'_>,
        replayed: Option<String>,
        played: &Played,
    ) -> Result<Option<Difference>, CaptureError> {
        let captured = core::str::from_utf8(reader.0).map_err(|_| CaptureError::Unreadable)?;
        if replayed.as_deref() == Some(captured) {
            return Ok(None);
        }
        let (frame, after) = (played.frames, self.latest.clone());
        Ok(Some(Difference { frame, after, captured: captured.into(), replayed }))
    }
}
