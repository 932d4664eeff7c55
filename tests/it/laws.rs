//! Laws that hold for every value, tried on generated ones.

mod clocks;
mod globs;
mod messages;
mod order;
mod stamps;
