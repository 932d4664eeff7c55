//! Everything below the prefix as it was at one revision, in pages.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use etcd_client::KeyValue;
use statestore_proto::store::{Record, RecordedResponse};

use crate::answers::Answers;
use crate::client::Etcd;
use crate::entry::{self, Entry};
use crate::error::Failure;
use crate::head::Head;
use crate::keys::Keys;
use crate::strangers::Strangers;

/// Keys of the first page, before anything is known of their size.
const FIRST_PAGE: i64 = 1_000;

/// Keys of a page, at most: etcd walks over the whole rest of a range for each page, so few large ones are best.
const PAGE_MAX: i64 = 50_000;

/// Bytes that a page is meant to have.
const PAGE_BYTES: usize = 16 << 20;

/// Bytes of what is handed out at once.
const PORTION_BYTES: usize = 256 << 10;

/// Answers that are handed out at once.
const PORTION_ANSWERS: usize = 1_000;

/// Reads all there is.
pub(crate) struct Reader {
    revision: i64,
    /// Where the next page begins; `None` after the last.
    from: Option<Vec<u8>>,
    limit: i64,
    page: std::vec::IntoIter<KeyValue>,
    contents: Contents,
    /// In the end they are handed out in the order in which they were given.
    answered: Vec<RecordedResponse>,
}

/// What was read besides records.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) revision: i64,
    pub(crate) has_format: bool,
    pub(crate) head: Option<Head>,
    pub(crate) leader: Option<KeyValue>,
    pub(crate) answers: Answers,
    /// The keys of values and registrations.
    pub(crate) names: BTreeSet<Box<[u8]>>,
}

impl Reader {
    /// Everything at this revision, which must be one that etcd has not compacted.
    pub(crate) fn new(keys: &Keys, revision: i64) -> Self {
        Self {
            revision,
            from: Some(keys.range().0),
            limit: FIRST_PAGE,
            page: Vec::new().into_iter(),
            contents: Contents { revision, ..Contents::default() },
            answered: Vec::new(),
        }
    }

    /// The next records, or `None` when everything was read. May be called again after an error that is transient.
    pub(crate) async fn next(
        &mut self,
        etcd: &Etcd,
        keys: &Keys,
        strangers: &mut Strangers,
    ) -> Result<Option<Vec<Record>>, Failure> {
        loop {
            // One of answers alone has no records.
            while self.page.len() > 0 {
                let portion = self.portion(keys, strangers)?;
                if !portion.is_empty() {
                    return Ok(Some(portion));
                }
            }
            let Some(from) = self.from.clone() else { break };
            self.turn(etcd, keys, from).await?;
        }
        // The latest first, and taken from the end.
        self.answered.sort_by_key(|answered| Reverse(answered.order));
        let rest = self.answered.len().saturating_sub(PORTION_ANSWERS);
        let portion = self.answered.split_off(rest);
        let portion: Vec<Record> = portion.into_iter().rev().map(Record::Response).collect();
        Ok((!portion.is_empty()).then_some(portion))
    }

    /// What there was besides, once [`next`](Self::next) has returned `None`.
    pub(crate) fn into_contents(self) -> Contents {
        self.contents
    }

    /// Fetches a page.
    async fn turn(&mut self, etcd: &Etcd, keys: &Keys, from: Vec<u8>) -> Result<(), Failure> {
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

    /// Reads some of the page that is here.
    fn portion(&mut self, keys: &Keys, strangers: &mut Strangers) -> Result<Vec<Record>, Failure> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while bytes < PORTION_BYTES {
            let Some(kv) = self.page.next() else { break };
            bytes += kv.key().len() + kv.value().len();
            match entry::read(keys, kv.key(), kv.value())? {
                Entry::Standby(_) => {}
                Entry::Stray => strangers.stray(kv.key()),
                Entry::Format => self.contents.has_format = true,
                Entry::Head(head) => self.contents.head = Some(head),
                Entry::Leader => self.contents.leader = Some(kv),
                Entry::Answers { number, answers } => {
                    let kept = answers.iter().map(|answered| answered.retention).max();
                    self.contents.answers.found(number, kv.value().len(), kept.unwrap_or_default());
                    self.answered.extend(answers);
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
