//! Strategies for packets with all allowed properties. Generated packets borrow from leaked memory.

use std::num::NonZeroU16;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use statestore_mqtt::packet::{
    Ack, Acks, ConnAck, Connect, Filters, Notice, Packet, Publish, RetainHandling, Subscribe,
    Subscription, SubscriptionOptions, Subscriptions, Unsubscribe, Will,
};
use statestore_mqtt::property::{Property, id};
use statestore_mqtt::{Kind, Qos, Reason};
use statestore_testkit::wire::mqtt_text::Listed;

pub(crate) type Any = Packet<'static, Listed<'static>>;

/// Properties that may occur once, by packet (table 2-4). `None` is the will.
pub(crate) const LEGAL: [(Option<Kind>, &[u8]); 14] = [
    (None, &[0x01, 0x02, 0x03, 0x08, 0x09, 0x18]),
    (Some(Kind::Connect), &[0x11, 0x15, 0x16, 0x17, 0x19, 0x21, 0x22, 0x27]),
    (
        Some(Kind::ConnAck),
        &[
            0x11, 0x12, 0x13, 0x15, 0x16, 0x1a, 0x1c, 0x1f, 0x21, 0x22, 0x24, 0x25, 0x27, 0x28,
            0x29, 0x2a,
        ],
    ),
    (Some(Kind::Publish), &[0x01, 0x02, 0x03, 0x08, 0x09, 0x23]),
    (Some(Kind::PubAck), &[0x1f]),
    (Some(Kind::PubRec), &[0x1f]),
    (Some(Kind::PubRel), &[0x1f]),
    (Some(Kind::PubComp), &[0x1f]),
    (Some(Kind::Subscribe), &[0x0b]),
    (Some(Kind::SubAck), &[0x1f]),
    (Some(Kind::Unsubscribe), &[]),
    (Some(Kind::UnsubAck), &[0x1f]),
    (Some(Kind::Disconnect), &[0x11, 0x1c, 0x1f]),
    (Some(Kind::Auth), &[0x15, 0x16, 0x1f]),
];

/// Reason codes by packet (sections 3.2 to 3.15).
fn codes(kind: Kind) -> Vec<u8> {
    match kind {
        Kind::ConnAck => vec![0x00, 0x80, 0x8a, 0x8c, 0x90, 0x9f],
        Kind::PubAck | Kind::PubRec => vec![0x00, 0x10, 0x80, 0x99],
        Kind::PubRel | Kind::PubComp => vec![0x00, 0x92],
        Kind::SubAck => vec![0x00, 0x01, 0x02, 0x80, 0xa2],
        Kind::UnsubAck => vec![0x00, 0x11, 0x80, 0x91],
        Kind::Disconnect => vec![0x00, 0x04, 0x80, 0xa2],
        Kind::Auth => vec![0x18, 0x19],
        _ => Vec::new(),
    }
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn leak_slice<T>(items: Vec<T>) -> &'static [T] {
    Box::leak(items.into_boxed_slice())
}

fn text() -> impl Strategy<Value = &'static str> {
    let any = "[^\0]{0,12}".prop_map(leak);
    let long = select(vec![127_usize, 128, 1_000, 65_535]).prop_map(|len| leak("x".repeat(len)));
    prop_oneof![6 => select(vec!["", "a", "ü", "\u{feff}", "\u{10ffff}/"]), 6 => any, 1 => long]
}

fn data() -> impl Strategy<Value = &'static [u8]> {
    let long = select(vec![127_usize, 128, 16_384]).prop_map(|len| leak_slice(vec![0xa5; len]));
    prop_oneof![9 => vec(any::<u8>(), 0..12).prop_map(leak_slice), 1 => long]
}

fn name() -> impl Strategy<Value = &'static str> {
    prop_oneof![select(vec!["a", "/", "$SYS/x", "a b/ü//"]), "[^\0+#]{1,12}".prop_map(leak)]
}

fn filter() -> impl Strategy<Value = &'static str> {
    select(vec!["#", "+", "a", "/+/#", "+/ü", "$share/g/#", "$share/g/a/+", "$SYS/#", "$share"])
}

fn number() -> impl Strategy<Value = u32> {
    let edges = vec![1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455];
    prop_oneof![select(edges), 1..268_435_456_u32]
}

fn packet_id() -> impl Strategy<Value = NonZeroU16> {
    prop_oneof![Just(1), Just(u16::MAX), 1..=u16::MAX].prop_filter_map("not zero", NonZeroU16::new)
}

fn qos() -> impl Strategy<Value = Qos> {
    select(vec![Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce])
}

