use tungstenite::protocol::frame::Frame;

use super::*;

/// Returns a masked frame, as a client sends it.
fn frame(opcode: OpCode, is_final: bool, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut frame = Frame::message(payload.to_vec(), OpCode::Data(Data::Binary), is_final);
    frame.header_mut().opcode = opcode;
    frame.header_mut().mask = Some(mask);
    let mut bytes = Vec::new();
    frame.format(&mut bytes).unwrap();
    bytes
}

const BINARY: OpCode = OpCode::Data(Data::Binary);
const MORE: OpCode = OpCode::Data(Data::Continue);
const PING: OpCode = OpCode::Control(Control::Ping);

#[test]
fn data_are_decoded_from_frames_split_anywhere() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..60 {
        let (mut wire, mut data, mut pings) = (Vec::new(), Vec::new(), Vec::new());
        let mut in_message = false;
        for _ in 0..random.usize(1..12) {
            if random.u8(..4) == 0 {
                let ping = vec![random.u8(..); random.usize(..=CONTROL_MAX)];
                wire.extend(frame(PING, true, &ping, random.u32(..).to_be_bytes()));
                pings.push(ping);
            }
            let length = [0, 1, 125, 126, 200, 65_535, 65_536][random.usize(..7)];
            let payload: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            let opcode = if in_message { MORE } else { BINARY };
            in_message = random.bool();
            wire.extend(frame(opcode, !in_message, &payload, random.u32(..).to_be_bytes()));
            data.extend(payload);
        }
        let (mut frames, mut found, mut ponged) = (FrameDecoder::new(), Vec::new(), Vec::new());
        let mut rest = wire.as_mut_slice();
        while !rest.is_empty() {
            let most = [3, 100, 16 << 10][random.usize(..3)];
            let (part, later) = rest.split_at_mut(random.usize(1..=most).min(rest.len()));
            let (length, event) = frames.decode(part);
            found.extend_from_slice(&part[..length]);
            match event {
                Some(Event::Ping(payload)) => ponged.push(payload.as_slice().to_vec()),
                Some(Event::Close(code)) => panic!("closed with {code}"),
                None => {}
            }
            rest = later;
        }
        assert!(found == data);
        assert_eq!(ponged.last(), pings.last());
        assert!(ponged.iter().all(|ping| pings.contains(ping)));
    }
}

/// Returns the data in `wire` and the close code. Checks that they are the same if the bytes arrive
/// one by one.
#[track_caller]
fn decode(wire: &[u8]) -> (Vec<u8>, Option<u16>) {
    let code = |event| match event {
        Some(Event::Close(code)) => Some(u16::from(code)),
        _ => None,
    };
    let mut at_once = wire.to_vec();
    let (length, event) = FrameDecoder::new().decode(&mut at_once);
    let at_once = (at_once[..length].to_vec(), code(event));
    let (mut frames, mut data, mut end) = (FrameDecoder::new(), Vec::new(), None);
    for byte in wire {
        let mut byte = [*byte];
        let (length, event) = frames.decode(&mut byte);
        data.extend_from_slice(&byte[..length]);
        end = code(event);
        if end.is_some() {
            break;
        }
    }
    assert_eq!(at_once, (data, end));
    at_once
}

