//! The command as a process: options, requests of clients, output and exit codes.
//!
//! Each test runs in every mode of `serve`. The list is in [`deployment`].

mod azure;
mod binary_keys;
mod broker_list;
mod captures;
mod certificates;
mod command_errors;
mod commands;
mod concurrency;
mod crash_recovery;
mod data;
mod deployment;
mod dev;
mod dialects;
mod doctor;
mod documented_configurations;
mod dotnet;
mod duplicates;
mod embedded_broker;
#[cfg(feature = "etcd")]
mod etcd_failover;
mod examples;
mod expiry;
mod failures;
mod fencing;
mod locks;
mod logging;
mod malformed_payloads;
mod malformed_requests;
mod metrics;
mod mistakes;
mod options;
mod outages;
mod pipes;
mod policy_commands;
mod policy_enforcement;
mod process;
#[cfg(feature = "etcd")]
mod reference;
mod second_store;
mod secrets;
mod seed;
mod serve_output;
mod serve_settings;
mod slow_watcher;
mod systemd;
mod terminal;
mod terminal_output;
mod tls;
#[cfg(feature = "top")]
mod top;
mod transfer;
mod value_sizes;
mod vectors;
mod verify;
mod watch;
mod wire;
