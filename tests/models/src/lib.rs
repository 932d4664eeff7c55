//! What tests compare the machines with, and the inputs of both. No I/O, no time, no threads.
//!
//! | Module | Contents |
//! |---|---|
//! | `generators` | random values of the protocol, with the feature of that name |
//! | [`history`] | histories of clients, and the checker whether one order explains them |
//! | [`machines`] | requests to a store and its output, scripts of operations, a stepwise server |
//! | [`mod@reference`] | the reference store that others are compared with |
//! | [`worlds`] | worlds small enough to explore every order of events |

#[cfg(feature = "generators")]
pub mod generators;
pub mod history;
pub mod machines;
pub mod reference;
pub mod worlds;
