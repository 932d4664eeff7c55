//! `top`: a terminal interface for the keys, values and metrics of a store.
//!
//! [`Screen`] is a machine without I/O: it receives key presses and [`Update`]s of the store, and
//! returns [`Action`]s, which this module carries out.

mod draw;
mod metrics;
mod state;
#[cfg(test)]
mod tests;
mod value;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::DefaultTerminal;
use statestore_proto::client::{WatchEnd, WatchEvent};
use statestore_proto::hlc::{FencingToken, Hlc};
use statestore_server::http::TrafficTable;
use statestore_tokio::{Error, Operand, Removal, StateStore, Status};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use self::metrics::Metrics;
use self::state::{Action, Condition, KEYS_MAX, Screen, Update, Write};
use self::value::Value;
use crate::args::{Common, Format, Top};
use crate::connection;
use crate::escape::on_one_line;
use crate::failure::Failure;
use crate::metrics_client::{MetricsUrl, Response};
use crate::signals::Signals;

/// Maximum number of queued updates. A task with further updates waits.
const UPDATES_MAX: usize = 256;

/// Interval at which the thread that reads keys checks whether the screen has ended.
const KEY_POLL: Duration = Duration::from_millis(100);

/// Interval of redrawing, for times that are displayed.
const TICK: Duration = Duration::from_millis(250);

/// Interval of fetching metrics.
const METRICS_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: Top) -> Result<ExitCode, Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::bad_input(
            "top: standard input or output is not a terminal; use `statestore keys`, `get` and \
             `watch`, and the metrics of `serve --metrics-listen`",
        ));
    }
    let url = args
        .metrics_url
        .as_deref()
        .map(MetricsUrl::parse)
        .transpose()
        .map_err(Failure::bad_input)?;
    let mut signals = Signals::new()?.with_hangup()?;
    let Top { connection, pattern, time_limit, .. } = args;
    let broker = connection.broker.join(",");
    let common = Common { connection, time_limit, format: Format::default() };
    let store = connection::silent_store(&common)?;
    let (updates, mut received) = mpsc::channel(UPDATES_MAX);
    tokio::spawn(follow_status(store.clone(), updates.clone()));
    if let Some(url) = url {
        tokio::spawn(fetch_metrics(url, updates.clone()));
    }
    let mut inputs = Inputs::new();
    let mut session = Session { store, updates, listing: None, watch: None };
    let mut screen = Screen::new(pattern);
    let first = screen.list();
    session.act(first, screen.pattern());
    // From here on the terminal is restored on every exit, including a panic.
    let mut terminal = RestoredTerminal(ratatui::try_init().map_err(Failure::system)?);
    let mut tick = tokio::time::interval(TICK);
    loop {
        let drawn = terminal.0.draw(|frame| {
            draw::draw(frame, &mut screen, &broker, Instant::now().into_std());
        });
        drawn.map_err(Failure::output)?;
        let action = tokio::select! {
            input = inputs.next() => {
                // Without input, the terminal was closed.
                let Some(Input { key, handled }) = input else { break };
                let action = key.and_then(|key| screen.key(key));
                if action == Some(Action::Quit) {
                    break;
                }
                let _ = handled.send(());
                action
            }
            Some(update) = received.recv() => {
                screen.update(update, Instant::now().into_std());
                while let Ok(update) = received.try_recv() {
                    screen.update(update, Instant::now().into_std());
                }
                screen.due_action()
            },
            _ = tick.tick() => None,
            _ = signals.received() => break,
        };
        match action {
            Some(Action::Quit) => break,
            Some(action) => session.act(action, screen.pattern()),
            None => {}
        }
    }
    // Further input is for the next program.
    drop((inputs, terminal));
    session.close().await;
    Ok(ExitCode::SUCCESS)
}

/// A terminal that is restored when this is dropped.
struct RestoredTerminal(DefaultTerminal);

impl Drop for RestoredTerminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Key presses from the terminal.
///
/// Once this is dropped, or an input was not [handled](Input::handled), nothing more is read. Input
/// that arrives after that is left to the next program.
struct Inputs {
    inputs: mpsc::Receiver<Input>,
    /// True while input is to be read. Input is read while this is locked.
    is_open: Arc<Mutex<bool>>,
}

