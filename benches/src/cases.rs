//! The measured messages: each command, reply and notification, with values of four sizes.

use statestore_proto::BufferTooSmall;
use statestore_proto::message::{
    Command, Condition, Dialect, Expiry, Notification, PeerError, Refusal, Reply, RequestKind,
    RequestPayload, Response, ServiceError, WordCase,
};
use statestore_proto::resp::Frame;

use crate::wire::Wire;

/// Value sizes and their names, from a sensor reading to a small document.
pub const SIZES: [(&str, usize); 4] =
    [("16B", 16), ("64B", 64), ("1KiB", 1024), ("64KiB", VALUE_LEN_MAX)];

const VALUE_LEN_MAX: usize = 64 * 1024;

/// All byte values in turn. CR and LF are included, for parsers that search for line ends.
static VALUE: [u8; VALUE_LEN_MAX] = {
    let mut bytes = [0_u8; VALUE_LEN_MAX];
    let mut at = 1;
    while at < VALUE_LEN_MAX {
        bytes[at] = bytes[at - 1].wrapping_add(1);
        at += 1;
    }
    bytes
};

const KEY: &[u8] = b"line-3/oven/temp";

/// One message to be measured.
#[derive(Clone, Debug)]
pub struct Case<M> {
    /// `VERB`, or `VERB/SIZE` for a message with a value.
    pub name: String,
    /// The message.
    pub message: M,
    /// Structure of its payload.
    pub wire: Wire<'static>,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl<M: Message> Case<M> {
    fn new(name: impl Into<String>, message: M, wire: Wire<'static>) -> Self {
        let payload = wire.payload();
        Self { name: name.into(), message, wire, payload }
    }

    /// Asserts that our codec decodes and encodes exactly this payload.
    ///
    /// # Panics
    /// If it does not.
    pub fn verify(&self) {
        let Self { name, message, payload, .. } = self;
        assert!(message.is_read_from(payload), "{name} is decoded");
        assert!(message.encode() == *payload, "{name} is encoded");
        let mut out = vec![0; payload.len()];
        assert_eq!(message.encode_into(&mut out), Ok(payload.len()), "{name} is written");
        assert!(out == *payload, "{name} is written to the byte");
    }
}

/// A message of either direction, with the calls of the store and of the client: the store decodes
/// with [`RequestPayload::decode_with`], and the client with [`Response::decode`].
pub trait Message: Copy + 'static {
    /// Decoded message, which borrows from the payload.
    type Decoded<'a>;

    /// Decodes a payload with a message of this type.
    ///
    /// # Errors
    /// If the payload is invalid.
    fn decode<'a>(&self, payload: &'a [u8]) -> Result<Self::Decoded<'a>, PeerError>;

    /// Returns whether `payload` decodes to this message.
    fn is_read_from(&self, payload: &[u8]) -> bool;

    /// Returns the payload in a new vector.
    fn encode(&self) -> Vec<u8>;

    /// Encodes the payload at the start of `out`.
    ///
    /// # Errors
    /// If `out` is too small.
    fn encode_into(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall>;
}

impl Message for RequestPayload<&'static [u8]> {
    type Decoded<'a> = RequestPayload<&'a [u8]>;

    fn decode<'a>(&self, payload: &'a [u8]) -> Result<RequestPayload<&'a [u8]>, PeerError> {
        RequestPayload::decode_with(payload, WordCase::Any)
    }

    fn is_read_from(&self, payload: &[u8]) -> bool {
        Message::decode(self, payload) == Ok(*self)
    }

    fn encode(&self) -> Vec<u8> {
        self.encode()
    }

    fn encode_into(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        self.encode_into(out)
    }
}

/// A reply and the kind of its command.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTo {
    /// The kind of the command.
    pub to: RequestKind,
    /// The reply.
    pub reply: Reply<&'static [u8]>,
}

impl Message for ReplyTo {
    type Decoded<'a> = Response<&'a [u8]>;

    fn decode<'a>(&self, payload: &'a [u8]) -> Result<Response<&'a [u8]>, PeerError> {
        Response::decode(payload, self.to)
    }

    fn is_read_from(&self, payload: &[u8]) -> bool {
        self.decode(payload) == Ok(Response::Reply(self.reply))
    }

    fn encode(&self) -> Vec<u8> {
        self.reply.encode(Dialect::Deployed)
    }

    fn encode_into(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        self.reply.encode_into(Dialect::Deployed, out)
    }
}

