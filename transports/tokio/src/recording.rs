//! The recording of a store, on its way to whoever writes it down.

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;

use statestore_proto::store::recording::RecordedStore;
use tokio::sync::{Semaphore, mpsc};
use tracing::warn;

/// Where the [recording](statestore_proto::store::recording) of a store goes; see [`recording`]. With clones of it several
/// stores are recorded, each to its end before the next.
#[derive(Clone, Debug)]
pub struct Recording {
    parts: mpsc::UnboundedSender<Vec<u8>>,
    room: Arc<Semaphore>,
    room_max: u32,
    is_redacted: bool,
}

/// Gives out the recording of a store, in order.
#[derive(Debug)]
pub struct RecordingReader {
    parts: mpsc::UnboundedReceiver<Vec<u8>>,
    room: Arc<Semaphore>,
    room_max: u32,
    /// What was given out last and may not be written yet.
    given: u32,
}

/// Both ends of a recording, of which no more than `bytes_max` wait for the reader, or one part that is larger, as a long
/// message is. What clients send fills it.
///
/// A store does not wait for it. When there is no room, the recording ends, a warning says so, and the store goes
/// on. Only while a store reads its journal, before it serves, does it wait.
///
/// ```
/// use statestore_tokio::{StoreService, recording};
///
/// let (recording, mut reader) = recording(32 << 20);
/// std::thread::spawn(move || {
///     while let Some(part) = reader.blocking_recv() {
///         // To a file.
/// #       let _ = part;
///     }
/// });
/// let service = StoreService::builder().record(recording);
/// # let _ = service;
/// ```
#[must_use]
pub fn recording(bytes_max: u32) -> (Recording, RecordingReader) {
    let (sender, parts) = mpsc::unbounded_channel();
    let room_max = bytes_max.max(1);
    let room = Arc::new(Semaphore::new(usize::try_from(room_max).unwrap_or(usize::MAX)));
    let reader = RecordingReader { parts, room: Arc::clone(&room), room_max, given: 0 };
    (Recording { parts: sender, room, room_max, is_redacted: false }, reader)
}

/// A new random key to [redact](RecordedStore::recording) a recording with.
#[must_use]
#[expect(clippy::disallowed_types, reason = "its keys are drawn by the system, as this must be")]
pub fn redaction_key() -> [u8; 16] {
    let draw = || std::collections::hash_map::RandomState::new().build_hasher().finish();
    (u128::from(draw()) << 64 | u128::from(draw())).to_le_bytes()
}

impl Recording {
    /// Replaces values by others of the same length, by a key that is drawn for each store and forgotten.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        self.is_redacted = true;
        self
    }

    /// A key for the next store, if values are to be replaced.
    pub(crate) fn redaction(&self) -> Option<[u8; 16]> {
        self.is_redacted.then(redaction_key)
    }

    /// Passes on what was recorded, or ends the recording.
    pub(crate) fn pass_on(&self, store: &mut RecordedStore) {
        let part = store.take_recording();
        if part.is_empty() {
            return;
        }
        if self.parts.is_closed() {
            return store.end_recording("nobody takes it");
        }
        match self.room.try_acquire_many(cost(&part, self.room_max)) {
            Ok(room) => {
                room.forget();
                let _ = self.parts.send(part);
            }
            Err(_) => {
                let why = "it was not written as fast as it was made";
                warn!(bytes_max = self.room_max, "the recording ends: {why}");
                store.end_recording(why);
                let _ = self.parts.send(store.take_recording());
            }
        }
    }

    /// The same, and waits for room.
    pub(crate) async fn pass_on_all(&self, store: &mut RecordedStore) {
        let part = store.take_recording();
        if let Ok(room) = self.room.acquire_many(cost(&part, self.room_max)).await {
            room.forget();
        }
        let _ = self.parts.send(part);
    }
}

impl RecordingReader {
    /// The next part, whole frames; `None` when there is no store any more that is recorded. The part before counts as written.
    pub async fn recv(&mut self) -> Option<Vec<u8>> {
        self.written();
        let part = self.parts.recv().await?;
        Some(self.give(part))
    }

    /// The same, for a thread.
    ///
    /// # Panics
    /// On a thread of a runtime.
    #[track_caller]
    pub fn blocking_recv(&mut self) -> Option<Vec<u8>> {
        self.written();
        let part = self.parts.blocking_recv()?;
        Some(self.give(part))
    }

    fn give(&mut self, part: Vec<u8>) -> Vec<u8> {
        self.given = cost(&part, self.room_max);
        part
    }

    fn written(&mut self) {
        let given = core::mem::take(&mut self.given);
        self.room.add_permits(usize::try_from(given).unwrap_or_default());
    }
}

/// Whoever waits for room learns that there is no reader.
impl Drop for RecordingReader {
    fn drop(&mut self) {
        self.room.close();
    }
}

/// What a part takes of the room: all of it, if it is larger.
fn cost(part: &[u8], room_max: u32) -> u32 {
    u32::try_from(part.len()).map_or(room_max, |len| len.min(room_max))
}
