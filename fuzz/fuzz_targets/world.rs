//! Clients, a broker with faults and a store, against the oracle.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| statestore_fuzz_bodies::world(data));
