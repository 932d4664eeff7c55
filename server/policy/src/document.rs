//! JSON and YAML as a tree of nodes with line numbers.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use saphyr_parser::{Event, Parser, ScalarStyle};

use crate::error::PolicyError;

/// Maximum size of a document, in bytes.
const BYTES_MAX: usize = 1 << 20;

/// Maximum nesting depth; valid documents have about ten levels.
const DEPTH_MAX: usize = 32;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) value: Value,
}

#[derive(Debug)]
pub(crate) enum Value {
    /// An absent value, `~` or `null`.
    Null,
    Text(String),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
}

impl Value {
    /// Returns the kind of the value, for error messages.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// A list or table whose end has not been read.
struct Open {
    line: usize,
    value: Value,
    /// The key in a table whose value follows.
    key: Option<String>,
}

impl Open {
    const fn new(line: usize, value: Value) -> Self {
        Self { line, value, key: None }
    }
}

/// Parses a whole document; `expected` is the field at its top, for error messages.
pub(crate) fn read(text: &str, expected: &str) -> Result<Node, PolicyError> {
    let problem =
        |line, problem: String| PolicyError { line, path: "the document".into(), problem };
    if text.len() > BYTES_MAX {
        return Err(problem(1, format!("it exceeds {BYTES_MAX} bytes; shorten it")));
    }
    let mut root = None;
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) =
            event.map_err(|error| problem(error.marker().line(), error.info().to_string()))?;
        let line = span.start.line();
        let done = match event {
            Event::DocumentStart(_) if root.is_some() => {
                return Err(problem(
                    line,
                    "a second document begins here; only one is allowed".into(),
                ));
            }
            Event::Alias(_) => {
                return Err(problem(line, "aliases are not supported; repeat the value".into()));
            }
            Event::Scalar(_, _, anchor, ref tag)
            | Event::SequenceStart(anchor, ref tag)
            | Event::MappingStart(anchor, ref tag)
                if anchor > 0 || tag.is_some() =>
            {
                return Err(problem(
                    line,
                    "anchors and tags are not supported; remove them".into(),
                ));
            }
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() >= DEPTH_MAX => {
                return Err(problem(line, format!("it exceeds {DEPTH_MAX} levels")));
            }
            Event::SequenceStart(..) => {
                open.push(Open::new(line, Value::List(Vec::new())));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::new(line, Value::Table(Vec::new())));
                continue;
            }
            Event::Scalar(text, style, ..) => {
                let is_null = style == ScalarStyle::Plain
                    && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let value = if is_null { Value::Null } else { Value::Text(text.into_owned()) };
                Node { line, value }
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open { line, value, .. }) => Node { line, value },
                None => continue,
            },
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => continue,
        };
        put(&mut root, &mut open, done).map_err(|text| problem(line, text))?;
    }
    root.ok_or_else(|| problem(1, format!("it is empty; expected `{expected}`")))
}

/// Inserts a node into the innermost open list or table, or makes it the root.
fn put(root: &mut Option<Node>, open: &mut [Open], node: Node) -> Result<(), String> {
    let Some(Open { value, key, .. }) = open.last_mut() else {
        *root = Some(node);
        return Ok(());
    };
    match (value, key.take()) {
        (Value::List(list), _) => list.push(node),
        (Value::Table(table), Some(name)) => table.push((name, node)),
        (Value::Table(table), None) => match node.value {
            Value::Text(name) if table.iter().any(|(other, _)| *other == name) => {
                return Err(format!("`{name}` occurs twice"));
            }
            Value::Text(name) => *key = Some(name),
            other => {
                return Err(format!("the name of a field must be a text, not {}", other.kind()));
            }
        },
        (Value::Null | Value::Text(_), _) => {}
    }
    Ok(())
}
