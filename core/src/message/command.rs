//! Commands: what a client asks and a store is asked.

use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;

use super::{Encode, PeerError, PeerErrorKind};
use crate::debug;
use crate::limits::COMMAND_ELEMENTS_MAX;
use crate::resp::{BufferTooSmall, Decimal, Sink, read_array, whole_decimal};
use crate::time::whole_millis;

/// A request to the store. The container of keys and values is the parameter.
///
/// A key has at least one byte; [`decode`](Self::decode) refuses an empty one, and a store answers an encoded one with
/// an error. An empty value is legal and not the same as an absent key.
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
        /// The value, any bytes, possibly none.
        value: B,
        /// When the write applies.
        condition: Condition<B>,
        /// How long the value lives from the moment the store applies the write; `None` is for ever, and removes the
        /// expiry of an earlier value.
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
        /// What the stored value must be equal to.
        value: B,
    },
    /// `KEYNOTIFY key`: registers for notifications about the key, which need not exist.
    Watch {
        /// The key.
        key: B,
    },
    /// `KEYNOTIFY key STOP`: ends that.
    Unwatch {
        /// The key.
        key: B,
    },
}

/// Which command, without its arguments. A reply is read in the light of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CommandKind {
    /// `GET`
    Get,
    /// `SET`
    Set,
    /// `DEL`
    Del,
    /// `VDEL`
    VDel,
    /// `KEYNOTIFY`
    Watch,
    /// `KEYNOTIFY … STOP`
    Unwatch,
    /// `SCAN`, which is a [`Scan`](super::Scan) and no [`Command`].
    Scan,
}

impl CommandKind {
    /// All of them.
    pub const ALL: &'static [Self] =
        &[Self::Get, Self::Set, Self::Del, Self::VDel, Self::Watch, Self::Unwatch, Self::Scan];

    /// Whether the command may change the key, so that fencing applies to it.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Set | Self::Del | Self::VDel)
    }

    const fn verb(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Set => "SET",
            Self::Del => "DEL",
            Self::VDel => "VDEL",
            Self::Watch | Self::Unwatch => "KEYNOTIFY",
            Self::Scan => "SCAN",
        }
    }
}

/// The verb as it is sent, and `KEYNOTIFY STOP`.
impl fmt::Display for CommandKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb())?;
        if *self == Self::Unwatch { f.write_str(" STOP") } else { Ok(()) }
    }
}

/// When a SET applies.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Condition<B> {
    /// Whatever is stored.
    #[default]
    Always,
    /// `NX`: if the key does not exist.
    IfAbsent,
    /// `NEX`: if the key does not exist or its value equals the value of this SET. Takes and renews a lock.
    IfAbsentOrEqual,
    /// `NEX operand`: if the key does not exist or its value equals the operand.
    ///
    /// The option list of the public page shows this form; deployed clients do not write it and other stores may not
    /// know it.
    IfAbsentOrEqualTo(Operand<B>),
}

/// The argument of `NEX`. It is no option word, or the two could not be told apart.
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
    /// `bytes` as an operand; `None` when they are `NX`, `NEX` or `PX` in any case.
    #[must_use]
    pub fn new(bytes: B) -> Option<Self> {
        let word = [NX, NEX, PX].iter().any(|word| bytes.as_ref().eq_ignore_ascii_case(word));
        (!word).then_some(Self(bytes))
    }

    /// The bytes to compare the stored value with.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_ref()
    }
}

/// How long a value lives: at least one millisecond, whole milliseconds.
///
/// ```
/// use core::time::Duration;
/// use statestore_proto::message::Expiry;
///
/// assert_eq!(Expiry::after(Duration::from_secs(10)), Expiry::from_millis(10_000));
/// assert_eq!(Expiry::after(Duration::from_micros(1)), Expiry::from_millis(1)); // never shorter than asked
/// assert_eq!(Expiry::from_millis(0), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expiry(NonZeroU64);

