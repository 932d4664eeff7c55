//! Connections: too many, too slow, and unauthorized ones.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use statestore_server::rustls;
use statestore_server::rustls::pki_types::ServerName;

use super::{ms, name};
use crate::abuse::clock;
use crate::abuse::packets::{self, ConnectFields};
use crate::abuse::scene::Scene;
use crate::abuse::server::CONNECTIONS;

/// Time for which the store is stopped.
pub(super) const STOPPED: Duration = Duration::from_secs(3);

/// More connections than the limit.
const TOO_MANY: usize = CONNECTIONS + 100;

pub(super) fn silent(scene: &Scene) {
    scene.run_clients(TOO_MANY, ms(20), |_| scene.open(), |_, peer| peer.drain());
}

pub(super) fn slow_connect(scene: &Scene) {
    let packet = packets::connect("evil", ConnectFields::default());
    scene.run_clients(
        TOO_MANY,
        ms(100),
        |_| scene.open(),
        |_, peer| {
            if let Some(byte) = packet[..packet.len() - 1].get(peer.turns as usize) {
                peer.push(&[*byte]);
            }
            peer.drain();
        },
    );
}

/// Paced: at most one connection every 200 microseconds.
pub(super) fn flood(scene: &Scene) {
    while !scene.is_over() {
        drop(scene.open());
        clock::pause(Duration::from_micros(100));
    }
}

pub(super) fn clients(scene: &Scene) {
    let mut at = 0;
    while !scene.is_over() {
        at += 1;
        drop(scene.join(&name(at), ConnectFields::default()));
    }
}

pub(super) fn pings_unread(scene: &Scene) {
    let pings = packets::PINGREQ.repeat(500);
    let join = |at| scene.join(&name(at), ConnectFields::default());
    scene.run_clients(20, ms(2), join, |_, peer| {
        peer.push(&pings);
        peer.ignore();
    });
}

pub(super) fn acknowledgements(scene: &Scene) {
    let acks = packets::puback(NonZeroU16::MAX).repeat(4_000);
    let join = |at| scene.join(&name(at), ConnectFields::default());
    scene.run_clients(100, ms(1), join, |_, peer| {
        peer.push(&acks);
        peer.drain();
    });
}

pub(super) fn passwords(scene: &Scene) {
    let guess = "p".repeat(3_000);
    let login = Some(("honest", &*guess));
    let packet = packets::connect("evil", ConnectFields { login, ..ConnectFields::default() });
    scene.run_clients(
        100,
        ms(5),
        |_| scene.open(),
        |_, peer| {
            if peer.turns == 0 {
                peer.push(&packet);
            }
            peer.drain();
        },
    );
}

/// Sends the beginning of a `ClientHello`, a few bytes at a time.
pub(super) fn handshakes(scene: &Scene) {
    let mut hello = vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    hello.resize(500, b'x');
    scene.run_clients(
        300,
        ms(5),
        |_| scene.open(),
        |_, peer| {
            let from = peer.turns as usize * 20;
            if let Some(piece) = hello.get(from..from + 20) {
                peer.push(piece);
            }
            peer.drain();
        },
    );
}

/// Each makes the store agree on a key and sign. Paced like the flood.
pub(super) fn hellos(scene: &Scene) {
    let Some(hello) = client_hello() else { return };
    while !scene.is_over() {
        if let Ok(mut peer) = scene.open() {
            peer.push(&hello);
        }
        clock::pause(Duration::from_micros(100));
    }
}

/// A `ClientHello` that the store accepts.
fn client_hello() -> Option<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().ok()?;
    let config = config.with_root_certificates(rustls::RootCertStore::empty());
    let name = ServerName::try_from("localhost").ok()?;
    let config = Arc::new(config.with_no_client_auth());
    let mut bytes = Vec::new();
    rustls::ClientConnection::new(config, name).ok()?.write_tls(&mut bytes).ok()?;
    Some(bytes)
}

/// Paced like the flood: at most ten requests per millisecond.
pub(super) fn scrapes(scene: &Scene) {
    let scrape = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    scene.run_clients(
        10,
        ms(1),
        |_| scene.open(),
        |_, peer| {
            if peer.turns == 0 {
                peer.push(scrape);
            }
            peer.drain();
        },
    );
}

pub(super) fn stopped(scene: &Scene) {
    let Some(pid) = scene.pid else { return };
    let _ = kill_process(pid, Signal::STOP);
    clock::pause(STOPPED);
    let _ = kill_process(pid, Signal::CONT);
    scene.hold(());
}
