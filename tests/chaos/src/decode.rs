//! Describes bytes of the protocol in words.

mod packets;
mod payload;
mod text;

use std::cmp::Ordering;
use std::io::Read as _;

use serde_json::{Map, Value};
use statestore_client::diagnostics::text::{on_one_line, one_line};
use statestore_proto::message::RequestKind;

use crate::args::{After, Decode, Kind, Output};
use crate::output::{self, Error};

/// Maximum size of standard input in bytes.
const INPUT_MAX: u64 = 16 << 20;

/// Maximum number of fields of a message. A packet can have a property for each five bytes.
const FIELDS_MAX: usize = 10_000;

pub(crate) fn run(args: &Decode) -> Result<(), Error> {
    let inputs = match &args.input[..] {
        [] => vec![read_stdin()?],
        [input] if input == "-" => vec![read_stdin()?],
        inputs => inputs.iter().map(|input| parse_input(input.as_encoded_bytes())).collect(),
    };
    let decoder = Decoder { after: args.after.map(request_kind), values: args.values };
    let (mut text, mut failed) = (String::new(), None);
    for input in inputs {
        let Decoded { messages, error } = decoder.decode(&input, args.kind);
        for message in &messages {
            text += &match args.output {
                Output::Raw => message.text(),
                Output::Json => format!("{}\n", on_one_line(&message.json().to_string())),
            };
        }
        failed = failed.or(error);
    }
    output::write(&text)?;
    match failed {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

fn read_stdin() -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(INPUT_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("standard input: {error}"))?;
    if bytes.len() as u64 > INPUT_MAX {
        return Err(format!("standard input: more than {INPUT_MAX} bytes; give it a part of that"));
    }
    Ok(if is_hex(&bytes) { parse_hex(&bytes) } else { bytes })
}

/// Parses an argument: hexadecimal digits, or text in which `\r` and `\n` are escapes.
fn parse_input(typed: &[u8]) -> Vec<u8> {
    if is_hex(typed) {
        return parse_hex(typed);
    }
    let text = String::from_utf8_lossy(typed);
    let mut bytes = text.replace("\\r", "\r").replace("\\n", "\n").into_bytes();
    // The end of a single line may be omitted.
    if bytes.first().is_some_and(|first| b"+-:$".contains(first)) && !bytes.ends_with(b"\r\n") {
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Returns whether these are hexadecimal digits of at least two whole bytes.
fn is_hex(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"0x").unwrap_or(bytes);
    let digits = bytes.iter().filter(|byte| byte.is_ascii_hexdigit()).count();
    let rest = bytes.iter().filter(|byte| !byte.is_ascii_hexdigit());
    let mut rest = rest.peekable();
    // A clock contains colons too, but is not hexadecimal.
    let is_clock = bytes.split(|byte| *byte == b':').any(|part| !matches!(part.len(), 0 | 2))
        && bytes.contains(&b':');
    digits >= 4
        && digits.is_multiple_of(2)
        && !is_clock
        && rest.all(|byte| byte.is_ascii_whitespace() || *byte == b':')
}

fn parse_hex(bytes: &[u8]) -> Vec<u8> {
    let bytes = bytes.strip_prefix(b"0x").unwrap_or(bytes);
    let digit =
        |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Vec<u8> = bytes.iter().filter_map(digit).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

const fn request_kind(after: After) -> RequestKind {
    match after {
        After::Get => RequestKind::Get,
        After::Set => RequestKind::Set,
        After::Del => RequestKind::Del,
        After::Vdel => RequestKind::VDel,
        After::Keynotify => RequestKind::Watch,
        After::Stop => RequestKind::Unwatch,
        After::Scan => RequestKind::Scan,
    }
}

/// Settings of decoding.
#[derive(Clone, Copy, Debug, Default)]
struct Decoder {
    /// Command of a reply.
    after: Option<RequestKind>,
    /// Shows values if true, and their lengths otherwise.
    values: bool,
}

/// Decoded messages, and the error that ended decoding.
#[derive(Debug, Default)]
struct Decoded {
    messages: Vec<Message>,
    error: Option<String>,
}

/// A message with its fields. A field name can occur several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Message {
    title: String,
    fields: Vec<(&'static str, String)>,
}

impl Message {
    fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), fields: Vec::new() }
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
        self.add(name, other.title);
        self.fields.extend(other.fields);
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", on_one_line(&self.title));
        for (name, value) in &self.fields {
            text += &format!("  {name:<16} {}\n", on_one_line(value));
        }
        text
    }

    fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("what".to_owned(), self.title.clone().into());
        for (name, value) in &self.fields {
            match object.get_mut(*name) {
                None => _ = object.insert((*name).to_owned(), value.clone().into()),
                Some(Value::Array(all)) => all.push(value.clone().into()),
                Some(first) => {
                    *first = Value::Array(vec![first.take(), value.clone().into()]);
                }
            }
        }
        Value::Object(object)
    }
}

impl Decoder {
    fn decode(&self, bytes: &[u8], kind: Option<Kind>) -> Decoded {
        let single = |decoded: Result<Message, String>| match decoded {
            Ok(message) => Decoded { messages: vec![message], error: None },
            Err(error) => Decoded { messages: Vec::new(), error: Some(error) },
        };
        let trimmed = bytes.trim_ascii();
        match kind.unwrap_or_else(|| detect_kind(bytes)) {
            Kind::Request => single(self.request(bytes)),
            Kind::Reply => single(self.reply(bytes)),
            Kind::Notification => single(self.notification(bytes)),
            Kind::Topic => single(text::topic(trimmed)),
            Kind::Clock => single(text::clock(trimmed)),
            Kind::Packets => self.packets(bytes),
        }
    }

    /// Returns a value or its length.
    fn value(&self, value: &[u8]) -> String {
        let length = match value.len() {
            1 => "1 byte".to_owned(),
            len => format!("{len} bytes"),
        };
        if self.values { format!("{} ({length})", one_line(value)) } else { length }
    }
}

/// Detects the kind of the input by its first bytes. Payloads begin with characters that begin no
/// MQTT packet that a store receives.
fn detect_kind(bytes: &[u8]) -> Kind {
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
