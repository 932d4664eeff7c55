//! The table of attacks.

mod bytes;
mod connections;
mod messages;
mod sessions;
mod store;
mod subscriptions;
mod websocket;

use std::io;
use std::time::Duration;

use statestore_mqtt::Qos;

use crate::abuse::packets::{self, ConnectFields};
use crate::abuse::scene::{Peer, Scene};

/// Options that the store needs for an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Passwords,
    Tls,
    /// A listener for MQTT over WebSocket, which is the target of the attack.
    WebSocket,
    /// A listener for metrics, which is the target of the attack.
    Metrics,
}

pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// Description of the attack.
    pub(crate) about: &'static str,
    pub(crate) act: fn(&Scene),
    pub(crate) needs: Needs,
    /// Time for which the attack stops the process of the store.
    pub(crate) stopped: Duration,
    /// True if the honest client may lose its connection, but must be able to reconnect.
    pub(crate) may_be_lost: bool,
    /// True if other honest clients connect during the attack.
    pub(crate) has_newcomers: bool,
}

const fn attack(name: &'static str, about: &'static str, act: fn(&Scene)) -> Attack {
    let (needs, stopped) = (Needs::Nothing, Duration::ZERO);
    Attack { name, about, act, needs, stopped, may_be_lost: false, has_newcomers: false }
}

impl Attack {
    const fn needs(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }

    /// Lets other honest clients connect during the attack.
    const fn with_newcomers(self) -> Self {
        Self { has_newcomers: true, ..self }
    }
}

pub(crate) fn all() -> Vec<Attack> {
    let mut all = vec![
        attack("none", "nothing, for comparison", |scene| scene.hold(())),
        attack(
            "unacknowledged",
            "ten subscribers that never acknowledge",
            messages::unacknowledged,
        ),
        attack("no-pubrel", "messages at QoS 2 that are never released", messages::no_pubrel),
        attack("unread-subscribers", "fifty subscribers that never read", messages::unread),
        attack("aliases", "long topics as aliases, then short packets", messages::aliases),
        attack("qos0-flood", "a flood at QoS 0, to subscribers that read", messages::qos0_flood),
        attack("properties", "messages with thousands of properties", messages::properties),
        attack("retained-flood", "an endless flood of retained messages", messages::retained_flood),
        attack(
            "retained-read",
            "repeated SUBSCRIBE to all retained messages",
            messages::retained_read,
        ),
        attack("filters", "thousands of wildcard and deep filters", subscriptions::filters),
        attack(
            "filters-times-retained",
            "thousands of filters that match no retained message",
            subscriptions::times_retained,
        ),
        attack("shares", "a thousand shared subscriptions to everything", subscriptions::shares),
        attack("churn", "SUBSCRIBE and UNSUBSCRIBE of a thousand filters", subscriptions::churn),
        attack("wills-away", "disconnected sessions with large wills", sessions::wills_away),
        attack("wills-due", "many wills at once, to many subscribers", sessions::wills_due),
        attack("sessions", "an endless series of sessions with a long expiry", sessions::sessions),
        attack("queues-away", "messages for many disconnected clients", sessions::queues_away),
        attack("takeover", "repeated takeovers of one client id", sessions::takeover),
        Attack {
            may_be_lost: true,
            ..attack(
                "takeover-honest",
                "takeovers of the honest client's id: it must be able to reconnect",
                sessions::takeover_honest,
            )
        },
        attack(
            "half-packets",
            "the first half of a large packet, a hundred times",
            bytes::half_packets,
        ),
        attack("slow-packets", "a byte at a time", bytes::slow_packets),
        attack(
            "malformed",
            "each packet of the MQTT packet table, first on a connection and after CONNECT",
            bytes::malformed,
        ),
        attack("random", "packets with random changes", bytes::random),
        attack("oversized", "lengths above the limit", bytes::oversized),
        attack("silent", "idle connections, more than the limit", connections::silent)
            .with_newcomers(),
        attack(
            "slow-connect",
            "CONNECT one byte at a time, on more connections than the limit",
            connections::slow_connect,
        )
        .with_newcomers(),
        attack("connections", "connections opened and dropped without a pause", connections::flood)
            .with_newcomers(),
        attack("clients", "clients that connect and drop", connections::clients),
        attack("pings-unread", "PINGREQ without reading", connections::pings_unread),
        attack("acknowledgements", "PUBACK of unknown packets", connections::acknowledgements),
        attack(
            "split-packets",
            "CONNECT, then PUBLISH, one byte at a time without a pause",
            bytes::split_packets,
        )
        .with_newcomers(),
        Attack {
            needs: Needs::Passwords,
            has_newcomers: true,
            ..attack("passwords", "guessed passwords", connections::passwords)
        },
        Attack {
            needs: Needs::Tls,
            has_newcomers: true,
            ..attack("tls-handshakes", "handshakes that never end", connections::handshakes)
        },
        // Without newcomers: they wait for turns together with these handshakes, so some do not connect.
        attack("tls-hellos", "complete ClientHello messages, then the end", connections::hellos)
            .needs(Needs::Tls),
        Attack {
            needs: Needs::Metrics,
            ..attack("scrapes", "an endless series of scrapes", connections::scrapes)
        },
        Attack {
            stopped: connections::STOPPED,
            ..attack("stopped", "SIGSTOP for three seconds", connections::stopped)
        },
    ];
    all.extend(websocket::all());
    all.extend(store::all());
    all
}

/// Session expiry of sessions that must outlive the attack, in seconds.
const DAY: u32 = 24 * 60 * 60;

const KEPT: ConnectFields<'_> = ConnectFields { kept: Some(DAY), will: None, login: None };

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn name(at: usize) -> String {
    format!("evil-{at}")
}

/// Connects a client and subscribes.
fn subscriber<'a>(
    scene: &'a Scene,
    client_id: &str,
    fields: ConnectFields<'_>,
    filters: &[&str],
    qos: Qos,
) -> io::Result<Peer<'a>> {
    let mut peer = scene.join(client_id, fields)?;
    peer.push(&packets::subscribe(filters, qos));
    peer.packet()?;
    Ok(peer)
}
