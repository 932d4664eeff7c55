//! Sizes, auto traits and texts of public types.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::{Debug, Display};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::size_of;

use bytes::Bytes;
use statestore_proto::BufferTooSmall;
use statestore_proto::hlc::{
    ClockDriftError, FencingToken, Hlc, HlcRef, HybridClock, NodeId, NodeIdError, NodeIdRef,
    ParseHlcError, Timestamp, Version,
};
use statestore_proto::lock::{
    AcquireError, Holder, HolderStatus, Lock, LockAction, LockConfig, LockEvent, LockRequestId,
    LockState, LossReason, NotAcquired,
};
use statestore_proto::message::{
    Command, Condition, Dialect, Expiry, Incarnation, Notification, Operand, PeerError,
    PeerErrorKind, Refusal, Reply, RequestKind, ServiceError, WordCase,
};
use statestore_proto::resp::{Blobs, Frame, RespError, RespErrorKind};
use statestore_proto::rules::{
    Change, Decision, KeyState, ReplyVersion, RequestTimestamps, Stored,
};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::topic::{
    NotificationFilter, NotificationTopic, ParsedNotificationTopic, ResponseTopic, TopicError,
};
use statestore_proto::transport::ReasonCode;

#[test]
fn version_has_at_most_five_words() {
    assert!(size_of::<NodeId>() <= 24, "{}", size_of::<NodeId>());
    assert!(size_of::<Hlc>() <= 40, "{}", size_of::<Hlc>());
    assert_eq!(size_of::<Version>(), size_of::<Hlc>());
    assert_eq!(size_of::<FencingToken>(), size_of::<Hlc>());
    assert_eq!(size_of::<Timestamp>(), size_of::<Hlc>());
    assert_eq!(
        size_of::<Option<Version>>(),
        size_of::<Hlc>(),
        "an absent fence takes no more space"
    );
    assert_eq!(size_of::<Option<NodeId>>(), size_of::<NodeId>());
    assert!(size_of::<HlcRef<'_>>() <= 32);
    assert!(size_of::<HybridClock>() <= 64);
}

#[test]
fn sizes_of_messages_are_bounded() {
    assert!(size_of::<Command<&[u8]>>() <= 72, "{}", size_of::<Command<&[u8]>>());
    assert!(size_of::<Command<Bytes>>() <= 112, "{}", size_of::<Command<Bytes>>());
    assert!(size_of::<Reply<&[u8]>>() <= 24, "{}", size_of::<Reply<&[u8]>>());
    assert!(size_of::<Notification<&[u8]>>() <= 16);
    assert!(size_of::<Frame<&[u8]>>() <= 24);
    assert!(size_of::<Decision<'_>>() <= 32, "{}", size_of::<Decision<'_>>());
    assert!(size_of::<KeyState<'_>>() <= 80, "{}", size_of::<KeyState<'_>>());
    assert_eq!(size_of::<Option<Expiry>>(), size_of::<u64>());
    assert_eq!(size_of::<Now>(), 16);
}

#[test]
fn errors_have_at_most_two_words() {
    assert!(size_of::<PeerError>() <= 16);
    assert!(size_of::<RespError>() <= 16);
    assert!(size_of::<ParseHlcError>() <= 16);
    assert!(size_of::<BufferTooSmall>() <= 8);
    assert!(size_of::<ClockDriftError>() <= 32, "two durations");
    assert_eq!(
        (size_of::<Refusal>(), size_of::<TopicError>(), size_of::<NodeIdError>()),
        (1, 1, 1)
    );
    assert!(size_of::<Result<Command<&[u8]>, PeerError>>() <= 72);
}

/// The traits of a value that can be stored, sent to another thread and shared.
trait Anywhere: Clone + Debug + Send + Sync + Unpin + 'static {}

impl<T: Clone + Debug + Send + Sync + Unpin + 'static> Anywhere for T {}

// The compiler checks the bounds. The result only exists to be asserted.

fn is_anywhere<T: Anywhere>() -> bool {
    !std::any::type_name::<T>().is_empty()
}

fn is_an_error<T: Anywhere + Error + Display + Copy + Eq>() -> bool {
    is_anywhere::<T>()
}

fn is_a_value<T: Anywhere + Eq>() -> bool {
    is_anywhere::<T>()
}

fn is_a_key<T: Anywhere + Ord + Hash>() -> bool {
    is_anywhere::<T>()
}

#[test]
fn values_and_errors_are_send_sync_and_static() {
    let errors = [
        is_an_error::<PeerError>(),
        is_an_error::<PeerErrorKind>(),
        is_an_error::<RespError>(),
        is_an_error::<RespErrorKind>(),
        is_an_error::<ParseHlcError>(),
        is_an_error::<NodeIdError>(),
        is_an_error::<ClockDriftError>(),
        is_an_error::<BufferTooSmall>(),
        is_an_error::<TopicError>(),
        is_an_error::<Refusal>(),
        is_an_error::<AcquireError>(),
        is_an_error::<ServiceError<&'static [u8]>>(),
    ];
    let keys = [
        is_a_key::<Hlc>(),
        is_a_key::<HlcRef<'static>>(),
        is_a_key::<Version>(),
        is_a_key::<FencingToken>(),
        is_a_key::<Timestamp>(),
        is_a_key::<NodeId>(),
        is_a_key::<NodeIdRef<'static>>(),
        is_a_key::<Expiry>(),
        is_a_key::<RequestKind>(),
        is_a_key::<Instant>(),
        is_a_key::<UnixTime>(),
        is_a_key::<LockRequestId>(),
    ];
    let values = [
        is_a_value::<Command<Bytes>>(),
        is_a_value::<Command<Vec<u8>>>(),
        is_a_value::<Condition<Bytes>>(),
        is_a_value::<Operand<Bytes>>(),
        is_a_value::<Reply<Bytes>>(),
        is_a_value::<ServiceError<Bytes>>(),
        is_a_value::<Notification<Bytes>>(),
        is_a_value::<Frame<Bytes>>(),
        is_a_value::<Blobs<'static, 7>>(),
        is_a_value::<Dialect>(),
        is_a_value::<WordCase>(),
        is_a_value::<Decision<'static>>(),
        is_a_value::<KeyState<'static>>(),
        is_a_value::<Stored<'static>>(),
        is_a_value::<RequestTimestamps<'static>>(),
        is_a_value::<(Change, ReplyVersion, Now)>(),
        is_a_value::<ResponseTopic<'static>>(),
        is_a_value::<NotificationTopic<'static>>(),
        is_a_value::<NotificationFilter<'static>>(),
        is_a_value::<ParsedNotificationTopic<'static>>(),
        is_anywhere::<HybridClock>(),
        is_a_value::<(LockState, LockEvent, LossReason, NotAcquired)>(),
        is_a_value::<(Holder, HolderStatus)>(),
        is_anywhere::<(Lock, LockConfig, LockAction)>(),
    ];
    assert!(errors.into_iter().chain(keys).chain(values).all(|named| named));
}

#[test]
fn error_texts_name_problem_and_offset_in_lower_case() {
    let texts = [
        Command::decode(b"*2\r\n$3\r\nGET\r\n").unwrap_err().to_string(),
        Command::decode(b"*1\r\n$4\r\nINCR\r\n").unwrap_err().to_string(),
        HlcRef::parse("1:2").unwrap_err().to_string(),
        HlcRef::parse("1:2:").unwrap_err().to_string(),
        Command::Get { key: "k" }.encode_into(&mut [0; 3]).unwrap_err().to_string(),
        TopicError::Reserved.to_string(),
        Refusal::Syntax.to_string(),
    ];
    assert_eq!(
        texts,
        [
            "length exceeds the payload at byte 1",
            "unknown command at byte 8",
            "missing part at byte 2",
            "the node id is empty at byte 4",
            "buffer too small: the message needs 20 bytes",
            "the response topic is reserved for notifications",
            "syntax error",
        ]
    );
}

#[test]
fn every_reason_code_of_mqtt_5_has_its_name() {
    let names: Vec<_> = (0..=0xff_u8)
        .map(|code| ReasonCode(code).to_string())
        .filter(|name| !name.starts_with("reason 0x"))
        .collect();
    assert_eq!(
        names,
        [
            "success (0x00)",
            "granted QoS 1 (0x01)",
            "granted QoS 2 (0x02)",
            "disconnect with will message (0x04)",
            "no matching subscribers (0x10)",
            "no subscription existed (0x11)",
            "continue authentication (0x18)",
            "re-authenticate (0x19)",
            "unspecified error (0x80)",
            "malformed packet (0x81)",
            "protocol error (0x82)",
            "implementation specific error (0x83)",
            "unsupported protocol version (0x84)",
            "client identifier not valid (0x85)",
            "bad user name or password (0x86)",
            "not authorized (0x87)",
            "server unavailable (0x88)",
            "server busy (0x89)",
            "banned (0x8a)",
            "server shutting down (0x8b)",
            "bad authentication method (0x8c)",
            "keep alive timeout (0x8d)",
            "session taken over (0x8e)",
            "topic filter invalid (0x8f)",
            "topic name invalid (0x90)",
            "packet identifier in use (0x91)",
            "packet identifier not found (0x92)",
            "receive maximum exceeded (0x93)",
            "topic alias invalid (0x94)",
            "packet too large (0x95)",
            "message rate too high (0x96)",
            "quota exceeded (0x97)",
            "administrative action (0x98)",
            "payload format invalid (0x99)",
            "retain not supported (0x9a)",
            "QoS not supported (0x9b)",
            "use another server (0x9c)",
            "server moved (0x9d)",
            "shared subscriptions not supported (0x9e)",
            "connection rate exceeded (0x9f)",
            "maximum connect time (0xa0)",
            "subscription identifiers not supported (0xa1)",
            "wildcard subscriptions not supported (0xa2)",
        ]
    );
    assert_eq!(ReasonCode(0x03).to_string(), "reason 0x03");
}

#[test]
fn different_clock_values_have_different_hashes() {
    fn hash(value: impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        hasher.finish()
    }
    let hlc = |text: &str| text.parse::<Hlc>().expect("a clock value");
    let all = ["1:0:a", "2:0:a", "1:1:a", "1:0:b"].map(hlc);
    let hashes: BTreeSet<u64> = all.iter().map(hash).collect();
    assert_eq!(hashes.len(), all.len());
    assert_eq!(hash(&all[0]), hash(all[0].borrowed()), "borrowed and owned values hash alike");
    assert_eq!(Incarnation::new(7).number(), 7);
}

#[test]
fn zero_is_encoded_without_a_sign() {
    let mut out = [0; 8];
    for (number, text) in [(0, &b":0\r\n"[..]), (-1, b":-1\r\n"), (1, b":1\r\n")] {
        let len = Frame::<&[u8]>::Integer(number).encode_into(&mut out).expect("8 bytes suffice");
        assert_eq!(&out[..len], text);
    }
}

#[test]
fn clock_values_and_node_ids_convert_from_and_to_text() {
    let text = "1696374425000:1:StateStore";
    let hlc: Hlc = text.parse().expect("a clock value");
    assert_eq!(text.parse(), Ok(Version::new(hlc.clone())));
    assert_eq!(text.parse(), Ok(FencingToken::new(hlc.clone())));
    assert_eq!(text.parse::<Timestamp>().map(|value| value.to_string()), Ok(text.to_owned()));
    assert_eq!(text.parse::<Version>().map(|value| value.to_string()), Ok(text.to_owned()));
    assert_eq!("1:2".parse::<Version>().unwrap_err(), HlcRef::parse("1:2").unwrap_err());
    let node = "StateStore".parse::<NodeId>();
    assert_eq!(node.as_ref().map(NodeId::to_string), Ok("StateStore".to_owned()));
    assert_eq!(node.as_ref(), Ok(hlc.node()));
    assert_eq!(NodeIdRef::new("StateStore").map(|node| node.to_string()), Ok("StateStore".into()));
    assert_eq!("a:b".parse::<NodeId>(), Err(NodeIdError::Colon));
}
