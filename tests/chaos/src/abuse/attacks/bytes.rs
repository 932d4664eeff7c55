//! Malformed and incomplete packets.

use std::time::Duration;

use statestore_mqtt::Qos;

use super::{KEPT, ms, name};
use crate::abuse::clock;
use crate::abuse::packets::{self, ConnectFields};
use crate::abuse::scene::{Peer, Scene};

/// Packets, most of them malformed, each with the statement of MQTT 5 that applies to it.
const TABLE: &str = include_str!("../../../../../mqtt/tests/it/packets.txt");

pub(super) fn half_packets(scene: &Scene) {
    // A PUBLISH of a megabyte, in pieces; the end is never sent.
    let begin = [0x30, 0xff, 0xff, 0x3f, 0, 1, b't'];
    let join = |at| scene.join(&name(at), ConnectFields::default());
    scene.run_clients(100, ms(5), join, |_, peer| {
        match peer.turns {
            0 => _ = peer.push(&begin),
            1..63 => _ = peer.push(&[b'x'; 16 << 10]),
            _ => {}
        }
        peer.drain();
    });
}

pub(super) fn slow_packets(scene: &Scene) {
    let id = std::num::NonZeroU16::MIN;
    let packet = packets::publish("evil", &[b'x'; 200], (Qos::AtLeastOnce, id), &[]);
    let join = |at| scene.join(&name(at), ConnectFields::default());
    scene.run_clients(300, ms(5), join, |_, peer| {
        let at = peer.turns as usize % packet.len();
        peer.push(&packet[at..=at]);
        peer.drain();
    });
}

/// Half of the clients never complete their CONNECT, the others never complete their PUBLISH.
pub(super) fn split_packets(scene: &Scene) {
    let begin = [0x30, 0xff, 0xff, 0x3f, 0, 1, b't'];
    let connect = packets::connect("evil", ConnectFields::default());
    let join = |at| match at % 2 {
        0 => scene.open(),
        _ => scene.join(&name(at), ConnectFields::default()),
    };
    scene.run_clients(400, Duration::ZERO, join, |at, peer| {
        let packet = if at % 2 == 0 { &connect[..connect.len() - 1] } else { &begin[..] };
        let byte = packet.get(peer.turns as usize);
        // The CONNECT ends before its last byte; the PUBLISH has a megabyte.
        if byte.is_some() || at % 2 == 1 {
            peer.push(&[*byte.unwrap_or(&b'x')]);
        }
        peer.drain();
    });
}

/// Opens a connection, optionally with a CONNECT.
fn open_peer<'a>(scene: &'a Scene, is_accepted: bool) -> Option<Peer<'a>> {
    let peer = if is_accepted { scene.join("evil", KEPT) } else { scene.open() };
    peer.ok()
}

/// Sends bytes on a new connection, and reads the output.
fn send_once(scene: &Scene, is_accepted: bool, bytes: &[u8]) {
    if let Some(mut peer) = open_peer(scene, is_accepted) {
        peer.push(bytes);
        clock::pause(ms(1));
        peer.drain();
    }
}

pub(super) fn malformed(scene: &Scene) {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    let packets = rows.filter_map(|line| hex::decode(line.split('\t').nth(2)?).ok());
    let packets: Vec<Vec<u8>> = packets.collect();
    assert!(packets.len() > 500, "the table was read");
    for is_accepted in [true, false].into_iter().cycle() {
        for packet in &packets {
            if scene.is_over() {
                return;
            }
            send_once(scene, is_accepted, packet);
        }
    }
}

pub(super) fn random(scene: &Scene) {
    let mut random = fastrand::Rng::with_seed(1);
    let id = std::num::NonZeroU16::MIN;
    let seeds: [&[u8]; 9] = [
        &packets::connect("evil", KEPT),
        &packets::publish("a/b", b"xyz", (Qos::ExactlyOnce, id), &[]),
        &packets::subscribe(&["a/#", "$share/q/+"], Qos::ExactlyOnce),
        &packets::unsubscribe(&["a/#"]),
        &packets::request("evil", id, &[b"SET", b"evil", b"1", b"PX", b"1000"]),
        &packets::puback(id),
        &[0x62, 2, 0, 1],
        &[0x50, 2, 0, 1],
        &packets::PINGREQ,
    ];
    while !scene.is_over() {
        let mut bytes = Vec::new();
        for _ in 0..random.usize(1..6) {
            bytes.extend_from_slice(seeds[random.usize(..seeds.len())]);
        }
        for _ in 0..random.usize(..4) {
            let at = random.usize(..bytes.len());
            bytes[at] = *random.choice(&[0, 1, 0x7f, 0x80, 0xff]).unwrap_or(&0) ^ random.u8(..2);
        }
        bytes.truncate(random.usize(1..=bytes.len()));
        send_once(scene, random.u8(..10) < 8, &bytes);
    }
}

pub(super) fn oversized(scene: &Scene) {
    let packets: [&[u8]; 5] = [
        // The maximum length of a PUBLISH, a SUBSCRIBE and a CONNECT.
        &[0x30, 0xff, 0xff, 0xff, 0x7f],
        &[0x82, 0xff, 0xff, 0xff, 0x7f],
        &[0x10, 0xff, 0xff, 0xff, 0x7f],
        // Properties, and a topic, that exceed their packet.
        &[0x30, 8, 0, 1, b't', 0xff, 0xff, 0xff, 0x7f, 0],
        &[0x30, 4, 0xff, 0xff, b't', 0],
    ];
    let more = [b'x'; 16 << 10];
    for (packet, is_accepted) in packets.iter().flat_map(|one| [(one, true), (one, false)]).cycle()
    {
        if scene.is_over() {
            return;
        }
        if let Some(mut peer) = open_peer(scene, is_accepted) {
            peer.push(packet);
            peer.push(&more);
            clock::pause(ms(1));
            peer.drain();
        }
    }
}
