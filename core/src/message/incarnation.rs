//! Incarnations of a store.

use core::fmt;

/// An incarnation: a random id of one run of a store, valid as long as its registrations.
///
/// A restarted store has lost its registrations and, unless it is durable, every value, fence and
/// lock. The protocol does not report that. A client that receives the incarnation notices the
/// loss at the next message, see [`property::INCARNATION`](super::property::INCARNATION).
/// Incarnations can be compared for equality only; neither of two is the later one.
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
    /// Number of digits of the text form.
    pub(super) const DIGITS: usize = 16;

    /// Creates an incarnation from a random number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Parses the text form: exactly 16 lower-case hexadecimal digits, else `None`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // The conversion alone would accept a sign, upper case and fewer digits too.
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
