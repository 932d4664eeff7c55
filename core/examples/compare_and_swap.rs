//! A store on an existing engine with compare-and-swap, such as etcd. It uses only the rules, not
//! [`statestore_proto::store`].
//!
//! Run `cargo run -p statestore-proto --example compare_and_swap`.
//!
//! Two front ends on two threads serve one engine. A front end reads the entry, decides the request
//! and swaps in the new entry; after a conflict, it repeats all three steps. Two clients increment
//! one number under a lock, and no write is lost.
//!
//! Not included: expiry, which such engines support, and KEYNOTIFY, which would need a watch on the
//! engine.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use statestore_proto::glob::Pattern;
use statestore_proto::hlc::{FencingToken, HybridClock, NodeId, NodeIdError, Version};
use statestore_proto::message::{
    Command, Condition, Dialect, Page, PageEncoder, PeerError, Refusal, Reply, RequestPayload, Scan,
};
use statestore_proto::rules::{
    Change, Decision, KeyState, ReplyVersion, RequestTimestamps, Stored, decide,
};
use statestore_proto::time::UnixTime;

/// Maximum number of keys on a page.
const PAGE_KEYS_MAX: usize = 1;

/// Number of increments per client.
const ROUNDS: u64 = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::new();
    let serve = |node: &str| FrontEnd::new(&engine, node);
    let (mut first, mut second) = (serve("StateStore-1")?, serve("StateStore-2")?);
    std::thread::scope(|scope| {
        scope.spawn(|| increment(&mut first, "alice"));
        scope.spawn(|| increment(&mut second, "bob"));
    });

    let (reply, version) = first.answer(&Command::Get { key: "number" }, None);
    assert_eq!(reply, Reply::Value((2 * ROUNDS).to_string().into_bytes()));
    // The fence outlives the lock, on every front end.
    let write = Command::set("number", "0");
    let refused = Reply::Error(Refusal::FencingTokenRequired.into());
    assert_eq!(second.answer(&write, None).0, refused);
    assert_eq!(first.list("*")?, [b"number"], "the lock is deleted");
    let conflicts = engine.conflicts.load(Ordering::Relaxed);
    assert_ne!(conflicts, 0, "the first two swaps conflict");
    let version = version.ok_or("a value has a version")?;
    println!(
        "{} increments, none lost, {conflicts} swaps tried again, last version {version}",
        2 * ROUNDS
    );
    Ok(())
}

/// A client: acquires the lock, reads, writes with the fencing token, releases the lock.
fn increment(store: &mut FrontEnd<'_>, name: &str) {
    let mut last: Option<Version> = None;
    for _ in 0..ROUNDS {
        let condition = Condition::IfAbsentOrEqual;
        let lock = Command::Set { key: "lock", value: name, condition, expiry: None };
        let taken = loop {
            match store.answer(&lock, None) {
                (Reply::Done, Some(version)) => break version,
                (Reply::NotApplied, _) => std::thread::yield_now(),
                other => panic!("{other:?}"),
            }
        };
        assert!(last.is_none_or(|last| last < taken), "versions increase strictly");
        let number = match store.answer(&Command::Get { key: "number" }, None).0 {
            Reply::Value(value) => String::from_utf8_lossy(&value).parse().unwrap_or(0),
            _ => 0_u64,
        };
        let next = (number + 1).to_string();
        let token = taken.to_fencing_token();
        let (reply, _) = store.answer(&Command::set("number", next.as_str()), Some(&token));
        assert_eq!(reply, Reply::Done);
        let (reply, _) = store.answer(&Command::VDel { key: "lock", value: name }, None);
        assert_eq!(reply, Reply::Removed);
        last = Some(taken);
    }
}

/// A front end of the engine. Any number can share one engine; each needs its own node id.
struct FrontEnd<'a> {
    engine: &'a Engine,
    clock: HybridClock,
}

impl<'a> FrontEnd<'a> {
    fn new(engine: &'a Engine, node: &str) -> Result<Self, NodeIdError> {
        Ok(Self { engine, clock: HybridClock::new(NodeId::new(node)?) })
    }

    /// Executes a command with the timestamp and fencing token of a client.
    fn answer(
        &mut self,
        command: &Command<&str>,
        token: Option<&FencingToken>,
    ) -> (Reply<Vec<u8>>, Option<Version>) {
        let timestamp = format!("{}:0:client", wall_clock().as_millis());
        let token = token.map(ToString::to_string);
        let (payload, version) =
            self.respond(&command.encode(), Some(&timestamp), token.as_deref());
        let reply = Reply::decode(&payload, command.kind()).expect("a reply to that command");
        (reply.map(<[u8]>::to_vec), version)
    }

    /// Lists the keys that match a pattern, page by page.
    fn list(&mut self, pattern: &str) -> Result<Vec<Vec<u8>>, PeerError> {
        let (mut keys, mut token) = (Vec::new(), None);
        loop {
            let scan = Scan { pattern: pattern.as_bytes(), token: token.as_deref() };
            let (payload, _) = self.respond(&scan.encode(), None, None);
            let page = Page::decode(&payload)?;
            keys.extend(page.keys().map(<[u8]>::to_vec));
            token = page.token().map(<[u8]>::to_vec);
            if token.is_none() {
                return Ok(keys);
            }
        }
    }

