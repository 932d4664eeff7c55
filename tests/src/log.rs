//! What the packages tell a log, kept for tests.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Metadata, Subscriber};

/// Everything that is told, a line for each span, record and event.
#[derive(Clone, Debug, Default)]
pub struct Log {
    lines: Arc<Mutex<Vec<String>>>,
}

impl Log {
    /// Listens on this thread while the guard lives.
    #[must_use]
    pub fn listen() -> (Self, DefaultGuard) {
        let log = Self::default();
        let guard = set_default(log.clone());
        (log, guard)
    }

    /// The lines that hold all of these words.
    #[must_use]
    pub fn with(&self, words: &[&str]) -> Vec<String> {
        let lines = self.lines();
        let holds = |line: &&String| words.iter().all(|word| line.contains(word));
        lines.iter().filter(holds).cloned().collect()
    }

    fn write(&self, what: String, fields: impl FnOnce(&mut Line)) {
        let mut line = Line(what);
        fields(&mut line);
        self.lines().push(line.0);
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // A string takes everything.
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("statestore")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.write(format!("span {}", span.metadata().name()), |line| span.record(line));
        Id::from_u64(1 + self.lines().len() as u64)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        self.write("record".into(), |line| values.record(line));
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let what = format!("{} {}", metadata.level(), metadata.target());
        self.write(what, |line| event.record(line));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
