//! Detects clients that wait for an acknowledgement by TCP before they send more.
//!
//! Linux delays the acknowledgement of received bytes by 40 ms or more, unless a response carries it.
//! Nagle's algorithm lets a client send only one small segment that is not acknowledged. A client
//! with this algorithm, for example Python's Paho or MQTT.js, acknowledges a response with a PUBACK
//! and then sends its next request. Each request would wait for the delayed acknowledgement of the
//! PUBACK. Acknowledging it at once costs a system call and a segment for each request. Only the
//! connections of such clients pay them: those that once sent nothing for the length of the delay.

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::Instant;

use crate::broker::meter::Meter;

/// Pause after a read without a response, as the delay of an acknowledgement causes it: 40 to 200 ms
/// and a round trip. A client that pauses for another reason only costs the system call.
const DELAY: RangeInclusive<Duration> = Duration::from_millis(35)..=Duration::from_millis(300);

/// Acknowledgements of one connection.
#[derive(Default)]
pub(crate) struct QuickAck {
    /// Time of the last read, if no write has acknowledged it.
    unanswered_since: Option<Instant>,
    /// Set if the client waits for acknowledgements.
    is_needed: bool,
}

impl QuickAck {
    /// The client has sent bytes. `is_answered` is set if they cause a write at once.
    pub(crate) fn handle_read(&mut self, meter: &Meter, is_answered: bool) {
        let pause = self.unanswered_since.take().map(|since| since.elapsed());
        self.is_needed |= pause.is_some_and(|pause| DELAY.contains(&pause));
        if !is_answered {
            self.unanswered_since = Some(Instant::now());
        }
        meter.set_acknowledgement_due(!is_answered && self.is_needed);
    }

    /// A write has acknowledged everything that was read.
    pub(crate) fn handle_write(&mut self, meter: &Meter) {
        self.unanswered_since = None;
        meter.set_acknowledgement_due(false);
    }
}
