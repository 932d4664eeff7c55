//! What every store and every handle must do, over any transport.

pub mod handles;
pub mod kit;
