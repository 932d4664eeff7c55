//! The client against a broker in the same process over each kind of stream, against a scripted
//! broker, and against mosquitto if it is installed.

mod acks;
mod back_pressure;
mod proxy;
mod streams;
mod suite;
#[cfg(feature = "tls")]
mod tls;
#[cfg(unix)]
mod tokens;
