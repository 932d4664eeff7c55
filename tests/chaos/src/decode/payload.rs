//! Requests, replies and notifications.

use statestore_client::diagnostics::text::one_line;
use statestore_proto::message::{
    Command, Condition, Notification, Reply, RequestKind, RequestPayload, Response, Scan,
};

use super::{Decoder, Message};

/// Fields that belong to a meaning.
type Fields = Vec<(&'static str, String)>;

impl Decoder {
    pub(super) fn request(&self, bytes: &[u8]) -> Result<Message, String> {
        let request =
            RequestPayload::decode(bytes).map_err(|error| format!("not a request: {error}"))?;
        let mut message = Message::new("a request");
        let command = match request {
            RequestPayload::Command(command) => command,
            RequestPayload::Scan(Scan { pattern, token }) => {
                message.add("verb", "SCAN");
                message.add("pattern", one_line(pattern));
                if let Some(token) = token {
                    message.add("token", format!("{} bytes", token.len()));
                }
                return Ok(message);
            }
            request => return Err(format!("unknown kind of request: {}", request.kind())),
        };
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

    /// Decodes a reply to a known command, or lists its meaning for each command.
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
        for kind in RequestKind::ALL {
            match self.meaning(bytes, *kind) {
                Ok((meaning, rest)) => {
                    match meanings.iter_mut().find(|(other, _, _)| *other == meaning) {
                        Some((_, kinds, _)) => kinds.push(kind.to_string()),
                        None => meanings.push((meaning, vec![kind.to_string()], rest)),
                    }
                }
                // If the reply is invalid for all commands, the last error is returned.
                Err(error) => last = Some(error),
            }
        }
        if meanings.is_empty() {
            return Err(last.unwrap_or_default());
        }
        for (meaning, kinds, rest) in meanings {
            let after = if kinds.len() == RequestKind::ALL.len() {
                "any command".to_owned()
            } else {
                kinds.join(", ")
            };
            message.add("means", format!("after {after}: {meaning}"));
            message.fields.extend(rest);
        }
        Ok(message)
    }

    fn meaning(&self, bytes: &[u8], kind: RequestKind) -> Result<(String, Fields), String> {
        let response =
            Response::decode(bytes, kind).map_err(|error| format!("not a reply: {error}"))?;
        let reply = match response {
            Response::Reply(reply) => reply,
            Response::Page(page) => {
                // A page of a megabyte can contain that many keys.
                const SHOWN: usize = 1_000;
                let mut rest: Vec<_> = page
                    .keys()
                    .take(SHOWN)
                    .map(|key| ("key", one_line(key).into_owned()))
                    .collect();
                if page.len() > SHOWN {
                    rest.push(("keys", format!("{} more", page.len() - SHOWN)));
                }
                let token = page.token().map(|token| ("token", format!("{} bytes", token.len())));
                rest.extend(token);
                let more = if page.token().is_some() { "more follow" } else { "the last page" };
                return Ok((format!("a page of {} keys, {more}", page.len()), rest));
            }
            _ => return Err("unknown kind of reply".to_owned()),
        };
        let meaning = match reply {
            Reply::Done => match kind {
                RequestKind::Watch => "registered",
                RequestKind::Unwatch => "no longer registered",
                _ => "stored",
            }
            .to_owned(),
            Reply::NotApplied => match kind {
                RequestKind::VDel => "not removed: the value differs",
                _ => "not stored: the condition does not hold",
            }
            .to_owned(),
            Reply::Value(value) => format!("the value: {}", self.value(value)),
            Reply::Absent => "the key does not exist".to_owned(),
            Reply::Removed => "removed".to_owned(),
            Reply::NothingRemoved => "nothing removed: the key does not exist".to_owned(),
            Reply::NotWatched => "was not registered".to_owned(),
            Reply::Error(error) => format!("refused: {}", one_line(error.text())),
        };
        Ok((meaning, Vec::new()))
    }

    pub(super) fn notification(&self, bytes: &[u8]) -> Result<Message, String> {
        let notification =
            Notification::decode(bytes).map_err(|error| format!("not a notification: {error}"))?;
        let message = Message::new("a notification");
        Ok(match notification {
            Notification::Set(value) => {
                message.with("change", "the key has a value").with("value", self.value(value))
            }
            Notification::Deleted => message.with("change", "the key is gone: deleted or expired"),
        })
    }
}
