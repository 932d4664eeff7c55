//! Operations on a store, and the comparison with the reference store.

mod disk;
mod requests;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::limits::StoreLimits;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Dialect, WordCase};
use statestore_proto::store::{
    Access, ClientUsage, DialectPolicy, DropReason, Durability, Principal, RequestOutcome, Store,
    StoreConfig, StoredEntry,
};
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::transport::ReasonCode;

pub(crate) use disk::assert_same;

use disk::{About, Disk};
use requests::{damaged, request, spoil};

use statestore_models::alphabet;
use statestore_models::machines::Reader;
use statestore_models::machines::request::StoreRequest;
use statestore_models::reference::{Entry, Out, ReferenceStore, clock::stamp, counted, text};

alphabet! {
    /// An operation on a store.
    pub enum StoreOp {
        /// A SET.
        Set = b'S', 7;
        /// A GET.
        Get = b'G', 2;
        /// A DEL.
        Del = b'D', 2;
        /// A VDEL.
        VDel = b'V', 1;
        /// A KEYNOTIFY.
        Watch = b'K', 3;
        /// A KEYNOTIFY with STOP.
        Unwatch = b'U', 2;
        /// A SCAN.
        Scan = b'N', 2;
        /// A damaged payload of the table.
        Damaged = b'X', 1;
        /// The bytes that follow, as a payload.
        Raw = b'x', 1;
        /// The next request gets a flaw.
        Flaw = b'B', 2;
        /// Redelivers an earlier request.
        Again = b'R', 2;
        /// Advances time.
        Pass = b'T', 3;
        /// Advances time and fires the timer.
        Timer = b't', 1;
        /// Steps the wall clock.
        WallStep = b'W', 1;
        /// Disconnects a client.
        Leave = b'L', 1;
        /// A PUBACK.
        Puback = b'P', 1;
        /// From now on batches of records are held back, or not.
        Hold = b'H', 2;
        /// Persists the oldest held batch.
        Persist = b'b', 2;
    }
}

/// Names of senders.
pub(crate) const CLIENTS: [&str; 4] = ["alice", "bob", "carol", "dave"];
pub(crate) const KEYS: [&str; 6] = ["a", "b", "lock", "\r\n", "readonly", "a key of some length"];
/// A key that may be written but not read.
const SECRET: &str = "secret";
const EPOCH: u64 = 1_696_374_425_000;

/// Payloads that are invalid, or accepted only by a lenient parser.
pub(crate) const PAYLOADS: &[&[u8]] = &[
    b"",
    b"*0\r\n",
    b"*1\r\n$3\r\nGET\r\n",
    b"*2\r\n$3\r\nget\r\n$1\r\na\r\n",
    b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
    b"*2\r\n$003\r\nGET\r\n$1\r\na\r\n",
    b"*2\r\n$3\r\nPUT\r\n$1\r\na\r\n",
    b"*3\r\n$3\r\nset\r\n$1\r\na\r\n$1\r\nb\r\n",
    b"*4\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n$2\r\nXX\r\n",
    b"*5\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n$2\r\nPX\r\n$1\r\n0\r\n",
    b"*5\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n$2\r\nPX\r\n$2\r\n50\r\n",
    b"*5\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n$2\r\nNX\r\n$3\r\nNEX\r\n",
    b"*3\r\n$9\r\nKEYNOTIFY\r\n$1\r\na\r\n$4\r\nstop\r\n",
    b"*3\r\n$9\r\nKEYNOTIFY\r\n$1\r\na\r\n$5\r\nSTART\r\n",
    b"*2\r\n$99999999999999999999\r\nGET\r\n$1\r\na\r\n",
    b"*2\r\n$4\r\nscan\r\n$1\r\n*\r\n",
    b"*4\r\n$4\r\nSCAN\r\n$1\r\n*\r\n$1\r\na\r\n$1\r\nb\r\n",
    b"+OK\r\n",
];

