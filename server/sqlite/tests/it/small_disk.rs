//! A journal on a small disk: a file system in memory. Skipped without permission to mount.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use statestore_proto::store::Store;
use statestore_sqlite::SqliteJournal;
use statestore_tokio::service::{Commit, Journal as _};

use crate::support::{
    Dir, Parts, block_on, commit, contents, load, new_store, request, responses, restore, set,
};

const MIB: u64 = 1 << 20;

/// The default reserve of a service.
const RESERVE: u64 = 64 * MIB;

/// A mounted file system, unmounted on drop.
struct Disk {
    path: PathBuf,
    _dir: Dir,
}

impl Disk {
    /// Mounts a disk; `None` if this is not permitted.
    fn mount(test: &str, mib: u64) -> Option<Self> {
        let dir = Dir::new();
        let path = dir.path("disk");
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"]).arg(&path);
        if mount.output().is_ok_and(|output| output.status.success()) {
            return Some(Self { path, _dir: dir });
        }
        println!("{test}: skipped, a file system cannot be mounted here (run as root)");
        None
    }

    fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// Fills the disk with a file of another program until at most `bytes` are free. At the same
    /// time, the checkpoint thread of a journal can make its database longer.
    fn fill(&self, bytes: u64) {
        let free = || {
            let disk = rustix::fs::statvfs(&self.path).unwrap();
            disk.f_bavail * disk.f_frsize
        };
        let mut other = fs::File::create(self.path.join("other")).unwrap();
        while let Some(more) = free().checked_sub(bytes).filter(|more| *more > 0) {
            match other.write(&vec![0; usize::try_from(more.min(MIB)).unwrap()]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).output();
    }
}

/// Returns the length of a journal's write-ahead log.
fn log_bytes(journal: &Path) -> u64 {
    fs::metadata(journal.join("records.db-wal")).unwrap().len()
}

fn free_bytes(journal: &SqliteJournal) -> u64 {
    journal.free_bytes().unwrap()
}

/// Commits SETs until the free bytes are below the reserve. Returns the keys, which are the numbers
/// of their requests from `first` on.
fn fill_with_keys(journal: &mut SqliteJournal, store: &mut Store, first: u64) -> Range<u64> {
    for key in first..first + 10_000 {
        if free_bytes(journal) < RESERVE {
            return first..key;
        }
        commit(journal, set(store, key, &key.to_be_bytes(), &[b'v'; 20_000])).unwrap();
        responses(store);
    }
    panic!("200 MB fit on a small disk")
}

fn delete_keys(journal: &mut SqliteJournal, store: &mut Store, keys: Range<u64>) {
    for key in keys {
        let records = request(store, key + 1_000_000, &[b"DEL", &key.to_be_bytes()]);
        assert!(!records.is_empty(), "key {key} does not exist");
        commit(journal, records).unwrap();
        // A store whose output is full accepts no request.
        responses(store);
    }
}

/// Writes a snapshot, then commits without records while these free space.
fn compact(journal: &mut SqliteJournal, store: &Store) {
    let mut parts = Parts::new();
    while let Some(part) = parts.next(store, 64 << 10) {
        block_on(journal.commit(Commit { records: vec![], snapshot: Some(part) })).unwrap();
    }
    while journal.can_free_space() {
        commit(journal, vec![]).unwrap();
    }
}

#[test]
fn small_disk_has_space_for_sets_again_after_keys_are_deleted() {
    let test = "small_disk_has_space_for_sets_again_after_keys_are_deleted";
    let Some(disk) = Disk::mount(test, 110) else { return };
    let mut store = new_store();
    let mut journal = SqliteJournal::open(disk.journal()).unwrap();
    for round in 0..4 {
        let keys = fill_with_keys(&mut journal, &mut store, round * 10_000);
        assert!(keys.end - keys.start > 1_000, "keys {keys:?} in round {round}");
        delete_keys(&mut journal, &mut store, keys);
        compact(&mut journal, &store);
        let free = free_bytes(&journal);
        assert!(free >= RESERVE / 8 * 9, "{free} free bytes after the keys are deleted");
    }
    drop(journal);
    let mut journal = SqliteJournal::open(disk.journal()).unwrap();
    assert!(contents(&restore(&load(&mut journal).unwrap())) == contents(&store));
}

#[test]
fn log_on_a_small_disk_stays_below_an_eighth_of_it() {
    let Some(disk) = Disk::mount("log_on_a_small_disk_stays_below_an_eighth_of_it", 112) else {
        return;
    };
    let mut store = new_store();
    let mut journal = SqliteJournal::open(disk.journal()).unwrap();
    for round in 0..40_u64 {
        let records = (0..100).flat_map(|key| {
            let number = round * 100 + key;
            set(&mut store, number, &key.to_be_bytes(), &[b'v'; 16_000])
        });
        let records = records.collect();
        commit(&mut journal, records).unwrap();
        if round % 4 == 0 {
            compact(&mut journal, &store);
        }
        let log = log_bytes(&disk.journal());
        assert!(log <= 14 * MIB, "{log} bytes of log after round {round}");
    }
}

#[test]
fn log_from_a_larger_disk_is_truncated() {
    let dir = Dir::new();
    let mut store = new_store();
    let mut journal = SqliteJournal::open(dir.path("large")).unwrap();
    let long = (0..40).flat_map(|key: u64| {
        set(&mut store, key, &(key % 4).to_be_bytes(), &vec![b'v'; 1_000_000])
    });
    let long = long.collect();
    commit(&mut journal, long).unwrap();
    drop(journal);
    let log = log_bytes(&dir.path("large"));
    assert!(log > 38 << 20, "{log} bytes of log");
    let Some(disk) = Disk::mount("log_from_a_larger_disk_is_truncated", 160) else { return };
    crate::support::copy(&dir.path("large"), &disk.journal());

    let mut journal = SqliteJournal::open(disk.journal()).unwrap();
    load(&mut journal).unwrap();
    for number in 40..60 {
        commit(&mut journal, set(&mut store, number, b"key", b"v")).unwrap();
    }
    let log = log_bytes(&disk.journal());
    assert!(log <= 20 * MIB, "{log} bytes of log");
    drop(journal);
    let mut journal = SqliteJournal::open(disk.journal()).unwrap();
    assert!(contents(&restore(&load(&mut journal).unwrap())) == contents(&store));
}

#[test]
fn keys_can_be_deleted_while_other_programs_fill_the_disk() {
    let Some(disk) = Disk::mount("keys_can_be_deleted_while_other_programs_fill_the_disk", 110)
    else {
        return;
    };
    let mut store = new_store();
    let mut journal = SqliteJournal::open(disk.journal()).unwrap();
    let keys = fill_with_keys(&mut journal, &mut store, 0);
    disk.fill(4 * MIB);
    delete_keys(&mut journal, &mut store, keys);
    compact(&mut journal, &store);
    drop(journal);
    let mut journal = SqliteJournal::open(disk.journal()).unwrap();
    assert!(contents(&restore(&load(&mut journal).unwrap())) == contents(&store));
}

/// A store makes these commits on its own, and would end if one failed.
#[test]
fn commits_that_free_space_need_obsolete_rows_and_fit_on_a_full_disk() {
    let test = "commits_that_free_space_need_obsolete_rows_and_fit_on_a_full_disk";
    let Some(disk) = Disk::mount(test, 110) else { return };
    let mut store = new_store();
    let open = || SqliteJournal::open(disk.journal()).unwrap();
    let mut journal = open();
    assert!(!journal.can_free_space(), "an empty journal");
    for key in 0..1_000_u64 {
        commit(&mut journal, set(&mut store, key, &key.to_be_bytes(), &[b'v'; 20_000])).unwrap();
        responses(&mut store);
    }
    drop(journal);
    let mut journal = open();
    assert!(!journal.can_free_space(), "all rows are needed");
    delete_keys(&mut journal, &mut store, 0..1_000);
    let part = Parts::new().next(&store, usize::MAX);
    block_on(journal.commit(Commit { records: vec![], snapshot: part })).unwrap();
    assert!(journal.can_free_space(), "the snapshot has replaced rows");
    drop(journal);
    disk.fill(0);
    let mut journal = open();
    while journal.can_free_space() {
        commit(&mut journal, vec![]).unwrap();
    }
}

#[test]
fn commit_of_8_mib_fits_while_the_free_bytes_allow_it() {
    const COMMIT: usize = 8 << 20;
    for (reusable, left) in [(20, 0), (90, 0), (90, 1), (90, 16), (40, 60)] {
        let Some(disk) = Disk::mount("commit_of_8_mib_fits_while_the_free_bytes_allow_it", 200)
        else {
            return;
        };
        let mut store = new_store();
        let mut journal = SqliteJournal::open(disk.journal()).unwrap();
        let count = reusable * MIB / 20_000;
        for number in 0..count {
            let records = set(&mut store, number, &number.to_be_bytes(), &[b'v'; 20_000]);
            commit(&mut journal, records).unwrap();
        }
        delete_keys(&mut journal, &mut store, 0..count);
        compact(&mut journal, &store);
        disk.fill(left * MIB);
        let mut commits = 0;
        for number in 0..8 {
            commit(&mut journal, set(&mut store, 1 << 20 | number, b"key", b"v")).unwrap();
            // A commit needs its bytes in the log and in the database.
            if free_bytes(&journal) < 2 * COMMIT as u64 {
                break;
            }
            let value = vec![b'v'; COMMIT - 1_000];
            commit(&mut journal, set(&mut store, 1 << 21 | number, b"key", &value)).unwrap();
            commits += 1;
        }
        // With less left, it depends on the length of the log.
        assert!(left < 16 || commits > 0, "{reusable} MiB reusable, {left} MiB left");
    }
}
