//! Random histories of a few clients.

use proptest::prelude::*;

use super::*;

/// An operation of a client. Clients, topics and filters are indices into small tables.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Connect {
        client: usize,
        clean: bool,
        expiry: u32,
        will: bool,
        receive_maximum: u16,
    },
    Close(usize),
    Disconnect(usize),
    Subscribe {
        client: usize,
        filter: usize,
        qos: u8,
        id: u32,
    },
    Unsubscribe {
        client: usize,
        filter: usize,
    },
    Publish {
        client: usize,
        topic: usize,
        qos: u8,
        retain: bool,
        expiry: Option<u32>,
        len: usize,
        packet: u16,
    },
    /// Receives all packets, and acknowledges them if `acks` is set.
    Read {
        client: usize,
        acks: bool,
    },
    Advance(u64),
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const TOPICS: [&str; 5] = ["t", "t/u", "t/u/v", "x", "$x/t"];
const FILTERS: [&str; 9] =
    ["t", "t/u", "t/+", "t/#", "#", "+/+", "$x/#", "$share/g/t/#", "$share/g/+"];

const QOS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];

pub(super) fn ops(max: usize) -> impl Strategy<Value = Vec<Op>> {
    let client = 0..NAMES.len();
    let op = prop_oneof![
        3 => (client.clone(), any::<bool>(), 0_u32..20, any::<bool>(), 1_u16..5).prop_map(
            |(client, clean, expiry, will, receive_maximum)| {
                Op::Connect { client, clean, expiry, will, receive_maximum }
            }
        ),
        1 => client.clone().prop_map(Op::Close),
        1 => client.clone().prop_map(Op::Disconnect),
        4 => (client.clone(), 0..FILTERS.len(), 0_u8..3, 0_u32..3)
            .prop_map(|(client, filter, qos, id)| Op::Subscribe { client, filter, qos, id }),
        1 => (client.clone(), 0..FILTERS.len())
            .prop_map(|(client, filter)| Op::Unsubscribe { client, filter }),
        8 => (
            (client.clone(), 0..TOPICS.len(), 0_u8..3, prop::bool::weighted(0.3)),
            (prop::option::weighted(0.3, 0_u32..5), 0_usize..200, 1_u16..20),
        )
            .prop_map(|((client, topic, qos, retain), (expiry, len, packet))| {
                Op::Publish { client, topic, qos, retain, expiry, len, packet }
            }),
        4 => (client, any::<bool>()).prop_map(|(client, acks)| Op::Read { client, acks }),
        1 => (0_u64..8).prop_map(Op::Advance),
    ];
    prop::collection::vec(op, 0..max)
}

/// A broker and the clients in `NAMES`.
pub(super) struct World {
    pub(super) net: Net,
    /// Size of the pieces in which bytes are written to the broker [default: all at once].
    pub(super) piece: Option<usize>,
    connections: [Option<ConnectionId>; NAMES.len()],
}

impl World {
    pub(super) fn new() -> Self {
        Self { net: Net::default(), piece: None, connections: [None; NAMES.len()] }
    }

    fn send(&mut self, id: ConnectionId, packet: Packet<'_, Properties<'_>>) {
        let mut bytes = BytesMut::new();
        packet.encode(&mut bytes).expect("an encodable packet");
        for piece in bytes.chunks(self.piece.unwrap_or(usize::MAX)) {
            self.net.write(id, piece);
        }
    }

    /// Runs the operation. Returns the packets that a [`Read`](Op::Read) received.
    pub(super) fn apply(&mut self, op: &Op) -> Vec<Received> {
        match *op {
            Op::Connect { client, clean, expiry, will, receive_maximum } => {
                if let Some(old) = self.connections[client].take() {
                    self.net.close(old);
                }
                let properties =
                    [Property::SessionExpiry(expiry), Property::ReceiveMaximum(receive_maximum)];
                let will = will.then(|| super::will("t/u", "gone", &[]));
                let id = self.net.accept().expect("the broker accepts the connection");
                self.connections[client] = Some(id);
                self.send(
                    id,
                    Packet::Connect(Connect {
                        clean_start: clean,
                        keep_alive: 0,
                        properties: &properties[..],
                        client_id: NAMES[client],
                        will,
                        user_name: None,
                        password: None,
                    }),
                );
            }
            Op::Close(client) => {
                if let Some(id) = self.connections[client].take() {
                    self.net.close(id);
                }
            }
            Op::Disconnect(client) => {
                if let Some(id) = self.connections[client].take() {
                    self.net.disconnect(id, Reason::SUCCESS, &[]);
                }
            }
            Op::Subscribe { client, filter, qos, id } => {
                if let Some(connection) = self.connections[client] {
                    let qos = QOS[usize::from(qos)];
                    let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
                    let subscriptions = [Subscription { filter: FILTERS[filter], options }];
                    let properties = [Property::SubscriptionId(id)];
                    let properties = if id == 0 { &[] } else { &properties[..] };
                    let subscriptions = Subscriptions::new(&subscriptions);
                    let id = packet_id(7);
                    self.send(
                        connection,
                        Packet::Subscribe(Subscribe { id, properties, subscriptions }),
                    );
                }
            }
            Op::Unsubscribe { client, filter } => {
                if let Some(connection) = self.connections[client] {
                    let filters = [FILTERS[filter]];
                    let filters = statestore_mqtt::packet::Filters::new(&filters);
                    let (id, properties) = (packet_id(8), &[][..]);
                    let packet = statestore_mqtt::packet::Unsubscribe { id, properties, filters };
                    self.send(connection, Packet::Unsubscribe(packet));
                }
            }
            Op::Publish { client, topic, qos, retain, expiry, len, packet } => {
                if let Some(connection) = self.connections[client] {
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
            Op::Read { client, acks } => {
                let Some(connection) = self.connections[client] else { return Vec::new() };
                let received = self.net.receive(connection);
                if acks {
                    received.iter().for_each(|received| self.acknowledge(connection, received));
                }
                return received;
            }
            Op::Advance(time) => self.net.advance(seconds(time)),
        }
        Vec::new()
    }

    fn acknowledge(&mut self, connection: ConnectionId, received: &Received) {
        let ack = |id| Ack { id: packet_id(id), reason: Reason::SUCCESS, properties: &[][..] };
        match received {
            Received::Publish(message) if message.qos == Qos::AtLeastOnce => {
                self.send(connection, Packet::PubAck(ack(message.id)));
            }
            Received::Publish(message) if message.qos == Qos::ExactlyOnce => {
                self.send(connection, Packet::PubRec(ack(message.id)));
            }
            Received::PubRec(id, reason) if !reason.is_error() => {
                self.send(connection, Packet::PubRel(ack(*id)));
            }
            Received::PubRel(id, Reason::SUCCESS) => {
                self.send(connection, Packet::PubComp(ack(*id)));
            }
            _ => {}
        }
    }
}
