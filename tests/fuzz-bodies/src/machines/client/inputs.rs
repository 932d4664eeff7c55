//! Messages as the network may deliver them.

use bytes::Bytes;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Dialect, Notification, RequestKind, property};
use statestore_proto::topic::NotificationTopic;
use statestore_proto::transport::Incoming;

use super::super::store::{KEYS, PAYLOADS};
use super::{ClientRig, ID, pick};
use statestore_models::machines::Args;
use statestore_models::machines::request::response_topic;

const REPLIES: &[&[u8]] = &[
    b"+OK\r\n",
    b":1\r\n",
    b":0\r\n",
    b":-1\r\n",
    b"-1\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"$1\r\nx\r\n",
    b"-ERR not authorized\r\n",
    b"-ERR out of tea",
    b"",
    b"$5\r\nx\r\n",
    b"*1\r\n*0\r\n",
    b"*0\r\n",
];

impl ClientRig {
    pub(super) fn reply(
        &mut self,
        fitting: bool,
        [which, payload, version, stray, incarnation]: Args,
    ) {
        let Some(mut sent) = pick(&self.requested, which) else { return };
        let payload: &[u8] = match (sent.kind, fitting) {
            (_, false) => REPLIES[usize::from(payload) % REPLIES.len()],
            (RequestKind::Get, _) if payload & 1 == 0 => b"$-1\r\n",
            (RequestKind::Get, _) => b"$5\r\nvalue\r\n",
            (RequestKind::Del | RequestKind::VDel, _) => b":1\r\n",
            (RequestKind::Scan, _) => b"*2\r\n*1\r\n$1\r\na\r\n$1\r\nt\r\n",
            _ => b"+OK\r\n",
        };
        if !fitting {
            match stray % 8 {
                0 => sent.correlation[0] ^= 1,
                1 => sent.correlation.truncate(15),
                2 => sent.correlation.push(0),
                _ => {}
            }
        }
        let payload = Bytes::from_static(payload);
        let (topic, version) = (response_topic(ID), self.version(version));
        let mut incoming = Incoming::new(&topic, &payload);
        incoming.correlation_data = Some(&sent.correlation);
        incoming.retain = !fitting && stray & 0x80 != 0;
        incoming.user_property("__ts", &version);
        set_incarnation(&mut incoming, incarnation);
        self.client.handle(self.now, Input::Message(&incoming));
    }

    pub(super) fn notification(&mut self, [key, kind, version, incarnation, _]: Args) {
        let key = KEYS[usize::from(key) % KEYS.len()].as_bytes();
        let topic = NotificationTopic::new(ID, key).expect("short").to_string();
        let value = [kind];
        let notification =
            if kind & 1 == 0 { Notification::Deleted } else { Notification::Set(value.as_slice()) };
        let payload = Bytes::from(notification.encode(Dialect::Deployed));
        let version = self.version(version);
        let mut incoming = Incoming::new(&topic, &payload);
        incoming.user_property("__ts", &version);
        set_incarnation(&mut incoming, incarnation);
        self.client.handle(self.now, Input::Message(&incoming));
    }

    /// A message unrelated to any request of this client.
    pub(super) fn unrelated_message(&mut self, [topic, payload, version, kind, _]: Args) {
        let own = NotificationTopic::new(ID, b"never watched").expect("short").to_string();
        let other = NotificationTopic::new("other", b"a").expect("short").to_string();
        let topics = [response_topic(ID), own, other, "elsewhere".into(), String::new()];
        let payload = match usize::from(payload) {
            small if small < PAYLOADS.len() => Bytes::from_static(PAYLOADS[small]),
            large => Bytes::from_static(REPLIES[large % REPLIES.len()]),
        };
        let version = self.version(version);
        let mut incoming = Incoming::new(&topics[usize::from(topic) % topics.len()], &payload);
        incoming.correlation_data =
            [None, Some(b"".as_slice()), Some(b"noncenon\0\0\0\0\0\0\0\0"), Some(&[0; 16])]
                [usize::from(kind & 3)];
        incoming.retain = kind & 4 != 0;
        incoming.user_property("__ts", &version);
        self.client.handle(self.now, Input::Message(&incoming));
    }

    fn version(&self, choice: u8) -> String {
        let unix = self.now.unix.as_millis();
        match choice % 32 {
            30 => "soon".into(),
            31 => format!("{}:0:StateStore", unix.saturating_add(600_000)),
            choice => format!("{unix}:{choice}:StateStore"),
        }
    }
}

/// Sets the incarnation property: absent, one of two, or invalid.
fn set_incarnation(incoming: &mut Incoming<'_>, choice: u8) {
    let text = ["", "0000000000000001", "0000000000000002", "soon"].get(usize::from(choice % 8));
    if let Some(text) = text {
        incoming.user_property(property::INCARNATION, text);
    }
}
