//! Strategies for every public value, biased towards protocol-like bytes, numbers at the ends of
//! their range, and node ids around the size that is stored inline.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use statestore_proto::hlc::{Hlc, NodeId};
use statestore_proto::limits::COUNTER_MAX;
use statestore_proto::message::{
    Command, Condition, Dialect, Expiry, Notification, Operand, Refusal, Reply, RequestKind,
    ServiceError,
};
use statestore_proto::time::UnixTime;

/// Pieces of payloads: whole words, type bytes, line ends, lengths, and complete frames.
const PIECES: &[&[u8]] = &[
    b"\r",
    b"\n",
    b"\r\n",
    b"$",
    b"*",
    b":",
    b"+",
    b"-",
    b" ",
    b"0",
    b"1",
    b"9",
    b"-1",
    b"\0",
    b"\xff",
    b"NX",
    b"NEX",
    b"nex",
    b"PX",
    b"px",
    b"STOP",
    b"SET",
    b"GET",
    b"DEL",
    b"VDEL",
    b"KEYNOTIFY",
    b"NOTIFY",
    b"VALUE",
    b"DELETE",
    b"-ERR ",
    b"+OK\r\n",
    b":-1\r\n",
    b"$-1\r\n",
    b"*2\r\n",
    b"$1\r\nk\r\n",
];

/// Any bytes, mostly protocol fragments.
pub fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => vec(piece(), 0..6).prop_map(|pieces| pieces.concat()),
        1 => vec(any::<u8>(), 0..300),
        1 => (any::<u8>(), 1_000..3_000_usize).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![4 => select(PIECES).prop_map(<[u8]>::to_vec), 1 => vec(any::<u8>(), 0..4)]
}

/// A key: any bytes, at least one.
pub fn key() -> impl Strategy<Value = Vec<u8>> {
    (bytes(), select(b"k*$:\r\n".as_slice())).prop_map(|(mut bytes, fallback)| {
        if bytes.is_empty() {
            bytes.push(fallback);
        }
        bytes
    })
}

/// Any command that has exactly one key, by kind.
pub fn kind() -> impl Strategy<Value = RequestKind> {
    let about_a_key = RequestKind::ALL.iter().copied().filter(|kind| *kind != RequestKind::Scan);
    select(about_a_key.collect::<Vec<_>>())
}

/// Any command.
pub fn command() -> impl Strategy<Value = Command<Vec<u8>>> {
    kind().prop_flat_map(command_of)
}

/// Any command of one kind.
pub fn command_of(kind: RequestKind) -> BoxedStrategy<Command<Vec<u8>>> {
    match kind {
        RequestKind::Get => key().prop_map(|key| Command::Get { key }).boxed(),
        RequestKind::Set => (key(), bytes(), condition(), option::of(expiry()))
            .prop_map(|(key, value, condition, expiry)| Command::Set {
                key,
                value,
                condition,
                expiry,
            })
            .boxed(),
        RequestKind::Del => key().prop_map(|key| Command::Del { key }).boxed(),
        RequestKind::VDel => {
            (key(), bytes()).prop_map(|(key, value)| Command::VDel { key, value }).boxed()
        }
        RequestKind::Watch => key().prop_map(|key| Command::Watch { key }).boxed(),
        RequestKind::Unwatch => key().prop_map(|key| Command::Unwatch { key }).boxed(),
        _ => panic!("{kind} is not a command"),
    }
}

/// Any condition of a SET.
pub fn condition() -> impl Strategy<Value = Condition<Vec<u8>>> {
    prop_oneof![
        Just(Condition::Always),
        Just(Condition::IfAbsent),
        Just(Condition::IfAbsentOrEqual),
        operand().prop_map(Condition::IfAbsentOrEqualTo),
    ]
}

/// Any operand of `NEX`; an option word gets an extra byte.
pub fn operand() -> impl Strategy<Value = Operand<Vec<u8>>> {
    bytes().prop_filter_map("an operand", |mut bytes| {
        if Operand::new(bytes.as_slice()).is_none() {
            bytes.push(b'1');
        }
        Operand::new(bytes)
    })
}

/// Any expiry.
pub fn expiry() -> impl Strategy<Value = Expiry> {
    number().prop_filter_map("an expiry is not zero", Expiry::from_millis)
}

/// A number at which digits, signs or sizes change.
pub fn number() -> impl Strategy<Value = u64> {
    let edges = [
        0,
        1,
        9,
        10,
        99,
        100,
        COUNTER_MAX - 1,
        COUNTER_MAX,
        COUNTER_MAX + 1,
        u64::from(u32::MAX),
        i64::MAX.unsigned_abs(),
        i64::MAX.unsigned_abs() + 1,
        u64::MAX - 60_000,
        u64::MAX - 1,
        u64::MAX,
    ];
    prop_oneof![2 => 0..4_u64, 2 => select(edges.to_vec()), 1 => any::<u64>()]
}

/// Any refusal of the table of errors in `docs/reference/protocol.md`.
pub fn refusal() -> impl Strategy<Value = Refusal> {
    select(Refusal::ALL)
}

/// Any known refusal, or an unknown error line.
pub fn service_error() -> impl Strategy<Value = ServiceError<Vec<u8>>> {
    let unknown = bytes().prop_map(|mut text| {
        text.retain(|byte| !matches!(byte, b'\r' | b'\n'));
        text
    });
    let misprint = refusal().prop_map(|refusal| refusal.text().replace("than", "that").into());
    let text = prop_oneof![refusal().prop_map(|refusal| refusal.text().into()), misprint, unknown];
    text.prop_filter_map("one line", ServiceError::from_text)
}

