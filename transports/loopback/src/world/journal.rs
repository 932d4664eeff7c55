//! What a store has written, as far as it would be found after a crash.

use std::time::Duration;

use statestore_proto::store::{Batch, Record, Store};
use statestore_proto::time::{Instant, Now};

use super::Flaw;

/// A disk that takes its time. It grows with everything that is written, as a log would that nobody compacts.
#[derive(Debug)]
pub(super) struct Journal {
    rng: fastrand::Rng,
    persist_max: Duration,
    records: Vec<Record>,
    /// The one batch that is being written, and when it is safe.
    commit: Option<(Instant, Batch)>,
}

impl Journal {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            persist_max: Duration::ZERO,
            records: Vec::new(),
            commit: None,
        }
    }

    pub(super) const fn set_persist_max(&mut self, persist_max: Duration) {
        self.persist_max = persist_max;
    }

    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    /// When the batch that is being written is safe.
    pub(super) const fn due(&self) -> Option<Instant> {
        match &self.commit {
            Some((at, _)) => Some(*at),
            None => None,
        }
    }

    /// Ends the batch that is due and begins the next one; what is written meanwhile is the one after that. Whether
    /// there was anything to do.
    pub(super) fn drive(&mut self, now: Instant, store: &mut Store, flaw: Option<Flaw>) -> bool {
        let mut busy = false;
        loop {
            if let Some((_, batch)) = self.commit.take_if(|(at, _)| *at <= now) {
                let id = batch.id;
                self.records.extend(batch.records);
                store.handle_persisted(id);
                busy = true;
            }
            let Some(batch) = self.commit.is_none().then(|| store.poll_records()).flatten() else {
                return busy;
            };
            if flaw == Some(Flaw::ReleasesEarly) {
                store.handle_persisted(batch.id);
            }
            let millis = u64::try_from(self.persist_max.as_millis()).unwrap_or(u64::MAX);
            // No dice where there is nothing to choose.
            let millis = if millis == 0 { 0 } else { self.rng.u64(0..=millis) };
            self.commit = Some((now + Duration::from_millis(millis), batch));
            busy = true;
        }
    }

    /// The writer is gone. What it was about to write is there as a whole or not at all: nobody was told which.
    pub(super) fn crash(&mut self) {
        if let Some((_, batch)) = self.commit.take()
            && self.rng.bool()
        {
            self.records.extend(batch.records);
        }
    }

    /// Gives everything to a new store.
    pub(super) fn load(&self, now: Now, store: &mut Store) {
        for record in &self.records {
            store.restore(now, record);
        }
    }

    pub(super) fn erase(&mut self) {
        self.records.clear();
    }
}
