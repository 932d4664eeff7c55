//! The golden vectors and their reader. The README of the folder `vectors` describes the format for
//! other languages.
//!
//! ```
//! use statestore_verify::vectors::Vectors;
//!
//! let requests = Vectors::read("requests.txt")?;
//! for case in requests.cases() {
//!     let (payload, verb) = (case.bytes("payload")?, case.text("verb")?);
//!     assert!(!payload.is_empty() && !verb.is_empty(), "{}", case.place());
//! }
//! # Ok::<(), String>(())
//! ```

use std::fmt::Display;
use std::str::FromStr;

/// A file of cases.
#[derive(Clone, Debug)]
pub struct Vectors {
    cases: Vec<Case>,
}

/// One line of a file: a name and further fields, unparsed.
#[derive(Clone, Debug)]
pub struct Case {
    place: String,
    columns: Vec<String>,
    fields: Vec<String>,
}

/// Builds the table of files from their names.
macro_rules! files {
    ($($name:literal)+) => {
        &[$(($name, include_str!(concat!("../vectors/", $name)))),+]
    };
}

/// Each file with its text.
const FILES: &[(&str, &str)] = files! {
    "errors.txt" "globs.txt" "hlc-order.txt" "hlc-receive.txt" "hlc-refused.txt" "hlc.txt"
    "notifications-refused.txt" "notifications.txt" "pages-refused.txt" "pages.txt"
    "replies-refused.txt" "replies.txt" "requests-refused.txt" "requests.txt" "scans-refused.txt"
    "scans.txt" "topics-notification.txt" "topics-received.txt" "topics-response.txt"
};

impl Vectors {
    /// Returns the cases of a file of this crate, such as `requests.txt`.
    ///
    /// # Errors
    /// The file does not exist, or its text is invalid, in one line.
    pub fn read(file: &str) -> Result<Self, String> {
        let found = FILES.iter().find(|(name, _)| *name == file);
        let (_, text) = found.ok_or_else(|| format!("tests/vectors/{file}: no such file"))?;
        Self::parse(file, text)
    }

    /// Parses the text of a file; `file` names it in messages.
    ///
    /// # Errors
    /// The text is invalid, in one line.
    pub fn parse(file: &str, text: &str) -> Result<Self, String> {
        let mut lines = text
            .lines()
            .enumerate()
            .map(|(at, line)| (format!("tests/vectors/{file}:{}", at + 1), line))
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let split = |line: &str| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
        let no_header = || format!("tests/vectors/{file}: no header");
        let columns = split(lines.next().ok_or_else(no_header)?.1);
        let mut cases: Vec<Case> = Vec::new();
        for (place, line) in lines {
            let fields = split(line);
            if fields.len() != columns.len() {
                let (found, wanted) = (fields.len(), columns.len());
                return Err(format!("{place}: {found} fields, the header has {wanted}"));
            }
            if let Some(twin) = cases.iter().find(|case| case.fields[0] == fields[0]) {
                return Err(format!("{place}: duplicate name, first at {}", twin.place));
            }
            cases.push(Case { place, columns: columns.clone(), fields });
        }
        Ok(Self { cases })
    }

    /// The cases in order.
    #[must_use]
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// Runs `check` on each case and panics with all failures, each with its file and line.
    ///
    /// # Panics
    /// If a case fails, or if fewer than `at_least` cases exist: an empty file proves nothing.
    pub fn run(&self, at_least: usize, check: impl Fn(&Case) -> Result<(), String>) {
        let failures: Vec<String> = self
            .cases
            .iter()
            .filter_map(|case| Some(format!("{}: {}", case.place, check(case).err()?)))
            .collect();
        assert!(failures.is_empty(), "\n{}", failures.join("\n"));
        let found = self.cases.len();
        assert!(found >= at_least, "{found} cases, at least {at_least} were expected");
    }
}

impl Case {
    /// File and line.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// A field as it stands in the file.
    ///
    /// # Errors
    /// The file does not contain this column.
    pub fn text(&self, column: &str) -> Result<&str, String> {
        let at = self.columns.iter().position(|name| name == column);
        at.map(|at| self.fields[at].as_str()).ok_or_else(|| format!("no column {column}"))
    }

