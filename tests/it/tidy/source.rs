//! Removes comments and other parts that are not code from Rust text. Lines and columns are
//! unchanged.

/// The text with blanked comments, without items for tests.
pub(super) fn code(text: &str) -> String {
    without_tests(&blank(text, false))
}

/// The text with blanked comments and string contents, without items for tests.
pub(super) fn code_without_strings(text: &str) -> String {
    without_tests(&blank(text, true))
}

/// A function and its number of lines, from its name to its last brace.
pub(super) struct Function {
    pub(super) name: String,
    pub(super) lines: usize,
}

/// All functions with a body.
pub(super) fn functions(text: &str) -> impl Iterator<Item = Function> {
    let code = blank(text, true);
    let starts: Vec<usize> = code.match_indices("fn ").map(|(at, _)| at).collect();
    starts.into_iter().filter_map(move |at| {
        let begins_a_word =
            code[..at].ends_with(|letter: char| !letter.is_alphanumeric() && letter != '_');
        if at > 0 && !begins_a_word {
            return None;
        }
        let rest = &code[at + "fn ".len()..];
        let name: String =
            rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
        let open = rest.find(['{', ';'])?;
        let body = rest[open..].starts_with('{').then(|| block_len(&rest[open..]))?;
        let lines = rest[..open + body].lines().count();
        (!name.is_empty()).then_some(Function { name, lines })
    })
}

/// Number of bytes from the opening brace to its closing brace, both included.
fn block_len(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// Blanked code without the items behind `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some((before, item)) = rest.split_once("#[cfg(test)]") {
        kept.push_str(before);
        let end = item.find(['{', ';']).unwrap_or(item.len());
        let len = if item[end..].starts_with('{') { block_len(&item[end..]) } else { 1 };
        rest = item.get(end + len..).unwrap_or("");
    }
    kept + rest
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    /// Nesting depth.
    BlockComment(usize),
    String,
    /// Number of hashes at its end.
    RawString(usize),
}

/// The part that a letter belongs to. The quotes of strings count as code.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    Comment,
    Literal,
}

/// The text with comments, and literals if `literals`, replaced by blanks.
fn blank(text: &str, literals: bool) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut state = State::Code;
    let mut at = 0;
    while at < letters.len() {
        let (next, len, part) = step(state, &letters, at);
        let hidden = part == Part::Comment || (literals && part == Part::Literal);
        for letter in &letters[at..(at + len).min(letters.len())] {
            out.push(if hidden && *letter != '\n' { ' ' } else { *letter });
        }
        (state, at) = (next, at + len);
    }
    out
}

/// The next state, the number of letters up to it, and the part that they belong to.
fn step(state: State, letters: &[char], at: usize) -> (State, usize, Part) {
    use Part::{Code, Comment, Literal};
    let starts = |text: &str| {
        text.chars().enumerate().all(|(i, letter)| letters.get(at + i) == Some(&letter))
    };
    match state {
        State::Code if starts("//") => (State::LineComment, 2, Comment),
        State::Code if starts("/*") => (State::BlockComment(1), 2, Comment),
        State::Code if starts("\"") => (State::String, 1, Code),
        State::Code if starts("'") => match char_len(letters, at) {
            1 => (State::Code, 1, Code),
            len => (State::Code, len, Literal),
        },
        State::Code if letters[at] == 'r' && !word_before(letters, at) => {
            let hashes = letters[at + 1..].iter().take_while(|letter| **letter == '#').count();
            match letters.get(at + 1 + hashes) {
                Some('"') => (State::RawString(hashes), hashes + 2, Code),
                _ => (State::Code, 1, Code),
            }
        }
        State::Code => (State::Code, 1, Code),
        State::LineComment if starts("\n") => (State::Code, 1, Comment),
        State::LineComment => (State::LineComment, 1, Comment),
        State::BlockComment(depth) if starts("/*") => (State::BlockComment(depth + 1), 2, Comment),
        State::BlockComment(1) if starts("*/") => (State::Code, 2, Comment),
        State::BlockComment(depth) if starts("*/") => (State::BlockComment(depth - 1), 2, Comment),
        State::BlockComment(_) => (state, 1, Comment),
        State::String if starts("\\") => (State::String, 2, Literal),
        State::String if starts("\"") => (State::Code, 1, Code),
        State::String => (State::String, 1, Literal),
        State::RawString(hashes) if starts(&format!("\"{}", "#".repeat(hashes))) => {
            (State::Code, hashes + 1, Code)
        }
        State::RawString(_) => (state, 1, Literal),
    }
}

/// Returns whether a word other than the prefix `b` or `c` of a raw string ends here.
fn word_before(letters: &[char], at: usize) -> bool {
    let word: Vec<&char> = letters[..at]
        .iter()
        .rev()
        .take_while(|letter| letter.is_alphanumeric() || **letter == '_')
        .collect();
    !matches!(word.as_slice(), [] | ['b' | 'c'])
}

/// Number of letters of a character literal; 1 for the quote of a lifetime.
fn char_len(letters: &[char], at: usize) -> usize {
    let rest = &letters[at + 1..];
    match rest {
        ['\\', _, rest @ ..] => {
            rest.iter().position(|letter| *letter == '\'').map_or(1, |len| len + 4)
        }
        [_, '\'', ..] => 3,
        _ => 1,
    }
}

#[test]
fn comments_and_strings_are_blanked() {
    let text = "let a = \"x // \\\" y\"; // z\nlet b = '\"'; /* c */ let d = br#\"e\"f\"#;\nlet g = '\\'';";
    let kept = "let a = \"x // \\\" y\";     \nlet b = '\"';         let d = br#\"e\"f\"#;\nlet g = '\\'';";
    assert_eq!(code(text), kept);
    let blanked =
        "let a = \"         \";     \nlet b =    ;         let d = br#\"   \"#;\nlet g =     ;";
    assert_eq!(code_without_strings(text), blanked);
    assert_eq!(code("fn f<'a>(a: &'a str) {} // b"), "fn f<'a>(a: &'a str) {}     ");
}
