//! The reference store: the protocol a second time, simple instead of fast.
//!
//! It is written from the description of the protocol. It shares the codec with the core, and
//! neither rules, nor clocks, nor tables. Every store that a test compares with an expected one is
//! compared with a [`ReferenceStore`].
//!
//! | Entry | Input | Users |
//! |---|---|---|
//! | [`ReferenceStore::ask`] | a message, output as packets | fuzz bodies of the machines |
//! | [`ReferenceStore::handle`] | a message, output as values | the simulator |
//! | [`ReferenceStore::request`] | a decoded command | tests of `decide`, worlds of locks |
//! | [`timestamps::verify`], [`clock`] | texts of clock values | laws of clocks and timestamps |

pub mod clock;
mod dedup;
pub mod glob_text;
mod handled;
mod quota;
mod registrations;
mod restart;
mod store;
mod texts;
pub mod timestamps;

pub use clock::{Stamp, text};
pub use handled::counted;
pub use handled::{Answer, Change, Counted, Effect, Handled, Notified, Out, Request, Response};
pub use restart::Persisted;
pub use store::{Entry, ReferenceStore};

#[cfg(test)]
mod tests;
