//! The one integration test binary.

mod alloc;
mod broker;
mod generators;
mod laws;
mod statements;
mod topics;

#[global_allocator]
static ALLOCATOR: statestore_tests::counting::Counting = statestore_tests::counting::Counting;
