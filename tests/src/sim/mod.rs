//! Seeded simulation: clients, a store and a bad network in simulated time, and what their histories must pass.
//!
//! [`run`] makes a [`Scenario`] of a seed, lets it live for a number of steps and then be quiet, and holds what
//! happened against each checker in [`check`]. Equal seeds and steps give equal runs, byte for byte;
//! [`Report::digest`] says so.
//!
//! # What watches promise, by delivery
//!
//! * [`Delivery::InOrder`]: told versions only grow. What is told before `Live` was the state of the key at some
//!   moment within a message's transit of `Live`. From there to the next `Gap` every change is told, each once, in
//!   order.
//! * [`Delivery::Reordered`]: the same, with one exception, where a read finds the key absent. Changes from before that
//!   read may still be told after `Live`: real ones, without holes, in order, ending in the present; a notification
//!   that the reply has overtaken cannot be told from a new one, since an absent key has no version.
//! * [`Delivery::Broken`]: nothing is invented, versions only grow, each reconnect is a `Gap`. Changes may be missed
//!   without one: the store's own connection died with their notifications, and no client can know.
//! * [`Delivery::Replaced`]: as `InOrder`, but that changes may be missed from when the store is replaced to when the
//!   client is answered by the next one. There is a `Gap` at once then.
//!
//! What each kind of trouble promises beside that stands with [`Mix`].

pub mod check;
mod commands;
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

/// Steps of a run where nothing else is said.
pub const STEPS: u32 = 500;

/// Which checker found something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// The store holds or answers something else than the naive store.
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
    /// The broker holds more than it may, or ends whom it must not.
    Broker,
}

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Who found it.
    pub check: Check,
    /// What it is.
    pub text: String,
}

impl Violation {
    fn new(check: Check, text: String) -> Self {
        Self { check, text }
    }
}

/// A run and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was run.
    pub scenario: Scenario,
    /// Steps taken.
    pub steps: u32,
    /// What applications did and were told.
    pub history: History,
    /// What was delivered.
    pub wire: Wire,
    /// What the store did.
    pub truth: Truth,
    /// True time at the end.
    pub ended_at: u64,
    /// Sessions that the broker ended for what they took.
    pub evicted: u64,
    /// Of everything delivered and told.
    pub digest: u64,
    /// Empty, if all is well.
    pub violations: Vec<Violation>,
}

impl Report {
    /// Whether a checker found something.
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

/// Runs a seed in a world that is broken on purpose.
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

/// Runs each seed and returns the steps taken together: what a benchmark divides by the time it took.
///
/// # Errors
/// The first report that has a violation.
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
