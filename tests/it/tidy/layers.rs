//! The layers of the core: a module uses only modules below it.

use std::collections::BTreeSet;

use super::source::code_without_strings;
use super::{File, check_all, core_files, file};

/// Each module of the core and the modules it may use, lowest first. A new module is added here.
const LAYERS: [(&str, &[&str]); 21] = [
    ("backoff", &[]),
    ("buffer", &[]),
    ("debug", &[]),
    ("glob", &[]),
    ("inline", &[]),
    ("invariant", &[]),
    ("limits", &[]),
    ("slab", &[]),
    ("time", &[]),
    ("deadlines", &["time"]),
    ("hlc", &["buffer", "inline", "limits", "time"]),
    ("resp", &["buffer", "debug"]),
    ("message", &["buffer", "debug", "hlc", "limits", "resp", "time"]),
    ("statistics", &["message"]),
    ("topic", &["debug", "limits"]),
    ("rules", &["debug", "hlc", "limits", "message", "time"]),
    ("transport", &["debug", "hlc", "inline", "message", "time", "topic"]),
    ("machine", &["time", "transport"]),
    (
        "client",
        &[
            "deadlines",
            "debug",
            "hlc",
            "limits",
            "machine",
            "message",
            "statistics",
            "time",
            "topic",
            "transport",
        ],
    ),
    (
        "store",
        &[
            "deadlines",
            "debug",
            "glob",
            "hlc",
            "invariant",
            "limits",
            "machine",
            "message",
            "rules",
            "slab",
            "statistics",
            "time",
            "topic",
            "transport",
        ],
    ),
    ("lock", &["backoff", "client", "debug", "hlc", "limits", "message", "time"]),
];

/// The module path of a file of the core or of the broker; empty for the root.
pub(super) fn module(path: &str) -> Vec<&str> {
    let folders = ["core/src/", "mqtt/src/", "broker/src/"];
    let inside = folders.iter().find_map(|folder| path.strip_prefix(folder));
    let inside = inside.unwrap_or(path).trim_end_matches(".rs");
    inside.split('/').filter(|part| !matches!(*part, "mod" | "lib")).collect()
}

/// The paths that a file names by `crate::` or `super::`, from the root of the crate.
pub(super) fn used_paths(file: &File) -> Vec<Vec<String>> {
    let code = code_without_strings(&file.text);
    let compact: String = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut used = Vec::new();
    for (at, root) in compact.match_indices("crate::") {
        used.extend(paths(&compact[at + root.len()..]));
    }
    let own: Vec<String> = module(&file.path).into_iter().map(str::to_owned).collect();
    for (at, _) in compact.match_indices("super::") {
        if compact[..at].ends_with("super::") {
            continue;
        }
        let inside = compact[at..].trim_start_matches("super::");
        let levels = (compact.len() - at - inside.len()) / "super::".len();
        let parent = &own[..own.len().saturating_sub(levels)];
        used.extend(paths(inside).into_iter().map(|path| [parent, &path].concat()));
    }
    used
}

/// The modules of the crate that a file names by `crate::` or `super::`.
fn used(file: &File) -> BTreeSet<String> {
    used_paths(file).into_iter().filter_map(|path| path.into_iter().next()).collect()
}

/// The first names of the paths at the start of a text.
pub(super) fn heads(text: &str) -> Vec<String> {
    paths(text).into_iter().filter_map(|path| path.into_iter().next()).collect()
}

/// The path at the start of a text, or each path of a braced group.
pub(super) fn paths(text: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    read_paths(text, &[], &mut paths);
    paths
}

