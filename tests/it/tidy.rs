//! Rules for the source files of the repository. Each rule is a function from a text to complaints,
//! and has a test with a bad text, which detects a rule that no longer works.

mod circles;
mod layers;
mod links;
mod protocol_map;
mod reference;
mod secrets;
mod source;

use std::path::{Path, PathBuf};

use source::{code, code_without_strings, functions};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 100;

/// Words that the core must not contain, outside comments and tests.
const FORBIDDEN: [&str; 14] = [
    "std::",
    "unsafe",
    "println!",
    "eprintln!",
    "dbg!",
    ".unwrap()",
    ".expect(",
    "panic!",
    "todo!",
    "unimplemented!",
    "unreachable!",
    "HashMap",
    "HashSet",
    "&& let",
];

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

fn too_long(file: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX {
        complaints.push(format!("{lines} lines, {FILE_LINES_MAX} at most"));
    }
    for function in functions(&file.text).filter(|function| function.lines > FUNCTION_LINES_MAX) {
        let (name, lines) = (function.name, function.lines);
        complaints.push(format!("fn {name} has {lines} lines, {FUNCTION_LINES_MAX} at most"));
    }
    complaints
}

fn forbidden(file: &File) -> Vec<String> {
    let code = code_without_strings(&file.text);
    let words = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let contains = |needle: &&str| {
        words.match_indices(*needle).any(|(at, _)| {
            let part_of_a_word = |letter: char| letter.is_alphanumeric() || letter == '_';
            let inside = |text: &str, letter: Option<char>| {
                text.starts_with(part_of_a_word) && letter.is_some_and(part_of_a_word)
            };
            let before = words[..at].chars().next_back();
            let after = words[at + needle.len()..].chars().next();
            let last: String = needle.chars().next_back().into_iter().collect();
            !inside(needle, before) && !inside(&last, after)
        })
    };
    FORBIDDEN
        .iter()
        .filter(|needle| contains(needle))
        .map(|needle| format!("contains {needle}"))
        .collect()
}

/// The files that contain this text outside comments.
fn files_with_text<'a>(files: &'a [File], needle: &str) -> Vec<&'a str> {
    let with_text = files.iter().filter(|file| code(&file.text).contains(needle));
    with_text.map(|file| file.path.as_str()).collect()
}

/// The files that use this crate.
fn files_with_crate<'a>(files: &'a [File], krate: &str) -> Vec<&'a str> {
    let uses = |file: &&File| {
        let code = code_without_strings(&file.text);
        code.match_indices(&format!("{krate}::")).any(|(at, _)| {
            !code[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_')
        })
    };
    files.iter().filter(uses).map(|file| file.path.as_str()).collect()
}

#[test]
fn files_and_functions_are_short() {
    let files = rust_files(".");
    assert!(files.iter().any(|file| file.path == "tests/it/tidy.rs"), "this file is found");
    check_all(&files, too_long);
}

#[test]
fn long_file_and_long_function_are_found() {
    assert!(too_long(&file("a.rs", &"// x\n".repeat(600))).is_empty());
    assert_eq!(too_long(&file("a.rs", &"// x\n".repeat(601))), ["601 lines, 600 at most"]);
    let body = |lines| {
        format!("fn short() {{}}\npub fn f<T>(t: T) -> T {{\n{}}}\n", "    g();\n".repeat(lines))
    };
    assert!(too_long(&file("a.rs", &body(98))).is_empty());
    assert_eq!(too_long(&file("a.rs", &body(99))), ["fn f has 101 lines, 100 at most"]);
}

#[test]
fn core_contains_no_forbidden_word() {
    check_all(&core_files(), forbidden);
}

#[test]
fn forbidden_words_are_found_in_code_only() {
    for (text, complaint) in [
        ("use std::io;", "contains std::"),
        ("fn f() { unsafe { g() } }", "contains unsafe"),
        ("fn f() { x().unwrap(); }", "contains .unwrap()"),
        ("fn f() { x()\n    .expect(\"y\"); }", "contains .expect("),
        ("fn f() { core::panic!(\"y\") }", "contains panic!"),
        ("fn f() { todo!() }", "contains todo!"),
        ("fn f() { println!() }", "contains println!"),
        ("use hashbrown::HashMap;", "contains HashMap"),
        ("fn f() { if a\n    && let Some(b) = c {} }", "contains && let"),
        ("#[cfg(test)]\nmod tests { use std::io; }\nuse std::io;", "contains std::"),
    ] {
        assert_eq!(forbidden(&file("a.rs", text)), [complaint], "{text}");
    }
    for text in [
        "// std:: unsafe\n/// x.unwrap()\n//! panic!\n/* todo! /* HashMap */ std:: */ fn f() {}",
        "const A: &str = \"std:: unsafe panic!\"; const B: char = '\"'; const C: &str = r#\"todo! \"#;",
        "#![forbid(unsafe_code)]\n#[expect(dead_code)] fn f() { x.unwrap_or(1); nostd::g() }",
        "#[cfg(test)]\nmod tests { fn f() { x.unwrap(); std::f() } }\nfn g<'a>(a: &'a str) {}",
        "#[cfg(test)]\nmod tests;\nfn f() { debug_assert!(a && b) }",
    ] {
        assert!(forbidden(&file("a.rs", text)).is_empty(), "{text}");
    }
}

#[test]
fn each_property_name_is_in_one_file() {
    let files = core_files();
    for name in PROPERTY_NAMES {
        assert_eq!(files_with_text(&files, name), ["core/src/message/property.rs"], "{name}");
    }
}

#[test]
fn name_in_a_second_file_is_found() {
    let files = [
        file("a.rs", "const A: &str = \"__ts\";"),
        file("b.rs", "// \"__ts\"\nfn f() {}"),
        file("c.rs", "fn f() { g(\"__ts\") }"),
    ];
    assert_eq!(files_with_text(&files, "\"__ts\""), ["a.rs", "c.rs"]);
}

#[test]
fn nom_and_hex_are_used_in_one_file_each() {
    let files = core_files();
    assert_eq!(files_with_crate(&files, "nom"), ["core/src/resp/parse.rs"]);
    assert_eq!(files_with_crate(&files, "hex"), ["core/src/topic.rs"]);
}

#[test]
fn crate_in_a_second_file_is_found() {
    let files = [
        file("a.rs", "use nom::IResult;"),
        file("b.rs", "// nom::x\nuse crate::venom::X;"),
        file("c.rs", "fn f() -> nom::IResult<A, B> {}"),
    ];
    assert_eq!(files_with_crate(&files, "nom"), ["a.rs", "c.rs"]);
}
