//! What goes to standard error: what commands say, and the log, in which what is said over and over is counted.
//!
//! A thread of its own writes it, so that nobody else waits for a reader that does not read, or ends with one that is gone.

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
use tracing_subscriber::filter::FilterExt;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt as log_fmt};

use crate::escape::on_one_line;
use crate::failure::Failure;

/// Lines that wait to be written; what comes beyond that is counted.
const WAITING_MAX: usize = 1_024;

/// How long the end of this process may wait for them.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// Lines of one kind in a [`SPELL`]: enough to see who and why.
const SAID_MAX: u32 = 10;

/// The time over which lines of one kind are counted.
const SPELL: Duration = Duration::from_secs(10);

/// Begins a log of this level, unless `STATESTORE_LOG` has another.
pub(crate) fn start(level: LevelFilter) -> Result<(), Failure> {
    let filter = EnvFilter::builder()
        .with_default_directive(level.into())
        .with_env_var("STATESTORE_LOG")
        .from_env()
        .map_err(|error| {
            Failure::bad_input(format_args!(
                "STATESTORE_LOG: {error}; write it like info, or statestore_tokio=debug"
            ))
        })?;
    // Whoever asks for more than the course of things is to see all of it.
    let is_limited = filter.max_level_hint().is_some_and(|level| level <= LevelFilter::INFO);
    let layer = log_fmt::layer()
        // The way to say them would be a panic where nobody reads.
        .log_internal_errors(false)
        .with_writer(Lines);
    let seldom = is_limited.then_some(Seldom);
    let log = tracing_subscriber::registry().with(layer.with_filter(filter.and(seldom)));
    log.try_init().map_err(Failure::system)
}

/// Puts a line, or several, on standard error some time soon.
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

/// Waits a moment for what was put.
pub(crate) fn flush() {
    let Some(Some(sink)) = SINK.get() else { return };
    let (done, is_done) = sync_channel(1);
    if sink.to_write.try_send(ToWrite::Mark(done)).is_ok() {
        let _ = is_done.recv_timeout(GOODBYE_MAX);
    }
}

/// `None` where there is no thread to be had.
static SINK: OnceLock<Option<Sink>> = OnceLock::new();

/// What was said lately, for each kind of line.
static SPELLS: Mutex<Vec<Spell>> = Mutex::new(Vec::new());

struct Sink {
    to_write: SyncSender<ToWrite>,
    unwritten: AtomicU64,
}

enum ToWrite {
    Text(String),
    /// Everything before it is written.
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
    // Nobody hears of it when nobody reads.
    let write = |text: &str| _ = io::stderr().write_all(text.as_bytes());
    loop {
        let end = lock(&SPELLS).iter().map(Spell::ends).min();
        let next = match end {
            Some(end) => waiting.recv_timeout(end.saturating_duration_since(now())),
            None => waiting.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match next {
            Ok(ToWrite::Text(text)) => write(&text),
            Ok(ToWrite::Mark(done)) => {
                end_spells(|_| true).iter().for_each(|text| write(text));
                let _ = done.try_send(());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = now();
        end_spells(|spell| spell.ends() <= now).iter().for_each(|text| write(text));
        let unwritten = SINK.get().and_then(Option::as_ref).map(|sink| &sink.unwritten);
        match unwritten.map_or(0, |unwritten| unwritten.swap(0, Ordering::Relaxed)) {
            0 => {}
            lines => write(&format!(
                "statestore: {lines} lines are missing here: nobody read them in time\n"
            )),
        }
    }
}

/// Forgets spells, and gives a line for each in which something was left out.
fn end_spells(is_over: impl Fn(&Spell) -> bool) -> Vec<String> {
    let over = lock(&SPELLS).extract_if(.., |spell| is_over(spell)).collect::<Vec<_>>();
    over.iter().filter(|spell| spell.left_out > 0).map(Spell::line).collect()
}

/// Lines of one kind: those of one place in the code.
struct Spell {
    of: callsite::Identifier,
    metadata: &'static Metadata<'static>,
    message: String,
    begun: Instant,
    said: u32,
    left_out: u64,
}

impl Spell {
    fn ends(&self) -> Instant {
        self.begun + SPELL
    }

    fn line(&self) -> String {
        let Self { metadata, message, left_out, .. } = self;
        let mut time = String::new();
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let (level, target, seconds) = (metadata.level(), metadata.target(), SPELL.as_secs());
        let line = format!(
            "{time} {level:>5} {target}: {message}; {left_out} more like this in {seconds} s"
        );
        on_one_line(&line) + "\n"
    }
}

/// Lets through warnings and worse as long as they are few.
struct Seldom;

impl<S: Subscriber> Filter<S> for Seldom {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        *metadata.level() > Level::WARN || is_said(event, metadata)
    }
}

fn is_said(event: &Event<'_>, metadata: &'static Metadata<'static>) -> bool {
    let mut spells = lock(&SPELLS);
    let of = metadata.callsite();
    if let Some(spell) = spells.iter_mut().find(|spell| spell.of == of) {
        let is_said = spell.said < SAID_MAX;
        if is_said {
            spell.said += 1
        } else {
            spell.left_out += 1
        }
        return is_said;
    }
    let mut message = Message(String::new());
    event.record(&mut message);
    let message = message.0;
    spells.push(Spell { of, metadata, message, begun: now(), said: 1, left_out: 0 });
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

/// Takes each event as one line.
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

#[expect(clippy::disallowed_methods, reason = "lines are counted by the time")]
fn now() -> Instant {
    Instant::now()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