/// One input of a store.
#[derive(Clone, Debug)]
pub enum StoreInput {
    /// A request arrives.
    Request(Box<StoreRequest>),
    /// The timer fires.
    Timer,
    /// A client disconnects.
    Gone(String),
    /// The n-th newest notification is acknowledged.
    Published(usize, ReasonCode),
    /// From now on batches of records are held back, or not.
    Hold(bool),
    /// Persists the oldest held batch.
    Persist,
}

/// A configuration and timed inputs.
#[derive(Clone, Debug)]
pub struct StoreScript {
    flags: u8,
    /// Inputs.
    pub ops: Vec<(Now, StoreInput)>,
}

impl StoreScript {
    /// Parses any bytes as a script.
    #[must_use]
    pub fn parse(data: &[u8]) -> Self {
        let ([flags], mut reader) = Reader::<StoreOp>::new::<1>(data);
        let mut now = Now::new(Instant::from_millis(1_000), UnixTime::from_millis(EPOCH));
        let (mut ops, mut asked, mut flaw) = (Vec::new(), Vec::new(), None);
        while let Some((op, args)) = reader.next() {
            let [a, b, ..] = args;
            let passed = match op {
                StoreOp::Pass | StoreOp::Timer => u64::from(a) + u64::from(b) * 256,
                _ => 0,
            };
            now = Now::new(
                Instant::from_millis(now.instant.as_millis() + passed),
                UnixTime::from_millis(now.unix.as_millis() + passed),
            );
            let input = match op {
                StoreOp::Pass => continue,
                StoreOp::Timer => StoreInput::Timer,
                StoreOp::WallStep => {
                    let step = (i64::from(a) - 128) * 1_000;
                    let unix = now.unix.as_millis().saturating_add_signed(step);
                    now = Now::new(now.instant, UnixTime::from_millis(unix));
                    continue;
                }
                StoreOp::Leave => StoreInput::Gone(CLIENTS[usize::from(a) % CLIENTS.len()].into()),
                StoreOp::Puback => StoreInput::Published(
                    a.into(),
                    ReasonCode([0x10, 0, 0x10, b][usize::from(b >> 6)]),
                ),
                StoreOp::Hold => StoreInput::Hold(a & 1 != 0),
                StoreOp::Persist => StoreInput::Persist,
                StoreOp::Flaw => {
                    flaw = Some(a);
                    continue;
                }
                StoreOp::Again => match asked.len() {
                    0 => continue,
                    len => StoreInput::Request(Box::clone(&asked[len - 1 - usize::from(a) % len])),
                },
                _ => {
                    let mut ask = Box::new(request(op, args, now, asked.len() as u64));
                    match op {
                        StoreOp::Damaged => ask.payload = damaged(args),
                        StoreOp::Raw => ask.payload = Bytes::copy_from_slice(reader.raw(a.into())),
                        _ => {}
                    }
                    if let Some(flaw) = flaw.take() {
                        spoil(&mut ask, flaw, now);
                    }
                    asked.push(ask.clone());
                    StoreInput::Request(ask)
                }
            };
            ops.push((now, input));
        }
        Self { flags, ops }
    }

    /// The default limits, or limits that a few requests reach.
    #[must_use]
    pub fn limits(&self) -> StoreLimits {
        if self.flags & 1 == 0 {
            return StoreLimits::default();
        }
        StoreLimits {
            keys_max: 3,
            bytes_max: 64,
            key_bytes_max: 12,
            registrations_max: 4,
            registration_bytes_max: 24,
            registrations_per_key_max: 2,
            outgoing_max: 16,
            outgoing_bytes_max: 1 << 20,
            record_bytes_max: 1 << 10,
            dedup_entries_max: usize::from(self.flags >> 6),
            dedup_bytes_max: 400,
            // The flags that choose the size of the deduplication cache also choose the share of a
            // client.
            client_percent: [100, 50, 60, 34][usize::from(self.flags >> 6)],
            unverified_registrations_kept: Duration::from_secs(30),
            ..StoreLimits::default()
        }
    }

