//! The pages of `docs/reference` that are generated from the sources.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{File, file, root, rust_files};

const WIDTH: usize = 100;

/// Compares a page with what the sources contain. With `STATESTORE_REFERENCE=write`, writes it.
#[expect(clippy::disallowed_methods, reason = "the author of a change requests the update")]
fn check_page(name: &str, text: &str) {
    let path = root().join("docs/reference").join(name);
    if std::env::var("STATESTORE_REFERENCE").is_ok_and(|value| value == "write") {
        std::fs::write(&path, text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == text, "run again with STATESTORE_REFERENCE=write, and review the diff");
}

/// Escapes Markdown outside of code.
fn escaped(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(number, part)| match number % 2 {
        0 => part.replace('*', "\\*").replace('<', "\\<").replace('[', "\\["),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// Breaks lines at blanks. Later lines begin with `indent`.
fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.trim().is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = indent.to_owned();
        }
        if !line.is_empty() && !line.ends_with(' ') {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}

/// A constant with a documentation comment.
struct Constant {
    name: String,
    value: String,
    summary: String,
}

fn constants(file: &File) -> Vec<Constant> {
    let mut documentation = String::new();
    let mut constants = Vec::new();
    for line in file.text.lines() {
        if let Some(text) = line.strip_prefix("///") {
            documentation.push_str(text);
            documentation.push('\n');
            continue;
        }
        let constant = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(": "));
        if let Some((name, rest)) = constant {
            let value = rest.split_once(" = ").map_or("", |(_, value)| value);
            let summary = documentation.split("\n\n").next().unwrap_or_default();
            constants.push(Constant {
                name: name.to_owned(),
                value: value_in_words(value.trim_end_matches(';')),
                summary: summary.split_whitespace().collect::<Vec<_>>().join(" "),
            });
        }
        documentation.clear();
    }
    constants
}

/// A number without `_`, or a duration with its unit.
fn value_in_words(value: &str) -> String {
    let seconds =
        value.strip_prefix("Duration::from_secs(").and_then(|rest| rest.strip_suffix(')'));
    match seconds {
        Some(seconds) => format!("{seconds} s"),
        None if value.starts_with(|letter: char| letter.is_ascii_digit()) => value.replace('_', ""),
        None => value.to_owned(),
    }
}

fn limits_page(limits: &File) -> String {
    let mut page = String::from(
        "# Limits\n\n\
         Limits that an operator can change are [settings](configuration.md#limits).\n\
         [Security](../security.md#limits-of-clients) explains their effects, and the limits for\n\
         connections and passwords. [Clusters](../cluster.md#guarantees) have a limit for values.\n\n\
         These limits are fixed. The module `limits` of `statestore-proto` contains their reasons.\n\n",
    );
    for constant in constants(limits) {
        let summary = without_links(&constant.summary);
        let item = format!("- `{}` = `{}`: {}", constant.name, constant.value, escaped(&summary));
        page.push_str(&wrapped(&item, "  "));
    }
    page
}

/// Replaces links of rustdoc by their text.
fn without_links(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("[`") {
        let (name, after) = link.split_once("`]").unwrap_or((link, ""));
        let after =
            after.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(after, |s| s.1);
        let _ = write!(result, "{before}`{name}`");
        rest = after;
    }
    result + rest
}

/// A line of the log.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    text: String,
    level: &'static str,
    path: String,
}

/// The calls of `error!`, `warn!`, `info!` and `line!`, the warnings about refused requests.
fn events(file: &File) -> Vec<Event> {
    let mut events = Vec::new();
    for (call, level) in
        [("error!(", "error"), ("warn!(", "warn"), ("info!(", "info"), ("line!(", "warn")]
    {
        for (at, _) in file.text.match_indices(call) {
            let part_of_a_word = |letter: char| letter.is_alphanumeric() || letter == '_';
            if file.text[..at].ends_with(part_of_a_word) {
                continue;
            }
            let texts = strings_of_call(&file.text[at + call.len()..]);
            // A text that is only a placeholder is written elsewhere.
            let Some(text) = texts.last().filter(|text| text.contains(' ')) else { continue };
            events.push(Event { text: text.clone(), level, path: file.path.clone() });
        }
    }
    events
}

/// The string literals up to the end of a call.
fn strings_of_call(text: &str) -> Vec<String> {
    let (mut depth, mut strings) = (1, Vec::new());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '(' => depth += 1,
            ')' if depth == 1 => break,
            ')' => depth -= 1,
            '"' => {
                let mut string = String::new();
                while let Some(letter) = letters.next().filter(|letter| *letter != '"') {
                    // A backslash at the end of a line continues the string.
                    string.push(if letter == '\\' {
                        letters.next().map_or(' ', |next| if next == '\n' { ' ' } else { next })
                    } else {
                        letter
                    });
                }
                strings.push(string.split_whitespace().collect::<Vec<_>>().join(" "));
            }
            _ => {}
        }
    }
    strings
}

/// The variants of the server's events, with the first paragraphs of their documentation.
fn server_events(file: &File) -> Vec<(String, String)> {
    let (mut documentation, mut variants) = (String::new(), Vec::new());
    let body = file.text.split_once("pub enum Event {\n").map_or("", |(_, rest)| rest);
    for line in body.lines().take_while(|line| *line != "}") {
        let Some(line) = line.strip_prefix("    ") else { continue };
        if let Some(text) = line.strip_prefix("///") {
            documentation.push_str(text);
        } else if line.starts_with(char::is_alphabetic) {
            let name: String = line.chars().take_while(|letter| letter.is_alphanumeric()).collect();
            variants.push((name, std::mem::take(&mut documentation).trim().to_owned()));
        }
    }
    variants
}

