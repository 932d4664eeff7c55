//! Test reports in the JUnit format, which CI systems read.

use std::fmt::Write as _;
use std::time::Duration;

/// A test.
pub(crate) struct Test<'a> {
    pub(crate) suite: &'a str,
    pub(crate) name: &'a str,
    pub(crate) elapsed: Duration,
    pub(crate) outcome: Outcome<'a>,
}

/// Outcome of a test.
pub(crate) enum Outcome<'a> {
    /// With output of the test, which may be empty.
    Passed { output: String },
    /// With the reason.
    Skipped { message: String },
    /// With a line and a text.
    Failed { kind: &'a str, message: String, description: String },
}

/// Returns the report as an XML document. Tests of one suite must follow each other.
pub(crate) fn document(name: &str, tests: &[Test<'_>]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(xml, "<testsuites name=\"{}\" {}>", attribute(name), counts(tests));
    for suite in tests.chunk_by(|one, next| one.suite == next.suite) {
        let name = attribute(suite.first().map_or("", |test| test.suite));
        let _ = writeln!(xml, "    <testsuite name=\"{name}\" {}>", counts(suite));
        suite.iter().for_each(|test| put(&mut xml, test));
        xml.push_str("    </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn counts(tests: &[Test<'_>]) -> String {
    let count =
        |is: fn(&Outcome<'_>) -> bool| tests.iter().filter(|test| is(&test.outcome)).count();
    format!(
        "tests=\"{}\" skipped=\"{}\" failures=\"{}\" errors=\"0\"",
        tests.len(),
        count(|outcome| matches!(outcome, Outcome::Skipped { .. })),
        count(|outcome| matches!(outcome, Outcome::Failed { .. })),
    )
}

fn put(xml: &mut String, test: &Test<'_>) {
    let _ = writeln!(
        xml,
        "        <testcase name=\"{}\" classname=\"{}\" time=\"{:.3}\">",
        attribute(test.name),
        attribute(test.suite),
        test.elapsed.as_secs_f64(),
    );
    let indent = "            ";
    let _ = match &test.outcome {
        Outcome::Passed { output } if output.is_empty() => Ok(()),
        Outcome::Passed { output } => {
            writeln!(xml, "{indent}<system-out>{}</system-out>", escaped(output))
        }
        Outcome::Skipped { message } => {
            writeln!(xml, "{indent}<skipped message=\"{}\"/>", attribute(message))
        }
        Outcome::Failed { kind, message, description } => writeln!(
            xml,
            "{indent}<failure message=\"{}\" type=\"{}\">{}</failure>",
            attribute(message),
            attribute(kind),
            escaped(description),
        ),
    };
    xml.push_str("        </testcase>\n");
}

/// Escapes text between tags. Characters that XML does not allow become U+FFFD.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // A parser turns it into a line feed.
            '\r' => escaped.push_str("&#13;"),
            '\t' | '\n' => escaped.push(char),
            '\0'..' ' | '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            _ => escaped.push(char),
        }
    }
    escaped
}

/// Escapes the value of an attribute, in which a parser turns line feeds and tabs into blanks.
fn attribute(text: &str) -> String {
    escaped(text).replace('\n', "&#10;").replace('\t', "&#9;")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    const HOSTILE: &str = "a<b>&amp;\"'\t\n\r\n]]>\u{85}\u{7f}é\u{1f980}";

    fn failed<'a>(suite: &'a str, name: &'a str, text: &str) -> Test<'a> {
        let outcome = Outcome::Failed {
            kind: "<kind>",
            message: text.to_owned(),
            description: text.to_owned(),
        };
        Test { suite, name, elapsed: Duration::from_millis(1_234), outcome }
    }

    fn other<'a>(suite: &'a str, outcome: Outcome<'a>) -> Test<'a> {
        Test { suite, name: "test", elapsed: Duration::ZERO, outcome }
    }

    #[test]
    fn report_has_a_suite_per_section_with_its_counts() {
        let skipped = Outcome::Skipped { message: "no store".to_owned() };
        let passed = || Outcome::Passed { output: String::new() };
        let tests = [
            other("one", passed()),
            other("one", skipped),
            failed("two", "test", "expected\n\0"),
            other("three", passed()),
        ];
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="run" tests="4" skipped="1" failures="1" errors="0">
    <testsuite name="one" tests="2" skipped="1" failures="0" errors="0">
        <testcase name="test" classname="one" time="0.000">
        </testcase>
        <testcase name="test" classname="one" time="0.000">
            <skipped message="no store"/>
        </testcase>
    </testsuite>
    <testsuite name="two" tests="1" skipped="0" failures="1" errors="0">
        <testcase name="test" classname="two" time="1.234">
            <failure message="expected&#10;�" type="&lt;kind&gt;">expected
�</failure>
        </testcase>
    </testsuite>
    <testsuite name="three" tests="1" skipped="0" failures="0" errors="0">
        <testcase name="test" classname="three" time="0.000">
        </testcase>
    </testsuite>
</testsuites>
"#;
        assert_eq!(document("run", &tests), expected);
    }

    /// Prints the names, attributes and texts of all elements as JSON.
    const SCRIPT: &str = "\
import json, sys, xml.etree.ElementTree as tree
root = tree.fromstring(sys.stdin.buffer.read())
print(json.dumps([[each.tag, each.attrib, each.text] for each in root.iter()]))";

    /// Passes if python3 is missing.
    #[test]
    fn xml_parser_returns_the_texts_of_a_report() {
        let python = Command::new("python3")
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut python) = python else { return };
        // Each character that XML does not allow, and its neighbours.
        let forbidden: String =
            ('\0'..=' ').chain('\u{d7f0}'..='\u{e00f}').chain('\u{fff0}'..='\u{1000f}').collect();
        let is_allowed = |char: char| {
            char >= ' ' && !"\u{fffe}\u{ffff}".contains(char) || "\t\n\r".contains(char)
        };
        let replaced: String = forbidden
            .chars()
            .map(|char| if is_allowed(char) { char } else { char::REPLACEMENT_CHARACTER })
            .collect();
        let output = || Outcome::Passed { output: HOSTILE.to_owned() };
        let skipped = || Outcome::Skipped { message: HOSTILE.to_owned() };
        let tests = [
            failed(HOSTILE, HOSTILE, HOSTILE),
            failed(HOSTILE, "forbidden", &forbidden),
            other(HOSTILE, output()),
            other(HOSTILE, skipped()),
        ];
        let document = document(HOSTILE, &tests);
        python.stdin.take().unwrap().write_all(document.as_bytes()).unwrap();
        let printed = python.wait_with_output().unwrap();
        assert!(printed.status.success(), "the document is XML: {document}");
        let found: Vec<(String, serde_json::Value, Option<String>)> =
            serde_json::from_slice(&printed.stdout).unwrap();
        let of = |tag: &str| {
            let is_it = move |each: &&(String, serde_json::Value, _)| each.0 == tag;
            found.iter().filter(is_it).collect::<Vec<_>>()
        };
        for (tag, count) in [("testsuites", 1), ("testsuite", 1), ("testcase", 4), ("failure", 2)] {
            assert_eq!(of(tag).len(), count, "{tag}");
        }
        assert_eq!(of("testsuites")[0].1["name"], HOSTILE);
        assert_eq!(of("testsuite")[0].1["name"], HOSTILE);
        assert_eq!(of("testcase")[0].1["name"], HOSTILE);
        assert_eq!(of("testcase")[0].1["classname"], HOSTILE);
        for (failure, text) in of("failure").into_iter().zip([HOSTILE, &replaced]) {
            assert_eq!(failure.1["message"], text);
            assert_eq!(failure.1["type"], "<kind>");
            assert_eq!(failure.2.as_deref(), Some(text));
        }
        assert_eq!(of("system-out")[0].2.as_deref(), Some(HOSTILE));
        assert_eq!(of("skipped")[0].1["message"], HOSTILE);
    }
}
