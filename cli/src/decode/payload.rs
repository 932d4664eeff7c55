//! Requests, replies and notifications.

use statestore_proto::message::{
    Command, CommandKind, Condition, Notification, Reply, Scan, ScanReply, WordCase,
};

use super::{Message, Reading};
use crate::escape::one_line;

/// What belongs to a meaning.
type Fields = Vec<(&'static str, String)>;

impl Reading {
    pub(super) fn request(&self, bytes: &[u8]) -> Result<Message, String> {
        if let Ok(Scan { pattern, token }) = Scan::decode(bytes, WordCase::Any) {
            let mut message = Message::new("a request").with("verb", "SCAN");
            message.add("pattern", one_line(pattern));
            if let Some(token) = token {
                message.add("token", format!("{} bytes", token.len()));
            }
            return Ok(message);
        }
        let command = Command::decode(bytes).map_err(|error| format!("no request: {error}"))?;
        let mut message = Message::new("a request");
        match command {
            Command::Get { key } => {
                message.add("verb", "GET");
                message.add("key", one_line(key));
            }
            Command::Set { key, value, condition, expiry } => {
                message.add("verb", "SET");
                message.add("key", one_line(key));
                message.add("value", self.value(value));
                match condition {
                    Condition::Always => {}
                    Condition::IfAbsent => message.add("condition", "NX: if the key is absent"),
                    Condition::IfAbsentOrEqual => message
                        .add("condition", "NEX: if the key is absent or has this value already"),
                    Condition::IfAbsentOrEqualTo(operand) => message.add(
                        "condition",
                        format!(
                            "NEX: if the key is absent or has the value of {}",
                            self.value(operand.as_bytes())
                        ),
                    ),
                }
                if let Some(expiry) = expiry {
                    message.add("expires", format!("after {} ms", expiry.as_millis()));
                }
            }
            Command::Del { key } => {
                message.add("verb", "DEL");
                message.add("key", one_line(key));
            }
            Command::VDel { key, value } => {
                message.add("verb", "VDEL");
                message.add("key", one_line(key));
                message.add("if it has", self.value(value));
            }
            Command::Watch { key } => {
                message.add("verb", "KEYNOTIFY");
                message.add("key", one_line(key));
            }
            Command::Unwatch { key } => {
                message.add("verb", "KEYNOTIFY STOP");
                message.add("key", one_line(key));
            }
        }
        Ok(message)
    }

    /// After one command, or what it would mean after each.
    pub(super) fn reply(&self, bytes: &[u8]) -> Result<Message, String> {
        if let Some(kind) = self.after {
            let (meaning, rest) = self.meaning(bytes, kind)?;
            let mut message = Message::new("a reply").with("after", kind.to_string());
            message.add("means", meaning);
            message.fields.extend(rest);
            return Ok(message);
        }
        let mut message = Message::new("a reply");
        let mut last = None;
        let mut meanings: Vec<(String, Vec<String>, Fields)> = Vec::new();
        for kind in CommandKind::ALL {
            match self.meaning(bytes, *kind) {
                Ok((meaning, rest)) => {
                    match meanings.iter_mut().find(|(other, _, _)| *other == meaning) {
                        Some((_, kinds, _)) => kinds.push(kind.to_string()),
                        None => meanings.push((meaning, vec![kind.to_string()], rest)),
                    }
                }
                // What no reply is at all is said best by the furthest.
                Err(error) => last = Some(error),
            }
        }
        if meanings.is_empty() {
            return Err(last.unwrap_or_default());
        }
        for (meaning, kinds, rest) in meanings {
            let after = if kinds.len() == CommandKind::ALL.len() {
                "any command".to_owned()
            } else {
                kinds.join(", ")
            };
            message.add("means", format!("after {after}: {meaning}"));
            message.fields.extend(rest);
        }
        Ok(message)
    }

    fn meaning(&self, bytes: &[u8], kind: CommandKind) -> Result<(String, Fields), String> {
        if kind == CommandKind::Scan {
            let reply = ScanReply::decode(bytes).map_err(|error| format!("no reply: {error}"))?;
            return Ok(match reply {
                ScanReply::Error(error) => (refused(error.text()), Vec::new()),
                ScanReply::Page(page) => {
                    // A page of a megabyte has as many keys; whoever looks wants to see the first ones.
                    const SHOWN: usize = 1_000;
                    let mut rest: Vec<_> = page
                        .keys()
                        .take(SHOWN)
                        .map(|key| ("key", one_line(key).into_owned()))
                        .collect();
                    if page.len() > SHOWN {
                        rest.push(("keys", format!("{} more", page.len() - SHOWN)));
                    }
                    let token =
                        page.token().map(|token| ("token", format!("{} bytes", token.len())));
                    rest.extend(token);
                    let more = if page.token().is_some() { "there are more" } else { "the last" };
                    (format!("a page of {} keys, {more}", page.len()), rest)
                }
            });
        }
        let reply = Reply::decode(bytes, kind).map_err(|error| format!("no reply: {error}"))?;
        let meaning = match reply {
            Reply::Done => match kind {
                CommandKind::Watch => "registered",
                CommandKind::Unwatch => "not registered any more",
                _ => "stored",
            }
            .to_owned(),
            Reply::NotApplied => match kind {
                CommandKind::VDel => "not removed: the value is another",
                _ => "not stored: the condition does not hold",
            }
            .to_owned(),
            Reply::Value(value) => format!("the value: {}", self.value(value)),
            Reply::Absent => "no such key".to_owned(),
            Reply::Removed => "removed".to_owned(),
            Reply::NothingRemoved => "nothing removed: no such key".to_owned(),
            Reply::NotWatched => "it was not registered".to_owned(),
            Reply::Error(error) => refused(error.text()),
        };
        Ok((meaning, Vec::new()))
    }

    pub(super) fn notification(&self, bytes: &[u8]) -> Result<Message, String> {
        let notification =
            Notification::decode(bytes).map_err(|error| format!("no notification: {error}"))?;
        let message = Message::new("a notification");
        Ok(match notification {
            Notification::Set(value) => {
                message.with("change", "the key has a value").with("value", self.value(value))
            }
            Notification::Deleted => message.with("change", "the key is gone: deleted or expired"),
        })
    }
}

fn refused(text: &[u8]) -> String {
    format!("refused: {}", one_line(text))
}