fn log_page(files: &[File]) -> String {
    let mut page = String::from(
        "# Log events\n\n\
         `serve` and the libraries log these events, the command on standard error. A part in braces\n\
         is replaced. `STATESTORE_LOG=info` also logs the level `info`. Lines about clients have\n\
         fields, for example `client` and `key`; they never contain values or passwords.\n\
         [Logs of refusals](../authorization.md#logs-of-refusals) describes how they are limited.\n\n",
    );
    let server = files.iter().filter(|file| file.path == "server/host/src/event.rs");
    let server: Vec<_> = server.flat_map(server_events).collect();
    if !server.is_empty() {
        page.push_str(
            "## Events of the server\n\n\
             The command prints most of them, and others at the level `info`.\n\n",
        );
        for (name, text) in server {
            let item = format!("- `{name}`: {}", escaped(&without_links(&text)));
            page.push_str(&wrapped(&item, "  "));
        }
        page.push('\n');
    }
    let events: BTreeSet<Event> = files.iter().flat_map(events).collect();
    let mut paths: Vec<&str> = events.iter().map(|event| event.path.as_str()).collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let _ = write!(page, "## `{path}`\n\n");
        for event in events.iter().filter(|event| event.path == path) {
            let item = format!("- **{}**: {}", event.level, escaped(&event.text));
            page.push_str(&wrapped(&item, "  "));
        }
        page.push('\n');
    }
    page.truncate(page.trim_end().len());
    page + "\n"
}

fn sources() -> Vec<File> {
    let folders = ["server", "transports"];
    let files = folders.iter().flat_map(|folder| rust_files(folder));
    files
        .filter(|file| !file.path.contains("/tests") && !file.path.contains("/examples/"))
        .collect()
}

#[test]
fn limits_page_has_the_constants_of_the_core() {
    let limits = rust_files("core/src").into_iter().find(|file| file.path == "core/src/limits.rs");
    check_page("limits.md", &limits_page(&limits.unwrap()));
}

#[test]
fn log_page_has_the_events_of_the_sources() {
    check_page("log.md", &log_page(&sources()));
}

#[test]
fn constant_is_read_with_its_first_paragraph() {
    let source =
        file("limits.rs", "/// Bytes of [`A`](x) a.\n///\n/// More.\npub const B: u8 = 1_0;\n");
    assert!(limits_page(&source).ends_with("- `B` = `10`: Bytes of `A` a.\n"));
}

#[test]
fn event_is_read_from_its_call() {
    let source =
        file("a.rs", "warn!(%error, key = f(1), \"one <two> \\\n three\"); my_warn!(\"no no\");");
    assert!(log_page(&[source]).ends_with("## `a.rs`\n\n- **warn**: one \\<two> three\n"));
}

mod configuration {
    use std::fmt::Write as _;

    use serde_json::{Map, Value};

    use super::{check_page, escaped, root, wrapped};

    fn sentences(description: &str) -> String {
        let paragraphs = description.split("\n\n").map(|text| text.trim().trim_end_matches('.'));
        paragraphs.map(|text| format!("{text}.")).collect::<Vec<_>>().join(" ")
    }

    /// The values of a setting that has only some.
    fn choices(schema: &Value, property: &Value) -> Option<String> {
        let references = property["anyOf"].as_array().into_iter().flatten().chain([property]);
        let name = references.filter_map(|part| part["$ref"].as_str()).next()?;
        let definition = &schema["$defs"][name.rsplit('/').next()?];
        let constants = definition["oneOf"].as_array().into_iter().flatten();
        let constants = constants.filter_map(|choice| choice["const"].as_str());
        let values = definition["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let values: Vec<_> = values.chain(constants).map(|value| format!("`{value}`")).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    fn setting(schema: &Value, name: &str, property: &Value) -> String {
        let description = property["description"].as_str().unwrap_or_default();
        let mut item = format!("- `{name}`: {}", escaped(&sentences(description)));
        if let Some(choices) = choices(schema, property) {
            let _ = write!(item, " Values: {choices}.");
        }
        match &property["default"] {
            Value::Null | Value::Bool(false) => {}
            Value::Array(items) if items.is_empty() => {}
            default => _ = write!(item, " Default: `{default}`."),
        }
        wrapped(&item, "  ")
    }

    fn page(schema: &Value) -> String {
        let mut page = String::from(
            "# Configuration\n\n\
             The settings of `statestore serve`. Each name is a key in a section of the file for\n\
             `--config`, an option of the command line (`--max-keys`), and a variable of the environment\n\
             (`STATESTORE_SERVE_MAX_KEYS`). The command line takes precedence over the environment, and\n\
             the environment over the file. `serve --print-config` prints the effective settings.\n\n\
             [The JSON schema](../../server/host/statestore.schema.json) is for editors.\n",
        );
        let none = Map::new();
        for (section, reference) in schema["properties"].as_object().unwrap_or(&none) {
            let name = reference["$ref"].as_str().and_then(|path| path.rsplit('/').next());
            let definition = &schema["$defs"][name.unwrap_or_default()];
            let _ = write!(page, "\n## `[{section}]`\n\n");
            for (name, property) in definition["properties"].as_object().unwrap_or(&none) {
                page.push_str(&setting(schema, name, property));
            }
        }
        page
    }

    #[test]
    fn configuration_page_has_the_settings_of_the_schema() {
        let schema = std::fs::read(root().join("server/host/statestore.schema.json")).unwrap();
        let schema: Value = serde_json::from_slice(&schema).unwrap();
        check_page("configuration.md", &page(&schema));
    }
}