    /// Returns the durability.
    #[must_use]
    pub const fn durability(&self) -> Durability {
        match self.flags >> 4 & 3 {
            1 | 3 => Durability::All,
            2 => Durability::Requested,
            _ => Durability::None,
        }
    }

    /// Returns whether reads are linearizable.
    #[must_use]
    pub const fn reads_are_linearizable(&self) -> bool {
        self.flags >> 4 & 3 == 3
    }

    const fn dialect(&self) -> Option<Dialect> {
        match self.flags >> 1 & 3 {
            1 => Some(Dialect::Deployed),
            2 => Some(Dialect::Spec),
            _ => None,
        }
    }

    const fn word_case(&self) -> WordCase {
        if self.flags & 8 == 0 { WordCase::Any } else { WordCase::Upper }
    }

    /// A store of this configuration.
    #[must_use]
    pub fn store(&self, hash_seed: u64) -> Store {
        Store::new(self.config(hash_seed))
    }

    /// Its configuration.
    pub(crate) fn config(&self, hash_seed: u64) -> StoreConfig {
        StoreConfig::new(hash_seed)
            .limits(self.limits())
            .dialect(self.dialect().map_or(DialectPolicy::Auto, DialectPolicy::Pinned))
            .word_case(self.word_case())
            .durability(self.durability())
            .linearizable_reads(self.reads_are_linearizable())
            .authorizer(|_, access, key| allows(access != Access::Read, key))
    }

    fn reference(&self) -> ReferenceStore {
        let mut reference = ReferenceStore::new(self.limits());
        reference.dialect = self.dialect();
        reference.word_case = self.word_case();
        reference.allows = allows;
        reference
    }
}

fn allows(writes: bool, key: &[u8]) -> bool {
    if writes { key != b"readonly" } else { key != SECRET.as_bytes() }
}

