//! Decoding and encoding of every message, against redis-protocol, redis-rs and a plain copy.

use std::hint::black_box;
use std::io;

use ::redis_protocol::resp3::types::BorrowedFrame;
use statestore_proto::resp::Frame;

use super::Suite;
use crate::bare::Failure;
use crate::peers::{redis_protocol, redis_rs};
use crate::race::Contestant;
use crate::report::Report;
use statestore_benches::cases::{Case, Message, notifications, replies, requests};
use statestore_benches::wire::Wire;

pub(super) const SUITE: Suite =
    Suite { name: "codec", about: "decode and encode of every message, in ns", run };

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    let (requests, replies, notifications) = (requests(), replies(), notifications());
    decode_all(&requests, report)?;
    decode_all(&replies, report)?;
    decode_all(&notifications, report)?;
    size_does_not_matter(&replies, report)?;
    encode_all(&requests, report)?;
    encode_all(&replies, report)?;
    encode_all(&notifications, report)?;
    Ok(())
}

fn decode_all<M: Message>(cases: &[Case<M>], report: &mut Report<'_>) -> io::Result<()> {
    for case in cases {
        case.verify();
        let Case { name, wire, payload, .. } = case;
        let mut peers = Vec::new();
        if *wire != Wire::Frame(Frame::Null) {
            assert_eq!(redis_protocol::meaning(payload).as_ref(), Some(wire), "{name}");
            peers.push(Contestant::new(redis_protocol::NAME, || {
                redis_protocol::decode(black_box(payload))
            }));
        }
        let value = redis_rs::decode(payload).unwrap_or_default();
        assert!(redis_rs::means(&value, wire), "{name} is {value:?} to redis-rs");
        peers.push(Contestant::new(redis_rs::NAME, || redis_rs::decode(black_box(payload))));
        report.race(&format!("codec/decode/{name}"), decoder("ours", case), peers)?;
    }
    Ok(())
}

fn decoder<'a, M: Message>(name: &'static str, case: &'a Case<M>) -> Contestant<'a> {
    Contestant::new(name, || black_box(&case.message).decode(black_box(&case.payload)))
}

/// Decoding borrows, so the largest value takes as long as the smallest: the ratio should be one.
fn size_does_not_matter<M: Message>(cases: &[Case<M>], report: &mut Report<'_>) -> io::Result<()> {
    let mut hits = cases.iter().filter(|case| case.name.starts_with("get-hit/"));
    let (Some(small), Some(large)) = (hits.next(), hits.next_back()) else { return Ok(()) };
    let name = format!("codec/decode-size/{}", large.name);
    report.race(&name, decoder("ours", large), [decoder("ours-16B", small)])
}

fn encode_all<M: Message>(cases: &[Case<M>], report: &mut Report<'_>) -> io::Result<()> {
    for case in cases {
        case.verify();
        let prepared = redis_protocol::Prepared::new(&case.wire);
        let frame = prepared.frame();
        encode(case, frame.as_ref(), report)?;
        if let Some(frame) = &frame {
            encode_into(case, frame, report)?;
        }
    }
    Ok(())
}

/// Each side allocates its result.
fn encode<M: Message>(
    Case { name, message, wire, payload }: &Case<M>,
    frame: Option<&BorrowedFrame<'_>>,
    report: &mut Report<'_>,
) -> io::Result<()> {
    let mut peers = vec![Contestant::sender("memcpy", || black_box(payload).clone())];
    if let Some(frame) = frame {
        assert!(redis_protocol::encode(frame) == *payload, "{name}");
        peers.push(Contestant::sender(redis_protocol::NAME, || {
            redis_protocol::encode(black_box(frame))
        }));
    }
    if let Wire::Array(elements) = wire {
        assert!(redis_rs::encode(elements) == *payload, "{name}");
        peers.push(Contestant::sender(redis_rs::NAME, || redis_rs::encode(black_box(elements))));
    }
    let ours = Contestant::sender("ours", || black_box(message).encode());
    report.race(&format!("codec/encode/{name}"), ours, peers)
}

/// Each side encodes into a buffer that it has used before.
fn encode_into<M: Message>(
    Case { name, message, payload, .. }: &Case<M>,
    frame: &BorrowedFrame<'_>,
    report: &mut Report<'_>,
) -> io::Result<()> {
    let (mut ours_out, mut peers_out) = (vec![0; payload.len()], vec![0; payload.len()]);
    let written = redis_protocol::encode_into(frame, &mut peers_out);
    assert!(written == Ok(payload.len()) && peers_out == *payload, "{name}");
    let ours = Contestant::new("ours", || black_box(message).encode_into(black_box(&mut ours_out)));
    let peer = Contestant::new(redis_protocol::NAME, || {
        redis_protocol::encode_into(black_box(frame), black_box(&mut peers_out))
    });
    report.race(&format!("codec/encode-into/{name}"), ours, [peer])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::Effort;

    #[test]
    fn all_sides_agree_and_each_line_has_seven_words() {
        let mut out = Vec::new();
        run(&mut Report::new(Effort::TEST, &mut out)).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.split_whitespace().count() == 7), "{text}");
        for name in
            ["codec/decode/set-px/16B", "codec/encode/get-hit/64KiB", "codec/decode/nothing"]
        {
            assert!(text.lines().any(|line| line.starts_with(name)), "{name} in {text}");
        }
    }
}
