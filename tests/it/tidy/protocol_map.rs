//! The protocol map: each rule has a source, code and tests, and what they name exists.

use super::{File, check_all, file, root, rust_files};

const MAP: &str = "docs/protocol-map.md";

/// Labels of each rule, in this order.
const LABELS: [&str; 3] = ["Source", "Code", "Tests"];

/// A labelled part of a rule, its lines joined by blanks.
struct Field {
    label: &'static str,
    line: usize,
    text: String,
}

/// A list item of the map.
struct Rule {
    line: usize,
    fields: Vec<Field>,
}

/// The list items below the first heading of a section.
fn rules(text: &str) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut is_inside = false;
    for (line, number) in text.lines().zip(1..).skip_while(|(line, _)| !line.starts_with("## ")) {
        if line.starts_with("- ") {
            rules.push(Rule { line: number, fields: Vec::new() });
            is_inside = true;
        } else {
            is_inside &= line.starts_with("  ");
        }
        let Some(rule) = rules.last_mut().filter(|_| is_inside) else { continue };
        if let Some((label, text)) = labelled(line.trim()) {
            rule.fields.push(Field { label, line: number, text: text.into() });
        } else if let Some(field) = rule.fields.last_mut() {
            field.text.push(' ');
            field.text.push_str(line.trim());
        }
    }
    rules
}

/// The label of a line and the text behind it.
fn labelled(line: &str) -> Option<(&'static str, &str)> {
    LABELS.into_iter().find_map(|label| {
        let text = line.strip_prefix(label)?.strip_prefix(':')?;
        Some((label, text.trim()))
    })
}

/// Missing labels of a map, and names that do not exist.
fn wrong_names(file: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    for rule in rules(&file.text) {
        let labels: Vec<_> = rule.fields.iter().map(|field| field.label).collect();
        if labels != LABELS {
            let (found, expected) = (labels.join(", "), LABELS.join(", "));
            complaints.push(format!("line {}: has [{found}], not [{expected}]", rule.line));
        }
        for field in &rule.fields {
            let problems = field_problems(field);
            complaints.extend(problems.iter().map(|text| format!("line {}: {text}", field.line)));
        }
    }
    complaints
}

fn field_problems(field: &Field) -> Vec<String> {
    let label = field.label;
    if field.text.is_empty() {
        return vec![format!("{label} is empty")];
    }
    if label == "Source" || field.text == "none." {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let mut path = None;
    // Text and names in turn: nothing, a path, a blank, an identifier, a comma, a path, and at last
    // a full stop.
    let parts: Vec<&str> = field.text.split('`').collect();
    for pair in parts.chunks(2) {
        match *pair {
            [" ", word] => problems.extend(word_problem(label, path.take(), word)),
            ["" | ", ", name] if label == "Tests" && name.contains("::") => {
                path = None;
                if !is_test(name) {
                    problems.push(format!("{name} is not a test"));
                }
            }
            ["" | ", ", name] if is_below_root(name) => path = Some(name),
            ["" | ", ", name] => {
                path = None;
                problems.push(format!("{name} does not exist"));
            }
            [between, name] => problems.push(format!("{between:?} stands before {name}")),
            ["."] => {}
            _ => problems.push(format!("{label} does not end with a name and a full stop")),
        }
    }
    if parts.chunks_exact(2).remainder().is_empty() {
        problems.push(format!("{label} has an unpaired backtick"));
    }
    problems
}

/// The error in an identifier after a path. The code must define it, so that a reader finds
/// the rule and not a use or a comment.
fn word_problem(label: &str, path: Option<&str>, word: &str) -> Option<String> {
    let Some(path) = path else { return Some(format!("{word} does not follow a path")) };
    let text = text_of(path).unwrap_or_default();
    let must_define = label == "Code" && path.ends_with(".rs");
    let (is_there, verb) = if must_define {
        (defines(&text, word), "define")
    } else {
        (has_word(&text, word), "contain")
    };
    (!is_there).then(|| format!("{path} does not {verb} {word}"))
}

/// Returns whether code defines an item or a variant of an enum: `name`, or `Type::name` for an
/// item below an `impl` of that type.
fn defines(text: &str, name: &str) -> bool {
    const KEYWORDS: [&str; 8] = ["fn", "struct", "enum", "const", "static", "trait", "type", "mod"];
    let (container, name) = name.split_once("::").map_or((None, name), |(t, n)| (Some(t), n));
    // Start of the container, and of the variants of an enum.
    let (mut is_inside, mut variants_at) = (container.is_none(), None);
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if let Some(container) = container.filter(|_| indent == 0) {
            let is_start = code.starts_with("impl") && has_word(code, container);
            is_inside = is_start || is_inside && code != "}";
        }
        if !is_inside {
            continue;
        }
        if KEYWORDS.iter().any(|keyword| has_word(code, &format!("{keyword} {name}"))) {
            return true;
        }
        if has_word(code, "enum") && code.ends_with('{') {
            variants_at = Some(indent + 4);
        } else if code == "}" && variants_at == Some(indent + 4) {
            variants_at = None;
        } else if variants_at == Some(indent) && is_variant(code, name) {
            return true;
        }
    }
    false
}

