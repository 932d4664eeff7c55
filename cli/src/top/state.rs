//! The state of the screen, and its changes by key presses and updates, without I/O and drawing.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use statestore_server::http::{ClientRow as Client, TrafficTable as Traffic};
use statestore_tokio::Version;
use statestore_tokio::diagnostics::text::{on_one_line, one_line};

use super::metrics::Metrics;
use super::value::{Format, Value, parse_edited, to_edit};

/// Maximum number of listed keys.
pub(crate) const KEYS_MAX: usize = 10_000;
/// Maximum number of bytes of listed keys.
pub(crate) const KEY_BYTES_MAX: usize = 1 << 20;

/// Maximum size in bytes of an edited value and of any other input line.
const INPUT_MAX: usize = 4 << 10;

/// Time for which a change is highlighted.
pub(crate) const HIGHLIGHT_TIME: Duration = Duration::from_secs(2);

/// The visible page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum View {
    #[default]
    Keys,
    Store,
    Traffic,
    Help,
}

/// A request to the store, or the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// List the keys of the pattern.
    List,
    /// Watch this key instead of the previous one.
    Watch(Bytes),
    /// Set a key.
    Set(Write),
    /// Remove a key if it has this value, with this fencing token.
    Remove(Bytes, Value, Option<String>),
    /// End the program.
    Quit,
}

/// A SET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// The key.
    pub(crate) key: Bytes,
    /// The value.
    pub(crate) value: Value,
    /// When to set it.
    pub(crate) condition: Condition,
    /// Expiry.
    pub(crate) expires: Option<Duration>,
    /// Fencing token as text.
    pub(crate) token: Option<String>,
}

/// Condition of a SET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Always.
    Always,
    /// If the key does not exist.
    IfAbsent,
    /// If the key has this value or does not exist.
    IfUnchanged(Value),
}

/// An update from the store or its metrics.
#[derive(Clone, Debug)]
pub(crate) enum Update {
    /// Connected.
    Online,
    /// Not connected, with the reason.
    Offline(String),
    /// A key of the listing.
    Key(Bytes),
    /// The listing is complete or has failed.
    Listed(Option<String>),
    /// The watched key has this value, with this version.
    Changed(Bytes, Option<Value>, Option<Version>),
    /// The watch of this key is live.
    Live(Bytes),
    /// The watch of this key may miss changes.
    Gap(Bytes),
    /// The watch has ended, with the reason.
    Unwatched(Bytes, String),
    /// The result of a write.
    Set(Write, Result<Option<Version>, String>),
    /// The result of a removal.
    Removed(Bytes, Result<String, String>),
    /// The metrics of the store.
    Metrics(Box<Result<Metrics, String>>),
    /// The busiest clients and keys.
    Traffic(Result<Traffic, String>),
}

/// The selected key.
#[derive(Debug)]
pub(crate) struct SelectedKey {
    pub(crate) key: Bytes,
    pub(crate) value: Option<Value>,
    pub(crate) version: Option<Version>,
    pub(crate) watch: WatchState,
    /// Number of changes since it was selected.
    pub(crate) changes: u64,
    pub(crate) changed: Option<Instant>,
    /// The last value that was set here.
    set: Option<OwnWrite>,
}

/// A value that was set here. Only for these are expiry and fencing token known.
#[derive(Debug)]
pub(crate) struct OwnWrite {
    version: Version,
    pub(crate) expires: Option<Instant>,
    pub(crate) token: Option<String>,
}

