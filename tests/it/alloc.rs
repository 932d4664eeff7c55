//! Number of allocations per operation, counted per thread so that parallel tests do not interfere.

use std::hint::black_box;

use bytes::Bytes;
use statestore_proto::hlc::{FencingToken, Hlc, HlcRef, HybridClock, NodeId, Version};
use statestore_proto::message::{
    Command, Condition, Dialect, Expiry, Notification, Refusal, Reply, RequestKind, ServiceError,
};
use statestore_proto::resp::{decode_array, decode_frame};
use statestore_proto::rules::{KeyState, RequestTimestamps, Stored, decide};
use statestore_proto::store::{Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::topic::{ParsedNotificationTopic, REQUEST, ResponseTopic, check_response};
use statestore_proto::transport::{Incoming, Transmit};

use statestore_testkit::process::memory::allocations_of as allocations;

const NOW: UnixTime = UnixTime::from_millis(1_696_374_425_000);

/// A node id that is stored in place, and the longest one of deployed clients.
const NODES: [&str; 2] = ["StateStore", "6f3a1c0e-52b7-4d0e-9a51-0c8d2a7be913"];

fn commands() -> Vec<Command<&'static [u8]>> {
    let (key, value) = (b"key".as_slice(), b"value".as_slice());
    let set = |condition, expiry| Command::Set { key, value, condition, expiry };
    vec![
        Command::Get { key },
        set(Condition::Always, None),
        set(Condition::IfAbsent, Expiry::from_millis(u64::MAX)),
        set(Condition::IfAbsentOrEqual, Expiry::from_millis(10_000)),
        Command::Del { key },
        Command::VDel { key, value },
        Command::Watch { key },
        Command::Unwatch { key },
    ]
}

fn replies() -> Vec<(RequestKind, Reply<&'static [u8]>)> {
    let error =
        |text: &'static str| Reply::Error(ServiceError::from_text(text.as_bytes()).unwrap());
    vec![
        (RequestKind::Set, Reply::Done),
        (RequestKind::Set, Reply::NotApplied),
        (RequestKind::Get, Reply::Value(b"value")),
        (RequestKind::Get, Reply::Absent),
        (RequestKind::Del, Reply::Removed),
        (RequestKind::VDel, Reply::NothingRemoved),
        (RequestKind::Unwatch, Reply::NotWatched),
        (RequestKind::Get, error(Refusal::FencingTokenLower.text())),
        (RequestKind::Get, error("out of tea")),
    ]
}

#[test]
fn allocations_of_this_thread_are_counted() {
    assert_eq!(allocations(|| black_box(Vec::<u8>::new())), 0);
    assert_eq!(allocations(|| black_box(vec![0_u8; 10])), 1);
    let grown = allocations(|| {
        let mut bytes = black_box(vec![1_u8; 10]);
        bytes.reserve_exact(1_000);
        bytes
    });
    assert_eq!(grown, 2, "growth counts as an allocation");
    let elsewhere = allocations(|| {
        std::thread::scope(|scope| {
            let work = || (0..1_000).for_each(|number| drop(black_box(Box::new(number))));
            scope.spawn(work).join().unwrap();
        });
    });
    assert!(elsewhere < 1_000, "{elsewhere} allocations, but those of another thread do not count");
}

#[test]
fn decoding_allocates_nothing() {
    for command in commands() {
        let payload = command.encode();
        assert_eq!(allocations(|| Command::decode(black_box(&payload)).unwrap()), 0, "{command:?}");
        assert_eq!(allocations(|| decode_array::<7>(black_box(&payload)).unwrap()), 0);
        let cut = &payload[..payload.len() - 1];
        assert_eq!(allocations(|| Command::decode(black_box(cut)).unwrap_err()), 0);
    }
    for (kind, reply) in replies() {
        let payload = reply.encode(Dialect::Deployed);
        assert_eq!(
            allocations(|| Reply::decode(black_box(&payload), kind).unwrap()),
            0,
            "{reply:?}"
        );
        assert_eq!(allocations(|| decode_frame(black_box(&payload)).unwrap()), 0);
    }
    for notification in [Notification::Set(b"value".as_slice()), Notification::Deleted] {
        let payload = notification.encode(Dialect::Deployed);
        assert_eq!(allocations(|| Notification::decode(black_box(&payload)).unwrap()), 0);
    }
}

#[test]
fn mapping_a_borrowed_message_to_shared_bytes_allocates_nothing() {
    let payload = Bytes::from(commands().remove(1).encode());
    black_box(payload.clone()); // the first clone makes the buffer shared
    let lift = || Command::decode(&payload).unwrap().map(|bytes| payload.slice_ref(bytes));
    assert_eq!(allocations(lift), 0);
}

#[test]
fn encoding_to_a_vec_allocates_once() {
    let mut out = [0; 256];
    for command in commands() {
        assert_eq!(allocations(|| black_box(&command).encode()), 1, "{command:?}");
        assert_eq!(allocations(|| Bytes::from(black_box(&command).encode())), 1, "{command:?}");
        assert_eq!(allocations(|| black_box(&command).encode_into(&mut out).unwrap()), 0);
        assert_eq!(allocations(|| black_box(&command).encoded_len()), 0);
    }
    for dialect in [Dialect::Deployed, Dialect::Spec] {
        for (_, reply) in replies() {
            assert_eq!(allocations(|| black_box(&reply).encode(dialect)), 1, "{reply:?}");
            assert_eq!(allocations(|| Bytes::from(black_box(&reply).encode(dialect))), 1);
            let into = || black_box(&reply).encode_into(dialect, &mut out).unwrap();
            assert_eq!(allocations(into), 0, "{reply:?}");
        }
        for notification in [Notification::Set(b"value".as_slice()), Notification::Deleted] {
            assert_eq!(allocations(|| black_box(&notification).encode(dialect)), 1);
            assert_eq!(allocations(|| Bytes::from(black_box(&notification).encode(dialect))), 1);
            let into = || black_box(&notification).encode_into(dialect, &mut out).unwrap();
            assert_eq!(allocations(into), 0);
        }
    }
}

