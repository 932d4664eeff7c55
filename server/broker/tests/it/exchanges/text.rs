//! MQTT packets as text, in both directions.
//!
//! A packet is its type and its fields, separated by spaces: `PUBLISH t id=1 qos=1 retain "x"`. The
//! order of the fields of a sent packet is free, and `-` is an empty client id or topic. Properties
//! are written like [`Property`], a will, a subscription and a filter in brackets.

use std::collections::BTreeMap;

use statestore_mqtt::packet::{Filters, RetainHandling, Unsubscribe};
use statestore_testkit::wire::mqtt_text::{show, show_property};

use crate::*;

/// Encodes a packet. `hex` followed by digits stands for the bytes themselves.
pub(super) fn encode(text: &str) -> BytesMut {
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    let mut out = BytesMut::new();
    if kind == "hex" {
        out.extend_from_slice(&hex::decode(rest.replace(' ', "")).expect("hexadecimal digits"));
        return out;
    }
    let fields = Fields::parse(rest);
    let subscriptions: Vec<_> = fields.groups.iter().map(|group| subscription(group)).collect();
    let properties = &fields.properties[..];
    let packet = match kind {
        "CONNECT" => return encode_connect(&fields),
        "PUBLISH" => Packet::Publish(Publish {
            dup: fields.has("dup"),
            qos: fields.qos(),
            retain: fields.has("retain"),
            topic: fields.name(),
            id: fields.named.get("id").map(|id| number(id)),
            properties,
            payload: fields.payload.as_bytes(),
        }),
        "PUBACK" => Packet::PubAck(fields.ack()),
        "PUBREC" => Packet::PubRec(fields.ack()),
        "PUBREL" => Packet::PubRel(fields.ack()),
        "PUBCOMP" => Packet::PubComp(fields.ack()),
        "SUBSCRIBE" => Packet::Subscribe(Subscribe {
            id: fields.id(),
            properties,
            subscriptions: Subscriptions::new(&subscriptions),
        }),
        "UNSUBSCRIBE" => Packet::Unsubscribe(Unsubscribe {
            id: fields.id(),
            properties,
            filters: Filters::new(&fields.groups),
        }),
        "PINGREQ" => Packet::PingReq,
        "DISCONNECT" => Packet::Disconnect(Notice { reason: fields.reason(), properties }),
        "AUTH" => Packet::Auth(Notice { reason: fields.reason(), properties }),
        other => panic!("unknown packet type {other}"),
    };
    packet.encode(&mut out).unwrap_or_else(|error| panic!("{text}: {error}"));
    out
}

fn encode_connect(fields: &Fields<'_>) -> BytesMut {
    let will_fields = fields.named.get("will").map(|text| Fields::parse(inside(text)));
    let will = will_fields.as_ref().map(|will| Will {
        qos: will.qos(),
        retain: will.has("retain"),
        properties: &will.properties[..],
        topic: will.name(),
        payload: will.payload.as_bytes(),
    });
    let connect = Connect {
        clean_start: fields.has("clean"),
        keep_alive: fields.named.get("keep-alive").map_or(0, |seconds| number(seconds)),
        properties: &fields.properties[..],
        client_id: fields.name(),
        will,
        user_name: fields.named.get("user").copied(),
        password: fields.named.get("password").map(|password| password.as_bytes()),
    };
    let mut out = BytesMut::new();
    Packet::Connect(connect).encode(&mut out).expect("an encodable packet");
    out
}

/// Returns the subscription of a group, such as `t/# qos=1 no-local`.
pub(super) fn subscription(group: &str) -> Subscription<'_> {
    let fields = Fields::parse(group);
    let retain_handling = match (fields.has("if-new"), fields.has("never")) {
        (true, _) => RetainHandling::IfNew,
        (_, true) => RetainHandling::Never,
        _ => RetainHandling::Always,
    };
    let options = SubscriptionOptions {
        qos: fields.qos(),
        no_local: fields.has("no-local"),
        retain_as_published: fields.has("as-published"),
        retain_handling,
    };
    Subscription { filter: fields.name(), options }
}

/// Returns a packet as text. The fields of a PUBLISH are in the order of [`encode`].
pub(super) fn decode(packet: &Packet<'_>) -> String {
    let Packet::Publish(publish) = packet else { return show(packet) };
    let mut words = vec!["PUBLISH".to_owned(), publish.topic.escape_debug().to_string()];
    if publish.topic.is_empty() {
        words[1] = "-".to_owned();
    }
    words.extend(publish.id.map(|id| format!("id={id}")));
    if publish.qos != Qos::AtMostOnce {
        words.push(format!("qos={}", publish.qos as u8));
    }
    for (flag, name) in [(publish.dup, "dup"), (publish.retain, "retain")] {
        words.extend(flag.then(|| name.to_owned()));
    }
    words.extend(publish.properties.iter().map(|property| match property {
        Property::CorrelationData(data) => format!("CorrelationData({:?})", utf8(data)),
        other => show_property(&other),
    }));
    if !publish.payload.is_empty() {
        words.push(format!("{:?}", utf8(publish.payload)));
    }
    words.join(" ")
}

