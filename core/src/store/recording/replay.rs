//! A recording, run again.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::oracle::{Answers, replayed_authorizer, replayed_selector};
use super::settings::{self, Settings};
use super::told::{self, Message};
use super::{FORMAT, Frame, MAGIC, RecordedStore, RecordingError, sent};
use crate::machine::Machine as _;
use crate::message::{Command, KeyPreview};
use crate::store::codec::{Reader, decode_records};
use crate::store::{BatchId, Store};

/// A recording that is run again, frame by frame, on a store of its own.
#[derive(Default)]
pub struct Replay {
    part: Option<Part>,
    played: Played,
    /// Values are replaced in what is recorded of this replay, by this key.
    redaction: Option<[u8; 16]>,
    /// What was recorded of stores that are not played any more, and not taken.
    copied: Vec<u8>,
}

/// What is played of one store.
struct Part {
    store: RecordedStore,
    answers: Arc<Answers>,
    is_redacted: bool,
    /// The message that came last, for people.
    last: String,
    ended: Option<String>,
}

/// How much was played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Frames, which number what was played.
    pub frames: u64,
    /// Stores that began.
    pub stores: u64,
    /// Records that a store began with.
    pub restored: u64,
    /// Messages that were received.
    pub messages: u64,
    /// Packets that were sent.
    pub sent: u64,
    /// Batches of records that were handed out.
    pub batches: u64,
}

/// A place where a replay gives out something else than what was recorded. Its texts hold keys and values.
#[derive(Clone, PartialEq, Eq)]
pub struct Difference {
    /// The frame that says what it should be; the first is 1.
    pub frame: u64,
    /// The message that came last before it: its number, and verb, key and client where they can be read.
    pub after: String,
    /// What was recorded.
    pub recorded: String,
    /// What the replay has; `None` where it has nothing.
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
    /// Nothing was played yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A replay that is recorded itself, with other values: a redacted copy of the recording, to be
    /// [taken](Self::take_recording) as it is made. The key is that of [`RecordedStore::recording`].
    #[must_use]
    pub fn redacting(key: [u8; 16]) -> Self {
        Self { redaction: Some(key), ..Self::default() }
    }

    /// What was recorded of this replay since the last call; nothing unless it [is](Self::redacting).
    #[must_use]
    pub fn take_recording(&mut self) -> Vec<u8> {
        let mut copied = core::mem::take(&mut self.copied);
        if let Some(part) = &mut self.part {
            copied.append(&mut part.store.take_recording());
        }
        copied
    }

    /// How much was played.
    #[must_use]
    pub const fn played(&self) -> Played {
        self.played
    }

    /// The store that is played, as it is now.
    #[must_use]
    pub fn store(&self) -> Option<&Store> {
        self.part.as_ref().map(|part| &*part.store)
    }

    /// Why its recording ended, where the present part of it says so.
    #[must_use]
    pub fn ended(&self) -> Option<&str> {
        self.part.as_ref()?.ended.as_deref()
    }

    /// Plays one frame: makes the call that it says, or compares what it says with what the store gives out.
    ///
    /// # Errors
    /// [`RecordingError`] when that is impossible. What was played is as it was; nothing can be played behind it.
    pub fn play(&mut self, frame: Frame<'_>) -> Result<Option<Difference>, RecordingError> {
        self.played.frames += 1;
        let mut reader = Reader(frame.0);
        let kind = reader.byte().ok_or(RecordingError::Unreadable)?;
        if kind == told::BEGUN {
            return self.begin(reader).map(|()| None);
        }
        let part = self.part.as_mut().ok_or(RecordingError::NoRecording)?;
        part.play(kind, reader, &mut self.played)
    }

