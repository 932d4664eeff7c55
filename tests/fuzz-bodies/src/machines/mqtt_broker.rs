//! Comparison of the broker with a naive broker.

mod end;
mod naive;
mod receive;
mod run;
mod wire;

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;
use std::time::Duration;

use statestore_broker::{Acl, Config, Limits};
use statestore_mqtt::packet::{
    Connect, Filters, Notice, Packet, Publish, RetainHandling, Subscribe, Subscription,
    SubscriptionOptions, Subscriptions, Unsubscribe, Will,
};
use statestore_mqtt::property::Property;
use statestore_mqtt::{Qos, Reason};

use statestore_models::alphabet;
use statestore_models::machines::{Args, Reader};

use naive::{Sent, Subscribed};
use run::{Run, Slot};
use wire::Received;

alphabet! {
    /// An operation on a broker.
    pub enum BrokerOp {
        /// A connection is accepted.
        Accept = b'A', 4;
        /// A CONNECT.
        Connect = b'H', 6;
        /// A login succeeds or fails.
        Login = b'L', 3;
        /// A SUBSCRIBE.
        Subscribe = b'S', 8;
        /// An UNSUBSCRIBE.
        Unsubscribe = b'U', 2;
        /// A PUBLISH.
        Publish = b'P', 16;
        /// Several requests for the host in one write.
        Burst = b'B', 3;
        /// Reads some of the output of a connection.
        Read = b'R', 8;
        /// Acknowledges some of the packets that a connection has read.
        Acknowledge = b'K', 8;
        /// Reads from the connections that the broker wakes.
        Wakes = b'W', 3;
        /// A connection closes.
        Close = b'X', 2;
        /// A DISCONNECT.
        SendDisconnect = b'G', 1;
        /// Raw bytes arrive.
        Raw = b'w', 1;
        /// A local client attaches.
        Attach = b'a', 2;
        /// A local client subscribes.
        SubscribeLocal = b's', 2;
        /// A local client publishes.
        PublishLocal = b'p', 3;
        /// A local client polls its events.
        PollLocal = b'r', 3;
        /// A local client detaches.
        Detach = b'd', 1;
        /// The host attaches, for the first time or again.
        AttachHost = b'h', 1;
        /// The host polls its events.
        PollHost = b'o', 4;
        /// The host publishes.
        PublishHost = b'O', 2;
        /// The host delivers a message to one client.
        Deliver = b'D', 4;
        /// The host detaches.
        DetachHost = b'e', 1;
        /// The host disconnects a client.
        Disconnect = b'k', 1;
        /// Advances time.
        Pass = b'T', 3;
    }
}

const NAMES: [&str; 4] = ["n.a", "n.b", "n.c", "n.d"];
const HOST: &str = "n.host";
const TOPICS: [&str; 6] = ["t", "t/u", "t/u/v", "x", "$x/t", "h"];
const FILTERS: [&str; 10] =
    ["t", "t/u", "t/+", "t/#", "#", "+/+", "$x/#", "$share/g/t/#", "$share/g/+", "x/y/z/z/z"];
const QOS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];
const REPLAYS: [RetainHandling; 3] =
    [RetainHandling::Always, RetainHandling::IfNew, RetainHandling::Never];

/// Only the host receives topics of the host.
struct OnlyHost;

impl Acl for OnlyHost {
    fn may_receive(&self, _: &str, topic: &str) -> bool {
        !naive::is_for_host(topic)
    }
}

/// Limits that a few operations reach.
fn small(limits: &mut Limits) {
    limits.memory = 24_000;
    limits.session_memory = 8_000;
    limits.host_queue_bytes = 1_500;
    limits.packet_bytes = 2_000;
    limits.connect_bytes = 300;
    limits.connections = 6;
    limits.connections_per_address = 2;
    limits.pending_connections = 3;
    limits.sessions = 4;
    limits.receive_maximum = 2;
    limits.in_flight = 3;
    limits.topic_aliases = 2;
    limits.subscriptions = 4;
    limits.levels = 4;
    limits.retained_memory = 3_000;
    limits.session_expiry = Duration::from_secs(20);
}

fn pick<T: Copy>(list: &[T], at: u8) -> T {
    list[usize::from(at) % list.len()]
}

fn packet_id(id: u8) -> NonZeroU16 {
    NonZeroU16::new(u16::from(id % 8) + 1).expect("not zero")
}

/// Oracle: the broker behaves like a naive broker on any input. Messages reach their recipients
/// once and in order, unless their session ended. Each packet to a client is legal at that time.
/// Memory stays within its limits, and is freed at the end.
///
/// Input: a byte of flags for the configuration, a byte that makes the clock begin that many seconds
/// earlier, and operations ([`BrokerOp`]).
///
/// # Panics
/// If the broker differs.
pub fn mqtt_broker(data: &[u8]) {
    let ([flags, start], mut reader) = Reader::<BrokerOp>::new::<2>(data);
    let mut config = Config { acl: std::sync::Arc::new(OnlyHost), ..Config::default() };
    // Sent messages are checked immediately.
    config.limits.slow_start = Duration::ZERO;
    let is_small = flags & 1 != 0;
    if is_small {
        small(&mut config.limits);
    }
    config.requires_login = flags & 2 != 0;
    // Some inputs begin near the end of time.
    let now = if flags & 12 == 12 { Duration::MAX } else { Duration::from_secs(1_000) };
    let now = now.saturating_sub(Duration::from_secs(start.into()));
    let mut run = Run::new(config, is_small, now);
    while let Some((op, args)) = reader.next() {
        let raw = if op == BrokerOp::Raw { reader.raw(args[1].into()) } else { &[] };
        run.apply(op, args, raw);
    }
    run.end();
}

