//! A machine whose power goes, and a disk that fails, under a process that commits.
//!
//! After a power cut a disk has what was synced, and of what was written since any of its sectors, old or new. So each
//! system call of a real process is followed, and from the files as they could then be another journal is opened.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use statestore_proto::store::Record;
use statestore_sqlite::SqliteJournal;

use crate::support::{Dir, contents, load, restore};
use crate::trace::{self, Event};

const SECTOR: usize = 512;

/// A process is killed so often, and the machine could have stopped so often during each.
const RUNS: u64 = 10;
const CUTS: usize = 25;

/// A file on the disk, and what is on its way there.
#[derive(Default)]
struct OnDisk {
    bytes: Vec<u8>,
    /// In order, with the number of the step.
    written: Vec<(usize, Change)>,
    /// Whether its name is on the disk.
    has_name: bool,
    /// The step at which it was removed; the disk may have the name still.
    removed: Option<usize>,
}

enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Resize(usize),
}

impl Change {
    /// Does it to a file, or some of it.
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
    /// Which step began the sync that a thread waits for.
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
                // One that is made again keeps the name.
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
                    // What is written to a file and synced can be found again.
                    file.has_name = true;
                } else {
                    // The directory.
                    self.files.retain(|_, file| file.removed.is_none_or(|at| at >= began));
                    self.files.values_mut().for_each(|file| file.has_name = true);
                }
            }
            Event::Said(_) => {}
        }
    }

    /// What could be there after a power cut.
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

/// How many commits a directory has; each must be whole, and none may be missing before the last.
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

/// How many commits a process has told of.
fn told(line: &str) -> Option<usize> {
    if let Some(found) = line.strip_prefix("found ") {
        return found.parse().ok();
    }
    Some(line.strip_prefix("committed key-")?.parse::<usize>().ok()? + 1)
}

#[test]
fn what_was_answered_survives_a_power_cut() {
    if !trace::is_there("what_was_answered_survives_a_power_cut") {
        return;
    }
    let dir = Dir::new();
    let (path, cut) = (dir.path("journal"), dir.path("cut"));
    let (mut disk, mut rng) = (Disk::default(), Rng::with_seed(11));
    let (mut answered, mut cuts, mut lost) = (0, 0, 0);
    for run in 0..RUNS {
        // The first makes the database.
        let calls = if run == 0 { 30 } else { rng.usize(2..60) };
        let call = ["fdatasync", "pwrite64"][rng.usize(..2)];
        let (_, events) =
            trace::run(&path, &dir.path("trace"), &format!("{call}:signal=SIGKILL:when={calls}"));
        let every = (events.len() / CUTS).max(1);
        for (number, event) in events.iter().enumerate() {
            disk.follow(event);
            let mut is_due = number % every == 0;
            if let Event::Said(line) = event
                && let Some(number) = told(line)
            {
                (answered, is_due) = (number, true);
            }
            if is_due {
                disk.cut(&mut rng, &cut);
                let found = commits(&cut);
                assert!(
                    (answered..=answered + 1).contains(&found),
                    "{answered} commits were answered and {found} are there, in run {run} after step {number}"
                );
                cuts += 1;
                lost += usize::from(found == answered);
            }
        }
    }
    assert!(answered > 50 && cuts > 250 && lost > 50, "{answered} commits, {cuts} cuts, {lost}");
}

#[test]
fn what_was_answered_survives_a_disk_that_fails() {
    if !trace::is_there("what_was_answered_survives_a_disk_that_fails") {
        return;
    }
    let dir = Dir::new();
    let path = dir.path("journal");
    let (mut answered, mut rng) = (0, Rng::with_seed(12));
    for round in 0..24 {
        let call = ["pwrite64", "fdatasync", "write"][round % 3];
        let error = ["EIO", "ENOSPC"][rng.usize(..2)];
        // A line that it says is a write too.
        let when = if call == "write" { rng.usize(12..30) } else { rng.usize(8..40) };
        let forever = ["", "+"][rng.usize(..2)];
        let inject = format!("{call}:error={error}:when={when}{forever}");
        let (said, _) = trace::run(&path, &dir.path("trace"), &inject);
        answered = said.iter().filter_map(|line| told(line)).next_back().unwrap_or(answered);
        let found = commits(&path);
        assert!(
            (answered..=answered + 1).contains(&found),
            "{answered} commits were answered and {found} are there after {inject}"
        );
        answered = found;
    }
    assert!(answered > 50, "{answered} commits");
}
