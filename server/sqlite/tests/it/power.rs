//! Power cuts and disk errors while a process commits.
//!
//! After a power cut a disk contains everything that was synced. Each sector written after that has
//! its old or its new contents. The test traces the system calls of a real process, derives files
//! that a power cut could leave behind, and opens a journal from them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use statestore_proto::store::Record;
use statestore_sqlite::SqliteJournal;

use crate::support::{Dir, contents, load, restore};
use crate::trace::{self, Event};

const SECTOR: usize = 512;

/// Number of processes that are killed, and of simulated power cuts during each.
const RUNS: u64 = 10;
const CUTS: usize = 25;

/// A file: its synced contents and the changes that are not synced.
#[derive(Default)]
struct OnDisk {
    bytes: Vec<u8>,
    /// Unsynced changes in order, each with the number of its step.
    written: Vec<(usize, Change)>,
    /// Its name is synced.
    has_name: bool,
    /// Step at which the file was removed; until the next sync its name can reappear.
    removed: Option<usize>,
}

enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Resize(usize),
}

impl Change {
    /// Applies the change to a file, except for the sectors for which `is_done` returns false.
    fn apply(&self, file: &mut Vec<u8>, mut is_done: impl FnMut() -> bool) {
        match self {
            Self::Resize(length) => {
                if is_done() {
                    file.resize(*length, 0);
                }
            }
            Self::Write { offset, bytes } => {
                let mut at = *offset;
                let end = offset + bytes.len();
                while at < end {
                    let next = (at / SECTOR + 1) * SECTOR;
                    let next = next.min(end);
                    if is_done() {
                        file.resize(file.len().max(next), 0);
                        file[at..next].copy_from_slice(&bytes[at - offset..next - offset]);
                    }
                    at = next;
                }
            }
        }
    }
}

#[derive(Default)]
struct Disk {
    files: BTreeMap<PathBuf, OnDisk>,
    /// Step at which the current sync of each thread began.
    syncs: BTreeMap<u32, usize>,
    steps: usize,
}

impl Disk {
    fn follow(&mut self, event: &Event) {
        self.steps += 1;
        let step = self.steps;
        match event {
            Event::Open(path) => {
                let file = self.files.entry(path.clone()).or_default();
                // A file that is created again can still have its former name on the disk.
                if file.removed.is_some() {
                    *file = OnDisk { has_name: file.has_name, ..OnDisk::default() };
                }
            }
            Event::Remove(path) => self.files.get_mut(path).unwrap().removed = Some(step),
            Event::Write { path, offset, bytes } => {
                let change = Change::Write { offset: *offset, bytes: bytes.clone() };
                self.files.entry(path.clone()).or_default().written.push((step, change));
            }
            Event::Resize { path, length } => {
                let change = Change::Resize(*length);
                self.files.entry(path.clone()).or_default().written.push((step, change));
            }
            Event::SyncBegins { thread } => _ = self.syncs.insert(*thread, step),
            Event::SyncEnds { path, thread } => {
                let began = self.syncs.remove(thread).unwrap();
                if let Some(file) = self.files.get_mut(path) {
                    let safe = file.written.partition_point(|(at, _)| *at < began);
                    for (_, change) in file.written.drain(..safe) {
                        change.apply(&mut file.bytes, || true);
                    }
                    // Syncing a file also syncs its name.
                    file.has_name = true;
                } else {
                    // A sync of the directory.
                    self.files.retain(|_, file| file.removed.is_none_or(|at| at >= began));
                    self.files.values_mut().for_each(|file| file.has_name = true);
                }
            }
            Event::Printed(_) => {}
        }
    }

    /// Writes files that a power cut at this step could leave behind.
    fn cut(&self, rng: &mut Rng, to: &Path) {
        let _ = fs::remove_dir_all(to);
        fs::create_dir_all(to).unwrap();
        let chance = [0.0, 0.1, 0.5, 0.9, 1.0][rng.usize(..5)];
        for (path, file) in &self.files {
            let name = path.file_name().unwrap();
            let is_there = match file.removed {
                None => file.has_name || rng.f64() < chance,
                Some(_) => file.has_name && rng.f64() >= chance,
            };
            if name.to_str().unwrap().ends_with("-shm") || !is_there {
                continue;
            }
            let mut bytes = file.bytes.clone();
            for (_, change) in &file.written {
                change.apply(&mut bytes, || rng.f64() < chance);
            }
            fs::write(to.join(name), bytes).unwrap();
        }
    }
}

