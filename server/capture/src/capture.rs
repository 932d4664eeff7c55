//! The capture of one store: the frames since the last call of `take`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use statestore_proto::machine::Input;
use statestore_proto::message::WordCase;
use statestore_proto::store::{Batch, BatchId, Record, StoreConfig, encode_records};
use statestore_proto::time::Now;
use statestore_proto::transport::{Incoming, Transmit};

use crate::callbacks::{self, Results};
use crate::codec::{FORMAT, bytes, number};
use crate::frame;
use crate::outputs::TextWriter;
use crate::redaction::Redaction;
use crate::settings::{self, Flags};
use crate::{inputs, outputs};

const TOO_LONG: &str = "a frame exceeds the maximum length";
const TOO_MANY_RESULTS: &str = "a message caused too many calls of the callbacks";
const UNKNOWN_INPUT: &str = "an input has no form in a capture";

/// Maximum number of bytes that are reserved for the next part.
const PART_BYTES_MAX: usize = 1 << 16;

pub(crate) struct Capture {
    out: Vec<u8>,
    results: Arc<Results>,
    redaction: Option<Redaction>,
    word_case: WordCase,
    has_ended: bool,
}

impl Capture {
    /// Begins the capture of a store with this configuration, and returns the configuration with
    /// callbacks whose results are captured.
    pub(crate) fn begin(
        mut config: StoreConfig,
        redaction: Option<[u8; 16]>,
    ) -> (StoreConfig, Self) {
        // First, since the secret in use depends on the authorizer.
        let secret = config.effective_scan_secret();
        config = config.scan_secret(secret);
        let results = Results::new();
        let (authorizer, durable_keys) = (config.authorizer.take(), config.durable_keys.take());
        let expiry_policy = config.expiry_policy.take();
        let flags = Flags {
            has_authorizer: authorizer.is_some(),
            has_durable_keys: durable_keys.is_some(),
            has_expiry_policy: expiry_policy.is_some(),
            is_redacted: redaction.is_some(),
        };
        if let Some(authorizer) = authorizer {
            config = config.authorizer(callbacks::captured_authorizer(&results, authorizer));
        }
        if let Some(durable_keys) = durable_keys {
            config = config.durable_keys(callbacks::captured_durable_keys(&results, durable_keys));
        }
        if let Some(policy) = expiry_policy {
            config = config.expiry_policy(callbacks::captured_expiry_policy(&results, policy));
        }
        let mut out = Vec::new();
        frame::push(&mut out, |out| {
            out.push(inputs::BEGIN);
            out.extend_from_slice(frame::MAGIC);
            out.push(FORMAT);
            settings::write(out, &config, flags);
        });
        let redaction = redaction.map(Redaction::new);
        let word_case = config.word_case;
        (config, Self { out, results, redaction, word_case, has_ended: false })
    }

    pub(crate) fn take(&mut self) -> Vec<u8> {
        if self.out.is_empty() {
            return Vec::new();
        }
        // The next part is probably as long. To grow to that length takes several allocations.
        let next = Vec::with_capacity(self.out.len().min(PART_BYTES_MAX));
        core::mem::replace(&mut self.out, next)
    }

    pub(crate) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(crate) fn end(&mut self, why: &str) {
        self.out.extend(end_frame(why));
        self.has_ended = true;
    }

    pub(crate) fn restore(&mut self, now: Now, record: &Record) {
        let redacted = self.redaction.as_ref().map(|redaction| redaction.record(record));
        let records = encode_records([redacted.as_ref().unwrap_or(record)]);
        self.push(|out| {
            out.push(inputs::RESTORE);
            inputs::time(out, now);
            bytes(out, &records);
        });
    }

    pub(crate) fn message(&mut self, now: Now, incoming: &Incoming<'_>) {
        let Some(results) = self.results.drain() else { return self.end(TOO_MANY_RESULTS) };
        let redaction = self.redaction.as_ref();
        let redacted =
            redaction.map(|redaction| redaction.request(incoming.payload, self.word_case));
        let payload = redacted.as_deref().unwrap_or(incoming.payload);
        let is_pushed = frame::push(&mut self.out, |out| {
            inputs::message(out, now, incoming, payload, &results);
        });
        if !is_pushed {
            self.end(TOO_LONG);
        }
    }

    /// Captures an input other than a message.
    pub(crate) fn input(&mut self, now: Now, input: Input<'_>) {
        let Some(kind) = inputs::kind(input) else { return self.end(UNKNOWN_INPUT) };
        self.push(|out| {
            out.push(kind);
            inputs::input(out, now, input);
        });
    }

    pub(crate) fn persisted(&mut self, id: BatchId) {
        self.push(|out| inputs::persisted(out, id));
    }

    pub(crate) fn storage_full(&mut self, is_full: bool) {
        self.push(|out| inputs::storage_full(out, is_full));
    }

    pub(crate) fn transmit(&mut self, transmit: &Transmit) {
        let redaction = self.redaction.as_ref();
        let is_pushed = frame::push(&mut self.out, |out| {
            out.push(inputs::TRANSMIT);
            // Writing to bytes cannot fail.
            let text = &mut TextWriter(out);
            let _ = outputs::write_transmit(text, transmit, redaction, redaction.is_some());
        });
        if !is_pushed {
            self.end(TOO_LONG);
        }
    }

    /// Captures a batch and its number of records; a replay polls as many.
    pub(crate) fn batch(&mut self, batch: &Batch) {
        let redaction = self.redaction.as_ref();
        let text = outputs::batch_text(batch, redaction, redaction.is_some());
        self.push(|out| {
            out.push(inputs::BATCH);
            number(out, batch.records.len() as u64);
            out.extend_from_slice(text.as_bytes());
        });
    }

    fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if !frame::push(&mut self.out, write) {
            self.end(TOO_LONG);
        }
    }
}

/// The last frame of a capture, with the reason for its end. A writer appends it when it stops
/// early.
#[must_use]
pub fn end_frame(why: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frame::push(&mut out, |out| {
        out.push(inputs::END);
        out.extend_from_slice(why.as_bytes());
    });
    out
}
