//! Reloads all files of a broker.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::Reload;
use super::report::{FileKind, Reloaded, Report};
use crate::broker::Broker;
use crate::clock::system_now;
use crate::files::LoadError;
use crate::files::ReloadFile;

/// All settings of a broker that come from files.
///
/// ```
/// use statestore_server::{Broker, Options, PolicyFile, Principals, Reloader};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let run = async || -> Result<(), Box<dyn std::error::Error>> {
/// let policy = PolicyFile::load("policy.yaml", Principals::default())?;
/// let options = Options::default().policy(policy.policy().clone());
/// let broker = Broker::bind(options).await?;
///
/// let mut reloader = Reloader::default();
/// reloader.add(policy);
/// // For example on SIGHUP:
/// for report in reloader.reload_all(Some(&broker)).await.reports {
///     println!("{report}");
/// }
/// # Ok(()) }; assert!(run().await.is_err());
/// # }
/// ```
#[derive(Default)]
pub struct Reloader {
    pub(super) entries: Vec<Entry>,
    /// Held during a reload, so that two do not run at the same time.
    running: tokio::sync::Mutex<()>,
}

/// One setting and the time of its last successful reload.
pub(super) struct Entry {
    pub(super) setting: Arc<dyn Reload>,
    loaded_at: Mutex<SystemTime>,
}

/// Time of the last successful load of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastReload {
    /// Kind of the setting.
    pub kind: FileKind,
    /// Paths of all its files.
    pub paths: Vec<PathBuf>,
    /// Time of the last successful load.
    pub at: SystemTime,
}

impl Reloader {
    /// Adds a setting that has been loaded.
    pub fn add(&mut self, setting: impl Reload + 'static) {
        let loaded_at = Mutex::new(system_now());
        self.entries.push(Entry { setting: Arc::new(setting), loaded_at });
    }

    /// Returns whether the list of settings is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reads all files again, one setting after the other and off the event loop. A setting whose
    /// files are invalid stays unchanged. Then [checks](Broker::recheck) the clients of the broker
    /// again.
    pub async fn reload_all(&self, broker: Option<&Broker>) -> Reloaded {
        self.reload_entries(self.entries.iter(), broker).await
    }

    pub(super) async fn reload_entries(
        &self,
        entries: impl IntoIterator<Item = &Entry>,
        broker: Option<&Broker>,
    ) -> Reloaded {
        let _running = self.running.lock().await;
        let mut reports = Vec::new();
        for entry in entries {
            reports.push(entry.reload().await);
        }
        let disconnected = broker.map(Broker::recheck).unwrap_or_default();
        Reloaded { reports, disconnected }
    }

    /// Returns the time of the last successful load of each setting, for metrics.
    #[must_use]
    pub fn last_reloads(&self) -> Vec<LastReload> {
        let last = |entry: &Entry| LastReload {
            kind: entry.setting.kind(),
            paths: entry.paths(),
            at: *entry.loaded_at.lock().unwrap_or_else(PoisonError::into_inner),
        };
        self.entries.iter().map(last).collect()
    }
}

impl Entry {
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.setting.files().into_iter().map(|file| file.path().to_owned()).collect()
    }

    async fn reload(&self) -> Report {
        let setting = Arc::clone(&self.setting);
        let result = match tokio::task::spawn_blocking(move || setting.reload()).await {
            Ok(result) => result,
            Err(error) => Err(LoadError::failed(self.paths(), error)),
        };
        if result.is_ok() {
            *self.loaded_at.lock().unwrap_or_else(PoisonError::into_inner) = system_now();
        }
        Report { kind: self.setting.kind(), paths: self.paths(), result }
    }
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.entries.iter().flat_map(|entry| entry.setting.files());
        f.debug_list().entries(files.map(ReloadFile::path)).finish()
    }
}
