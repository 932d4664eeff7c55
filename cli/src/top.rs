//! A store on a screen: its keys, with the values as they change, and its numbers.

mod draw;
mod numbers;
mod state;
mod value;

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::DefaultTerminal;
use statestore_proto::client::{WatchEnd, WatchEvent};
use statestore_proto::hlc::{FencingToken, Hlc};
use statestore_tokio::{Error, Operand, Removal, StateStore, Status};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::args::{Common, Output, Top};
use crate::connection;
use crate::failure::Failure;
use crate::scrape::Url;
use crate::signals::Signals;
use state::{Action, Condition, KEYS_MAX, News, Screen, Write};

/// News that wait to be shown; who has more waits.
const NEWS_MAX: usize = 256;

/// Keys that were pressed and wait; of somebody who types faster, the rest waits with the terminal.
const PRESSED_MAX: usize = 64;

/// How often what changes with time alone is drawn, and numbers are asked for.
const TICK: Duration = Duration::from_millis(250);
const NUMBERS_EVERY: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: Top) -> Result<ExitCode, Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::bad_input(
            "top needs a terminal; `statestore keys`, `get` and `watch` print what it shows, and `serve --metrics` serves its \
             numbers",
        ));
    }
    let url = args.metrics.as_deref().map(Url::parse).transpose().map_err(Failure::bad_input)?;
    let mut signals = Signals::new()?.with_hangup()?;
    let Top { connection, pattern, timeout, .. } = args;
    let broker = connection.broker.join(",");
    let common = Common { connection, timeout, output: Output::Raw };
    let store = connection::silent_store(&common)?;
    let (news, mut heard) = mpsc::channel(NEWS_MAX);
    tokio::spawn(follow(store.clone(), news.clone()));
    if let Some(url) = url {
        tokio::spawn(ask_for_numbers(url, news.clone()));
    }
    let mut pressed = keyboard();
    let mut session = Session { store, news, listing: None, watch: None };
    let mut screen = Screen::new(pattern);
    let first = screen.list();
    session.act(first, &screen.pattern);
    // From here on whatever ends this, a panic as well, gives the terminal back.
    let mut terminal = Screened(ratatui::try_init().map_err(Failure::system)?);
    let mut tick = tokio::time::interval(TICK);
    loop {
        let drawn = terminal.0.draw(|frame| {
            draw::draw(frame, &mut screen, &broker, Instant::now().into_std());
        });
        drawn.map_err(Failure::output)?;
        let action = tokio::select! {
            key = pressed.recv() => match key {
                Some(Some(key)) => screen.key(key),
                // Its size has changed.
                Some(None) => None,
                // The terminal is gone.
                None => return Ok(ExitCode::SUCCESS),
            },
            Some(news) = heard.recv() => {
                screen.told(news, Instant::now().into_std());
                while let Ok(news) = heard.try_recv() {
                    screen.told(news, Instant::now().into_std());
                }
                screen.due()
            },
            _ = tick.tick() => None,
            _ = signals.received() => return Ok(ExitCode::SUCCESS),
        };
        match action {
            Some(Action::Quit) => break,
            Some(action) => session.act(action, &screen.pattern),
            None => {}
        }
    }
    drop(terminal);
    session.end().await;
    Ok(ExitCode::SUCCESS)
}

/// A terminal that is given back.
struct Screened(DefaultTerminal);

