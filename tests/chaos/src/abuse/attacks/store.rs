//! Expensive requests, and requests whose responses are not read.

use std::num::NonZeroU16;

use statestore_mqtt::Qos;
use statestore_mqtt::property::Property;
use statestore_proto::topic::REQUEST;

use super::{Attack, attack, ms, name, subscriber};
use crate::abuse::honest::HONEST;
use crate::abuse::packets::{self, ConnectFields};
use crate::abuse::scene::{Peer, Scene};

/// Connects a client that subscribes to its responses.
fn requester<'a>(scene: &'a Scene, at: usize) -> std::io::Result<Peer<'a>> {
    let topic = packets::response_topic(&name(at));
    subscriber(scene, &name(at), ConnectFields::default(), &[&topic], Qos::AtLeastOnce)
}

/// Sets keys, and waits for the replies.
fn prepare(scene: &Scene, requests: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) {
    let Ok(mut peer) = requester(scene, 0) else { return };
    for (key, value) in requests {
        peer.request(&name(0), &[b"SET", &key, &value]);
        // The PUBACK and the response.
        while !scene.is_over()
            && !matches!(peer.packet().as_deref(), Ok([0x30..=0x3f, ..]) | Err(_))
        {}
        peer.read_and_acknowledge();
    }
}

pub(super) fn all() -> [Attack; 8] {
    [
        attack(
            "requests-unread",
            "a hundred clients that request large values and do not read",
            requests_unread,
        ),
        attack("listings", "SCAN of many keys, by many clients at once", listings),
        attack("lazy-watchers", "twenty watchers that do not acknowledge", lazy_watchers),
        attack("set-flood", "fifty clients that set large values", set_flood),
        attack("set-small", "fifty clients that set small values", set_small),
        attack("registrations", "thousands of KEYNOTIFY", registrations),
        attack("reflection", "replies to topics of the honest client", reflection),
        attack("nonsense", "malformed requests", nonsense),
    ]
}

fn requests_unread(scene: &Scene) {
    prepare(scene, [(b"large".to_vec(), vec![b'v'; 256 << 10])].into_iter());
    scene.run_clients(
        100,
        ms(5),
        |at| requester(scene, at),
        |at, peer| {
            for _ in 0..5 {
                peer.request(&name(at), &[b"GET", b"large"]);
            }
            peer.ignore();
        },
    );
}

fn listings(scene: &Scene) {
    prepare(
        scene,
        (0..300).map(|at| (format!("listed/{at}/{}", "x".repeat(200)).into_bytes(), b"1".to_vec())),
    );
    scene.run_clients(
        20,
        ms(20),
        |at| requester(scene, at),
        |at, peer| {
            peer.read_and_acknowledge();
            peer.request(&name(at), &[b"SCAN", b"*x*x*x*y"]);
            peer.request(&name(at), &[b"SCAN", b"*"]);
        },
    );
}

/// The first client sets a large value that the others watch.
fn lazy_watchers(scene: &Scene) {
    let value = vec![b'v'; 128 << 10];
    scene.run_clients(
        21,
        ms(10),
        |at| requester(scene, at),
        |at, peer| match (at, peer.turns) {
            (0, _) => {
                peer.read_and_acknowledge();
                peer.request(&name(at), &[b"SET", b"watched", &value]);
            }
            (_, 0) => _ = peer.request(&name(at), &[b"KEYNOTIFY", b"watched"]),
            _ => peer.ignore(),
        },
    );
}

/// Paced: each client sends 100 KB every 100 ms, which is 50 MB per second in total.
fn set_flood(scene: &Scene) {
    let value = vec![b'v'; 100 << 10];
    scene.run_clients(
        50,
        ms(100),
        |at| requester(scene, at),
        |at, peer| {
            peer.read_and_acknowledge();
            let key = format!("evil/{at}/{}", peer.turns % 10);
            peer.request(&name(at), &[b"SET", key.as_bytes(), &value]);
        },
    );
}

fn set_small(scene: &Scene) {
    scene.run_clients(
        50,
        ms(10),
        |at| requester(scene, at),
        |at, peer| {
            peer.read_and_acknowledge();
            for number in 0..5 {
                let key = format!("evil/{at}/{}/{number}", peer.turns);
                peer.request(&name(at), &[b"SET", key.as_bytes(), b"v"]);
            }
        },
    );
}

fn registrations(scene: &Scene) {
    scene.run_clients(
        10,
        ms(2),
        |at| requester(scene, at),
        |at, peer| {
            peer.read_and_acknowledge();
            for number in 0..5 {
                let key = format!("evil/{}/{number}/{}", peer.turns, "k".repeat(1_000));
                peer.request(&name(at), &[b"KEYNOTIFY", key.as_bytes()]);
            }
        },
    );
}

/// Requests replies to the honest client's response topic, and sends requests in its name.
fn reflection(scene: &Scene) {
    let theirs = packets::response_topic(HONEST);
    scene.run_clients(
        10,
        ms(5),
        |at| requester(scene, at),
        |at, peer| {
            peer.read_and_acknowledge();
            let id = peer.next_id();
            match (at + peer.turns as usize) % 3 {
                0 => {
                    _ = peer.push(&packets::request_to(&name(at), &theirs, id, &[b"GET", b"large"]))
                }
                1 => _ = peer.push(&claimed(id)),
                _ => _ = peer.request(&name(at), &[b"KEYNOTIFY", b"honest/key"]),
            }
        },
    );
}

/// A request in the name of the honest client.
fn claimed(id: NonZeroU16) -> Vec<u8> {
    let topic = packets::response_topic("evil-0");
    let properties = [
        Property::ResponseTopic(&topic),
        Property::CorrelationData(b"0123456789abcdef"),
        Property::User("__srcId", HONEST),
    ];
    let payload = b"*3\r\n$3\r\nSET\r\n$10\r\nhonest/key\r\n$1\r\n0\r\n";
    packets::publish(REQUEST, payload, (Qos::AtLeastOnce, id), &properties).to_vec()
}

fn nonsense(scene: &Scene) {
    let mut random = fastrand::Rng::with_seed(2);
    let seed = b"*5\r\n$3\r\nSET\r\n$4\r\nevil\r\n$1\r\nv\r\n$2\r\nPX\r\n$9\r\n999999999\r\n";
    scene.run_clients(
        20,
        ms(2),
        |at| requester(scene, at),
        |at, peer| {
            peer.read_and_acknowledge();
            let mut payload = seed.to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..payload.len());
                payload[at] = random.u8(..);
            }
            payload.truncate(random.usize(..=payload.len()));
            let (id, topic) = (peer.next_id(), packets::response_topic(&name(at)));
            let correlation = random.u128(..).to_be_bytes();
            let properties =
                [Property::ResponseTopic(&topic), Property::CorrelationData(&correlation)];
            peer.push(&packets::publish(REQUEST, &payload, (Qos::AtLeastOnce, id), &properties));
        },
    );
}