/// Appends the paths at the start of `text` to `paths`, and returns the rest of the text.
fn read_paths<'a>(text: &'a str, prefix: &[String], paths: &mut Vec<Vec<String>>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut group) = text.strip_prefix('{') {
        loop {
            group = read_paths(group, prefix, paths);
            let Some(end) = group.find([',', '}']) else { return group };
            let is_last = group[end..].starts_with('}');
            group = &group[end + 1..];
            if is_last {
                return group;
            }
        }
    }
    let is_outside = |letter: char| !letter.is_alphanumeric() && letter != '_';
    let (name, rest) = text.split_at(text.find(is_outside).unwrap_or(text.len()));
    if name.is_empty() {
        return rest;
    }
    let path = [prefix, &[name.to_owned()]].concat();
    match rest.strip_prefix("::") {
        Some(inner) if !inner.starts_with('<') => read_paths(inner, &path, paths),
        _ => {
            paths.push(path);
            rest
        }
    }
}

fn misplaced(file: &File) -> Vec<String> {
    let Some(own) = module(&file.path).first().copied() else { return Vec::new() };
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == own) else {
        return vec![format!(
            "the module {own} is missing from the layers in tests/it/tidy/layers.rs"
        )];
    };
    let module = |name: &String| LAYERS.iter().any(|(module, _)| module == name);
    used(file)
        .into_iter()
        .filter(|name| module(name) && name != own && !allowed.contains(&name.as_str()))
        .map(|name| format!("{own} must not use {name}"))
        .collect()
}

#[test]
fn core_modules_use_only_the_layers_below() {
    check_all(&core_files(), misplaced);
    let seen: BTreeSet<String> = core_files().iter().flat_map(used).collect();
    assert!(seen.contains("limits") && seen.contains("message"), "uses are found");
}

#[test]
fn each_layer_is_listed_above_those_it_uses() {
    for (at, (name, allowed)) in LAYERS.iter().enumerate() {
        for below in *allowed {
            let below_at = LAYERS.iter().position(|(other, _)| other == below);
            assert!(below_at.is_some_and(|below_at| below_at < at), "{name} stands above {below}");
        }
    }
}

#[test]
fn use_of_a_higher_layer_is_found() {
    for (path, text, complaint) in [
        ("core/src/hlc/text.rs", "use crate::message::Reply;", "hlc must not use message"),
        ("core/src/hlc/text.rs", "use crate::resp::Frame;", "hlc must not use resp"),
        (
            "core/src/hlc/mod.rs",
            "fn f() -> crate::rules::RequestTimestamps {}",
            "hlc must not use rules",
        ),
        ("core/src/resp/mod.rs", "use super::message::Reply;", "resp must not use message"),
        (
            "core/src/resp/parse.rs",
            "use super::super::message::Reply;",
            "resp must not use message",
        ),
        (
            "core/src/client.rs",
            "use crate::{hlc::{Hlc, HlcRef}, store::Store};",
            "client must not use store",
        ),
        ("core/src/client/mod.rs", "use crate::{\n    store,\n};", "client must not use store"),
        ("core/src/store/watch.rs", "use crate::client::Client;", "store must not use client"),
        ("core/src/store.rs", "use crate::lock::Lock;", "store must not use lock"),
        (
            "core/src/new.rs",
            "",
            "the module new is missing from the layers in tests/it/tidy/layers.rs",
        ),
    ] {
        assert_eq!(misplaced(&file(path, text)), [complaint], "{path}: {text}");
    }
    for (path, text) in [
        ("core/src/lib.rs", "pub use crate::message::Reply;"),
        ("core/src/hlc/text.rs", "use super::Hlc;\nuse crate::buffer::Sink; // crate::message"),
        (
            "core/src/store/watch.rs",
            "use super::client;\nuse crate::{message, rules::{decide, State}};",
        ),
        ("core/src/rules/decide.rs", "use crate::message::{Command, client};"),
    ] {
        assert!(misplaced(&file(path, text)).is_empty(), "{path}: {text}");
    }
}

#[test]
fn paths_of_nested_groups_are_found() {
    let found = paths("{a::B, c::{self, D as E, f::G,}, H}; use crate::i;");
    let found: Vec<_> = found.iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["a::B", "c::self", "c::D", "c::f::G", "H"]);
    assert_eq!(heads("a::b::<C>::d()"), ["a"]);
}
