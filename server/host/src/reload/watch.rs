//! Reloads files when they change.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::reloader::{Entry, Reloader};
use super::report::Reloaded;
use crate::broker::Broker;
use crate::files::{FileVersion, ReloadFile};

/// Versions of the files of one setting, as the watch has seen them.
#[derive(Default)]
struct Seen {
    /// Versions at the last poll.
    polled: Vec<FileVersion>,
    /// Versions at the last reload by the watch, successful or not.
    attempted: Vec<FileVersion>,
}

impl Seen {
    /// Records the current versions. Returns whether the setting must be reloaded: its files differ
    /// from those that were read last, and have been stable for one interval.
    fn record(&mut self, current: Vec<FileVersion>, loaded: &[Option<FileVersion>]) -> bool {
        let is_loaded = current.iter().map(Some).eq(loaded.iter().map(Option::as_ref));
        let is_stable = self.polled == current;
        let is_due = is_stable && !is_loaded && self.attempted != current;
        if is_due {
            self.attempted.clone_from(&current);
        }
        self.polled = current;
        is_due
    }
}

impl Reloader {
    /// Polls the files of all settings, and reloads a setting when one of its files has changed:
    /// when its modification time, size or inode differs, also behind symbolic links, as Kubernetes
    /// replaces mounted files. A change is applied when the files of the setting have been stable
    /// for one interval, so that half-written files are not read. Invalid files are reported once
    /// for each change. `report` receives the results. Never returns; drop the future to stop.
    pub async fn watch(
        &self,
        interval: Duration,
        broker: Option<&Broker>,
        mut report: impl FnMut(Reloaded),
    ) {
        let mut seen: Vec<Seen> = self.entries.iter().map(|_| Seen::default()).collect();
        let interval = interval.max(Duration::from_millis(1));
        let mut ticks = interval_at(Instant::now() + interval, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let due = self.find_changed(&mut seen).await;
            if !due.is_empty() {
                report(self.reload_entries(due, broker).await);
            }
        }
    }

    async fn find_changed(&self, seen: &mut [Seen]) -> Vec<&Entry> {
        let paths: Vec<Vec<PathBuf>> = self.entries.iter().map(Entry::paths).collect();
        // A network file system may block.
        let inspect = move || -> Vec<Vec<FileVersion>> {
            let versions = |paths: &Vec<PathBuf>| {
                paths.iter().map(|path| FileVersion::current(path)).collect()
            };
            paths.iter().map(versions).collect()
        };
        let Ok(current) = tokio::task::spawn_blocking(inspect).await else { return Vec::new() };
        let all = self.entries.iter().zip(seen).zip(current);
        let due = all.filter_map(|((entry, seen), current)| {
            let loaded: Vec<_> =
                entry.setting.files().into_iter().map(ReloadFile::version).collect();
            seen.record(current, &loaded).then_some(entry)
        });
        due.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_is_due_once_its_files_are_stable() {
        let directory =
            std::env::temp_dir().join(format!("statestore-watch-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("create directory");
        let version = |length: usize| {
            let path = directory.join("file");
            std::fs::write(&path, vec![b'x'; length]).expect("write file");
            FileVersion::current(&path)
        };
        let (old, half, new) = (version(1), version(2), version(3));
        std::fs::remove_dir_all(&directory).expect("remove directory");
        let mut seen = Seen::default();
        let loaded = [Some(old.clone())];
        for (current, is_due) in [
            (&old, false),
            (&old, false),
            (&half, false),
            (&new, false),
            (&new, true),
            // Invalid files are not read again until they change.
            (&new, false),
            (&FileVersion::MISSING, false),
            (&FileVersion::MISSING, true),
            (&new, false),
            (&new, true),
            (&old, false),
            (&old, false),
        ] {
            assert_eq!(seen.record(vec![current.clone()], &loaded), is_due, "{current:?}");
        }
    }
}
