//! The journal of a store: the records that survive a crash.

use std::time::Duration;

use statestore_proto::hlc::{Hlc, NodeIdRef, Version};
use statestore_proto::store::{BatchId, Record, SnapshotPosition, Store};
use statestore_proto::time::{Instant, Now, UnixTime};

use super::{DriverBug, DriverConfig};

/// A journal with slow writes and snapshots.
#[derive(Debug)]
pub(super) struct Journal {
    rng: fastrand::Rng,
    driver: DriverConfig,
    /// All records that ever became durable.
    history: Vec<Record>,
    /// The last complete snapshot; the log has the records since it was begun.
    snapshot: Vec<Record>,
    log: Vec<Record>,
    making: Option<Making>,
    /// Set if the last commit may have left records behind.
    was_small: bool,
    /// The commit in progress, and when it becomes durable.
    commit: Option<(Instant, Commit)>,
}

/// A snapshot in progress.
#[derive(Debug)]
struct Making {
    /// Start of the next part; `None` after the last part.
    position: Option<SnapshotPosition>,
    /// The durable parts.
    records: Vec<Record>,
    /// Number of log records that it replaces.
    log: usize,
}

#[derive(Debug)]
struct Commit {
    id: Option<BatchId>,
    records: Vec<Record>,
    part: Option<Vec<Record>>,
}

impl Journal {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            driver: DriverConfig::default(),
            history: Vec::new(),
            snapshot: Vec::new(),
            log: Vec::new(),
            making: None,
            was_small: false,
            commit: None,
        }
    }

    pub(super) const fn set_driver_config(&mut self, driver: DriverConfig) {
        self.driver = driver;
    }

    /// Returns all records that ever became durable, in order.
    pub(super) fn history(&self) -> &[Record] {
        &self.history
    }

    /// Returns the records that the next store restores.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.snapshot.iter().chain(&self.log)
    }

    /// Returns when the commit in progress becomes durable.
    pub(super) const fn due(&self) -> Option<Instant> {
        match &self.commit {
            Some((at, _)) => Some(*at),
            None => None,
        }
    }

    /// Completes the commit that is due and begins the next one. Returns whether there was anything
    /// to do.
    pub(super) fn drive(&mut self, now: Now, store: &mut Store) -> bool {
        let mut busy = false;
        loop {
            if let Some((_, commit)) = self.commit.take_if(|(at, _)| *at <= now.instant) {
                let id = commit.id;
                self.apply(commit);
                id.into_iter().for_each(|id| store.handle_persisted(id));
                busy = true;
            }
            if self.commit.is_some() {
                return busy;
            }
            let Some(commit) = self.next(now, store) else { return busy };
            if self.driver.bug == Some(DriverBug::RepliesBeforeDurable) {
                commit.id.into_iter().for_each(|id| store.handle_persisted(id));
            }
            let millis = u64::try_from(self.driver.persist_max.as_millis()).unwrap_or(u64::MAX);
            // No random number if the time is fixed.
            let millis = if millis == 0 { 0 } else { self.rng.u64(0..=millis) };
            self.commit = Some((now.instant + Duration::from_millis(millis), commit));
            busy = true;
        }
    }

    /// Returns the next commit.
    fn next(&mut self, now: Now, store: &mut Store) -> Option<Commit> {
        let every = self.driver.snapshot_every;
        if every > 0 && self.making.is_none() && self.log.len() >= every {
            let position = Some(SnapshotPosition::default());
            self.making = Some(Making { position, records: Vec::new(), log: self.log.len() });
        }
        // Sometimes a small transaction, but not twice in a row: see `Scenario::transit_max`.
        let whole = every == 0 || self.rng.bool() || self.was_small;
        self.was_small = !whole;
        let batch = if whole { store.poll_records() } else { store.poll_records_within(1) };
        // A part is written with the records before it, never ahead of them.
        let is_all = whole || batch.is_none();
        let making = self.making.as_mut().filter(|_| is_all);
        let part = making.and_then(|making| {
            let (part, next) = store.snapshot_part(now, &making.position.take()?, 100);
            making.position = next;
            Some(part)
        });
        if batch.is_none() && part.is_none() {
            return None;
        }
        let (id, records) = match batch {
            Some(batch) => (Some(batch.id), batch.records),
            None => (None, Vec::new()),
        };
        Some(Commit { id, records, part })
    }

    fn apply(&mut self, commit: Commit) {
        self.history.extend(commit.records.iter().cloned());
        self.log.extend(commit.records);
        let Some((part, making)) = commit.part.zip(self.making.as_mut()) else { return };
        making.records.extend(part);
        if making.position.is_some() {
            return;
        }
        if let Some(making) = self.making.take() {
            self.snapshot = making.records;
            self.log.drain(..making.log);
        }
    }

    /// Crashes the writer. The commit in progress becomes durable as a whole or not at all. An
    /// incomplete snapshot is lost.
    pub(super) fn crash(&mut self) {
        if let Some((_, commit)) = self.commit.take()
            && self.rng.bool()
        {
            self.apply(commit);
        }
        self.making = None;
    }

    /// Restores a new store.
    pub(super) fn load(&self, now: Now, store: &mut Store) {
        for record in self.records() {
            match (record, self.driver.bug) {
                (Record::Response(_), Some(DriverBug::LosesResponses))
                | (Record::Registered { .. }, Some(DriverBug::LosesRegistrations)) => {}
                // The removal is restored, but not its version.
                (Record::Removed { key, .. }, Some(DriverBug::LosesVersions)) => {
                    let node = NodeIdRef::STATE_STORE.into();
                    let version = Version::new(Hlc::new(UnixTime::default(), 0, node));
                    store.restore(now, &Record::Removed { key: key.clone(), version });
                }
                (Record::Issued { .. }, Some(DriverBug::LosesVersions)) => {}
                (record, _) => store.restore(now, record),
            }
        }
    }

    pub(super) fn erase(&mut self) {
        self.history.clear();
        self.snapshot.clear();
        self.log.clear();
        self.making = None;
    }
}