impl Run {
    fn apply(&mut self, op: BrokerOp, args: Args, raw: &[u8]) {
        let [a, b, ..] = args;
        let at = usize::from(a) % self.slots.len();
        match op {
            BrokerOp::Accept => self.accept(at, b),
            BrokerOp::Connect => self.send_connect(at, args),
            BrokerOp::Login => self.login(a, b),
            BrokerOp::Subscribe => self.subscribe(at, args),
            BrokerOp::Unsubscribe => self.unsubscribe(at, args),
            BrokerOp::Publish => self.publish(at, args),
            BrokerOp::Burst => self.burst(at, args),
            BrokerOp::Read => {
                self.read(at, usize::from(b % 4) + 1);
            }
            BrokerOp::Acknowledge => self.acknowledge(at, usize::from(b)),
            BrokerOp::Wakes => self.wakes(a % 2 == 0),
            BrokerOp::Close => self.close(at),
            BrokerOp::SendDisconnect => self.send_disconnect(at, b),
            BrokerOp::Raw => self.raw(at, raw),
            BrokerOp::Attach => self.attach(a),
            BrokerOp::SubscribeLocal => self.subscribe_local(args),
            BrokerOp::PublishLocal => self.publish_local(args),
            BrokerOp::PollLocal => self.poll_local(a, usize::from(b % 8) + 1),
            BrokerOp::Detach => self.detach(a),
            BrokerOp::AttachHost => self.attach_host(),
            BrokerOp::PollHost => {
                self.poll_host(usize::from(b % 16) + 1);
            }
            BrokerOp::PublishHost => self.publish_host(args),
            BrokerOp::Deliver => self.deliver(args),
            BrokerOp::DetachHost => self.detach_host(),
            BrokerOp::Disconnect => self.disconnect(pick(&NAMES, a)),
            BrokerOp::Pass => {
                let unit = [1, 100, 1_000, 5_000][usize::from(b % 4)];
                self.pass(Duration::from_millis(u64::from(a % 16) * unit));
            }
        }
        self.sync();
        self.check();
    }

