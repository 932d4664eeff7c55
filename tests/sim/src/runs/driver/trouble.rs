//! Faults other than those of the network: clocks, crashes, pauses, and failover.

use std::time::Duration;

use statestore_proto::store::Record;

use super::{Run, store_config};
use crate::runs::scenario::{self, Mix};
use crate::runs::twin::Twin;

impl Run {
    /// Steps a clock forward or back.
    pub(super) fn jump(&mut self, actor: usize) {
        let clock = scenario::clock(&mut self.rng, true);
        self.set_clock(actor, clock);
    }

    fn set_clock(&mut self, actor: usize, clock: crate::Clock) {
        if self.rng.u8(0..4) > 0 {
            self.world.set_client_clock(self.actors[actor].index, clock);
        } else if self.scenario.store_clock_steps() {
            self.world.set_store_clock(clock);
        }
    }

    /// The fault that the mix is about.
    pub(super) fn trouble(&mut self, actor: usize) {
        match self.scenario.mix {
            Mix::Durable => self.crash(),
            Mix::ClockSteps => {
                let clock = scenario::far_clock(&mut self.rng);
                self.set_clock(actor, clock);
            }
            Mix::Pauses => self.pause(actor),
            Mix::Takeover => self.take_over(),
            _ => {}
        }
    }

    /// Half of the time, waits for a write to the journal and a moment more.
    fn wait_for_a_commit(&mut self) {
        if self.rng.bool() {
            return;
        }
        let limit = self.world.now() + Duration::from_millis(500);
        while !self.world.is_writing() && self.world.step(limit) {
            self.tap();
        }
        let moment = Duration::from_millis(self.rng.u64(0..=15));
        self.wait(moment);
    }

    fn crash(&mut self) {
        self.wait_for_a_commit();
        let config = store_config(&self.scenario, self.twin, self.rng.u64(..));
        self.world.crash_store(config);
        if self.rng.u8(0..4) == 0 {
            // Backward only: a forward step expires values early, which is documented and would
            // hide faults.
            self.scenario.store_clock.offset_ms -= self.rng.i64(0..=20_000);
            self.world.set_store_clock(self.scenario.store_clock);
        }
        self.stores += 1;
        let there: Vec<&Record> = self.world.persisted().collect();
        self.truth.crash(self.now(), self.world.ever_persisted(), &there);
        self.tap();
    }

    fn take_over(&mut self) {
        self.wait_for_a_commit();
        let config = store_config(&self.scenario, self.twin, self.rng.u64(..));
        let restored = self.scenario.restored;
        self.world.depose_store(config, restored && self.twin != Twin::EmptySuccessor);
        self.stores += 1;
        if restored {
            let there: Vec<&Record> = self.world.persisted().collect();
            self.truth.crash(self.now(), self.world.ever_persisted(), &there);
        } else {
            self.truth.lose(self.now());
            self.wire.lose();
        }
        self.world.take_over();
        self.tap();
    }

    /// A pause shorter or longer than the leases and time-outs, perhaps extending another.
    fn pause(&mut self, actor: usize) {
        let duration = Duration::from_millis(self.rng.u64(100..=6_000));
        if self.rng.u8(0..3) == 0 {
            self.world.pause_store(duration);
        } else {
            self.world.pause_client(self.actors[actor].index, duration);
        }
    }
}
