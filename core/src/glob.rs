//! Patterns of keys: case-sensitive globs over the whole key.
//!
//! * `*` matches any number of characters, including `/` and a leading `.`.
//! * `?` matches one character, which may be several bytes.
//! * `[abc]` and `[a-z]` match one of these characters.
//! * `[!abc]` matches one other character; `[^abc]` does **not** mean that.
//! * `**/` matches nothing, or any number of levels with their `/`.
//! * `**` at the end matches anything.
//! * `a**`, `**a`, `***` and `[a` are invalid: [`PatternError`].
//! * Any other character matches itself. A backslash is not an escape: write a special character as
//!   a class, for example `[*]`.
//!
//! The deployed SDK's `list_keys` (`azure_iot_operations_services` 1.5.0-beta1) and the deployed
//! authorization policies use these patterns, with the semantics of the crate `glob` 0.3. A key
//! that is not UTF-8 matches no pattern, and a pattern that is not UTF-8 matches no key.
//!
//! Matching takes time proportional to pattern × key at most, without recursion or allocation.

use core::ops::ControlFlow;
use core::str::Chars;

/// A valid pattern.
///
/// ```
/// use statestore_proto::glob::Pattern;
///
/// let pattern = Pattern::new(b"rooms/*/[tT]emperature")?;
/// assert!(pattern.matches(b"rooms/kitchen/temperature"));
/// assert!(!pattern.matches(b"rooms/kitchen/humidity"));
/// assert_eq!(pattern.literal_prefix(), b"rooms/");
/// assert!(Pattern::new(b"rooms/[").is_err());
/// # Ok::<(), statestore_proto::glob::PatternError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern<'a> {
    /// `None` if the pattern is not UTF-8.
    text: Option<&'a str>,
}

/// The pattern is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct PatternError {
    /// The error.
    pub kind: PatternErrorKind,
    /// Offset of the invalid token in bytes.
    pub at: usize,
}

/// The kind of a [`PatternError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternErrorKind {
    /// A class lacks its `]`, or is empty.
    #[error("unclosed or empty class")]
    Class,
    /// `**` is not a whole level.
    #[error("** is not a whole level")]
    Levels,
    /// More than two stars in a row.
    #[error("more than two stars in a row")]
    Stars,
}

/// The position of an interrupted match, valid for the same pattern and key only. The default is
/// the start of a match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Offset in the pattern: after a star.
    pub pattern: usize,
    /// Offset in the key.
    pub key: usize,
}

/// One element of a pattern.
#[derive(Clone, Copy)]
enum Token<'a> {
    Char(char),
    AnyChar,
    Class { negated: bool, members: &'a str },
    Star,
    Levels,
}

impl<'a> Pattern<'a> {
    /// Checks a pattern.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, PatternError> {
        let text = core::str::from_utf8(bytes).ok();
        let mut at = 0;
        while let Some((_, next)) = text.map_or(Ok(None), |text| token(text, at))? {
            at = next;
        }
        Ok(Self { text })
    }

    /// Common prefix of all matching keys: the pattern up to its first special character.
    #[must_use]
    pub fn literal_prefix(&self) -> &'a [u8] {
        let text = self.text.unwrap_or_default();
        let end = text.find(['*', '?', '[']).unwrap_or(text.len());
        text.get(..end).unwrap_or_default().as_bytes()
    }

    /// Returns whether the pattern contains no special character and so matches only one key.
    ///
    /// ```
    /// use statestore_proto::glob::Pattern;
    ///
    /// assert!(Pattern::new(b"rooms/1")?.is_literal());
    /// assert!(!Pattern::new(b"rooms/[*]")?.is_literal());
    /// # Ok::<(), statestore_proto::glob::PatternError>(())
    /// ```
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.text.is_some_and(|text| text.len() == self.literal_prefix().len())
    }

    /// Returns whether the pattern is not UTF-8, so that no key matches.
    #[must_use]
    pub const fn matches_nothing(&self) -> bool {
        self.text.is_none()
    }

    /// Returns whether the pattern matches the whole key.
    #[must_use]
    pub fn matches(&self, key: &[u8]) -> bool {
        let mut work = usize::MAX;
        self.matches_within(key, Progress::default(), &mut work) == ControlFlow::Break(true)
    }

    /// Returns whether the pattern matches the whole key, in steps of bounded work: for a server
    /// that must not let a hostile pattern delay other clients.
    ///
    /// Subtracts from `work` the number of bytes of pattern and key that it has read. At zero, it
    /// stops at the next retry after a star, so at the latest after another pass through the
    /// pattern or the key. Each call advances beyond `from`. A `from` of another match gives a
    /// wrong result, but does no other harm.
    ///
    /// ```
    /// use core::ops::ControlFlow;
    /// use statestore_proto::glob::{Pattern, Progress};
    ///
    /// let pattern = Pattern::new(b"*-*-z")?;
    /// let (key, mut from, mut pieces) = ([b'-'; 1_000], Progress::default(), 1);
    /// let matches = loop {
    ///     match pattern.matches_within(&key, from, &mut 100) {
    ///         ControlFlow::Break(matches) => break matches,
    ///         ControlFlow::Continue(next) => (from, pieces) = (next, pieces + 1),
    ///     }
    /// };
    /// assert!(!matches && pieces > 10);
    /// # Ok::<(), statestore_proto::glob::PatternError>(())
    /// ```
    pub fn matches_within(
        &self,
        key: &[u8],
        from: Progress,
        work: &mut usize,
    ) -> ControlFlow<bool, Progress> {
        let (Some(text), Ok(key)) = (self.text, core::str::from_utf8(key)) else {
            return ControlFlow::Break(false);
        };
        let (mut at, mut chars) = (from.pattern, key.get(from.key..).unwrap_or_default().chars());
        let mut retry = (at > 0).then(|| Retry { pattern: at, key: chars.clone() });
        loop {
            // The pattern was checked, so `token` returns no error.
            match token(text, at).ok().flatten() {
                Some((Token::Star | Token::Levels, end)) if end == text.len() => {
                    return ControlFlow::Break(true);
                }
                Some((Token::Star | Token::Levels, end)) => {
                    *work = work.saturating_sub(end - at);
                    retry = Some(Retry { pattern: end, key: chars.clone() });
                    at = end;
                    continue;
                }
                Some((token, end)) => {
                    *work = work.saturating_sub(end - at);
                    let mut rest = chars.clone();
                    // A retry has fewer characters, so it cannot match either.
                    let Some(char) = rest.next() else { return ControlFlow::Break(false) };
                    if token.fits(char) {
                        (at, chars) = (end, rest);
                        continue;
                    }
                }
                None if chars.as_str().is_empty() => return ControlFlow::Break(true),
                None => {}
            }
            // Only the last star needs a retry: other choices for earlier stars match no more keys.
            let Some(retry) = &mut retry else { return ControlFlow::Break(false) };
            let Some(skipped) = retry.advance(text) else { return ControlFlow::Break(false) };
            *work = work.saturating_sub(skipped);
            (at, chars) = (retry.pattern, retry.key.clone());
            if *work == 0 {
                let key = key.len() - chars.as_str().len();
                return ControlFlow::Continue(Progress { pattern: at, key });
            }
        }
    }
}