/// Any valid reply to a command of this kind.
pub fn reply_of(kind: RequestKind) -> impl Strategy<Value = Reply<Vec<u8>>> {
    let error = service_error().prop_map(Reply::Error);
    let other = match kind {
        RequestKind::Get => {
            prop_oneof![4 => bytes().prop_map(Reply::Value), 1 => Just(Reply::Absent)].boxed()
        }
        RequestKind::Set => prop_oneof![Just(Reply::Done), Just(Reply::NotApplied)].boxed(),
        RequestKind::Del => prop_oneof![Just(Reply::Removed), Just(Reply::NothingRemoved)].boxed(),
        RequestKind::VDel => {
            select(vec![Reply::Removed, Reply::NothingRemoved, Reply::NotApplied]).boxed()
        }
        RequestKind::Watch => Just(Reply::Done).boxed(),
        RequestKind::Unwatch => prop_oneof![Just(Reply::Done), Just(Reply::NotWatched)].boxed(),
        _ => panic!("{kind} is not answered with a reply"),
    };
    prop_oneof![2 => other, 1 => error]
}

/// Any reply, with the kind of its command.
pub fn reply() -> impl Strategy<Value = (RequestKind, Reply<Vec<u8>>)> {
    kind().prop_flat_map(|kind| (Just(kind), reply_of(kind)))
}

/// Any notification.
pub fn notification() -> impl Strategy<Value = Notification<Vec<u8>>> {
    prop_oneof![3 => bytes().prop_map(Notification::Set), 1 => Just(Notification::Deleted)]
}

/// Either dialect.
pub fn dialect() -> impl Strategy<Value = Dialect> {
    select(vec![Dialect::Deployed, Dialect::Spec])
}

/// Text of a node id: one of a few, so that values collide, or as long as fits inline, give or
/// take.
pub fn node_id() -> impl Strategy<Value = String> {
    let sized =
        (select(vec!['n', '~', 'é', '語', '\u{10ffff}']), select(vec![1, 21, 22, 23, 36, 256]))
            .prop_map(|(letter, len)| {
                let letters = len / letter.len_utf8();
                let mut id: String = std::iter::repeat_n(letter, letters).collect();
                id.extend(std::iter::repeat_n('x', len - letters * letter.len_utf8()));
                id
            });
    let any = vec(any::<char>(), 1..8).prop_map(|letters| {
        letters.into_iter().map(|letter| if letter == ':' { ';' } else { letter }).collect()
    });
    prop_oneof![3 => select(vec!["a", "b", "ab", "B"]).prop_map(str::to_owned), 2 => sized, 1 => any]
}

/// Any clock value.
pub fn hlc() -> impl Strategy<Value = Hlc> {
    (number(), number(), node_id()).prop_filter_map("a node id", |(wall, counter, node)| {
        Some(Hlc::new(UnixTime::from_millis(wall), counter, NodeId::new(&node).ok()?))
    })
}

/// A clock value and its text with any number of leading zeros.
pub fn padded_hlc() -> impl Strategy<Value = (Hlc, String)> {
    let zeros = || select(vec![0_usize, 1, 5, 15, 21, 40]);
    (hlc(), zeros(), zeros()).prop_map(|(hlc, wall_zeros, counter_zeros)| {
        let (wall, counter) = (hlc.wall().as_millis(), hlc.counter());
        let (wall_zeros, counter_zeros) = ("0".repeat(wall_zeros), "0".repeat(counter_zeros));
        let node = hlc.node().as_str();
        let text = format!("{wall_zeros}{wall}:{counter_zeros}{counter}:{node}");
        (hlc, text)
    })
}

/// One clock operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClockOp {
    /// A local event at this wall clock reading in milliseconds.
    Tick {
        /// The reading.
        now: u64,
    },
    /// A value of another clock, received at this wall clock reading.
    Receive {
        /// The reading.
        now: u64,
        /// The value.
        other: Hlc,
    },
}

/// A run of clock operations. The wall clock moves slightly, by about the allowed drift, or
/// arbitrarily, in both directions; received values are near it, about the drift away, or
/// arbitrary.
pub fn clock_ops() -> impl Strategy<Value = Vec<ClockOp>> {
    let received = (offset(), number(), node_id());
    (start(), vec((offset(), option::of(received)), 1..40)).prop_map(|(start, steps)| {
        let mut now: u64 = start;
        let step = |(offset, received): (i64, Option<(i64, u64, String)>)| {
            now = now.saturating_add_signed(offset);
            let other = received.and_then(|(offset, counter, node)| {
                let wall = UnixTime::from_millis(now.saturating_add_signed(offset));
                Some(Hlc::new(wall, counter, NodeId::new(&node).ok()?))
            });
            match other {
                Some(other) => ClockOp::Receive { now, other },
                None => ClockOp::Tick { now },
            }
        };
        steps.into_iter().map(step).collect()
    })
}

fn start() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(1_696_374_425_000_u64), 1 => number()]
}

/// A step of the wall clock, or a distance from it, in milliseconds.
fn offset() -> impl Strategy<Value = i64> {
    let drift = select(vec![59_999_i64, 60_000, 60_001]);
    prop_oneof![
        4 => Just(0),
        4 => -2..=2_i64,
        2 => drift.clone(),
        2 => drift.prop_map(|drift| -drift),
        1 => -200_000..200_000_i64,
        1 => any::<i64>(),
    ]
}
