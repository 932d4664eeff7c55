//! The documentation of the fuzz targets: the list in `fuzz/README.md`, and that of the bodies.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use statestore_fuzz_bodies::TARGETS;

#[test]
fn fuzz_readme_lists_each_target_once() {
    let fuzz = root().join("fuzz");
    let files = fs::read_dir(fuzz.join("fuzz_targets")).unwrap();
    let targets: BTreeSet<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .map(|name| name.trim_end_matches(".rs").to_owned())
        .collect();

    let readme = fs::read_to_string(fuzz.join("README.md")).unwrap();
    let listed: Vec<String> = readme
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
        .collect();
    assert_eq!(listed.len(), targets.len(), "{listed:?}");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), targets);
}

#[test]
fn each_body_documents_its_oracle_and_its_input() {
    let sources = sources(&root().join("tests/fuzz-bodies/src"));
    for (name, _) in TARGETS {
        let head = format!("\npub fn {name}(data: &[u8]) {{");
        let before = sources.iter().find_map(|source| Some(source.split_once(&head)?.0));
        let lines = before.unwrap_or_else(|| panic!("{name} has no body")).lines().rev();
        let doc: Vec<&str> = lines.map_while(|line| line.strip_prefix("///")).collect();
        assert!(doc.last().is_some_and(|line| line.starts_with(" Oracle: ")), "oracle of {name}");
        assert!(doc.iter().any(|line| line.starts_with(" Input: ")), "input of {name}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Rust files below a folder.
fn sources(folder: &Path) -> Vec<String> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![fs::read_to_string(path).unwrap()],
        })
        .collect()
}
