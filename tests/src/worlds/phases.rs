//! Everything that can happen to a watch or a lock next, whoever is at fault: which phase follows which, and why.

mod lock;
mod watch;

use std::collections::BTreeSet;

pub use lock::LockPhases;
pub use watch::WatchPhases;

/// From which phase, by what, to which.
pub type Step = (String, String, String);

/// The steps that the first table in the documentation of an item allows: `| from | what happens | to |`, where each
/// cell may have several, with commas between phases and semicolons between causes.
///
/// # Panics
/// When there is no such item, or no table before it.
#[must_use]
pub fn documented(source: &str, item: &str) -> BTreeSet<Step> {
    let (before, _) = source.split_once(item).expect("the item");
    let lines = before.lines().rev().skip_while(|line| !line.starts_with("/// |"));
    let rows: Vec<&str> = lines.take_while(|line| line.starts_with("/// |")).collect();
    // The last two are the head.
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
