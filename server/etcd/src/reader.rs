//! Reads all keys of the store at one revision, in pages.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use etcd_client::KeyValue;
use statestore_proto::store::{Record, RecordedResponse};

use crate::client::Etcd;
use crate::entry::{self, Entry};
use crate::error::Failure;
use crate::foreign_keys::ForeignKeys;
use crate::head::Head;
use crate::keys::Keys;
use crate::response_log::ResponseLog;

/// Number of keys in the first page, before the size of values is known.
const FIRST_PAGE: i64 = 1_000;

/// Maximum number of keys in a page. etcd walks over the whole rest of the range for each page, so
/// a few large pages are cheaper than many small ones.
const PAGE_MAX: i64 = 50_000;

/// Intended size of a page in bytes.
const PAGE_BYTES: usize = 16 << 20;

/// Bytes of records that are returned at once.
const PORTION_BYTES: usize = 256 << 10;

/// Number of responses that are returned at once.
const PORTION_RESPONSES: usize = 1_000;

/// Reads all keys of the store at one revision.
pub(crate) struct Reader {
    revision: i64,
    /// First key of the next page; `None` after the last page.
    from: Option<Vec<u8>>,
    limit: i64,
    page: std::vec::IntoIter<KeyValue>,
    contents: Contents,
    /// Responses, which are returned at the end, sorted in the order in which they were given.
    responses: Vec<RecordedResponse>,
}

/// Everything that was read besides records.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) revision: i64,
    pub(crate) has_format: bool,
    pub(crate) head: Option<Head>,
    pub(crate) leader: Option<KeyValue>,
    pub(crate) response_log: ResponseLog,
    /// Keys of all entries and registrations.
    pub(crate) names: BTreeSet<Box<[u8]>>,
}

impl Reader {
    /// Reads at this revision, which must not be compacted.
    pub(crate) fn new(keys: &Keys, revision: i64) -> Self {
        Self {
            revision,
            from: Some(keys.range().0),
            limit: FIRST_PAGE,
            page: Vec::new().into_iter(),
            contents: Contents { revision, ..Contents::default() },
            responses: Vec::new(),
        }
    }

    /// Returns the next records, or `None` at the end. Can be called again after a transient error.
    pub(crate) async fn next(
        &mut self,
        etcd: &Etcd,
        keys: &Keys,
        foreign_keys: &mut ForeignKeys,
    ) -> Result<Option<Vec<Record>>, Failure> {
        loop {
            // A portion that consists of responses alone contains no records.
            while self.page.len() > 0 {
                let portion = self.portion(keys, foreign_keys)?;
                if !portion.is_empty() {
                    return Ok(Some(portion));
                }
            }
            let Some(from) = self.from.clone() else { break };
            self.read_page(etcd, keys, from).await?;
        }
        // Sorted latest first, so that portions can be split off at the end.
        self.responses.sort_by_key(|response| Reverse(response.order));
        let rest = self.responses.len().saturating_sub(PORTION_RESPONSES);
        let portion = self.responses.split_off(rest);
        let portion: Vec<Record> = portion.into_iter().rev().map(Record::Response).collect();
        Ok((!portion.is_empty()).then_some(portion))
    }

    /// Returns everything besides records, once [`next`](Self::next) has returned `None`.
    pub(crate) fn into_contents(self) -> Contents {
        self.contents
    }

    /// Reads the next page.
    async fn read_page(&mut self, etcd: &Etcd, keys: &Keys, from: Vec<u8>) -> Result<(), Failure> {
        let range = (from, keys.range().1);
        let page = match etcd.page(range, self.limit, self.revision).await {
            Err(failure) if failure.is_too_long() && self.limit > 1 => {
                self.limit = (self.limit / 8).max(1);
                return Ok(());
            }
            page => page?,
        };
        let last = page.entries.last().map(|last| [last.key(), b"\0"].concat());
        self.from = last.filter(|_| page.more);
        let size = |entry: &KeyValue| entry.key().len() + entry.value().len();
        let bytes: usize = page.entries.iter().map(size).sum();
        let mean = (bytes / page.entries.len().max(1)).max(1);
        self.limit = i64::try_from(PAGE_BYTES / mean).unwrap_or(PAGE_MAX).clamp(16, PAGE_MAX);
        self.page = page.entries.into_iter();
        Ok(())
    }

    /// Decodes the next part of the current page.
    fn portion(
        &mut self,
        keys: &Keys,
        foreign_keys: &mut ForeignKeys,
    ) -> Result<Vec<Record>, Failure> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while bytes < PORTION_BYTES {
            let Some(kv) = self.page.next() else { break };
            bytes += kv.key().len() + kv.value().len();
            match entry::decode(keys, kv.key(), kv.value())? {
                Entry::Standby(_) => {}
                Entry::Unknown => foreign_keys.warn_ignored(kv.key()),
                Entry::Format => self.contents.has_format = true,
                Entry::Head(head) => self.contents.head = Some(head),
                Entry::Leader => self.contents.leader = Some(kv),
                Entry::Responses { number, responses } => {
                    let retention = responses.iter().map(|response| response.retention).max();
                    self.contents.response_log.insert(
                        number,
                        kv.value().len(),
                        retention.unwrap_or_default(),
                    );
                    self.responses.extend(responses);
                }
                Entry::Record(record) => {
                    self.contents.names.insert(kv.key().into());
                    records.push(record);
                }
            }
        }
        Ok(records)
    }
}
