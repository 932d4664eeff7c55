//! Replies, registrations and versions after a restart, and snapshots in parts.

use std::time::Duration;

use statestore_models::machines::request::{Sent, StoreRequest};
use statestore_proto::limits::VERSION_RESERVATION;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Condition, Dialect};
use statestore_proto::store::{Durability, Record, SnapshotPosition, Store, StoreConfig};
use statestore_proto::time::{Instant, Now, UnixTime};

use super::durability::{all_records, contents, durable, leaves, records, started};
use super::{EPOCH, OK, Rig, del, set, set_if, stop, watch};

/// Restores a store from `disk`, redelivers a request and returns what the store sends.
fn redeliver(disk: &[Record], config: StoreConfig, unix: u64, request: &StoreRequest) -> Vec<Sent> {
    let mut store = Store::new(config);
    let now = Now::new(Instant::from_millis(0), UnixTime::from_millis(EPOCH + unix));
    disk.iter().for_each(|record| store.restore(now, record));
    request.submit_to(now, &mut store);
    if let Some(batch) = store.poll_records() {
        store.handle_persisted(batch.id);
    }
    Sent::drain(&mut store)
}

#[test]
fn duplicate_after_a_restart_gets_the_first_reply() {
    let mut rig = durable(Durability::All);
    let mut disk = Vec::new();
    let mut first = Vec::new();
    let lock = |value| set_if("lock", value, Condition::IfAbsent, 10_000);
    for command in [lock("a"), lock("b"), del("lock"), set("k", "1"), set("k", "2"), del("k")] {
        let request = rig.request("c", &command);
        let _ = rig.send(&request);
        let (id, records) = all_records(&mut rig);
        rig.store.handle_persisted(id);
        disk.extend(records);
        first.push((request, Sent::drain(&mut rig.store)));
    }
    let contents = |disk: &[Record]| contents(&started(disk, 0).0, started(disk, 0).1);
    // From a log and from its snapshot; with another seed, and at any wall time.
    let snapshot: Vec<Record> = rig.store.snapshot(rig.now()).collect();
    assert_eq!(contents(&disk), contents(&snapshot));
    for (unix, disk) in [(0, &disk), (0, &snapshot), (3_600_000, &disk)] {
        for (request, sent) in &first {
            let config = StoreConfig::new(8).durability(Durability::All);
            assert_eq!(&redeliver(disk, config, unix, request), sent);
        }
    }
    // The refused lock is not acquired although it is free now; a new request is not a duplicate.
    let (refused, sent) = &first[1];
    assert!(matches!(&sent[0], Sent::Reply { payload, .. } if payload == r":-1\r\n"));
    let mut fresh = refused.clone();
    fresh.correlation = Some(b"another".to_vec());
    let config = StoreConfig::new(8).durability(Durability::All);
    let sent = redeliver(&disk, config, 0, &fresh);
    assert!(matches!(&sent[0], Sent::Reply { payload, .. } if payload == OK), "{sent:?}");
}

#[test]
fn durability_requested_persists_replies_about_durable_keys_only() {
    let mut rig = durable(Durability::Requested);
    let mut answers = |command: &Command<&[u8]>, persist| {
        leaves(&mut rig, command, persist);
        let records = rig.store.poll_records().map_or(Vec::new(), |batch| batch.records);
        records.iter().filter(|record| matches!(record, Record::Response(_))).count()
    };
    assert_eq!(answers(&set("plain", "v"), false), 0);
    assert_eq!(answers(&del("plain"), false), 0);
    assert_eq!(answers(&set_if("kept", "v", Condition::IfAbsent, 9_000), true), 1);
    assert_eq!(answers(&set_if("kept", "w", Condition::IfAbsent, 9_000), false), 1, "refused");
    assert_eq!(answers(&set_if("kept", "w", Condition::IfAbsent, 9_000), true), 1);
    assert_eq!(answers(&del("kept"), false), 1);
    assert_eq!(answers(&del("kept"), false), 0);
}

