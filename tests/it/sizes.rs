//! How large values are, and that they may go anywhere.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::{Debug, Display};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::size_of;

use bytes::Bytes;
use statestore_proto::hlc::{
    ClockDriftError, FencingToken, Hlc, HlcRef, HybridClock, NodeId, NodeIdError, NodeIdRef,
    ParseHlcError, Timestamp, Version,
};
use statestore_proto::lock::{
    AcquireError, Action, Holder, HolderStatus, Lock, LockConfig, LockEvent, LockState, LossReason,
    NotAcquired, Ticket,
};
use statestore_proto::message::{
    Command, CommandKind, Condition, Dialect, Expiry, Incarnation, Notification, Operand,
    PeerError, PeerErrorKind, Refusal, Reply, ServiceError, WordCase,
};
use statestore_proto::mqtt::ReasonCode;
use statestore_proto::resp::{
    Blobs, BufferTooSmall, Frame, RespError, RespErrorKind, encode_array,
};
use statestore_proto::rules::{Change, Decision, Entry, Stamp, Stamps, State};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::topic::{
    NotificationFilter, NotificationTopic, ReceivedTopic, ResponseTopic, TopicError,
};

#[test]
fn a_stored_version_is_five_words() {
    assert!(size_of::<NodeId>() <= 24, "{}", size_of::<NodeId>());
    assert!(size_of::<Hlc>() <= 40, "{}", size_of::<Hlc>());
    assert_eq!(size_of::<Version>(), size_of::<Hlc>());
    assert_eq!(size_of::<FencingToken>(), size_of::<Hlc>());
    assert_eq!(size_of::<Timestamp>(), size_of::<Hlc>());
    assert_eq!(size_of::<Option<Version>>(), size_of::<Hlc>(), "a missing fence costs nothing");
    assert_eq!(size_of::<Option<NodeId>>(), size_of::<NodeId>());
    assert!(size_of::<HlcRef<'_>>() <= 32);
    assert!(size_of::<HybridClock>() <= 64);
}

#[test]
fn messages_are_small() {
    assert!(size_of::<Command<&[u8]>>() <= 72, "{}", size_of::<Command<&[u8]>>());
    assert!(size_of::<Command<Bytes>>() <= 112, "{}", size_of::<Command<Bytes>>());
    assert!(size_of::<Reply<&[u8]>>() <= 24, "{}", size_of::<Reply<&[u8]>>());
    assert!(size_of::<Notification<&[u8]>>() <= 16);
    assert!(size_of::<Frame<&[u8]>>() <= 24);
    assert!(size_of::<Decision<'_>>() <= 32, "{}", size_of::<Decision<'_>>());
    assert!(size_of::<State<'_>>() <= 64, "{}", size_of::<State<'_>>());
    assert_eq!(size_of::<Option<Expiry>>(), size_of::<u64>());
    assert_eq!(size_of::<Now>(), 16);
}

#[test]
fn errors_are_two_words_at_most() {
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

/// What may be kept, sent to a thread, and shared.
trait Anywhere: Clone + Debug + Send + Sync + Unpin + 'static {}

impl<T: Clone + Debug + Send + Sync + Unpin + 'static> Anywhere for T {}

// The compiler checks the bounds; the answer is only there to be asserted.

fn goes_anywhere<T: Anywhere>() -> bool {
    !std::any::type_name::<T>().is_empty()
}

fn is_an_error<T: Anywhere + Error + Display + Copy + Eq>() -> bool {
    goes_anywhere::<T>()
}

fn is_a_value<T: Anywhere + Eq>() -> bool {
    goes_anywhere::<T>()
}

fn is_a_key<T: Anywhere + Ord + Hash>() -> bool {
    goes_anywhere::<T>()
}

#[test]
fn values_and_errors_go_anywhere() {
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
        is_a_key::<CommandKind>(),
        is_a_key::<Instant>(),
        is_a_key::<UnixTime>(),
        is_a_key::<Ticket>(),
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
        is_a_value::<State<'static>>(),
        is_a_value::<Entry<'static>>(),
        is_a_value::<Stamps<'static>>(),
        is_a_value::<(Change, Stamp, Now)>(),
        is_a_value::<ResponseTopic<'static>>(),
        is_a_value::<NotificationTopic<'static>>(),
        is_a_value::<NotificationFilter<'static>>(),
        is_a_value::<ReceivedTopic<'static>>(),
        goes_anywhere::<HybridClock>(),
        is_a_value::<(LockState, LockEvent, LossReason, NotAcquired)>(),
        is_a_value::<(Holder, HolderStatus)>(),
        goes_anywhere::<(Lock, LockConfig, Action)>(),
    ];
    assert!(errors.into_iter().chain(keys).chain(values).all(|named| named));
}

#[test]
fn errors_say_what_and_where_in_lower_case() {
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
            "the message needs 20 bytes",
            "the response topic is reserved for notifications",
            "syntax error",
        ]
    );
}

#[test]
fn reason_codes_have_their_names() {
    let names: Vec<_> = (0..=0xff_u8)
        .map(|code| ReasonCode(code).to_string())
        .filter(|name| !name.starts_with("reason 0x"))
        .collect();
    assert_eq!(
        names,
        [
            "success (0x00)",
            "granted (0x01)",
            "granted (0x02)",
            "no matching subscribers (0x10)",
            "unspecified error (0x80)",
            "implementation specific error (0x83)",
            "not authorized (0x87)",
            "topic filter invalid (0x8f)",
            "topic name invalid (0x90)",
            "packet too large (0x95)",
            "quota exceeded (0x97)",
            "payload format invalid (0x99)",
        ]
    );
    assert_eq!(ReasonCode(0x84).to_string(), "reason 0x84");
}

#[test]
fn values_that_differ_are_told_apart_by_their_hash() {
    fn hash(value: impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        hasher.finish()
    }
    let hlc = |text: &str| text.parse::<Hlc>().expect("a clock value");
    let all = ["1:0:a", "2:0:a", "1:1:a", "1:0:b"].map(hlc);
    let hashes: BTreeSet<u64> = all.iter().map(hash).collect();
    assert_eq!(hashes.len(), all.len());
    assert_eq!(hash(&all[0]), hash(all[0].as_deref()), "borrowed or owned");
    assert_eq!(Incarnation::new(7).number(), 7);
}

#[test]
fn an_array_says_its_length() {
    let mut out = [0; 32];
    let len = encode_array(&[b"GET", b"key"], &mut out);
    assert_eq!(len, Ok(22));
    assert_eq!(&out[..22], b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
}

#[test]
fn zero_has_no_sign() {
    let mut out = [0; 8];
    for (number, text) in [(0, &b":0\r\n"[..]), (-1, b":-1\r\n"), (1, b":1\r\n")] {
        let len = Frame::<&[u8]>::Integer(number).encode_into(&mut out).expect("room");
        assert_eq!(&out[..len], text);
    }
}
