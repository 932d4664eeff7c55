//! Properties that hold for all values, checked on generated ones.

mod clocks;
mod globs;
mod messages;
mod order;
mod timestamps;