/// Returns the number of commits in a directory. Checks that each is complete and that none is
/// missing before the last.
fn commits(path: &Path) -> usize {
    let mut journal = SqliteJournal::open(path).unwrap();
    let store = restore(&load(&mut journal).unwrap());
    let contents = contents(&store);
    let entries = contents.iter().filter_map(|record| match record {
        Record::Put { key, value, .. } => Some((key, value)),
        _ => None,
    });
    let mut count = 0;
    for (number, (key, value)) in entries.enumerate() {
        assert_eq!(**key, *format!("key-{number:09}").as_bytes());
        assert!(**value == [b'v'; 3_000], "the value of {number}");
        count += 1;
    }
    count
}

/// Returns how many commits are acknowledged according to a printed line.
fn acknowledged_by(line: &str) -> Option<usize> {
    if let Some(found) = line.strip_prefix("found ") {
        return found.parse().ok();
    }
    Some(line.strip_prefix("committed key-")?.parse::<usize>().ok()? + 1)
}

#[test]
fn acknowledged_commits_survive_a_power_cut() {
    if !trace::is_available("acknowledged_commits_survive_a_power_cut") {
        return;
    }
    let dir = Dir::new();
    let (path, cut) = (dir.path("journal"), dir.path("cut"));
    let (mut disk, mut rng) = (Disk::default(), Rng::with_seed(11));
    let (mut acknowledged, mut cuts, mut lost) = (0, 0, 0);
    for run in 0..RUNS {
        // The first process creates the database.
        let calls = if run == 0 { 30 } else { rng.usize(2..60) };
        let call = ["fdatasync", "pwrite64"][rng.usize(..2)];
        let (_, events) =
            trace::run(&path, &dir.path("trace"), &format!("{call}:signal=SIGKILL:when={calls}"));
        let every = (events.len() / CUTS).max(1);
        for (number, event) in events.iter().enumerate() {
            disk.follow(event);
            let mut is_due = number % every == 0;
            if let Event::Printed(line) = event
                && let Some(number) = acknowledged_by(line)
            {
                (acknowledged, is_due) = (number, true);
            }
            if is_due {
                disk.cut(&mut rng, &cut);
                let found = commits(&cut);
                assert!(
                    (acknowledged..=acknowledged + 1).contains(&found),
                    "run {run}, step {number}: {acknowledged} commits acknowledged, {found} found"
                );
                cuts += 1;
                lost += usize::from(found == acknowledged);
            }
        }
    }
    assert!(
        acknowledged > 50 && cuts > 250 && lost > 50,
        "{acknowledged} commits, {cuts} cuts, {lost} without an unacknowledged commit"
    );
}

#[test]
fn acknowledged_commits_survive_disk_errors() {
    if !trace::is_available("acknowledged_commits_survive_disk_errors") {
        return;
    }
    let dir = Dir::new();
    let path = dir.path("journal");
    let (mut acknowledged, mut rng) = (0, Rng::with_seed(12));
    for round in 0..24 {
        let call = ["pwrite64", "fdatasync", "write"][round % 3];
        let error = ["EIO", "ENOSPC"][rng.usize(..2)];
        // Printed lines are writes too.
        let when = if call == "write" { rng.usize(12..30) } else { rng.usize(8..40) };
        let forever = ["", "+"][rng.usize(..2)];
        let inject = format!("{call}:error={error}:when={when}{forever}");
        let (printed, _) = trace::run(&path, &dir.path("trace"), &inject);
        let last = printed.iter().filter_map(|line| acknowledged_by(line)).next_back();
        acknowledged = last.unwrap_or(acknowledged);
        let found = commits(&path);
        assert!(
            (acknowledged..=acknowledged + 1).contains(&found),
            "{inject}: {acknowledged} commits acknowledged, {found} found"
        );
        acknowledged = found;
    }
    assert!(acknowledged > 50, "{acknowledged} commits");
}
