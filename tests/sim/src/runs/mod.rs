//! Seeded simulation: clients, a store and an unreliable network in simulated time, and the
//! checkers of their histories.
//!
//! [`run`] creates a [`Scenario`] from a seed, runs it for a number of steps and a quiet time, and
//! applies each checker in [`check`]. Equal seeds and steps give equal runs, byte for byte, and so
//! an equal [`Report::digest`].
//!
//! # Guarantees of watches, by delivery
//!
//! * [`Delivery::InOrder`]: reported versions increase. Changes before `Live` were the state of the
//!   key at some moment within a message's transit time of `Live`. From there to the next `Gap`
//!   every change is reported once, in order.
//! * [`Delivery::Reordered`]: the same, with one exception, if a read finds the key absent. Changes
//!   from before that read may still be reported after `Live`: true ones, complete, in order,
//!   ending in the current state. An absent key lacks a version, so a notification overtaken by the
//!   reply looks like a new one.
//! * [`Delivery::Broken`]: no invented change, increasing versions, and a `Gap` per reconnect.
//!   Changes may be missed without a gap: they were lost with the store's own connection, which no
//!   client can detect.
//! * [`Delivery::Replaced`]: as `InOrder`, except that changes may be missed between the
//!   replacement of the store and the client's first reply from the next one, which causes a `Gap`.
//!
//! [`Mix`] documents further guarantees under each kind of fault.

pub mod check;
mod driver;
mod history;
pub mod listings;
pub mod locks;
mod scenario;
mod truth;
mod twin;
mod wire;

use std::fmt;

pub use history::{History, Moment, Note, Op, Watched, What};
pub use scenario::{ClientSetup, Delivery, Mix, Scenario};
pub use truth::{Change, Effect, Restart, Truth};
pub use twin::Twin;
pub use wire::{Answer, Digest, Exchange, RequestName, Wire};

use driver::Run;

/// Default number of steps.
pub const STEPS: u32 = 500;

/// Source of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// The store's state or a reply differs from the naive store.
    Store,
    /// [`check::linear`]
    Linear,
    /// [`check::watches`]
    Watches,
    /// [`check::effects`]
    Effects,
    /// [`check::fencing`]
    Fencing,
    /// [`check::versions`]
    Versions,
    /// The broker exceeds its budget, or disconnects an honest client.
    Broker,
}

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Source.
    pub check: Check,
    /// Description.
    pub text: String,
}

impl Violation {
    fn new(check: Check, text: String) -> Self {
        Self { check, text }
    }
}

/// A run and its violations.
#[derive(Clone, Debug)]
pub struct Report {
    /// The scenario.
    pub scenario: Scenario,
    /// Steps run.
    pub steps: u32,
    /// Requests and events of the applications.
    pub history: History,
    /// Deliveries.
    pub wire: Wire,
    /// Changes of the store.
    pub truth: Truth,
    /// True time at the end.
    pub ended_at: u64,
    /// Sessions that the broker evicted.
    pub evicted: u64,
    /// Hash of all deliveries and events.
    pub digest: u64,
    /// Violations; empty if the run is sound.
    pub violations: Vec<Violation>,
}

impl Report {
    /// Returns whether a checker found a violation.
    #[must_use]
    pub fn is_caught_by(&self, check: Check) -> bool {
        self.violations.iter().any(|violation| violation.check == check)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.scenario.seed;
        writeln!(
            f,
            "{} violations in {:?} with seed {seed}:",
            self.violations.len(),
            self.scenario.mix
        )?;
        for Violation { check, text } in &self.violations {
            writeln!(f, "  {check:?}: {text}")?;
        }
        write!(
            f,
            "again with: STATESTORE_SEED={seed} cargo test -p statestore-tests --test it sim::replay -- --nocapture"
        )
    }
}

/// Runs a seed.
#[must_use]
pub fn run(seed: u64, steps: u32) -> Report {
    run_twin(seed, steps, Twin::Sound)
}

/// Runs a seed in a world with a deliberate fault.
#[must_use]
pub fn run_twin(seed: u64, steps: u32, twin: Twin) -> Report {
    let mut run = Run::new(Scenario::of(seed), twin);
    run.begin();
    (0..steps).for_each(|_| run.step());
    run.end();
    let mut report = Report {
        scenario: run.scenario().clone(),
        steps,
        ended_at: run.now(),
        evicted: run.evicted(),
        digest: run.digest.value(),
        history: run.history,
        wire: run.wire,
        truth: run.truth,
        violations: run.violations,
    };
    check::all(&mut report);
    report
}

/// Runs each seed and returns the total number of steps, for benchmarks.
///
/// # Errors
/// The first report with a violation.
pub fn run_all(seeds: impl IntoIterator<Item = u64>, steps: u32) -> Result<u64, Box<Report>> {
    let mut total = 0;
    for seed in seeds {
        let report = run(seed, steps);
        if !report.violations.is_empty() {
            return Err(Box::new(report));
        }
        total += u64::from(report.steps);
    }
    Ok(total)
}
