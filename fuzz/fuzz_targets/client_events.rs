//! The client against the promises of its documentation.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| statestore_tests::fuzz::client_events(data));