#[test]
fn protocol_violation_is_closed_with_its_code() {
    let mask = [1, 2, 3, 4];
    let close = |payload: &[u8]| frame(OpCode::Control(Control::Close), true, payload, mask);
    let huge = [[0x82, 0xff].as_slice(), &[0xff; 8], &mask].concat();
    for (name, wire, code) in [
        ("text", frame(OpCode::Data(Data::Text), true, b"hello", mask), 1003),
        ("not masked", vec![0x82, 1, b'x'], 1002),
        ("a reserved bit", [[0xc2, 0x81].as_slice(), &mask, b"x"].concat(), 1002),
        ("a reserved opcode", [[0x83, 0x81].as_slice(), &mask, b"x"].concat(), 1002),
        ("a reserved control", [[0x8b, 0x80].as_slice(), &mask].concat(), 1002),
        ("a length with its top bit set", huge, 1002),
        ("a continuation without a message", frame(MORE, true, b"x", mask), 1002),
        ("a fragmented ping", frame(PING, false, b"x", mask), 1002),
        ("a ping of 126", frame(PING, true, &[0; 126], mask), 1002),
        ("a close frame", close(&[]), 1000),
        ("a close frame with a code", close(&[0x03, 0xe9, b'x']), 1001),
        ("a close frame with half a code", close(&[3]), 1002),
        ("a close frame with a reserved code", close(&[0x03, 0xed]), 1002),
        ("a close frame with an invalid reason text", close(&[0x03, 0xe8, 0xff]), 1002),
    ] {
        assert_eq!(decode(&wire), (vec![], Some(code)), "{name}");
        let before = frame(BINARY, true, b"before", mask);
        assert_eq!(decode(&[before, wire].concat()), (b"before".to_vec(), Some(code)), "{name}");
    }
    let twice = [frame(BINARY, false, b"a", mask), frame(BINARY, true, b"b", mask)].concat();
    assert_eq!(decode(&twice), (b"a".to_vec(), Some(1002)));
}

#[test]
fn frame_longer_than_memory_is_decoded() {
    let header = [[0x82, 0xff, 0x7f].as_slice(), &[0xff; 7], &[0; 4]].concat();
    let mut wire = [header, vec![b'x'; 1 << 20]].concat();
    assert!(matches!(FrameDecoder::new().decode(&mut wire), (length, None) if length == 1 << 20));
    // The decoder stores only the header and the payload of a control frame.
    assert!(size_of::<FrameDecoder>() <= 192);
}

/// Work is counted in parts of frames: a header in at most two parts, and a payload.
#[test]
fn work_of_a_frame_does_not_depend_on_its_header_length() {
    let mask = [1, 2, 3, 4];
    for (name, payload) in [("one byte", 1), ("a short length", 126), ("a long length", 65_536)] {
        let mut wire = frame(BINARY, true, &vec![b'x'; payload], mask).repeat(20);
        let mut frames = FrameDecoder::new();
        assert_eq!(frames.decode(&mut wire).0, 20 * payload, "{name}");
        assert!(frames.steps <= 3 * 20 + 1, "{name}: {} steps", frames.steps);
    }
    let mut pings = frame(PING, true, b"", mask).repeat(20);
    let mut frames = FrameDecoder::new();
    frames.decode(&mut pings);
    assert!(frames.steps <= 3 * 20 + 1, "pings: {} steps", frames.steps);
}

#[test]
fn client_that_sends_only_frames_without_data_is_closed() {
    let mask = [1, 2, 3, 4];
    let most = usize::try_from(DATALESS_MAX).unwrap();
    let empty = [frame(BINARY, false, b"", mask), frame(MORE, false, b"", mask).repeat(most)];
    let pong = frame(OpCode::Control(Control::Pong), true, b"p", mask);
    for (name, wire) in [
        ("empty frames", empty.concat()),
        ("pings", frame(PING, true, b"p", mask).repeat(most + 1)),
        ("pongs", pong.repeat(most + 1)),
    ] {
        assert_eq!(decode(&wire), (vec![], Some(1008)), "{name}");
        let fewer = &wire[..wire.len() - pong.len().min(wire.len() / (most + 1))];
        assert_eq!(decode(fewer).1, None, "{name}: as many as are allowed");
    }
    // Data, or the time, let the client send more.
    let some = [frame(PING, true, b"p", mask).repeat(most), frame(BINARY, true, b"x", mask)];
    let (data, code) = decode(&some.concat().repeat(3));
    assert_eq!((data, code), (b"xxx".to_vec(), None));
    let mut frames = FrameDecoder::new();
    for _ in 0..3 {
        let (_, event) = frames.decode(&mut frame(PING, true, b"p", mask).repeat(most));
        assert!(matches!(event, Some(Event::Ping(_))) && frames.is_dataless());
        frames.reset_dataless();
    }
}
