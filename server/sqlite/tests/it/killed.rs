//! A process that is killed while it commits.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use statestore_sqlite::SqliteJournal;
use statestore_tokio::service::{Commit, Journal as _};

use crate::support::{Dir, Parts, block_on, contents, load, restore, set};

const ROUNDS: u64 = 20;

/// Environment variable with the directory of the child process.
pub(crate) const DIR: &str = "STATESTORE_SQLITE_KILLED_DIR";

/// Arguments with which this program runs [`child`].
pub(crate) const CHILD: [&str; 4] = ["--exact", "killed::child", "--nocapture", "--test-threads=1"];

/// Child process of [`acknowledged_commits_survive_a_kill`], not a test: does nothing without
/// [`DIR`]. Prints the number of entries that it found, and each of its commits once acknowledged.
#[test]
#[expect(clippy::disallowed_methods, reason = "the parent passes the directory in the environment")]
fn child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let mut journal = SqliteJournal::open(Path::new(&dir)).unwrap();
    let mut store = restore(&load(&mut journal).unwrap());
    let entries = contents(&store).iter().filter(|record| record.key().is_some()).count();
    print(&format!("found {entries}"));
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
        print(&format!("committed {key}"));
    }
}

fn print(line: &str) {
    let mut out = std::io::stdout();
    out.write_all(format!("\n{line}\n").as_bytes()).and_then(|()| out.flush()).unwrap();
}

#[test]
fn acknowledged_commits_survive_a_kill() {
    let dir = Dir::new();
    let path = dir.path("journal");
    let mut acknowledged = Vec::new();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(CHILD)
            .env(DIR, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        // The child is killed later in each round, at any moment of its next commit.
        let key = |line: String| line.strip_prefix("committed ").map(str::to_owned);
        let printed = lines.by_ref().filter_map(key);
        acknowledged.extend(printed.take(3 + usize::try_from(round).unwrap()));
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged.extend(lines.filter_map(key));

        let mut journal = SqliteJournal::open(&path).unwrap();
        let records = load(&mut journal).unwrap();
        let store = restore(&records);
        let found: Vec<_> =
            contents(&store).iter().filter_map(|record| Some(record.key()?.to_vec())).collect();
        for key in &acknowledged {
            assert!(
                found.iter().any(|found| found == key.as_bytes()),
                "{key} is lost in round {round}"
            );
        }
        // The commit in progress can be durable or not.
        assert!(
            (acknowledged.len()..=acknowledged.len() + 1).contains(&found.len()),
            "{} acknowledged, {} found",
            acknowledged.len(),
            found.len()
        );
        // The child of the next round has read these commits.
        acknowledged = found.into_iter().map(|key| String::from_utf8(key).unwrap()).collect();
    }
    assert!(acknowledged.len() > 200, "{} commits", acknowledged.len());
}
