//! Packets of `mqttbytes`, converted to the types of `statestore-mqtt`.

use std::num::NonZeroU16;

use mqttbytes::{QoS, v5};
use statestore_mqtt::packet::{
    Ack, Acks, ConnAck, Connect, Notice, Packet, Publish, RetainHandling, Subscribe, Subscription,
    SubscriptionOptions, Subscriptions, Will,
};
use statestore_mqtt::property::Property as P;
use statestore_mqtt::{Qos, Reason};

use statestore_testkit::wire::mqtt_text::{Listed, show_sorted};

pub(super) fn show(packet: &v5::Packet) -> String {
    match packet {
        v5::Packet::Connect(connect) => show_sorted(&Packet::Connect(read_connect(connect))),
        v5::Packet::ConnAck(connack) => show_sorted(&Packet::ConnAck(read_connack(connack))),
        v5::Packet::Publish(publish) => show_sorted(&Packet::Publish(read_publish(publish))),
        v5::Packet::PubAck(ack) => {
            let properties = ack.properties.as_ref();
            let listed = properties
                .map(|all| acknowledgement_properties(&all.reason_string, &all.user_properties));
            show_sorted(&Packet::PubAck(read_ack(ack.pkid, ack.reason as u8, listed)))
        }
        v5::Packet::PubRec(ack) => {
            let properties = ack.properties.as_ref();
            let listed = properties
                .map(|all| acknowledgement_properties(&all.reason_string, &all.user_properties));
            show_sorted(&Packet::PubRec(read_ack(ack.pkid, ack.reason as u8, listed)))
        }
        v5::Packet::PubRel(ack) => {
            let properties = ack.properties.as_ref();
            let listed = properties
                .map(|all| acknowledgement_properties(&all.reason_string, &all.user_properties));
            show_sorted(&Packet::PubRel(read_ack(ack.pkid, ack.reason as u8, listed)))
        }
        v5::Packet::PubComp(ack) => {
            let properties = ack.properties.as_ref();
            let listed = properties
                .map(|all| acknowledgement_properties(&all.reason_string, &all.user_properties));
            show_sorted(&Packet::PubComp(read_ack(ack.pkid, ack.reason as u8, listed)))
        }
        v5::Packet::Subscribe(subscribe) => show_subscribe(subscribe),
        v5::Packet::SubAck(ack) => {
            let properties = ack.properties.as_ref();
            let listed = properties
                .map(|all| acknowledgement_properties(&all.reason_string, &all.user_properties));
            let reasons: Vec<u8> = ack.return_codes.iter().map(|code| *code as u8).collect();
            show_sorted(&Packet::SubAck(read_acks(ack.pkid, &reasons, listed)))
        }
        v5::Packet::Unsubscribe(_) => panic!("not compared"),
        v5::Packet::UnsubAck(ack) => {
            let properties = ack.properties.as_ref();
            let listed = properties
                .map(|all| acknowledgement_properties(&all.reason_string, &all.user_properties));
            let reasons: Vec<u8> = ack.reasons.iter().map(|code| *code as u8).collect();
            show_sorted(&Packet::UnsubAck(read_acks(ack.pkid, &reasons, listed)))
        }
        v5::Packet::PingReq => show_sorted(&Packet::<Listed<'_>>::PingReq),
        v5::Packet::PingResp => show_sorted(&Packet::<Listed<'_>>::PingResp),
        v5::Packet::Disconnect(disconnect) => {
            let mut all = List::default();
            if let Some(properties) = &disconnect.properties {
                all.extend(properties.session_expiry_interval, P::SessionExpiry);
                all.extend(properties.server_reference.as_deref(), P::ServerReference);
                all.extend(properties.reason_string.as_deref(), P::ReasonString);
                all.users(&properties.user_properties);
            }
            let reason = Reason(disconnect.reason_code as u8);
            show_sorted(&Packet::Disconnect(Notice { reason, properties: Listed(all.0) }))
        }
    }
}

/// Returns whether the packet has a subscription identifier, after which they may misread
/// properties.
pub(super) fn may_be_misread(packet: &v5::Packet) -> bool {
    match packet {
        v5::Packet::Publish(publish) => publish
            .properties
            .as_ref()
            .is_some_and(|properties| !properties.subscription_identifiers.is_empty()),
        v5::Packet::Subscribe(subscribe) => {
            subscribe.properties.as_ref().is_some_and(|properties| properties.id.is_some())
        }
        _ => false,
    }
}

/// Properties in the order of their fields.
#[derive(Default)]
struct List<'a>(Vec<P<'a>>);

impl<'a> List<'a> {
    fn extend<T>(&mut self, value: Option<T>, property: impl FnOnce(T) -> P<'a>) {
        self.0.extend(value.map(property));
    }

    fn users(&mut self, users: &'a [(String, String)]) {
        self.0.extend(users.iter().map(|(name, value)| P::User(name, value)));
    }
}

/// The properties that every acknowledgement may have.
fn acknowledgement_properties<'a>(
    reason: &'a Option<String>,
    users: &'a [(String, String)],
) -> Listed<'a> {
    let mut all = List::default();
    all.extend(reason.as_deref(), P::ReasonString);
    all.users(users);
    Listed(all.0)
}

