//! A store that may be captured.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use statestore_proto::machine::{Input, Machine};
use statestore_proto::store::{Batch, BatchId, Handled, Record, Store, StoreConfig};
use statestore_proto::time::{Instant, Now};
use statestore_proto::transport::{Incoming, Transmit};

use crate::capture::Capture;

/// A [`Store`] that may be captured. Its methods change the store; [`store`](Self::store) reads it.
///
/// The capture contains a copy of each message, and a text for each packet that is sent. It grows
/// until it is [taken](Self::take_capture), so take it after every few calls.
pub struct CapturedStore {
    store: Store,
    capture: Option<Box<Capture>>,
}

impl CapturedStore {
    /// Creates a store that is not captured.
    #[must_use]
    pub fn new(config: StoreConfig) -> Self {
        Self { store: Store::new(config), capture: None }
    }

    /// Creates a store that is captured from its first input on. A `redaction` key replaces values;
    /// draw it at random and use it once.
    #[must_use]
    pub fn capturing(config: StoreConfig, redaction: Option<[u8; 16]>) -> Self {
        let (config, capture) = Capture::begin(config, redaction);
        Self { store: Store::new(config), capture: Some(Box::new(capture)) }
    }

    /// The store.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Removes and returns what was captured since the last call: whole frames, to be appended to
    /// the earlier ones.
    #[must_use]
    pub fn take_capture(&mut self) -> Vec<u8> {
        self.capture.as_mut().map_or_else(Vec::new, |capture| capture.take())
    }

    /// Ends the capture with a last frame that contains the reason. The frame must still be
    /// [taken](Self::take_capture).
    pub fn end_capture(&mut self, why: &str) {
        self.captured(|capture| capture.end(why));
    }

    /// Returns whether inputs are captured.
    #[must_use]
    pub fn is_captured(&self) -> bool {
        self.capture.as_ref().is_some_and(|capture| !capture.has_ended())
    }

    /// See [`Store::restore`].
    pub fn restore(&mut self, now: Now, record: &Record) {
        self.store.restore(now, record);
        self.captured(|capture| capture.restore(now, record));
    }

    /// See [`Store::handle_publish`].
    pub fn handle_publish<'a>(&mut self, now: Now, incoming: &Incoming<'a>) -> Handled<'a> {
        let handled = self.store.handle_publish(now, incoming);
        self.captured(|capture| capture.message(now, incoming));
        handled
    }

    /// See [`Store::handle_persisted`].
    pub fn handle_persisted(&mut self, id: BatchId) {
        self.store.handle_persisted(id);
        self.captured(|capture| capture.persisted(id));
    }

    /// See [`Store::set_storage_full`].
    pub fn set_storage_full(&mut self, is_full: bool) {
        self.store.set_storage_full(is_full);
        self.captured(|capture| capture.storage_full(is_full));
    }

    /// See [`Store::poll_transmit`].
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let transmit = self.store.poll_transmit()?;
        self.captured(|capture| capture.transmit(&transmit));
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
        self.captured(|capture| capture.batch(&batch));
        Some(batch)
    }

    fn captured(&mut self, write: impl FnOnce(&mut Capture)) {
        if let Some(capture) = self.capture.as_mut().filter(|capture| !capture.has_ended()) {
            write(capture);
        }
    }
}

impl Machine for CapturedStore {
    fn handle(&mut self, now: Now, input: Input<'_>) {
        if let Input::Message(incoming) = input {
            self.handle_publish(now, incoming);
            return;
        }
        self.store.handle(now, input);
        self.captured(|capture| capture.input(now, input));
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

    fn can_receive(&self) -> bool {
        self.store.can_receive()
    }
}

impl fmt::Debug for CapturedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapturedStore")
            .field("store", &self.store)
            .field("is_captured", &self.is_captured())
            .finish()
    }
}
