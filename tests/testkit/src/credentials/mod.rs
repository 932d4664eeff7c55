//! Certificates and tokens, made for one test each, and a secret that nothing may print.

pub mod canary;
mod certificates;
pub mod tokens;

pub use certificates::Certificates;
