//! What the screen shows, and what keys and news make of it. Nothing here waits or draws.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use statestore_tokio::Version;

use super::numbers::Numbers;
use super::value::{Form, edited, to_edit};
use crate::escape::{on_one_line, one_line};
use crate::traffic::{Client, Traffic};

/// Keys that are listed at most, and their bytes: what somebody looks through, and what this may keep.
pub(super) const KEYS_MAX: usize = 10_000;
pub(super) const KEY_BYTES_MAX: usize = 1 << 20;

/// Bytes of a value that is edited, and of any other line that is typed.
const EDITED_MAX: usize = 4 << 10;

/// For how long a change is marked.
pub(super) const MARKED: Duration = Duration::from_secs(2);

/// What is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum View {
    #[default]
    Keys,
    Store,
    Traffic,
    Help,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// List the keys of the pattern anew.
    List,
    /// Watch this key, and none before.
    Watch(Bytes),
    Set(Write),
    /// Remove a key if it has this value, with this token.
    Remove(Bytes, Bytes, Option<String>),
    Quit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) key: Bytes,
    pub(super) value: Bytes,
    pub(super) condition: Condition,
    pub(super) expires: Option<Duration>,
    pub(super) token: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Always,
    IfAbsent,
    /// If it has this value, or none.
    IfStill(Bytes),
}

/// What was heard.
#[derive(Clone, Debug)]
pub(super) enum News {
    Online,
    Offline(String),
    /// A key of the listing.
    Key(Bytes),
    /// All are there; or why not.
    Listed(Option<String>),
    /// What the watch of a key says.
    Changed(Bytes, Option<Bytes>, Option<Version>),
    Live(Bytes),
    Gap(Bytes),
    /// The watch is over, and why.
    Unwatched(Bytes, String),
    /// What came of a write.
    Set(Write, Result<Option<Version>, String>),
    Removed(Bytes, Result<String, String>),
    Numbers(Box<Result<Numbers, String>>),
    Traffic(Result<Traffic, String>),
}

/// The key that is chosen.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) key: Bytes,
    pub(super) value: Option<Bytes>,
    pub(super) version: Option<Version>,
    pub(super) standing: Standing,
    /// Changes seen since it was chosen.
    pub(super) changes: u64,
    pub(super) changed: Option<Instant>,
    /// What was set here last.
    set: Option<SetHere>,
}

/// Of a value that was set here more is known than the protocol tells.
#[derive(Debug)]
pub(super) struct SetHere {
    version: Version,
    pub(super) expires: Option<Instant>,
    pub(super) token: Option<String>,
}

