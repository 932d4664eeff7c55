//! Sections of PEM files, and errors without the text of the file.

use rustls::pki_types::pem::{self, PemObject};

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";

/// Error of a PEM file. It contains only the position of the error: the file may contain a private
/// key, also where a certificate is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PemError {
    /// The file contains no section of the expected kind.
    #[error("no section of the expected kind was found; a section begins with a BEGIN line")]
    NoSection,
    /// The BEGIN line of a section does not end with five hyphens.
    #[error("line {line}: the BEGIN line does not end with five hyphens")]
    Begin {
        /// Line, from 1.
        line: usize,
    },
    /// A section has no END line.
    #[error("line {line}: the section that begins here has no END line; is the file complete?")]
    NoEnd {
        /// Line of the beginning of the section, from 1.
        line: usize,
    },
    /// A section is on a single line.
    #[error(
        "line {line}: a section is on one line; insert line breaks after its BEGIN line and before \
         its END line"
    )]
    OneLine {
        /// Line, from 1.
        line: usize,
    },
    /// The content of a section is not Base64.
    #[error("line {line}: the section that begins here is not Base64")]
    Base64 {
        /// Line of the beginning of the section, from 1.
        line: usize,
    },
    /// A section exceeds the limit of the parser, 256 MiB.
    #[error("a section exceeds 256 MiB")]
    TooLarge,
    /// The parser reported another error.
    #[error("the file is not PEM")]
    Other,
}

/// Parses all sections of one kind. At least one must exist.
///
/// # Errors
/// [`PemError`] for the first error.
pub fn pem_sections<T: PemObject>(pem: &[u8]) -> Result<Vec<T>, PemError> {
    let found = T::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match found.map_err(|error| explain(pem, &error))? {
        found if found.is_empty() => Err(PemError::NoSection),
        found => Ok(found),
    }
}

/// Parses the first section of one kind. Errors after it are ignored.
///
/// # Errors
/// [`PemError`] for the first error.
pub fn pem_section<T: PemObject>(pem: &[u8]) -> Result<T, PemError> {
    T::from_pem_slice(pem).map_err(|error| explain(pem, &error))
}

/// Replaces the text of the file in an error by its line.
fn explain(pem: &[u8], error: &pem::Error) -> PemError {
    match error {
        pem::Error::NoItemsFound => PemError::NoSection,
        pem::Error::IllegalSectionStart { line: text } => {
            // For the parser, a carriage return ends a line too.
            let is_it = |line: &[u8]| line.split(|byte| *byte == b'\r').any(|part| part == text);
            let line = lines(pem).find(|(_, line)| is_it(line));
            PemError::Begin { line: line.map_or(1, |(number, _)| number) }
        }
        pem::Error::MissingSectionEnd { .. } => {
            match lines(pem).filter(|(_, line)| contains(line, BEGIN)).last() {
                Some((line, text)) if contains(text, END) => PemError::OneLine { line },
                begin => PemError::NoEnd { line: begin.map_or(1, |(number, _)| number) },
            }
        }
        pem::Error::Base64Decode(_) => PemError::Base64 { line: line_of_bad_section(pem) },
        pem::Error::SectionTooLarge => PemError::TooLarge,
        _ => PemError::Other,
    }
}

/// The lines with their numbers.
fn lines(pem: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    (1..).zip(pem.split(|byte| *byte == b'\n'))
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

/// Returns the line at which the first section begins that is not Base64.
fn line_of_bad_section(pem: &[u8]) -> usize {
    let (mut begin, mut at) = (1, 0);
    let mut section = 0;
    for (number, line) in lines(pem) {
        if line.starts_with(BEGIN) {
            (begin, section) = (number, at);
        }
        at += line.len() + 1;
        if line.starts_with(END) {
            let text = pem.get(section..at.min(pem.len())).unwrap_or_default();
            let parsed = <(pem::SectionKind, Vec<u8>)>::from_pem_slice(text);
            if matches!(parsed, Err(pem::Error::Base64Decode(_))) {
                break;
            }
            section = at.min(pem.len());
        }
    }
    begin
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    use super::*;

    #[test]
    fn error_has_the_line_of_the_section() {
        let good = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let after = |text: &str| {
            pem_sections::<CertificateDer<'_>>((good.to_owned() + text).as_bytes()).map(drop)
        };
        assert_eq!(after(""), Ok(()));
        for (text, error) in [
            ("-----BEGIN CERTIFICATE----\nAAAA\n", PemError::Begin { line: 4 }),
            ("\n-----BEGIN CERTIFICATE-----\nAAAA\n", PemError::NoEnd { line: 5 }),
            (&good.replace('\n', " "), PemError::OneLine { line: 4 }),
            (&good.replace("AAAA", "A!A"), PemError::Base64 { line: 4 }),
            (&format!("{good}{}{good}", good.replace("AAAA", "A")), PemError::Base64 { line: 7 }),
        ] {
            assert_eq!(after(text), Err(error), "{text}");
        }
        let none = pem_sections::<PrivateKeyDer<'_>>(good.as_bytes());
        assert_eq!(none.map(drop), Err(PemError::NoSection));
        assert_eq!(pem_section::<PrivateKeyDer<'_>>(b"").map(drop), Err(PemError::NoSection));
    }
}
