//! Other engines that keep what is written: each a server of our own on a free port, gone with the suite that started it.
//!
//! They are driven by the fastest client there is for them, with one request after another in each of as many places as
//! may be in flight.

mod etcd;
mod grpc;
#[cfg(feature = "etcd")]
mod led;
mod own;
mod postgres;
mod redis;

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::bare::Failure;
use crate::race::percentile;

pub use etcd::{Etcd, Write};
#[cfg(feature = "etcd")]
pub use led::{Read, Standby, leader};
pub use own::{Append, Embedded, Machine, broker};
pub use postgres::Postgres;
pub use redis::Redis;

/// Bytes of a value that is written.
pub const VALUE_LEN: usize = 64;

/// Different keys that are written.
pub const KEYS: usize = 10_000;

/// Microseconds of one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// The time of the run for each request.
    pub each: f64,
    /// What half of the requests took at most.
    pub p50: f64,
    /// What 99 of 100 requests took at most.
    pub p99: f64,
}

impl Figures {
    /// Of what each request took, and of all of it.
    #[must_use]
    pub fn new(times: &[Duration], spent: Duration) -> Self {
        let times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let each = spent.as_secs_f64() * 1e6 / times.len() as f64;
        Self { each, p50: percentile(times.clone(), 50), p99: percentile(times, 99) }
    }
}

/// Who writes keys and has them on the disk when it says so.
pub trait Engine {
    /// Its name in the report.
    fn name(&self) -> &'static str;

    /// Writes so many keys, so many at a time.
    ///
    /// # Errors
    /// When it does not.
    fn run(&mut self, requests: usize, in_flight: usize) -> Result<Figures, Failure>;

    /// The process of its server, if that is not this one.
    fn server(&self) -> Option<u32> {
        None
    }
}

/// The key of that number, of 16 bytes.
#[must_use]
pub fn key(number: usize) -> String {
    format!("key-{:012}", number % KEYS)
}

/// A process that ends, and a folder that is removed, when this is dropped.
#[derive(Debug)]
struct Server {
    folder: PathBuf,
    port: u16,
    child: Child,
}

impl Server {
    /// Starts what this makes of a port and waits until it listens there.
    fn start(
        folder: PathBuf,
        command: impl FnOnce(&Path, u16) -> io::Result<Command>,
    ) -> Result<Self, Failure> {
        // Only the first of these is used; it is free again when the server starts.
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
        Err(format!("it does not start: {log}").into())
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

/// The first of these that is there.
fn program(places: &[&str]) -> Option<PathBuf> {
    places.iter().map(PathBuf::from).find(|place| place.exists())
}