impl Message for Notification<&'static [u8]> {
    type Decoded<'a> = Notification<&'a [u8]>;

    fn decode<'a>(&self, payload: &'a [u8]) -> Result<Notification<&'a [u8]>, PeerError> {
        Notification::decode(payload)
    }

    fn is_read_from(&self, payload: &[u8]) -> bool {
        Notification::decode(payload) == Ok(*self)
    }

    fn encode(&self) -> Vec<u8> {
        self.encode(Dialect::Deployed)
    }

    fn encode_into(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        self.encode_into(Dialect::Deployed, out)
    }
}

/// Every command.
#[must_use]
pub fn requests() -> Vec<Case<RequestPayload<&'static [u8]>>> {
    let (key, array) = (KEY, |elements: &[&'static [u8]]| Wire::Array(elements.to_vec()));
    let mut cases = vec![Case::new("get", Command::Get { key }.into(), array(&[b"GET", key]))];
    let expiry = Expiry::from_millis(10_000);
    for (verb, condition, expiry, options) in [
        ("set", Condition::Always, None, [].as_slice()),
        ("set-px", Condition::Always, expiry, &[b"PX".as_slice(), b"10000"]),
        ("set-nx", Condition::IfAbsent, None, &[b"NX"]),
        ("set-nex", Condition::IfAbsentOrEqual, None, &[b"NEX"]),
    ] {
        for (size, value) in values() {
            let set = Command::Set { key, value, condition, expiry }.into();
            let elements = [&[b"SET", key, value], options].concat();
            cases.push(Case::new(format!("{verb}/{size}"), set, Wire::Array(elements)));
        }
    }
    cases.push(Case::new("del", Command::Del { key }.into(), array(&[b"DEL", key])));
    for (size, value) in values() {
        let vdel = Command::VDel { key, value }.into();
        cases.push(Case::new(format!("vdel/{size}"), vdel, array(&[b"VDEL", key, value])));
    }
    let stop = array(&[b"KEYNOTIFY", key, b"STOP"]);
    let watch = array(&[b"KEYNOTIFY", key]);
    cases.push(Case::new("keynotify", Command::Watch { key }.into(), watch));
    cases.push(Case::new("keynotify-stop", Command::Unwatch { key }.into(), stop));
    cases
}

/// Every reply.
#[must_use]
pub fn replies() -> Vec<Case<ReplyTo>> {
    use RequestKind::{Del, Get, Set};
    let known = ServiceError::Known(Refusal::FencingTokenRequired);
    let text = b"a fencing token is required for this request".as_slice();
    let simple = [
        ("ok", Set, Reply::Done, Frame::Simple(b"OK".as_slice())),
        ("not-applied", Set, Reply::NotApplied, Frame::Integer(-1)),
        ("get-miss", Get, Reply::Absent, Frame::Null),
        ("deleted", Del, Reply::Removed, Frame::Integer(1)),
        ("nothing", Del, Reply::NothingRemoved, Frame::Integer(0)),
        ("error", Set, Reply::Error(known), Frame::Error(text)),
    ];
    let hits = values().map(|(size, value)| {
        let hit = ReplyTo { to: Get, reply: Reply::Value(value) };
        Case::new(format!("get-hit/{size}"), hit, Wire::Frame(Frame::Blob(value)))
    });
    simple
        .into_iter()
        .map(|(name, to, reply, frame)| Case::new(name, ReplyTo { to, reply }, Wire::Frame(frame)))
        .chain(hits)
        .collect()
}

/// Every notification.
#[must_use]
pub fn notifications() -> Vec<Case<Notification<&'static [u8]>>> {
    let deleted = Wire::Array(vec![b"NOTIFY", b"DELETE"]);
    values()
        .map(|(size, value)| {
            let wire = Wire::Array(vec![b"NOTIFY", b"SET", b"VALUE", value]);
            Case::new(format!("notify-set/{size}"), Notification::Set(value), wire)
        })
        .chain([Case::new("notify-delete", Notification::Deleted, deleted)])
        .collect()
}

fn values() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    SIZES.into_iter().filter_map(|(name, len)| Some((name, VALUE.get(..len)?)))
}
