//! Messages and clock values, from bytes and to bytes.

use std::hint::black_box;

use statestore_proto::hlc::{Hlc, HlcRef, HybridClock, NodeId};
use statestore_proto::message::{
    Command, Condition, Dialect, Notification, PeerError, Reply, RequestKind,
};
use statestore_proto::time::UnixTime;

use crate::stage::{VALUE_LEN, key};

const VALUE: &[u8] = &[b'v'; VALUE_LEN];

const TEXT: &str = "1696374425000:1:StateStore";

const SENDER_TEXT: &str = "1696374425000:0:CLIENT";

fn with_set(then: impl FnOnce(Command<&'static [u8]>) -> Box<dyn FnMut()>) -> Box<dyn FnMut()> {
    // A path lives as long as its process.
    let key: &'static [u8] = key(1).leak();
    then(Command::Set { key, value: VALUE, condition: Condition::Always, expiry: None })
}

pub(super) fn encode_set(_: usize) -> Box<dyn FnMut()> {
    with_set(|set| {
        assert_eq!(Command::decode(&set.encode()), Ok(set));
        Box::new(move || _ = black_box(black_box(set).encode()))
    })
}

pub(super) fn decode_set(_: usize) -> Box<dyn FnMut()> {
    with_set(|set| {
        let payload = set.encode();
        assert_eq!(Command::decode(&payload), Ok(set));
        Box::new(move || _ = black_box(Command::decode(black_box(&payload))))
    })
}

pub(super) fn encode_get_response(_: usize) -> Box<dyn FnMut()> {
    let reply = Reply::Value(VALUE);
    assert_eq!(decoded_get(&reply.encode(Dialect::Deployed)), Ok(reply));
    Box::new(move || _ = black_box(black_box(reply).encode(Dialect::Deployed)))
}

pub(super) fn decode_get_response(_: usize) -> Box<dyn FnMut()> {
    let payload = Reply::Value(VALUE).encode(Dialect::Deployed);
    assert_eq!(decoded_get(&payload), Ok(Reply::Value(VALUE)));
    Box::new(move || _ = black_box(decoded_get(black_box(&payload))))
}

fn decoded_get(payload: &[u8]) -> Result<Reply<&[u8]>, PeerError> {
    Reply::decode(payload, RequestKind::Get)
}

pub(super) fn encode_notification(_: usize) -> Box<dyn FnMut()> {
    let notification = Notification::Set(VALUE);
    assert_eq!(Notification::decode(&notification.encode(Dialect::Deployed)), Ok(notification));
    Box::new(move || _ = black_box(black_box(notification).encode(Dialect::Deployed)))
}

pub(super) fn decode_notification(_: usize) -> Box<dyn FnMut()> {
    let payload = Notification::Set(VALUE).encode(Dialect::Deployed);
    assert_eq!(Notification::decode(&payload), Ok(Notification::Set(VALUE)));
    Box::new(move || _ = black_box(Notification::decode(black_box(&payload))))
}

pub(super) fn receive(_: usize) -> Box<dyn FnMut()> {
    let now = UnixTime::from_millis(1_696_374_425_000);
    let request = parsed(SENDER_TEXT);
    let mut clock = HybridClock::new(NodeId::new("StateStore").expect("a valid node id"));
    assert_eq!(clock.receive(now, request.borrowed()), Ok(parsed(TEXT)));
    Box::new(move || _ = black_box(clock.receive(black_box(now), black_box(&request).borrowed())))
}

pub(super) fn parse(_: usize) -> Box<dyn FnMut()> {
    assert_eq!(HlcRef::parse(TEXT), Ok(parsed(TEXT).borrowed()));
    Box::new(|| _ = black_box(HlcRef::parse(black_box(TEXT))))
}

pub(super) fn encode_hlc(_: usize) -> Box<dyn FnMut()> {
    let hlc = parsed(TEXT);
    assert_eq!(hlc.encode(), TEXT);
    Box::new(move || _ = black_box(black_box(&hlc).encode()))
}

fn parsed(text: &str) -> Hlc {
    text.parse().expect("a valid clock value")
}
