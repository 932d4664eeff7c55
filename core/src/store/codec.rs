//! Records as bytes: what a log or a snapshot consists of, whatever engine keeps it.
//!
//! ```text
//! version (1)   record …   checksum (8)
//! ```
//!
//! A record is a tag, for some of them flags, and its fields in order. Numbers are unsigned, seven bits a byte, the lowest first, in
//! as few bytes as they need; texts and bytes have their length before them. The checksum is SipHash-1-3, with a key of
//! zeros, of all before it. So each list of records has one form, and nothing else is read.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::Hasher as _;
use core::time::Duration;

use bytes::Bytes;
use siphasher::sip::SipHasher13;

use super::{Answered, Record, RecordedExpiry};
use crate::hlc::{FencingToken, Hlc, NodeId, Version};
use crate::message::{Dialect, Expiry};
use crate::mqtt::Correlation;
use crate::time::{UnixTime, whole_millis};

/// The version of this form. One that is later is refused and not guessed at.
const FORMAT: u8 = 1;

const CHECKSUM_LEN: usize = 8;

const PUT: u8 = 1;
const REMOVED: u8 = 2;
const ANSWERED: u8 = 3;
const WATCHED: u8 = 4;
const UNWATCHED: u8 = 5;
const ISSUED: u8 = 6;

/// Flags of PUT.
const FENCED: u8 = 1;
const EXPIRES: u8 = 1 << 1;
const LEASE: u8 = 1 << 2;
const PERSIST: u8 = 1 << 3;

/// Of ANSWERED.
const STAMPED: u8 = 1;

/// Of WATCHED.
const VERIFIED: u8 = 1;
const PAGE: u8 = 1 << 1;
const INCARNATION: u8 = 1 << 2;

/// Why bytes are not records. Nothing of them is usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordsError {
    /// They were written by a later version of this crate.
    #[error("records of format {0}, which is later than {FORMAT}")]
    Later(u8),
    /// They are not what was written: cut short, or changed since.
    #[error("damaged records")]
    Damaged,
}

/// The bytes of these records, which [`decode_records`] reads.
///
/// ```
/// use statestore_proto::store::{Record, decode_records, encode_records};
///
/// let record = Record::Unwatched { client_id: "lamp-1".into(), key: Box::from(*b"on") };
/// let bytes = encode_records([&record]);
/// assert_eq!(decode_records(&bytes), Ok(vec![record]));
/// ```
#[must_use]
#[expect(
    single_use_lifetimes,
    reason = "an `impl Trait` of an argument cannot do without the name"
)]
pub fn encode_records<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<u8> {
    let mut out = Vec::from([FORMAT]);
    records.into_iter().for_each(|record| write(&mut out, record));
    let checksum = checksum_of(&out);
    out.extend_from_slice(&checksum);
    out
}

/// The records of these bytes. Takes memory in proportion to them, and none before their checksum is right.
///
/// # Errors
/// [`RecordsError`] when they are not what [`encode_records`] has made.
pub fn decode_records(bytes: &[u8]) -> Result<Vec<Record>, RecordsError> {
    let (body, checksum) = bytes.split_last_chunk::<CHECKSUM_LEN>().ok_or(RecordsError::Damaged)?;
    if checksum_of(body) != *checksum {
        return Err(RecordsError::Damaged);
    }
    let mut reader = match body.split_first() {
        Some((&FORMAT, rest)) => Reader(rest),
        Some((later, _)) if *later > FORMAT => return Err(RecordsError::Later(*later)),
        _ => return Err(RecordsError::Damaged),
    };
    let mut records = Vec::new();
    while !reader.0.is_empty() {
        records.push(reader.record().ok_or(RecordsError::Damaged)?);
    }
    Ok(records)
}

fn checksum_of(bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish().to_le_bytes()
}