impl SelectedKey {
    /// Returns the write of the current value, if it was set here.
    pub(crate) fn own_write(&self) -> Option<&OwnWrite> {
        self.set.as_ref().filter(|set| Some(&set.version) == self.version.as_ref())
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchState {
    Registering,
    Live,
    Gap,
    Ended(String),
}

/// Descending order of clients and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    #[default]
    Rate,
    Requests,
    Refused,
    /// Clients by clock skew, keys by writes.
    Clock,
}

impl Order {
    const fn next(self) -> Self {
        match self {
            Self::Rate => Self::Requests,
            Self::Requests => Self::Refused,
            Self::Refused => Self::Clock,
            Self::Clock => Self::Rate,
        }
    }
}

/// An open prompt.
#[derive(Debug)]
pub(crate) enum Prompt {
    Pattern(String),
    Key(String),
    Value(Editor),
    /// Confirmation of a deletion.
    Delete,
}

/// The fields of a write.
#[derive(Default)]
pub(crate) struct Editor {
    pub(crate) key: Bytes,
    /// Value of the key when the editor was opened.
    original: Option<Value>,
    /// Value, expiry, token.
    pub(crate) fields: [String; 3],
    /// Index of the current field.
    pub(crate) field: usize,
    pub(crate) condition: usize,
}

/// Omits the input, which contains a value.
impl fmt::Debug for Editor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Editor").field("key", &self.key).finish_non_exhaustive()
    }
}

pub(crate) const FIELDS: [&str; 3] = ["value", "expires after", "fencing token"];
pub(crate) const CONDITIONS: [&str; 3] = ["always", "if absent", "if unchanged"];

/// The state of the screen.
///
/// It is bounded: 10,000 keys, 1 MiB of keys, and the value of one key.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    pub(crate) view: View,
    pub(crate) pattern: String,
    pub(crate) keys: BTreeSet<Bytes>,
    key_bytes: usize,
    /// Whether keys are missing because of the limits.
    pub(crate) is_truncated: bool,
    /// Result of the listing; `None` while it runs.
    pub(crate) listed: Option<Result<(), String>>,
    pub(crate) selected: Option<SelectedKey>,
    pub(crate) format: Format,
    pub(crate) scroll: usize,
    pub(crate) prompt: Option<Prompt>,
    /// The editor of a running SET. If the SET fails, it opens again with its input.
    submitted: Option<Editor>,
    /// Whether the listing is outdated, for example after a reconnect.
    is_stale: bool,
    /// Message in the last line.
    pub(crate) message: String,
    pub(crate) offline: Option<String>,
    pub(crate) metrics: Option<Result<Metrics, String>>,
    pub(crate) traffic: Option<Result<Traffic, String>>,
    order: Order,
    /// Number of visible keys.
    pub(crate) page: usize,
}

impl Screen {
    /// An empty screen for the keys of this pattern.
    pub(crate) fn new(pattern: String) -> Self {
        let offline = Some("connecting".to_owned());
        Self { pattern, offline, page: 10, ..Self::default() }
    }

