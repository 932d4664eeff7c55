//! All integration tests, in one binary.

mod alloc;
mod api;
mod backoff;
mod capture;
mod client;
mod conformance;
mod contract_client;
mod contract_lock;
mod contract_store;
mod corpus;
mod decide;
mod exhaustive;
mod fuzz_readme;
mod hidden;
mod killers;
mod laws;
mod lock;
mod machine_fuzz;
mod sim;
mod sizes;
mod small_worlds;
mod store;
mod support;
mod tidy;
mod vectors;
mod verify;

#[global_allocator]
static ALLOCATOR: statestore_testkit::process::memory::Counting =
    statestore_testkit::process::memory::Counting;
