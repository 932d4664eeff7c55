//! Subscriptions: deep ones, shared ones, and many.

use statestore_mqtt::Qos;

use super::{messages, ms, name};
use crate::abuse::packets::{self, ConnectFields};
use crate::abuse::scene::Scene;

/// A SUBSCRIBE with `count` filters, built from their numbers.
fn many(count: usize, filter: impl Fn(usize) -> String) -> Vec<u8> {
    let filters: Vec<String> = (0..count).map(filter).collect();
    let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
    packets::subscribe(&filters, Qos::AtMostOnce).to_vec()
}

/// Filters that match one topic in every possible way, and deep filters that need a node for each
/// level.
pub(super) fn filters(scene: &Scene) {
    let wild = many(900, |at| {
        let level = |bit: usize| if at >> bit & 1 == 0 { "+" } else { "a" };
        (0..10).map(level).collect::<Vec<_>>().join("/")
    });
    let topic = ["a"; 10].join("/");
    let deep = "d/".repeat(190);
    let join = |at| scene.join(&name(at), ConnectFields::default());
    scene.run_clients(10, ms(2), join, |at, peer| {
        peer.drain();
        match peer.turns {
            0 => _ = peer.push(&wild),
            turn @ 1..20 => {
                let deep = many(5, |filter| format!("{at}/{turn}/{filter}/{deep}"));
                peer.push(&deep);
            }
            _ if at == 0 => _ = peer.publish(&topic, b"x", Qos::AtMostOnce),
            _ => {}
        }
    });
}

pub(super) fn times_retained(scene: &Scene) {
    messages::retain(scene, 5_000);
    let none = many(999, |at| format!("+/{at}x/#"));
    let join = |at| scene.join(&name(at), ConnectFields::default());
    scene.run_clients(3, ms(20), join, |_, peer| {
        peer.drain();
        peer.push(&none);
    });
}

pub(super) fn shares(scene: &Scene) {
    let join = |at| scene.join(&name(at), ConnectFields::default());
    scene.run_clients(10, ms(5), join, |at, peer| {
        peer.drain();
        if peer.turns == 0 {
            peer.push(&many(100, |share| format!("$share/{at}-{share}/#")));
        } else if at == 0 {
            peer.publish("evil", b"x", Qos::AtMostOnce);
        }
    });
}

/// Paced: a packet costs the store two milliseconds; without a pause it would be fully busy.
pub(super) fn churn(scene: &Scene) {
    let subscribe = many(999, |at| format!("evil/{at}/+/#"));
    // The same filters for UNSUBSCRIBE.
    let filters: Vec<String> = (0..999).map(|at| format!("evil/{at}/+/#")).collect();
    let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
    let end = packets::unsubscribe(&filters);
    let join = |at| scene.join(&name(at), ConnectFields::default());
    scene.run_clients(3, ms(50), join, |_, peer| {
        peer.drain();
        peer.push(&subscribe);
        peer.push(&end);
    });
}
