//! Which module of the core may use which: one direction, written down here.

use std::collections::BTreeSet;

use super::source::code_without_strings;
use super::{File, core_files, file, hold};

/// Each module of the core and what it may use. A new module takes its place here.
const LAYERS: [(&str, &[&str]); 16] = [
    ("debug", &[]),
    ("glob", &[]),
    ("limits", &[]),
    ("time", &[]),
    ("deadlines", &["time"]),
    ("resp", &["debug", "limits"]),
    ("hlc", &["debug", "limits", "resp", "time"]),
    ("message", &["debug", "hlc", "limits", "resp", "time"]),
    ("statistics", &["message"]),
    ("topic", &["debug", "limits"]),
    ("rules", &["debug", "hlc", "limits", "message", "time"]),
    ("mqtt", &["debug", "hlc", "message", "time", "topic"]),
    ("machine", &["mqtt", "time"]),
    (
        "client",
        &[
            "deadlines",
            "debug",
            "hlc",
            "limits",
            "machine",
            "message",
            "mqtt",
            "statistics",
            "time",
            "topic",
        ],
    ),
    (
        "store",
        &[
            "deadlines",
            "debug",
            "glob",
            "hlc",
            "limits",
            "machine",
            "message",
            "mqtt",
            "rules",
            "statistics",
            "time",
            "topic",
        ],
    ),
    ("lock", &["client", "debug", "hlc", "limits", "message", "time"]),
];

/// The module path of a file of the core, and whether it is the crate's root.
fn module(path: &str) -> Vec<&str> {
    let inside = path.strip_prefix("core/src/").unwrap_or(path).trim_end_matches(".rs");
    inside.split('/').filter(|part| !matches!(*part, "mod" | "lib")).collect()
}

/// The modules of the crate that a file names by `crate::` or `super::`.
fn used(file: &File) -> BTreeSet<String> {
    let code = code_without_strings(&file.text);
    let compact: String = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut used = BTreeSet::new();
    for (at, _) in compact.match_indices("crate::") {
        used.extend(heads(&compact[at + "crate::".len()..]));
    }
    let depth = module(&file.path).len();
    let up = "super::".repeat(depth.max(1));
    for (at, _) in compact.match_indices(&up) {
        if !compact[..at].ends_with("super::") {
            used.extend(heads(&compact[at + up.len()..]));
        }
    }
    used
}

/// The first names of a path, or of each path of a braced group.
pub(super) fn heads(path: &str) -> Vec<String> {
    let name = |text: &str| {
        let text = text.trim_start();
        text.chars()
            .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
            .collect::<String>()
    };
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut depth, mut heads, mut start) = (0_usize, Vec::new(), 0);
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => {
                heads.push(name(&group[start..]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                heads.push(name(&group[start..]));
                start = at + 1;
            }
            _ => {}
        }
    }
    heads
}

fn misplaced(file: &File) -> Vec<String> {
    let Some(own) = module(&file.path).first().copied() else { return Vec::new() };
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == own) else {
        return vec![format!(
            "the module {own} has no place in the layers of tests/it/tidy/layers.rs"
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
fn the_layers_of_the_core_point_one_way() {
    hold(&core_files(), misplaced);
    let seen: BTreeSet<String> = core_files().iter().flat_map(used).collect();
    assert!(seen.contains("limits") && seen.contains("message"), "uses were found");
}

#[test]
fn the_layers_have_no_cycle() {
    for (at, (name, allowed)) in LAYERS.iter().enumerate() {
        for below in *allowed {
            let below_at = LAYERS.iter().position(|(other, _)| other == below);
            assert!(below_at.is_some_and(|below_at| below_at < at), "{name} stands above {below}");
        }
    }
}

#[test]
fn a_use_against_the_direction_is_found() {
    for (path, text, complaint) in [
        ("core/src/hlc/text.rs", "use crate::message::Reply;", "hlc must not use message"),
        ("core/src/hlc/mod.rs", "fn f() -> crate::rules::Stamps {}", "hlc must not use rules"),
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
            "the module new has no place in the layers of tests/it/tidy/layers.rs",
        ),
    ] {
        assert_eq!(misplaced(&file(path, text)), [complaint], "{path}: {text}");
    }
    for (path, text) in [
        ("core/src/lib.rs", "pub use crate::message::Reply;"),
        ("core/src/hlc/text.rs", "use super::Hlc;\nuse crate::resp::Sink; // crate::message"),
        (
            "core/src/store/watch.rs",
            "use super::client;\nuse crate::{message, rules::{decide, State}};",
        ),
        ("core/src/rules/decide.rs", "use crate::message::{Command, client};"),
    ] {
        assert!(misplaced(&file(path, text)).is_empty(), "{path}: {text}");
    }
}