    /// Returns the payload and the version of the response to a request.
    fn respond(
        &mut self,
        payload: &[u8],
        timestamp: Option<&str>,
        token: Option<&str>,
    ) -> (Vec<u8>, Option<Version>) {
        let (reply, version) = match RequestPayload::decode(payload) {
            Ok(RequestPayload::Command(command)) => self.execute(&command, timestamp, token),
            Ok(RequestPayload::Scan(scan)) => match self.page(&scan) {
                Ok(page) => return (page, None),
                Err(refusal) => (Reply::Error(refusal.into()), None),
            },
            Ok(_) => (Reply::Error(Refusal::UnknownCommand.into()), None),
            Err(error) => (Reply::Error(error.kind.refusal().into()), None),
        };
        (reply.encode(Dialect::Deployed), version)
    }

    /// Encodes a page of keys. The token is the last key of the page before.
    fn page(&self, scan: &Scan<&[u8]>) -> Result<Vec<u8>, Refusal> {
        let pattern = Pattern::new(scan.pattern).map_err(|_| Refusal::Syntax)?;
        let keys = self.engine.keys_after(scan.token.unwrap_or_default());
        let mut keys = keys.iter().filter(|key| pattern.matches(key)).map(Vec::as_slice);
        let page: Vec<_> = keys.by_ref().take(PAGE_KEYS_MAX).collect();
        let token = keys.next().and_then(|_| page.last().copied());
        Ok(PageEncoder { keys: &page, token }.encode())
    }

    /// Executes a command, in the order of checks of [`statestore_proto::rules`].
    fn execute(
        &mut self,
        command: &Command<&[u8]>,
        timestamp: Option<&str>,
        token: Option<&str>,
    ) -> (Reply<Vec<u8>>, Option<Version>) {
        let refused = |refusal: Refusal| (Reply::Error(refusal.into()), None);
        loop {
            let now = wall_clock();
            let stored = self.engine.read(command.key());
            // The version may be from another front end, whose clock is ahead of this one.
            if let Some(stored) = &stored {
                self.clock.advance_past(stored.version.hlc().borrowed());
            }
            let issued = self.clock.last();
            let timestamps =
                match RequestTimestamps::verify(command.kind(), timestamp, token, now, issued) {
                    Ok(timestamps) => timestamps,
                    Err(error) => return refused(error.refusal()),
                };
            let entry = stored.as_ref().and_then(|stored| {
                let fence = stored.fence.as_ref().map(FencingToken::borrowed);
                Some(Stored { value: stored.value.as_deref()?, fence })
            });
            let state = KeyState { stored: entry, ..KeyState::default() };
            let decision = match decide(state, command, timestamps.fencing_token) {
                Ok(decision) => decision,
                Err(rejected) => return refused(rejected.refusal()),
            };
            let Decision { change, reply, version: reply_version } = decision;
            let reply = reply.map(<[u8]>::to_vec);
            let previous = stored.as_ref().map(|stored| stored.version.clone());
            let swapped_in = match (change, command, timestamps.latest()) {
                (Change::Put, Command::Set { value, .. }, Some(latest)) => {
                    // No front end issues a version twice, even if the swap fails.
                    let Ok(version) = self.clock.receive(now, latest) else {
                        return refused(Refusal::TimestampSkew);
                    };
                    let fence =
                        timestamps.fencing_token.and_then(|token| token.try_into_owned().ok());
                    let value = Some(value.to_vec());
                    Some(Row { value, version: Version::new(version), fence, revision: 0 })
                }
                // A removed key keeps its version, so that every front end issues a greater one.
                (Change::Remove, _, _) => previous.clone().map(|version| Row {
                    value: None,
                    version,
                    fence: None,
                    revision: 0,
                }),
                _ => None,
            };
            let version = match (reply_version, &swapped_in) {
                (ReplyVersion::New, Some(new)) => Some(new.version.clone()),
                (ReplyVersion::Stored, _) => previous,
                _ => None,
            };
            let expected = stored.map(|stored| stored.revision);
            if swapped_in.is_none_or(|new| self.engine.swap(command.key(), expected, new)) {
                return (reply, version);
            }
        }
    }
}

/// An entry of the engine.
#[derive(Clone)]
struct Row {
    /// The engine's number of changes, which a swap compares.
    revision: u64,
    /// `None` after a removal.
    value: Option<Vec<u8>>,
    version: Version,
    fence: Option<FencingToken>,
}

/// A simulated database that reads an entry, and replaces one that is unchanged.
struct Engine {
    entries: Mutex<BTreeMap<Vec<u8>, Row>>,
    reads: AtomicU64,
    /// Makes the first two reads wait for each other, so that their swaps conflict.
    start: Barrier,
    conflicts: AtomicU64,
}

impl Engine {
    fn new() -> Self {
        Self {
            entries: Mutex::default(),
            reads: AtomicU64::new(0),
            start: Barrier::new(2),
            conflicts: AtomicU64::new(0),
        }
    }

    fn read(&self, key: &[u8]) -> Option<Row> {
        let found = self.entries.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        if self.reads.fetch_add(1, Ordering::Relaxed) < 2 {
            self.start.wait();
        }
        found
    }

    /// The keys with a value after `key`, in the order of their bytes.
    fn keys_after(&self, key: &[u8]) -> Vec<Vec<u8>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let later = entries.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded));
        later.filter(|(_, row)| row.value.is_some()).map(|(key, _)| key.clone()).collect()
    }

    /// Stores `new` if the entry has the expected revision, or does not exist for `None`.
    fn swap(&self, key: &[u8], expected: Option<u64>, mut new: Row) -> bool {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let found = entries.get(key).map(|stored| stored.revision);
        if found != expected {
            self.conflicts.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        new.revision = found.map_or(1, |revision| revision + 1);
        entries.insert(key.to_vec(), new);
        true
    }
}

#[expect(clippy::disallowed_methods, reason = "a front end reads the clock")]
fn wall_clock() -> UnixTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixTime::from_epoch(since)
}
