//! etcd as a process, with one member or three, on free ports. It ends with the test or benchmark.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::process::Port;

/// Paths of the program in packages.
const PLACES: [&str; 3] = ["etcd", "/usr/bin/etcd", "/usr/local/bin/etcd"];

/// Maximum number of health checks, with a pause of some hundredths of a second.
const LOOKS: u32 = 1_000;

/// One member. Dropping it ends the process and removes its data.
#[derive(Debug)]
pub struct Etcd {
    binary: &'static str,
    name: String,
    directory: PathBuf,
    client: Port,
    peer: Port,
    /// The names of all members, with their addresses for each other.
    cluster: String,
    child: Option<Child>,
}

impl Etcd {
    /// Starts one member and waits until it responds. Prints a note and returns `None` if etcd is
    /// not installed.
    #[must_use]
    pub fn start(test: &str) -> Option<Self> {
        Self::cluster(test, 1)?.pop()
    }

    /// Starts a cluster with this number of members and waits until it responds.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn cluster(test: &str, members: usize) -> Option<Vec<Self>> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let Some(binary) = PLACES.into_iter().find(|binary| runs(binary)) else {
            println!("{test}: skipped, etcd is not installed (apt-get install etcd-server)");
            return None;
        };
        let ports: Vec<_> = (0..members).map(|_| (Port::free(), Port::free())).collect();
        let all = ports.iter().enumerate().map(|(at, (_, peer))| format!("m{at}={}", url(peer)));
        let cluster = all.collect::<Vec<_>>().join(",");
        let mut started: Vec<Self> = ports
            .into_iter()
            .enumerate()
            .map(|(at, (client, peer))| {
                let number = LAST.fetch_add(1, Ordering::Relaxed);
                let name = format!("statestore-etcd-{}-{number}", std::process::id());
                let directory = std::env::temp_dir().join(name);
                let _ = fs::remove_dir_all(&directory);
                fs::create_dir_all(&directory).expect("a directory of our own");
                let (name, cluster) = (format!("m{at}"), cluster.clone());
                Self { binary, name, directory, client, peer, cluster, child: None }
            })
            .collect();
        started.iter_mut().for_each(Self::restart);
        for member in &started {
            assert!(member.responds_in_time(), "{test}: {}", member.log());
        }
        Some(started)
    }

    /// Address for clients.
    #[must_use]
    pub fn url(&self) -> String {
        url(&self.client)
    }

    /// Port for clients, on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.client.number()
    }

    /// The process id, while the process runs.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills the process, like a crash.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the process again with its data, without waiting for it.
    ///
    /// # Panics
    /// If the program cannot be run.
    pub fn restart(&mut self) {
        self.kill();
        let log = fs::File::create(self.directory.join("log")).expect("its log");
        let (client, peer) = (url(&self.client), url(&self.peer));
        let child = Command::new(self.binary)
            .args(["--name", &self.name, "--logger", "zap", "--log-level", "error"])
            .arg("--data-dir")
            .arg(self.directory.join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &self.cluster])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("it runs"));
    }

    /// Waits until the member responds for its cluster. Returns whether it does in time.
    #[must_use]
    pub fn responds_in_time(&self) -> bool {
        (0..LOOKS).any(|look| {
            pause(Duration::from_millis(if look == 0 { 0 } else { 20 }));
            self.asked("GET", "/health").is_some_and(|body| body.contains("\"true\""))
        })
    }

    /// Returns whether this member is the raft leader.
    #[must_use]
    pub fn leads(&self) -> bool {
        let body = self.asked("POST", "/v3/maintenance/status").unwrap_or_default();
        let field = |name: &str| {
            let (_, rest) = body.split_once(&format!("\"{name}\":\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        field("leader").is_some_and(|leader| field("member_id") == Some(leader))
    }

    /// Warnings and errors in the log.
    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn asked(&self, method: &str, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.client.number())).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        let request =
            format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}");
        stream.write_all(request.as_bytes()).ok()?;
        let mut body = String::new();
        stream.read_to_string(&mut body).ok()?;
        Some(body)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn url(port: &Port) -> String {
    format!("http://127.0.0.1:{}", port.number())
}

fn runs(binary: &str) -> bool {
    if Path::new(binary).is_absolute() && !Path::new(binary).exists() {
        return false;
    }
    let mut version = Command::new(binary);
    version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok()
}

#[expect(clippy::disallowed_methods, reason = "a process is waited for, before there is a runtime")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
