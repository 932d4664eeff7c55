//! No file depends on itself through others.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{declared, module, used_paths};
use super::{File, file, rust_files};

const PACKAGES: [&str; 17] = [
    "core/src",
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

/// The files of a package that each file uses, by module path.
///
/// A name that a module or the root re-exports counts as a use of the file that defines it. A module
/// must name its own children, so that does not count.
fn file_uses(files: &[File]) -> Uses {
    let modules: BTreeSet<String> =
        files.iter().map(|file| module(&file.path).join("::")).collect();
    let mut reexports = BTreeMap::new();
    for file in files {
        let own = module(&file.path);
        let inside = |name: &str| [&own[..], &[name.to_owned()]].concat().join("::");
        for path in declared(file) {
            let [child, .., name] = path.as_slice() else { continue };
            let child = inside(child);
            if modules.contains(&child) {
                reexports.insert(inside(name), child);
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
        let own = module(&file.path).join("::");
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
fn files_form_no_circle() {
    let mut circles = Vec::new();
    for folder in PACKAGES {
        let mut files = rust_files(folder);
        files.retain(|file| !file.path.ends_with("/tests.rs"));
        assert!(files.len() > 4, "{folder} is found");
        let uses = file_uses(&files);
        assert!(uses.values().any(|used| !used.is_empty()), "uses are found");
        circles.extend(circle(&uses).map(|circle| (folder, circle)));
    }
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn uses_of_reexports_siblings_and_parents_are_found() {
    for (folder, file, used) in [
        ("core/src", "hlc::text", "hlc::node"),
        ("mqtt/src", "session::server", "session::connect"),
        ("server/broker/src", "broker::wills", "broker"),
        ("server/broker/src", "broker", "sessions"),
    ] {
        assert!(file_uses(&rust_files(folder))[file].contains(used), "{file} uses {used}");
    }
}

#[test]
fn circle_through_the_root_is_found() {
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
