//! Replies to requesters with a small Maximum Packet Size.

use std::num::NonZeroU16;

use statestore_models::machines::request::StoreRequest;
use statestore_mqtt::packet::{Packet, Publish};
use statestore_mqtt::property::Property;
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Page, Scan};
use statestore_proto::transport::{self, Transmit};

use super::{Rig, get, set};

const QUOTA: &[u8] = b"-ERR the quota has been exceeded\r\n";

/// Bytes by which the store's estimate may exceed the packet: it assumes the longest length fields.
const SLACK: usize = 8;

/// Length of the packet that a broker sends for a publish.
fn packet_len(publish: &transport::Publish) -> usize {
    let user: Vec<(&str, String)> =
        publish.user_properties().map(|(name, value)| (name, value.to_string())).collect();
    let mut properties: Vec<Property<'_>> =
        publish.message_expiry.map(Property::MessageExpiry).into_iter().collect();
    let data = publish.correlation_data.as_ref().map(transport::Correlation::as_bytes);
    properties.extend(data.map(Property::CorrelationData));
    properties.extend(user.iter().map(|(name, value)| Property::User(name, value)));
    let packet = Publish {
        dup: false,
        qos: statestore_mqtt::Qos::AtLeastOnce,
        retain: false,
        topic: &publish.topic,
        id: NonZeroU16::new(1),
        properties: &properties[..],
        payload: &publish.payload,
    };
    Packet::Publish(packet).encoded_len().expect("a packet")
}

fn reply(rig: &mut Rig, request: &StoreRequest) -> transport::Publish {
    request.submit_to(rig.now(), &mut rig.store);
    let Some(Transmit::Publish(reply)) = rig.store.poll_transmit() else { panic!("no reply") };
    while rig.store.poll_transmit().is_some() {}
    reply
}

#[test]
fn value_beyond_the_packet_limit_of_its_requester_is_refused() {
    let mut rig = Rig::new();
    let value = "v".repeat(500);
    rig.answer("writer", &set("k", &value));
    let mut request = rig.request("c", &get("k"));
    (request.expiry, request.incarnation) = (Some(10), Some(String::new()));
    let whole = packet_len(&reply(&mut rig, &request));
    assert!(whole > 600, "{whole}");
    for max in 0..whole + 2 * SLACK {
        request.packet_bytes_max = Some(max);
        let reply = reply(&mut rig, &request);
        let is_refused = *reply.payload == *QUOTA;
        assert!(is_refused || packet_len(&reply) <= max, "{max}");
        assert!(!is_refused || whole + SLACK > max, "{max} suffices for {whole}");
    }
}

/// An applied write is always confirmed, whatever the size of the reply.
#[test]
fn write_is_applied_whatever_the_packet_limit_of_its_requester() {
    let mut rig = Rig::new();
    let mut request = rig.request("c", &set("k", "v"));
    request.packet_bytes_max = Some(1);
    assert_eq!(*reply(&mut rig, &request).payload, *b"+OK\r\n");
    assert_eq!(rig.store.get(rig.now(), b"k").map(|entry| entry.value.to_vec()), Some(b"v".into()));
}

#[test]
fn scan_pages_fit_into_the_packet_limit_of_the_requester() {
    let mut rig = Rig::limited(StoreLimits { page_bytes_max: 300, ..StoreLimits::default() });
    let mut keys: Vec<String> =
        (1..40).map(|at| format!("{}{at}", "key ".repeat(at * 7 % 11))).collect();
    for key in &keys {
        rig.answer("writer", &set(key, "v"));
    }
    keys.sort();
    let (mut complete, mut sizes) = (0, Vec::new());
    for max in 0..700 {
        let (mut listed, mut token, mut pages) = (Vec::new(), None::<Vec<u8>>, 0);
        let is_whole = loop {
            let scan = Scan { pattern: b"*".as_slice(), token: token.as_deref() };
            rig.number += 1;
            let mut request = StoreRequest::with_payload("c", rig.number, scan.encode());
            request.packet_bytes_max = Some(max);
            let reply = reply(&mut rig, &request);
            if *reply.payload == *QUOTA {
                break false;
            }
            assert!(packet_len(&reply) <= max, "{max}");
            let page = Page::decode(&reply.payload).expect("a page");
            listed.extend(page.keys().map(|key| String::from_utf8_lossy(key).into_owned()));
            pages += 1;
            assert!(pages <= 3 * keys.len(), "the scan makes progress");
            token = page.token().map(<[u8]>::to_vec);
            if token.is_none() {
                break true;
            }
        };
        assert!(keys.starts_with(&listed), "{max}: {listed:?}");
        assert_eq!(is_whole, listed.len() == keys.len(), "{max}");
        complete += usize::from(is_whole);
        sizes.push(pages);
    }
    assert!(complete > 300, "listings are complete from some limit on: {complete}");
    assert!(sizes.iter().max() > sizes.last(), "smaller packets hold smaller pages");
}
