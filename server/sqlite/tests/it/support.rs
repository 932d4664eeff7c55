//! A store machine driven by hand, a journal for its records, and temporary directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::store::{Durability, Record, SnapshotPosition, Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::topic;
use statestore_proto::transport::{Incoming, Transmit};
use statestore_sqlite::SqliteJournal;
use statestore_tokio::JournalError;
use statestore_tokio::service::{Commit, Journal as _, SnapshotPart};

const CLIENT: &str = "lamp-1";
const RESPONSE_TOPIC: &str = "clients/lamp-1/services/statestore/_any_/command/invoke/response";
const STARTED: u64 = 1_700_000_000_000;

/// A temporary directory, removed on drop.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{count}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Returns a path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Copies the files of a journal as a crash of the process would leave them.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        // SQLite's shared memory does not survive a crash.
        if !entry.file_name().to_str().unwrap().ends_with("-shm") {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Time stands still, so remaining durations stay the same.
fn now() -> Now {
    Now::new(Instant::from_millis(0), UnixTime::from_millis(STARTED))
}

pub(crate) fn new_store() -> Store {
    let config = StoreConfig::new(7).durability(Durability::All).durable_registrations(true);
    let mut store = Store::new(config);
    store.handle(Now::default(), Input::Connected { session_present: false });
    while store.poll_transmit().is_some() {}
    store
}

/// Executes a SET and returns its records. Its response is ready afterwards.
pub(crate) fn set(store: &mut Store, number: u64, key: &[u8], value: &[u8]) -> Vec<Record> {
    request(store, number, &[b"SET", key, value])
}

pub(crate) fn request(store: &mut Store, number: u64, words: &[&[u8]]) -> Vec<Record> {
    let mut payload = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        payload.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        payload.extend_from_slice(word);
        payload.extend_from_slice(b"\r\n");
    }
    let payload = Bytes::from(payload);
    let correlation = number.to_be_bytes();
    let mut incoming = Incoming::new(topic::REQUEST, &payload);
    incoming.response_topic = Some(RESPONSE_TOPIC);
    incoming.correlation_data = Some(&correlation);
    let stamp = format!("{STARTED}:{number}:{CLIENT}");
    incoming.user_property("__ts", &stamp);
    incoming.verified_sender = Some(CLIENT);
    store.handle_publish(now(), &incoming);
    let records = store.poll_records().map(|batch| {
        store.handle_persisted(batch.id);
        batch.records
    });
    records.unwrap_or_default()
}

/// Drains the store's packets and returns the payloads of its responses.
pub(crate) fn responses(store: &mut Store) -> Vec<Bytes> {
    let sent = std::iter::from_fn(|| store.poll_transmit());
    let payloads = sent.filter_map(|sent| match sent {
        Transmit::Publish(publish) => Some(publish.payload),
        _ => None,
    });
    payloads.collect()
}

pub(crate) fn commit(
    journal: &mut SqliteJournal,
    records: Vec<Record>,
) -> Result<(), JournalError> {
    block_on(journal.commit(Commit { records, snapshot: None }))
}

/// Loads all records of a journal.
pub(crate) fn load(journal: &mut SqliteJournal) -> Result<Vec<Record>, JournalError> {
    let mut all = Vec::new();
    while let Some(portion) = block_on(journal.load())? {
        all.extend(portion);
    }
    Ok(all)
}

pub(crate) fn restore(records: &[Record]) -> Store {
    let mut store = new_store();
    records.iter().for_each(|record| store.restore(now(), record));
    store
}

/// Returns the durable state of a store.
pub(crate) fn contents(store: &Store) -> Vec<Record> {
    store.snapshot(now()).collect()
}

/// The parts of a snapshot, one by one.
pub(crate) struct Parts(Option<SnapshotPosition>);

impl Parts {
    pub(crate) fn new() -> Self {
        Self(Some(SnapshotPosition::default()))
    }

    pub(crate) fn next(&mut self, store: &Store, bytes: usize) -> Option<SnapshotPart> {
        let position = self.0.take()?;
        let is_first = position == SnapshotPosition::default();
        let (records, next) = store.snapshot_part(now(), &position, bytes);
        self.0 = next;
        Some(SnapshotPart { records, is_first, is_last: self.0.is_none() })
    }
}