    /// Returns a field, or `None` if it is `-`.
    ///
    /// # Errors
    /// As [`text`](Self::text).
    pub fn optional(&self, column: &str) -> Result<Option<&str>, String> {
        Ok(Some(self.text(column)?).filter(|text| *text != "-"))
    }

    /// Returns a field as bytes, with its escapes resolved.
    ///
    /// # Errors
    /// The field does not exist, or an escape is malformed.
    pub fn bytes(&self, column: &str) -> Result<Vec<u8>, String> {
        unescape(self.text(column)?).ok_or_else(|| format!("malformed escape in {column}"))
    }

    /// Returns a field as bytes, with its escapes resolved, or `None` if it is `-`.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    pub fn optional_bytes(&self, column: &str) -> Result<Option<Vec<u8>>, String> {
        self.optional(column)?.map(|_| self.bytes(column)).transpose()
    }

    /// Returns a field as UTF-8 text, with its escapes resolved.
    ///
    /// # Errors
    /// The errors of [`bytes`](Self::bytes), and bytes that are not UTF-8.
    pub fn string(&self, column: &str) -> Result<String, String> {
        String::from_utf8(self.bytes(column)?).map_err(|error| format!("{column}: {error}"))
    }

    /// Parses a field as a number or another type.
    ///
    /// # Errors
    /// The field does not exist or does not parse.
    pub fn value<T: FromStr<Err: Display>>(&self, column: &str) -> Result<T, String> {
        self.text(column)?.parse().map_err(|error| format!("{column}: {error}"))
    }
}

/// Resolves `\r`, `\n`, `\t`, `\\`, `\e` (an empty field) and `\xHH`. Returns `None` for any other
/// escape.
#[must_use]
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => match rest.next()? {
                b'r' => bytes.push(b'\r'),
                b'n' => bytes.push(b'\n'),
                b't' => bytes.push(b'\t'),
                b'\\' => bytes.push(b'\\'),
                b'e' => {}
                b'x' => {
                    let digits = [rest.next()?, rest.next()?];
                    let mut decoded = [0];
                    hex::decode_to_slice(digits, &mut decoded).ok()?;
                    bytes.extend(decoded);
                }
                _ => return None,
            },
            byte => bytes.push(byte),
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{Vectors, unescape};

    #[test]
    fn unescape_resolves_every_escape_and_refuses_malformed_ones() {
        assert_eq!(unescape(r"a\r\n\t\\\x0fb\e"), Some(b"a\r\n\t\\\x0fb".to_vec()));
        assert_eq!(unescape(r"\e"), Some(Vec::new()));
        for malformed in [r"\", r"\q", r"\x0", r"\xg0"] {
            assert_eq!(unescape(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn parse_refuses_a_text_that_is_not_a_table() {
        let parse = |text| Vectors::parse("f.txt", text).map(|vectors| vectors.cases().len());
        assert_eq!(parse("# c\nname\ta\n\none\t1\ntwo\t2\n"), Ok(2));
        assert_eq!(parse("# c\n"), Err("tests/vectors/f.txt: no header".into()));
        let short = parse("name\ta\none\n").unwrap_err();
        assert_eq!(short, "tests/vectors/f.txt:2: 1 fields, the header has 2");
        let twin = parse("name\ta\none\t1\none\t2\n").unwrap_err();
        assert_eq!(twin, "tests/vectors/f.txt:3: duplicate name, first at tests/vectors/f.txt:2");
    }

    #[test]
    #[should_panic(expected = "tests/vectors/f.txt:2: no")]
    fn failed_case_panics_with_its_file_and_line() {
        Vectors::parse("f.txt", "name\none\n").unwrap().run(1, |_| Err("no".into()));
    }

    #[test]
    #[should_panic(expected = "0 cases, at least 1 were expected")]
    fn run_of_an_empty_file_panics() {
        Vectors::parse("f.txt", "name\n").unwrap().run(1, |_| Ok(()));
    }
}
