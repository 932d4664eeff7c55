//! A secret for tests, the forms in which a text could contain it, and files with it.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Debug;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// A secret. It is also Base64, so that it can be the content of a PEM file.
pub const CANARY: &str = "HunterTwoCanary9";

/// Bytes of the secret that no text may contain in a row.
const PART: usize = 6;

/// The forms of each part: text, numbers, hexadecimal and Base64, also of the bytes that the secret
/// is as Base64. All are in lower case, since hexadecimal is in both.
static FORMS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let decoded = BASE64_STANDARD.decode(CANARY).expect("Base64");
    let secrets = [CANARY.as_bytes(), &decoded];
    let parts = secrets.iter().flat_map(|secret| secret.windows(PART));
    let forms = parts.flat_map(|part| {
        let numbers = format!("{part:?}").replace(['[', ']'], "");
        let bytes: Vec<String> = part.iter().map(|byte| format!("{byte:02x}")).collect();
        [
            numbers.replace(", ", ",\n    "),
            numbers,
            bytes.concat(),
            bytes.join(" "),
            bytes.join(", 0x"),
            part.escape_ascii().to_string(),
            // Of a text with this part at a multiple of three bytes.
            BASE64_STANDARD.encode(part),
        ]
    });
    forms.map(|form| form.to_lowercase()).collect()
});

/// Checks that a text contains no part of the [`CANARY`] in any form: text, numbers, hexadecimal,
/// Base64, or decoded from Base64.
///
/// # Panics
/// If it does.
#[track_caller]
pub fn assert_no_canary(text: &str) {
    let text = text.to_lowercase();
    for form in FORMS.iter() {
        assert!(!text.contains(form), "{form:?} in {text}");
    }
}

/// Checks the `Debug` output of a value like [`assert_no_canary`].
///
/// # Panics
/// If it contains the secret.
#[track_caller]
pub fn assert_debug_has_no_canary(value: &dyn Debug) {
    assert_no_canary(&format!("{value:?}"));
    assert_no_canary(&format!("{value:#?}"));
}

/// Checks all texts of an error and of its sources like [`assert_no_canary`].
///
/// # Panics
/// If one contains the secret.
#[track_caller]
pub fn assert_error_has_no_canary(error: &(dyn Error + 'static)) {
    let mut source = Some(error);
    while let Some(error) = source {
        assert_no_canary(&error.to_string());
        assert_debug_has_no_canary(&error);
        source = error.source();
    }
}

/// Variants of a file with the [`CANARY`] in each place: as a line, instead of a line, after a line,
/// as a value of each type, at the end of a truncated file, and all of these on one line.
#[must_use]
pub fn files_with_canary(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut files =
        vec![CANARY.to_owned(), format!("{text}{CANARY}"), format!("{CANARY}:{CANARY}")];
    for (at, line) in lines.iter().enumerate() {
        let mut with = |replaced: &str| {
            let all = [&lines[..at], &[replaced], &lines[at + 1..]].concat();
            files.extend([all.join("\n"), all.join(" "), all[..=at].join("\n")]);
        };
        with(CANARY);
        with(&format!("{CANARY}\n{line}"));
        with(&format!("{line}{CANARY}"));
        with(&format!("{line} \"{CANARY}\""));
        for (end, _) in line.match_indices(['=', ':']) {
            let name = &line[..=end];
            for value in
                ["CANARY", "\"CANARY\"", "\"1CANARY\"", "[\"CANARY\"]", "{\"a\": \"CANARY\"}"]
            {
                let value = value.replace("CANARY", CANARY);
                with(&format!("{name} {value}"));
                with(&format!("{name} {value},"));
            }
        }
    }
    files
}
