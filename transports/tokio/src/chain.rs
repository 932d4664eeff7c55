//! Chains of errors without repetitions.

use std::error::Error;

/// Returns the first error of a chain whose text `shown` does not contain.
///
/// An error that contains the text of its cause must not return that cause from
/// [`Error::source`]: a reporter that prints the whole chain would print the text twice.
pub(crate) fn skip_shown<'a>(
    shown: &str,
    source: Option<&'a (dyn Error + 'static)>,
) -> Option<&'a (dyn Error + 'static)> {
    let mut next = source;
    while let Some(error) = next {
        if !shown.contains(&error.to_string()) {
            return Some(error);
        }
        next = error.source();
    }
    None
}
