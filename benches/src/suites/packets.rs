//! Decoding and encoding of a request's MQTT packet, against the codec of rumqttc.

use std::hint::black_box;

use bytes::BytesMut;

use super::Suite;
use crate::bare::Failure;
use crate::packets::{
    RUMQTTC, bytes, decode_ours, decode_theirs, encode_ours, encode_theirs, ours, theirs,
};
use crate::race::Contestant;
use crate::report::Report;

pub(super) const SUITE: Suite =
    Suite { name: "packets", about: "decode and encode of a request's MQTT packet, in ns", run };

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    let bytes = bytes();
    assert_eq!(decode_ours(&bytes), 7);
    // They take bytes out of a buffer, which is to be filled each time: with us too, as from a socket.
    let (mut our_input, mut their_input) = (BytesMut::new(), BytesMut::new());
    let decode = Contestant::new("ours", || {
        our_input.clear();
        our_input.extend_from_slice(black_box(&bytes));
        decode_ours(&our_input)
    });
    let peer = Contestant::new(RUMQTTC, || {
        their_input.clear();
        their_input.extend_from_slice(black_box(&bytes));
        decode_theirs(&mut their_input)
    });
    report.race("packets/decode/request", decode, [peer])?;
    let (our_packet, their_packet) = (ours(), theirs());
    let (mut our_output, mut their_output) = (BytesMut::new(), BytesMut::new());
    let encode = Contestant::new("ours", || encode_ours(black_box(&our_packet), &mut our_output));
    let peer =
        Contestant::new(RUMQTTC, || encode_theirs(black_box(&their_packet), &mut their_output));
    report.race("packets/encode/request", encode, [peer])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::Effort;

    #[test]
    fn both_sides_agree_and_every_line_has_five_words() {
        let mut out = Vec::new();
        run(&mut Report::new(Effort::TEST, &mut out)).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().all(|line| line.split_whitespace().count() == 5), "{text}");
    }
}
