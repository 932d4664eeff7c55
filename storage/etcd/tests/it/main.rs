//! Journals over real etcd processes. They skip with a plain line where there is none.

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
