//! Patterns of keys: case-sensitive globs over the whole key.
//!
//! * `*` matches any number of characters, including `/` and a leading `.`.
//! * `?` matches one character, which may be several bytes.
//! * `[abc]` and `[a-z]` match one of these characters.
//! * `[!abc]` matches one other character; `[^abc]` does **not** mean that.
//! * `**/` matches nothing, or any number of levels with their `/`.
//! * `**` or `**/` at the end matches anything.
//! * `a**`, `**a`, `***` and `[a` are invalid: [`PatternError`].
//! * Any other character matches itself. A backslash is not an escape: write a special character as
//!   a class, for example `[*]`.
//!
//! The deployed SDK's `list_keys` (`azure_iot_operations_services` 1.5.0-beta1) and the deployed
//! authorization policies use these patterns, with the semantics of the crate `glob` 0.3.
//!
//! Keys are bytes. A byte that is not part of a UTF-8 character counts as one character, in keys
//! and in patterns: `*` matches every key, and `?` and `[!a]` match one such byte. What the
//! deployed broker does with these keys is unknown, so this is our choice.
//!
//! Matching takes time proportional to pattern × key at most, without recursion or allocation.

use core::ops::ControlFlow;

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
    bytes: &'a [u8],
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

/// A character, or a byte that is not UTF-8: that has a number above those of all characters.
type Unit = u32;

/// Added to a byte that is not UTF-8, which gives it a number above those of all characters.
const NOT_UTF8: Unit = 0x11_0000;

/// One element of a pattern.
#[derive(Clone, Copy)]
enum Token<'a> {
    Char(Unit),
    AnyChar,
    Class { negated: bool, members: &'a [u8] },
    Star,
    Levels,
}

impl<'a> Pattern<'a> {
    /// Checks a pattern.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, PatternError> {
        let mut at = 0;
        while let Some((_, next)) = token(bytes, at)? {
            at = next;
        }
        Ok(Self { bytes })
    }

    /// Common prefix of all matching keys: the pattern up to its first special character.
    #[must_use]
    pub fn literal_prefix(&self) -> &'a [u8] {
        self.bytes.split(is_special).next().unwrap_or_default()
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
        self.bytes.len() == self.literal_prefix().len()
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
        let (mut at, mut left) = (from.pattern, key.get(from.key..).unwrap_or_default());
        let mut retry = (at > 0).then(|| Retry::new(self.bytes, at, left));
        loop {
            match (self.bytes.get(at), left.split_first()) {
                // The usual case, in which the bytes of other characters differ too.
                (Some(own), Some((byte, rest))) if own.is_ascii() && !is_special(own) => {
                    *work = work.saturating_sub(1);
                    if own == byte {
                        (at, left) = (at + 1, rest);
                        continue;
                    }
                }
                // The pattern was checked, so `token` returns no error.
                _ => match token(self.bytes, at).ok().flatten() {
                    Some((Token::Star | Token::Levels, end)) if end == self.bytes.len() => {
                        return ControlFlow::Break(true);
                    }
                    Some((Token::Star | Token::Levels, end)) => {
                        *work = work.saturating_sub(end - at);
                        retry = Some(Retry::new(self.bytes, end, left));
                        at = end;
                        continue;
                    }
                    Some((token, end)) => {
                        *work = work.saturating_sub(end - at);
                        // A retry has fewer characters, so it cannot match either.
                        let Some((unit, rest)) = split_first(left) else {
                            return ControlFlow::Break(false);
                        };
                        if token.fits(unit) {
                            (at, left) = (end, rest);
                            continue;
                        }
                    }
                    None if left.is_empty() => return ControlFlow::Break(true),
                    None => {}
                },
            }
            // Only the last star needs a retry: other choices for earlier stars match no more keys.
            let Some(retry) = &mut retry else { return ControlFlow::Break(false) };
            let Some(skipped) = retry.advance() else { return ControlFlow::Break(false) };
            *work = work.saturating_sub(skipped);
            (at, left) = (retry.pattern, retry.key);
            if *work == 0 {
                return ControlFlow::Continue(Progress {
                    pattern: at,
                    key: key.len() - left.len(),
                });
            }
        }
    }
}

