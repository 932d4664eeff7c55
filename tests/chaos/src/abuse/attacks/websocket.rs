//! MQTT over WebSocket: bytes that are not packets.

use std::io;
use std::time::Duration;

use super::{Attack, Needs, attack, ms, name};
use crate::abuse::packets::{self, ConnectFields};
use crate::abuse::scene::{Peer, Scene};

const REQUEST: &[u8] = b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";

/// Headers of frames with a mask of zeros: the start of a message without data, its continuation, a
/// ping, and a message of one byte.
const EMPTY: [u8; 6] = [0x02, 0x80, 0, 0, 0, 0];
const MORE: [u8; 6] = [0x00, 0x80, 0, 0, 0, 0];
const PING: [u8; 6] = [0x89, 0x80, 0, 0, 0, 0];
const ONE_BYTE: [u8; 6] = [0x82, 0x81, 0, 0, 0, 0];

/// Frames that are sent at a time: as many as the store reads at a time.
const FRAMES: usize = (16 << 10) / EMPTY.len();

pub(super) fn all() -> [Attack; 5] {
    [
        attack("websocket-empty", "WebSocket frames without data, before the login", empty_frames),
        attack("websocket-pings", "WebSocket pings without data", pings),
        attack(
            "websocket-bytes",
            "a large packet in WebSocket frames of one byte",
            one_byte_frames,
        ),
        attack(
            "websocket-request",
            "HTTP requests for a WebSocket, one byte at a time without a pause",
            slow_request,
        ),
        attack("websocket-closing", "WebSocket frames after the close frame of the store", closing),
    ]
    .map(|attack| attack.needs(Needs::WebSocket).with_newcomers())
}

/// Opens a WebSocket without sending a packet.
fn open(scene: &Scene) -> io::Result<Peer<'_>> {
    let mut peer = scene.open()?;
    peer.push(REQUEST);
    peer.skip_until(b"\r\n\r\n")?;
    Ok(peer)
}

/// Bytes as frames of one byte.
fn one_by_one(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| ONE_BYTE.into_iter().chain([*byte])).collect()
}

fn empty_frames(scene: &Scene) {
    let frames = MORE.repeat(FRAMES);
    scene.run_clients(
        200,
        Duration::ZERO,
        |_| open(scene),
        |_, peer| {
            peer.push(if peer.turns == 0 { &EMPTY } else { &frames });
            peer.drain();
        },
    );
}

fn pings(scene: &Scene) {
    let frames = PING.repeat(FRAMES);
    scene.run_clients(
        200,
        Duration::ZERO,
        |_| open(scene),
        |_, peer| {
            peer.push(&frames);
            peer.drain();
        },
    );
}

fn one_byte_frames(scene: &Scene) {
    // A PUBLISH of a megabyte.
    let begin = one_by_one(&[0x30, 0xff, 0xff, 0x3f, 0, 1, b't']);
    let more = one_by_one(&[b'x'; 2_000]);
    let join = |at| {
        let mut peer = open(scene)?;
        peer.push(&one_by_one(&packets::connect(&name(at), ConnectFields::default())));
        Ok(peer)
    };
    scene.run_clients(200, ms(1), join, |_, peer| {
        match peer.turns {
            0 => _ = peer.push(&begin),
            1..500 => _ = peer.push(&more),
            _ => {}
        }
        peer.drain();
    });
}

fn slow_request(scene: &Scene) {
    scene.run_clients(
        200,
        Duration::ZERO,
        |_| scene.open(),
        |_, peer| {
            // The end of the request is never sent.
            match REQUEST[..REQUEST.len() - 4].get(peer.turns as usize) {
                Some(byte) => peer.push(&[*byte]),
                None => peer.push(b"x"),
            };
            peer.drain();
        },
    );
}

fn closing(scene: &Scene) {
    let more = MORE.repeat(FRAMES);
    // The store closes the WebSocket after a packet that is not a CONNECT.
    let join = |_| {
        let mut peer = open(scene)?;
        peer.push(&one_by_one(&packets::connect("", ConnectFields::default())));
        peer.push(&one_by_one(&[0xf0, 0]));
        Ok(peer)
    };
    scene.run_clients(200, Duration::ZERO, join, |_, peer| {
        peer.push(&more);
        peer.drain();
    });
}
