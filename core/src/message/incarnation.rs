//! Which run of a store a message comes from.

use core::fmt;

/// Names one run of a store: drawn at random when the store starts, kept for as long as its registrations are.
///
/// A store that is started anew has forgotten who watches what, and, unless it is durable, every value, fence and lock.
/// Nothing in the protocol says so. A store that says which incarnation it is lets its clients notice at the next
/// message; [`property::INCARNATION`](super::property::INCARNATION) says how. Two incarnations are the same or not;
/// neither is the later one.
///
/// ```
/// use statestore_proto::message::Incarnation;
///
/// let incarnation = Incarnation::new(0xc0ffee);
/// assert_eq!(incarnation.to_string(), "0000000000c0ffee");
/// assert_eq!(Incarnation::parse("0000000000c0ffee"), Some(incarnation));
/// assert_eq!(Incarnation::parse("C0FFEE"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(u64);

impl Incarnation {
    /// Digits of its text.
    const DIGITS: usize = 16;

    /// The incarnation with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Reads the text form: exactly 16 lower-case hexadecimal digits. Anything else is `None`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // The conversion alone would take a sign, capitals and fewer digits too.
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_well_formed = text.len() == Self::DIGITS && text.bytes().all(is_digit);
        let digits = Some(text).filter(|_| is_well_formed)?;
        u64::from_str_radix(digits, 16).ok().map(Self)
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
