//! Records as bytes, for a log or a snapshot in any storage engine.
//!
//! ```text
//! version (1)   record …   checksum (8)
//! ```
//!
//! A record is a tag, flags for some tags, and its fields in order:
//!
//! * A number is unsigned LEB128 in as few bytes as possible.
//! * Bytes follow their length.
//! * A text follows twice its length. If its [slot](Texts) already contains it, twice the number of
//!   the slot plus one replaces length and text. So a batch usually contains each client id, topic
//!   and node id once.
//! * The timestamp of a response is omitted if it is the version of the record before, as it is
//!   after a write.
//!
//! The checksum is SipHash-1-3 with a key of zeros over everything before it. Each list of records
//! has exactly one encoding, and the decoder accepts no other.
//!
//! Format 1 is frozen: every later version of this crate decodes it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::Hasher as _;
use core::time::Duration;

use bytes::Bytes;
use siphasher::sip::SipHasher13;

use super::texts::Texts;
use super::{ORDER_MAX, Record, RecordedExpiry, RecordedResponse};
use crate::hlc::{FencingToken, Hlc, NodeId, Version};
use crate::message::{Dialect, Expiry};
use crate::time::{UnixTime, whole_millis};
use crate::transport::Correlation;

/// The version of the encoding that [`encode_records`] writes. Later versions are refused.
pub const RECORDS_FORMAT: u8 = 1;

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
/// The timestamp is the version of the record before, and is omitted. Only together with VERSIONED.
const SAME_VERSION: u8 = 1 << 1;
const VERIFIED_REQUESTER: u8 = 1 << 2;
/// The owner follows the client id.
const OWNED: u8 = 1 << 3;

/// Flags of REGISTERED.
const VERIFIED: u8 = 1;
const SPEC_DIALECT: u8 = 1 << 1;
const INCARNATION: u8 = 1 << 2;

/// Bit of the number before a text: the rest is a slot, not a length.
const IS_SLOT: u64 = 1;

/// The reason why bytes cannot be decoded as records. None of the records is usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordsError {
    /// A later version of this crate encoded them.
    #[error("records of format {0}, which is later than {RECORDS_FORMAT}")]
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
pub fn encode_records<'a, R: IntoIterator<Item = &'a Record>>(records: R) -> Vec<u8> {
    let mut writer =
        Writer { out: Vec::from([RECORDS_FORMAT]), texts: Texts::new(), version: None };
    records.into_iter().for_each(|record| writer.record(record));
    let mut out = writer.out;
    let checksum = checksum_of(&out);
    out.extend_from_slice(&checksum);
    out
}

/// Decodes records. Allocates memory in proportion to the bytes, after the checksum was verified: a
/// text that is repeated has at most 255 bytes.
///
/// # Errors
/// [`RecordsError`] when the bytes are not the output of [`encode_records`].
pub fn decode_records(bytes: &[u8]) -> Result<Vec<Record>, RecordsError> {
    let (body, checksum) = bytes.split_last_chunk::<CHECKSUM_LEN>().ok_or(RecordsError::Damaged)?;
    if checksum_of(body) != *checksum {
        return Err(RecordsError::Damaged);
    }
    let rest = match body.split_first() {
        Some((&RECORDS_FORMAT, rest)) => rest,
        Some((later, _)) if *later > RECORDS_FORMAT => return Err(RecordsError::Later(*later)),
        _ => return Err(RecordsError::Damaged),
    };
    let mut reader = Reader { rest, texts: Texts::new(), version: None };
    let mut records = Vec::new();
    while !reader.rest.is_empty() {
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

struct Writer<'a> {
    out: Vec<u8>,
    texts: Texts<'a>,
    /// Version of the last record, if it has one.
    version: Option<&'a Hlc>,
}

impl<'a> Writer<'a> {
    fn record(&mut self, record: &'a Record) {
        match record {
            Record::Put { key, value, version, fencing_token, expires, persist } => {
                let is_lease = expires.is_some_and(|expires| expires.is_lease);
                let flags = flag(fencing_token.is_some(), FENCED)
                    | flag(expires.is_some(), EXPIRES)
                    | flag(is_lease, LEASE)
                    | flag(*persist, PERSIST);
                self.out.extend_from_slice(&[PUT, flags]);
                self.bytes(key);
                self.bytes(value);
                self.hlc(version.hlc());
                if let Some(token) = fencing_token {
                    self.hlc(token.hlc());
                }
                if let Some(expires) = expires {
                    self.number(expires.at.as_millis());
                    self.number(expires.after.as_millis());
                }
            }
            Record::Removed { key, version } => {
                self.out.push(REMOVED);
                self.bytes(key);
                self.hlc(version.hlc());
            }
            Record::Response(response) => self.response(response),
            Record::Registered { client_id, key, verified, dialect, wants_incarnation, order } => {
                let flags = flag(*verified, VERIFIED)
                    | flag(*dialect == Dialect::Spec, SPEC_DIALECT)
                    | flag(*wants_incarnation, INCARNATION);
                self.out.extend_from_slice(&[REGISTERED, flags]);
                self.text(client_id);
                self.bytes(key);
                self.number(*order);
            }
            Record::Unregistered { client_id, key } => {
                self.out.push(UNREGISTERED);
                self.text(client_id);
                self.bytes(key);
            }
            Record::Issued { version } => {
                self.out.push(ISSUED);
                self.hlc(version.hlc());
            }
        }
        self.version = record.version().map(Version::hlc);
    }

    fn response(&mut self, response: &'a RecordedResponse) {
        let timestamp = response.timestamp.as_ref();
        let is_same = timestamp.is_some() && timestamp == self.version;
        let flags = flag(timestamp.is_some(), VERSIONED)
            | flag(is_same, SAME_VERSION)
            | flag(response.verified, VERIFIED_REQUESTER)
            | flag(response.owner.is_some(), OWNED);
        self.out.extend_from_slice(&[RESPONSE, flags]);
        self.text(&response.client_id);
        if let Some(owner) = &response.owner {
            self.text(owner);
        }
        self.text(&response.response_topic);
        self.bytes(response.correlation.as_bytes());
        self.out.extend_from_slice(&response.content.to_le_bytes());
        self.bytes(&response.payload);
        if let Some(timestamp) = timestamp.filter(|_| !is_same) {
            self.hlc(timestamp);
        }
        self.number(whole_millis(response.retention));
        self.number(whole_millis(response.given_at));
        self.number(response.order);
    }

    fn number(&mut self, mut number: u64) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                return self.out.push(low & 0x7f);
            }
            self.out.push(low | 0x80);
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &'a str) {
        if let Some(slot) = self.texts.insert(text) {
            return self.number((slot as u64) << 1 | IS_SLOT);
        }
        self.number((text.len() as u64) << 1);
        self.out.extend_from_slice(text.as_bytes());
    }

    fn hlc(&mut self, hlc: &'a Hlc) {
        self.number(hlc.wall().as_millis());
        self.number(hlc.counter());
        self.text(hlc.node().as_str());
    }
}

