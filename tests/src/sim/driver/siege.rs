//! Clients that are up to no good, connected by bytes to the broker that the others use.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use fastrand::Rng;
use statestore_loopback::{Broker, Faults};
use statestore_mqtt::broker::{Config, ConnectionId, Output, Rules};
use statestore_mqtt::packet::{
    Connect, Packet, Publish, Subscribe, Subscription, SubscriptionOptions, Subscriptions, Will,
};
use statestore_mqtt::property::Property;
use statestore_mqtt::{Qos, Reason};
use statestore_proto::message::Command;
use statestore_proto::time::Instant;
use statestore_proto::topic;

use super::Run;
use crate::sim::twin::Twin;
use crate::sim::wire::RequestName;
use crate::sim::{Check, Violation};

/// Bytes of everything that the broker may hold for everybody.
const MEMORY: usize = 256 << 10;

/// Bytes that it may hold for one client.
const SHARE: usize = 48 << 10;

/// Hostile clients at a time.
const COUNT: usize = 6;

type Properties<'a> = &'a [Property<'a>];

/// The broker of a besieged world: with limits that are reached all the time.
pub(super) fn broker(seed: u64, faults: Faults, twin: Twin) -> Broker {
    let mut config = Config::default();
    config.limits.share = SHARE;
    if twin != Twin::NoBudget {
        config.limits.memory = MEMORY;
    }
    config.limits.waiting = 8 << 10;
    config.limits.retained = SHARE;
    if twin != Twin::NoRules {
        config.rules = Arc::new(Own);
    }
    Broker::with_config(seed, faults, config)
}

/// Requests are for the store alone, and what is below a client's name for that client; nobody else publishes there.
struct Own;

impl Rules for Own {
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

/// Those outside the walls.
pub(super) struct Siege {
    rng: Rng,
    hostile: Vec<Option<Hostile>>,
    evicted: u64,
}

struct Hostile {
    id: ConnectionId,
    name: String,
    /// Whether it takes what is written to it.
    reads: bool,
}

impl Siege {
    pub(super) fn new(seed: u64) -> Self {
        let hostile = (0..COUNT).map(|_| None).collect();
        Self { rng: Rng::with_seed(seed ^ 0x51e6_e000), hostile, evicted: 0 }
    }

    /// One attack by one of them. They know the names of keys, and of requests that were `asked` lately.
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
            self.come(who, now, broker);
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
            // Values that it never reads.
            1 => {
                let get = Command::Get { key }.encode();
                for _ in 0..30 {
                    send(broker, Packet::Publish(publish(topic::REQUEST, &get, Qos::AtLeastOnce)));
                }
            }
            // What the honest ones write is told to it.
            2 => {
                let watch = Command::Watch { key }.encode();
                send(broker, Packet::Publish(publish(topic::REQUEST, &watch, Qos::AtLeastOnce)));
            }
            // Half done for ever.
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
                // In the name of the store, and to somebody else's answers.
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
            // Given out, and never written.
            _ => _ = poll(now, broker, *id),
        }
    }

    /// Some read, and close what is to be closed; nobody acknowledges anything.
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

    /// One takes a place, perhaps the name of another; it has a will, and its session stays.
    fn come(&mut self, who: usize, now: Instant, broker: &mut Broker) {
        if let Some(old) = self.hostile[who].take() {
            broker.with_machine(now, |all| all.handle_closed(time(now), old.id));
        }
        let accepted = broker.with_machine(now, |all| all.handle_accept(time(now), None));
        let Ok(id) = accepted else { return };
        let name = format!("hostile{}", self.rng.usize(0..COUNT));
        let stays = [Property::SessionExpiry(u32::MAX), Property::ReceiveMaximum(1)];
        let asks_for_it = [Property::ResponseTopic("clients/c0/will")];
        let will = Will {
            qos: Qos::AtLeastOnce,
            retain: self.rng.bool(),
            topic: self.rng.choice(&["all/will", topic::REQUEST]).unwrap_or(&"all/will"),
            payload: &[b'w'; 2_000],
            properties: &asks_for_it[..],
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
        // Or nothing it sends would ever be looked at.
        _ = poll(now, broker, id);
        self.hostile[who] = Some(Hostile { id, name, reads });
    }
}

fn time(now: Instant) -> Duration {
    now.duration_since(Instant::default())
}

/// Sends as much as is taken.
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
    /// Some attacks, if there are any in this mix; the honest ones stay connected, and the budget is kept.
    pub(super) fn besiege(&mut self) {
        let Some(mut siege) = self.siege.take() else { return };
        let now = self.world.now();
        let names: Vec<String> = (0..self.actors.len()).map(|actor| format!("c{actor}")).collect();
        let lately = self.history.ops.iter().rev().take(3);
        let asked: Vec<RequestName> = lately.map(|op| op.name).collect();
        let broker = self.world.broker();
        let connected = |broker: &Broker| -> Vec<bool> {
            names.iter().map(|name| broker.is_connected(name)).collect()
        };
        let before = connected(broker);
        siege.attack(now, broker, &self.keys, &asked);
        let mut wrong = None;
        if connected(broker) != before {
            wrong = Some("an attack has ended the connection of somebody else".to_owned());
        }
        let stats = broker.with_machine(now, |all| all.stats());
        if stats.bytes > MEMORY + SHARE {
            wrong = Some(format!("{} bytes where {MEMORY} are allowed", stats.bytes));
        }
        siege.evicted = stats.evicted;
        self.violations.extend(wrong.map(|text| Violation { check: Check::Broker, text }));
        self.siege = Some(siege);
    }

    /// Sessions of hostile clients that were ended for what they took.
    pub(in crate::sim) fn evicted(&self) -> u64 {
        self.siege.as_ref().map_or(0, |siege| siege.evicted)
    }
}
