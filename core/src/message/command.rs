//! Commands: requests about one key.

use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;

use super::{Encode, RequestKind, encoders};
use crate::buffer::{Sink, decimal_len};
use crate::debug::{Key, Value, show};
use crate::time::whole_millis;

/// A command about one key, over any container `B` of bytes.
///
/// A key has at least one byte: [`decode`](Self::decode) rejects an empty key, and a store refuses
/// it. An empty value is valid and differs from an absent key.
///
/// The enum is exhaustive on purpose: every store must implement each command of the protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Command<B> {
    /// `GET key`: the value and its version.
    Get {
        /// The key.
        key: B,
    },
    /// `SET key value [NX | NEX [operand]] [PX ms]`: stores a value.
    Set {
        /// The key.
        key: B,
        /// The value: any bytes, possibly empty.
        value: B,
        /// Condition for the write.
        condition: Condition<B>,
        /// Time to live, from the moment the store applies the write. `None` means no expiry, and
        /// removes the expiry of an earlier value.
        expiry: Option<Expiry>,
    },
    /// `DEL key`: removes the key.
    Del {
        /// The key.
        key: B,
    },
    /// `VDEL key value`: removes the key if its value is `value`.
    VDel {
        /// The key.
        key: B,
        /// Value to compare the stored value with.
        value: B,
    },
    /// `KEYNOTIFY key`: registers for notifications about the key, which need not exist.
    Watch {
        /// The key.
        key: B,
    },
    /// `KEYNOTIFY key STOP`: ends that registration.
    Unwatch {
        /// The key.
        key: B,
    },
}

/// Condition of a SET.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Condition<B> {
    /// Unconditional.
    #[default]
    Always,
    /// `NX`: the key does not exist.
    IfAbsent,
    /// `NEX`: the key does not exist, or its value equals the value of this SET. Acquires and
    /// renews a lock.
    IfAbsentOrEqual,
    /// `NEX operand`: the key does not exist, or its value equals the operand.
    ///
    /// The public specification lists this form. Deployed clients do not use it, and other stores
    /// may not support it.
    IfAbsentOrEqualTo(Operand<B>),
}

/// The argument of `NEX`. It is not an option word, since the two would be ambiguous.
///
/// ```
/// use statestore_proto::message::Operand;
///
/// assert!(Operand::new("holder-1").is_some());
/// assert!(Operand::new("px").is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Operand<B>(B);

impl<B: AsRef<[u8]>> Operand<B> {
    /// Creates an operand; `None` if `bytes` is `NX`, `NEX` or `PX` in any case.
    #[must_use]
    pub fn new(bytes: B) -> Option<Self> {
        let is_word = [NX, NEX, PX].iter().any(|word| bytes.as_ref().eq_ignore_ascii_case(word));
        (!is_word).then_some(Self(bytes))
    }

    /// Bytes to compare the stored value with.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_ref()
    }
}

/// Time to live of a value in whole milliseconds, at least 1.
///
/// ```
/// use core::time::Duration;
/// use statestore_proto::message::Expiry;
///
/// assert_eq!(Expiry::after(Duration::from_secs(10)), Expiry::from_millis(10_000));
/// assert_eq!(Expiry::after(Duration::from_micros(1)), Expiry::from_millis(1)); // rounded up
/// assert_eq!(Expiry::from_millis(0), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expiry(NonZeroU64);

impl Expiry {
    /// Creates an expiry from milliseconds; `None` for zero.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Option<Self> {
        match NonZeroU64::new(millis) {
            Some(millis) => Some(Self(millis)),
            None => None,
        }
    }

    /// Creates an expiry from a duration, rounded up to milliseconds; `None` for zero.
    #[must_use]
    pub fn after(duration: Duration) -> Option<Self> {
        Self::from_millis(whole_millis(duration))
    }

    /// The time to live in milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0.get()
    }

    /// The time to live as a duration.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0.get())
    }
}

pub(super) const NX: &[u8] = b"NX";
pub(super) const NEX: &[u8] = b"NEX";
pub(super) const PX: &[u8] = b"PX";

impl<B> Command<B> {
    /// GET of a key.
    #[must_use]
    pub const fn get(key: B) -> Self {
        Self::Get { key }
    }

    /// Unconditional SET without an expiry.
    #[must_use]
    pub const fn set(key: B, value: B) -> Self {
        Self::Set { key, value, condition: Condition::Always, expiry: None }
    }

    /// DEL of a key.
    #[must_use]
    pub const fn del(key: B) -> Self {
        Self::Del { key }
    }

    /// VDEL: removes the key if it has this value.
    #[must_use]
    pub const fn vdel(key: B, value: B) -> Self {
        Self::VDel { key, value }
    }

    /// Kind of the command.
    #[must_use]
    pub const fn kind(&self) -> RequestKind {
        match self {
            Self::Get { .. } => RequestKind::Get,
            Self::Set { .. } => RequestKind::Set,
            Self::Del { .. } => RequestKind::Del,
            Self::VDel { .. } => RequestKind::VDel,
            Self::Watch { .. } => RequestKind::Watch,
            Self::Unwatch { .. } => RequestKind::Unwatch,
        }
    }

    /// The key, which every command has.
    #[must_use]
    pub const fn key(&self) -> &B {
        match self {
            Self::Get { key }
            | Self::Set { key, .. }
            | Self::Del { key }
            | Self::VDel { key, .. }
            | Self::Watch { key }
            | Self::Unwatch { key } => key,
        }
    }

