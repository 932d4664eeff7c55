//! `docs/reference/commands.md` contains the help of each command.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::process::statestore;

const INTRODUCTION: &str = "\
# Commands

The help of each command, as `statestore COMMAND --help` prints it.
[Configuration](configuration.md) lists the options of `serve`. The last section has options that
several commands share.
";

/// A section that this many commands contain is printed once, at the end.
const SHARED_BY: usize = 4;

/// The subcommands in the help of a command.
fn subcommands(help: &str) -> Vec<&str> {
    let lines = help.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase());
    names.filter(is_name).filter(|name| !["help", "statestore"].contains(name)).collect()
}

/// The parts of a help text: its head, and sections with headings.
fn sections(help: &str) -> Vec<&str> {
    let is_heading = |line: &str| line.ends_with(':') && line.starts_with(char::is_alphabetic);
    let mut starts: Vec<usize> = vec![0];
    let mut at = 0;
    for line in help.split_inclusive('\n') {
        if is_heading(line.trim_end()) {
            starts.push(at);
        }
        at += line.len();
    }
    starts.push(help.len());
    starts.windows(2).map(|ends| help[ends[0]..ends[1]].trim_end()).collect()
}

/// Breaks lines of more than 100 characters, and keeps their indentation.
fn wrapped(text: &str) -> String {
    let mut result = String::new();
    for line in text.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut length = 0;
        for (number, word) in line.trim_start().split(' ').enumerate() {
            if number == 0 {
                result.push_str(indent);
                length = indent.len();
            } else if length + 1 + word.chars().count() > 100 && !word.is_empty() {
                let _ = write!(result, "\n{indent}");
                length = indent.len();
            } else {
                result.push(' ');
                length += 1;
            }
            result.push_str(word);
            length += word.chars().count();
        }
        while result.ends_with(' ') {
            result.pop();
        }
        result.push('\n');
    }
    result
}

fn page(help: impl Fn(&[&str]) -> String) -> String {
    let root = help(&[]);
    let mut helps = Vec::new();
    for name in subcommands(&root) {
        // The options of `serve` are settings, which have a separate page.
        if name == "serve" {
            continue;
        }
        let text = help(&[name]);
        let inner: Vec<String> = match text.contains("<COMMAND>\n") {
            true => subcommands(&text).into_iter().map(str::to_owned).collect(),
            false => Vec::new(),
        };
        helps.push((name.to_owned(), text));
        for inner in inner {
            helps.push((format!("{name} {inner}"), help(&[name, &inner])));
        }
    }
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for section in helps.iter().flat_map(|(_, text)| sections(text)) {
        *uses.entry(section).or_default() += 1;
    }
    let is_shared = |section: &str| {
        uses.get(section).is_some_and(|uses| *uses >= SHARED_BY) && !section.starts_with("Options:")
    };
    let mut page = format!("{INTRODUCTION}\n## `statestore`\n\n```text\n{}```\n", wrapped(&root));
    for (name, text) in &helps {
        let own = sections(text).into_iter().filter(|section| !is_shared(section));
        let own = own.collect::<Vec<_>>().join("\n\n");
        let _ = write!(page, "\n## `statestore {name}`\n\n```text\n{}```\n", wrapped(&own));
    }
    let shared: Vec<&str> = uses.keys().copied().filter(|section| is_shared(section)).collect();
    let _ = write!(page, "\n## Shared options\n\n```text\n{}```\n", wrapped(&shared.join("\n\n")));
    page
}

#[cfg(feature = "etcd")]
#[test]
#[expect(clippy::disallowed_methods, reason = "the author of a change requests the update")]
fn commands_page_has_the_help_of_each_command() {
    let page = page(|words| {
        let output = statestore().args(words).arg("--help").output().expect("the command runs");
        String::from_utf8(output.stdout).expect("text")
    });
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/commands.md");
    if std::env::var("STATESTORE_REFERENCE").is_ok_and(|value| value == "write") {
        std::fs::write(&path, &page).expect("a file");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == page, "run again with STATESTORE_REFERENCE=write, and review the diff");
}
