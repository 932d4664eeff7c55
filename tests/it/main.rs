//! The one integration test binary.

mod alloc;
mod corpus;
mod decide;
mod exhaustive;
mod killers;
mod laws;
mod sizes;
mod support;
mod tidy;
mod vectors;
