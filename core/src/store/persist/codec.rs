//! Records as bytes, for a log or a snapshot in any storage engine.
//!
//! ```text
//! version (1)   record …   checksum (8)
//! ```
//!
//! A record is a tag, flags for some tags, and its fields in order. Numbers are unsigned LEB128 in
//! as few bytes as possible; texts and bytes follow their length. The checksum is SipHash-1-3 with
//! a key of zeros over everything before it. Each list of records has exactly one encoding, and the
//! decoder accepts nothing else.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::Hasher as _;
use core::time::Duration;

use bytes::Bytes;
use siphasher::sip::SipHasher13;

use super::{ORDER_MAX, Record, RecordedExpiry, RecordedResponse};
use crate::hlc::{FencingToken, Hlc, NodeId, Version};
use crate::message::{Dialect, Expiry};
use crate::time::{UnixTime, whole_millis};
use crate::transport::Correlation;

/// The version of the encoding. Later versions are refused.
const FORMAT: u8 = 1;

const CHECKSUM_LEN: usize = 8;

const PUT: u8 = 1;
const REMOVED: u8 = 2;
const RESPONSE: u8 = 3;
const REGISTERED: u8 = 4;
const UNREGISTERED: u8 = 5;
const ISSUED: u8 = 6;

/// Flags of PUT.
const FENCED: u8 = 1;
const EXPIRES: u8 = 1 << 1;
const LEASE: u8 = 1 << 2;
const PERSIST: u8 = 1 << 3;

/// Flags of RESPONSE.
const VERSIONED: u8 = 1;
const AGED: u8 = 1 << 1;

/// Flags of REGISTERED.
const VERIFIED: u8 = 1;
const SPEC_DIALECT: u8 = 1 << 1;
const INCARNATION: u8 = 1 << 2;

/// The reason why bytes cannot be decoded as records. None of the records is usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordsError {
    /// A later version of this crate encoded them.
    #[error("records of format {0}, which is later than {FORMAT}")]
    Later(u8),
    /// They are truncated or corrupt.
    #[error("truncated or corrupt records")]
    Damaged,
}

/// Encodes records for [`decode_records`].
///
/// ```
/// use statestore_proto::store::{Record, decode_records, encode_records};
///
/// let record = Record::Unregistered { client_id: "lamp-1".into(), key: Box::from(*b"on") };
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

/// Decodes records. Allocates memory in proportion to the bytes, after the checksum was verified.
///
/// # Errors
/// [`RecordsError`] when the bytes are not the output of [`encode_records`].
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
        Record::Response(response) => {
            let given_at = whole_millis(response.given_at);
            let flags = flag(response.timestamp.is_some(), VERSIONED) | flag(given_at != 0, AGED);
            out.extend_from_slice(&[RESPONSE, flags]);
            bytes(out, response.client_id.as_bytes());
            bytes(out, response.response_topic.as_bytes());
            bytes(out, response.correlation.as_bytes());
            out.extend_from_slice(&response.content.to_le_bytes());
            bytes(out, &response.payload);
            if let Some(timestamp) = &response.timestamp {
                hlc(out, timestamp);
            }
            number(out, whole_millis(response.retention));
            number(out, response.order);
            if given_at != 0 {
                number(out, given_at);
            }
        }
        Record::Registered { client_id, key, verified, dialect, wants_incarnation, order } => {
            let flags = flag(*verified, VERIFIED)
                | flag(*dialect == Dialect::Spec, SPEC_DIALECT)
                | flag(*wants_incarnation, INCARNATION);
            out.extend_from_slice(&[REGISTERED, flags]);
            bytes(out, client_id.as_bytes());
            bytes(out, key);
            number(out, *order);
        }
        Record::Unregistered { client_id, key } => {
            out.push(UNREGISTERED);
            bytes(out, client_id.as_bytes());
            bytes(out, key);
        }
        Record::Issued { version } => {
            out.push(ISSUED);
            hlc(out, version.hlc());
        }
    }
}

fn number(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return out.push(low & 0x7f);
        }
        out.push(low | 0x80);
    }
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn hlc(out: &mut Vec<u8>, hlc: &Hlc) {
    number(out, hlc.wall().as_millis());
    number(out, hlc.counter());
    bytes(out, hlc.node().as_str().as_bytes());
}

/// The bytes that are not decoded yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn record(&mut self) -> Option<Record> {
        Some(match self.byte()? {
            PUT => self.put()?,
            REMOVED => Record::Removed { key: self.boxed()?, version: self.version()? },
            RESPONSE => Record::Response(self.response()?),
            REGISTERED => {
                let flags = self.flags(VERIFIED | SPEC_DIALECT | INCARNATION)?;
                let is_spec = flags & SPEC_DIALECT != 0;
                Record::Registered {
                    client_id: self.text()?.into(),
                    key: self.boxed()?,
                    verified: flags & VERIFIED != 0,
                    dialect: if is_spec { Dialect::Spec } else { Dialect::Deployed },
                    wants_incarnation: flags & INCARNATION != 0,
                    order: self.order()?,
                }
            }
            UNREGISTERED => {
                Record::Unregistered { client_id: self.text()?.into(), key: self.boxed()? }
            }
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

    fn response(&mut self) -> Option<RecordedResponse> {
        let flags = self.flags(VERSIONED | AGED)?;
        let mut response = RecordedResponse {
            client_id: self.text()?.into(),
            response_topic: Arc::from(self.text()?),
            correlation: Correlation::new(self.bytes()?),
            content: u64::from_le_bytes(*self.chunk()?),
            payload: Bytes::copy_from_slice(self.bytes()?),
            timestamp: match flags & VERSIONED {
                0 => None,
                _ => Some(self.hlc()?),
            },
            retention: Duration::from_millis(self.number()?),
            given_at: Duration::ZERO,
            order: self.order()?,
        };
        if flags & AGED != 0 {
            let given_at = self.number().filter(|given_at| *given_at != 0)?;
            response.given_at = Duration::from_millis(given_at);
        }
        Some(response)
    }

    fn order(&mut self) -> Option<u64> {
        self.number().filter(|order| *order <= ORDER_MAX)
    }

    fn chunk<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(chunk)
    }

    fn byte(&mut self) -> Option<u8> {
        self.chunk().map(|[byte]| *byte)
    }

    fn flags(&mut self, known: u8) -> Option<u8> {
        self.byte().filter(|flags| flags & !known == 0)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << shift;
            // More than 64 bits, or more bytes than necessary.
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

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn boxed(&mut self) -> Option<Box<[u8]>> {
        self.bytes().map(Into::into)
    }

    fn text(&mut self) -> Option<&'a str> {
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
