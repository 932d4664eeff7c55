//! The store as a process, and its memory.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

pub(crate) const MIB: usize = 1 << 20;

/// Memory budget of the broker besides keys and values.
const MEMORY: usize = 16 * MIB;
/// Memory limit of one client, within that budget.
const CLIENT_MEMORY: usize = 2 * MIB;
/// Memory limit of retained messages, within that budget.
const RETAINED_MEMORY: usize = 4 * MIB;
/// Limit of the size of keys and values.
const VALUES: usize = 16 * MIB;
/// Maximum number of connections.
pub(crate) const CONNECTIONS: usize = 500;
/// Memory outside of the budgets: the packet being written to each connection, the tables of the
/// store, and the fragmentation of the allocator.
const OVERHEAD: usize = 16 * MIB;

/// Memory that the store may use, if it used `idle` bytes before the first connection.
pub(crate) const fn budget(idle: usize) -> usize {
    idle + MEMORY + VALUES + OVERHEAD
}

/// Time limit of the store to start, and to stop.
const HANGS: Duration = Duration::from_secs(20);

/// A running store. Dropping it ends the process.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Address of its listener for MQTT over WebSocket, if enabled.
    pub(crate) websocket: Option<SocketAddr>,
    /// Address of its metrics, if enabled.
    pub(crate) metrics: Option<SocketAddr>,
    /// Resident bytes before the first connection; `None` without /proc.
    pub(crate) idle: Option<usize>,
    out: Receiver<String>,
    /// The first line about a panic on standard error.
    err: Option<JoinHandle<Option<String>>>,
}

impl Server {
    pub(crate) fn start(program: &Path, more: &[OsString]) -> Result<Self, String> {
        let mut command = Command::new(program);
        // The environment of the caller must not change the result.
        let is_tls = more.iter().any(|option| option == "--listen-tls-cert");
        let listen = if is_tls { "--listen-tls" } else { "--listen" };
        command.env_clear().args(["serve", listen, "127.0.0.1:0"]);
        for (name, value) in [
            ("--max-broker-memory", MEMORY),
            ("--max-client-memory", CLIENT_MEMORY),
            ("--max-retained-memory", RETAINED_MEMORY),
            ("--max-bytes", VALUES),
            ("--max-connections", CONNECTIONS),
            ("--max-sessions", 2_000),
            ("--max-keys", 20_000),
        ] {
            command.arg(name).arg(value.to_string());
        }
        command.args(more).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let (sender, out) = channel();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        thread::spawn(move || {
            // Only one or two lines in total.
            for line in stdout.into_iter().flat_map(|out| BufReader::new(out).lines()).flatten() {
                let _ = sender.send(line);
            }
        });
        let (metrics_sender, metrics) = channel();
        let err = thread::spawn(move || {
            let mut lines = stderr.into_iter().flat_map(|err| BufReader::new(err).lines());
            let mut found = None;
            while let Some(Ok(line)) = lines.next() {
                let metrics = line.strip_prefix("statestore: metrics on http://");
                let metrics = metrics.and_then(|rest| rest.split('/').next()?.parse().ok());
                if let Some(address) = metrics {
                    let _ = metrics_sender.send(address);
                }
                if found.is_none() && line.contains("panicked") {
                    found = Some(line);
                }
            }
            found
        });
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self {
            child,
            address,
            websocket: None,
            metrics: None,
            idle: None,
            out,
            err: Some(err),
        };
        let line = server.out.recv_timeout(HANGS);
        let line = line.map_err(|_| "the store does not get ready".to_owned())?;
        let mut urls = line.split([' ', ',', ';']).filter_map(|word| word.split_once("://"));
        let mut address = |is_websocket: bool| {
            let (_, found) = urls.find(|(scheme, _)| (*scheme == "ws") == is_websocket)?;
            found.parse().ok()
        };
        server.address = address(false).ok_or_else(|| format!("no address in {line}"))?;
        server.websocket = address(true);
        if more.iter().any(|option| option == "--metrics-listen") {
            server.metrics = metrics.recv_timeout(HANGS).ok();
        }
        server.idle = server.resident("VmRSS");
        Ok(server)
    }

    /// Peak of the resident memory in bytes; `None` without /proc.
    pub(crate) fn peak(&self) -> Option<usize> {
        self.resident("VmHWM")
    }

    fn resident(&self, name: &str) -> Option<usize> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let number = line.trim_matches(|letter: char| !letter.is_ascii_digit());
        number.parse::<usize>().ok().map(|kib| kib * 1024)
    }

    /// The id of the process.
    pub(crate) fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Stops the store. Returns an error if it has panicked or failed.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(format!("the store has ended: {status}"));
        }
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, Signal::TERM);
        }
        // Standard output ends with the process.
        while self.out.recv_timeout(HANGS).is_ok() {}
        let _ = self.child.kill();
        let status = self.child.wait().map_err(|error| error.to_string())?;
        let panicked = self.err.take().and_then(|err| err.join().ok()).flatten();
        match panicked {
            Some(line) => Err(line),
            None if status.success() => Ok(()),
            None => Err(format!("the store ended with {status}")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
