//! Output of the broker that is not yet written to the stream.

use std::time::Duration;

use bytes::BytesMut;
use statestore_broker::{Broker, ConnectionId, Output};

use crate::broker::driver::Rank;

/// An empty write buffer with a larger capacity than this is freed.
const BUFFER_RETAINED_MAX: usize = 4 << 10;

/// State of a connection in the broker.
#[derive(Clone, Copy)]
pub(crate) struct Polled {
    pub(crate) output: Output,
    pub(crate) wants_input: bool,
    pub(crate) has_yielded: bool,
    pub(crate) awaits_host: bool,
    pub(crate) rank: Rank,
}

impl Polled {
    /// The state of a connection after this output.
    pub(crate) fn new(
        broker: &Broker,
        id: ConnectionId,
        output: Output,
        awaits_host: bool,
    ) -> Self {
        Self {
            output,
            wants_input: broker.wants_input(id),
            has_yielded: broker.has_yielded(id),
            awaits_host,
            rank: if broker.is_accepted(id) { Rank::Accepted } else { Rank::Pending },
        }
    }
}

/// Bytes to be written to the stream.
#[derive(Default)]
pub(crate) struct WriteBuffer {
    pub(crate) bytes: BytesMut,
    pub(crate) is_flushed: bool,
    /// Maximum length of `bytes` since the buffer was allocated.
    peak: usize,
    /// Set when the broker has more output than `bytes` contains.
    pub(crate) has_more: bool,
}

impl WriteBuffer {
    /// Takes the next output of the broker, unless output is unwritten.
    ///
    /// While the store has not processed the client's only request, the acknowledgement of this
    /// request waits. It is written together with the response, when the store wakes the
    /// connection.
    pub(crate) fn poll_broker(
        &mut self,
        broker: &mut Broker,
        now: Duration,
        id: ConnectionId,
    ) -> Polled {
        let awaits_host = broker.awaits_host(id) && !broker.has_yielded(id);
        let mut output = Output::Idle;
        if self.bytes.is_empty() && !awaits_host {
            output = broker.poll_output(now, id, &mut self.bytes);
            self.has_more = output == Output::More;
            // This output contains everything for which the connection was woken.
            broker.cancel_wake(id);
        }
        self.is_flushed &= self.bytes.is_empty();
        self.peak = self.peak.max(self.bytes.len());
        Polled::new(broker, id, output, awaits_host)
    }

    /// Frees the buffer if it is empty and was large.
    pub(crate) fn shrink(&mut self) {
        if self.bytes.is_empty() && self.peak > BUFFER_RETAINED_MAX {
            (self.bytes, self.peak) = (BytesMut::new(), 0);
        }
    }
}
