//! Versions and tokens, parsed from their text.

/// A clock value, ordered by milliseconds, counter, node id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    pub(crate) wall: u64,
    pub(crate) counter: u64,
    pub(crate) node: String,
}

impl Stamp {
    /// Parses the three parts, which may be padded with zeros.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (wall, counter, node) = (parts.next()?, parts.next()?, parts.next()?);
        let number = |text: &str| {
            let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_decimal)
        };
        let stamp = Self { wall: number(wall)?, counter: number(counter)?, node: node.to_owned() };
        (parts.next().is_none() && !node.is_empty()).then_some(stamp)
    }

    /// Formats the value without padding.
    pub(crate) fn bare(&self) -> String {
        format!("{}:{}:{}", self.wall, self.counter, self.node)
    }
}