    /// Converts the container of each argument; `f` must preserve the bytes.
    pub fn map<C>(self, mut f: impl FnMut(B) -> C) -> Command<C> {
        match self {
            Self::Get { key } => Command::Get { key: f(key) },
            Self::Set { key, value, condition, expiry } => {
                Command::Set { key: f(key), value: f(value), condition: condition.map(f), expiry }
            }
            Self::Del { key } => Command::Del { key: f(key) },
            Self::VDel { key, value } => Command::VDel { key: f(key), value: f(value) },
            Self::Watch { key } => Command::Watch { key: f(key) },
            Self::Unwatch { key } => Command::Unwatch { key: f(key) },
        }
    }
}

impl<B> Condition<B> {
    /// Converts the container of the operand; `f` must preserve the bytes.
    pub fn map<C>(self, f: impl FnOnce(B) -> C) -> Condition<C> {
        match self {
            Self::Always => Condition::Always,
            Self::IfAbsent => Condition::IfAbsent,
            Self::IfAbsentOrEqual => Condition::IfAbsentOrEqual,
            Self::IfAbsentOrEqualTo(operand) => Condition::IfAbsentOrEqualTo(Operand(f(operand.0))),
        }
    }
}

encoders!([B: AsRef<[u8]>] Command<B>);

impl<B: AsRef<[u8]>> Command<B> {
    /// Borrows the arguments.
    #[must_use]
    pub fn borrowed(&self) -> Command<&[u8]> {
        match self {
            Self::Get { key } => Command::Get { key: key.as_ref() },
            Self::Set { key, value, condition, expiry } => Command::Set {
                key: key.as_ref(),
                value: value.as_ref(),
                condition: condition.borrowed(),
                expiry: *expiry,
            },
            Self::Del { key } => Command::Del { key: key.as_ref() },
            Self::VDel { key, value } => Command::VDel { key: key.as_ref(), value: value.as_ref() },
            Self::Watch { key } => Command::Watch { key: key.as_ref() },
            Self::Unwatch { key } => Command::Unwatch { key: key.as_ref() },
        }
    }
}

impl<B: AsRef<[u8]>> Condition<B> {
    /// Borrows the operand.
    #[must_use]
    pub fn borrowed(&self) -> Condition<&[u8]> {
        match self {
            Self::Always => Condition::Always,
            Self::IfAbsent => Condition::IfAbsent,
            Self::IfAbsentOrEqual => Condition::IfAbsentOrEqual,
            Self::IfAbsentOrEqualTo(operand) => {
                Condition::IfAbsentOrEqualTo(Operand(operand.as_bytes()))
            }
        }
    }

    fn elements(&self) -> u8 {
        match self {
            Self::Always => 0,
            Self::IfAbsent | Self::IfAbsentOrEqual => 1,
            Self::IfAbsentOrEqualTo(_) => 2,
        }
    }
}

impl<B: AsRef<[u8]>> Encode for Command<B> {
    #[inline]
    fn put(&self, sink: &mut impl Sink) {
        match self {
            Self::Get { .. } => sink.put(b"*2\r\n$3\r\nGET\r\n"),
            Self::Set { condition, expiry, .. } => {
                let mut head = *b"*3\r\n$3\r\nSET\r\n";
                head[1] += condition.elements() + if expiry.is_some() { 2 } else { 0 };
                sink.put(&head);
            }
            Self::Del { .. } => sink.put(b"*2\r\n$3\r\nDEL\r\n"),
            Self::VDel { .. } => sink.put(b"*3\r\n$4\r\nVDEL\r\n"),
            Self::Watch { .. } => sink.put(b"*2\r\n$9\r\nKEYNOTIFY\r\n"),
            Self::Unwatch { .. } => sink.put(b"*3\r\n$9\r\nKEYNOTIFY\r\n"),
        }
        sink.put_blob(self.key().as_ref());
        match self {
            Self::Set { value, condition, expiry, .. } => {
                sink.put_blob(value.as_ref());
                match condition {
                    Condition::Always => {}
                    Condition::IfAbsent => sink.put(b"$2\r\nNX\r\n"),
                    Condition::IfAbsentOrEqual => sink.put(b"$3\r\nNEX\r\n"),
                    Condition::IfAbsentOrEqualTo(operand) => {
                        sink.put(b"$3\r\nNEX\r\n");
                        sink.put_blob(operand.as_bytes());
                    }
                }
                if let Some(expiry) = expiry {
                    sink.put(b"$2\r\nPX\r\n");
                    sink.put_line(b'$', decimal_len(expiry.as_millis()) as u64);
                    sink.put_decimal(expiry.as_millis());
                    sink.put(b"\r\n");
                }
            }
            Self::VDel { value, .. } => sink.put_blob(value.as_ref()),
            Self::Unwatch { .. } => sink.put(b"$4\r\nSTOP\r\n"),
            Self::Get { .. } | Self::Del { .. } | Self::Watch { .. } => {}
        }
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Command<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = Key(self.key().as_ref());
        match self {
            Self::Get { .. } => show!(f, Get { key }),
            Self::Set { value, condition, expiry, .. } => {
                show!(f, Set { key, value = Value(value.as_ref()), condition, expiry })
            }
            Self::Del { .. } => show!(f, Del { key }),
            Self::VDel { value, .. } => show!(f, VDel { key, value = Value(value.as_ref()) }),
            Self::Watch { .. } => show!(f, Watch { key }),
            Self::Unwatch { .. } => show!(f, Unwatch { key }),
        }
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Condition<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "Always",
            Self::IfAbsent => "IfAbsent",
            Self::IfAbsentOrEqual => "IfAbsentOrEqual",
            Self::IfAbsentOrEqualTo(operand) => return write!(f, "IfAbsentOrEqualTo({operand:?})"),
        })
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Operand<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Value(self.as_bytes()).fmt(f)
    }
}
