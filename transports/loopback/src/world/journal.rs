//! What a store has written, as far as it would be found after a crash.

use std::time::Duration;

use statestore_proto::hlc::{Hlc, NodeIdRef, Version};
use statestore_proto::store::{BatchId, Record, SnapshotPosition, Store};
use statestore_proto::time::{Instant, Now, UnixTime};

use super::{Driver, Flaw};

/// A disk that takes its time, and drops what a snapshot says as well.
#[derive(Debug)]
pub(super) struct Journal {
    rng: fastrand::Rng,
    driver: Driver,
    /// All that ever became durable.
    history: Vec<Record>,
    /// The last whole snapshot, and what was written since it was begun.
    snapshot: Vec<Record>,
    log: Vec<Record>,
    making: Option<Making>,
    /// What is being written, and when it is safe.
    commit: Option<(Instant, Commit)>,
}

/// A snapshot that is being made.
#[derive(Debug)]
struct Making {
    /// Where the next part begins; `None` once there is none.
    position: Option<SnapshotPosition>,
    /// The parts that are safe.
    records: Vec<Record>,
    /// How much of the log it takes the place of.
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
            driver: Driver::default(),
            history: Vec::new(),
            snapshot: Vec::new(),
            log: Vec::new(),
            making: None,
            commit: None,
        }
    }

    pub(super) const fn set_driver(&mut self, driver: Driver) {
        self.driver = driver;
    }

    /// Everything that became durable, in order, whether a snapshot says it now or not.
    pub(super) fn history(&self) -> &[Record] {
        &self.history
    }

    /// What the next store finds: the last snapshot, and what was written since it was begun.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.snapshot.iter().chain(&self.log)
    }

    /// When the batch that is being written is safe.
    pub(super) const fn due(&self) -> Option<Instant> {
        match &self.commit {
            Some((at, _)) => Some(*at),
            None => None,
        }
    }

    /// Ends the commit that is due and begins the next one; what is written meanwhile is the one after that. Whether
    /// there was anything to do.
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
            if self.driver.flaw == Some(Flaw::ReleasesEarly) {
                commit.id.into_iter().for_each(|id| store.handle_persisted(id));
            }
            let millis = u64::try_from(self.driver.persist_max.as_millis()).unwrap_or(u64::MAX);
            // No dice where there is nothing to choose.
            let millis = if millis == 0 { 0 } else { self.rng.u64(0..=millis) };
            self.commit = Some((now.instant + Duration::from_millis(millis), commit));
            busy = true;
        }
    }

    /// What is to be written next.
    fn next(&mut self, now: Now, store: &mut Store) -> Option<Commit> {
        let every = self.driver.snapshot_every;
        if every > 0 && self.making.is_none() && self.log.len() >= every {
            let position = Some(SnapshotPosition::default());
            self.making = Some(Making { position, records: Vec::new(), log: self.log.len() });
        }
        // An engine with small transactions, at times.
        let whole = every == 0 || self.rng.bool();
        let batch = if whole { store.poll_records() } else { store.poll_records_within(1) };
        // A part goes along with what was written before it, never ahead of that.
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

    /// The writer is gone. What it was about to write is there as a whole or not at all: nobody was told which. Of a
    /// snapshot that was not whole nothing is there.
    pub(super) fn crash(&mut self) {
        if let Some((_, commit)) = self.commit.take()
            && self.rng.bool()
        {
            self.apply(commit);
        }
        self.making = None;
    }

    /// Gives everything to a new store.
    pub(super) fn load(&self, now: Now, store: &mut Store) {
        for record in self.records() {
            match (record, self.driver.flaw) {
                (Record::Answered(_), Some(Flaw::ForgetsAnswers))
                | (Record::Watched { .. }, Some(Flaw::ForgetsWatches)) => {}
                // It knows that the key is gone, and not which version that had.
                (Record::Removed { key, .. }, Some(Flaw::ForgetsVersions)) => {
                    let node = NodeIdRef::STATE_STORE.into();
                    let version = Version::new(Hlc::new(UnixTime::default(), 0, node));
                    store.restore(now, &Record::Removed { key: key.clone(), version });
                }
                (Record::Issued { .. }, Some(Flaw::ForgetsVersions)) => {}
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
