//! `statestore-chaos` as a process, and the Wireshark dissector.

mod decoding;
mod proxying;
mod support;
mod wireshark;
