//! Every event of a watch or a lock, the peer's faults included, and the resulting transitions.

mod lock;
mod watch;

use std::collections::BTreeSet;

pub use lock::LockPhases;
pub use watch::WatchPhases;

/// A transition: from which phase, by which event, to which phase.
pub type Step = (String, String, String);

/// The transitions of the first table in the documentation of an item, `| from | event | to |`. A
/// cell may list several, separated by commas between phases and semicolons between events.
///
/// # Panics
/// If the item or its table is missing.
#[must_use]
pub fn documented(source: &str, item: &str) -> BTreeSet<Step> {
    let (before, _) = source.split_once(item).expect("the item");
    let lines = before.lines().rev().skip_while(|line| !line.starts_with("/// |"));
    let rows: Vec<&str> = lines.take_while(|line| line.starts_with("/// |")).collect();
    // The last two lines are the table head.
    let rows = rows.len().checked_sub(2).map(|len| &rows[..len]).expect("a table");
    let mut steps = BTreeSet::new();
    for row in rows {
        let cells: Vec<String> = row.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let [_, from, causes, to, _] = &cells[..] else { panic!("{row} has not three cells") };
        for from in from.split(", ") {
            for cause in causes.split("; ") {
                steps.insert((from.to_owned(), cause.to_owned(), to.clone()));
            }
        }
    }
    steps
}
