//! The client against the promises of its documentation.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| statestore_fuzz_bodies::client_events(data));
