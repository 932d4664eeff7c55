#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| statestore_fuzz_bodies::world(data));