    fn accept(&mut self, at: usize, peer: u8) {
        self.close(at);
        let peer = match peer % 4 {
            0 => None,
            1 => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            other => Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, other))),
        };
        let accepted = self.broker.handle_accept(self.now, peer);
        self.slots[at] = accepted.ok().map(|id| Slot::new(id, peer));
        let (closing, open): (Vec<&Slot>, Vec<&Slot>) =
            self.slots.iter().flatten().partition(|slot| self.broker.is_closing(slot.id));
        let max = self.limits.pending_connections;
        assert!(accepted.is_ok() || closing.len() >= max, "refused, {} are closing", closing.len());
        let silent = open.iter().filter(|slot| slot.fields.is_none() && !slot.is_unchecked).count();
        assert!(silent <= max, "{silent} connections without a CONNECT");
    }

    fn send_connect(&mut self, at: usize, [_, name, flags, c, d]: Args) {
        let name = pick(&NAMES, name);
        let clean_start = flags & 1 != 0;
        let receive_maximum = u16::from(c % 5) + 1;
        let packet_bytes = match d % 8 {
            0 => Some(u32::from(d / 8) + 1),
            1 => Some(u32::from(d / 8) * 10 + 20),
            _ => None,
        };
        let expiry = u32::from(c / 5);
        let mut properties =
            vec![Property::SessionExpiry(expiry), Property::ReceiveMaximum(receive_maximum)];
        properties.extend(packet_bytes.map(Property::MaximumPacketSize));
        let alias_max = if flags & 32 != 0 { u16::from(d / 64) } else { 0 };
        properties.extend((alias_max > 0).then_some(Property::TopicAliasMaximum(alias_max)));
        let delay = [Property::WillDelay(u32::from(d % 5))];
        let will = (flags & 2 != 0).then_some(Will {
            qos: pick(&QOS, flags / 4),
            retain: flags & 128 != 0,
            properties: if flags & 64 != 0 { &delay[..] } else { &[] },
            topic: "t/u",
            payload: b"will",
        });
        let connect = Connect {
            clean_start,
            keep_alive: if flags & 16 != 0 { 5 } else { 0 },
            properties: &properties[..],
            client_id: name,
            will,
            user_name: None,
            password: None,
        };
        if will.is_some_and(|will| will.retain) {
            self.is_tainted = true;
        }
        let fields = run::ConnectFields {
            name,
            clean_start,
            expiry: Duration::from_secs(expiry.into()),
            receive_maximum: usize::from(receive_maximum),
            packet_bytes: packet_bytes.map_or(usize::MAX, |bytes| bytes as usize),
            alias_max,
        };
        self.connect(at, &Packet::Connect(connect), fields);
    }

    fn subscribe(&mut self, at: usize, [_, filter, flags, id, d]: Args) {
        let Some(name) = self.ready_client(at) else { return };
        let filter = pick(&FILTERS, filter);
        let options = SubscriptionOptions {
            qos: pick(&QOS, flags),
            no_local: flags & 16 != 0 && !filter.starts_with("$share/"),
            retain_as_published: flags & 32 != 0,
            retain_handling: pick(&REPLAYS, d),
        };
        let id = (id % 4 != 0).then_some(u32::from(id));
        let properties = id.map(Property::SubscriptionId);
        let subscriptions = [Subscription { filter, options }];
        let subscriptions = Subscriptions::new(&subscriptions);
        let packet =
            Subscribe { id: packet_id(d), properties: properties.as_slice(), subscriptions };
        // Messages for the new subscription may arrive together with the SUBACK.
        self.naive.session(name).filters.insert(filter);
        let Some(received) = self.write_and_read(at, &Packet::Subscribe(packet)) else { return };
        let granted = received.iter().rev().find_map(|received| match received {
            Received::SubAck(reasons) => Some(reasons.clone()),
            _ => None,
        });
        match granted.as_deref() {
            Some([code]) if !Reason(*code).is_error() => {
                assert_eq!(*code, options.qos as u8);
                self.model_subscribe(name, filter, &options, id);
            }
            Some([_]) => assert!(self.is_small, "{filter} is refused"),
            // A SUBACK that is too large for the client is not sent, so the result is unknown.
            None => self.stop_checking(name),
            other => panic!("one filter, {other:?}"),
        }
    }

    fn model_subscribe(
        &mut self,
        name: &'static str,
        filter: &'static str,
        options: &SubscriptionOptions,
        id: Option<u32>,
    ) {
        let how = Subscribed {
            qos: options.qos,
            no_local: options.no_local,
            retain_as_published: options.retain_as_published,
            id,
        };
        let handling = options.retain_handling;
        let replays = |is_new| match handling {
            RetainHandling::Always => true,
            RetainHandling::IfNew => is_new,
            RetainHandling::Never => false,
        };
        let sure = !self.is_small && !self.is_tainted;
        self.naive.subscribe(name, filter, how, replays, sure);
    }

    fn unsubscribe(&mut self, at: usize, [_, filter, _, _, d]: Args) {
        let Some(name) = self.ready_client(at) else { return };
        let filter = pick(&FILTERS, filter);
        let filters = [filter];
        let packet =
            Unsubscribe { id: packet_id(d), properties: &[][..], filters: Filters::new(&filters) };
        let Some(received) = self.write_and_read(at, &Packet::Unsubscribe(packet)) else { return };
        let was_there = self.naive.unsubscribe(name, filter);
        let reason = if was_there { Reason::SUCCESS } else { Reason::NO_SUBSCRIPTION_EXISTED };
        let is_acknowledged =
            received.iter().any(|received| *received == Received::UnsubAck(vec![reason.0]));
        assert!(
            is_acknowledged
                || self.naive.session(name).packet_bytes < 10
                || self.is_unchecked(name)
        );
    }

    fn publish(&mut self, at: usize, [_, topic, flags, len, d]: Args) {
        let Some(name) = self.ready_client(at) else { return };
        let topic = pick(&TOPICS, topic);
        let sent = self.message(Some(name), topic, flags, len, d);
        let payload = self.payload(&sent, len);
        let clears = sent.retain && len == 0;
        let packet_id = packet_id(flags / 32);
        let properties = sent.expires.map(|_| Property::MessageExpiry(u32::from(d % 16)));
        let packet = Publish {
            dup: false,
            qos: sent.qos,
            retain: sent.retain,
            topic,
            id: (sent.qos > Qos::AtMostOnce).then_some(packet_id),
            properties: properties.as_slice(),
            payload: if clears { &[] } else { &payload },
        };
        self.publish_as(at, name, &packet, &sent, clears);
    }

    /// Creates a message with the next number.
    fn message(
        &mut self,
        sender: Option<&'static str>,
        topic: &'static str,
        flags: u8,
        len: u8,
        d: u8,
    ) -> Sent {
        self.last += 1;
        let expiry = (d >= 192).then(|| Duration::from_secs(u64::from(d % 16)));
        Sent {
            number: self.last,
            topic,
            qos: pick(&QOS, flags),
            retain: flags & 16 != 0,
            sender,
            expires: expiry.map(|expiry| self.now.saturating_add(expiry)),
            size: topic.len() + self.payload_len(len) + 48,
        }
    }

    fn send_disconnect(&mut self, at: usize, reason: u8) {
        let reason = if reason.is_multiple_of(2) { Reason::SUCCESS } else { Reason(0x04) };
        let notice = Notice { reason, properties: &[][..] };
        if self.write(at, &Packet::Disconnect(notice), 0) {
            self.sync();
            self.close(at);
        }
    }
}
