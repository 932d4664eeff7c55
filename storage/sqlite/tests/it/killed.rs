//! A process that is killed while it commits.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use statestore_sqlite::SqliteJournal;
use statestore_tokio::service::{Commit, Journal as _};

use crate::support::{Dir, Parts, block_on, contents, load, restore, set};

const ROUNDS: u64 = 20;

/// In the child it says where to commit; the test alone does nothing.
pub(crate) const DIR: &str = "STATESTORE_SQLITE_KILLED_DIR";

/// Arguments that make this program the child.
pub(crate) const CHILD: [&str; 4] = ["--exact", "killed::child", "--nocapture", "--test-threads=1"];

/// Not a test: what [`what_was_answered_survives_a_kill`] starts. It says how many commits it has found, and of each of its
/// own once that is answered.
#[test]
#[expect(clippy::disallowed_methods, reason = "it is how the parent tells this process what to do")]
fn child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let mut journal = SqliteJournal::open(Path::new(&dir)).unwrap();
    let mut store = restore(&load(&mut journal).unwrap());
    let entries = contents(&store).iter().filter(|record| record.key().is_some()).count();
    say(&format!("found {entries}"));
    let first = entries as u64;
    let mut parts: Option<Parts> = None;
    for number in first.. {
        let part = parts.as_mut().and_then(|parts| parts.next(&store, 4_000));
        if part.as_ref().is_some_and(|part| part.is_last) {
            parts = None;
        } else if parts.is_none() && number % 7 == 0 {
            parts = Some(Parts::new());
        }
        let key = format!("key-{number:09}");
        let records = set(&mut store, number, key.as_bytes(), &vec![b'v'; 3_000]);
        block_on(journal.commit(Commit { records, snapshot: part })).unwrap();
        say(&format!("committed {key}"));
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    out.write_all(format!("\n{line}\n").as_bytes()).and_then(|()| out.flush()).unwrap();
}

#[test]
fn what_was_answered_survives_a_kill() {
    let dir = Dir::new();
    let path = dir.path("journal");
    let mut answered = Vec::new();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(CHILD)
            .env(DIR, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        // Some commits further each time, and then at any moment of the next.
        let heard =
            lines.by_ref().filter_map(|line| line.strip_prefix("committed ").map(str::to_owned));
        answered.extend(heard.take(3 + usize::try_from(round).unwrap()));
        child.kill().unwrap();
        child.wait().unwrap();
        answered
            .extend(lines.filter_map(|line| line.strip_prefix("committed ").map(str::to_owned)));

        let mut journal = SqliteJournal::open(&path).unwrap();
        let records = load(&mut journal).unwrap();
        let store = restore(&records);
        let found: Vec<_> =
            contents(&store).iter().filter_map(|record| Some(record.key()?.to_vec())).collect();
        for key in &answered {
            assert!(
                found.iter().any(|found| found == key.as_bytes()),
                "{key} is lost in round {round}"
            );
        }
        // One that was under way may be there, and need not.
        assert!(
            (answered.len()..=answered.len() + 1).contains(&found.len()),
            "{} answered, {} found",
            answered.len(),
            found.len()
        );
        // Whatever this process does not know of was not answered to it.
        answered = found.into_iter().map(|key| String::from_utf8(key).unwrap()).collect();
    }
    assert!(answered.len() > 200, "{} commits", answered.len());
}
