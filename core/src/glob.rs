//! Patterns of keys: a glob over the whole key, case sensitive.
//!
//! | Pattern | Matches |
//! |---|---|
//! | `*` | any characters, `/` and a leading `.` too, or none |
//! | `?` | one character, which may be several bytes |
//! | `[abc]`, `[a-z]` | one of these characters |
//! | `[!abc]` | one character but these; `[^abc]` does **not** mean that |
//! | `**/` | nothing, or any levels with their `/` |
//! | `**` at the end | anything |
//! | `a**`, `**a`, `***`, `[a` | no pattern: [`PatternError`] |
//! | anything else | itself: there is no escape, so a special character is written as a class, `[*]` |
//!
//! These are the patterns of the deployed SDK's `list_keys` (`azure_iot_operations_services` 1.5.0-beta1) and of the deployed
//! authorization policies, with the meaning that the crate `glob` 0.3 gives them. A key that is not UTF-8 matches no
//! pattern, and a pattern that is not UTF-8 matches no key.
//!
//! Matching takes time in proportion to pattern × key at most, no recursion and no memory.

use core::ops::ControlFlow;

/// A pattern that was checked.
///
/// ```
/// use statestore_proto::glob::Pattern;
///
/// let pattern = Pattern::new(b"rooms/*/[tT]emperature")?;
/// assert!(pattern.matches(b"rooms/kitchen/temperature") && !pattern.matches(b"rooms/kitchen/humidity"));
/// assert_eq!(pattern.literal_prefix(), b"rooms/");
/// assert!(Pattern::new(b"rooms/[").is_err());
/// # Ok::<(), statestore_proto::glob::PatternError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern<'a> {
    /// `None` when it is not UTF-8.
    text: Option<&'a str>,
}

/// Why bytes are no pattern, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct PatternError {
    /// What is wrong.
    pub kind: PatternErrorKind,
    /// Offset of what is wrong.
    pub at: usize,
}

/// What is wrong with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternErrorKind {
    /// A class has no `]`, or nothing in it.
    #[error("a class without an end")]
    Class,
    /// `**` beside anything else than `/` or an end of the pattern.
    #[error("** that is not a whole level")]
    Levels,
    /// More than two stars in a row.
    #[error("more than two stars in a row")]
    Stars,
}

/// Where a match that was interrupted goes on, which is of use for the same pattern and key only. The default is where a
/// match begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Offset in the pattern: behind a star.
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

    /// What every key that matches begins with: the pattern up to its first special character.
    #[must_use]
    pub fn literal_prefix(&self) -> &'a [u8] {
        let text = self.text.unwrap_or_default();
        let end = text.find(['*', '?', '[']).unwrap_or(text.len());
        text.get(..end).unwrap_or_default().as_bytes()
    }

    /// Whether there is nothing special in it, so that it matches no other key than itself.
    ///
    /// ```
    /// use statestore_proto::glob::Pattern;
    ///
    /// assert!(Pattern::new(b"rooms/1")?.is_literal() && !Pattern::new(b"rooms/[*]")?.is_literal());
    /// # Ok::<(), statestore_proto::glob::PatternError>(())
    /// ```
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.text.is_some_and(|text| text.len() == self.literal_prefix().len())
    }

    /// Whether no key matches, since it is not UTF-8.
    #[must_use]
    pub const fn matches_nothing(&self) -> bool {
        self.text.is_none()
    }

    /// Whether the whole key is as the pattern says.
    #[must_use]
    pub fn matches(&self, key: &[u8]) -> bool {
        let mut work = usize::MAX;
        self.matches_within(key, Progress::default(), &mut work) == ControlFlow::Break(true)
    }

    /// Whether the whole key is as the pattern says, in pieces: for those who answer hostile patterns and have others to
    /// attend to.
    ///
    /// Takes from `work` what it does, in bytes of pattern and key looked at, and stops when that is used up: at the next
    /// place where it would begin anew behind a star, so no later than after another pass through the pattern or the key.
    /// It always gets further than `from`. A `from` that belongs to another match gives a wrong answer, and no worse.
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
        // Where the last star ends, and the rest of the key that what follows it was last tried on.
        let mut star = (at > 0).then(|| (at, chars.clone()));
        loop {
            // It was checked, so it has no errors any more.
            match token(text, at).ok().flatten() {
                Some((Token::Star | Token::Levels, next)) if next == text.len() => {
                    return ControlFlow::Break(true);
                }
                Some((Token::Star | Token::Levels, next)) => {
                    *work = work.saturating_sub(next - at);
                    star = Some((next, chars.clone()));
                    at = next;
                    continue;
                }
                Some((token, next)) => {
                    *work = work.saturating_sub(next - at);
                    let mut rest = chars.clone();
                    // There are ever fewer characters, and what is left of the pattern needs one.
                    let Some(char) = rest.next() else { return ControlFlow::Break(false) };
                    if token.fits(char) {
                        (at, chars) = (next, rest);
                        continue;
                    }
                }
                None if chars.as_str().is_empty() => return ControlFlow::Break(true),
                None => {}
            }
            // What follows the last star, whose choice is as good as any of those before, is tried further on.
            let Some((behind, tried)) = star.as_mut() else { return ControlFlow::Break(false) };
            let left = tried.as_str().len();
            let goes_on = match ends_levels(text, *behind) {
                true => tried.any(|char| char == '/'),
                false => tried.next().is_some(),
            };
            if !goes_on {
                return ControlFlow::Break(false);
            }
            *work = work.saturating_sub(left - tried.as_str().len());
            (at, chars) = (*behind, tried.clone());
            if *work == 0 {
                let key = key.len() - chars.as_str().len();
                return ControlFlow::Continue(Progress { pattern: at, key });
            }
        }
    }
}

impl Token<'_> {
    fn fits(&self, char: char) -> bool {
        match self {
            Self::Char(own) => *own == char,
            Self::AnyChar => true,
            Self::Class { negated, members } => has(members, char) != *negated,
            Self::Star | Self::Levels => false,
        }
    }
}

/// Whether a character is among the members of a class.
fn has(members: &str, char: char) -> bool {
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

/// Whether a `**/` ends there.
fn ends_levels(text: &str, at: usize) -> bool {
    text.get(..at).is_some_and(|before| before.ends_with("**/"))
}

/// The token that begins there and where it ends; `None` at the end.
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