impl Expiry {
    /// From milliseconds; `None` for zero.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Option<Self> {
        match NonZeroU64::new(millis) {
            Some(millis) => Some(Self(millis)),
            None => None,
        }
    }

    /// After `duration`, a fraction of a millisecond rounded up; `None` for zero.
    #[must_use]
    pub fn after(duration: Duration) -> Option<Self> {
        Self::from_millis(whole_millis(duration))
    }

    /// In milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0.get()
    }

    /// As a duration.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0.get())
    }
}

/// Whether verbs and options must be upper case, as the protocol asks, or may be written in any case, as the protocol
/// page's own examples are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WordCase {
    /// `set`, `Set` and `SET` are one verb.
    #[default]
    Any,
    /// Only `SET` is.
    Upper,
}

impl WordCase {
    // Upper case first: it is what nearly everyone writes, and equality is the cheaper test.
    #[inline]
    pub(super) fn matches(self, bytes: &[u8], word: &[u8]) -> bool {
        bytes == word || self == Self::Any && bytes.eq_ignore_ascii_case(word)
    }
}

const NX: &[u8] = b"NX";
const NEX: &[u8] = b"NEX";
const PX: &[u8] = b"PX";
const STOP: &[u8] = b"STOP";

impl<'a> Command<&'a [u8]> {
    /// Reads a whole request payload, verbs and options in any case. Borrows keys and values; allocates nothing.
    ///
    /// # Errors
    /// [`PeerError`], whose [`refusal`](PeerErrorKind::refusal) is what a store answers. What is wrong is looked for in
    /// this order: the RESP3 grammar, the verb, the number of elements, the options, the key.
    ///
    /// ```
    /// use statestore_proto::message::{Command, Refusal};
    ///
    /// let set = Command::decode(b"*3\r\n$3\r\nset\r\n$7\r\nSETKEY2\r\n$6\r\nVALUE5\r\n")?;
    /// assert_eq!(set.key(), b"SETKEY2");
    /// let error = Command::decode(b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n").unwrap_err();
    /// assert_eq!((error.kind.refusal(), error.at), (Refusal::EmptyKey, 17));
    /// # Ok::<(), statestore_proto::message::PeerError>(())
    /// ```
    #[inline]
    pub fn decode(payload: &'a [u8]) -> Result<Self, PeerError> {
        Self::decode_with(payload, WordCase::Any)
    }

    /// Reads a whole request payload with the given stand on upper and lower case.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_with(payload: &'a [u8], case: WordCase) -> Result<Self, PeerError> {
        let mut kept = [[].as_slice(); COMMAND_ELEMENTS_MAX];
        let total = read_array(payload, &mut kept)?;
        Decoder { payload, case, total }.command(kept.get(..total).unwrap_or(&kept))
    }
}

/// The elements of one request and where they came from.
struct Decoder<'a> {
    payload: &'a [u8],
    case: WordCase,
    total: usize,
}

