//! What bytes of the protocol say, in words.

mod packets;
mod payload;
mod text;

use std::cmp::Ordering;
use std::io::Read as _;
use std::process::ExitCode;

use serde_json::{Map, Value};
use statestore_proto::message::CommandKind;

use crate::args::{After, Decode, Kind, Output};
use crate::escape::{one_line, printable};
use crate::failure::Failure;
use crate::output;

/// Bytes that are read: many of the largest packets that stores take.
const INPUT_MAX: u64 = 16 << 20;

/// Lines of one message: a packet may have a property for each five of its bytes.
const FIELDS_MAX: usize = 10_000;

pub(crate) fn run(args: &Decode) -> Result<ExitCode, Failure> {
    let inputs = match &args.input[..] {
        [] => vec![from_stdin()?],
        [one] if one == "-" => vec![from_stdin()?],
        all => all.iter().map(|one| bytes_of(one.as_encoded_bytes())).collect(),
    };
    let reading = Reading { after: args.after.map(kind_of), values: args.values };
    let (mut text, mut failed) = (String::new(), None);
    for input in inputs {
        let Read { messages, error } = reading.read(&input, args.kind);
        for message in &messages {
            text += &match args.output {
                Output::Raw => message.text(),
                Output::Json => format!("{}\n", message.json()),
            };
        }
        failed = failed.or(error);
    }
    output::raw(printable(&text).as_bytes())?;
    match failed {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => Err(Failure::bad_input(error)),
    }
}

fn from_stdin() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(INPUT_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::bad_input(format_args!("standard input: {error}")))?;
    if bytes.len() as u64 > INPUT_MAX {
        return Err(Failure::bad_input(format_args!(
            "standard input: more than {INPUT_MAX} bytes; give it a part of that"
        )));
    }
    Ok(if is_hex(&bytes) { from_hex(&bytes) } else { bytes })
}

/// What was typed: digits of bytes, or text in which `\r` and `\n` stand for themselves.
fn bytes_of(typed: &[u8]) -> Vec<u8> {
    if is_hex(typed) {
        return from_hex(typed);
    }
    let text = String::from_utf8_lossy(typed);
    let mut bytes = text.replace("\\r", "\r").replace("\\n", "\n").into_bytes();
    // Of one line that a person types the end is no matter.
    if bytes.first().is_some_and(|first| b"+-:$".contains(first)) && !bytes.ends_with(b"\r\n") {
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Whether these are digits of whole bytes, two of them at least.
fn is_hex(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"0x").unwrap_or(bytes);
    let digits = bytes.iter().filter(|byte| byte.is_ascii_hexdigit()).count();
    let rest = bytes.iter().filter(|byte| !byte.is_ascii_hexdigit());
    let mut rest = rest.peekable();
    // A clock has colons too, and is none.
    let is_clock = bytes.split(|byte| *byte == b':').any(|part| !matches!(part.len(), 0 | 2))
        && bytes.contains(&b':');
    digits >= 4
        && digits.is_multiple_of(2)
        && !is_clock
        && rest.all(|byte| byte.is_ascii_whitespace() || *byte == b':')
}

fn from_hex(bytes: &[u8]) -> Vec<u8> {
    let bytes = bytes.strip_prefix(b"0x").unwrap_or(bytes);
    let digit =
        |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Vec<u8> = bytes.iter().filter_map(digit).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

const fn kind_of(after: After) -> CommandKind {
    match after {
        After::Get => CommandKind::Get,
        After::Set => CommandKind::Set,
        After::Del => CommandKind::Del,
        After::Vdel => CommandKind::VDel,
        After::Keynotify => CommandKind::Watch,
        After::Stop => CommandKind::Unwatch,
        After::Scan => CommandKind::Scan,
    }
}

/// How to read.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    after: Option<CommandKind>,
    values: bool,
}

/// What was read, and why not the rest.
#[derive(Debug, Default)]
struct Read {
    messages: Vec<Message>,
    error: Option<String>,
}

/// One message, field by field, of which one name may stand several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Message {
    what: String,
    fields: Vec<(&'static str, String)>,
}

impl Message {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), fields: Vec::new() }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.add(name, value);
        self
    }

    fn add(&mut self, name: &'static str, value: impl Into<String>) {
        match self.fields.len().cmp(&FIELDS_MAX) {
            Ordering::Less => self.fields.push((name, value.into())),
            Ordering::Equal => self.fields.push(("more", "not shown".to_owned())),
            Ordering::Greater => {}
        }
    }

    fn append(&mut self, name: &'static str, other: Self) {
        self.add(name, other.what);
        self.fields.extend(other.fields);
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", crate::escape::on_one_line(&self.what));
        for (name, value) in &self.fields {
            text += &format!("  {name:<16} {}\n", crate::escape::on_one_line(value));
        }
        text
    }

    fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("what".to_owned(), self.what.clone().into());
        for (name, value) in &self.fields {
            match object.get_mut(*name) {
                None => _ = object.insert((*name).to_owned(), value.clone().into()),
                Some(Value::Array(all)) => all.push(value.clone().into()),
                Some(one) => *one = Value::Array(vec![one.take(), value.clone().into()]),
            }
        }
        Value::Object(object)
    }
}

impl Reading {
    fn read(&self, bytes: &[u8], kind: Option<Kind>) -> Read {
        let one = |read: Result<Message, String>| match read {
            Ok(message) => Read { messages: vec![message], error: None },
            Err(error) => Read { messages: Vec::new(), error: Some(error) },
        };
        let trimmed = bytes.trim_ascii();
        match kind.unwrap_or_else(|| guess(bytes)) {
            Kind::Request => one(self.request(bytes)),
            Kind::Reply => one(self.reply(bytes)),
            Kind::Notification => one(self.notification(bytes)),
            Kind::Topic => one(text::topic(trimmed)),
            Kind::Clock => one(text::clock(trimmed)),
            Kind::Packets => self.packets(bytes),
        }
    }

    /// A value, or how long it is.
    fn value(&self, value: &[u8]) -> String {
        let length = match value.len() {
            1 => "1 byte".to_owned(),
            len => format!("{len} bytes"),
        };
        if self.values { format!("{} ({length})", one_line(value)) } else { length }
    }
}

/// What these bytes are by their first ones. The words of the protocol begin with signs that begin no packet but some that a
/// store never sees whole.
fn guess(bytes: &[u8]) -> Kind {
    let trimmed = bytes.trim_ascii();
    match bytes.first() {
        Some(b'*') if contains(bytes, b"NOTIFY\r\n") && !contains(bytes, b"KEYNOTIFY\r\n") => {
            Kind::Notification
        }
        Some(b'*') if text::begins_with_array(bytes) => Kind::Reply,
        Some(b'*') => Kind::Request,
        Some(b'+' | b'-' | b'$' | b':') => Kind::Reply,
        _ if text::is_topic(trimmed) => Kind::Topic,
        _ if text::is_clock(trimmed) => Kind::Clock,
        _ => Kind::Packets,
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.iter().take(64).copied().collect::<Vec<_>>().windows(part.len()).any(|at| at == part)
}

#[cfg(test)]
mod tests;