/// The position to continue at after a mismatch.
struct Retry<'k> {
    /// Offset in the pattern: after the last star.
    pattern: usize,
    /// Set if that star is `**/`.
    skips_levels: bool,
    /// The rest of the key that this part of the pattern was last tried on.
    key: &'k [u8],
}

impl<'k> Retry<'k> {
    fn new(pattern: &[u8], at: usize, key: &'k [u8]) -> Self {
        let before = pattern.get(..at).unwrap_or_default();
        Self { pattern: at, skips_levels: before.ends_with(b"**/"), key }
    }

    /// Skips a character of the key, or a level if the star is `**/`. Returns the number of bytes
    /// skipped, or `None` at the end of the key.
    fn advance(&mut self) -> Option<usize> {
        let rest = if self.skips_levels {
            let slash = self.key.iter().position(|byte| *byte == b'/')?;
            self.key.get(slash + 1..)?
        } else {
            split_first(self.key)?.1
        };
        let skipped = self.key.len() - rest.len();
        self.key = rest;
        Some(skipped)
    }
}

impl Token<'_> {
    fn fits(&self, unit: Unit) -> bool {
        match self {
            Self::Char(own) => *own == unit,
            Self::AnyChar => true,
            Self::Class { negated, members } => has_member(members, unit) != *negated,
            Self::Star | Self::Levels => false,
        }
    }
}

/// Returns whether a character has a meaning in patterns.
fn is_special(byte: &u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[')
}

/// Splits off the first character, or the first byte if that does not begin a character.
fn split_first(bytes: &[u8]) -> Option<(Unit, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    if first.is_ascii() {
        return Some((Unit::from(*first), rest));
    }
    let len = match first {
        ..0xe0 => 2,
        ..0xf0 => 3,
        _ => 4,
    };
    let (head, tail) = bytes.split_at_checked(len).unwrap_or_default();
    let char = core::str::from_utf8(head).ok().and_then(|text| text.chars().next());
    Some(match char {
        Some(char) => (Unit::from(char), tail),
        None => (NOT_UTF8 + Unit::from(*first), rest),
    })
}

/// Returns whether a class contains a character.
fn has_member(mut members: &[u8], unit: Unit) -> bool {
    while let Some((first, rest)) = split_first(members) {
        members = rest;
        if let Some((last, after)) = rest.strip_prefix(b"-").and_then(split_first) {
            members = after;
            if (first..=last).contains(&unit) {
                return true;
            }
        } else if first == unit {
            return true;
        }
    }
    false
}

/// The token at this offset and the offset of its end; `None` at the end of the pattern.
fn token(pattern: &[u8], at: usize) -> Result<Option<(Token<'_>, usize)>, PatternError> {
    let rest = pattern.get(at..).unwrap_or_default();
    let error = |kind| PatternError { kind, at };
    let Some((first, after)) = split_first(rest) else { return Ok(None) };
    let found = match rest.first() {
        Some(b'*') => {
            let stars = rest.iter().take_while(|byte| **byte == b'*').count();
            let after = rest.get(stars..).unwrap_or_default();
            let begins_level =
                at == 0 || pattern.get(..at).is_some_and(|before| before.ends_with(b"/"));
            match stars {
                1 => (Token::Star, at + 1),
                2 if begins_level && after.is_empty() => (Token::Levels, at + 2),
                2 if begins_level && after.starts_with(b"/") => (Token::Levels, at + 3),
                2 => return Err(error(PatternErrorKind::Levels)),
                _ => return Err(error(PatternErrorKind::Stars)),
            }
        }
        Some(b'?') => (Token::AnyChar, at + 1),
        Some(b'[') => {
            let body = after.strip_prefix(b"!").unwrap_or(after);
            let negated = body.len() < after.len();
            // The first member may be a `]`.
            let others = split_first(body).map_or(body, |(_, others)| others);
            let end = others.iter().position(|byte| *byte == b']');
            let end = end.ok_or_else(|| error(PatternErrorKind::Class))?;
            let end = body.len() - others.len() + end;
            let members = body.get(..end).unwrap_or_default();
            (Token::Class { negated, members }, at + 1 + usize::from(negated) + end + 1)
        }
        _ => (Token::Char(first), at + rest.len() - after.len()),
    };
    Ok(Some(found))
}
