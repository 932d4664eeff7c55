#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| statestore_tests::fuzz::captures(data));
