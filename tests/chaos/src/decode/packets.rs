//! MQTT 5 packets, and the messages of the protocol in them.

use statestore_client::diagnostics::text::one_line;
use statestore_mqtt::Reason;
use statestore_mqtt::packet::{Header, Packet, Publish};
use statestore_mqtt::property::{Properties, Property};
use statestore_proto::message::property::{
    FENCING_TOKEN, HIGH_PRIORITY, INCARNATION, PARTITION, PERSIST, PROTOCOL_VERSION, SOURCE_ID,
    STATUS, TIMESTAMP,
};
use statestore_proto::topic::{ParsedNotificationTopic, REQUEST};

use super::{Decoded, Decoder, Message, text};

/// Maximum number of printed messages. A packet has at least two bytes, and prints at least a line.
const MESSAGES_MAX: usize = 100_000;

impl Decoder {
    /// Decodes a sequence of packets, up to the first invalid one.
    pub(super) fn packets(&self, bytes: &[u8]) -> Decoded {
        let mut decoded = Decoded::default();
        let mut at = 0;
        while at < bytes.len() {
            if decoded.messages.len() == MESSAGES_MAX {
                decoded.error = Some(format!(
                    "{MESSAGES_MAX} packets end before byte {at}; the rest is not shown"
                ));
                return decoded;
            }
            let rest = &bytes[at..];
            let header = match Header::read(rest, usize::MAX) {
                Ok(Some(header)) if header.len <= rest.len() => header,
                Ok(Some(header)) => {
                    let (kind, len, left) = (header.kind, header.len, rest.len());
                    decoded.error = Some(format!(
                        "the {kind:?} at byte {at} has {len} bytes, but only {left} remain"
                    ));
                    return decoded;
                }
                Ok(None) => {
                    decoded.error =
                        Some(format!("the packet at byte {at} is cut off in its length"));
                    return decoded;
                }
                Err(error) => {
                    decoded.error = Some(if at == 0 {
                        format!(
                            "neither a payload, a topic, a clock nor an MQTT 5 packet: {error} at byte 0"
                        )
                    } else {
                        format!("not an MQTT 5 packet at byte {at}: {error}")
                    });
                    return decoded;
                }
            };
            let (packet, _) = rest.split_at(header.len);
            match Packet::decode(packet) {
                Ok(packet) => decoded.messages.push(self.packet(&packet)),
                Err(error) => {
                    decoded.error = Some(format!("the {:?} at byte {at}: {error}", header.kind));
                    return decoded;
                }
            }
            at += header.len;
        }
        if decoded.messages.is_empty() {
            decoded.error = Some("the input is empty".to_owned());
        }
        decoded
    }

    fn packet(&self, packet: &Packet<'_>) -> Message {
        let mut message = Message::new(name(packet));
        match packet {
            Packet::Connect(connect) => {
                message.add("client", connect.client_id);
                message.add("clean start", connect.clean_start.to_string());
                message.add("keep alive", format!("{} s", connect.keep_alive));
                if let Some(user) = connect.user_name {
                    message.add("user", user);
                }
                if connect.password.is_some() {
                    message.add("password", "present, not shown");
                }
                if let Some(will) = &connect.will {
                    message.add("will", format!("{}, {} bytes", will.topic, will.payload.len()));
                }
                properties(&connect.properties, &mut message);
            }
            Packet::ConnAck(connack) => {
                message.add("reason", connack.reason.to_string());
                message.add("session present", connack.session_present.to_string());
                properties(&connack.properties, &mut message);
            }
            Packet::Publish(publish) => self.publish(publish, &mut message),
            Packet::PubAck(ack)
            | Packet::PubRec(ack)
            | Packet::PubRel(ack)
            | Packet::PubComp(ack) => {
                message.add("packet", ack.id.to_string());
                message.add("reason", ack.reason.to_string());
                properties(&ack.properties, &mut message);
            }
            Packet::Subscribe(subscribe) => {
                message.add("packet", subscribe.id.to_string());
                for subscription in subscribe.subscriptions {
                    let (filter, qos) = (subscription.filter, subscription.options.qos as u8);
                    message.add("filter", format!("{filter}, QoS {qos}"));
                }
                properties(&subscribe.properties, &mut message);
            }
            Packet::Unsubscribe(unsubscribe) => {
                message.add("packet", unsubscribe.id.to_string());
                for filter in unsubscribe.filters {
                    message.add("filter", filter);
                }
                properties(&unsubscribe.properties, &mut message);
            }
            Packet::SubAck(acks) | Packet::UnsubAck(acks) => {
                message.add("packet", acks.id.to_string());
                let is_granted = matches!(packet, Packet::SubAck(_));
                for reason in acks.reasons {
                    message.add(
                        "reason",
                        match reason {
                            0 if is_granted => "granted QoS 0".to_owned(),
                            reason => Reason(*reason).to_string(),
                        },
                    );
                }
                properties(&acks.properties, &mut message);
            }
            Packet::Disconnect(notice) | Packet::Auth(notice) => {
                message.add("reason", notice.reason.to_string());
                properties(&notice.properties, &mut message);
            }
            Packet::PingReq | Packet::PingResp => {}
        }
        message
    }

