//! Decoding of request payloads.

use super::command::{NEX, NX, PX};
use super::{
    Command, Condition, Expiry, Operand, PeerError, PeerErrorKind, RequestKind, RequestPayload,
    Scan,
};
use crate::limits::REQUEST_ELEMENTS_MAX;
use crate::resp::{read_array, whole_decimal};

/// Case sensitivity of verbs and options. The protocol requires upper case, but the examples of its
/// specification are in lower case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WordCase {
    /// `set`, `Set` and `SET` are the same verb.
    #[default]
    Any,
    /// Only `SET` is a verb.
    Upper,
}

impl WordCase {
    // Upper case first: it is by far the most common, and equality is the cheaper test.
    #[inline]
    fn matches(self, bytes: &[u8], word: &[u8]) -> bool {
        bytes == word || self == Self::Any && bytes.eq_ignore_ascii_case(word)
    }
}

impl<'a> RequestPayload<&'a [u8]> {
    /// Decodes a whole request payload, with verbs and options in any case. Borrows; allocates
    /// nothing.
    ///
    /// # Errors
    /// [`PeerError`]; its [`refusal`](PeerErrorKind::refusal) is the error that a store replies
    /// with. The checks run in this order: RESP3 grammar, verb, number of elements, options, key.
    ///
    /// ```
    /// use statestore_proto::message::{Command, Refusal, RequestPayload};
    ///
    /// let request = RequestPayload::decode(b"*3\r\n$3\r\nset\r\n$7\r\nSETKEY2\r\n$6\r\nVALUE5\r\n")?;
    /// let set = Command::set(b"SETKEY2".as_slice(), b"VALUE5".as_slice());
    /// assert_eq!(request, RequestPayload::Command(set));
    /// let error = RequestPayload::decode(b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n").unwrap_err();
    /// assert_eq!((error.kind.refusal(), error.at), (Refusal::EmptyKey, 17));
    /// # Ok::<(), statestore_proto::message::PeerError>(())
    /// ```
    #[inline]
    pub fn decode(payload: &'a [u8]) -> Result<Self, PeerError> {
        Self::decode_with(payload, WordCase::Any)
    }

    /// Decodes a whole request payload, comparing verbs and options as `case` specifies.
    ///
    /// # Errors
    /// The same as [`decode`](Self::decode).
    pub fn decode_with(payload: &'a [u8], case: WordCase) -> Result<Self, PeerError> {
        Decoder::read(payload, case)?.request()
    }
}

impl<'a> Command<&'a [u8]> {
    /// Decodes the whole payload of a command, with verbs and options in any case. Borrows;
    /// allocates nothing.
    ///
    /// # Errors
    /// The same as [`RequestPayload::decode`], but [`PeerErrorKind::UnknownCommand`] for every SCAN, even
    /// one with too many arguments.
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

    /// Decodes the whole payload of a command, comparing verbs and options as `case` specifies.
    ///
    /// # Errors
    /// The same as [`decode`](Self::decode).
    pub fn decode_with(payload: &'a [u8], case: WordCase) -> Result<Self, PeerError> {
        let decoder = Decoder::read(payload, case)?;
        match decoder.request() {
            Ok(RequestPayload::Command(command)) => Ok(command),
            // A malformed SCAN is a SCAN too.
            Err(error) if !decoder.is_scan() => Err(error),
            Ok(RequestPayload::Scan(_)) | Err(_) => {
                Err(decoder.verb_error(PeerErrorKind::UnknownCommand))
            }
        }
    }
}

const STOP: &[u8] = b"STOP";

/// The elements of one request payload.
struct Decoder<'a> {
    payload: &'a [u8],
    case: WordCase,
    /// The first elements; no request has more.
    elements: [&'a [u8]; REQUEST_ELEMENTS_MAX],
    /// The number of elements, which may exceed the length of `elements`.
    total: usize,
}

