//! Faults that clients request by user properties, with the names and meanings of the test broker
//! of Azure IoT Operations.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use statestore_mqtt::Qos;
use statestore_mqtt::packet::Packet;
use statestore_mqtt::property::Properties;

/// Request ids that are remembered. Further requests cause no fault.
const REQUESTS_MAX: usize = 10_000;

/// Longest request id in bytes.
const REQUEST_BYTES_MAX: usize = 256;

/// A fault that replaces the forwarding of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Requested {
    /// The response of the broker. The packet is not forwarded.
    Reject {
        response: Vec<u8>,
        /// Set for a rejected connection, which ends.
        is_last: bool,
    },
    /// A DISCONNECT. With a delay, the packet is forwarded first.
    Disconnect { packet: [u8; 4], after: Option<Duration> },
}

impl Requested {
    pub(super) const fn text(&self) -> &'static str {
        match self {
            Self::Reject { .. } => "requested-reject",
            Self::Disconnect { .. } => "requested-disconnect",
        }
    }
}

/// The requests of all connections. Each request id causes one fault, so that a packet that a
/// client sends again passes.
#[derive(Default)]
pub(super) struct Requests(Mutex<HashSet<(&'static str, String)>>);

impl Requests {
    /// Returns the fault that a packet of a client requests.
    pub(super) fn fault(&self, packet: &Packet<'_>) -> Option<Requested> {
        let (kind, properties) = match packet {
            Packet::Connect(connect) => ("connect", &connect.properties),
            Packet::Publish(publish) => ("publish", &publish.properties),
            Packet::Subscribe(subscribe) => ("subscribe", &subscribe.properties),
            Packet::Unsubscribe(unsubscribe) => ("unsubscribe", &unsubscribe.properties),
            _ => return None,
        };
        let fault = requested(packet, kind, properties)?;
        match value(properties, "fault:requestid") {
            Some(id) if id.len() > REQUEST_BYTES_MAX => None,
            Some(id) => {
                let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let is_new = known.len() < REQUESTS_MAX && known.insert((kind, id.to_owned()));
                is_new.then_some(fault)
            }
            None => Some(fault),
        }
    }
}

/// The first value of a user property.
fn value<'a>(properties: &Properties<'a>, name: &str) -> Option<&'a str> {
    properties.user().find(|(found, _)| *found == name).map(|(_, value)| value)
}

fn requested(packet: &Packet<'_>, kind: &str, properties: &Properties<'_>) -> Option<Requested> {
    let code = |name: &str| value(properties, name)?.parse::<u8>().ok();
    if kind != "connect"
        && let Some(code) = code("fault:disconnect")
    {
        let seconds = value(properties, "fault:delay").and_then(|delay| delay.parse::<u32>().ok());
        let after = seconds.map(|seconds| Duration::from_secs(seconds.into()));
        return Some(Requested::Disconnect { packet: [0xe0, 0x02, code, 0x00], after });
    }
    let code = code(&format!("fault:reject{kind}"))?;
    let response = match packet {
        Packet::Connect(_) => vec![0x20, 0x03, 0x00, code, 0x00],
        Packet::Publish(publish) => {
            let [high, low] = publish.id?.get().to_be_bytes();
            let first = if publish.qos == Qos::ExactlyOnce { 0x50 } else { 0x40 };
            vec![first, 0x04, high, low, code, 0x00]
        }
        Packet::Subscribe(subscribe) => {
            codes(0x90, subscribe.id.get(), code, subscribe.subscriptions.count())?
        }
        Packet::Unsubscribe(unsubscribe) => {
            codes(0xb0, unsubscribe.id.get(), code, unsubscribe.filters.count())?
        }
        _ => return None,
    };
    Some(Requested::Reject { response, is_last: kind == "connect" })
}

/// A SUBACK or UNSUBACK with one code for each filter; `None` for more than a hundred filters.
fn codes(first: u8, id: u16, code: u8, count: usize) -> Option<Vec<u8>> {
    let length = u8::try_from(3 + count).ok().filter(|_| count <= 100)?;
    let [high, low] = id.to_be_bytes();
    let mut packet = vec![first, length, high, low, 0x00];
    packet.resize(5 + count, code);
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with these user properties after a head.
    fn packet(first: u8, head: &[u8], pairs: &[(&str, &str)], rest: &[u8]) -> Vec<u8> {
        let mut properties = Vec::new();
        for text in pairs.iter().flat_map(|(name, value)| [name, value]).enumerate() {
            if text.0 % 2 == 0 {
                properties.push(0x26);
            }
            properties.extend(u16::try_from(text.1.len()).expect("short").to_be_bytes());
            properties.extend(text.1.as_bytes());
        }
        let mut body = head.to_vec();
        body.push(u8::try_from(properties.len()).expect("short"));
        body.extend(properties);
        body.extend(rest);
        [&[first, u8::try_from(body.len()).expect("short")], &body[..]].concat()
    }

    fn fault(requests: &Requests, packet: &[u8]) -> Option<Requested> {
        requests.fault(&Packet::decode(packet).expect("a packet"))
    }

    fn publish(pairs: &[(&str, &str)]) -> Vec<u8> {
        packet(0x32, &[0, 1, b't', 0x12, 0x34], pairs, b"x")
    }

    #[test]
    fn reject_has_the_response_of_the_packet() {
        let requests = Requests::default();
        let reject = |response: &[u8], is_last| {
            Some(Requested::Reject { response: response.to_vec(), is_last })
        };
        let puback = publish(&[("fault:rejectpublish", "151")]);
        assert_eq!(fault(&requests, &puback), reject(&[0x40, 4, 0x12, 0x34, 151, 0], false));
        let head = [0, 7];
        let filters = [0, 1, b'a', 1, 0, 1, b'b', 1];
        let subscribe = packet(0x82, &head, &[("fault:rejectsubscribe", "135")], &filters);
        assert_eq!(fault(&requests, &subscribe), reject(&[0x90, 5, 0, 7, 0, 135, 135], false));
        let filters = [0, 1, b'a'];
        let unsubscribe = packet(0xa2, &head, &[("fault:rejectunsubscribe", "135")], &filters);
        assert_eq!(fault(&requests, &unsubscribe), reject(&[0xb0, 4, 0, 7, 0, 135], false));
        let head = [0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 60];
        let connect = packet(0x10, &head, &[("fault:rejectconnect", "137")], &[0, 1, b'c']);
        assert_eq!(fault(&requests, &connect), reject(&[0x20, 3, 0, 137, 0], true));
        for other in [&[("fault:rejectconnect", "137")][..], &[("fault:rejectpublish", "x")], &[]] {
            assert_eq!(fault(&requests, &publish(other)), None, "{other:?}");
        }
    }

    #[test]
    fn request_id_causes_one_fault() {
        let requests = Requests::default();
        let cut = publish(&[("fault:disconnect", "152"), ("fault:requestid", "r")]);
        let expected = Requested::Disconnect { packet: [0xe0, 2, 152, 0], after: None };
        assert_eq!(fault(&requests, &cut), Some(expected));
        assert_eq!(fault(&requests, &cut), None, "the packet that is sent again passes");
        let late = publish(&[("fault:disconnect", "152"), ("fault:delay", "3")]);
        for _ in 0..2 {
            let after = Some(Duration::from_secs(3));
            let expected = Requested::Disconnect { packet: [0xe0, 2, 152, 0], after };
            assert_eq!(fault(&requests, &late), Some(expected), "without an id, each time");
        }
    }
}
