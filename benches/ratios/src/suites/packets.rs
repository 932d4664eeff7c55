//! Decoding and encoding of a request's MQTT packet, against the codec of rumqttc.

use std::hint::black_box;

use bytes::BytesMut;

use super::Suite;
use crate::bare::Failure;
use crate::peers::rumqttc;
use crate::race::Contestant;
use crate::report::Report;
use statestore_benches::packets::{PROPERTIES, decode, encode, request, request_bytes};

pub(super) const SUITE: Suite =
    Suite { name: "packets", about: "decode and encode of a request's MQTT packet, in ns", run };

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    rumqttc::verify();
    let bytes = request_bytes();
    assert_eq!(decode(&bytes), PROPERTIES.len());
    // rumqttc takes the bytes out of a buffer. Both sides fill theirs each time, as from a socket.
    let (mut our_input, mut their_input) = (BytesMut::new(), BytesMut::new());
    let ours = Contestant::new("ours", || {
        our_input.clear();
        our_input.extend_from_slice(black_box(&bytes));
        decode(&our_input)
    });
    let peer = Contestant::new(rumqttc::NAME, || {
        their_input.clear();
        their_input.extend_from_slice(black_box(&bytes));
        rumqttc::decode(&mut their_input)
    });
    report.race("packets/decode/request", ours, [peer])?;
    let (our_packet, their_packet) = (request(), rumqttc::prepared());
    let (mut our_output, mut their_output) = (BytesMut::new(), BytesMut::new());
    let ours = Contestant::new("ours", || encode(black_box(&our_packet), &mut our_output));
    let peer = Contestant::new(rumqttc::NAME, || {
        rumqttc::encode(black_box(&their_packet), &mut their_output)
    });
    report.race("packets/encode/request", ours, [peer])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::Effort;

    #[test]
    fn both_sides_agree_and_each_line_has_seven_words() {
        let mut out = Vec::new();
        run(&mut Report::new(Effort::TEST, &mut out)).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().all(|line| line.split_whitespace().count() == 7), "{text}");
    }
}
