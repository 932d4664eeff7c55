//! The link over sessions of the published SDK.

mod cable;
mod conformance;
mod link;
mod sharing;