fn utf8(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8 text")
}

/// Splits text at spaces outside of quotes and brackets.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut depth) = (false, 0_usize);
    let split = move |letter: char| {
        match letter {
            '"' => is_quoted = !is_quoted,
            '(' | '[' if !is_quoted => depth += 1,
            ')' | ']' if !is_quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ' ' && !is_quoted && depth == 0
    };
    text.split(split).filter(|word| !word.is_empty())
}

/// The words of a packet after its type.
#[derive(Default)]
pub(super) struct Fields<'a> {
    /// Words such as a topic, a reason code or `retain`.
    plain: Vec<&'a str>,
    named: BTreeMap<&'a str, &'a str>,
    pub(super) properties: Vec<Property<'a>>,
    /// Contents of brackets.
    pub(super) groups: Vec<&'a str>,
    payload: &'a str,
}

impl<'a> Fields<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let mut fields = Self::default();
        for word in words(text) {
            match word.find(['"', '[', '(', '=']) {
                Some(0) if word.starts_with('"') => fields.payload = unquote(word),
                Some(0) => fields.groups.push(inside(word)),
                Some(at) if word[at..].starts_with('(') => {
                    fields.properties.push(property(&word[..at], inside(&word[at..])));
                }
                Some(at) => {
                    fields.named.insert(&word[..at], &word[at + 1..]);
                }
                None => fields.plain.push(word),
            }
        }
        fields
    }

    fn has(&self, word: &str) -> bool {
        self.plain.contains(&word)
    }

    /// The topic, the filter or the client id.
    fn name(&self) -> &'a str {
        match self.plain.first() {
            Some(&"-") => "",
            Some(name) => name,
            None => panic!("the first field is missing"),
        }
    }

    fn id(&self) -> NonZeroU16 {
        number(self.named.get("id").expect("a packet identifier"))
    }

    fn qos(&self) -> Qos {
        match self.named.get("qos") {
            None => Qos::AtMostOnce,
            Some(&"1") => Qos::AtLeastOnce,
            Some(&"2") => Qos::ExactlyOnce,
            Some(other) => panic!("{other} is not a QoS"),
        }
    }

    fn reason(&self) -> Reason {
        let code = self.plain.first().map(|code| u8::from_str_radix(code, 16));
        code.map_or(Reason::SUCCESS, |code| Reason(code.expect("a reason code")))
    }

    fn ack(&self) -> Ack<Properties<'_>> {
        Ack { id: self.id(), reason: self.reason(), properties: &self.properties }
    }
}

fn property<'a>(name: &str, value: &'a str) -> Property<'a> {
    match name {
        "PayloadFormat" => Property::PayloadFormat(number(value)),
        "MessageExpiry" => Property::MessageExpiry(number(value)),
        "ContentType" => Property::ContentType(unquote(value)),
        "ResponseTopic" => Property::ResponseTopic(unquote(value)),
        "CorrelationData" => Property::CorrelationData(unquote(value).as_bytes()),
        "SubscriptionId" => Property::SubscriptionId(number(value)),
        "SessionExpiry" => Property::SessionExpiry(number(value)),
        "AuthenticationMethod" => Property::AuthenticationMethod(unquote(value)),
        "RequestProblemInformation" => Property::RequestProblemInformation(number(value)),
        "RequestResponseInformation" => Property::RequestResponseInformation(number(value)),
        "WillDelay" => Property::WillDelay(number(value)),
        "ServerReference" => Property::ServerReference(unquote(value)),
        "ReceiveMaximum" => Property::ReceiveMaximum(number(value)),
        "TopicAliasMaximum" => Property::TopicAliasMaximum(number(value)),
        "TopicAlias" => Property::TopicAlias(number(value)),
        "MaximumPacketSize" => Property::MaximumPacketSize(number(value)),
        "User" => {
            let (key, value) = value.split_once(", ").expect("a key and a value");
            Property::User(unquote(key), unquote(value))
        }
        other => panic!("unknown property {other}"),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text} is not a value"))
}

fn inside(text: &str) -> &str {
    let end = text.len().saturating_sub(1);
    text.get(1..end).unwrap_or_else(|| panic!("{text} is not in brackets"))
}

fn unquote(text: &str) -> &str {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    inner.unwrap_or_else(|| panic!("{text} is not in quotes"))
}