impl Drop for Screened {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Keys as they are pressed, and `None` where the terminal has another size; until the terminal is gone.
fn keyboard() -> mpsc::Receiver<Option<KeyEvent>> {
    let (sender, receiver) = mpsc::channel(PRESSED_MAX);
    // Reading blocks; the thread ends with the process, or with the terminal.
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let told = match event {
                Event::Key(key) if key.kind != KeyEventKind::Release => Some(key),
                Event::Resize(..) => None,
                _ => continue,
            };
            if sender.blocking_send(told).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Tells whether there is a connection.
async fn follow(store: StateStore, news: mpsc::Sender<News>) {
    let mut status = store.status();
    let mut now = Some(status.current());
    while let Some(current) = now {
        let told = match current {
            Status::Online => News::Online,
            other => News::Offline(other.reason().unwrap_or("connecting").to_owned()),
        };
        if news.send(told).await.is_err() {
            return;
        }
        now = status.changed().await;
    }
}

async fn ask_for_numbers(url: Url, news: mpsc::Sender<News>) {
    let mut every = tokio::time::interval(NUMBERS_EVERY);
    loop {
        every.tick().await;
        let numbers = News::Numbers(Box::new(numbers::fetch(&url).await));
        let traffic = News::Traffic(numbers::fetch_traffic(&url).await);
        if news.send(numbers).await.is_err() || news.send(traffic).await.is_err() {
            return;
        }
    }
}

/// What is under way with the store: one listing, one watch, and writes.
struct Session {
    store: StateStore,
    news: mpsc::Sender<News>,
    listing: Option<JoinHandle<()>>,
    watch: Option<JoinHandle<()>>,
}

impl Session {
    fn act(&mut self, action: Action, pattern: &str) {
        let (store, news) = (self.store.clone(), self.news.clone());
        match action {
            Action::List => {
                let listing = tokio::spawn(list(store, news, pattern.to_owned()));
                replace(&mut self.listing, listing);
            }
            Action::Watch(key) => {
                replace(&mut self.watch, tokio::spawn(watch(store, news, key)));
            }
            // Whoever presses keys does so one after the other.
            Action::Set(write) => _ = tokio::spawn(set(store, news, write)),
            Action::Remove(key, value, token) => {
                drop(tokio::spawn(remove(store, news, key, value, token)));
            }
            Action::Quit => {}
        }
    }

    async fn end(self) {
        [self.listing, self.watch].into_iter().flatten().for_each(|task| task.abort());
        self.store.shutdown().await;
    }
}

fn replace(place: &mut Option<JoinHandle<()>>, task: JoinHandle<()>) {
    if let Some(before) = place.replace(task) {
        before.abort();
    }
}

async fn list(store: StateStore, news: mpsc::Sender<News>, pattern: String) {
    let mut keys = store.scan(pattern);
    let mut count = 0;
    let failure = loop {
        match keys.next().await {
            // It keeps no more.
            Ok(Some(key)) if count <= KEYS_MAX => {
                count += 1;
                if news.send(News::Key(key)).await.is_err() {
                    return;
                }
            }
            Ok(_) => break None,
            Err(error) => break Some(crate::keys::failure(error, &store).to_string()),
        }
    };
    let _ = news.send(News::Listed(failure)).await;
}

async fn watch(store: StateStore, news: mpsc::Sender<News>, key: Bytes) {
    let mut watch = match store.watch(key.clone()).await {
        Ok(watch) => watch,
        Err(error) => {
            let reason = Failure::request(error, &store).to_string();
            return drop(news.send(News::Unwatched(key, reason)).await);
        }
    };
    while let Some(event) = watch.next().await {
        let told = match event {
            WatchEvent::Changed { value, version } => News::Changed(key.clone(), value, version),
            WatchEvent::Live => News::Live(key.clone()),
            WatchEvent::Gap => News::Gap(key.clone()),
            WatchEvent::Ended(WatchEnd::Refused(error)) => {
                News::Unwatched(key.clone(), Failure::refused(&error).to_string())
            }
            WatchEvent::Ended(_) => return,
        };
        if news.send(told).await.is_err() {
            return;
        }
    }
}

async fn set(store: StateStore, news: mpsc::Sender<News>, write: Write) {
    let outcome = async {
        let mut ask = store.set(write.key.clone(), write.value.clone());
        if let Some(token) = token(write.token.as_deref())? {
            ask = ask.fencing_token(token);
        }
        if let Some(expires) = write.expires {
            ask = ask.expires_after(expires);
        }
        let told = match &write.condition {
            Condition::Always => ask.await.map(Some),
            Condition::IfAbsent => ask.if_absent().await,
            Condition::IfStill(value) => match Operand::new(value.clone()) {
                Some(value) => ask.if_absent_or_equal_to(value).await,
                None => {
                    return Err(
                        "that value cannot be compared with: it is a word of SET".to_owned()
                    );
                }
            },
        };
        told.map_err(|error| refused(error, &store))
    };
    let outcome = outcome.await;
    let _ = news.send(News::Set(write, outcome)).await;
}

async fn remove(
    store: StateStore,
    news: mpsc::Sender<News>,
    key: Bytes,
    value: Bytes,
    fence: Option<String>,
) {
    let outcome = async {
        let mut ask = store.vdel(key.clone(), value);
        if let Some(token) = token(fence.as_deref())? {
            ask = ask.fencing_token(token);
        }
        match ask.await.map_err(|error| refused(error, &store))? {
            Removal::Removed => Ok("deleted".to_owned()),
            Removal::Absent => Ok("it has no value any more".to_owned()),
            Removal::Different => Ok("not deleted, it has another value by now".to_owned()),
        }
    };
    let outcome = outcome.await;
    let _ = news.send(News::Removed(key, outcome)).await;
}

fn refused(error: Error, store: &StateStore) -> String {
    Failure::request(error, store).to_string()
}

fn token(text: Option<&str>) -> Result<Option<FencingToken>, String> {
    let Some(text) = text else { return Ok(None) };
    let parsed = text.parse::<Hlc>().map(FencingToken::new);
    parsed.map(Some).map_err(|error| format!("fencing token: {error}; it is a version"))
}
