//! Hostile clients, connected through raw bytes to the same broker.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use crate::{Broker, Faults};
use bytes::BytesMut;
use fastrand::Rng;
use statestore_broker::{Acl, Config, ConnectionId, Output};
use statestore_mqtt::packet::{
    Connect, Packet, Publish, Subscribe, Subscription, SubscriptionOptions, Subscriptions, Will,
};
use statestore_mqtt::property::Property;
use statestore_mqtt::{Qos, Reason};
use statestore_proto::message::Command;
use statestore_proto::time::Instant;
use statestore_proto::topic;

use super::Run;
use crate::runs::twin::Twin;
use crate::runs::wire::RequestName;
use crate::runs::{Check, Violation};

/// Maximum bytes that the broker may hold for all clients.
const MEMORY: usize = 224 << 10;

/// Maximum bytes that it may hold for one client.
const SHARE: usize = 48 << 10;

/// Number of hostile clients at a time.
const COUNT: usize = 6;

type Properties<'a> = &'a [Property<'a>];

/// A broker whose limits are constantly reached.
pub(super) fn broker(seed: u64, faults: Faults, twin: Twin) -> Broker {
    let mut config = Config::default();
    config.limits.session_memory = SHARE;
    if twin != Twin::NoBudget {
        config.limits.memory = MEMORY;
    }
    config.limits.host_queue_bytes = 8 << 10;
    config.limits.retained_memory = SHARE;
    if twin != Twin::NoRules {
        config.acl = Arc::new(Own);
    }
    Broker::with_config(seed, faults, config)
}

/// Only the store may receive requests, and only a client the topics below its name. No other
/// client may publish there.
struct Own;

impl Acl for Own {
    fn may_publish(
        &self,
        client_id: &str,
        topic: &str,
        response_topic: Option<&str>,
    ) -> Result<(), Reason> {
        let answers_elsewhere = response_topic.is_some_and(|topic| !is_below(topic, client_id));
        let is_reserved = topic.starts_with("clients/");
        if answers_elsewhere || is_reserved { Err(Reason::NOT_AUTHORIZED) } else { Ok(()) }
    }

    fn may_receive(&self, client_id: &str, topic: &str) -> bool {
        topic != topic::REQUEST && (!topic.starts_with("clients/") || is_below(topic, client_id))
    }
}

fn is_below(topic: &str, client_id: &str) -> bool {
    let rest = topic.strip_prefix("clients/").and_then(|rest| rest.strip_prefix(client_id));
    rest.is_some_and(|rest| rest.starts_with('/'))
}

/// The hostile clients.
pub(super) struct HostileClients {
    rng: Rng,
    hostile: Vec<Option<Hostile>>,
    evicted: u64,
}

struct Hostile {
    id: ConnectionId,
    name: String,
    /// It reads the broker's output.
    reads: bool,
}

impl HostileClients {
    pub(super) fn new(seed: u64) -> Self {
        let hostile = (0..COUNT).map(|_| None).collect();
        Self { rng: Rng::with_seed(seed ^ 0x51e6_e000), hostile, evicted: 0 }
    }

    /// One attack by one hostile client. They know the keys, and the recent requests in `asked`.
    fn attack(
        &mut self,
        now: Instant,
        broker: &mut Broker,
        keys: &[bytes::Bytes],
        asked: &[RequestName],
    ) {
        self.read(now, broker);
        let who = self.rng.usize(0..COUNT);
        let is_alive = |one: &Hostile| broker.with_machine(now, |all| !all.is_closing(one.id));
        let alive = self.hostile[who].as_ref().is_some_and(is_alive);
        if !alive || self.rng.u8(0..40) == 0 {
            self.connect(who, now, broker);
        }
        let rng = &mut self.rng;
        let Some(Hostile { id, name, .. }) = &self.hostile[who] else { return };
        let packet = NonZeroU16::new(rng.u16(1..1_000));
        let payload = vec![b'x'; rng.usize(0..6_000)];
        let answers = format!("clients/{name}/answers");
        let asks = [Property::ResponseTopic(&answers), Property::CorrelationData(b"mine")];
        let send = |broker: &mut Broker, packet: Packet<'_, Properties<'_>>| {
            let mut bytes = BytesMut::new();
            packet.encode(&mut bytes).expect("a packet");
            write(now, broker, *id, &bytes);
        };
        let publish = |topic, payload, qos| Publish {
            dup: false,
            qos,
            retain: false,
            topic,
            id: packet.filter(|_| qos != Qos::AtMostOnce),
            properties: &asks[..],
            payload,
        };
        let key = rng.choice(keys).cloned().unwrap_or_default();
        match rng.u8(0..9) {
            0 => send(broker, Packet::Publish(publish(topic::REQUEST, &payload, Qos::AtMostOnce))),
            // Requests values that it never reads.
            1 => {
                let get = Command::Get { key }.encode();
                for _ in 0..30 {
                    send(broker, Packet::Publish(publish(topic::REQUEST, &get, Qos::AtLeastOnce)));
                }
            }
            // Registers for the writes of honest clients.
            2 => {
                let watch = Command::Watch { key }.encode();
                send(broker, Packet::Publish(publish(topic::REQUEST, &watch, Qos::AtLeastOnce)));
            }
            // Never completes the QoS 2 handshake.
            3 => send(broker, Packet::Publish(publish("all/hear", &payload, Qos::ExactlyOnce))),
            4 => {
                let topic = format!("all/{}", rng.u16(0..200));
                let kept = Publish { retain: true, ..publish(&topic, &payload, Qos::AtLeastOnce) };
                send(broker, Packet::Publish(kept));
            }
            5 => {
                let options = SubscriptionOptions { qos: Qos::ExactlyOnce, ..Default::default() };
                let filters = ["#", "all/+", "clients/#", topic::REQUEST, "$share/all/clients/#"];
                let filters = filters.map(|filter| Subscription { filter, options });
                let subscriptions = Subscriptions::new(&filters);
                let id = packet.unwrap_or(NonZeroU16::MIN);
                send(broker, Packet::Subscribe(Subscribe { id, properties: &[], subscriptions }));
            }
            6 => {
                // Forges the store's reply to another client, and directs a reply to another
                // client.
                let asked = rng.choice(asked).copied().unwrap_or_default();
                let forged = format!(
                    "clients/c{}/services/statestore/_any_/command/invoke/response",
                    asked.client
                );
                let name = [RequestName::nonce(asked.client), asked.number.to_be_bytes()].concat();
                let properties = [Property::CorrelationData(&name)];
                let answer = publish(&forged, b"$-1\r\n", Qos::AtLeastOnce);
                send(broker, Packet::Publish(Publish { properties: &properties[..], ..answer }));
                let elsewhere = [Property::ResponseTopic(&forged)];
                let reflected = publish(topic::REQUEST, b"", Qos::AtLeastOnce);
                send(broker, Packet::Publish(Publish { properties: &elsewhere[..], ..reflected }));
            }
            7 => write(now, broker, *id, &[0x30, 0xff, 0xff, 0x03, 0x00, 0x01]),
            // Polls output and discards it.
            _ => _ = poll(now, broker, *id),
        }
    }

    /// Some read their output, which closes connections; none acknowledges anything.
    fn read(&self, now: Instant, broker: &mut Broker) {
        while let Some(id) = broker.poll_woken() {
            let Some(one) = self.hostile.iter().flatten().find(|one| one.id == id) else {
                continue;
            };
            if one.reads {
                while poll(now, broker, id) == Output::More {}
            }
        }
    }

    /// Connects a client, perhaps with the name of another, a will and a persistent session.
    fn connect(&mut self, who: usize, now: Instant, broker: &mut Broker) {
        if let Some(old) = self.hostile[who].take() {
            broker.with_machine(now, |all| all.handle_closed(time(now), old.id));
        }
        let accepted = broker.with_machine(now, |all| all.handle_accept(time(now), None));
        let Ok(id) = accepted else { return };
        let name = format!("hostile{}", self.rng.usize(0..COUNT));
        let stays = [Property::SessionExpiry(u32::MAX), Property::ReceiveMaximum(1)];
        let reply_to_c0 = [Property::ResponseTopic("clients/c0/will")];
        let will = Will {
            qos: Qos::AtLeastOnce,
            retain: self.rng.bool(),
            topic: self.rng.choice(&["all/will", topic::REQUEST]).unwrap_or(&"all/will"),
            payload: &[b'w'; 2_000],
            properties: &reply_to_c0[..],
        };
        let connect = Connect {
            clean_start: self.rng.bool(),
            keep_alive: 0,
            properties: &stays[..],
            client_id: &name,
            will: self.rng.bool().then_some(will),
            user_name: None,
            password: None,
        };
        let mut bytes = BytesMut::new();
        Packet::Connect(connect).encode(&mut bytes).expect("a packet");
        write(now, broker, id, &bytes);
        let reads = self.rng.bool();
        // Otherwise the broker would not read its input.
        _ = poll(now, broker, id);
        self.hostile[who] = Some(Hostile { id, name, reads });
    }
}

fn time(now: Instant) -> Duration {
    now.duration_since(Instant::default())
}

/// Writes as much as the broker accepts.
fn write(now: Instant, broker: &mut Broker, id: ConnectionId, bytes: &[u8]) {
    broker.with_machine(now, |all| {
        if all.wants_input(id) {
            all.handle_bytes(time(now), id, bytes);
        }
    });
}

fn poll(now: Instant, broker: &mut Broker, id: ConnectionId) -> Output {
    broker.with_machine(now, |all| all.poll_output(time(now), id, &mut BytesMut::new()))
}

impl Run {
    /// Attacks, if the mix has hostile clients; checks that honest clients stay connected and
    /// memory is within the budget.
    pub(super) fn attack(&mut self) {
        let Some(mut hostile) = self.hostile.take() else { return };
        let now = self.world.now();
        let names: Vec<String> = (0..self.actors.len()).map(|actor| format!("c{actor}")).collect();
        let lately = self.history.ops.iter().rev().take(3);
        let asked: Vec<RequestName> = lately.map(|op| op.name).collect();
        let broker = self.world.broker();
        let connected = |broker: &Broker| -> Vec<bool> {
            names.iter().map(|name| broker.is_connected(name)).collect()
        };
        let before = connected(broker);
        hostile.attack(now, broker, &self.keys, &asked);
        let mut wrong = None;
        if connected(broker) != before {
            wrong = Some("an attack ended the connection of an honest client".to_owned());
        }
        let stats = broker.with_machine(now, |all| all.stats());
        if stats.bytes > MEMORY + SHARE {
            wrong = Some(format!("{} bytes where {MEMORY} are allowed", stats.bytes));
        }
        hostile.evicted = stats.evicted;
        self.violations.extend(wrong.map(|text| Violation { check: Check::Broker, text }));
        self.hostile = Some(hostile);
    }

    /// Number of evicted sessions of hostile clients.
    pub(in crate::runs) fn evicted(&self) -> u64 {
        self.hostile.as_ref().map_or(0, |hostile| hostile.evicted)
    }
}
