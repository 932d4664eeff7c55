//! Standard error: messages of commands, and the log, in which repeated lines are counted.
//!
//! A thread writes them, so other threads neither wait for a slow reader nor fail at a closed one.

use std::env::VarError;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, callsite};
use tracing_subscriber::filter::{FilterExt, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt as log_fmt};

use crate::escape::on_one_line;
use crate::failure::Failure;

/// Lines that wait to be written. Further lines are counted.
const WAITING_MAX: usize = 1_024;

/// Maximum time that the end of this process waits for queued lines.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Lines of one kind in a [`PERIOD`].
const LINES_MAX: u32 = 10;

/// Period for which lines of one kind are counted.
const PERIOD: Duration = Duration::from_secs(10);

/// Starts the log with this level, unless `STATESTORE_LOG` sets another one.
pub(crate) fn start(level: LevelFilter) -> Result<(), Failure> {
    let filter = filter(level, &text_from_env()?)?;
    // Debug and trace are not limited.
    let is_limited = <Targets as Filter<Registry>>::max_level_hint(&filter)
        .is_some_and(|level| level <= LevelFilter::INFO);
    let layer = log_fmt::layer()
        // Printing them would panic if standard error is closed.
        .log_internal_errors(false)
        .with_writer(Lines);
    let rate_limit = is_limited.then_some(RateLimit);
    let log = tracing_subscriber::registry().with(layer.with_filter(filter.and(rate_limit)));
    log.try_init().map_err(Failure::system)
}

/// The value of `STATESTORE_LOG`; empty if it is not set.
#[expect(clippy::disallowed_methods, reason = "the log has no option on the command line")]
fn text_from_env() -> Result<String, Failure> {
    match std::env::var("STATESTORE_LOG") {
        Ok(text) => Ok(text),
        Err(VarError::NotPresent) => Ok(String::new()),
        Err(error @ VarError::NotUnicode(_)) => Err(invalid_filter(&error)),
    }
}

/// Parses directives that are separated by commas: `LEVEL` or `MODULE=LEVEL`.
fn filter(level: LevelFilter, text: &str) -> Result<Targets, Failure> {
    // A directive without a module replaces `level`. One with a module is added to it, so the
    // warnings of all other modules stay enabled.
    let mut directives = level.to_string();
    for directive in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        // A word that is not a level would be the name of a module at the level `trace`.
        if !directive.contains('=') && directive.parse::<LevelFilter>().is_err() {
            return Err(invalid_filter(&format_args!("{directive:?} is not a level")));
        }
        directives.push(',');
        directives.push_str(directive);
    }
    directives.parse().map_err(|error| invalid_filter(&error))
}

fn invalid_filter(error: &dyn fmt::Display) -> Failure {
    Failure::bad_input(format_args!(
        "STATESTORE_LOG: {error}; use error, warn, info, debug, or for example \
         statestore_tokio=debug"
    ))
}

/// Queues one or more lines for standard error.
pub(crate) fn put(mut text: String) {
    text.push('\n');
    let Some(sink) = sink() else {
        let _ = io::stderr().write_all(text.as_bytes());
        return;
    };
    if sink.to_write.try_send(ToWrite::Text(text)).is_err() {
        sink.unwritten.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until the queued lines are written, for at most a second.
pub(crate) fn flush() {
    let Some(Some(sink)) = SINK.get() else { return };
    let (done, is_done) = sync_channel(1);
    if sink.to_write.try_send(ToWrite::Mark(done)).is_ok() {
        let _ = is_done.recv_timeout(FLUSH_MAX);
    }
}

/// `None` if the thread could not be started.
static SINK: OnceLock<Option<Sink>> = OnceLock::new();

/// The current period of each kind of line.
static PERIODS: Mutex<Vec<Period>> = Mutex::new(Vec::new());

struct Sink {
    to_write: SyncSender<ToWrite>,
    unwritten: AtomicU64,
}

enum ToWrite {
    Text(String),
    /// Signals that all lines before it are written.
    Mark(SyncSender<()>),
}

fn sink() -> Option<&'static Sink> {
    let start = || {
        let (to_write, waiting) = sync_channel(WAITING_MAX);
        let thread = thread::Builder::new().name("stderr".to_owned());
        thread.spawn(move || write_all(&waiting)).ok()?;
        Some(Sink { to_write, unwritten: AtomicU64::new(0) })
    };
    SINK.get_or_init(start).as_ref()
}

fn write_all(waiting: &Receiver<ToWrite>) {
    // An error cannot be reported anywhere.
    let write = |text: &str| _ = io::stderr().write_all(text.as_bytes());
    loop {
        let end = lock(&PERIODS).iter().map(Period::ends).min();
        let next = match end {
            Some(end) => waiting.recv_timeout(end.saturating_duration_since(now())),
            None => waiting.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match next {
            Ok(ToWrite::Text(text)) => write(&text),
            Ok(ToWrite::Mark(done)) => {
                end_periods(|_| true).iter().for_each(|text| write(text));
                let _ = done.try_send(());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = now();
        end_periods(|period| period.ends() <= now).iter().for_each(|text| write(text));
        let unwritten = SINK.get().and_then(Option::as_ref).map(|sink| &sink.unwritten);
        match unwritten.map_or(0, |unwritten| unwritten.swap(0, Ordering::Relaxed)) {
            0 => {}
            lines => write(&format!(
                "statestore: {lines} lines were dropped: the reader of standard error is too slow\n"
            )),
        }
    }
}

/// Removes periods, and returns a line for each with omitted lines.
fn end_periods(is_over: impl Fn(&Period) -> bool) -> Vec<String> {
    let over = lock(&PERIODS).extract_if(.., |period| is_over(period)).collect::<Vec<_>>();
    over.iter().filter(|period| period.omitted > 0).map(Period::line).collect()
}

/// A period for lines of one kind: those of one place in the code.
struct Period {
    of: callsite::Identifier,
    metadata: &'static Metadata<'static>,
    message: String,
    start: Instant,
    written: u32,
    omitted: u64,
}

impl Period {
    fn ends(&self) -> Instant {
        self.start + PERIOD
    }

    fn line(&self) -> String {
        let Self { metadata, message, omitted, .. } = self;
        let mut time = String::new();
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let (level, target, seconds) = (metadata.level(), metadata.target(), PERIOD.as_secs());
        let line = format!(
            "{time} {level:>5} {target}: {message}; {omitted} more like this in {seconds} s"
        );
        on_one_line(&line) + "\n"
    }
}

/// Limits the rate of warnings and errors.
struct RateLimit;

impl<S: Subscriber> Filter<S> for RateLimit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        *metadata.level() > Level::WARN || is_written(event, metadata)
    }
}

fn is_written(event: &Event<'_>, metadata: &'static Metadata<'static>) -> bool {
    let mut periods = lock(&PERIODS);
    let of = metadata.callsite();
    if let Some(period) = periods.iter_mut().find(|period| period.of == of) {
        let is_written = period.written < LINES_MAX;
        if is_written {
            period.written += 1
        } else {
            period.omitted += 1
        }
        return is_written;
    }
    let mut message = Message(String::new());
    event.record(&mut message);
    let message = message.0;
    periods.push(Period { of, metadata, message, start: now(), written: 1, omitted: 0 });
    true
}

/// The text of an event without its fields.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// Writes each event as one line.
struct Lines;

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl Write for Lines {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        put(on_one_line(String::from_utf8_lossy(event).trim_end()));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "lines are counted per period")]
fn now() -> Instant {
    Instant::now()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