/// One input.
struct Input {
    /// The key; `None` if the terminal was resized.
    key: Option<KeyEvent>,
    /// Sent when the next input may be read.
    handled: oneshot::Sender<()>,
}

impl Inputs {
    /// Starts to read.
    fn new() -> Self {
        let (sender, inputs) = mpsc::channel(1);
        let is_open = Arc::new(Mutex::new(true));
        let reads = Arc::clone(&is_open);
        // Reading blocks, so it has a thread. The thread ends with the screen or the terminal.
        std::thread::spawn(move || while let Some(()) = read_input(&sender, &reads) {});
        Self { inputs, is_open }
    }

    /// Returns the next input; `None` if the terminal was closed. Can be cancelled.
    async fn next(&mut self) -> Option<Input> {
        self.inputs.recv().await
    }
}

impl Drop for Inputs {
    fn drop(&mut self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

/// Reads at most one input and waits until it is handled. Returns `None` if no more is to be read.
fn read_input(sender: &mpsc::Sender<Input>, is_open: &Mutex<bool>) -> Option<()> {
    let is_ready = event::poll(KEY_POLL).ok()?;
    let event = {
        let is_open = is_open.lock().unwrap_or_else(PoisonError::into_inner);
        match (*is_open, is_ready) {
            (false, _) => return None,
            (true, false) => return Some(()),
            // Does not block, since an event is available.
            (true, true) => event::read().ok()?,
        }
    };
    let key = match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => Some(key),
        Event::Resize(..) => None,
        _ => return Some(()),
    };
    let (handled, is_handled) = oneshot::channel();
    sender.blocking_send(Input { key, handled }).ok()?;
    is_handled.blocking_recv().ok()
}

/// Reports the state of the connection.
async fn follow_status(store: StateStore, updates: mpsc::Sender<Update>) {
    let mut status = store.status();
    let mut next = Some(status.current());
    while let Some(current) = next {
        let update = match current {
            Status::Online => Update::Online,
            other => Update::Offline(
                other.reason().map_or_else(|| "connecting".to_owned(), ToString::to_string),
            ),
        };
        if updates.send(update).await.is_err() {
            return;
        }
        next = status.changed().await;
    }
}

async fn fetch_metrics(url: MetricsUrl, updates: mpsc::Sender<Update>) {
    let mut interval = tokio::time::interval(METRICS_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let metrics = Update::Metrics(Box::new(fetch_store_metrics(&url).await));
        let traffic = Update::Traffic(fetch_traffic(&url).await);
        if updates.send(metrics).await.is_err() || updates.send(traffic).await.is_err() {
            return;
        }
    }
}

/// Fetches the metrics.
async fn fetch_store_metrics(url: &MetricsUrl) -> Result<Metrics, String> {
    match url.fetch().await? {
        Response { code: 200, body } => {
            Metrics::parse(&body, Instant::now().into_std()).map_err(|error| url.error(error))
        }
        response => Err(url.unexpected(&response)),
    }
}

/// Fetches the traffic by client and key.
async fn fetch_traffic(url: &MetricsUrl) -> Result<TrafficTable, String> {
    match url.fetch_sibling("traffic").await? {
        Response { code: 200, body } => {
            TrafficTable::decode(&body).map_err(|error| url.error(on_one_line(&error)))
        }
        Response { code: 404, .. } => Err(
            "this store does not count traffic: start it with `serve --metrics-listen HOST:PORT \
             --traffic`"
                .to_owned(),
        ),
        response => Err(url.unexpected(&response)),
    }
}

/// The running requests: one listing, one watch, and writes.
struct Session {
    store: StateStore,
    updates: mpsc::Sender<Update>,
    listing: Option<JoinHandle<()>>,
    watch: Option<JoinHandle<()>>,
}

impl Session {
    fn act(&mut self, action: Action, pattern: &str) {
        let (store, updates) = (self.store.clone(), self.updates.clone());
        match action {
            Action::List => {
                let listing = tokio::spawn(list(store, updates, pattern.to_owned()));
                replace(&mut self.listing, listing);
            }
            Action::Watch(key) => {
                replace(&mut self.watch, tokio::spawn(watch(store, updates, key)));
            }
            // Writes are not limited: each needs a key press.
            Action::Set(write) => _ = tokio::spawn(set(store, updates, write)),
            Action::Remove(key, Value(value), token) => {
                drop(tokio::spawn(remove(store, updates, key, value, token)));
            }
            Action::Quit => {}
        }
    }

