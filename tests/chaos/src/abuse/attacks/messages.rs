//! Messages that are not read or acknowledged, and too many messages.

use statestore_mqtt::Qos;
use statestore_mqtt::property::Property;

use super::{KEPT, ms, name, subscriber};
use crate::abuse::packets::{self, ConnectFields};
use crate::abuse::scene::Scene;

pub(super) fn unacknowledged(scene: &Scene) {
    let payload = vec![b'x'; 16 << 10];
    let join = |at| match at {
        0 => scene.join("evil-from", ConnectFields::default()),
        _ => subscriber(scene, &name(at), KEPT, &["evil"], Qos::ExactlyOnce),
    };
    scene.run_clients(11, ms(2), join, |at, peer| {
        peer.drain();
        if at == 0 {
            for _ in 0..5 {
                peer.publish("evil", &payload, Qos::AtLeastOnce);
            }
        }
    });
}

pub(super) fn no_pubrel(scene: &Scene) {
    let join = |at| scene.join(&name(at), KEPT);
    scene.run_clients(20, ms(2), join, |at, peer| {
        peer.drain();
        for _ in 0..20 {
            peer.publish(&name(at), &[b'x'; 100], Qos::ExactlyOnce);
        }
    });
}

pub(super) fn unread(scene: &Scene) {
    let payload = vec![b'x'; 128 << 10];
    let join = |at| match at {
        0 => scene.join("evil-from", ConnectFields::default()),
        _ => subscriber(scene, &name(at), ConnectFields::default(), &["evil"], Qos::AtLeastOnce),
    };
    scene.run_clients(51, ms(10), join, |at, peer| {
        if at == 0 {
            peer.drain();
            peer.publish("evil", &payload, Qos::AtLeastOnce);
        } else {
            peer.ignore();
        }
    });
}

/// Sends a topic of 60 KB as an alias of three bytes, to subscribers that would receive the whole
/// topic.
pub(super) fn aliases(scene: &Scene) {
    let topic = "x".repeat(60 << 10);
    let join = |at| match at {
        0..10 => scene.join(&name(at), ConnectFields::default()),
        _ => subscriber(scene, &name(at), ConnectFields::default(), &["#"], Qos::AtMostOnce),
    };
    scene.run_clients(20, ms(5), join, |at, peer| {
        peer.drain();
        if at >= 10 {
            return;
        }
        if peer.turns == 0 {
            for alias in 1..=16 {
                let topic = format!("{at}/{alias}/{topic}");
                let id = peer.next_id();
                let alias = [Property::TopicAlias(alias)];
                peer.push(&packets::publish(&topic, b"", (Qos::AtMostOnce, id), &alias));
            }
        }
        let id = peer.next_id();
        let tiny = packets::publish("", b"", (Qos::AtMostOnce, id), &[Property::TopicAlias(1)]);
        peer.push(&tiny.repeat(20));
    });
}

/// Paced: without a pause, two threads of the attacker would compete with the store for the
/// processors.
pub(super) fn qos0_flood(scene: &Scene) {
    let join = |at| match at {
        0..4 => scene.join(&name(at), ConnectFields::default()),
        _ => subscriber(scene, &name(at), ConnectFields::default(), &["evil/+"], Qos::AtMostOnce),
    };
    let id = std::num::NonZeroU16::MIN;
    let one = packets::publish("evil/topic", b"payload", (Qos::AtMostOnce, id), &[]);
    let piece = one.repeat(50);
    scene.run_clients(8, ms(2), join, |at, peer| {
        peer.drain();
        if at < 4 {
            peer.push(&piece);
        }
    });
}

pub(super) fn properties(scene: &Scene) {
    let properties = vec![Property::User("", ""); 10_000];
    let id = std::num::NonZeroU16::MIN;
    let packet = packets::publish("evil", b"", (Qos::AtLeastOnce, id), &properties);
    let join = |at| match at {
        0 => scene.join("evil-from", ConnectFields::default()),
        _ => subscriber(scene, &name(at), KEPT, &["evil"], Qos::AtLeastOnce),
    };
    scene.run_clients(10, ms(5), join, |at, peer| {
        peer.read_and_acknowledge();
        if at == 0 {
            peer.push(&packet);
            peer.push(&packet);
        }
    });
}

pub(super) fn retained_flood(scene: &Scene) {
    let payload = [b'x'; 1_000];
    let join = |at| scene.join(&name(at), ConnectFields::default());
    scene.run_clients(4, ms(2), join, |at, peer| {
        peer.drain();
        for number in 0..10 {
            let topic = format!("evil/{at}/{}/{number}", peer.turns);
            peer.push(&packets::retained(&topic, &payload));
        }
    });
}

/// Retains this many messages.
pub(super) fn retain(scene: &Scene, count: usize) {
    let Ok(mut peer) = scene.join("evil-retains", ConnectFields::default()) else { return };
    for at in 0..count {
        while !peer.push(&packets::retained(&format!("kept/{at}"), b"x")) {
            if scene.is_over() || peer.is_ended() {
                return;
            }
            crate::abuse::clock::pause(ms(1));
        }
    }
    peer.push(&packets::PINGREQ);
    let _ = peer.packet();
}

pub(super) fn retained_read(scene: &Scene) {
    retain(scene, 5_000);
    let join = |at| scene.join(&name(at), ConnectFields::default());
    let subscribe =
        packets::subscribe(&["kept/#", "#", "kept/+", "+/+", "kept/+/#"], Qos::AtLeastOnce);
    scene.run_clients(5, ms(5), join, |_, peer| {
        peer.read_and_acknowledge();
        peer.push(&subscribe);
    });
}
