//! Packets that the scripted broker sends and expects.

use bytes::Bytes;
use statestore_proto::topic::REQUEST;
use statestore_proto::transport::{SubscribeToken, Transmit};
use tokio::time::timeout;

use crate::brokers::scripted::Peer;
use crate::process::HANGS;
use crate::wire::packets::{Packet, Publish, PublishProperties, Qos};

/// A message at QoS 1 whose payload is its id.
pub(super) fn message(topic: &str, id: u16) -> Publish {
    let mut publish = Publish::new(topic, Qos::AtLeastOnce, id.to_string(), None);
    publish.pkid = id;
    publish
}

/// A SET of the key `k`, with this message expiry.
pub(super) fn set_request(id: u16, message_expiry: Option<u32>) -> Publish {
    let properties = PublishProperties {
        response_topic: Some("clients/c/services/statestore/response".into()),
        correlation_data: Some(Bytes::copy_from_slice(&id.to_be_bytes())),
        message_expiry_interval: message_expiry,
        user_properties: vec![
            ("__ts".into(), format!("{}:1:c", unix_ms())),
            ("__protVer".into(), "1.0".into()),
        ],
        ..PublishProperties::default()
    };
    let payload = Bytes::from_static(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n");
    let mut publish = Publish::new(REQUEST, Qos::AtLeastOnce, payload, Some(properties));
    publish.pkid = id;
    publish
}

#[expect(clippy::disallowed_methods, reason = "a request carries the time of its sender")]
pub(super) fn unix_ms() -> u128 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis()
}

/// A SUBSCRIBE of a machine.
pub(super) fn subscribe(filter: &str, token: u64) -> Transmit {
    Transmit::Subscribe { filter: filter.into(), token: SubscribeToken::from_raw(token) }
}

/// The filter of the next SUBSCRIBE.
pub(super) async fn filter(peer: &mut Peer) -> String {
    match timeout(HANGS, peer.read()).await.expect("in time") {
        Some(Packet::Subscribe(subscribe)) => subscribe.filters[0].clone(),
        other => panic!("{other:?} instead of a SUBSCRIBE"),
    }
}