#[test]
fn versions_of_non_durable_writes_are_not_reissued_after_a_restart() {
    let mut rig = durable(Durability::Requested);
    let mut disk = Vec::new();
    let mut stamp_max = 0;
    // Far apart, close together, and ahead of the clock by the timestamp of a client.
    for (millis, stamp) in [(0, 0), (1, 0), (9_999, 0), (10_000, 0), (10_001, 60_000), (10_002, 0)]
    {
        rig.millis = millis;
        let mut request = rig.request("c", &set("k", "v"));
        request.timestamp = Some(format!("{}:0:c", EPOCH + millis + stamp));
        let _ = rig.send(&request);
        if let Some(batch) = rig.store.poll_records() {
            rig.store.handle_persisted(batch.id);
            disk.extend(batch.records);
        }
        let issued = rig.store.get(rig.now(), b"k").unwrap().version;
        let (store, now) = started(&disk, 0);
        assert!(store.is_empty());
        let mut later = store;
        let mut request = rig.request("c", &set("k", "v"));
        request.timestamp = Some(format!("{EPOCH}:0:c"));
        request.submit_to(now, &mut later);
        let next = later.get(now, b"k").unwrap().version;
        assert!(next > issued, "{next} after {issued}");
        stamp_max = stamp.max(stamp_max);
        let clock = rig.now().unix + Duration::from_millis(stamp_max);
        let ahead = next.hlc().wall().duration_since(clock);
        assert!(ahead <= VERSION_RESERVATION + Duration::from_millis(1), "{ahead:?}");
    }
    assert_eq!(disk.len(), 3, "one in ten seconds, and one for the clock advance: {disk:?}");
}

/// A value recorded under *all* stays durable under *requested* until a non-durable change ends it.
#[test]
fn value_recorded_under_another_durability_does_not_reappear() {
    let mut rig = durable(Durability::All);
    for key in ["deleted", "replaced", "left"] {
        leaves(&mut rig, &set(key, "old"), false);
    }
    let (_, mut disk) = all_records(&mut rig);
    let mut rig = durable(Durability::Requested);
    disk.iter().for_each(|record| rig.store.restore(rig.now(), record));
    leaves(&mut rig, &del("deleted"), false);
    leaves(&mut rig, &set("replaced", "new"), false);
    let snapshot: Vec<Record> = rig.store.snapshot(rig.now()).collect();
    disk.extend(all_records(&mut rig).1);
    for disk in [disk, snapshot] {
        let (store, now) = started(&disk, 0);
        let keys: Vec<&[u8]> = store.iter(now).map(|entry| entry.key).collect();
        assert_eq!(keys, [b"left"]);
    }
}

#[test]
fn durable_keys_are_recorded_without_a_request_for_persistence() {
    let config = StoreConfig::new(7)
        .durability(Durability::Requested)
        .durable_keys(|key| key.starts_with(b"settings/"));
    let mut rig = Rig::with(config);
    leaves(&mut rig, &set("settings/a", "v"), false);
    leaves(&mut rig, &set("other", "v"), false);
    leaves(&mut rig, &set("asked", "v"), true);
    let (_, written) = records(&mut rig);
    let kept: Vec<&[u8]> = written.iter().filter_map(Record::key).collect();
    assert_eq!(kept, [&b"settings/a"[..], b"asked"]);
    assert!(rig.store.get(rig.now(), b"settings/a").unwrap().persist);
}

fn watching() -> StoreConfig {
    StoreConfig::new(7).durability(Durability::All).durable_registrations(true)
}

#[test]
fn durable_registrations_survive_a_restart() {
    let mut rig = Rig::with(watching());
    for client in ["a", "b", "c"] {
        rig.send_command(client, &watch("k"));
        rig.send_command(client, &watch("l"));
    }
    let (_, begun) = all_records(&mut rig);
    assert_eq!(
        begun.len(),
        6,
        "KEYNOTIFY is executed again, so its reply is not recorded: {begun:?}"
    );
    rig.send_command("a", &watch("k"));
    assert_eq!(rig.store.poll_records(), None, "a renewal needs no record");
    rig.send_command("a", &stop("k"));
    rig.store.handle(rig.now(), Input::ClientGone("b"));
    let (_, ended) = all_records(&mut rig);
    let ends = |record: &&Record| matches!(record, Record::Unregistered { .. });
    assert_eq!((ended.len(), ended.iter().filter(ends).count()), (4, 3));
    let disk: Vec<Record> = begun.iter().chain(&ended).cloned().collect();
    let snapshot: Vec<Record> = rig.store.snapshot(rig.now()).collect();
    for disk in [&disk, &snapshot] {
        let mut rig = Rig::with(watching());
        disk.iter().for_each(|record| rig.store.restore(rig.now(), record));
        assert_eq!((rig.store.registrations(), rig.store.poll_records()), (3, None));
        leaves(&mut rig, &set("k", "v"), false);
        leaves(&mut rig, &set("l", "v"), false);
        let (id, _) = all_records(&mut rig);
        rig.store.handle_persisted(id);
        let sent = Sent::drain(&mut rig.store);
        let sent = sent.iter().filter_map(|sent| match sent {
            Sent::Notification { client, .. } => Some(client.as_str()),
            _ => None,
        });
        assert_eq!(sent.collect::<Vec<_>>(), ["c", "a", "c"]);
    }
    assert_eq!(Rig::with(StoreConfig::new(7)).store.snapshot(rig.now()).count(), 1);
}

