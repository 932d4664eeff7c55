//! Integration tests.

mod alloc;
mod frames;
mod generators;
mod laws;
mod properties;
mod session;
mod statements;
mod topics;

#[global_allocator]
static ALLOCATOR: statestore_testkit::process::memory::Counting =
    statestore_testkit::process::memory::Counting;
