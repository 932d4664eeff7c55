//! No module of a library or of the command, and no file of the core, of the session machine or of
//! the broker, depends on itself through others.

use std::collections::{BTreeMap, BTreeSet};

use super::layers::{self, heads, paths, used_paths};
use super::source::code_without_strings;
use super::{File, core_files, file, rust_files};

const CRATES: [&str; 16] = [
    "mqtt/src",
    "server/broker/src",
    "server/policy/src",
    "server/capture/src",
    "transports/tokio/src",
    "transports/client/src",
    "transports/rumqttc/src",
    "transports/paho/src",
    "transports/azure-mqtt/src",
    "server/host/src",
    "transports/loopback/src",
    "server/sqlite/src",
    "server/etcd/src",
    "cli/src",
    "tests/chaos/src",
    "tests/sim/src",
];

type Uses = BTreeMap<String, BTreeSet<String>>;

/// The first module of a path below the crate's folder; `None` for the root itself.
fn module(folder: &str, path: &str) -> Option<String> {
    let inside = path.strip_prefix(folder)?.trim_start_matches('/').trim_end_matches(".rs");
    let first = inside.split('/').next()?;
    (!matches!(first, "lib" | "main")).then(|| first.to_owned())
}

/// The modules that each module uses. Items of the root have no module name, so they do not count.
fn uses(folder: &str, files: &[File]) -> Uses {
    let modules: BTreeSet<String> =
        files.iter().filter_map(|file| module(folder, &file.path)).collect();
    let mut uses = Uses::new();
    for file in files {
        let Some(own) = module(folder, &file.path) else { continue };
        let code = code_without_strings(&file.text);
        let compact = code.split_whitespace().collect::<Vec<_>>().join(" ");
        let named = compact.match_indices("crate::").flat_map(|(at, _)| heads(&compact[at + 7..]));
        let used = named.filter(|name| modules.contains(name) && *name != own);
        uses.entry(own.clone()).or_default().extend(used);
    }
    uses
}

/// The files of the core that each file uses, by module path.
///
/// A name that a `mod.rs` or the root of the broker re-exports counts as a use of the file that
/// defines it. A `mod.rs` must name its own children, so that does not count.
fn file_uses(files: &[File]) -> Uses {
    let modules: BTreeSet<String> =
        files.iter().map(|file| layers::module(&file.path).join("::")).collect();
    let mut reexports = BTreeMap::new();
    let has_reexports =
        |file: &&File| file.path.ends_with("/mod.rs") || file.path == "server/broker/src/lib.rs";
    for file in files.iter().filter(has_reexports) {
        let own = layers::module(&file.path).join("::");
        let inside = |name: &str| {
            let path = [own.as_str(), name];
            path.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("::")
        };
        let code = code_without_strings(&file.text);
        for (at, keyword) in code.match_indices("use ") {
            for path in paths(&code[at + keyword.len()..]) {
                let [child, .., name] = path.as_slice() else { continue };
                let child = inside(child);
                if modules.contains(&child) {
                    reexports.insert(inside(name), child);
                }
            }
        }
    }
    let resolve = |path: &[String]| {
        (1..=path.len()).rev().map(|len| path[..len].join("::")).find_map(|prefix| {
            let found = reexports.get(&prefix).unwrap_or(&prefix);
            modules.contains(found).then(|| found.clone())
        })
    };
    let mut uses = Uses::new();
    for file in files {
        let own = layers::module(&file.path).join("::");
        let children = format!("{own}::");
        let used = used_paths(file).into_iter().filter_map(|path| resolve(&path));
        let used = used.filter(|used| *used != own && !used.starts_with(&children));
        uses.entry(own.clone()).or_default().extend(used);
    }
    uses
}

/// A path from a module back to itself.
fn circle(uses: &Uses) -> Option<Vec<String>> {
    uses.keys().find_map(|start| {
        let mut paths = vec![vec![start.clone()]];
        let mut seen = BTreeSet::new();
        while let Some(path) = paths.pop() {
            let Some(last) = path.last() else { continue };
            for next in uses.get(last).into_iter().flatten() {
                if next == start {
                    return Some(path);
                }
                if seen.insert(next.clone()) {
                    paths.push([path.as_slice(), std::slice::from_ref(next)].concat());
                }
            }
        }
        None
    })
}

#[test]
fn modules_form_no_circle() {
    for folder in CRATES {
        let files = rust_files(folder);
        assert!(files.len() > 4, "{folder} is found");
        let uses = uses(folder, &files);
        assert!(uses.values().any(|used| !used.is_empty()), "uses are found");
        assert_eq!(circle(&uses), None, "in {folder}");
    }
}

#[test]
fn circle_is_found() {
    let files = [
        file("x/src/lib.rs", "mod a; mod b; mod c;"),
        file("x/src/a.rs", "use crate::{b::B, c::C};"),
        file("x/src/b/mod.rs", "use crate::c;"),
        file("x/src/c.rs", "fn f(a: &crate::a::A) {}"),
        file("x/src/d.rs", "// use crate::d;\nconst D: &str = \"crate::d\";"),
    ];
    let found = circle(&uses("x/src", &files)).expect("a, b and c use each other");
    assert!(found.len() >= 2 && found.contains(&"a".to_owned()), "{found:?}");
    assert_eq!(circle(&uses("x/src", &files[1..3])), None);
}

#[test]
fn core_files_form_no_circle() {
    let uses = file_uses(&core_files());
    assert!(uses["hlc::text"].contains("hlc::node"), "a use of a re-export is found");
    assert_eq!(circle(&uses), None);
}

#[test]
fn mqtt_files_form_no_circle() {
    let uses = file_uses(&rust_files("mqtt/src"));
    assert!(uses["session::server"].contains("session::connect"), "a use of a sibling is found");
    assert_eq!(circle(&uses), None);
}

#[test]
fn broker_files_form_no_circle() {
    let uses = file_uses(&rust_files("server/broker/src"));
    assert!(uses["broker::wills"].contains("broker"), "a use of the parent is found");
    assert!(uses["broker"].contains("sessions"), "a use of the root's child is found");
    assert_eq!(circle(&uses), None);
}

#[test]
fn circle_through_the_root_of_the_broker_is_found() {
    let files = [
        file("server/broker/src/lib.rs", "mod a; mod b; pub use a::A;"),
        file("server/broker/src/a.rs", "use crate::b::B;"),
        file("server/broker/src/b.rs", "fn f(a: crate::A) {}"),
    ];
    let found = circle(&file_uses(&files)).expect("a and b use each other");
    assert_eq!(found, ["a", "b"]);
}

#[test]
fn circle_between_files_is_found() {
    let files = [
        file("core/src/lib.rs", "mod a;"),
        file("core/src/a/mod.rs", "mod b; mod c; pub use b::{B, D}; use c::C;"),
        file("core/src/a/b.rs", "use super::c::C; use super::B;"),
        file("core/src/a/c.rs", "fn c() {}"),
        file("core/src/a/c.rs", "use crate::a::{D};"),
    ];
    assert_eq!(circle(&file_uses(&files[..4])), None);
    let found = circle(&file_uses(&files)).expect("b and c use each other");
    assert_eq!(found, ["a::b", "a::c"]);
}
