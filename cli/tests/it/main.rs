//! The command as a process: options, requests of clients, output and exit codes.
//!
//! Each test runs in every form of serving. The list is in [`place`].

mod bad_days;
mod captures;
mod certificates;
mod commands;
mod crowds;
mod data;
mod dev;
mod dialects;
mod doctor;
mod documented;
mod dotnet;
mod duplicates;
mod enforced;
mod examples;
mod expiry;
mod failures;
mod fencing;
mod hostile;
mod killed;
#[cfg(feature = "etcd")]
mod leading;
mod locking;
mod logging;
mod metrics;
mod operating;
mod options;
mod outages;
mod overheard;
mod own_broker;
mod pipes;
mod place;
mod policies;
mod process;
#[cfg(all(feature = "etcd", feature = "top"))]
mod reference;
#[cfg(feature = "top")]
mod screen;
mod serving;
mod several;
mod sizes;
mod slow;
mod standby;
mod stray;
mod terminal;
mod tls;
mod vectors;
mod verifying;
mod watching;