impl Shown {
    /// What is known of the value, if it was set here.
    pub(super) fn set_here(&self) -> Option<&SetHere> {
        self.set.as_ref().filter(|set| Some(&set.version) == self.version.as_ref())
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Asked,
    Live,
    Gap,
    Over(String),
}

/// By what clients and keys are ordered, most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Rate,
    Requests,
    Refused,
    /// How far a clock is off; keys by what was written.
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

/// A line that is being typed.
#[derive(Debug)]
pub(super) enum Typing {
    Pattern(String),
    Key(String),
    Value(Editor),
    /// Whether to delete what is shown.
    Deletes,
}

/// The fields of a write.
#[derive(Debug, Default)]
pub(super) struct Editor {
    pub(super) key: Bytes,
    /// What was there when it was opened.
    was: Option<Bytes>,
    /// Value, expiry, token.
    pub(super) fields: [String; 3],
    pub(super) at: usize,
    pub(super) condition: usize,
}

pub(super) const FIELDS: [&str; 3] = ["value", "expires after", "fencing token"];
pub(super) const CONDITIONS: [&str; 3] =
    ["always", "if absent", "if nobody has changed it meanwhile"];

#[derive(Debug, Default)]
pub(super) struct Screen {
    pub(super) view: View,
    pub(super) pattern: String,
    pub(super) keys: BTreeSet<Bytes>,
    key_bytes: usize,
    /// Whether there are more than are kept.
    pub(super) is_cut: bool,
    /// Whether all keys are there; why not, if there is a reason.
    pub(super) listed: Option<Result<(), String>>,
    pub(super) shown: Option<Shown>,
    pub(super) form: Form,
    pub(super) scroll: usize,
    pub(super) typing: Option<Typing>,
    /// What was sent to be set, until that is done: who typed it shall not lose it.
    sent: Option<Editor>,
    /// Whether the keys are to be listed, since the store may have others.
    is_stale: bool,
    /// What was said last.
    pub(super) said: String,
    pub(super) offline: Option<String>,
    pub(super) numbers: Option<Result<Numbers, String>>,
    pub(super) traffic: Option<Result<Traffic, String>>,
    order: Order,
    /// Lines of keys on the screen.
    pub(super) page: usize,
}

impl Screen {
    pub(super) fn new(pattern: String) -> Self {
        let offline = Some("connecting".to_owned());
        Self { pattern, offline, page: 10, ..Self::default() }
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Action::Quit);
        }
        if self.typing.is_some() {
            return self.type_key(key);
        }
        // It was read by now.
        self.said.clear();
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
            KeyCode::Down | KeyCode::Char('j') => return self.choose(1, true),
            KeyCode::Up | KeyCode::Char('k') => return self.choose(1, false),
            KeyCode::PageDown => return self.choose(page, true),
            KeyCode::PageUp => return self.choose(page, false),
            KeyCode::Home => return self.choose(usize::MAX, false),
            KeyCode::End => return self.choose(usize::MAX, true),
            KeyCode::Char('r') => return Some(self.list()),
            KeyCode::Char('/') => self.typing = Some(Typing::Pattern(self.pattern.clone())),
            KeyCode::Char('g') => self.typing = Some(Typing::Key(String::new())),
            KeyCode::Char('v') => (self.form, self.scroll) = (self.form.next(), 0),
            KeyCode::Char('+') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Char('-') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Char('e') => self.edit(),
            KeyCode::Char('d') => match &self.shown {
                Some(Shown { value: Some(_), .. }) => self.typing = Some(Typing::Deletes),
                _ => "there is nothing to delete".clone_into(&mut self.said),
            },
            _ => {}
        }
        None
    }

    /// Begins a listing.
    pub(super) fn list(&mut self) -> Action {
        self.keys.clear();
        (self.key_bytes, self.is_cut, self.listed) = (0, false, None);
        self.is_stale = false;
        Action::List
    }

    /// The key so many places on.
    fn choose(&mut self, by: usize, is_on: bool) -> Option<Action> {
        let now = self.shown.as_ref().map(|shown| shown.key.clone());
        let mut others: Box<dyn Iterator<Item = &Bytes>> = match (&now, is_on) {
            (Some(now), true) => Box::new(self.keys.iter().filter(move |key| *key > now)),
            (Some(now), false) => Box::new(self.keys.iter().rev().filter(move |key| *key < now)),
            (None, true) => Box::new(self.keys.iter()),
            (None, false) => Box::new(self.keys.iter().rev()),
        };
        let mut chosen = None;
        for _ in 0..by {
            let Some(key) = others.next() else { break };
            chosen = Some(key.clone());
        }
        drop(others);
        chosen.map(|key| self.show(key))
    }

    /// Shows a key.
    fn show(&mut self, key: Bytes) -> Action {
        self.scroll = 0;
        self.shown = Some(Shown {
            key: key.clone(),
            value: None,
            version: None,
            standing: Standing::Asked,
            changes: 0,
            changed: None,
            set: None,
        });
        Action::Watch(key)
    }

    fn edit(&mut self) {
        let Some(shown) = &self.shown else {
            "choose a key first, or name one with g".clone_into(&mut self.said);
            return;
        };
        let value = shown.value.clone().unwrap_or_default();
        let text = to_edit(&value);
        if text.len() > EDITED_MAX {
            "a value of more than 4 KiB is not edited here: statestore set --file sets it"
                .clone_into(&mut self.said);
            return;
        }
        // What others have written meanwhile stays, unless it is asked for.
        let condition = if shown.value.is_some() { 2 } else { 1 };
        let token = shown.set_here().and_then(|set| set.token.clone()).unwrap_or_default();
        let fields = [text, String::new(), token];
        let (key, was) = (shown.key.clone(), shown.value.clone());
        self.typing = Some(Typing::Value(Editor { key, was, fields, at: 0, condition }));
    }

    fn type_key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.code == KeyCode::Esc {
            self.typing = None;
            return None;
        }
        if key.code == KeyCode::Enter {
            return self.typed();
        }
        let line = match self.typing.as_mut()? {
            Typing::Pattern(line) | Typing::Key(line) => line,
            Typing::Deletes => {
                let is_meant = key.code == KeyCode::Char('y');
                self.typing = None;
                if !is_meant {
                    "not deleted".clone_into(&mut self.said);
                }
                return is_meant.then(|| self.remove()).flatten();
            }
            Typing::Value(form) => {
                match key.code {
                    KeyCode::Down => form.at = (form.at + 1) % FIELDS.len(),
                    KeyCode::Up => form.at = (form.at + FIELDS.len() - 1) % FIELDS.len(),
                    KeyCode::Tab => form.condition = (form.condition + 1) % CONDITIONS.len(),
                    _ => {}
                }
                form.fields.get_mut(form.at)?
            }
        };
        match key.code {
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => line.clear(),
            KeyCode::Char(char) if line.len() < EDITED_MAX => line.push(char),
            KeyCode::Backspace => _ = line.pop(),
            _ => {}
        }
        None
    }

    /// What was typed is to be done.
    fn typed(&mut self) -> Option<Action> {
        match self.typing.take()? {
            Typing::Pattern(pattern) => {
                self.pattern = pattern;
                Some(self.list())
            }
            Typing::Key(key) if key.is_empty() => None,
            Typing::Key(key) => match edited(&key) {
                Ok(key) => Some(self.show(key.into())),
                Err(error) => {
                    self.said = error;
                    None
                }
            },
            Typing::Deletes => {
                "not deleted".clone_into(&mut self.said);
                None
            }
            Typing::Value(form) => match write_of(&form) {
                Ok(write) => {
                    self.sent = Some(form);
                    Some(Action::Set(write))
                }
                Err(error) => {
                    self.said = error;
                    self.typing = Some(Typing::Value(form));
                    None
                }
            },
        }
    }

    fn remove(&self) -> Option<Action> {
        let shown = self.shown.as_ref()?;
        let token = shown.set_here().and_then(|set| set.token.clone());
        Some(Action::Remove(shown.key.clone(), shown.value.clone()?, token))
    }

    /// What is to be done since there is a connection again.
    pub(super) fn due(&mut self) -> Option<Action> {
        let is_due = self.offline.is_none() && self.listed.is_some() && self.is_stale;
        is_due.then(|| self.list())
    }

    pub(super) fn told(&mut self, news: News, now: Instant) {
        match news {
            News::Online => self.offline = None,
            News::Offline(reason) => {
                self.is_stale |= self.offline.is_none();
                self.offline = Some(on_one_line(&reason));
            }
            News::Key(key) => self.listed_key(key),
            News::Listed(failure) => self.listed = Some(failure.map_or(Ok(()), Err)),
            News::Changed(key, value, version) => {
                let Some(shown) = self.shown_as(&key) else { return };
                if shown.standing != Standing::Asked {
                    (shown.changes, shown.changed) = (shown.changes + 1, Some(now));
                }
                let is_there = value.is_some();
                (shown.value, shown.version) = (value, version);
                match is_there {
                    true => self.listed_key(key),
                    false => _ = self.keys.remove(&key),
                }
            }
            News::Live(key) => self.stands(&key, Standing::Live),
            News::Gap(key) => self.stands(&key, Standing::Gap),
            News::Unwatched(key, reason) => self.stands(&key, Standing::Over(reason)),
            News::Set(write, outcome) => self.was_set(write, outcome, now),
            News::Removed(key, outcome) => {
                let outcome = outcome.unwrap_or_else(|error| error);
                self.said = format!("{}: {outcome}", one_line(&key));
            }
            News::Numbers(numbers) => match *numbers {
                Ok(mut next) => {
                    if let Some(Ok(before)) = self.numbers.take() {
                        next.since(before);
                    }
                    self.numbers = Some(Ok(next));
                }
                Err(error) => self.numbers = Some(Err(error)),
            },
            News::Traffic(traffic) => {
                self.traffic = Some(traffic);
                self.sort_traffic();
            }
        }
    }

    /// What is in one row with others comes as it was.
    fn sort_traffic(&mut self) {
        let order = self.order;
        let Some(Ok(Traffic { clients, keys })) = &mut self.traffic else { return };
        clients.sort_by(|one, other| match order {
            Order::Rate => other.per_second.total_cmp(&one.per_second),
            Order::Requests => other.requests.cmp(&one.requests),
            Order::Refused => other.refused.cmp(&one.refused),
            Order::Clock => {
                let off = |client: &Client| client.ahead_ms.map(i64::unsigned_abs);
                off(other).cmp(&off(one))
            }
        });
        keys.sort_by(|one, other| match order {
            Order::Rate => other.per_second.total_cmp(&one.per_second),
            Order::Requests => other.requests.cmp(&one.requests),
            Order::Refused => other.refused.cmp(&one.refused),
            Order::Clock => other.writes.cmp(&one.writes),
        });
    }

    /// By what clients are ordered, and keys.
    pub(super) const fn ordered_by(&self) -> (&'static str, &'static str) {
        match self.order {
            Order::Rate => ("requests a second", "requests a second"),
            Order::Requests => ("requests", "requests"),
            Order::Refused => ("refusals", "refusals"),
            Order::Clock => ("clock", "writes"),
        }
    }

    fn listed_key(&mut self, key: Bytes) {
        if self.keys.len() >= KEYS_MAX || self.key_bytes + key.len() > KEY_BYTES_MAX {
            self.is_cut = true;
            return;
        }
        let len = key.len();
        if self.keys.insert(key) {
            self.key_bytes += len;
        }
    }

    fn shown_as(&mut self, key: &Bytes) -> Option<&mut Shown> {
        self.shown.as_mut().filter(|shown| shown.key == *key)
    }

    fn stands(&mut self, key: &Bytes, standing: Standing) {
        if let Some(shown) = self.shown_as(key) {
            shown.standing = standing;
        }
    }

    fn was_set(&mut self, write: Write, outcome: Result<Option<Version>, String>, now: Instant) {
        let key = one_line(&write.key).into_owned();
        let sent = self.sent.take();
        if !matches!(outcome, Ok(Some(_))) && self.typing.is_none() {
            self.typing = sent.map(Typing::Value);
        }
        match outcome {
            Ok(Some(version)) => {
                self.said = format!("{key}: set");
                if let Some(shown) = self.shown_as(&write.key) {
                    let expires = write.expires.and_then(|after| now.checked_add(after));
                    shown.set = Some(SetHere { version, expires, token: write.token });
                }
            }
            Ok(None) => {
                let why = match write.condition {
                    Condition::IfAbsent => "there is a value",
                    _ => "it has another value by now",
                };
                self.said = format!("{key}: not set, {why}");
            }
            Err(error) => self.said = format!("{key}: {error}"),
        }
    }
}

/// What an editor says.
fn write_of(form: &Editor) -> Result<Write, String> {
    let [value, expires, token] = &form.fields;
    let expires = match expires.trim() {
        "" => None,
        text => {
            let parsed = humantime::parse_duration(text);
            Some(parsed.map_err(|_| "expires after: write it like 500ms or 3s")?)
        }
    };
    Ok(Write {
        key: form.key.clone(),
        value: edited(value)?.into(),
        condition: match (form.condition, &form.was) {
            (0, _) => Condition::Always,
            (2, Some(was)) => Condition::IfStill(was.clone()),
            _ => Condition::IfAbsent,
        },
        expires,
        token: Some(token.trim().to_owned()).filter(|token| !token.is_empty()),
    })
}
