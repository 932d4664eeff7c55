//! The one integration test binary.

mod client;
mod contract_client;
mod contract_store;
mod machine_fuzz;
mod sim;
mod small_worlds;
mod store;

#[global_allocator]
static ALLOCATOR: statestore_tests::counting::Counting = statestore_tests::counting::Counting;
