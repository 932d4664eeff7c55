//! Worlds small enough to explore every order of events.
//!
//! The store and the client cannot be cloned, so their worlds are reached by replaying choices from
//! the start; worlds of locks are cloned. Worlds with equal descriptions are visited once. The
//! search is breadth first, so a counterexample is as short as possible.

mod duplicates;
mod fencing;
mod locking;
mod phases;
mod restarting;
mod watching;

pub use duplicates::Duplicates;
pub use fencing::Fencing;
pub use locking::{Budget, Fault, Locking};
pub use phases::{LockPhases, Step, WatchPhases, documented};
pub use restarting::{Beginning, Incarnations, Restarting};
pub use watching::Watching;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fmt::Write;
use std::hash::Hasher;

/// A world with a choice of next events.
pub trait SmallWorld {
    /// The possible next events; empty at the end.
    fn choices(&self) -> Vec<&'static str>;

    /// Performs an event.
    ///
    /// # Errors
    /// A violation, which ends the search.
    fn choose(&mut self, choice: &'static str) -> Result<(), String>;

    /// The phase of the machine under test, if the world has one.
    fn phase(&self) -> Option<String> {
        None
    }

    /// Writes the state that decides all later events.
    fn describe(&self, out: &mut dyn Write) -> std::fmt::Result;
}

/// Statistics of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Distinct worlds.
    pub worlds: usize,
    /// Choices explored.
    pub choices: usize,
    /// Worlds without a next event.
    pub ends: usize,
    /// Length of the longest path.
    pub depth: usize,
    /// Observed transitions between phases, self-transitions included.
    pub steps: BTreeSet<Step>,
}

/// The choices that led to a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterexample {
    /// The choices.
    pub choices: Vec<&'static str>,
    /// The violation.
    pub wrong: String,
}

/// Visits every reachable world.
///
/// # Errors
/// The shortest path to a violation.
///
/// # Panics
/// If there are more than a million worlds.
pub fn explore<W: SmallWorld>(start: impl Fn() -> W) -> Result<Explored, Counterexample> {
    let mut seen = BTreeSet::from([fingerprint(&start())]);
    let mut waiting = VecDeque::from([Vec::new()]);
    let mut explored = Explored::default();
    while let Some(path) = waiting.pop_front() {
        explored.worlds += 1;
        assert!(explored.worlds < 1_000_000, "too many worlds");
        explored.depth = explored.depth.max(path.len());
        let world = replay(&start, &path)?;
        let choices = world.choices();
        explored.ends += usize::from(choices.is_empty());
        for choice in choices {
            explored.choices += 1;
            let mut path: Vec<&'static str> = path.clone();
            path.push(choice);
            let next = replay(&start, &path)?;
            explored.steps.extend(step(&world, choice, &next));
            if seen.insert(fingerprint(&next)) {
                waiting.push_back(path);
            }
        }
    }
    Ok(explored)
}

/// Visits every reachable world, as [`explore`] does, by cloning worlds instead of replaying
/// choices.
///
/// # Errors
/// The shortest path to a violation.
///
/// # Panics
/// If there are more than a million worlds.
pub fn explore_copies<W: SmallWorld + Clone>(start: W) -> Result<Explored, Counterexample> {
    let mut seen = HashSet::from([fingerprint(&start)]);
    // The predecessor of each world, and the choice that led to it.
    let mut reached: Vec<(usize, &'static str)> = vec![(0, "")];
    let mut waiting = VecDeque::from([(0, 0, start)]);
    let mut explored = Explored::default();
    while let Some((number, depth, world)) = waiting.pop_front() {
        explored.worlds += 1;
        assert!(explored.worlds < 1_000_000, "too many worlds");
        explored.depth = depth;
        let choices = world.choices();
        explored.ends += usize::from(choices.is_empty());
        for choice in choices {
            explored.choices += 1;
            let mut next = world.clone();
            if let Err(wrong) = next.choose(choice) {
                let mut choices = vec![choice];
                let mut at = number;
                while at != 0 {
                    choices.push(reached[at].1);
                    at = reached[at].0;
                }
                choices.reverse();
                return Err(Counterexample { choices, wrong });
            }
            explored.steps.extend(step(&world, choice, &next));
            if seen.insert(fingerprint(&next)) {
                waiting.push_back((reached.len(), depth + 1, next));
                reached.push((number, choice));
            }
        }
    }
    Ok(explored)
}

fn step(world: &impl SmallWorld, choice: &str, next: &impl SmallWorld) -> Option<Step> {
    Some((world.phase()?, choice.to_owned(), next.phase()?))
}

fn replay<W: SmallWorld>(
    start: impl Fn() -> W,
    path: &[&'static str],
) -> Result<W, Counterexample> {
    let mut world = start();
    for (done, choice) in path.iter().enumerate() {
        world
            .choose(choice)
            .map_err(|wrong| Counterexample { choices: path[..=done].to_vec(), wrong })?;
    }
    Ok(world)
}

/// Two hashes, so that a collision does not merge worlds.
fn fingerprint(world: &impl SmallWorld) -> (u64, u64) {
    // Hashed at once: hashing each small piece would take most of the time.
    let mut text = String::with_capacity(4_096);
    let written = world.describe(&mut text);
    debug_assert!(written.is_ok(), "a string takes everything");
    let mut digests = (DefaultHasher::new(), DefaultHasher::new());
    digests.1.write_u8(1);
    digests.0.write(text.as_bytes());
    digests.1.write(text.as_bytes());
    (digests.0.finish(), digests.1.finish())
}
