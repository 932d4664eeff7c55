//! Output that depends on a write waits until the write is durable; durable writes are restored.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use statestore_models::machines::request::Sent;
use statestore_proto::hlc::Version;
use statestore_proto::limits::StoreLimits;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Condition, Scan};
use statestore_proto::store::{BatchId, Durability, Record, Store, StoreConfig, encode_records};
use statestore_proto::time::{Instant, Now, UnixTime};

use super::{EPOCH, OK, Rig, del, get, set, set_if, version, watch};

pub(super) fn durable(durability: Durability) -> Rig {
    Rig::with(StoreConfig::new(7).durability(durability))
}

/// Sends a request and returns how many packets may leave at once.
pub(super) fn leaves(rig: &mut Rig, command: &Command<&[u8]>, persist: bool) -> usize {
    let mut request = rig.request("c", command);
    request.persist = persist;
    rig.send(&request).len()
}

/// All records since the last call, except those of responses.
pub(super) fn records(rig: &mut Rig) -> (BatchId, Vec<Record>) {
    let (id, mut records) = all_records(rig);
    records.retain(|record| !matches!(record, Record::Response(_)));
    (id, records)
}

pub(super) fn all_records(rig: &mut Rig) -> (BatchId, Vec<Record>) {
    let batch = rig.store.poll_records().unwrap();
    (batch.id, batch.records)
}

#[test]
fn durability_none_writes_no_records() {
    let mut rig = Rig::new();
    assert_eq!(leaves(&mut rig, &set("k", "v"), true), 2);
    assert_eq!(rig.store.poll_records(), None);
}

