//! Certificates and tokens, made for one test each.

mod certificates;
pub mod tokens;

pub use certificates::Certificates;
