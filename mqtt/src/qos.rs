//! Quality of service.

use crate::error::Malformed;

/// Quality of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Qos {
    /// 0
    #[default]
    AtMostOnce = 0,
    /// 1
    AtLeastOnce = 1,
    /// 2
    ExactlyOnce = 2,
}

impl Qos {
    /// Converts the lowest two bits of `bits`. `flags` is the value for the error.
    pub(crate) const fn from_bits(bits: u8, flags: u8) -> Result<Self, Malformed> {
        match bits & 3 {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            _ => Err(Malformed::Flags(flags)),
        }
    }
}
