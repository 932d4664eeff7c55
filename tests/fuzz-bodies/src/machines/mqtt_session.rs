//! Comparison of the client session with a naive server.

mod peer;
mod run;

use statestore_models::alphabet;
use statestore_models::machines::Reader;

use run::Run;

alphabet! {
    /// An operation on a session.
    pub enum SessionOp {
        /// A stream opens.
        Connect = b'C', 4;
        /// The server sends CONNACK.
        ConnAck = b'c', 8;
        /// The caller publishes.
        Publish = b'P', 16;
        /// The caller subscribes or unsubscribes.
        Request = b'S', 3;
        /// The server acknowledges.
        Acknowledge = b'K', 12;
        /// The server sends a message.
        Message = b'M', 12;
        /// The server sends PUBREL.
        Release = b'L', 4;
        /// The server sends PINGRESP.
        Pong = b'O', 2;
        /// The caller polls events.
        Poll = b'E', 12;
        /// The caller acknowledges a message.
        Answer = b'A', 8;
        /// Output is written, all of it or some.
        Write = b'W', 16;
        /// Time passes.
        Pass = b'T', 4;
        /// The stream closes.
        Close = b'X', 3;
        /// The caller disconnects.
        Disconnect = b'G', 1;
        /// Raw bytes arrive from the server.
        Raw = b'w', 1;
    }
}

/// Oracle: a session behaves as a naive server and the state of its caller expect. Every packet is
/// legal at its time. Each accepted token ends once, with the reason of the server. Messages at QoS
/// 2 are delivered once. Memory is bounded, and deadlines advance. The same bytes cause the same
/// events and output, however they are divided.
///
/// Input: a byte of flags for the configuration, a byte that makes the clock begin that many seconds
/// earlier, and operations ([`SessionOp`]).
///
/// # Panics
/// If the session differs.
pub fn mqtt_session(data: &[u8]) {
    let ([flags, start], mut reader) = Reader::<SessionOp>::new::<2>(data);
    let mut run = Run::new(flags, start);
    while let Some((op, args)) = reader.next() {
        let raw = match op {
            SessionOp::Raw => reader.raw(usize::from(args[0] % 64)),
            _ => &[],
        };
        run.apply(op, args, raw);
        run.check();
    }
    run.finish();
}