/// Oracle: the reference store returns the same responses and notifications for the same input.
///
/// Input: a byte of flags for the configuration, and operations ([`StoreOp`]).
///
/// # Panics
/// If they differ.
pub fn store_ops(data: &[u8]) {
    let script = StoreScript::parse(data);
    let (mut store, mut reference) = (script.store(7), script.reference());
    let durability = script.durability();
    let mut disk = Disk::new(script.reads_are_linearizable());
    let mut last = Now::default();
    for (now, op) in &script.ops {
        let before = disk.numbers.len();
        let mut expected = Out::new();
        let about = match op {
            StoreInput::Request(ask) => About::of(ask, script.word_case()),
            _ => About::Nothing,
        };
        if disk.holds && store.can_receive() {
            // Notify expiries while the output queue has capacity, before they compete with
            // requests. They wait for their own records, not for those of the request.
            store.handle(*now, Input::Timeout);
            disk.settle(&mut store, durability, &About::Nothing, reference.expire(*now));
        }
        match op {
            StoreInput::Request(ask) => {
                expected.extend(submit(*now, ask, &mut store, &mut reference))
            }
            StoreInput::Timer if disk.holds => {}
            StoreInput::Timer => {
                store.handle(*now, Input::Timeout);
                expected.extend(reference.expire(*now));
            }
            StoreInput::Gone(client) => {
                store.handle(*now, Input::ClientGone(client));
                reference.client_gone(client);
            }
            StoreInput::Published(age, reason) => {
                if let Some((number, token)) = disk.numbers.iter().rev().nth(*age).copied() {
                    store.handle(*now, Input::Published(token, *reason));
                    let has_subscriber = *reason != ReasonCode::NO_MATCHING_SUBSCRIBERS;
                    if !has_subscriber && reference.undeliverable(*now, number) {
                        disk.drop_notifications(number);
                    }
                    if *reason == ReasonCode::SUCCESS {
                        reference.delivered(*now, number);
                    }
                }
            }
            StoreInput::Hold(holds) => disk.holds = *holds && durability == Durability::All,
            StoreInput::Persist => _ = disk.persist(&mut store),
        }
        disk.settle(&mut store, durability, &about, expected);
        assert!(disk.numbers[before..].iter().all(|(number, _)| *number > 0));
        assert_eq!(counted(store.counters().iter()), reference.counters, "after {op:?}");
        assert_eq!(store.registrations(), reference.watches());
        assert_eq!(store.silenced_registrations(), reference.silenced());
        for client in CLIENTS.into_iter().chain(["mallory", ""]) {
            let usage = store.usage_of(Principal::verified(client));
            let ClientUsage { keys, bytes, registrations, registration_bytes, .. } = usage;
            let found = [keys, bytes, registrations, registration_bytes];
            assert_eq!(found, reference.held_by(client), "{client}");
        }
        last = *now;
    }
    disk.holds = false;
    disk.settle(&mut store, durability, &About::Nothing, Out::new());
    compare_contents(&store, &reference, last);
    if durability == Durability::All {
        // An expiry counts once it is recorded; until then it has not been notified.
        store.handle(last, Input::Timeout);
        disk.settle(&mut store, durability, &About::Nothing, reference.expire(last));
        let mut rebuilt = script.store(8);
        disk.records.iter().for_each(|record| rebuilt.restore(last, record));
        let contents = |store: &Store| -> BTreeMap<Vec<u8>, String> {
            // The expiry went by the wall clock, which may have stepped since.
            let stored = |stored: StoredEntry<'_>| {
                format!("{:?} {} {:?}", stored.value, stored.version, stored.fencing_token)
            };
            store.iter(last).map(|entry| (entry.key.to_vec(), stored(entry))).collect()
        };
        let (kept, known) = (contents(&rebuilt), contents(&store));
        let steps = script.ops.windows(2).any(|pair| {
            let wall = |now: &Now| now.unix.as_millis().wrapping_sub(now.instant.as_millis());
            wall(&pair[0].0) != wall(&pair[1].0)
        });
        assert!(steps || kept == known, "{kept:?}\n{known:?}");
    }
}

/// Submits a request; one that the store cannot receive is counted and dropped.
fn submit(now: Now, ask: &StoreRequest, store: &mut Store, reference: &mut ReferenceStore) -> Out {
    if store.can_receive() {
        ask.submit_to(now, store);
        return reference.ask(now, ask);
    }
    let handled = ask.submit_to(now, store);
    assert_eq!(handled.outcome, RequestOutcome::Dropped(DropReason::Overloaded));
    reference.count("overloaded", None, None, 1);
    Out::new()
}

/// Checks that the store holds what the reference store holds, without expired values.
///
/// # Panics
/// If the contents differ.
pub(crate) fn compare_contents(store: &Store, reference: &ReferenceStore, now: Now) {
    let stored: BTreeMap<Vec<u8>, Entry> = store
        .iter(now)
        .map(|stored| {
            let entry = Entry {
                value: stored.value.to_vec(),
                version: stamp(stored.version.hlc()),
                fence: stored.fencing_token.map(|token| stamp(token.hlc())),
                due: stored.expires.map(Instant::as_millis),
            };
            assert_eq!(text(&entry.version), stored.version.to_string());
            (stored.key.to_vec(), entry)
        })
        .collect();
    let alive = |entry: &Entry| entry.due.is_none_or(|due| due > now.instant.as_millis());
    let expected: BTreeMap<Vec<u8>, Entry> = reference
        .entries
        .iter()
        .filter(|(_, entry)| alive(entry))
        .map(|(key, entry)| (key.clone(), entry.clone()))
        .collect();
    assert_eq!(stored, expected);
}