    /// The pattern of the listed keys.
    pub(crate) fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Handles a key press.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Action::Quit);
        }
        if self.prompt.is_some() {
            return self.prompt_key(key);
        }
        // A key press dismisses the message.
        self.message.clear();
        match key.code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Esc => self.view = View::Keys,
            KeyCode::Char('1') => self.view = View::Keys,
            KeyCode::Char('2') => self.view = View::Store,
            KeyCode::Char('3') => self.view = View::Traffic,
            KeyCode::Tab => {
                self.view = match self.view {
                    View::Keys => View::Store,
                    View::Store => View::Traffic,
                    View::Traffic | View::Help => View::Keys,
                }
            }
            KeyCode::Char('s') if self.view == View::Traffic => {
                self.order = self.order.next();
                self.sort_traffic();
            }
            KeyCode::Char('?') => self.view = View::Help,
            _ if self.view == View::Keys => return self.keys_key(key.code),
            _ => {}
        }
        None
    }

    fn keys_key(&mut self, code: KeyCode) -> Option<Action> {
        let page = self.page.max(1);
        match code {
            KeyCode::Down | KeyCode::Char('j') => return self.select_by(1, true),
            KeyCode::Up | KeyCode::Char('k') => return self.select_by(1, false),
            KeyCode::PageDown => return self.select_by(page, true),
            KeyCode::PageUp => return self.select_by(page, false),
            KeyCode::Home => return self.select_by(usize::MAX, false),
            KeyCode::End => return self.select_by(usize::MAX, true),
            KeyCode::Char('r') => return Some(self.list()),
            KeyCode::Char('/') => self.prompt = Some(Prompt::Pattern(self.pattern.clone())),
            KeyCode::Char('g') => self.prompt = Some(Prompt::Key(String::new())),
            KeyCode::Char('v') => (self.format, self.scroll) = (self.format.next(), 0),
            KeyCode::Char('+') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Char('-') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Char('e') => self.edit(),
            KeyCode::Char('d') => match &self.selected {
                Some(SelectedKey { value: Some(_), .. }) => self.prompt = Some(Prompt::Delete),
                _ => "no value to delete".clone_into(&mut self.message),
            },
            _ => {}
        }
        None
    }

    /// Starts a listing.
    pub(crate) fn list(&mut self) -> Action {
        self.keys.clear();
        (self.key_bytes, self.is_truncated, self.listed) = (0, false, None);
        self.is_stale = false;
        Action::List
    }

    /// Selects the key that is `by` rows away, or the last one in that direction.
    fn select_by(&mut self, by: usize, is_forward: bool) -> Option<Action> {
        let current = self.selected.as_ref().map(|selected| selected.key.clone());
        let mut others: Box<dyn Iterator<Item = &Bytes>> = match (&current, is_forward) {
            (Some(current), true) => Box::new(self.keys.iter().filter(move |key| *key > current)),
            (Some(current), false) => {
                Box::new(self.keys.iter().rev().filter(move |key| *key < current))
            }
            (None, true) => Box::new(self.keys.iter()),
            (None, false) => Box::new(self.keys.iter().rev()),
        };
        let mut selected = None;
        for _ in 0..by {
            let Some(key) = others.next() else { break };
            selected = Some(key.clone());
        }
        drop(others);
        selected.map(|key| self.select(key))
    }

    /// Selects a key.
    fn select(&mut self, key: Bytes) -> Action {
        self.scroll = 0;
        self.selected = Some(SelectedKey {
            key: key.clone(),
            value: None,
            version: None,
            watch: WatchState::Registering,
            changes: 0,
            changed: None,
            set: None,
        });
        Action::Watch(key)
    }

    fn edit(&mut self) {
        let Some(selected) = &self.selected else {
            "select a key first, or press g to enter a name".clone_into(&mut self.message);
            return;
        };
        let value = selected.value.clone().unwrap_or_default();
        let text = to_edit(&value.0);
        if text.len() > INPUT_MAX {
            "values of more than 4 KiB cannot be edited here: use `statestore set --file`"
                .clone_into(&mut self.message);
            return;
        }
        // By default, a concurrent change of another client is not overwritten.
        let condition = if selected.value.is_some() { 2 } else { 1 };
        let token = selected.own_write().and_then(|set| set.token.clone()).unwrap_or_default();
        let fields = [text, String::new(), token];
        let (key, original) = (selected.key.clone(), selected.value.clone());
        self.prompt = Some(Prompt::Value(Editor { key, original, fields, field: 0, condition }));
    }

    fn prompt_key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.code == KeyCode::Esc {
            self.prompt = None;
            return None;
        }
        if key.code == KeyCode::Enter {
            return self.submit();
        }
        let line = match self.prompt.as_mut()? {
            Prompt::Pattern(line) | Prompt::Key(line) => line,
            Prompt::Delete => {
                let is_confirmed = key.code == KeyCode::Char('y');
                self.prompt = None;
                if !is_confirmed {
                    "not deleted".clone_into(&mut self.message);
                }
                return is_confirmed.then(|| self.remove()).flatten();
            }
            Prompt::Value(editor) => {
                match key.code {
                    KeyCode::Down => editor.field = (editor.field + 1) % FIELDS.len(),
                    KeyCode::Up => editor.field = (editor.field + FIELDS.len() - 1) % FIELDS.len(),
                    KeyCode::Tab => editor.condition = (editor.condition + 1) % CONDITIONS.len(),
                    _ => {}
                }
                editor.fields.get_mut(editor.field)?
            }
        };
        match key.code {
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => line.clear(),
            KeyCode::Char(char) if line.len() < INPUT_MAX => line.push(char),
            KeyCode::Backspace => _ = line.pop(),
            _ => {}
        }
        None
    }

    /// Accepts the input of the prompt.
    fn submit(&mut self) -> Option<Action> {
        match self.prompt.take()? {
            Prompt::Pattern(pattern) => {
                self.pattern = pattern;
                Some(self.list())
            }
            Prompt::Key(key) if key.is_empty() => None,
            Prompt::Key(key) => match parse_edited(&key) {
                Ok(key) => Some(self.select(key.into())),
                Err(error) => {
                    self.message = error;
                    None
                }
            },
            Prompt::Delete => {
                "not deleted".clone_into(&mut self.message);
                None
            }
            Prompt::Value(editor) => match parse_editor(&editor) {
                Ok(write) => {
                    self.submitted = Some(editor);
                    Some(Action::Set(write))
                }
                Err(error) => {
                    self.message = error;
                    self.prompt = Some(Prompt::Value(editor));
                    None
                }
            },
        }
    }

    fn remove(&self) -> Option<Action> {
        let selected = self.selected.as_ref()?;
        let token = selected.own_write().and_then(|set| set.token.clone());
        Some(Action::Remove(selected.key.clone(), selected.value.clone()?, token))
    }

    /// Returns the action that is due after a reconnect.
    pub(crate) fn due_action(&mut self) -> Option<Action> {
        let is_due = self.offline.is_none() && self.listed.is_some() && self.is_stale;
        is_due.then(|| self.list())
    }

    /// Handles an update.
    pub(crate) fn update(&mut self, update: Update, now: Instant) {
        match update {
            Update::Online => self.offline = None,
            Update::Offline(reason) => {
                self.is_stale |= self.offline.is_none();
                self.offline = Some(on_one_line(&reason));
            }
            Update::Key(key) => self.insert_key(&key),
            Update::Listed(failure) => self.listed = Some(failure.map_or(Ok(()), Err)),
            Update::Changed(key, value, version) => {
                let Some(selected) = self.selected_mut(&key) else { return };
                if selected.watch != WatchState::Registering {
                    (selected.changes, selected.changed) = (selected.changes + 1, Some(now));
                }
                let exists = value.is_some();
                (selected.value, selected.version) = (value, version);
                if exists {
                    self.insert_key(&key);
                } else if self.keys.remove(&key) {
                    self.key_bytes -= key.len();
                }
            }
            Update::Live(key) => self.set_watch_state(&key, WatchState::Live),
            Update::Gap(key) => self.set_watch_state(&key, WatchState::Gap),
            Update::Unwatched(key, reason) => self.set_watch_state(&key, WatchState::Ended(reason)),
            Update::Set(write, outcome) => self.finish_set(write, outcome, now),
            Update::Removed(key, outcome) => {
                let outcome = outcome.unwrap_or_else(|error| error);
                self.message = format!("{}: {outcome}", one_line(&key));
            }
            Update::Metrics(metrics) => match *metrics {
                Ok(mut next) => {
                    if let Some(Ok(before)) = self.metrics.take() {
                        next.set_previous(before);
                    }
                    self.metrics = Some(Ok(next));
                }
                Err(error) => self.metrics = Some(Err(error)),
            },
            Update::Traffic(traffic) => {
                self.traffic = Some(traffic);
                self.sort_traffic();
            }
        }
    }

    /// Sorts clients and keys. Equal rows keep their order.
    fn sort_traffic(&mut self) {
        let order = self.order;
        let Some(Ok(Traffic { clients, keys, .. })) = &mut self.traffic else { return };
        clients.sort_by(|one, other| match order {
            Order::Rate => other.per_second.total_cmp(&one.per_second),
            Order::Requests => other.requests.cmp(&one.requests),
            Order::Refused => other.refused.cmp(&one.refused),
            Order::Clock => {
                let skew = |client: &Client| client.ahead_ms.map(i64::unsigned_abs);
                skew(other).cmp(&skew(one))
            }
        });
        keys.sort_by(|one, other| match order {
            Order::Rate => other.per_second.total_cmp(&one.per_second),
            Order::Requests => other.requests.cmp(&one.requests),
            Order::Refused => other.refused.cmp(&one.refused),
            Order::Clock => other.writes.cmp(&one.writes),
        });
    }

    /// Returns the names of the orders of clients and keys.
    pub(crate) const fn order_names(&self) -> (&'static str, &'static str) {
        match self.order {
            Order::Rate => ("requests per second", "requests per second"),
            Order::Requests => ("requests", "requests"),
            Order::Refused => ("refusals", "refusals"),
            Order::Clock => ("clock", "writes"),
        }
    }

    /// Adds a key to the list. The key is copied, since it may be a part of a large page, which
    /// would stay in memory.
    fn insert_key(&mut self, key: &[u8]) {
        if self.keys.contains(key) {
            return;
        }
        if self.keys.len() >= KEYS_MAX || self.key_bytes + key.len() > KEY_BYTES_MAX {
            self.is_truncated = true;
            return;
        }
        self.key_bytes += key.len();
        self.keys.insert(Bytes::copy_from_slice(key));
    }

    fn selected_mut(&mut self, key: &Bytes) -> Option<&mut SelectedKey> {
        self.selected.as_mut().filter(|selected| selected.key == *key)
    }

    fn set_watch_state(&mut self, key: &Bytes, state: WatchState) {
        if let Some(selected) = self.selected_mut(key) {
            selected.watch = state;
        }
    }

    fn finish_set(&mut self, write: Write, outcome: Result<Option<Version>, String>, now: Instant) {
        let key = one_line(&write.key).into_owned();
        let editor = self.submitted.take();
        if !matches!(outcome, Ok(Some(_))) && self.prompt.is_none() {
            self.prompt = editor.map(Prompt::Value);
        }
        match outcome {
            Ok(Some(version)) => {
                self.message = format!("{key}: set");
                if let Some(selected) = self.selected_mut(&write.key) {
                    let expires = write.expires.and_then(|after| now.checked_add(after));
                    selected.set = Some(OwnWrite { version, expires, token: write.token });
                }
            }
            Ok(None) => {
                let why = match write.condition {
                    Condition::IfAbsent => "the key exists",
                    _ => "the value has changed",
                };
                self.message = format!("{key}: not set: {why}");
            }
            Err(error) => self.message = format!("{key}: {error}"),
        }
    }
}

/// Parses the fields of an editor.
fn parse_editor(editor: &Editor) -> Result<Write, String> {
    let [value, expires, token] = &editor.fields;
    let expires = match expires.trim() {
        "" => None,
        text => {
            let parsed = humantime::parse_duration(text);
            Some(parsed.map_err(|_| "expires after: write it like 500ms or 3s")?)
        }
    };
    Ok(Write {
        key: editor.key.clone(),
        value: parse_edited(value)?.into(),
        condition: match (editor.condition, &editor.original) {
            (0, _) => Condition::Always,
            (2, Some(original)) => Condition::IfUnchanged(original.clone()),
            _ => Condition::IfAbsent,
        },
        expires,
        token: Some(token.trim().to_owned()).filter(|token| !token.is_empty()),
    })
}
