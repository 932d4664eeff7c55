//! Log output of the packages, recorded for tests.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::rc::Rc;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Event, Metadata, Subscriber};

thread_local! {
    static RECORDED: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

type Lines = Rc<RefCell<Vec<String>>>;

/// All log output of this thread, a line for each span, record and event.
#[derive(Clone, Debug)]
pub struct Log(Lines);

impl Log {
    /// Records the log of this thread from now on.
    #[must_use]
    pub fn listen() -> Self {
        // The subscriber is global: with several subscribers of single threads, tracing does not
        // call all of them reliably.
        let _ = set_global_default(Forwarder);
        let log = Self(Lines::default());
        RECORDED.set(Some(Rc::clone(&log.0)));
        log
    }

    /// Returns the lines that contain all of these words.
    #[must_use]
    pub fn with(&self, words: &[&str]) -> Vec<String> {
        let holds = |line: &&String| words.iter().all(|word| line.contains(word));
        self.0.borrow().iter().filter(holds).cloned().collect()
    }
}

/// Forwards to the log of each thread.
struct Forwarder;

fn write(what: String, fields: impl FnOnce(&mut Line)) {
    let Some(lines) = RECORDED.with_borrow(Option::clone) else { return };
    let mut line = Line(what);
    fields(&mut line);
    lines.borrow_mut().push(line.0);
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Forwarder {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("statestore") && RECORDED.with_borrow(Option::is_some)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        write(format!("span {}", span.metadata().name()), |line| span.record(line));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        write("record".into(), |line| values.record(line));
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let what = format!("{} {}", metadata.level(), metadata.target());
        write(what, |line| event.record(line));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