const fn is_set(flag: u8) -> bool {
    flag != 0
}

const fn read_qos(qos: QoS) -> Qos {
    match qos {
        QoS::AtMostOnce => Qos::AtMostOnce,
        QoS::AtLeastOnce => Qos::AtLeastOnce,
        QoS::ExactlyOnce => Qos::ExactlyOnce,
    }
}

fn read_id(id: u16) -> NonZeroU16 {
    NonZeroU16::new(id).expect("we refuse zero")
}

fn read_ack(id: u16, reason: u8, listed: Option<Listed<'_>>) -> Ack<Listed<'_>> {
    Ack { id: read_id(id), reason: Reason(reason), properties: listed.unwrap_or_default() }
}

fn read_acks<'a>(id: u16, reasons: &'a [u8], listed: Option<Listed<'a>>) -> Acks<'a, Listed<'a>> {
    Acks { id: read_id(id), properties: listed.unwrap_or_default(), reasons }
}

fn read_connect(connect: &v5::Connect) -> Connect<'_, Listed<'_>> {
    let mut all = List::default();
    if let Some(properties) = &connect.properties {
        all.extend(properties.session_expiry_interval, P::SessionExpiry);
        all.extend(properties.authentication_method.as_deref(), P::AuthenticationMethod);
        all.extend(properties.authentication_data.as_deref(), P::AuthenticationData);
        all.extend(properties.request_problem_info.map(is_set), P::RequestProblemInformation);
        all.extend(properties.request_response_info.map(is_set), P::RequestResponseInformation);
        all.extend(properties.receive_maximum, P::ReceiveMaximum);
        all.extend(properties.topic_alias_max, P::TopicAliasMaximum);
        all.users(&properties.user_properties);
        all.extend(properties.max_packet_size, P::MaximumPacketSize);
    }
    let login = connect.login.as_ref();
    Connect {
        clean_start: connect.clean_session,
        keep_alive: connect.keep_alive,
        properties: Listed(all.0),
        client_id: &connect.client_id,
        will: connect.last_will.as_ref().map(read_will),
        user_name: login.map(|login| login.username.as_str()).filter(|name| !name.is_empty()),
        password: login.map(|login| login.password.as_bytes()).filter(|bytes| !bytes.is_empty()),
    }
}

fn read_will(will: &v5::LastWill) -> Will<'_, Listed<'_>> {
    let mut all = List::default();
    if let Some(properties) = &will.properties {
        all.extend(properties.payload_format_indicator.map(is_set), P::PayloadFormat);
        all.extend(properties.message_expiry_interval, P::MessageExpiry);
        all.extend(properties.content_type.as_deref(), P::ContentType);
        all.extend(properties.response_topic.as_deref(), P::ResponseTopic);
        all.extend(properties.correlation_data.as_deref(), P::CorrelationData);
        all.extend(properties.delay_interval, P::WillDelay);
        all.users(&properties.user_properties);
    }
    Will {
        qos: read_qos(will.qos),
        retain: will.retain,
        properties: Listed(all.0),
        topic: &will.topic,
        payload: &will.message,
    }
}