/// Returns whether the line of an enum declares the variant of this name.
fn is_variant(code: &str, name: &str) -> bool {
    let rest = code.strip_prefix(name);
    rest.is_some_and(|rest| [",", " {", "(", " ="].iter().any(|next| rest.starts_with(next)))
}

/// Returns whether there is a file or folder with this path from the root of the repository.
fn is_below_root(path: &str) -> bool {
    let is_inside = !path.is_empty() && !path.starts_with('/');
    is_inside && path.split('/').all(|level| level != "..") && root().join(path).exists()
}

fn text_of(path: &str) -> Option<String> {
    std::fs::read_to_string(root().join(path)).ok()
}

/// Returns whether a text has these words, not as parts of longer ones.
fn has_word(text: &str, words: &str) -> bool {
    let part_of_a_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(words).any(|(at, _)| {
        !text[..at].ends_with(part_of_a_word)
            && !text[at + words.len()..].starts_with(part_of_a_word)
    })
}

/// Returns whether a path of modules below `tests/it` leads to a test. It is in the file of its
/// module, or
/// of the innermost module around it that has a file; when its own has none, any file of the
/// outermost may name it, as where a macro makes tests.
fn is_test(name: &str) -> bool {
    let parts: Vec<&str> = name.split("::").collect();
    let [modules @ .., function] = parts.as_slice() else { return false };
    let Some(outermost) = modules.first() else { return false };
    if function.is_empty() {
        return false;
    }
    let file_of = |depth: usize| text_of(&format!("tests/it/{}.rs", modules[..depth].join("/")));
    let innermost = (1..=modules.len()).rev().find_map(|depth| Some((depth, file_of(depth)?)));
    let Some((depth, text)) = innermost else { return false };
    let is_here = has_word(&text, &format!("fn {function}"));
    if is_here || depth == modules.len() {
        return is_here;
    }
    let is_near = |path: &str| {
        let rest = path.strip_prefix("tests/it/").and_then(|path| path.strip_prefix(*outermost));
        rest.is_some_and(|rest| rest.starts_with(['/', '.']))
    };
    let mut files = rust_files("tests/it").into_iter();
    files.any(|file| is_near(&file.path) && has_word(&file.text, function))
}

#[test]
fn every_name_in_the_protocol_map_exists() {
    let map = file(MAP, &text_of(MAP).unwrap_or_default());
    assert!(rules(&map.text).len() > 50, "the rules of {MAP} were found");
    check_all(&[map], wrong_names);
}

#[test]
fn a_wrong_name_is_found() {
    let head = "# Map\n- `no/such/path`\n\n## Rules\n\n- Rule.\n  Source: Page, `no/such/path`.\n";
    let cases: [(&str, &[&str]); 15] = [
        ("  Code: `core/src/topic.rs` `REQUEST`,\n  `core/src/`.\n  Tests: none.", &[]),
        ("  Code: none.\n  Tests: `tidy::protocol_map::a_wrong_name_is_found`.", &[]),
        ("  Code: none.\n  Tests: `tidy::elsewhere::a_wrong_name_is_found`.", &[]),
        (
            "  Code: none.\n  Tests: `tidy::protocol_map::a_wrong_name`.",
            &["line 9: tidy::protocol_map::a_wrong_name is not a test"],
        ),
        (
            "  Code: none.\n  Tests: `none::f`, `f`.",
            &["line 9: none::f is not a test", "line 9: f does not exist"],
        ),
        (
            "  Code: `core/src/topic.rs` `ABSENT`.\n  Tests: none.",
            &["line 8: core/src/topic.rs does not define ABSENT"],
        ),
        (
            "  Code: `core/src` `topic`.\n  Tests: none.",
            &["line 8: core/src does not contain topic"],
        ),
        (
            "  Code: `core/src/store/request.rs` `message_expiry`.\n  Tests: none.",
            &["line 8: core/src/store/request.rs does not define message_expiry"],
        ),
        (
            "  Code: `core/src/store/request.rs` `Address::new`, \
             `core/src/topic.rs` `Wildcard`.\n  Tests: none.",
            &[],
        ),
        (
            "  Code: `core/src/store/request.rs` `Address::check_delivery`.\n  Tests: none.",
            &["line 8: core/src/store/request.rs does not define Address::check_delivery"],
        ),
        (
            "  Code: `core/src/none.rs`,\n  `../x`.\n  Tests: none.",
            &["line 8: core/src/none.rs does not exist", "line 8: ../x does not exist"],
        ),
        (
            "  Code: `core/src` and `core`.\n  Tests: none.",
            &["line 8: \" and \" stands before core"],
        ),
        (
            "  Code: all.\n  Tests:",
            &["line 8: Code does not end with a name and a full stop", "line 9: Tests is empty"],
        ),
        ("  Code: `core\n  Tests: none.", &["line 8: Code has an unpaired backtick"]),
        (
            "  Tests: none.\n\n  Code: none.",
            &["line 6: has [Source, Tests], not [Source, Code, Tests]"],
        ),
    ];
    for (fields, complaints) in cases {
        let map = file("map.md", &format!("{head}{fields}\n"));
        assert_eq!(wrong_names(&map), complaints, "{fields}");
    }
}
