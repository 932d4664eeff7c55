//! What a log is told of requests, and what never.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use statestore_loopback::Hub;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Metadata, Subscriber};

use crate::both;

/// Everything that is told, a line for each span, record and event.
#[derive(Clone, Default)]
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<String>>>,
}

impl Log {
    /// Listens on this thread while the guard lives.
    pub(crate) fn listen() -> (Self, DefaultGuard) {
        let log = Self::default();
        let guard = set_default(log.clone());
        (log, guard)
    }

    /// The lines that hold all of these words.
    pub(crate) fn with(&self, words: &[&str]) -> Vec<String> {
        let lines = self.lines.lock().expect("no panic");
        let holds = |line: &&String| words.iter().all(|word| line.contains(word));
        lines.iter().filter(holds).cloned().collect()
    }

    fn write(&self, what: String, fields: impl FnOnce(&mut Line)) {
        let mut line = Line(what);
        fields(&mut line);
        self.lines.lock().expect("no panic").push(line.0);
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").expect("a string");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("statestore")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.write(format!("span {}", span.metadata().name()), |line| span.record(line));
        Id::from_u64(1 + self.lines.lock().expect("no panic").len() as u64)
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

const SECRET: &str = "a secret value";

#[tokio::test(start_paused = true)]
async fn requests_are_told_on_both_sides_and_values_never() {
    let (log, _guard) = Log::listen();
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    let mut changes = store.observe("thermostat").await.expect("observe");
    store.set("thermostat", SECRET).await.expect("set");
    assert!(store.get("thermostat").await.expect("get").is_some());
    assert!(store.set("thermostat", SECRET).if_absent().await.expect("an answer").is_none());
    store.vdel("thermostat", SECRET).await.expect("vdel");
    store.get("k".repeat(500)).await.expect("get");
    store.set("", SECRET).await.expect_err("an empty key");
    changes.next().await.expect("it goes on");

    for (verb, outcome, verdict) in [
        ("Set", "done", "Applied"),
        ("Get", "found", "Applied"),
        ("Set", "not applied", "NotApplied"),
        ("VDel", "removed", "Applied"),
        ("Get", "absent", "Absent"),
    ] {
        let (verb, verdict) = (format!("verb={verb}"), format!("verdict={verdict}"));
        assert!(!log.with(&["span request", &verb, "key=\""]).is_empty(), "{verb}");
        let outcome = format!("outcome=\"{outcome}\"");
        let completed = log.with(&["DEBUG", "completed", &outcome, "elapsed_ms="]);
        assert_eq!(completed.len(), 1, "{outcome}: {completed:?}");
        let told = ["DEBUG", &verb, "client=\"c\"", "verified=true", &verdict, "elapsed_us="];
        assert!(!log.with(&told).is_empty(), "{told:?}");
    }
    assert_eq!(log.with(&["record", "id=RequestId("]).len(), 5, "one for each that was sent");
    assert_eq!(log.with(&["not accepted"]).len(), 1);
    assert_eq!(log.with(&["span request", "(500 bytes)"]).len(), 1, "long keys are cut");
    assert_eq!(log.with(&["secret"]), [""; 0]);
}
