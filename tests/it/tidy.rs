//! Rules for the source files of the repository. Each rule is a function from a text to complaints,
//! and has a test with a bad text, which detects a rule that no longer works.

mod circles;
mod imports;
mod layers;
mod links;
mod protocol_map;
mod reference;
mod secrets;

use std::path::{Path, PathBuf};

/// A longer file has more than one subject. Clippy limits functions.
const FILE_LINES_MAX: usize = 900;

/// Names that one file of the core contains, and no other.
const PROPERTY_NAMES: [&str; 10] = [
    "\"__ts\"",
    "\"__ft\"",
    "\"__stat\"",
    "\"__srcId\"",
    "\"__protVer\"",
    "\"aio-persistence\"",
    "\"$partition\"",
    "\"$high_priority\"",
    "\"statestore-incarnation\"",
    "\"statestore-reason\"",
];

/// A file of the repository: its path from the root, with slashes, and its text.
struct File {
    path: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Rust files below a folder of the repository, in the order of their paths.
fn rust_files(folder: &str) -> Vec<File> {
    files_named(folder, ".rs")
}

/// The files below a folder of the repository whose names have this end, in the order of their
/// paths.
fn files_named(folder: &str, end: &str) -> Vec<File> {
    let mut folders = vec![root().join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(end) {
                let text = std::fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
                files.push(File { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// The files of the core, without the tests that have a file of their own.
fn core_files() -> Vec<File> {
    let mut files = rust_files("core/src");
    files.retain(|file| !file.path.ends_with("/tests.rs"));
    assert!(files.len() > 10, "the files of the core are found");
    files
}

fn file(path: &str, text: &str) -> File {
    File { path: path.into(), text: text.into() }
}

/// Applies a rule to files; panics with all complaints.
fn check_all(files: &[File], rule: impl Fn(&File) -> Vec<String>) {
    let mut complaints = Vec::new();
    for file in files {
        complaints.extend(rule(file).into_iter().map(|text| format!("{}: {text}", file.path)));
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// Returns whether code contains this text, which must not end a longer word. Lines of comments and
/// the tests at the end do not count.
fn is_named_in(source: &str, text: &str) -> bool {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let is_end_of_word = |before: &str| before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    code.into_iter().any(|line| {
        let mut found = line.match_indices(text);
        found.any(|(at, _)| !is_end_of_word(&line[..at]))
    })
}

/// The files of the core that contain a text.
fn core_files_with(text: &str) -> Vec<String> {
    let files = core_files().into_iter().filter(|file| is_named_in(&file.text, text));
    files.map(|file| file.path).collect()
}

#[test]
fn files_are_short() {
    let files = rust_files(".");
    assert!(files.iter().any(|file| file.path == "tests/it/tidy.rs"), "this file is found");
    check_all(&files, |file| match file.text.lines().count() {
        lines if lines > FILE_LINES_MAX => vec![format!("{lines} lines, {FILE_LINES_MAX} at most")],
        _ => Vec::new(),
    });
}

#[test]
fn name_is_found_in_code_only() {
    assert!(is_named_in("fn f() -> nom::IResult<A, B> {}", "nom::"));
    assert!(!is_named_in("// nom::x\n    /// nom::y\nuse crate::venom::X;", "nom::"));
}

/// The order of a hash table must not reach an output.
#[test]
fn core_has_no_hash_map() {
    for name in ["HashMap", "HashSet"] {
        assert!(core_files_with(name).is_empty(), "{name}");
    }
}

#[test]
fn each_property_name_is_in_one_file() {
    for name in PROPERTY_NAMES {
        assert_eq!(core_files_with(name), ["core/src/message/property.rs"], "{name}");
    }
}

#[test]
fn nom_and_hex_are_used_in_one_file_each() {
    assert_eq!(core_files_with("nom::"), ["core/src/resp/parse.rs"]);
    assert_eq!(core_files_with("hex::"), ["core/src/topic.rs"]);
}