pub(crate) fn property(which: u8) -> BoxedStrategy<Property<'static>> {
    use Property as P;
    match which {
        id::PAYLOAD_FORMAT => any::<bool>().prop_map(P::PayloadFormat).boxed(),
        id::MESSAGE_EXPIRY => any::<u32>().prop_map(P::MessageExpiry).boxed(),
        id::CONTENT_TYPE => text().prop_map(P::ContentType).boxed(),
        id::RESPONSE_TOPIC => name().prop_map(P::ResponseTopic).boxed(),
        id::CORRELATION_DATA => data().prop_map(P::CorrelationData).boxed(),
        id::SUBSCRIPTION => number().prop_map(P::SubscriptionId).boxed(),
        id::SESSION_EXPIRY => any::<u32>().prop_map(P::SessionExpiry).boxed(),
        id::ASSIGNED_CLIENT_ID => text().prop_map(P::AssignedClientId).boxed(),
        id::SERVER_KEEP_ALIVE => any::<u16>().prop_map(P::ServerKeepAlive).boxed(),
        id::AUTHENTICATION_METHOD => text().prop_map(P::AuthenticationMethod).boxed(),
        id::AUTHENTICATION_DATA => data().prop_map(P::AuthenticationData).boxed(),
        id::REQUEST_PROBLEM_INFORMATION => {
            any::<bool>().prop_map(P::RequestProblemInformation).boxed()
        }
        id::WILL_DELAY => any::<u32>().prop_map(P::WillDelay).boxed(),
        id::REQUEST_RESPONSE_INFORMATION => {
            any::<bool>().prop_map(P::RequestResponseInformation).boxed()
        }
        id::RESPONSE_INFORMATION => text().prop_map(P::ResponseInformation).boxed(),
        id::SERVER_REFERENCE => text().prop_map(P::ServerReference).boxed(),
        id::REASON_STRING => text().prop_map(P::ReasonString).boxed(),
        id::RECEIVE_MAXIMUM => (1..=u16::MAX).prop_map(P::ReceiveMaximum).boxed(),
        id::TOPIC_ALIAS_MAXIMUM => any::<u16>().prop_map(P::TopicAliasMaximum).boxed(),
        id::TOPIC_ALIAS => (1..=u16::MAX).prop_map(P::TopicAlias).boxed(),
        id::MAXIMUM_QOS => {
            select(vec![Qos::AtMostOnce, Qos::AtLeastOnce]).prop_map(P::MaximumQos).boxed()
        }
        id::RETAIN_AVAILABLE => any::<bool>().prop_map(P::RetainAvailable).boxed(),
        id::USER => (text(), text()).prop_map(|(name, value)| P::User(name, value)).boxed(),
        id::MAXIMUM_PACKET_SIZE => (1..=u32::MAX).prop_map(P::MaximumPacketSize).boxed(),
        id::WILDCARD_AVAILABLE => any::<bool>().prop_map(P::WildcardAvailable).boxed(),
        id::SUBSCRIPTION_IDS_AVAILABLE => {
            any::<bool>().prop_map(P::SubscriptionIdsAvailable).boxed()
        }
        id::SHARED_AVAILABLE => any::<bool>().prop_map(P::SharedAvailable).boxed(),
        other => panic!("unknown property {other:#04x}"),
    }
}

/// Any allowed properties in any order, with repeated ones.
fn properties(place: Option<Kind>) -> impl Strategy<Value = Listed<'static>> {
    let (_, once) =
        LEGAL.iter().find(|(legal, _)| *legal == place).expect("a packet with properties");
    let repeat = match place {
        Some(Kind::Publish) => vec![id::USER, id::SUBSCRIPTION],
        _ => vec![id::USER],
    };
    (subsequence(once.to_vec(), 0..=once.len()), vec(select(repeat), 0..3))
        .prop_map(move |(mut chosen, repeated)| {
            // Authentication data requires a method.
            if chosen.contains(&id::AUTHENTICATION_DATA)
                && !chosen.contains(&id::AUTHENTICATION_METHOD)
            {
                chosen.push(id::AUTHENTICATION_METHOD);
            }
            chosen.extend(repeated);
            chosen
        })
        .prop_shuffle()
        .prop_flat_map(|chosen| chosen.into_iter().map(property).collect::<Vec<_>>())
        .prop_map(Listed)
}

fn connect() -> impl Strategy<Value = Any> {
    let will = (qos(), any::<bool>(), properties(None), name(), data()).prop_map(
        |(qos, retain, properties, topic, payload)| Will {
            qos,
            retain,
            properties,
            topic,
            payload,
        },
    );
    let names = (text(), option::of(text()), option::of(data()));
    (any::<(bool, u16)>(), properties(Some(Kind::Connect)), option::of(will), names).prop_map(
        |((clean_start, keep_alive), properties, will, (client_id, user_name, password))| {
            Packet::Connect(Connect {
                clean_start,
                keep_alive,
                properties,
                client_id,
                will,
                user_name,
                password,
            })
        },
    )
}

