//! What the repository's own files must look like. Each rule is a function from text to complaints, and each is shown
//! a bad text, so that a rule that has gone blind fails too.

mod circles;
mod layers;
mod source;

use std::path::{Path, PathBuf};

use source::{code, code_without_strings, functions};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 100;

/// What the core must not say, outside comments and tests.
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

/// Names that stand in one place of the core only.
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
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The Rust files below a folder of the repository, in the order of their paths.
fn rust_files(folder: &str) -> Vec<File> {
    let mut folders = vec![root().join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
                files.push(File { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn core_files() -> Vec<File> {
    let files = rust_files("core/src");
    assert!(files.len() > 10, "the core was found");
    files
}

fn file(path: &str, text: &str) -> File {
    File { path: path.into(), text: text.into() }
}

/// Applies a rule to files and fails with every complaint.
fn hold(files: &[File], rule: impl Fn(&File) -> Vec<String>) {
    let complaint = |file: &File| {
        rule(file)
            .into_iter()
            .map(|complaint| format!("{}: {complaint}", file.path))
            .collect::<Vec<_>>()
    };
    let complaints: Vec<String> = files.iter().flat_map(complaint).collect();
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
    let says = |needle: &&str| {
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
    FORBIDDEN.iter().filter(|needle| says(needle)).map(|needle| format!("says {needle}")).collect()
}

/// The files that say this outside comments.
fn who_says<'a>(files: &'a [File], needle: &str) -> Vec<&'a str> {
    let says = |file: &&File| code(&file.text).contains(needle);
    files.iter().filter(says).map(|file| file.path.as_str()).collect()
}

/// The files that name this crate outside comments.
fn who_uses<'a>(files: &'a [File], krate: &str) -> Vec<&'a str> {
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
    assert!(files.iter().any(|file| file.path == "tests/it/tidy.rs"), "this file was found");
    hold(&files, too_long);
}

#[test]
fn a_long_file_and_a_long_function_are_found() {
    assert!(too_long(&file("a.rs", &"// x\n".repeat(600))).is_empty());
    assert_eq!(too_long(&file("a.rs", &"// x\n".repeat(601))), ["601 lines, 600 at most"]);
    let body = |lines| {
        format!("fn short() {{}}\npub fn f<T>(t: T) -> T {{\n{}}}\n", "    g();\n".repeat(lines))
    };
    assert!(too_long(&file("a.rs", &body(98))).is_empty());
    assert_eq!(too_long(&file("a.rs", &body(99))), ["fn f has 101 lines, 100 at most"]);
}

#[test]
fn the_core_says_nothing_forbidden() {
    hold(&core_files(), forbidden);
}

#[test]
fn forbidden_words_are_found_in_code_only() {
    for (text, complaint) in [
        ("use std::io;", "says std::"),
        ("fn f() { unsafe { g() } }", "says unsafe"),
        ("fn f() { x().unwrap(); }", "says .unwrap()"),
        ("fn f() { x()\n    .expect(\"y\"); }", "says .expect("),
        ("fn f() { core::panic!(\"y\") }", "says panic!"),
        ("fn f() { todo!() }", "says todo!"),
        ("fn f() { println!() }", "says println!"),
        ("use hashbrown::HashMap;", "says HashMap"),
        ("fn f() { if a\n    && let Some(b) = c {} }", "says && let"),
        ("#[cfg(test)]\nmod tests { use std::io; }\nuse std::io;", "says std::"),
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
fn each_property_name_stands_in_one_file() {
    let files = core_files();
    for name in PROPERTY_NAMES {
        assert_eq!(who_says(&files, name), ["core/src/message/property.rs"], "{name}");
    }
}

#[test]
fn a_name_in_a_second_file_is_found() {
    let files = [
        file("a.rs", "const A: &str = \"__ts\";"),
        file("b.rs", "// \"__ts\"\nfn f() {}"),
        file("c.rs", "fn f() { g(\"__ts\") }"),
    ];
    assert_eq!(who_says(&files, "\"__ts\""), ["a.rs", "c.rs"]);
}

#[test]
fn the_parser_crate_and_base16_stay_behind_one_file_each() {
    let files = core_files();
    assert_eq!(who_uses(&files, "nom"), ["core/src/resp/parse.rs"]);
    assert_eq!(who_uses(&files, "hex"), ["core/src/topic.rs"]);
}

#[test]
fn a_crate_in_a_second_file_is_found() {
    let files = [
        file("a.rs", "use nom::IResult;"),
        file("b.rs", "// nom::x\nuse crate::venom::X;"),
        file("c.rs", "fn f() -> nom::IResult<A, B> {}"),
    ];
    assert_eq!(who_uses(&files, "nom"), ["a.rs", "c.rs"]);
}