fn read_connack(connack: &v5::ConnAck) -> ConnAck<Listed<'_>> {
    let mut all = List::default();
    if let Some(properties) = &connack.properties {
        all.extend(properties.session_expiry_interval, P::SessionExpiry);
        all.extend(properties.assigned_client_identifier.as_deref(), P::AssignedClientId);
        all.extend(properties.server_keep_alive, P::ServerKeepAlive);
        all.extend(properties.authentication_method.as_deref(), P::AuthenticationMethod);
        all.extend(properties.authentication_data.as_deref(), P::AuthenticationData);
        all.extend(properties.response_information.as_deref(), P::ResponseInformation);
        all.extend(properties.server_reference.as_deref(), P::ServerReference);
        all.extend(properties.reason_string.as_deref(), P::ReasonString);
        all.extend(properties.receive_max, P::ReceiveMaximum);
        all.extend(properties.topic_alias_max, P::TopicAliasMaximum);
        let qos = |max| if max == 0 { Qos::AtMostOnce } else { Qos::AtLeastOnce };
        all.extend(properties.max_qos.map(qos), P::MaximumQos);
        all.extend(properties.retain_available.map(is_set), P::RetainAvailable);
        all.users(&properties.user_properties);
        all.extend(properties.max_packet_size, P::MaximumPacketSize);
        all.extend(properties.wildcard_subscription_available.map(is_set), P::WildcardAvailable);
        let ids = properties.subscription_identifiers_available.map(is_set);
        all.extend(ids, P::SubscriptionIdsAvailable);
        all.extend(properties.shared_subscription_available.map(is_set), P::SharedAvailable);
    }
    ConnAck {
        session_present: connack.session_present,
        reason: Reason(connack.code as u8),
        properties: Listed(all.0),
    }
}

fn read_publish(publish: &v5::Publish) -> Publish<'_, Listed<'_>> {
    let mut all = List::default();
    if let Some(properties) = &publish.properties {
        all.extend(properties.payload_format_indicator.map(is_set), P::PayloadFormat);
        all.extend(properties.message_expiry_interval, P::MessageExpiry);
        all.extend(properties.content_type.as_deref(), P::ContentType);
        all.extend(properties.response_topic.as_deref(), P::ResponseTopic);
        all.extend(properties.correlation_data.as_deref(), P::CorrelationData);
        all.0.extend(properties.subscription_identifiers.iter().copied().map(subscription_id));
        all.extend(properties.topic_alias, P::TopicAlias);
        all.users(&properties.user_properties);
    }
    Publish {
        dup: publish.dup,
        qos: read_qos(publish.qos),
        retain: publish.retain,
        topic: &publish.topic,
        id: NonZeroU16::new(publish.pkid),
        properties: Listed(all.0),
        payload: &publish.payload,
    }
}

fn subscription_id<'a>(id: usize) -> P<'a> {
    P::SubscriptionId(u32::try_from(id).expect("four times seven bits"))
}

fn show_subscribe(subscribe: &v5::Subscribe) -> String {
    let mut all = List::default();
    if let Some(properties) = &subscribe.properties {
        all.extend(properties.id, subscription_id);
        all.users(&properties.user_properties);
    }
    let list: Vec<_> = subscribe.filters.iter().map(read_filter).collect();
    show_sorted(&Packet::Subscribe(Subscribe {
        id: read_id(subscribe.pkid),
        properties: Listed(all.0),
        subscriptions: Subscriptions::new(&list),
    }))
}

fn read_filter(filter: &v5::SubscribeFilter) -> Subscription<'_> {
    let options = SubscriptionOptions {
        qos: read_qos(filter.qos),
        no_local: filter.nolocal,
        retain_as_published: filter.preserve_retain,
        retain_handling: match filter.retain_forward_rule {
            v5::RetainForwardRule::OnEverySubscribe => RetainHandling::Always,
            v5::RetainForwardRule::OnNewSubscribe => RetainHandling::IfNew,
            v5::RetainForwardRule::Never => RetainHandling::Never,
        },
    };
    Subscription { filter: &filter.path, options }
}
