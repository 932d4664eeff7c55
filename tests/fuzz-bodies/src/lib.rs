//! Fuzz bodies as functions: they take any bytes, and panic if the oracle disagrees.
//!
//! The documentation of each body states its oracle and the format of its input. The targets in
//! `fuzz/` call the bodies, and the test `corpus` runs them on every committed input on stable Rust.
//!
//! The bodies of the codec are always compiled. The feature `differential` adds the comparison with
//! another codec, and `machines` adds [`machines`] and their packages.

/// The naive clock of the reference store. Its package needs the machines of the core.
#[path = "../../models/src/reference/clock.rs"]
pub mod clock;
#[cfg(feature = "differential")]
mod differential;
mod glob;
/// Shared with the reference store too.
#[path = "../../models/src/reference/glob_text.rs"]
pub mod glob_text;
mod hlc_clock;
mod hlc_text;
#[cfg(feature = "machines")]
pub mod machines;
mod message;
mod naive;
mod scan;
mod topics;

use statestore_proto::BufferTooSmall;

#[cfg(feature = "differential")]
pub use differential::differential;
pub use glob::{glob, match_in_pieces};
pub use hlc_clock::hlc_clock;
pub use hlc_text::hlc_text;
#[cfg(feature = "machines")]
pub use machines::{
    captures, client_events, mqtt_broker, mqtt_packet, mqtt_session, policy, records, store_ops,
    world,
};
pub use message::{notification, reply, request};
pub use scan::scan;
pub use topics::topics;

/// The function that a target runs on each input.
pub type Body = fn(&[u8]);

/// Every target: its name, which is also the name of its file and corpus, and its body.
#[cfg(all(feature = "differential", feature = "machines"))]
pub const TARGETS: [(&str, Body); 18] = [
    ("request", request),
    ("reply", reply),
    ("notification", notification),
    ("hlc_text", hlc_text),
    ("hlc_clock", hlc_clock),
    ("topics", topics),
    ("glob", glob),
    ("scan", scan),
    ("differential", differential),
    ("store_ops", store_ops),
    ("client_events", client_events),
    ("world", world),
    ("mqtt_packet", mqtt_packet),
    ("policy", policy),
    ("mqtt_broker", mqtt_broker),
    ("mqtt_session", mqtt_session),
    ("records", records),
    ("captures", captures),
];

/// Longest message for which every prefix is tested: the cost is quadratic.
const NEIGHBOURS_MAX: usize = 200;

/// Checks that a writer announces its exact length, writes only that many bytes, and leaves a
/// buffer unchanged that is too small.
fn check_writer(
    announced: usize,
    written: &[u8],
    encode_into: impl Fn(&mut [u8]) -> Result<usize, BufferTooSmall>,
) {
    const UNTOUCHED: u8 = 0xA5;
    assert_eq!(announced, written.len(), "the announced length is exact");

    let mut roomy = vec![UNTOUCHED; announced + 3];
    assert_eq!(encode_into(&mut roomy), Ok(announced));
    assert_eq!(roomy.get(..announced), Some(written), "both ways to encode agree");
    assert_eq!(roomy.get(announced..), Some([UNTOUCHED; 3].as_slice()), "nothing past the end");

    let mut tight = vec![UNTOUCHED; announced - 1];
    assert_eq!(encode_into(&mut tight), Err(BufferTooSmall { needed: announced }));
    assert!(tight.iter().all(|byte| *byte == UNTOUCHED), "a refused write writes nothing");
}

/// Checks that a message delimits itself: none of its strict prefixes and extensions is accepted.
fn check_neighbours(message: &[u8], accepts: impl Fn(&[u8]) -> bool) {
    if message.len() > NEIGHBOURS_MAX {
        return;
    }
    for end in 0..message.len() {
        assert!(!accepts(&message[..end]), "accepted the prefix of {end} bytes");
    }
    for byte in [0, b'\r', b'\n', b'$', b'0'] {
        let longer = [message, &[byte]].concat();
        assert!(!accepts(&longer), "accepted one more byte {byte:#04x}");
    }
}
