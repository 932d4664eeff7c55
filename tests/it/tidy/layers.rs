//! The layers of the core: a module uses only modules below it.

use std::collections::BTreeSet;

use super::imports::{module, used_paths};
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
            "invariant",
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
            "inline",
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

/// The modules of the crate that a file names by `crate::` or `super::`.
fn used(file: &File) -> BTreeSet<String> {
    used_paths(file).into_iter().filter_map(|path| path.into_iter().next()).collect()
}

fn misplaced(file: &File) -> Vec<String> {
    let Some(own) = module(&file.path).into_iter().next() else { return Vec::new() };
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == own) else {
        return vec![format!(
            "the module {own} is missing from the layers in tests/it/tidy/layers.rs"
        )];
    };
    let is_module = |name: &String| LAYERS.iter().any(|(module, _)| module == name);
    used(file)
        .into_iter()
        .filter(|name| is_module(name) && *name != own && !allowed.contains(&name.as_str()))
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
