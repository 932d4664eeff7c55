//! Worlds so small that every order of events can be tried.
//!
//! The store and the client cannot be copied, so their worlds are reached by doing their choices again from the start;
//! worlds of locks are copied. Worlds that look the same are visited once. A search is breadth first, so a counterexample
//! is as short as one can be.

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
pub use restarting::{Beginning, Restarting, Says};
pub use watching::Watching;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fmt::Write;
use std::hash::Hasher;

/// A world in which something happens next, and a choice of what.
pub trait SmallWorld {
    /// What can happen next; nothing when the story is over.
    fn choices(&self) -> Vec<&'static str>;

    /// Lets it happen.
    ///
    /// # Errors
    /// What went wrong, which ends the search.
    fn choose(&mut self, choice: &'static str) -> Result<(), String>;

    /// In which phase the machine is that the world is about, if it is about one.
    fn phase(&self) -> Option<String> {
        None
    }

    /// Writes everything that decides what can happen later.
    fn describe(&self, out: &mut dyn Write) -> std::fmt::Result;
}

/// What a search has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Worlds that differ.
    pub worlds: usize,
    /// Choices tried.
    pub choices: usize,
    /// Worlds in which nothing more can happen.
    pub ends: usize,
    /// Choices in the longest story.
    pub depth: usize,
    /// The choices that led from one phase to another, or may have led to the same.
    pub steps: BTreeSet<Step>,
}

/// The choices that led to what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterexample {
    /// The choices.
    pub choices: Vec<&'static str>,
    /// What is wrong.
    pub wrong: String,
}

/// Visits every world that can be reached.
///
/// # Errors
/// The shortest story in which something is wrong.
///
/// # Panics
/// When there are more than a million worlds.
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

/// Visits every world that can be reached, as [`explore`] does, by copying worlds instead of reaching them again.
///
/// # Errors
/// The shortest story in which something is wrong.
///
/// # Panics
/// When there are more than a million worlds.
pub fn explore_copies<W: SmallWorld + Clone>(start: W) -> Result<Explored, Counterexample> {
    let mut seen = HashSet::from([fingerprint(&start)]);
    // How each world was reached: from which other, by which choice.
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

/// Two numbers, so that chance does not make two worlds one.
fn fingerprint(world: &impl SmallWorld) -> (u64, u64) {
    // At once: a hash of each small piece would take most of the time.
    let mut text = String::with_capacity(4_096);
    let written = world.describe(&mut text);
    debug_assert!(written.is_ok(), "a string takes everything");
    let mut digests = (DefaultHasher::new(), DefaultHasher::new());
    digests.1.write_u8(1);
    digests.0.write(text.as_bytes());
    digests.1.write(text.as_bytes());
    (digests.0.finish(), digests.1.finish())
}