impl<'a> Decoder<'a> {
    fn command(&self, elements: &[&'a [u8]]) -> Result<Command<&'a [u8]>, PeerError> {
        let [verb, arguments @ ..] = elements else {
            return Err(PeerError { kind: PeerErrorKind::Arity, at: 0 });
        };
        let Some(kind) = self.verb(verb) else {
            return Err(self.error(PeerErrorKind::UnknownCommand, verb));
        };
        if self.total > COMMAND_ELEMENTS_MAX {
            return Err(self.error(PeerErrorKind::Arity, verb));
        }
        Ok(match (kind, arguments) {
            (CommandKind::Get, &[key]) => Command::Get { key: self.key(key)? },
            (CommandKind::Del, &[key]) => Command::Del { key: self.key(key)? },
            (CommandKind::VDel, &[key, value]) => Command::VDel { key: self.key(key)?, value },
            (CommandKind::Watch, &[key]) => Command::Watch { key: self.key(key)? },
            (CommandKind::Watch, &[key, option]) if self.is(option, STOP) => {
                Command::Unwatch { key: self.key(key)? }
            }
            (CommandKind::Watch, &[_, option]) => {
                return Err(self.error(PeerErrorKind::Option, option));
            }
            (CommandKind::Set, &[key, value, ref options @ ..]) => {
                let (condition, expiry) = self.options(options)?;
                Command::Set { key: self.key(key)?, value, condition, expiry }
            }
            _ => return Err(self.error(PeerErrorKind::Arity, verb)),
        })
    }

    /// The key, checked last.
    fn key(&self, key: &'a [u8]) -> Result<&'a [u8], PeerError> {
        if key.is_empty() { Err(self.error(PeerErrorKind::EmptyKey, key)) } else { Ok(key) }
    }

    /// The verb; `KEYNOTIFY` counts as [`CommandKind::Watch`] until its option is read.
    fn verb(&self, word: &[u8]) -> Option<CommandKind> {
        let kinds = [
            CommandKind::Get,
            CommandKind::Set,
            CommandKind::Del,
            CommandKind::VDel,
            CommandKind::Watch,
        ];
        kinds.into_iter().find(|kind| self.is(word, kind.verb().as_bytes()))
    }

    /// The options of SET, in any order.
    fn options(
        &self,
        mut options: &[&'a [u8]],
    ) -> Result<(Condition<&'a [u8]>, Option<Expiry>), PeerError> {
        let (mut condition, mut expiry) = (Condition::Always, None);
        while let [word, rest @ ..] = options {
            options = rest;
            let unconditional = condition == Condition::Always;
            if self.is(word, NX) && unconditional {
                condition = Condition::IfAbsent;
            } else if self.is(word, NEX) && unconditional {
                condition = Condition::IfAbsentOrEqual;
                if let Some((next, rest)) =
                    rest.split_first().filter(|(next, _)| !self.is_option(next))
                {
                    let operand = Operand::new(*next)
                        .ok_or_else(|| self.error(PeerErrorKind::Option, next))?;
                    condition = Condition::IfAbsentOrEqualTo(operand);
                    options = rest;
                }
            } else if self.is(word, PX) && expiry.is_none() {
                let [millis, rest @ ..] = rest else {
                    return Err(self.error(PeerErrorKind::Option, word));
                };
                expiry = Some(
                    whole_decimal(millis)
                        .and_then(Expiry::from_millis)
                        .ok_or_else(|| self.error(PeerErrorKind::Expiry, millis))?,
                );
                options = rest;
            } else {
                return Err(self.error(PeerErrorKind::Option, word));
            }
        }
        Ok((condition, expiry))
    }

    fn is(&self, bytes: &[u8], word: &[u8]) -> bool {
        self.case.matches(bytes, word)
    }

    fn is_option(&self, bytes: &[u8]) -> bool {
        [NX, NEX, PX].into_iter().any(|word| self.is(bytes, word))
    }

    /// An error at `element`, which lies in the payload.
    #[cold]
    fn error(&self, kind: PeerErrorKind, element: &[u8]) -> PeerError {
        let at = (element.as_ptr() as usize).saturating_sub(self.payload.as_ptr() as usize);
        PeerError { kind, at }
    }
}

impl<B> Command<B> {
    /// Reads a value.
    #[must_use]
    pub const fn get(key: B) -> Self {
        Self::Get { key }
    }

    /// Stores a value, whatever is stored, for good.
    #[must_use]
    pub const fn set(key: B, value: B) -> Self {
        Self::Set { key, value, condition: Condition::Always, expiry: None }
    }

    /// Removes a key.
    #[must_use]
    pub const fn del(key: B) -> Self {
        Self::Del { key }
    }

    /// Removes a key if it has this value.
    #[must_use]
    pub const fn vdel(key: B, value: B) -> Self {
        Self::VDel { key, value }
    }

    /// Which command this is.
    #[must_use]
    pub const fn kind(&self) -> CommandKind {
        match self {
            Self::Get { .. } => CommandKind::Get,
            Self::Set { .. } => CommandKind::Set,
            Self::Del { .. } => CommandKind::Del,
            Self::VDel { .. } => CommandKind::VDel,
            Self::Watch { .. } => CommandKind::Watch,
            Self::Unwatch { .. } => CommandKind::Unwatch,
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

    /// The same command over another container; `f` must keep the bytes.
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
    /// The same condition over another container; `f` must keep the bytes.
    pub fn map<C>(self, f: impl FnOnce(B) -> C) -> Condition<C> {
        match self {
            Self::Always => Condition::Always,
            Self::IfAbsent => Condition::IfAbsent,
            Self::IfAbsentOrEqual => Condition::IfAbsentOrEqual,
            Self::IfAbsentOrEqualTo(operand) => Condition::IfAbsentOrEqualTo(Operand(f(operand.0))),
        }
    }
}

impl<B: AsRef<[u8]>> Command<B> {
    /// The same command, borrowed.
    #[must_use]
    pub fn as_deref(&self) -> Command<&[u8]> {
        match self {
            Self::Get { key } => Command::Get { key: key.as_ref() },
            Self::Set { key, value, condition, expiry } => Command::Set {
                key: key.as_ref(),
                value: value.as_ref(),
                condition: condition.as_deref(),
                expiry: *expiry,
            },
            Self::Del { key } => Command::Del { key: key.as_ref() },
            Self::VDel { key, value } => Command::VDel { key: key.as_ref(), value: value.as_ref() },
            Self::Watch { key } => Command::Watch { key: key.as_ref() },
            Self::Unwatch { key } => Command::Unwatch { key: key.as_ref() },
        }
    }

    /// Exact length in bytes of the request payload.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.len()
    }

    /// Writes the request payload to the start of `out` and returns its length. Verbs are written in upper case, the
    /// condition before the expiry.
    ///
    /// # Errors
    /// [`BufferTooSmall`] when `out` is shorter than [`encoded_len`](Self::encoded_len); `out` is untouched then.
    pub fn encode_into(&self, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
        self.put_into(out)
    }

    /// The request payload, in one allocation of exactly its length.
    #[cfg(feature = "alloc")]
    #[must_use]
    #[inline]
    pub fn encode(&self) -> alloc::vec::Vec<u8> {
        self.to_vec()
    }
}

impl<B: AsRef<[u8]>> Condition<B> {
    /// The same condition, borrowed.
    #[must_use]
    pub fn as_deref(&self) -> Condition<&[u8]> {
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
                    sink.put_line(b'$', Decimal::len(expiry.as_millis()) as u64);
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
        let name = match self {
            Self::Get { .. } => "Get",
            Self::Set { .. } => "Set",
            Self::Del { .. } => "Del",
            Self::VDel { .. } => "VDel",
            Self::Watch { .. } => "Watch",
            Self::Unwatch { .. } => "Unwatch",
        };
        let mut out = f.debug_struct(name);
        out.field("key", &debug::Key(self.key().as_ref()));
        match self {
            Self::Set { value, condition, expiry, .. } => {
                out.field("value", &debug::Value(value.as_ref()))
                    .field("condition", condition)
                    .field("expiry", expiry);
            }
            Self::VDel { value, .. } => {
                out.field("value", &debug::Value(value.as_ref()));
            }
            _ => {}
        }
        out.finish()
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Condition<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("Always"),
            Self::IfAbsent => f.write_str("IfAbsent"),
            Self::IfAbsentOrEqual => f.write_str("IfAbsentOrEqual"),
            Self::IfAbsentOrEqualTo(operand) => {
                f.debug_tuple("IfAbsentOrEqualTo").field(&debug::Value(operand.as_bytes())).finish()
            }
        }
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Operand<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Operand").field(&debug::Value(self.as_bytes())).finish()
    }
}
