//! Validity and size of packets, before any library sees them.

use std::fmt::Write as _;

use statestore_mqtt::topic;
use statestore_mqtt::wire::varint_len;
use statestore_proto::transport::{Publish, ReasonCode};

use super::connector::Outgoing;

/// Longest packet that MQTT can express, in bytes.
pub(crate) const PACKET_BYTES_MAX: usize = 268_435_460;

/// Returns why a packet cannot be sent, if it cannot: its topic, filter or a text is invalid, or it
/// has more than `packet_bytes_max` bytes.
#[must_use]
pub fn packet_refusal(packet: &Outgoing, packet_bytes_max: usize) -> Option<ReasonCode> {
    match packet {
        Outgoing::Publish(publish) if !is_topic_name(&publish.topic) => {
            Some(ReasonCode::TOPIC_NAME_INVALID)
        }
        Outgoing::Publish(publish) => match publish_bytes(publish) {
            None => Some(ReasonCode::UNSPECIFIED_ERROR),
            Some(bytes) => (bytes > packet_bytes_max).then_some(ReasonCode::PACKET_TOO_LARGE),
        },
        Outgoing::Subscribe { filter, .. } => {
            // A packet id, the length of the properties, and the options come with the filter.
            let fits = packet_bytes(2 + 1 + 2 + filter.len() + 1) <= packet_bytes_max;
            match is_topic_filter(filter) {
                false => Some(ReasonCode::TOPIC_FILTER_INVALID),
                true => (!fits).then_some(ReasonCode::PACKET_TOO_LARGE),
            }
        }
        // Sent by the link itself.
        Outgoing::Plain { .. } | Outgoing::Unsubscribe { .. } => None,
    }
}

/// Returns whether MQTT can express a text.
fn is_text(text: &str) -> bool {
    text.len() <= usize::from(u16::MAX) && !text.contains('\0')
}

/// Returns whether a text is a topic name.
pub(crate) fn is_topic_name(text: &str) -> bool {
    topic::is_name(text) && is_text(text)
}

/// Returns whether a text is a topic filter.
pub(crate) fn is_topic_filter(text: &str) -> bool {
    topic::is_filter(text) && is_text(text)
}

/// Bytes of a PUBLISH at QoS 1 on the wire; `None` if a text is invalid.
fn publish_bytes(publish: &Publish) -> Option<usize> {
    let text = |text: &str| is_text(text).then_some(1 + 2 + text.len());
    let mut properties = 0;
    for value in publish.response_topic.as_deref().into_iter().chain(publish.content_type) {
        properties += text(value)?;
    }
    if let Some(data) = &publish.correlation_data {
        let bytes = data.as_bytes().len();
        properties += (bytes <= usize::from(u16::MAX)).then_some(1 + 2 + bytes)?;
    }
    properties += publish.message_expiry.map_or(0, |_| 1 + 4);
    for (name, value) in publish.user_properties() {
        let mut scanned = Scanned { bytes: 0, has_nul: false };
        let _ = write!(scanned, "{value}");
        let is_valid = !scanned.has_nul && scanned.bytes <= usize::from(u16::MAX);
        properties += is_valid.then_some(1 + 2 + name.len() + 2 + scanned.bytes)?;
    }
    let head = 2 + publish.topic.len() + 2 + varint_len(properties);
    Some(packet_bytes(head + properties + publish.payload.len()))
}

/// Length of a text that is written to it.
struct Scanned {
    bytes: usize,
    has_nul: bool,
}

impl std::fmt::Write for Scanned {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.bytes += text.len();
        self.has_nul |= text.contains('\0');
        Ok(())
    }
}

/// Bytes of a whole packet, given those after its fixed header.
fn packet_bytes(rest: usize) -> usize {
    1 + varint_len(rest) + rest
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use statestore_proto::client::{Client, ClientConfig, Request};
    use statestore_proto::machine::{Input, Machine as _};
    use statestore_proto::time::Now;
    use statestore_proto::transport::{Qos, Transmit};

    use super::*;

    fn publish(value: usize) -> Publish {
        let mut client = Client::new(ClientConfig::new("c", [0; 8])).expect("a client id");
        client.handle(Now::default(), Input::Connected { session_present: true });
        let subscribe = client.poll_transmit();
        if let Some(Transmit::Subscribe { token, .. }) = subscribe {
            client.handle(Now::default(), Input::Subscribed(token, ReasonCode::GRANTED_QOS_1));
        }
        let request = Request::set("k", vec![b'x'; value]);
        client.submit(Now::default(), request).expect("it is valid");
        std::iter::from_fn(|| client.poll_transmit())
            .find_map(|transmit| match transmit {
                Transmit::Publish(publish) => Some(publish),
                _ => None,
            })
            .expect("a request is sent")
    }

    #[test]
    fn packets_up_to_the_limit_are_sent() {
        for value in [0, 1, 100, 127, 128, 16_383, 16_384, 100_000] {
            let publish = publish(value);
            let bytes = publish_bytes(&publish).expect("its texts are valid");
            let packet = Outgoing::Publish(publish);
            assert_eq!(packet_refusal(&packet, bytes), None);
            assert_eq!(packet_refusal(&packet, bytes - 1), Some(ReasonCode::PACKET_TOO_LARGE));
        }
    }

    #[test]
    fn invalid_topics_and_texts_are_refused() {
        for topic in ["", "a/+", "#", "nul\0", &"x".repeat(65_536)] {
            let mut publish = publish(1);
            publish.topic = topic.into();
            let refused = packet_refusal(&Outgoing::Publish(publish), PACKET_BYTES_MAX);
            assert_eq!(refused, Some(ReasonCode::TOPIC_NAME_INVALID));
        }
        let mut publish = publish(1);
        publish.response_topic = Some("nul\0".into());
        let refused = packet_refusal(&Outgoing::Publish(publish), PACKET_BYTES_MAX);
        assert_eq!(refused, Some(ReasonCode::UNSPECIFIED_ERROR));
    }

    #[test]
    fn only_topic_filters_are_subscribed() {
        let refused = |filter: &str, max| {
            let filter = Arc::from(filter);
            packet_refusal(&Outgoing::Subscribe { filter, qos: Qos::AtLeastOnce, token: None }, max)
        };
        for filter in ["a", "+", "#", "/", "a/+/b", "a/#", "+/#", "$SYS/broker/log/N"] {
            assert_eq!(refused(filter, PACKET_BYTES_MAX), None, "{filter}");
        }
        for filter in ["", "a#", "a+", "#/a", "a/#/b", "+a/b", "nul\0"] {
            let invalid = Some(ReasonCode::TOPIC_FILTER_INVALID);
            assert_eq!(refused(filter, PACKET_BYTES_MAX), invalid, "{filter}");
        }
        // SUBSCRIBE: type, length, id, properties, filter with its length, options.
        assert_eq!(refused("abc", 11), None);
        assert_eq!(refused("abc", 10), Some(ReasonCode::PACKET_TOO_LARGE));
        let plain = Outgoing::Plain {
            topic: "t".into(),
            payload: Bytes::new(),
            qos: Qos::AtMostOnce,
            retain: false,
        };
        assert_eq!(packet_refusal(&plain, 1), None);
    }
}
