//! No module of a library or of the command uses one that uses it, directly or by way of others.

use std::collections::{BTreeMap, BTreeSet};

use super::layers::heads;
use super::source::code_without_strings;
use super::{File, file, rust_files};

const CRATES: [&str; 11] = [
    "transports/mqtt/src",
    "policy/src",
    "transports/tokio/src",
    "transports/rumqttc/src",
    "transports/paho/src",
    "transports/embedded/src",
    "transports/loopback/src",
    "storage/sqlite/src",
    "storage/etcd/src",
    "cli/src",
    "tests/faults/src",
];

type Uses = BTreeMap<String, BTreeSet<String>>;

/// The first module of a path below the crate's folder; `None` for the root itself.
fn module(folder: &str, path: &str) -> Option<String> {
    let inside = path.strip_prefix(folder)?.trim_start_matches('/').trim_end_matches(".rs");
    let first = inside.split('/').next()?;
    (!matches!(first, "lib" | "main")).then(|| first.to_owned())
}

/// Which module uses which. What is used of the root is not known by its name, and counts for nothing.
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

/// A way from a module back to itself.
fn circle(uses: &Uses) -> Option<Vec<String>> {
    uses.keys().find_map(|start| {
        let mut ways = vec![vec![start.clone()]];
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop() {
            let Some(last) = way.last() else { continue };
            for next in uses.get(last).into_iter().flatten() {
                if next == start {
                    return Some(way);
                }
                if seen.insert(next.clone()) {
                    ways.push([way.as_slice(), std::slice::from_ref(next)].concat());
                }
            }
        }
        None
    })
}

#[test]
fn no_module_uses_itself_by_way_of_others() {
    for folder in CRATES {
        let files = rust_files(folder);
        assert!(files.len() > 4, "{folder} was found");
        let uses = uses(folder, &files);
        assert!(uses.values().any(|used| !used.is_empty()), "uses were found");
        assert_eq!(circle(&uses), None, "in {folder}");
    }
}

#[test]
fn a_circle_is_found() {
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