    fn publish(&self, publish: &Publish<'_>, message: &mut Message) {
        message.add("topic", publish.topic);
        message.add("QoS", (publish.qos as u8).to_string());
        if let Some(id) = publish.id {
            message.add("packet", id.to_string());
        }
        for (is_set, word) in [(publish.dup, "duplicate"), (publish.retain, "retained")] {
            if is_set {
                message.add("flag", word);
            }
        }
        properties(&publish.properties, message);
        let decoded = if publish.topic == REQUEST {
            self.request(publish.payload)
        } else if ParsedNotificationTopic::parse(publish.topic).is_some() {
            if let Ok(topic) = text::topic(publish.topic.as_bytes()) {
                message.fields.extend(topic.fields);
            }
            self.notification(publish.payload)
        } else if is_reply(publish) {
            self.reply(publish.payload)
        } else {
            message.add("payload", self.value(publish.payload));
            return;
        };
        match decoded {
            Ok(payload) => message.append("payload", payload),
            Err(error) => {
                message.add("payload", format!("{} bytes: {error}", publish.payload.len()))
            }
        }
    }
}

/// Returns whether a PUBLISH looks like a reply.
fn is_reply(publish: &Publish<'_>) -> bool {
    let has_status = publish.properties.user().any(|(name, _)| name == STATUS);
    let is_correlated =
        publish.properties.iter().any(|property| matches!(property, Property::CorrelationData(_)));
    has_status
        || is_correlated && publish.payload.first().is_some_and(|first| b"+-$:*".contains(first))
}

fn name(packet: &Packet<'_>) -> &'static str {
    match packet {
        Packet::Connect(_) => "CONNECT",
        Packet::ConnAck(_) => "CONNACK",
        Packet::Publish(_) => "PUBLISH",
        Packet::PubAck(_) => "PUBACK",
        Packet::PubRec(_) => "PUBREC",
        Packet::PubRel(_) => "PUBREL",
        Packet::PubComp(_) => "PUBCOMP",
        Packet::Subscribe(_) => "SUBSCRIBE",
        Packet::SubAck(_) => "SUBACK",
        Packet::Unsubscribe(_) => "UNSUBSCRIBE",
        Packet::UnsubAck(_) => "UNSUBACK",
        Packet::PingReq => "PINGREQ",
        Packet::PingResp => "PINGRESP",
        Packet::Disconnect(_) => "DISCONNECT",
        Packet::Auth(_) => "AUTH",
    }
}

fn properties(properties: &Properties<'_>, message: &mut Message) {
    for property in properties.iter() {
        let (name, value) = match property {
            Property::User(name, value) => ("property", user(name, value)),
            Property::MessageExpiry(seconds) => ("expires", format!("in {seconds} s")),
            Property::ContentType(text) => ("content type", text.to_owned()),
            Property::ResponseTopic(topic) => ("response topic", topic.to_owned()),
            Property::CorrelationData(data) => ("correlation", digits(data)),
            Property::ReasonString(text) => ("reason text", text.to_owned()),
            Property::AuthenticationData(data) => ("login data", format!("{} bytes", data.len())),
            // These are named as in the standard.
            other => ("property", format!("{other:?}")),
        };
        message.add(name, value);
    }
}

/// Describes a user property.
fn user(name: &str, value: &str) -> String {
    match name {
        TIMESTAMP => format!("{name}, clock: {}", text::clock_in_words(value)),
        FENCING_TOKEN => format!("{name}, fencing token: {}", text::clock_in_words(value)),
        SOURCE_ID => format!("{name}, claimed client id: {value}"),
        PROTOCOL_VERSION => format!("{name}, protocol version of the deployed dialect: {value}"),
        PERSIST => format!("{name}, persist the key: {value}"),
        STATUS => format!("{name}, the same for each reply: {value}"),
        INCARNATION if value.is_empty() => format!("{name}, requests the incarnation of the store"),
        INCARNATION => format!("{name}, incarnation of the store: {value}"),
        PARTITION | HIGH_PRIORITY => format!("{name}, ignored by stores: {value}"),
        _ => format!("{name}={value}"),
    }
}

fn digits(data: &[u8]) -> String {
    // Correlation data usually has 16 bytes, and at most 64 KiB.
    const SHOWN: usize = 32;
    let mut text: String = data.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    if data.len() > SHOWN {
        text += &format!("… ({} bytes)", data.len());
    }
    if data.iter().all(|byte| byte.is_ascii_graphic()) && !data.is_empty() && data.len() <= SHOWN {
        text += &format!(" ({})", one_line(data));
    }
    text
}
