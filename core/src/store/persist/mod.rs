//! Durability: the records of a store, their encoding, and a new store made from them.

mod codec;
mod record;
mod restore;
mod snapshot;
mod texts;

pub use codec::{RECORDS_FORMAT, RecordsError, decode_records, encode_records};
pub(super) use record::ORDER_MAX;
pub use record::{Batch, BatchId, Record, RecordedExpiry, RecordedResponse};
pub use snapshot::SnapshotPosition;
