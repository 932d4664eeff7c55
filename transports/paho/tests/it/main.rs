//! The link against a scripted broker, and against mosquitto where it is installed.

mod conformance;
mod faults;
mod links;
mod real;
mod suite;
#[cfg(feature = "tls")]
mod tls;