/// The position to continue at after a mismatch.
struct Retry<'k> {
    /// Offset in the pattern: after the last star.
    pattern: usize,
    /// The rest of the key that this part of the pattern was last tried on.
    key: Chars<'k>,
}

impl Retry<'_> {
    /// Skips a character of the key, or a level if the star is `**/`. Returns the number of bytes
    /// skipped, or `None` at the end of the key.
    fn advance(&mut self, pattern: &str) -> Option<usize> {
        let left = self.key.as_str().len();
        let is_advanced = if ends_levels(pattern, self.pattern) {
            self.key.any(|char| char == '/')
        } else {
            self.key.next().is_some()
        };
        is_advanced.then(|| left - self.key.as_str().len())
    }
}

impl Token<'_> {
    fn fits(&self, char: char) -> bool {
        match self {
            Self::Char(own) => *own == char,
            Self::AnyChar => true,
            Self::Class { negated, members } => has_member(members, char) != *negated,
            Self::Star | Self::Levels => false,
        }
    }
}

/// Returns whether a class contains a character.
fn has_member(members: &str, char: char) -> bool {
    let mut rest = members.chars();
    while let Some(first) = rest.next() {
        let mut ahead = rest.clone();
        if let (Some('-'), Some(last)) = (ahead.next(), ahead.next()) {
            rest = ahead;
            if (first..=last).contains(&char) {
                return true;
            }
        } else if first == char {
            return true;
        }
    }
    false
}

/// Returns whether a `**/` ends at this offset.
fn ends_levels(text: &str, at: usize) -> bool {
    text.get(..at).is_some_and(|before| before.ends_with("**/"))
}

/// The token at this offset and the offset of its end; `None` at the end of the pattern.
fn token(text: &str, at: usize) -> Result<Option<(Token<'_>, usize)>, PatternError> {
    let rest = text.get(at..).unwrap_or_default();
    let error = |kind| PatternError { kind, at };
    let mut chars = rest.chars();
    let Some(first) = chars.next() else { return Ok(None) };
    let found = match first {
        '*' => {
            let stars = rest.len() - rest.trim_start_matches('*').len();
            let after = rest.get(stars..).unwrap_or_default();
            let begins_level =
                at == 0 || text.get(..at).is_some_and(|before| before.ends_with('/'));
            match stars {
                1 => (Token::Star, at + 1),
                2 if begins_level && after.is_empty() => (Token::Levels, at + 2),
                2 if begins_level && after.starts_with('/') => (Token::Levels, at + 3),
                2 => return Err(error(PatternErrorKind::Levels)),
                _ => return Err(error(PatternErrorKind::Stars)),
            }
        }
        '?' => (Token::AnyChar, at + 1),
        '[' => {
            let class = chars.as_str();
            let body = class.strip_prefix('!').unwrap_or(class);
            let negated = body.len() < class.len();
            // The first member may be a `]`.
            let mut members = body.char_indices();
            members.next();
            let end = members.find(|(_, char)| *char == ']').map(|(end, _)| end);
            let end = end.ok_or_else(|| error(PatternErrorKind::Class))?;
            let members = body.get(..end).unwrap_or_default();
            (Token::Class { negated, members }, at + 1 + usize::from(negated) + end + 1)
        }
        char => (Token::Char(char), at + char.len_utf8()),
    };
    Ok(Some(found))
}
