//! The log of faults. A thread writes it, so a blocked standard output does not delay connections.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use statestore_client::diagnostics::text::on_one_line;
use tokio::sync::oneshot;

use crate::output::{self, Error};

/// Maximum number of lines that wait for the writer. Further lines are dropped and counted.
const QUEUE_MAX: usize = 4_096;

/// Time limit of writing the rest of the log at the end.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
enum Line {
    /// For standard output.
    Fault(String),
    /// For standard error.
    Error(String),
}

#[derive(Debug, Default)]
struct Counts {
    faults: BTreeMap<&'static str, u64>,
    dropped_lines: u64,
}

/// A handle on the log.
#[derive(Clone, Debug)]
pub(super) struct Log {
    counts: Arc<Mutex<Counts>>,
    lines: Option<SyncSender<Line>>,
}

/// The thread that writes the log.
#[derive(Debug)]
pub(super) struct Writer(oneshot::Receiver<Result<(), Error>>);

impl Log {
    pub(super) fn start() -> (Self, Writer) {
        let (lines, queue) = sync_channel(QUEUE_MAX);
        let log = Self { counts: Arc::default(), lines: Some(lines) };
        let (finished, writer) = oneshot::channel();
        let counts = Arc::clone(&log.counts);
        thread::spawn(move || finished.send(write(&queue, &counts)));
        (log, Writer(writer))
    }

    /// A log that prints nothing.
    pub(super) fn none() -> Self {
        Self { counts: Arc::default(), lines: None }
    }

    /// Counts and prints a fault.
    pub(super) fn fault(&self, connection: u64, action: &'static str, about: &str) {
        self.update(|counts| *counts.faults.entry(action).or_default() += 1);
        self.push(Line::Fault(format!(
            "connection {connection}: {action} {}\n",
            on_one_line(about)
        )));
    }

    /// Prints an error.
    pub(super) fn report(&self, error: String) {
        self.push(Line::Error(error));
    }

    fn push(&self, line: Line) {
        if self.lines.as_ref().is_some_and(|lines| lines.try_send(line).is_err()) {
            self.update(|counts| counts.dropped_lines += 1);
        }
    }

    fn update(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Writes lines until the last [`Log`] is dropped, then the summary.
fn write(queue: &Receiver<Line>, counts: &Mutex<Counts>) -> Result<(), Error> {
    for line in queue {
        match line {
            // The proxy continues without a reader. The error is returned with the summary.
            Line::Fault(line) => _ = output::write(&line),
            Line::Error(error) => output::report(error),
        }
    }
    let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    let faults = counts.faults.iter().map(|(action, count)| format!("{action} {count}"));
    let faults = faults.collect::<Vec<_>>().join(", ");
    let faults = if faults.is_empty() { "none" } else { &faults };
    if counts.dropped_lines > 0 {
        output::write(&format!("{} lines were not printed\n", counts.dropped_lines))?;
    }
    output::write(&format!("faults: {faults}\n"))
}

impl Writer {
    /// Waits until the log is written.
    pub(super) async fn finish(self) -> Result<(), Error> {
        match tokio::time::timeout(FINISH_TIMEOUT, self.0).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err("the thread that writes the log has panicked".to_owned()),
            Err(_) => Err(format!("standard output: not read within {FINISH_TIMEOUT:?}")),
        }
    }
}
