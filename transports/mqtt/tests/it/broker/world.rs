//! Any history of a few clients.

use proptest::prelude::*;

use super::*;

/// What a client does, of a few clients, topics and filters.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Connect {
        who: usize,
        clean: bool,
        expiry: u32,
        will: bool,
        receive_maximum: u16,
    },
    Close(usize),
    Goodbye(usize),
    Subscribe {
        who: usize,
        filter: usize,
        qos: u8,
        id: u32,
    },
    Unsubscribe {
        who: usize,
        filter: usize,
    },
    Publish {
        who: usize,
        topic: usize,
        qos: u8,
        retain: bool,
        expiry: Option<u32>,
        len: usize,
        packet: u16,
    },
    /// Takes what there is, and acknowledges it or not.
    Read {
        who: usize,
        acks: bool,
    },
    Pass(u64),
}

impl Op {
    pub(super) fn is_time(&self) -> bool {
        matches!(self, Self::Pass(_))
    }
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const TOPICS: [&str; 5] = ["t", "t/u", "t/u/v", "x", "$x/t"];
const FILTERS: [&str; 9] =
    ["t", "t/u", "t/+", "t/#", "#", "+/+", "$x/#", "$share/g/t/#", "$share/g/+"];

const QOS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];

pub(super) fn ops(max: usize) -> impl Strategy<Value = Vec<Op>> {
    let who = 0..NAMES.len();
    let op = prop_oneof![
        3 => (who.clone(), any::<bool>(), 0_u32..20, any::<bool>(), 1_u16..5).prop_map(
            |(who, clean, expiry, will, receive_maximum)| {
                Op::Connect { who, clean, expiry, will, receive_maximum }
            }
        ),
        1 => who.clone().prop_map(Op::Close),
        1 => who.clone().prop_map(Op::Goodbye),
        4 => (who.clone(), 0..FILTERS.len(), 0_u8..3, 0_u32..3)
            .prop_map(|(who, filter, qos, id)| Op::Subscribe { who, filter, qos, id }),
        1 => (who.clone(), 0..FILTERS.len())
            .prop_map(|(who, filter)| Op::Unsubscribe { who, filter }),
        8 => (
            (who.clone(), 0..TOPICS.len(), 0_u8..3, prop::bool::weighted(0.3)),
            (prop::option::weighted(0.3, 0_u32..5), 0_usize..200, 1_u16..20),
        )
            .prop_map(|((who, topic, qos, retain), (expiry, len, packet))| {
                Op::Publish { who, topic, qos, retain, expiry, len, packet }
            }),
        4 => (who, any::<bool>()).prop_map(|(who, acks)| Op::Read { who, acks }),
        1 => (0_u64..8).prop_map(Op::Pass),
    ];
    prop::collection::vec(op, 0..max)
}

/// A broker with these clients.
pub(super) struct World {
    pub(super) net: Net,
    /// Bytes are written in pieces of this size.
    pub(super) piece: Option<usize>,
    connections: [Option<ConnectionId>; NAMES.len()],
}

impl World {
    pub(super) fn new() -> Self {
        Self::of(Net::default())
    }

    pub(super) fn of(net: Net) -> Self {
        Self { net, piece: None, connections: [None; NAMES.len()] }
    }

    fn send(&mut self, id: ConnectionId, packet: Packet<'_, Properties<'_>>) {
        let mut bytes = BytesMut::new();
        packet.encode(&mut bytes).expect("a packet");
        for piece in bytes.chunks(self.piece.unwrap_or(usize::MAX)) {
            self.net.write(id, piece);
        }
    }

    /// Does it, and gives what the client has seen if it reads.
    pub(super) fn apply(&mut self, op: &Op) -> Vec<Seen> {
        match *op {
            Op::Connect { who, clean, expiry, will, receive_maximum } => {
                if let Some(old) = self.connections[who].take() {
                    self.net.close(old);
                }
                let properties =
                    [Property::SessionExpiry(expiry), Property::ReceiveMaximum(receive_maximum)];
                let will = will.then(|| super::will("t/u", "gone", &[]));
                let id = self.net.accept().expect("room");
                self.connections[who] = Some(id);
                self.send(
                    id,
                    Packet::Connect(Connect {
                        clean_start: clean,
                        keep_alive: 0,
                        properties: &properties[..],
                        client_id: NAMES[who],
                        will,
                        user_name: None,
                        password: None,
                    }),
                );
            }
            Op::Close(who) => {
                if let Some(id) = self.connections[who].take() {
                    self.net.close(id);
                }
            }
            Op::Goodbye(who) => {
                if let Some(id) = self.connections[who].take() {
                    self.net.disconnect(id, Reason::SUCCESS, &[]);
                }
            }
            Op::Subscribe { who, filter, qos, id } => {
                if let Some(connection) = self.connections[who] {
                    let qos = QOS[usize::from(qos)];
                    let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
                    let subscriptions = [Subscription { filter: FILTERS[filter], options }];
                    let properties = [Property::SubscriptionId(id)];
                    let properties = if id == 0 { &[] } else { &properties[..] };
                    let subscriptions = Subscriptions::new(&subscriptions);
                    let id = number(7);
                    self.send(
                        connection,
                        Packet::Subscribe(Subscribe { id, properties, subscriptions }),
                    );
                }
            }
            Op::Unsubscribe { who, filter } => {
                if let Some(connection) = self.connections[who] {
                    let filters = [FILTERS[filter]];
                    let filters = statestore_mqtt::packet::Filters::new(&filters);
                    let (id, properties) = (number(8), &[][..]);
                    let packet = statestore_mqtt::packet::Unsubscribe { id, properties, filters };
                    self.send(connection, Packet::Unsubscribe(packet));
                }
            }
            Op::Publish { who, topic, qos, retain, expiry, len, packet } => {
                if let Some(connection) = self.connections[who] {
                    let properties = expiry.map(Property::MessageExpiry);
                    let payload = "x".repeat(len);
                    let qos = QOS[usize::from(qos)];
                    let packet = if qos == Qos::AtMostOnce { 0 } else { packet };
                    let publish = Publish {
                        retain,
                        properties: properties.as_slice(),
                        ..publish(TOPICS[topic], &payload, qos, packet)
                    };
                    self.send(connection, Packet::Publish(publish));
                }
            }
            Op::Read { who, acks } => {
                let Some(connection) = self.connections[who] else { return Vec::new() };
                let seen = self.net.seen(connection);
                if acks {
                    seen.iter().for_each(|seen| self.acknowledge(connection, seen));
                }
                return seen;
            }
            Op::Pass(time) => self.net.pass(seconds(time)),
        }
        Vec::new()
    }

    fn acknowledge(&mut self, connection: ConnectionId, seen: &Seen) {
        let ack = |id| Ack { id: number(id), reason: Reason::SUCCESS, properties: &[][..] };
        match seen {
            Seen::Publish(message) if message.qos == Qos::AtLeastOnce => {
                self.send(connection, Packet::PubAck(ack(message.id)));
            }
            Seen::Publish(message) if message.qos == Qos::ExactlyOnce => {
                self.send(connection, Packet::PubRec(ack(message.id)));
            }
            Seen::PubRec(id, reason) if !reason.is_error() => {
                self.send(connection, Packet::PubRel(ack(*id)));
            }
            Seen::PubRel(id, Reason::SUCCESS) => {
                self.send(connection, Packet::PubComp(ack(*id)));
            }
            _ => {}
        }
    }
}