const fn flag(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

fn write(out: &mut Vec<u8>, record: &Record) {
    match record {
        Record::Put { key, value, version, fencing_token, expires, persist } => {
            let is_lease = expires.is_some_and(|expires| expires.is_lease);
            let flags = flag(fencing_token.is_some(), FENCED)
                | flag(expires.is_some(), EXPIRES)
                | flag(is_lease, LEASE)
                | flag(*persist, PERSIST);
            out.extend_from_slice(&[PUT, flags]);
            bytes(out, key);
            bytes(out, value);
            hlc(out, version.hlc());
            if let Some(token) = fencing_token {
                hlc(out, token.hlc());
            }
            if let Some(expires) = expires {
                number(out, expires.at.as_millis());
                number(out, expires.after.as_millis());
            }
        }
        Record::Removed { key, version } => {
            out.push(REMOVED);
            bytes(out, key);
            hlc(out, version.hlc());
        }
        Record::Answered(answered) => {
            out.extend_from_slice(&[ANSWERED, flag(answered.timestamp.is_some(), STAMPED)]);
            bytes(out, answered.client_id.as_bytes());
            bytes(out, answered.response_topic.as_bytes());
            bytes(out, answered.correlation.as_bytes());
            out.extend_from_slice(&answered.content.to_le_bytes());
            bytes(out, &answered.payload);
            if let Some(timestamp) = &answered.timestamp {
                hlc(out, timestamp);
            }
            number(out, whole_millis(answered.kept));
            number(out, answered.order);
        }
        Record::Watched { client_id, key, verified, dialect, wants_incarnation, order } => {
            let flags = flag(*verified, VERIFIED)
                | flag(*dialect == Dialect::Page, PAGE)
                | flag(*wants_incarnation, INCARNATION);
            out.extend_from_slice(&[WATCHED, flags]);
            bytes(out, client_id.as_bytes());
            bytes(out, key);
            number(out, *order);
        }
        Record::Unwatched { client_id, key } => {
            out.push(UNWATCHED);
            bytes(out, client_id.as_bytes());
            bytes(out, key);
        }
        Record::Issued { version } => {
            out.push(ISSUED);
            hlc(out, version.hlc());
        }
    }
}

pub(super) fn number(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return out.push(low & 0x7f);
        }
        out.push(low | 0x80);
    }
}

pub(super) fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn hlc(out: &mut Vec<u8>, hlc: &Hlc) {
    number(out, hlc.wall().as_millis());
    number(out, hlc.counter());
    bytes(out, hlc.node().as_str().as_bytes());
}

/// What is left to be read.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn record(&mut self) -> Option<Record> {
        Some(match self.byte()? {
            PUT => self.put()?,
            REMOVED => Record::Removed { key: self.boxed()?, version: self.version()? },
            ANSWERED => Record::Answered(self.answered()?),
            WATCHED => {
                let flags = self.flags(VERIFIED | PAGE | INCARNATION)?;
                let is_page = flags & PAGE != 0;
                Record::Watched {
                    client_id: self.text()?.into(),
                    key: self.boxed()?,
                    verified: flags & VERIFIED != 0,
                    dialect: if is_page { Dialect::Page } else { Dialect::Deployed },
                    wants_incarnation: flags & INCARNATION != 0,
                    order: self.number()?,
                }
            }
            UNWATCHED => Record::Unwatched { client_id: self.text()?.into(), key: self.boxed()? },
            ISSUED => Record::Issued { version: self.version()? },
            _ => return None,
        })
    }

    fn put(&mut self) -> Option<Record> {
        let flags = self.flags(FENCED | EXPIRES | LEASE | PERSIST)?;
        if flags & LEASE != 0 && flags & EXPIRES == 0 {
            return None;
        }
        Some(Record::Put {
            key: self.boxed()?,
            value: self.boxed()?,
            version: self.version()?,
            fencing_token: match flags & FENCED {
                0 => None,
                _ => Some(FencingToken::new(self.hlc()?)),
            },
            expires: match flags & EXPIRES {
                0 => None,
                _ => Some(RecordedExpiry {
                    at: UnixTime::from_millis(self.number()?),
                    after: Expiry::from_millis(self.number()?)?,
                    is_lease: flags & LEASE != 0,
                }),
            },
            persist: flags & PERSIST != 0,
        })
    }

    fn answered(&mut self) -> Option<Answered> {
        let flags = self.flags(STAMPED)?;
        Some(Answered {
            client_id: self.text()?.into(),
            response_topic: Arc::from(self.text()?),
            correlation: Correlation::new(self.bytes()?),
            content: u64::from_le_bytes(*self.chunk()?),
            payload: Bytes::copy_from_slice(self.bytes()?),
            timestamp: match flags & STAMPED {
                0 => None,
                _ => Some(self.hlc()?),
            },
            kept: Duration::from_millis(self.number()?),
            order: self.number()?,
        })
    }

    pub(super) fn chunk<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(chunk)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.chunk().map(|[byte]| *byte)
    }

    pub(super) fn flags(&mut self, known: u8) -> Option<u8> {
        self.byte().filter(|flags| flags & !known == 0)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << shift;
            // More than 64 bits, or more bytes than needed.
            if shifted >> shift != bits || (byte == 0 && shift > 0) {
                return None;
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn boxed(&mut self) -> Option<Box<[u8]>> {
        self.bytes().map(Into::into)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        core::str::from_utf8(self.bytes()?).ok()
    }

    fn hlc(&mut self) -> Option<Hlc> {
        let (wall, counter) = (UnixTime::from_millis(self.number()?), self.number()?);
        Some(Hlc::new(wall, counter, NodeId::new(self.text()?).ok()?))
    }

    fn version(&mut self) -> Option<Version> {
        self.hlc().map(Version::new)
    }
}