fn publish() -> impl Strategy<Value = Any> {
    let flags = (any::<(bool, bool)>(), qos(), packet_id());
    (flags, option::of(name()), properties(Some(Kind::Publish)), data()).prop_map(
        |(((dup, retain), qos, id), topic, properties, payload)| {
            let id = Some(id).filter(|_| qos != Qos::AtMostOnce);
            let has_alias =
                properties.0.iter().any(|property| matches!(property, Property::TopicAlias(_)));
            let topic = topic.unwrap_or(if has_alias { "" } else { "t" });
            let dup = dup && id.is_some();
            Packet::Publish(Publish { dup, qos, retain, topic, id, properties, payload })
        },
    )
}

fn subscribe() -> impl Strategy<Value = Any> {
    let handling =
        select(vec![RetainHandling::Always, RetainHandling::IfNew, RetainHandling::Never]);
    let subscription = (filter(), qos(), any::<(bool, bool)>(), handling).prop_map(
        |(filter, qos, (no_local, retain_as_published), retain_handling)| {
            let no_local = no_local && !filter.starts_with("$share/");
            let options =
                SubscriptionOptions { qos, no_local, retain_as_published, retain_handling };
            Subscription { filter, options }
        },
    );
    (packet_id(), properties(Some(Kind::Subscribe)), vec(subscription, 1..4)).prop_map(
        |(id, properties, list)| {
            let subscriptions = Subscriptions::new(leak_slice(list));
            Packet::Subscribe(Subscribe { id, properties, subscriptions })
        },
    )
}

fn unsubscribe() -> impl Strategy<Value = Any> {
    (packet_id(), properties(Some(Kind::Unsubscribe)), vec(filter(), 1..4)).prop_map(
        |(id, properties, list)| {
            let filters = Filters::new(leak_slice(list));
            Packet::Unsubscribe(Unsubscribe { id, properties, filters })
        },
    )
}

fn reason(kind: Kind) -> impl Strategy<Value = Reason> {
    select(codes(kind)).prop_map(Reason)
}

fn ack(kind: Kind, wrap: fn(Ack<Listed<'static>>) -> Any) -> BoxedStrategy<Any> {
    (packet_id(), reason(kind), properties(Some(kind)))
        .prop_map(move |(id, reason, properties)| wrap(Ack { id, reason, properties }))
        .boxed()
}

fn acks(kind: Kind, wrap: fn(Acks<'static, Listed<'static>>) -> Any) -> BoxedStrategy<Any> {
    (packet_id(), properties(Some(kind)), vec(select(codes(kind)), 1..5).prop_map(leak_slice))
        .prop_map(move |(id, properties, reasons)| wrap(Acks { id, properties, reasons }))
        .boxed()
}

/// Any packet.
pub(crate) fn packet() -> impl Strategy<Value = Any> {
    let connack = (any::<bool>(), reason(Kind::ConnAck), properties(Some(Kind::ConnAck))).prop_map(
        |(session_present, reason, properties)| {
            let session_present = session_present && reason == Reason::SUCCESS;
            Packet::ConnAck(ConnAck { session_present, reason, properties })
        },
    );
    let disconnect = (reason(Kind::Disconnect), properties(Some(Kind::Disconnect)))
        .prop_map(|(reason, properties)| Packet::Disconnect(Notice { reason, properties }));
    let auth = (reason(Kind::Auth), properties(Some(Kind::Auth)), text()).prop_map(
        |(reason, mut properties, method)| {
            if !properties
                .0
                .iter()
                .any(|property| matches!(property, Property::AuthenticationMethod(_)))
            {
                properties.0.push(Property::AuthenticationMethod(method));
            }
            Packet::Auth(Notice { reason, properties })
        },
    );
    let success = Notice { reason: Reason::SUCCESS, properties: Listed::default() };
    prop_oneof![
        3 => connect(),
        2 => connack,
        3 => publish(),
        1 => ack(Kind::PubAck, Packet::PubAck),
        1 => ack(Kind::PubRec, Packet::PubRec),
        1 => ack(Kind::PubRel, Packet::PubRel),
        1 => ack(Kind::PubComp, Packet::PubComp),
        2 => subscribe(),
        1 => acks(Kind::SubAck, Packet::SubAck),
        1 => unsubscribe(),
        1 => acks(Kind::UnsubAck, Packet::UnsubAck),
        1 => select(vec![Packet::PingReq, Packet::PingResp, Packet::Auth(success)]),
        1 => disconnect,
        1 => auth,
    ]
}