impl<'a> Decoder<'a> {
    fn read(payload: &'a [u8], case: WordCase) -> Result<Self, PeerError> {
        let mut elements = [[].as_slice(); REQUEST_ELEMENTS_MAX];
        let total = read_array(payload, &mut elements)?;
        Ok(Self { payload, case, elements, total })
    }

    fn request(&self) -> Result<RequestPayload<&'a [u8]>, PeerError> {
        let [verb, arguments @ ..] = self.elements.get(..self.total).unwrap_or(&self.elements)
        else {
            return Err(PeerError { kind: PeerErrorKind::Arity, at: 0 });
        };
        let Some(kind) = self.kind(verb) else {
            return Err(self.verb_error(PeerErrorKind::UnknownCommand));
        };
        if self.total > REQUEST_ELEMENTS_MAX {
            return Err(self.verb_error(PeerErrorKind::Arity));
        }
        let command = match (kind, arguments) {
            (RequestKind::Get, &[key]) => Command::Get { key: self.key(key)? },
            (RequestKind::Del, &[key]) => Command::Del { key: self.key(key)? },
            (RequestKind::VDel, &[key, value]) => Command::VDel { key: self.key(key)?, value },
            (RequestKind::Watch, &[key]) => Command::Watch { key: self.key(key)? },
            (RequestKind::Watch, &[key, option]) if self.is(option, STOP) => {
                Command::Unwatch { key: self.key(key)? }
            }
            (RequestKind::Watch, &[_, option]) => {
                return Err(self.error(PeerErrorKind::Option, option));
            }
            (RequestKind::Set, &[key, value, ref options @ ..]) => {
                let (condition, expiry) = self.options(options)?;
                Command::Set { key: self.key(key)?, value, condition, expiry }
            }
            (RequestKind::Scan, &[pattern]) => {
                return Ok(RequestPayload::Scan(Scan { pattern, token: None }));
            }
            (RequestKind::Scan, &[pattern, token]) => {
                return Ok(RequestPayload::Scan(Scan { pattern, token: Some(token) }));
            }
            _ => return Err(self.verb_error(PeerErrorKind::Arity)),
        };
        Ok(RequestPayload::Command(command))
    }

    /// Checks the key. Callers do this last.
    fn key(&self, key: &'a [u8]) -> Result<&'a [u8], PeerError> {
        if key.is_empty() { Err(self.error(PeerErrorKind::EmptyKey, key)) } else { Ok(key) }
    }

    /// Kind of request with this verb. `KEYNOTIFY` is [`RequestKind::Watch`] until its option is
    /// read.
    fn kind(&self, verb: &[u8]) -> Option<RequestKind> {
        let kinds = [
            RequestKind::Get,
            RequestKind::Set,
            RequestKind::Del,
            RequestKind::VDel,
            RequestKind::Watch,
            RequestKind::Scan,
        ];
        kinds.into_iter().find(|kind| self.is(verb, kind.verb().as_bytes()))
    }

    fn is_scan(&self) -> bool {
        self.total > 0 && self.is(self.elements[0], RequestKind::Scan.verb().as_bytes())
    }

    /// The options of a SET, in any order.
    fn options(
        &self,
        mut options: &[&'a [u8]],
    ) -> Result<(Condition<&'a [u8]>, Option<Expiry>), PeerError> {
        let (mut condition, mut expiry) = (Condition::Always, None);
        while let [word, rest @ ..] = options {
            options = rest;
            let is_unconditional = condition == Condition::Always;
            if self.is(word, NX) && is_unconditional {
                condition = Condition::IfAbsent;
            } else if self.is(word, NEX) && is_unconditional {
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

    /// An error at the verb.
    #[cold]
    fn verb_error(&self, kind: PeerErrorKind) -> PeerError {
        self.error(kind, self.elements.first().copied().unwrap_or(self.payload))
    }

    /// An error at `element`, which is part of the payload.
    #[cold]
    fn error(&self, kind: PeerErrorKind, element: &[u8]) -> PeerError {
        let at = (element.as_ptr() as usize).saturating_sub(self.payload.as_ptr() as usize);
        PeerError { kind, at }
    }
}
