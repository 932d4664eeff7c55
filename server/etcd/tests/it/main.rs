//! Tests of journals over real etcd processes. Without etcd they print a line and are skipped.

mod support;

mod chaos;
mod cuts;
mod failures;
mod journal;
mod members;
mod proxy;
mod roles;
mod service;
#[cfg(feature = "tls")]
mod tls;
