//! Tests of the journal in a directory.

mod support;

mod crashes;
mod damage;
mod errors;
mod journal;
mod killed;
#[cfg(target_os = "linux")]
mod power;
#[cfg(target_os = "linux")]
mod small_disk;
mod tools;
#[cfg(target_os = "linux")]
mod trace;
