//! The reference store: the protocol once more, without code of the core's rules.

pub mod model;
pub mod oracle;