#[test]
fn redelivered_stop_after_a_restart_does_not_end_a_later_registration() {
    let mut rig = Rig::with(watching());
    let mut disk = Vec::new();
    let requests = [watch("k"), stop("k"), watch("k")].map(|command| rig.request("c", &command));
    for request in &requests {
        let _ = rig.send(request);
        disk.extend(all_records(&mut rig).1);
    }
    let mut rig = Rig::with(watching());
    disk.iter().for_each(|record| rig.store.restore(rig.now(), record));
    let _ = rig.send(&requests[1]);
    assert_eq!(rig.store.registrations(), 1);
    // A new STOP ends it.
    let request = rig.request("c", &stop("k"));
    let _ = rig.send(&request);
    assert_eq!(rig.store.registrations(), 0);
}

#[test]
fn snapshot_in_parts_with_concurrent_writes_restores_the_same_state() {
    for part_bytes in [0, 200, 1_000, usize::MAX] {
        let mut rig = Rig::with(watching());
        for number in 0..20 {
            leaves(&mut rig, &set(&format!("key{number:02}"), "old"), false);
            rig.send_command(&format!("client{number}"), &watch("key00"));
        }
        let _ = all_records(&mut rig);
        let (mut disk, mut log) = (Vec::new(), Vec::new());
        let mut position = Some(SnapshotPosition::default());
        let mut number = 0;
        while let Some(at) = position {
            let (part, next) = rig.store.snapshot_part(rig.now(), &at, part_bytes);
            disk.extend(part);
            position = next;
            // Keys before and after the position of the snapshot.
            for key in [number % 20, 19 - number % 20] {
                leaves(&mut rig, &set(&format!("key{key:02}"), "new"), false);
                leaves(&mut rig, &del(&format!("key{:02}", (key + 3) % 20)), false);
                rig.send_command(&format!("client{key}"), &stop("key00"));
                leaves(&mut rig, &set(&format!("more{number:02}"), "new"), false);
                rig.send_command("late", &watch(&format!("more{key}")));
                rig.send_command("client7", &watch("key00"));
                rig.send_command("client11", &watch("key00"));
            }
            number += 1;
            let (id, records) = all_records(&mut rig);
            rig.store.handle_persisted(id);
            let _ = Sent::drain(&mut rig.store);
            log.extend(records);
        }
        assert!(part_bytes > 1_000 || number > 3);
        disk.extend(log);
        let mut rebuilt = Rig::with(watching());
        disk.iter().for_each(|record| rebuilt.store.restore(rebuilt.now(), record));
        assert_eq!(contents(&rebuilt.store, rebuilt.now()), contents(&rig.store, rig.now()));
        assert_eq!(rebuilt.store.registrations(), rig.store.registrations());
        let answers = |store: &Store| -> Vec<String> {
            let answers = store.snapshot(rig.now()).filter_map(|record| match record {
                Record::Response(answered) => Some(format!("{:?}", answered.order)),
                _ => None,
            });
            answers.collect()
        };
        assert_eq!(answers(&rebuilt.store), answers(&rig.store), "{part_bytes}");
    }
}

#[test]
fn snapshot_ends_although_clients_renew_their_registrations_all_the_time() {
    const CLIENTS: usize = 20;
    let mut rig = Rig::with(watching());
    for number in 0..CLIENTS {
        rig.send_command(&format!("client{number}"), &watch("key"));
    }
    let (mut parts, mut registered) = (0, Vec::new());
    let mut position = Some(SnapshotPosition::default());
    while let Some(at) = position {
        let (part, next) = rig.store.snapshot_part(rig.now(), &at, 0);
        registered.extend(part.into_iter().filter_map(|record| match record {
            Record::Registered { client_id, .. } => Some(client_id.to_string()),
            _ => None,
        }));
        position = next;
        for number in 0..CLIENTS {
            rig.send_command(&format!("client{number}"), &watch("key"));
        }
        parts += 1;
        assert!(parts < 10 * CLIENTS, "the snapshot does not end");
    }
    let expected: Vec<_> = (0..CLIENTS).map(|number| format!("client{number}")).collect();
    assert_eq!(registered, expected, "each registration once, the oldest first");
}

#[test]
fn registration_whose_topic_is_too_long_is_not_restored() {
    let registered = |client_id: &str, order| Record::Registered {
        client_id: client_id.into(),
        key: (*b"k").into(),
        verified: false,
        dialect: Dialect::Deployed,
        wants_incarnation: false,
        order,
    };
    let mut store = Store::new(watching());
    let now = Now::default();
    store.restore(now, &registered(&"c".repeat(65_535), 1));
    store.restore(now, &registered("c", u64::MAX));
    assert_eq!(store.registrations(), 0);
    store.restore(now, &registered("c", 1));
    assert_eq!(store.registrations(), 1);
}
