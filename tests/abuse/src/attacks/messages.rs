//! Messages: those that nobody takes, and those that are too many.

use statestore_mqtt::Qos;
use statestore_mqtt::property::Property;

use super::{KEPT, ms, name, subscriber};
use crate::packets::{self, Hello};
use crate::scene::Scene;

pub(super) fn unacknowledged(scene: &Scene) {
    let payload = vec![b'x'; 16 << 10];
    let join = |at| match at {
        0 => scene.join("evil-from", Hello::default()),
        _ => subscriber(scene, &name(at), KEPT, &["evil"], Qos::ExactlyOnce),
    };
    scene.crew(11, ms(2), join, |at, peer| {
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
    scene.crew(20, ms(2), join, |at, peer| {
        peer.drain();
        for _ in 0..20 {
            peer.publish(&name(at), &[b'x'; 100], Qos::ExactlyOnce);
        }
    });
}

pub(super) fn deaf(scene: &Scene) {
    let payload = vec![b'x'; 128 << 10];
    let join = |at| match at {
        0 => scene.join("evil-from", Hello::default()),
        _ => subscriber(scene, &name(at), Hello::default(), &["evil"], Qos::AtLeastOnce),
    };
    scene.crew(51, ms(10), join, |at, peer| {
        if at == 0 {
            peer.drain();
            peer.publish("evil", &payload, Qos::AtLeastOnce);
        } else {
            peer.ignore();
        }
    });
}

/// A topic of 60 KB behind three bytes, to subscribers that each would have it in full.
pub(super) fn aliases(scene: &Scene) {
    let topic = "x".repeat(60 << 10);
    let join = |at| match at {
        0..10 => scene.join(&name(at), Hello::default()),
        _ => subscriber(scene, &name(at), Hello::default(), &["#"], Qos::AtMostOnce),
    };
    scene.crew(20, ms(5), join, |at, peer| {
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

/// Paced: without a pause two threads of the attacker would share the processors with the store.
pub(super) fn qos0_flood(scene: &Scene) {
    let join = |at| match at {
        0..4 => scene.join(&name(at), Hello::default()),
        _ => subscriber(scene, &name(at), Hello::default(), &["evil/+"], Qos::AtMostOnce),
    };
    let id = std::num::NonZeroU16::MIN;
    let one = packets::publish("evil/topic", b"payload", (Qos::AtMostOnce, id), &[]);
    let piece = one.repeat(50);
    scene.crew(8, ms(2), join, |at, peer| {
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
        0 => scene.join("evil-from", Hello::default()),
        _ => subscriber(scene, &name(at), KEPT, &["evil"], Qos::AtLeastOnce),
    };
    scene.crew(10, ms(5), join, |at, peer| {
        peer.listen();
        if at == 0 {
            peer.push(&packet);
            peer.push(&packet);
        }
    });
}

pub(super) fn retained_flood(scene: &Scene) {
    let payload = [b'x'; 1_000];
    let join = |at| scene.join(&name(at), Hello::default());
    scene.crew(4, ms(2), join, |at, peer| {
        peer.drain();
        for number in 0..10 {
            let topic = format!("evil/{at}/{}/{number}", peer.turns);
            peer.push(&packets::retained(&topic, &payload));
        }
    });
}

/// Leaves so many retained messages; how many clients there are to follow is up to the caller.
pub(super) fn retain(scene: &Scene, count: usize) {
    let Ok(mut peer) = scene.join("evil-retains", Hello::default()) else { return };
    for at in 0..count {
        while !peer.push(&packets::retained(&format!("kept/{at}"), b"x")) {
            if scene.is_over() || peer.is_ended() {
                return;
            }
            crate::clock::pause(ms(1));
        }
    }
    peer.push(&packets::PINGREQ);
    let _ = peer.packet();
}

pub(super) fn retained_read(scene: &Scene) {
    retain(scene, 5_000);
    let join = |at| scene.join(&name(at), Hello::default());
    let ask = packets::subscribe(&["kept/#", "#", "kept/+", "+/+", "kept/+/#"], Qos::AtLeastOnce);
    scene.crew(5, ms(5), join, |_, peer| {
        peer.listen();
        peer.push(&ask);
    });
}
