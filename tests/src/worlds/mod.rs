//! Worlds so small that every order of events can be tried.
//!
//! The machines cannot be copied, so a world is reached by doing its choices again from the start; worlds that look the
//! same are visited once. A search is breadth first, so a counterexample is as short as one can be.

mod duplicates;
mod fencing;
mod watching;

pub use duplicates::Duplicates;
pub use fencing::Fencing;
pub use watching::Watching;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, VecDeque};
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

    /// Writes everything that decides what can happen later.
    fn describe(&self, out: &mut dyn Write) -> std::fmt::Result;
}

/// What a search has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explored {
    /// Worlds that differ.
    pub worlds: usize,
    /// Choices tried.
    pub choices: usize,
    /// Worlds in which nothing more can happen.
    pub ends: usize,
    /// Choices in the longest story.
    pub depth: usize,
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
    let mut explored = Explored { worlds: 0, choices: 0, ends: 0, depth: 0 };
    while let Some(path) = waiting.pop_front() {
        explored.worlds += 1;
        assert!(explored.worlds < 1_000_000, "too many worlds");
        explored.depth = explored.depth.max(path.len());
        let choices = replay(&start, &path)?.choices();
        explored.ends += usize::from(choices.is_empty());
        for choice in choices {
            explored.choices += 1;
            let mut path: Vec<&'static str> = path.clone();
            path.push(choice);
            if seen.insert(fingerprint(&replay(&start, &path)?)) {
                waiting.push_back(path);
            }
        }
    }
    Ok(explored)
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
    struct Digest(DefaultHasher, DefaultHasher);
    impl Write for Digest {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.write(text.as_bytes());
            self.1.write(text.as_bytes());
            Ok(())
        }
    }
    let mut digest = Digest(DefaultHasher::new(), DefaultHasher::new());
    digest.1.write_u8(1);
    let written = world.describe(&mut digest);
    debug_assert!(written.is_ok(), "a digest takes everything");
    (digest.0.finish(), digest.1.finish())
}
