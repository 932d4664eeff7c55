//! Encrypted values, so that a capture can be given away.
//!
//! A value becomes another of the same length. Equal values stay equal and different values stay
//! different, so every condition has the same result. The cipher is a Feistel network: each half of
//! a value encrypts the other, with SipHash-2-4 as the only primitive. Only the key reverses it;
//! the key is drawn for one capture and is not part of it.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use statestore_proto::message::{
    Command, Condition, Notification, Operand, Refusal, Reply, RequestKind, RequestPayload,
    WordCase,
};
use statestore_proto::store::{Record, RecordedResponse};

const ROUNDS: u8 = 8;

const BLOCK_LEN: usize = 16;

/// Replaces values.
pub(crate) struct Redaction {
    keyed: SipHasher24,
}

impl Redaction {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { keyed: SipHasher24::new_with_key(&key) }
    }

    /// Replaces a value. An option word of SET stays, and no other value becomes one, since an
    /// operand must not be an option word.
    fn replace(&self, value: &mut [u8]) {
        if Operand::new(&*value).is_none() {
            return;
        }
        self.permute(value);
        while Operand::new(&*value).is_none() {
            self.permute(value);
        }
    }

    fn permute(&self, value: &mut [u8]) {
        let len = value.len();
        if let [byte] = value {
            *byte = self.permuted_byte(*byte);
            return;
        }
        let (left, right) = value.split_at_mut(len / 2);
        for round in 0..ROUNDS {
            if round % 2 == 0 {
                self.mask(round, left, right);
            } else {
                self.mask(round, right, left);
            }
        }
    }

    /// Encrypts one half with the other.
    fn mask(&self, round: u8, by: &[u8], half: &mut [u8]) {
        let mut seed = self.keyed;
        seed.write(&[round]);
        seed.write(by);
        let seed = seed.finish128().as_bytes();
        for (number, block) in (0_u64..).zip(half.chunks_mut(BLOCK_LEN)) {
            let mut stream = self.keyed;
            stream.write(&[ROUNDS]);
            stream.write(&seed);
            stream.write(&number.to_le_bytes());
            let stream = stream.finish128().as_bytes();
            block.iter_mut().zip(stream).for_each(|(byte, key)| *byte ^= key);
        }
    }

    /// The position of a byte in an order of all bytes that depends on the key.
    fn permuted_byte(&self, byte: u8) -> u8 {
        let place = |byte: u8| {
            let mut hasher = self.keyed;
            hasher.write(&[byte]);
            (hasher.finish(), byte)
        };
        let own = place(byte);
        let before = (0..=u8::MAX).filter(|other| place(*other) < own).count();
        u8::try_from(before).unwrap_or(byte)
    }

    fn replaced(&self, value: &[u8]) -> Vec<u8> {
        let mut value = value.to_vec();
        self.replace(&mut value);
        value
    }

    /// A request with replaced values. A request that cannot be decoded is replaced by the shortest
    /// one that is refused for the same reason, since the places of its values are unknown.
    pub(crate) fn request<'a>(&self, payload: &'a [u8], case: WordCase) -> Cow<'a, [u8]> {
        let refusal = match RequestPayload::decode_with(payload, case) {
            Ok(RequestPayload::Command(command)) => return self.command(payload, &command),
            Ok(RequestPayload::Scan(_)) => return Cow::Borrowed(payload),
            // A kind of request that this version does not know, so the places of its values are
            // unknown.
            Ok(_) => Refusal::Syntax,
            Err(error) => error.kind.refusal(),
        };
        Cow::Borrowed(match refusal {
            Refusal::UnknownCommand => b"*1\r\n$1\r\n?\r\n",
            Refusal::WrongArity => b"*1\r\n$3\r\nGET\r\n",
            Refusal::EmptyKey => b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
            _ => b"",
        })
    }

    fn command<'a>(&self, payload: &'a [u8], command: &Command<&[u8]>) -> Cow<'a, [u8]> {
        let operand = match command {
            Command::Set { condition: Condition::IfAbsentOrEqualTo(operand), .. } => {
                Some(operand.as_bytes())
            }
            _ => None,
        };
        let value = match command {
            Command::Set { value, .. } | Command::VDel { value, .. } => *value,
            _ => return Cow::Borrowed(payload),
        };
        let mut replaced = payload.to_vec();
        for part in [Some(value), operand].into_iter().flatten() {
            let at = (part.as_ptr() as usize).saturating_sub(payload.as_ptr() as usize);
            if let Some(part) = replaced.get_mut(at..at + part.len()) {
                self.replace(part);
            }
        }
        Cow::Owned(replaced)
    }

    /// The payload of an output with a replaced value: a reply to GET, or a notification.
    pub(crate) fn output<'a>(&self, payload: &'a [u8]) -> Cow<'a, [u8]> {
        let value = match Notification::decode(payload) {
            Ok(Notification::Set(value)) => value,
            _ => match Reply::decode(payload, RequestKind::Get) {
                Ok(Reply::Value(value)) => value,
                _ => return Cow::Borrowed(payload),
            },
        };
        let at = (value.as_ptr() as usize).saturating_sub(payload.as_ptr() as usize);
        let mut replaced = payload.to_vec();
        if let Some(value) = replaced.get_mut(at..at + value.len()) {
            self.replace(value);
        }
        Cow::Owned(replaced)
    }

    /// A record with a replaced value, and without the hash of a request.
    pub(crate) fn record(&self, record: &Record) -> Record {
        match record.clone() {
            Record::Put { key, value, version, fencing_token, expires, persist } => Record::Put {
                value: self.replaced(&value).into(),
                key,
                version,
                fencing_token,
                expires,
                persist,
            },
            Record::Response(response) => {
                Record::Response(RecordedResponse { content: 0, ..response })
            }
            other => other,
        }
    }
}