    async fn close(self) {
        [self.listing, self.watch].into_iter().flatten().for_each(|task| task.abort());
        self.store.shutdown().await;
    }
}

fn replace(place: &mut Option<JoinHandle<()>>, task: JoinHandle<()>) {
    if let Some(before) = place.replace(task) {
        before.abort();
    }
}

async fn list(store: StateStore, updates: mpsc::Sender<Update>, pattern: String) {
    let mut keys = store.scan(pattern);
    let mut count = 0;
    let failure = loop {
        match keys.next().await {
            // The screen keeps no more keys.
            Ok(Some(key)) if count <= KEYS_MAX => {
                count += 1;
                if updates.send(Update::Key(key)).await.is_err() {
                    return;
                }
            }
            Ok(_) => break None,
            Err(error) => break Some(crate::keys::failure(error).to_string()),
        }
    };
    let _ = updates.send(Update::Listed(failure)).await;
}

async fn watch(store: StateStore, updates: mpsc::Sender<Update>, key: Bytes) {
    let mut watch = match store.watch(key.clone()).await {
        Ok(watch) => watch,
        Err(error) => {
            let reason = Failure::request(error).to_string();
            return drop(updates.send(Update::Unwatched(key, reason)).await);
        }
    };
    while let Some(event) = watch.next().await {
        let update = match event {
            WatchEvent::Changed { value, version } => {
                Update::Changed(key.clone(), value.map(Value), version)
            }
            WatchEvent::Live => Update::Live(key.clone()),
            WatchEvent::Gap => Update::Gap(key.clone()),
            WatchEvent::Ended(WatchEnd::Refused(error)) => {
                Update::Unwatched(key.clone(), Failure::refused(&error).to_string())
            }
            WatchEvent::Ended(_) => return,
            _ => continue,
        };
        if updates.send(update).await.is_err() {
            return;
        }
    }
}

async fn set(store: StateStore, updates: mpsc::Sender<Update>, write: Write) {
    let outcome = async {
        let mut call = store.set(write.key.clone(), write.value.0.clone());
        if let Some(token) = parse_token(write.token.as_deref())? {
            call = call.fencing_token(token);
        }
        if let Some(expires) = write.expires {
            call = call.expires_after(expires);
        }
        let result = match &write.condition {
            Condition::Always => call.await.map(Some),
            Condition::IfAbsent => call.if_absent().await,
            Condition::IfUnchanged(Value(value)) => match Operand::new(value.clone()) {
                Some(value) => call.if_absent_or_equal_to(value).await,
                None => {
                    return Err(
                        "cannot be compared with this value: it is a keyword of SET".to_owned()
                    );
                }
            },
        };
        result.map_err(error_text)
    };
    let outcome = outcome.await;
    let _ = updates.send(Update::Set(write, outcome)).await;
}

async fn remove(
    store: StateStore,
    updates: mpsc::Sender<Update>,
    key: Bytes,
    value: Bytes,
    fence: Option<String>,
) {
    let outcome = async {
        let mut call = store.vdel(key.clone(), value);
        if let Some(token) = parse_token(fence.as_deref())? {
            call = call.fencing_token(token);
        }
        match call.await.map_err(error_text)? {
            Removal::Removed => Ok("deleted".to_owned()),
            Removal::NothingRemoved => Ok("the key no longer exists".to_owned()),
            Removal::NotApplied => Ok("not deleted: the value has changed".to_owned()),
        }
    };
    let outcome = outcome.await;
    let _ = updates.send(Update::Removed(key, outcome)).await;
}

fn error_text(error: Error) -> String {
    Failure::request(error).to_string()
}

fn parse_token(text: Option<&str>) -> Result<Option<FencingToken>, String> {
    let Some(text) = text else { return Ok(None) };
    let parsed = text.parse::<Hlc>().map(FencingToken::new);
    parsed
        .map(Some)
        .map_err(|error| format!("fencing token: {error}; a fencing token is a version"))
}
