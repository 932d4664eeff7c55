//! A store over an engine of somebody else's that can compare and swap, such as etcd: without [`statestore_proto::store`],
//! with the rules alone.
//!
//! `cargo run -p statestore-proto --example compare_and_swap`
//!
//! Two front ends on two threads serve one engine. Each request is looked up, decided and swapped in; when another was
//! faster it is decided anew. Two clients increment one number under a lock, and none of their writes is lost.
//!
//! Left out: expiry, which an engine has of its own, and KEYNOTIFY, for which it would have to be watched.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use statestore_proto::hlc::{FencingToken, HybridClock, NodeId, NodeIdError, Version};
use statestore_proto::message::{Command, Condition, Refusal, Reply};
use statestore_proto::rules::{Change, Decision, Entry, Stamp, Stamps, State, decide};
use statestore_proto::time::UnixTime;

/// How often each client increments the number.
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
    // The fence outlives the lock, at whichever front end.
    let write = Command::set("number", "0");
    let refused = Reply::Error(Refusal::FencingTokenRequired.into());
    assert_eq!(second.answer(&write, None).0, refused);
    let conflicts = engine.conflicts.load(Ordering::Relaxed);
    assert_ne!(conflicts, 0, "the two began at the same time");
    let version = version.ok_or("a value has a version")?;
    println!(
        "{} increments, none lost, {conflicts} swaps tried again, last version {version}",
        2 * ROUNDS
    );
    Ok(())
}

/// What a client does: lock, read, write with the token, unlock.
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
        assert!(last.is_none_or(|last| last < taken), "versions only grow");
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

/// Answers requests. There may be any number of these for one engine, each with a node id of its own.
struct FrontEnd<'a> {
    engine: &'a Engine,
    clock: HybridClock,
}

impl<'a> FrontEnd<'a> {
    fn new(engine: &'a Engine, node: &str) -> Result<Self, NodeIdError> {
        Ok(Self { engine, clock: HybridClock::new(NodeId::new(node)?) })
    }

    /// Answers a command as a client sends it, with what such a request has beside its payload.
    fn answer(
        &mut self,
        command: &Command<&str>,
        token: Option<&FencingToken>,
    ) -> (Reply<Vec<u8>>, Option<Version>) {
        let timestamp = format!("{}:0:client", wall_clock().as_millis());
        let token = token.map(ToString::to_string);
        self.execute(&command.encode(), Some(&timestamp), token.as_deref())
    }

    /// One request, in the order of checks of [`statestore_proto::rules`].
    fn execute(
        &mut self,
        payload: &[u8],
        timestamp: Option<&str>,
        token: Option<&str>,
    ) -> (Reply<Vec<u8>>, Option<Version>) {
        let refused = |refusal: Refusal| (Reply::Error(refusal.into()), None);
        let command = match Command::decode(payload) {
            Ok(command) => command,
            Err(error) => return refused(error.kind.refusal()),
        };
        loop {
            let now = wall_clock();
            let stored = self.engine.read(command.key());
            // Another front end may have issued it, with a clock that is ahead of this one.
            if let Some(stored) = &stored {
                self.clock.advance_past(stored.version.hlc().as_deref());
            }
            let issued = self.clock.last();
            let stamps = match Stamps::verify(command.kind(), timestamp, token, now, issued) {
                Ok(stamps) => stamps,
                Err(refusal) => return refused(refusal),
            };
            let entry = stored.as_ref().and_then(|stored| {
                let fence = stored.fence.as_ref().map(FencingToken::as_deref);
                Some(Entry { value: stored.value.as_deref()?, fence })
            });
            let state = State { entry, ..State::default() };
            let Decision { change, reply, stamp } = decide(state, &command, stamps.fencing_token);
            let reply = reply.map(<[u8]>::to_vec);
            let told = stored.as_ref().map(|stored| stored.version.clone());
            let swapped_in = match (change, &command, stamps.latest()) {
                (Change::Put, Command::Set { value, .. }, Some(latest)) => {
                    // As for every front end: no version is issued twice, whatever becomes of the swap.
                    let Ok(version) = self.clock.receive(now, latest) else {
                        return refused(Refusal::TimestampSkew);
                    };
                    let fence = stamps.fencing_token.and_then(|token| token.to_owned().ok());
                    let value = Some(value.to_vec());
                    Some(Stored { value, version: Version::new(version), fence, revision: 0 })
                }
                // What is removed leaves its version, so that the next one of the key is greater at any front end.
                (Change::Remove, _, _) => told.clone().map(|version| Stored {
                    value: None,
                    version,
                    fence: None,
                    revision: 0,
                }),
                _ => None,
            };
            let version = match (stamp, &swapped_in) {
                (Stamp::New, Some(new)) => Some(new.version.clone()),
                (Stamp::Stored, _) => told,
                _ => None,
            };
            let expected = stored.map(|stored| stored.revision);
            if swapped_in.is_none_or(|new| self.engine.swap(command.key(), expected, new)) {
                return (reply, version);
            }
        }
    }
}

/// What the engine keeps for a key.
#[derive(Clone)]
struct Stored {
    /// The engine's own count of changes, which a swap compares.
    revision: u64,
    /// `None` after a removal.
    value: Option<Vec<u8>>,
    version: Version,
    fence: Option<FencingToken>,
}

/// Stands for a database: it reads one entry, and replaces one that is still the same.
struct Engine {
    entries: Mutex<BTreeMap<Vec<u8>, Stored>>,
    reads: AtomicU64,
    /// Where the first two reads wait for each other, so that one of the swaps that follow comes too late.
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

    fn read(&self, key: &[u8]) -> Option<Stored> {
        let found = self.entries.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        if self.reads.fetch_add(1, Ordering::Relaxed) < 2 {
            self.start.wait();
        }
        found
    }

    /// Stores `new` if the entry has the revision that is expected; `None` expects that there is none.
    fn swap(&self, key: &[u8], expected: Option<u64>, mut new: Stored) -> bool {
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

#[expect(clippy::disallowed_methods, reason = "whoever runs a store reads the clock")]
fn wall_clock() -> UnixTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixTime::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
