//! The attacks, a row each.

mod bytes;
mod connections;
mod messages;
mod sessions;
mod store;
mod subscriptions;

use std::io;
use std::time::Duration;

use statestore_mqtt::Qos;

use crate::packets::{self, Hello};
use crate::scene::{Peer, Scene};

/// Options that the store must be started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Passwords,
    Tls,
    /// A listener for metrics, which is attacked instead.
    Metrics,
}

pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// Description of the attack.
    pub(crate) about: &'static str,
    pub(crate) act: fn(&Scene),
    pub(crate) needs: Needs,
    /// Time for which it stops the store by other means.
    pub(crate) stopped: Duration,
    /// True if the honest client may lose its connection, and is only to get it back.
    pub(crate) may_be_lost: bool,
    /// True if other honest clients connect during the attack.
    pub(crate) has_newcomers: bool,
}

const fn attack(name: &'static str, about: &'static str, act: fn(&Scene)) -> Attack {
    let (needs, stopped) = (Needs::Nothing, Duration::ZERO);
    Attack { name, about, act, needs, stopped, may_be_lost: false, has_newcomers: false }
}

impl Attack {
    /// Other honest clients connect during the attack.
    const fn with_newcomers(self) -> Self {
        Self { has_newcomers: true, ..self }
    }
}

pub(crate) fn all() -> Vec<Attack> {
    vec![
        attack("none", "nothing, for comparison", |scene| scene.hold(())),
        attack(
            "unacknowledged",
            "ten subscribers that never acknowledge",
            messages::unacknowledged,
        ),
        attack("no-pubrel", "messages at QoS 2 that are never released", messages::no_pubrel),
        attack("deaf-subscribers", "fifty subscribers that never read", messages::deaf),
        attack("aliases", "long topics as aliases, then a flood of few bytes", messages::aliases),
        attack("qos0-flood", "messages at QoS 0, to subscribers that read", messages::qos0_flood),
        attack("properties", "messages that are all properties", messages::properties),
        attack("retained-flood", "retained messages without end", messages::retained_flood),
        attack(
            "retained-read",
            "SUBSCRIBE to all that is retained, again and again",
            messages::retained_read,
        ),
        attack("filters", "thousands of wildcard and deep filters", subscriptions::filters),
        attack(
            "filters-times-retained",
            "filters that match nothing that is retained",
            subscriptions::times_retained,
        ),
        attack("shares", "a thousand shared subscriptions to everything", subscriptions::shares),
        attack("churn", "SUBSCRIBE and UNSUBSCRIBE of a thousand filters", subscriptions::churn),
        attack("wills-away", "sessions that are away with large wills", sessions::wills_away),
        attack("wills-due", "wills that are all due, to many subscribers", sessions::wills_due),
        attack("sessions", "sessions of long expiry without end", sessions::sessions),
        attack("queues-away", "messages for many that are away", sessions::queues_away),
        attack("takeover", "one client id, taken over again and again", sessions::takeover),
        Attack {
            may_be_lost: true,
            ..attack(
                "takeover-honest",
                "the honest client's id: it loses its connection and gets it back",
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
            "each packet of the statements' table, as first and second",
            bytes::malformed,
        ),
        attack("random", "packets with random changes", bytes::random),
        attack("oversized", "lengths beyond what is allowed", bytes::oversized),
        attack("silent", "connections that say nothing, beyond the limit", connections::silent)
            .with_newcomers(),
        attack(
            "slow-connect",
            "CONNECT a byte at a time, beyond the limit",
            connections::slow_connect,
        )
        .with_newcomers(),
        attack("connections", "connections made and dropped without a pause", connections::flood)
            .with_newcomers(),
        attack("clients", "clients that connect and drop", connections::clients),
        attack("pings-unread", "PINGREQ without reading", connections::pings_unread),
        Attack {
            needs: Needs::Passwords,
            has_newcomers: true,
            ..attack("passwords", "passwords, guessed", connections::passwords)
        },
        Attack {
            needs: Needs::Tls,
            has_newcomers: true,
            ..attack("tls-handshakes", "handshakes that never end", connections::handshakes)
        },
        Attack {
            needs: Needs::Metrics,
            ..attack("scrapes", "scrapes of metrics without end", connections::scrapes)
        },
        attack(
            "requests-unread",
            "a hundred that ask for large values and do not read",
            store::requests_unread,
        ),
        attack("listings", "KEYS of thousands, by many at a time", store::listings),
        attack("lazy-watchers", "twenty watchers that do not acknowledge", store::lazy_watchers),
        attack("set-flood", "fifty clients that set large values", store::set_flood),
        attack("set-small", "fifty clients that set small values", store::set_small),
        attack("registrations", "KEYNOTIFY by the thousand", store::registrations),
        attack("reflection", "answers to topics of the honest client", store::reflection),
        attack("nonsense", "requests that are none", store::nonsense),
        Attack {
            stopped: connections::STOPPED,
            ..attack("stopped", "SIGSTOP for three seconds", connections::stopped)
        },
    ]
}

/// For how long sessions are kept that are to stay.
const DAY: u32 = 24 * 60 * 60;

const KEPT: Hello<'_> = Hello { kept: Some(DAY), will: None, login: None };

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn name(at: usize) -> String {
    format!("evil-{at}")
}

/// A client that has subscribed.
fn subscriber<'a>(
    scene: &'a Scene,
    client_id: &str,
    hello: Hello<'_>,
    filters: &[&str],
    qos: Qos,
) -> io::Result<Peer<'a>> {
    let mut peer = scene.join(client_id, hello)?;
    peer.push(&packets::subscribe(filters, qos));
    peer.packet()?;
    Ok(peer)
}
