//! The journal in a directory.

mod support;

mod crashes;
mod damage;
mod errors;
mod journal;
mod killed;
mod tools;