#[test]
fn parsing_and_cloning_clock_values_allocates_nothing() {
    for (node, to_own) in NODES.into_iter().zip([0, 1]) {
        let text = format!("001696374425000:00001:{node}");
        assert_eq!(allocations(|| HlcRef::parse(black_box(&text)).unwrap()), 0, "{node}");
        assert_eq!(allocations(|| text.parse::<Hlc>().unwrap()), to_own, "{node}");
        let version = Version::new(text.parse::<Hlc>().unwrap());
        assert_eq!(allocations(|| black_box(&version).clone()), 0, "{node}");
        assert_eq!(allocations(|| black_box(&version).to_fencing_token()), 0, "{node}");
        assert_eq!(allocations(|| black_box(&version) == &version.borrowed()), 0, "{node}");
        assert_eq!(allocations(|| black_box(version.hlc()).encode()), 1, "{node}");
        let mut out = [0; 64];
        assert_eq!(allocations(|| version.hlc().encode_into(&mut out).unwrap()), 0, "{node}");
    }
    assert_eq!(allocations(|| HlcRef::parse(black_box("1:+2:n")).unwrap_err()), 0);
}

#[test]
fn issuing_clock_values_allocates_nothing() {
    let other = HlcRef::parse("1696374425000:5:CLIENT").unwrap();
    for node in NODES {
        let mut clock = HybridClock::new(NodeId::new(node).unwrap());
        assert_eq!(allocations(|| clock.tick(NOW).unwrap()), 0, "{node}");
        assert_eq!(allocations(|| clock.receive(NOW, other).unwrap()), 0, "{node}");
        let before = UnixTime::from_millis(0);
        assert_eq!(allocations(|| clock.tick(before).unwrap_err()), 0, "{node}");
    }
}

#[test]
fn rules_and_topics_allocate_nothing() {
    let (ts, ft) = ("1696374425000:0:CLIENT", "1696374425000:1:StateStore");
    let issued = HlcRef::parse(ts).unwrap();
    let verify =
        || RequestTimestamps::verify(RequestKind::Set, Some(ts), Some(ft), NOW, &issued).unwrap();
    assert_eq!(allocations(verify), 0);
    let fence = Some(FencingToken::new(HlcRef::parse(ft).unwrap()));
    let stored = Some(Stored { value: b"value", fence });
    let state = KeyState { stored, ..KeyState::default() };
    for command in commands() {
        assert_eq!(allocations(|| decide(black_box(state), &command, fence)), 0, "{command:?}");
    }
    let response = ResponseTopic::new("client-id1").unwrap().to_string();
    assert_eq!(allocations(|| check_response(black_box(&response)).unwrap()), 0);
    assert_eq!(allocations(|| ResponseTopic::parse(black_box(&response)).unwrap()), 0);
    let topic = statestore_proto::topic::NotificationTopic::new("c", b"k").unwrap().to_string();
    let mut out = [0; 8];
    let read =
        || ParsedNotificationTopic::parse(&topic).unwrap().decode_key(&mut out).unwrap().len();
    assert_eq!(allocations(read), 0);
}

/// A store with this number of keys.
fn store(keys: usize) -> Store {
    let mut store = Store::new(StoreConfig::new(1));
    for number in 0..keys {
        let (key, value) = (format!("key-{number:012}"), [b'v'; 64]);
        let set = Command::Set {
            key: key.as_bytes(),
            value: &value[..],
            condition: Condition::Always,
            expiry: None,
        };
        assert_eq!(round_trip(&mut store, &set.encode().into()).as_deref(), Some(&b"+OK\r\n"[..]));
    }
    store
}

/// Executes a request and returns the encoded reply.
fn round_trip(store: &mut Store, payload: &Bytes) -> Option<Bytes> {
    let mut incoming = Incoming::new(REQUEST, payload);
    incoming.response_topic =
        Some("clients/client-1/services/statestore/_any_/command/invoke/response");
    incoming.correlation_data = Some(b"0123456789abcdef");
    incoming.message_expiry = Some(0);
    incoming.user_property("__ts", "1696374425000:0:client-1");
    incoming.user_property("__protVer", "1.0");
    incoming.verified_sender = Some("client-1");
    store.handle_publish(Now::new(Instant::from_millis(1), NOW), &incoming);
    match store.poll_transmit()? {
        Transmit::Publish(publish) => Some(publish.payload),
        _ => None,
    }
}

#[test]
fn get_allocates_payload_and_topic_regardless_of_the_number_of_keys() {
    for keys in [10, 10_000] {
        let mut store = store(keys);
        let hit = Bytes::from(Command::Get { key: "key-000000000007" }.encode());
        let miss = Bytes::from(Command::Get { key: "key-x" }.encode());
        assert_eq!(round_trip(&mut store, &hit).map(|reply| reply.len()), Some(5 + 64 + 2));
        assert_eq!(round_trip(&mut store, &miss).as_deref(), Some(&b"$-1\r\n"[..]));
        assert_eq!(
            allocations(|| round_trip(&mut store, &hit)),
            2,
            "{keys} keys: payload and topic"
        );
        assert_eq!(allocations(|| round_trip(&mut store, &miss)), 1, "{keys} keys: the topic");
    }
}