    fn begin(&mut self, mut reader: Reader<'_>) -> Result<(), RecordingError> {
        let rest = reader.0.strip_prefix(MAGIC).ok_or(RecordingError::NoRecording)?;
        reader.0 = rest;
        match reader.byte() {
            Some(FORMAT) => {}
            Some(later) if later > FORMAT => return Err(RecordingError::Later(later)),
            _ => return Err(RecordingError::Unreadable),
        }
        let Settings { mut config, has_selector, has_authorizer, is_redacted } =
            settings::read(&mut reader)?;
        let answers = Answers::new();
        if has_authorizer {
            config = config.authorizer(replayed_authorizer(&answers));
        }
        if has_selector {
            config = config.durable_keys(replayed_selector(&answers));
        }
        let store = match self.redaction {
            Some(key) => RecordedStore::recording(config, Some(key)),
            None => RecordedStore::new(config),
        };
        self.copied = self.take_recording();
        self.part = Some(Part { store, answers, is_redacted, last: String::new(), ended: None });
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
    ) -> Result<Option<Difference>, RecordingError> {
        let unreadable = RecordingError::Unreadable;
        match kind {
            told::RESTORED => {
                let now = told::read_now(&mut reader).ok_or(unreadable)?;
                let records = reader.bytes().ok_or(unreadable)?;
                for record in decode_records(records).map_err(|_| unreadable)? {
                    self.store.restore(now, &record);
                    played.restored += 1;
                }
                Ok(None)
            }
            told::MESSAGE => {
                let message = Message::read(&mut reader).ok_or(unreadable)?;
                played.messages += 1;
                self.message(&message, played)
            }
            told::PERSISTED => {
                let id = reader.number().ok_or(unreadable)?;
                self.store.handle_persisted(BatchId(id));
                Ok(None)
            }
            told::SENT => {
                played.sent += 1;
                let sent = self.store.poll_transmit();
                let sent = sent.map(|sent| sent::packet(&sent, None, self.is_redacted));
                self.compare(reader, sent, played)
            }
            told::RECORDS => {
                played.batches += 1;
                let count = reader.number().ok_or(unreadable)?;
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                let batch = self.store.poll_records_within(count);
                let batch = batch.map(|batch| sent::batch(&batch, None, self.is_redacted));
                self.compare(reader, batch, played)
            }
            told::ENDED => {
                let why = core::str::from_utf8(reader.0).map_err(|_| unreadable)?;
                self.store.end_recording(why);
                self.ended = Some(why.into());
                Ok(None)
            }
            kind => {
                let (now, input) = told::read_input(kind, &mut reader).ok_or(unreadable)?;
                self.store.handle(now, input);
                Ok(None)
            }
        }
    }

    fn message(
        &mut self,
        message: &Message<'_>,
        played: &Played,
    ) -> Result<Option<Difference>, RecordingError> {
        if !self.answers.fill(message.answers) {
            return Err(RecordingError::Unreadable);
        }
        let (from, incoming) = message.incoming();
        let client = KeyPreview(from.client_id().unwrap_or_default().as_bytes());
        self.last = match Command::decode(incoming.payload) {
            Ok(command) => {
                let (kind, key) = (command.kind(), KeyPreview(command.key()));
                format!("message {}: {kind} {key:?} from {client:?}", played.messages)
            }
            Err(_) => format!("message {} from {client:?}", played.messages),
        };
        self.store.handle_publish(message.now, from, &incoming);
        let (noted, asked) = self.answers.taken();
        Ok((noted != asked).then(|| Difference {
            frame: played.frames,
            after: self.last.clone(),
            recorded: format!("{noted} questions to the authorizer and the selector of keys"),
            replayed: Some(format!("{asked}")),
        }))
    }

    fn compare(
        &self,
        reader: Reader<'_>,
        replayed: Option<String>,
        played: &Played,
    ) -> Result<Option<Difference>, RecordingError> {
        let recorded = core::str::from_utf8(reader.0).map_err(|_| RecordingError::Unreadable)?;
        if replayed.as_deref() == Some(recorded) {
            return Ok(None);
        }
        let (frame, after) = (played.frames, self.last.clone());
        Ok(Some(Difference { frame, after, recorded: recorded.into(), replayed }))
    }
}