struct Reader<'a> {
    /// The bytes that are not decoded yet.
    rest: &'a [u8],
    texts: Texts<'a>,
    /// Version of the last record, if it has one.
    version: Option<Hlc>,
}

impl<'a> Reader<'a> {
    fn record(&mut self) -> Option<Record> {
        let record = match self.byte()? {
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
        };
        self.version = record.version().map(|version| version.hlc().clone());
        Some(record)
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
        let flags = self.flags(VERSIONED | SAME_VERSION | VERIFIED_REQUESTER | OWNED)?;
        Some(RecordedResponse {
            client_id: self.text()?.into(),
            verified: flags & VERIFIED_REQUESTER != 0,
            owner: match flags & OWNED {
                0 => None,
                _ => Some(self.text()?.into()),
            },
            response_topic: Arc::from(self.text()?),
            correlation: Correlation::new(self.bytes()?),
            content: u64::from_le_bytes(*self.chunk()?),
            payload: Bytes::copy_from_slice(self.bytes()?),
            timestamp: self.timestamp(flags)?,
            retention: Duration::from_millis(self.number()?),
            given_at: Duration::from_millis(self.number()?),
            order: self.order()?,
        })
    }

    /// Decodes the timestamp of a response, if it has one. Returns `None` if the bytes are invalid.
    fn timestamp(&mut self, flags: u8) -> Option<Option<Hlc>> {
        match (flags & VERSIONED != 0, flags & SAME_VERSION != 0) {
            (false, false) => Some(None),
            (false, true) => None,
            (true, true) => self.version.take().map(Some),
            (true, false) => {
                let timestamp = self.hlc()?;
                (self.version.as_ref() != Some(&timestamp)).then_some(Some(timestamp))
            }
        }
    }

    fn order(&mut self) -> Option<u64> {
        self.number().filter(|order| *order <= ORDER_MAX)
    }

    fn chunk<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (chunk, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
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
        let len = self.number()?;
        self.take(len)
    }

    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(usize::try_from(len).ok()?)?;
        self.rest = rest;
        Some(bytes)
    }

    fn boxed(&mut self) -> Option<Box<[u8]>> {
        self.bytes().map(Into::into)
    }

    fn text(&mut self) -> Option<&'a str> {
        let number = self.number()?;
        if number & IS_SLOT != 0 {
            return self.texts.get(number >> 1);
        }
        let text = core::str::from_utf8(self.take(number >> 1)?).ok()?;
        // A text that is in its slot has the shorter encoding only.
        self.texts.insert(text).is_none().then_some(text)
    }

    fn hlc(&mut self) -> Option<Hlc> {
        let (wall, counter) = (UnixTime::from_millis(self.number()?), self.number()?);
        Some(Hlc::new(wall, counter, NodeId::new(self.text()?).ok()?))
    }

    fn version(&mut self) -> Option<Version> {
        self.hlc().map(Version::new)
    }
}
