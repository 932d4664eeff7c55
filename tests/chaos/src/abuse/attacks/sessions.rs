//! Sessions: disconnected clients, and takeovers.

use statestore_mqtt::Qos;
use statestore_mqtt::packet::Will;
use statestore_mqtt::property::Property;

use super::{DAY, KEPT, ms, name, subscriber};
use crate::abuse::clock;
use crate::abuse::honest::HONEST;
use crate::abuse::packets::{self, ConnectFields};
use crate::abuse::scene::Scene;

/// Runs a step for one client after the other, with the number of the client.
fn one_by_one(scene: &Scene, mut act: impl FnMut(usize)) {
    let mut at = 0;
    while !scene.is_over() {
        act(at);
        at += 1;
        clock::pause(ms(1));
    }
}

pub(super) fn wills_away(scene: &Scene) {
    let payload = vec![b'w'; 3_500];
    let later = [Property::WillDelay(DAY)];
    one_by_one(scene, |at| {
        let will = Will {
            qos: Qos::AtLeastOnce,
            retain: true,
            properties: &later[..],
            topic: "evil",
            payload: &payload,
        };
        let fields = ConnectFields { will: Some(will), ..KEPT };
        // The connection ends without DISCONNECT.
        drop(scene.join(&name(at), fields));
    });
}

pub(super) fn wills_due(scene: &Scene) {
    let listening: Vec<_> = (0..100)
        .filter_map(|at| {
            let id = format!("evil-reader-{at}");
            subscriber(scene, &id, ConnectFields::default(), &["evil"], Qos::AtMostOnce).ok()
        })
        .collect();
    let mut listening = listening;
    one_by_one(scene, |at| {
        let soon = [Property::WillDelay(1)];
        let will = Will {
            qos: Qos::AtMostOnce,
            retain: false,
            properties: &soon[..],
            topic: "evil",
            payload: b"w",
        };
        drop(scene.join(&name(at), ConnectFields { will: Some(will), ..KEPT }));
        if at % 50 == 0 {
            listening.iter_mut().for_each(crate::abuse::scene::Peer::drain);
        }
    });
}

pub(super) fn sessions(scene: &Scene) {
    one_by_one(scene, |at| {
        if let Ok(mut peer) = scene.join(&name(at), KEPT) {
            peer.push(&packets::subscribe(&["evil/+/a", "evil/b/#"], Qos::ExactlyOnce));
            peer.push(&packets::DISCONNECT);
        }
    });
}

pub(super) fn queues_away(scene: &Scene) {
    for at in 0..100 {
        if let Ok(mut peer) = subscriber(scene, &name(at), KEPT, &["evil"], Qos::AtLeastOnce) {
            peer.push(&packets::DISCONNECT);
        }
    }
    let join = |_| scene.join("evil-from", ConnectFields::default());
    scene.run_clients(1, ms(2), join, |_, peer| {
        peer.drain();
        peer.publish("evil", &[b'x'; 4_000], Qos::AtLeastOnce);
    });
}

pub(super) fn takeover(scene: &Scene) {
    let mut last = None;
    one_by_one(scene, |_| {
        last = subscriber(scene, "evil", KEPT, &["evil/#"], Qos::AtLeastOnce)
            .ok()
            .or_else(|| last.take());
    });
}

/// Paced, so that the honest client can be served in between.
pub(super) fn takeover_honest(scene: &Scene) {
    let mut last = None;
    while !scene.is_over() {
        last = scene.join(HONEST, ConnectFields::default()).ok().or_else(|| last.take());
        clock::pause(ms(50));
    }
}
