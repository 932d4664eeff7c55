//! The grammar of what a watch tells, and what the application knows from it.

use std::collections::BTreeMap;

use bytes::Bytes;
use statestore_proto::client::{WatchEvent, WatchId};
use statestore_proto::hlc::Version;

/// What one watch has told so far: `Changed* Live (Changed* Gap Changed* Live)* Changed*`, and `Ended` last.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// The value, as far as the application knows.
    pub value: Option<Bytes>,
    /// The last version told.
    pub version: Option<Version>,
    /// Whether changes are reported.
    pub live: bool,
    /// Whether it was live once.
    pub began: bool,
    /// Gaps told.
    pub gaps: usize,
    /// Whether it is over.
    pub ended: bool,
}

/// What all watches of a client have told.
#[derive(Clone, Debug, Default)]
pub struct WatchLog {
    watches: BTreeMap<WatchId, Told>,
}

impl WatchLog {
    /// Takes an event. With `versions`, what is told must also be newer than what was.
    ///
    /// # Panics
    /// When the event breaks the grammar.
    pub fn take(&mut self, id: WatchId, event: &WatchEvent, versions: bool) {
        let told = self.watches.entry(id).or_default();
        assert!(!told.ended, "{event:?} after the end of {id:?}");
        match event {
            WatchEvent::Changed { value, version } => {
                let newer = match (&told.version, version) {
                    (Some(old), Some(new)) if value.is_some() => new > old,
                    (Some(old), Some(new)) => new >= old,
                    (_, None) => value.is_none(),
                    (None, Some(_)) => true,
                };
                assert!(newer || !versions, "{event:?} after {told:?}");
                assert!(
                    value.is_some() || told.value.is_some() || told.live,
                    "{event:?} is no news"
                );
                told.value.clone_from(value);
                told.version = version.clone().max(told.version.take());
            }
            WatchEvent::Live => {
                assert!(!told.live, "live twice: {told:?}");
                (told.live, told.began) = (true, true);
            }
            WatchEvent::Gap => {
                assert!(told.live, "a gap in what was not live: {told:?}");
                told.live = false;
                told.gaps += 1;
            }
            WatchEvent::Ended(_) => told.ended = true,
        }
    }

    /// What a watch has told.
    #[must_use]
    pub fn told(&self, id: WatchId) -> Told {
        self.watches.get(&id).cloned().unwrap_or_default()
    }
}
