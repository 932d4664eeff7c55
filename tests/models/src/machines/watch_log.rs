//! The grammar of the events of a watch, and the application's view of the key.

use std::collections::BTreeMap;

use bytes::Bytes;
use statestore_proto::client::{WatchEvent, WatchId};
use statestore_proto::hlc::Version;

/// State of one watch after its events so far: `Changed* Live (Changed* Gap Changed* Live)*
/// Changed*`, and `Ended` last.
#[derive(Clone, Debug, Default)]
pub struct WatchState {
    /// The value that the application knows.
    pub value: Option<Bytes>,
    /// The last version reported.
    pub version: Option<Version>,
    /// Changes are reported.
    pub live: bool,
    /// It was live at least once.
    pub began: bool,
    /// Number of gaps.
    pub gaps: usize,
    /// It has ended.
    pub ended: bool,
}

/// The events of all watches of a client.
#[derive(Clone, Debug, Default)]
pub struct WatchLog {
    watches: BTreeMap<WatchId, WatchState>,
}

impl WatchLog {
    /// Records an event. With `versions`, each change must also be newer than the last.
    ///
    /// # Panics
    /// If the event violates the grammar.
    pub fn take(&mut self, id: WatchId, event: &WatchEvent, versions: bool) {
        let state = self.watches.entry(id).or_default();
        assert!(!state.ended, "{event:?} after the end of {id:?}");
        match event {
            WatchEvent::Changed { value, version } => {
                let newer = match (&state.version, version) {
                    (Some(old), Some(new)) if value.is_some() => new > old,
                    (Some(old), Some(new)) => new >= old,
                    (_, None) => value.is_none(),
                    (None, Some(_)) => true,
                };
                assert!(newer || !versions, "{event:?} after {state:?}");
                assert!(
                    value.is_some() || state.value.is_some() || state.live,
                    "{event:?} changes nothing"
                );
                state.value.clone_from(value);
                state.version = version.clone().max(state.version.take());
            }
            WatchEvent::Live => {
                assert!(!state.live, "live twice: {state:?}");
                (state.live, state.began) = (true, true);
            }
            WatchEvent::Gap => {
                assert!(state.live, "a gap in what was not live: {state:?}");
                state.live = false;
                state.gaps += 1;
            }
            WatchEvent::Ended(_) => state.ended = true,
            other => panic!("an unknown event: {other:?}"),
        }
    }

    /// The state of a watch.
    #[must_use]
    pub fn state(&self, id: WatchId) -> WatchState {
        self.watches.get(&id).cloned().unwrap_or_default()
    }
}