#[test]
fn output_waits_for_the_write_it_reveals_and_for_no_other() {
    let mut rig = durable(Durability::All);
    assert_eq!(leaves(&mut rig, &get("k"), false), 2);
    assert_eq!(leaves(&mut rig, &set("k", "v"), false), 0);
    assert_eq!(leaves(&mut rig, &get("k"), false), 0, "the reply reveals the write");
    assert_eq!(leaves(&mut rig, &get("other"), false), 1, "acknowledgements stay in order");
    let scan = Scan { pattern: b"*".as_slice(), token: None }.encode();
    let mut request = rig.request("c", &get("k"));
    request.payload = scan.into();
    assert_eq!(rig.send(&request), [], "a page may reveal the write");
    let (id, written) = records(&mut rig);
    assert_eq!((written.len(), rig.store.poll_records()), (1, None));
    assert_eq!(leaves(&mut rig, &get("k"), false), 0);
    rig.store.handle_persisted(id);
    let acknowledged = |sent: &Sent| match sent {
        Sent::Acknowledge(number) => Some(*number),
        _ => None,
    };
    let sent = Sent::drain(&mut rig.store);
    let order: Vec<u64> = sent.iter().filter_map(acknowledged).collect();
    assert_eq!((sent.len(), order.len()), (9, 5));
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn read_waits_for_the_write_of_its_key_only() {
    let mut rig = durable(Durability::All);
    leaves(&mut rig, &set("k", "v"), false);
    let (first, _) = records(&mut rig);
    leaves(&mut rig, &set("other", "v"), false);
    let (second, _) = records(&mut rig);
    assert_eq!(leaves(&mut rig, &get("k"), false), 0);
    rig.store.handle_persisted(first);
    let sent = Sent::drain(&mut rig.store);
    let replies = sent.iter().filter(|sent| matches!(sent, Sent::Reply { .. })).count();
    assert_eq!((replies, sent.len()), (2, 3), "its acknowledgement follows the second write");
    rig.store.handle_persisted(second);
    assert_eq!(Sent::drain(&mut rig.store).len(), 3);
}

#[test]
fn batch_limit_splits_between_requests_only() {
    let mut rig = durable(Durability::All);
    for key in ["a", "b", "c"] {
        leaves(&mut rig, &set(key, "v"), false);
    }
    for (count, expected) in [(0, 2), (4, 4)] {
        let batch = rig.store.poll_records_within(count).unwrap();
        assert_eq!(batch.records.len(), expected);
        rig.store.handle_persisted(batch.id);
        assert_eq!(Sent::drain(&mut rig.store).len(), expected);
    }
    assert_eq!(rig.store.poll_records_within(4), None);
}

#[test]
fn duplicate_of_a_write_not_yet_durable_waits_too() {
    let mut rig = durable(Durability::All);
    let request = rig.request("c", &set("k", "v"));
    assert_eq!(rig.send(&request), []);
    assert_eq!(rig.send(&request), []);
    let (id, written) = records(&mut rig);
    assert_eq!((written.len(), rig.send(&request).len()), (1, 0));
    rig.store.handle_persisted(id);
    let replies = Sent::drain(&mut rig.store);
    assert_eq!(replies.len(), 6);
    assert_eq!(replies[0], replies[4]);
}

#[test]
fn persisted_batch_releases_only_the_output_that_waits_for_it() {
    let mut rig = durable(Durability::All);
    leaves(&mut rig, &set("a", "v"), false);
    let (first, _) = records(&mut rig);
    leaves(&mut rig, &set("b", "v"), false);
    leaves(&mut rig, &set("c", "v"), false);
    let (second, together) = records(&mut rig);
    leaves(&mut rig, &set("d", "v"), false);
    assert_eq!(together.len(), 2);
    rig.store.handle_persisted(first);
    assert_eq!(Sent::drain(&mut rig.store).len(), 2);
    rig.store.handle_persisted(second);
    assert_eq!(Sent::drain(&mut rig.store).len(), 4);
    rig.store.handle_persisted(second);
    assert_eq!(Sent::drain(&mut rig.store).len(), 0, "the last write is not in a batch yet");
    let (third, _) = records(&mut rig);
    rig.store.handle_persisted(third);
    assert_eq!(Sent::drain(&mut rig.store).len(), 2);
}

#[test]
fn persisted_batch_covers_all_earlier_batches() {
    let mut rig = durable(Durability::All);
    leaves(&mut rig, &set("a", "v"), false);
    let _ = records(&mut rig);
    leaves(&mut rig, &set("b", "v"), false);
    let (second, _) = records(&mut rig);
    rig.store.handle_persisted(second);
    assert_eq!(Sent::drain(&mut rig.store).len(), 4);
}

#[test]
fn delete_notification_of_an_expiry_waits_for_its_record() {
    let mut rig = durable(Durability::All);
    rig.send_command("w", &watch("k"));
    leaves(&mut rig, &set_if("k", "v", Condition::Always, 100), false);
    let (id, _) = records(&mut rig);
    rig.store.handle_persisted(id);
    let _ = Sent::drain(&mut rig.store);
    rig.millis = 100;
    assert_eq!(rig.timer(), []);
    let (id, written) = records(&mut rig);
    assert!(matches!(&written[..], [Record::Removed { .. }]));
    rig.store.handle_persisted(id);
    assert_eq!(Sent::drain(&mut rig.store).len(), 1);
}

impl Rig {
    pub(super) fn send_command(&mut self, client: &str, command: &Command<&[u8]>) {
        let request = self.request(client, command);
        let _ = self.send(&request);
    }
}

#[test]
fn durability_requested_records_only_writes_that_request_persistence() {
    let mut rig = durable(Durability::Requested);
    assert_eq!(
        leaves(&mut rig, &set("plain", "v"), false),
        0,
        "a range of versions is reserved first"
    );
    let (id, written) = records(&mut rig);
    assert!(matches!(&written[..], [Record::Issued { .. }]));
    rig.store.handle_persisted(id);
    assert_eq!(Sent::drain(&mut rig.store).len(), 2);
    assert_eq!(leaves(&mut rig, &set("plain", "v"), false), 2);
    assert_eq!(rig.store.poll_records(), None);
    assert_eq!(leaves(&mut rig, &set("kept", "v"), true), 0);
    let (id, written) = records(&mut rig);
    assert!(matches!(&written[0], Record::Put { persist: true, .. }));
    rig.store.handle_persisted(id);
    let _ = Sent::drain(&mut rig.store);
    assert_eq!(
        leaves(&mut rig, &set("kept", "w"), false),
        0,
        "the persisted value must not reappear"
    );
    let (id, written) = records(&mut rig);
    assert!(matches!(&written[0], Record::Removed { .. }));
    rig.store.handle_persisted(id);
    let _ = Sent::drain(&mut rig.store);
    assert_eq!(leaves(&mut rig, &del("kept"), false), 2);
    leaves(&mut rig, &set("kept", "v"), true);
    leaves(&mut rig, &del("kept"), false);
    assert_eq!(records(&mut rig).1.len(), 2);
}

#[test]
fn write_without_a_record_waits_for_the_reservation_of_its_version() {
    let mut rig = durable(Durability::Requested);
    assert_eq!(leaves(&mut rig, &set("a", "v"), false), 0);
    assert_eq!(leaves(&mut rig, &set("b", "v"), false), 0, "before the record is handed out");
    let (id, written) = records(&mut rig);
    assert!(matches!(&written[..], [Record::Issued { .. }]));
    assert_eq!(leaves(&mut rig, &set("c", "v"), false), 0, "while the record is persisted");
    assert_eq!(leaves(&mut rig, &get("d"), false), 1, "a response about another key does not wait");
    rig.store.handle_persisted(id);
    // Three responses and four acknowledgements.
    assert_eq!(Sent::drain(&mut rig.store).len(), 7);
    assert_eq!(leaves(&mut rig, &set("c", "w"), false), 2);
    assert_eq!(rig.store.poll_records(), None);
}

fn restored(records: &[Record], millis: u64) -> Rig {
    let mut rig = durable(Durability::All);
    rig.millis = millis;
    for record in records {
        rig.store.restore(rig.now(), record);
    }
    rig
}

#[test]
fn store_is_rebuilt_from_its_records() {
    let mut rig = durable(Durability::All);
    rig.millis = 1_000;
    let mut fenced = rig.request("c", &set("fenced", "v"));
    fenced.token = Some("5:0:lock".into());
    let _ = rig.send(&fenced);
    for command in [
        set("gone", "v"),
        del("gone"),
        set("twice", "1"),
        set("twice", "2"),
        set_if("leased", "v", Condition::Always, 500),
        set_if("short", "v", Condition::Always, 50),
    ] {
        leaves(&mut rig, &command, false);
    }
    let (_, written) = records(&mut rig);

    // Another machine with another monotonic clock: wall time decides how much of a lease is left.
    let mut rebuilt = restored(&written, 1_100);
    let contents: Vec<String> = rebuilt
        .store
        .iter(rebuilt.now())
        .map(|stored| {
            let (key, value) = (stored.key.escape_ascii(), stored.value.escape_ascii());
            format!(
                "{key}={value} {} {:?} {:?}",
                stored.version,
                stored.fencing_token.map(ToString::to_string),
                stored.expires
            )
        })
        .collect();
    let due = Instant::from_millis(1_500);
    assert_eq!(
        contents,
        [
            format!("fenced=v {} Some(\"5:0:lock\") None", version(1_000, 1)),
            format!("twice=2 {} None None", version(1_000, 4)),
            format!("leased=v {} None Some({due:?})", version(1_000, 5)),
        ]
    );
    assert_eq!(rebuilt.store.poll_records(), None, "restored values are not recorded again");
    assert_eq!(rebuilt.store.poll_timeout(), Some(Instant::from_millis(1_100)));
    assert_eq!(rebuilt.timer(), []);
    let (id, written) = records(&mut rebuilt);
    rebuilt.store.handle_persisted(id);
    assert!(matches!(&written[..], [Record::Removed { key, .. }] if **key == *b"short"));
    assert_eq!((rebuilt.store.len(), rebuilt.store.poll_timeout()), (3, Some(due)));
    let request = rebuilt.request("c", &set("fenced", "w"));
    assert_eq!(rebuilt.send(&request), [], "a refusal is cached durably too");
    let (id, _) = all_records(&mut rebuilt);
    rebuilt.store.handle_persisted(id);
    let sent = Sent::drain(&mut rebuilt.store);
    let [Sent::Reply { payload, .. }, Sent::Acknowledge(_)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(payload, r"-ERR a fencing token is required for this request\r\n");
}

#[test]
fn versions_keep_increasing_after_a_restart_with_a_clock_behind() {
    let mut rig = durable(Durability::All);
    rig.millis = 30_000;
    leaves(&mut rig, &set("k", "v"), false);
    leaves(&mut rig, &del("k"), false);
    let (_, written) = records(&mut rig);
    let mut rebuilt = Store::new(StoreConfig::new(7));
    let behind = Now::new(Instant::from_millis(0), UnixTime::from_millis(EPOCH));
    written.iter().for_each(|record| rebuilt.restore(behind, record));
    let mut request = rig.request("c", &set("k", "v"));
    request.timestamp = Some(format!("{EPOCH}:0:c"));
    request.submit_to(behind, &mut rebuilt);
    let sent = Sent::drain(&mut rebuilt);
    let Some(Sent::Reply { payload, version: issued, .. }) = sent.first() else {
        panic!("{sent:?}")
    };
    assert_eq!((payload.as_str(), issued.as_ref()), (OK, Some(&version(30_000, 2))));
}

/// Starts a store from its records, with the wall clock set `unix` milliseconds after the epoch.
pub(super) fn started(disk: &[Record], unix: u64) -> (Store, Now) {
    let mut store = Store::new(StoreConfig::new(8).durability(Durability::All));
    let now = Now::new(Instant::from_millis(0), UnixTime::from_millis(EPOCH + unix));
    disk.iter().for_each(|record| store.restore(now, record));
    (store, now)
}

#[test]
fn expired_value_stays_expired_if_the_wall_clock_is_set_back_later() {
    let mut rig = durable(Durability::All);
    leaves(&mut rig, &set_if("k", "v", Condition::Always, 10_000), false);
    let (_, mut disk) = records(&mut rig);
    let (mut second, now) = started(&disk, 20_000);
    assert!(second.get(now, b"k").is_none());
    second.handle(now, Input::Timeout);
    disk.extend(second.poll_records().unwrap().records);
    let (third, now) = started(&disk, 5_000);
    assert!(third.get(now, b"k").is_none(), "the wall clock was set right, 15 s earlier");
}

#[test]
fn replaced_value_is_not_removed_by_the_expiry_of_its_predecessor() {
    let mut rig = durable(Durability::All);
    leaves(&mut rig, &set_if("k", "v", Condition::Always, 10_000), false);
    leaves(&mut rig, &set("k", "for good"), false);
    let (_, disk) = records(&mut rig);
    let (mut second, now) = started(&disk, 20_000);
    second.handle(now, Input::Timeout);
    assert_eq!(second.poll_records(), None);
    assert_eq!(second.get(now, b"k").unwrap().value, b"for good");
}

/// The wall clock steps by a minute while a lease runs, then the store restarts a second later.
#[test]
fn forward_step_of_the_wall_clock_does_not_shorten_a_lease() {
    for condition in [Condition::IfAbsent, Condition::IfAbsentOrEqual] {
        let mut rig = durable(Durability::All);
        leaves(&mut rig, &set_if("lock", "a", condition, 10_000), false);
        let (_, disk) = records(&mut rig);
        let (second, now) = started(&disk, 61_000);
        let due = second.get(now, b"lock").unwrap().expires;
        assert_eq!(due, Some(Instant::from_millis(10_000)), "exactly the full lease");
    }
}

#[test]
fn backward_step_of_the_wall_clock_does_not_extend_an_expiry() {
    let mut rig = durable(Durability::All);
    rig.millis = 100_000;
    leaves(&mut rig, &set_if("k", "v", Condition::Always, 10_000), false);
    let (_, disk) = records(&mut rig);
    let (second, now) = started(&disk, 1_000);
    let due = second.get(now, b"k").unwrap().expires;
    assert_eq!(due, Some(Instant::from_millis(10_000)));
}

/// Contents of a store in a form that can be compared.
pub(super) fn contents(store: &Store, now: Now) -> Vec<String> {
    let mut all: Vec<String> = store.iter(now).map(|stored| format!("{stored:?}")).collect();
    all.sort();
    all
}

#[test]
fn snapshot_replaces_all_earlier_records() {
    let mut rig = durable(Durability::All);
    let mut fenced = rig.request("c", &set("fenced", "v"));
    fenced.token = Some("5:0:lock".into());
    let _ = rig.send(&fenced);
    for (command, persist) in [
        (set("twice", "1"), false),
        (set("twice", "2"), true),
        (set_if("short", "v", Condition::Always, 50), false),
        (set_if("lock", "a", Condition::IfAbsent, 10_000), false),
        (set_if("value", "v", Condition::Always, 10_000), false),
        (set("gone", "v"), false),
        (del("gone"), false),
    ] {
        leaves(&mut rig, &command, persist);
    }
    let (_, log) = all_records(&mut rig);
    rig.millis = 4_000;
    let snapshot: Vec<Record> = rig.store.snapshot(rig.now()).collect();
    let answers = |records: &[Record]| {
        records.iter().filter(|record| matches!(record, Record::Response(_))).count()
    };
    assert_eq!((answers(&log), answers(&snapshot)), (8, 8));
    assert_eq!((log.len() - 8, snapshot.len() - 8), (8, 5), "one per value, one for the clock");

    // Both restore the same values. The log restarts a lease in full, the snapshot what was left of
    // it.
    let (from_log, now) = started(&log, 4_000);
    let (from_snapshot, _) = started(&snapshot, 4_000);
    let due = |store: &Store, key: &[u8]| store.get(now, key).unwrap().expires.unwrap();
    assert_eq!(due(&from_log, b"lock"), Instant::from_millis(10_000));
    assert_eq!(due(&from_snapshot, b"lock"), Instant::from_millis(6_000));
    assert_eq!(due(&from_snapshot, b"value"), due(&from_log, b"value"));
    let without_lock = |store| {
        contents(store, now)
            .into_iter()
            .filter(|entry| !entry.contains("lock\""))
            .collect::<Vec<_>>()
    };
    assert_eq!(without_lock(&from_snapshot), without_lock(&from_log));
    let again: Vec<Record> = from_snapshot.snapshot(now).collect();
    let restored = started(&again, 4_000).0;
    assert_eq!(contents(&restored, now), contents(&from_snapshot, now));

    // A minute later the value has expired. The lease has not, whatever the wall clock shows.
    let (late, now) = started(&snapshot, 64_000);
    assert!(late.get(now, b"value").is_none());
    let lock = late.get(now, b"lock").unwrap();
    assert_eq!((lock.expires, lock.is_lease), (Some(Instant::from_millis(6_000)), true));
}

#[test]
fn snapshot_preserves_the_last_issued_version_of_deleted_keys() {
    let mut rig = durable(Durability::All);
    rig.millis = 30_000;
    leaves(&mut rig, &set("k", "v"), false);
    leaves(&mut rig, &del("k"), false);
    let snapshot: Vec<Record> = rig.store.snapshot(rig.now()).collect();
    let [Record::Issued { version: last }, Record::Response(_), Record::Response(_)] =
        &snapshot[..]
    else {
        panic!("{snapshot:?}")
    };
    assert_eq!(last.to_string(), version(30_000, 1));
    let (mut later, now) = started(&snapshot, 0);
    let mut request = rig.request("c", &set("k", "v"));
    request.timestamp = Some(format!("{EPOCH}:0:c"));
    request.submit_to(now, &mut later);
    let (_, written) = later.poll_records().map(|batch| (batch.id, batch.records)).unwrap();
    let Record::Put { version: issued, .. } = &written[0] else { panic!("{written:?}") };
    assert_eq!(issued.to_string(), version(30_000, 2));
}

/// With equal time and counter the node id decides; a restored version may be the greater one.
#[test]
fn snapshot_contains_values_written_by_another_node() {
    for node in ["A", "zzz"] {
        let version = Version::new(format!("{EPOCH}:7:{node}").parse().unwrap());
        let put = Record::Put {
            key: Box::from(*b"k"),
            value: Box::from(*b"v"),
            version,
            fencing_token: None,
            expires: None,
            persist: true,
        };
        let (store, now) = started(std::slice::from_ref(&put), 0);
        assert!(store.snapshot(now).any(|record| record == put), "{node}");
    }
}

#[test]
fn snapshot_contains_only_durable_values() {
    let mut rig = durable(Durability::Requested);
    leaves(&mut rig, &set("plain", "v"), false);
    leaves(&mut rig, &set("kept", "v"), true);
    let keys = |store: &Store, now| {
        let keys = store.snapshot(now).filter_map(|record| record.key().map(<[u8]>::to_vec));
        keys.collect::<Vec<_>>()
    };
    assert_eq!(keys(&rig.store, rig.now()), [b"kept"]);
    let mut rig = durable(Durability::None);
    leaves(&mut rig, &set("plain", "v"), false);
    assert_eq!(
        keys(&rig.store, rig.now()).len(),
        1,
        "without records, everything is in the snapshot"
    );
}

/// A counter so great that it uses the bit that marks a lease, from a store with the same node id.
#[test]
fn restored_version_with_a_great_counter_is_not_a_lease() {
    let great = format!("{EPOCH}:{}:StateStore", 1_u64 << 31);
    let version = Version::new(great.parse().unwrap());
    let record = Record::Put {
        key: Box::from(*b"k"),
        value: Box::from(*b"v"),
        version: version.clone(),
        fencing_token: None,
        expires: None,
        persist: false,
    };
    let (store, now) = started(&[record], 0);
    let stored = store.get(now, b"k").unwrap();
    assert_eq!((stored.version, stored.is_lease), (version, false));
}

proptest! {
    /// The records of a snapshot, and those that remove all keys, are compared with both estimates.
    #[test]
    fn records_need_no_more_bytes_than_the_store_reports(
        durability in select(vec![Durability::None, Durability::Requested, Durability::All]),
        steps in vec((0..6_u8, 1..6_usize, 0..4_usize, any::<bool>()), 0..100),
    ) {
        let config = StoreConfig::new(7).durability(durability).durable_registrations(true);
        let mut rig = Rig::with(config);
        let long_node = "n".repeat(256);
        // Versions of another node, and with as many digits as possible.
        for key in ["k", "kk", "another"] {
            let version = format!("{EPOCH}:{}:{long_node}", u64::MAX >> 1);
            rig.store.restore(rig.now(), &Record::Put {
                key: key.as_bytes().into(),
                value: Box::default(),
                version: Version::new(version.parse().unwrap()),
                fencing_token: None,
                expires: None,
                persist: true,
            });
        }
        for (kind, key_len, value_len, persist) in steps {
            let (key, value) = ("k".repeat(key_len), "v".repeat(value_len));
            let mut request = rig.request("c", &match kind {
                0 => del(&key),
                1 => watch(&key),
                2 | 3 => set_if(&key, &value, Condition::Always, 50),
                _ => set(&key, &value),
            });
            request.persist = persist;
            if matches!(kind, 3 | 4) {
                request.token = Some(format!("{EPOCH:015}:00000:{long_node}"));
            }
            rig.send(&request);
            rig.millis += 10;
            rig.store.handle(rig.now(), Input::Timeout);
            let _ = rig.store.poll_records();

            let snapshot: Vec<Record> = rig.store.snapshot(rig.now()).collect();
            let bytes = encode_records(&snapshot).len();
            prop_assert!(bytes <= rig.store.snapshot_bytes() + 64, "snapshot of {bytes} bytes");

            let removals = snapshot.into_iter().filter_map(|record| match record {
                Record::Put { key, version, .. } if durability != Durability::None => {
                    Some(Record::Removed { key, version })
                }
                Record::Registered { client_id, key, .. } => {
                    Some(Record::Unregistered { client_id, key })
                }
                _ => None,
            });
            let removals: Vec<Record> = removals.collect();
            // One by one, since records in one batch share node ids. A batch has nine bytes more.
            let bytes: usize =
                removals.iter().map(|record| encode_records([record]).len() - 9).sum();
            let reserved = rig.store.removal_bytes();
            prop_assert!(bytes <= reserved, "removals of {bytes} bytes, {reserved} reserved");
            let most = bytes + removals.len() * 50;
            prop_assert!(reserved <= most, "{reserved} bytes reserved for {bytes}");
        }
    }
}

/// Bytes are counted, so registrations that end together need not be in one batch.
#[test]
fn registrations_of_a_client_that_is_gone_end_in_batches_within_the_limit() {
    let limits = StoreLimits { record_bytes_max: 10_000, ..StoreLimits::default() };
    let config = StoreConfig::new(7).limits(limits).durability(Durability::All);
    let mut rig = Rig::with(config.durable_registrations(true));
    for at in 0..20 {
        let request = rig.request("c", &watch(&format!("{at:03000}")));
        rig.send(&request);
        let batch = rig.store.poll_records().unwrap();
        rig.store.handle_persisted(batch.id);
    }
    rig.store.handle(rig.now(), Input::ClientGone("c"));
    let mut ended = Vec::new();
    while let Some(batch) = rig.store.poll_records() {
        assert_eq!(batch.bytes, batch.records.len() * 3_001);
        ended.push(batch.records.len());
    }
    assert_eq!(ended, [3, 3, 3, 3, 3, 3, 2]);
    assert_eq!(rig.store.waiting_record_bytes(), 0);
}
