//! The channel from a captured store to the writer of the capture.

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use statestore_capture::CapturedStore;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{Semaphore, mpsc};
use tracing::warn;

/// Pause of a blocking reader when nothing is left. Without it, a busy store would wake the reader
/// for each part, which takes longer than capturing a request.
const READER_PAUSE: Duration = Duration::from_millis(5);

/// The sending end of a [capture](statestore_capture); see [`capture`]. Clones capture several
/// stores, each to its end before the next.
#[derive(Clone, Debug)]
pub struct Capture {
    parts: mpsc::UnboundedSender<Vec<u8>>,
    capacity: Arc<Semaphore>,
    bytes_max: u32,
    is_redacted: bool,
}

/// The receiving end of a [capture](statestore_capture): returns its parts in order.
#[derive(Debug)]
pub struct CaptureReader {
    parts: mpsc::UnboundedReceiver<Vec<u8>>,
    capacity: Arc<Semaphore>,
    bytes_max: u32,
    /// Permits of the part that was returned last. They are released when the next part is
    /// requested.
    lent: u32,
}

/// Creates both ends of a capture. At most `bytes_max` bytes wait for the reader, or a single part
/// that is larger, for example a long message. Messages of clients fill this queue.
///
/// A running store does not wait for the reader. If the queue is full, the capture ends with a
/// warning, and the store continues. Only while it reads its journal, before it serves, does the
/// store wait.
///
/// ```
/// use statestore_tokio::service::capture;
/// use statestore_tokio::StoreService;
///
/// let (capture, mut reader) = capture(32 << 20);
/// std::thread::spawn(move || {
///     while let Some(part) = reader.blocking_recv() {
///         // To a file.
/// #       let _ = part;
///     }
/// });
/// let service = StoreService::builder().capture(capture);
/// # let _ = service;
/// ```
#[must_use]
pub fn capture(bytes_max: u32) -> (Capture, CaptureReader) {
    let (sender, parts) = mpsc::unbounded_channel();
    let bytes_max = bytes_max.max(1);
    let capacity = Arc::new(Semaphore::new(usize::try_from(bytes_max).unwrap_or(usize::MAX)));
    let reader = CaptureReader { parts, capacity: Arc::clone(&capacity), bytes_max, lent: 0 };
    (Capture { parts: sender, capacity, bytes_max, is_redacted: false }, reader)
}

/// Returns a new random key to [redact](CapturedStore::capture) a capture with.
#[must_use]
#[expect(
    clippy::disallowed_types,
    reason = "the system draws its keys at random, which this function needs"
)]
pub fn redaction_key() -> [u8; 16] {
    let draw = || std::collections::hash_map::RandomState::new().build_hasher().finish();
    (u128::from(draw()) << 64 | u128::from(draw())).to_le_bytes()
}

impl Capture {
    /// Replaces values with others of the same length. The key for that is drawn for each store and
    /// not retained.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        self.is_redacted = true;
        self
    }

    /// Returns a redaction key for the next store, if values are to be replaced.
    pub(crate) fn redaction(&self) -> Option<[u8; 16]> {
        self.is_redacted.then(redaction_key)
    }

    /// Sends the captured frames to the reader. Ends the capture if the queue is full or the reader
    /// is gone.
    pub(crate) fn try_send(&self, store: &mut CapturedStore) {
        let part = store.take_capture();
        if part.is_empty() {
            return;
        }
        if self.parts.is_closed() {
            return store.end_capture("the reader of the capture is gone");
        }
        match self.capacity.try_acquire_many(permits(&part, self.bytes_max)) {
            Ok(capacity) => {
                capacity.forget();
                let _ = self.parts.send(part);
            }
            Err(_) => {
                let why = "the reader is too slow and the queue is full";
                warn!(bytes_max = self.bytes_max, "capture ended: {why}");
                store.end_capture(why);
                let _ = self.parts.send(store.take_capture());
            }
        }
    }

    /// Sends the captured frames to the reader, and waits while the queue is full.
    pub(crate) async fn send_waiting(&self, store: &mut CapturedStore) {
        let part = store.take_capture();
        if let Ok(capacity) = self.capacity.acquire_many(permits(&part, self.bytes_max)).await {
            capacity.forget();
        }
        let _ = self.parts.send(part);
    }
}

impl CaptureReader {
    /// Returns the next part, which consists of whole frames; `None` when no captured store is
    /// left. The previous part then counts as written.
    pub async fn recv(&mut self) -> Option<Vec<u8>> {
        self.release();
        let part = self.parts.recv().await?;
        Some(self.lend(part))
    }

    /// As [`recv`](Self::recv), for code that is not async. Parts of a busy store are returned up
    /// to 5 ms after they are captured.
    ///
    /// # Panics
    /// If called on a thread of a runtime.
    #[track_caller]
    #[expect(clippy::disallowed_methods, reason = "the thread of a blocking reader waits anyway")]
    pub fn blocking_recv(&mut self) -> Option<Vec<u8>> {
        self.release();
        let part = match self.parts.try_recv() {
            Ok(part) => part,
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => {
                std::thread::sleep(READER_PAUSE);
                self.parts.blocking_recv()?
            }
        };
        Some(self.lend(part))
    }

    fn lend(&mut self, part: Vec<u8>) -> Vec<u8> {
        self.lent = permits(&part, self.bytes_max);
        part
    }

    fn release(&mut self) {
        let lent = core::mem::take(&mut self.lent);
        self.capacity.add_permits(usize::try_from(lent).unwrap_or_default());
    }
}

/// Wakes a store that waits for capacity.
impl Drop for CaptureReader {
    fn drop(&mut self) {
        self.capacity.close();
    }
}

/// Permits that a part takes: one per byte, or all if the part is larger than the queue.
fn permits(part: &[u8], bytes_max: u32) -> u32 {
    u32::try_from(part.len()).map_or(bytes_max, |len| len.min(bytes_max))
}
