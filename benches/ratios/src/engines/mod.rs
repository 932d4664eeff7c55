//! Durable stores. Each is a server on a free port, which ends with the suite that started it.
//!
//! The load comes from the fastest client of each store: `in_flight` workers send one request after
//! another.

#[cfg(feature = "etcd")]
mod cluster;
mod etcd;
mod grpc;
mod postgres;
mod redis;
mod statestore;

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::bare::Failure;
use crate::race::percentile;

#[cfg(feature = "etcd")]
pub use cluster::{Read, Standby, leader};
pub use etcd::{Etcd, Write};
pub use postgres::Postgres;
pub use redis::Redis;
pub(crate) use statestore::service;
pub use statestore::{Append, Embedded, Machine, broker};

/// Length of each written value in bytes.
pub const VALUE_LEN: usize = 64;

/// Number of keys.
pub const KEYS: usize = 10_000;

/// Results of one run, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Duration of the run divided by the number of requests.
    pub each: f64,
    /// Median latency.
    pub p50: f64,
    /// 99th percentile of the latency.
    pub p99: f64,
}

impl Figures {
    /// Computes the results from the latency of each request and the duration of the run.
    #[must_use]
    pub fn new(times: &[Duration], spent: Duration) -> Self {
        let times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let each = spent.as_secs_f64() * 1e6 / times.len() as f64;
        Self { each, p50: percentile(times.clone(), 50), p99: percentile(times, 99) }
    }
}

/// A store whose writes are durable when it acknowledges them.
pub trait Engine {
    /// Name of the store in the report.
    fn name(&self) -> &'static str;

    /// Writes keys, `in_flight` at a time.
    ///
    /// # Errors
    /// If a write fails.
    fn run(&mut self, requests: usize, in_flight: usize) -> Result<Figures, Failure>;

    /// Process id of the server, if it is not this process.
    fn server(&self) -> Option<u32> {
        None
    }
}

/// Returns the key with this number, of 16 bytes.
#[must_use]
pub fn key(number: usize) -> String {
    format!("key-{:012}", number % KEYS)
}

/// A process and its folder. Dropping this ends the process and removes the folder.
#[derive(Debug)]
struct Server {
    folder: PathBuf,
    port: u16,
    child: Child,
}

impl Server {
    /// Starts the command for a free port and waits until it listens there.
    fn start(
        folder: PathBuf,
        command: impl FnOnce(&Path, u16) -> io::Result<Command>,
    ) -> Result<Self, Failure> {
        // The listener is dropped, so the port is free when the server starts.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let log = File::create(folder.with_extension("log"))?;
        let mut command = command(&folder, port)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut server = Self { child: command.spawn()?, folder, port };
        for _ in 0..1_000 {
            if server.child.try_wait()?.is_some() {
                break;
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(server);
            }
            pause();
        }
        let log = fs::read_to_string(server.folder.with_extension("log"))?;
        Err(format!("server does not start: {log}").into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
        let _ = fs::remove_file(self.folder.with_extension("log"));
    }
}

#[expect(clippy::disallowed_methods, reason = "a process is waited for")]
fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

/// Returns the first path that exists.
fn program(places: &[&str]) -> Option<PathBuf> {
    places.iter().map(PathBuf::from).find(|place| place.exists())
}
