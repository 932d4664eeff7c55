//! An etcd of our own, of one member or three, on free ports, gone with the test or the benchmark
//! that started it.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::process::Port;

/// Path of the program in packages.
const PLACES: [&str; 3] = ["etcd", "/usr/bin/etcd", "/usr/local/bin/etcd"];

/// Looks at whether it answers, each some hundredths of a second.
const LOOKS: u32 = 1_000;

/// One member; its process ends when this is dropped, and what it has written goes with it.
#[derive(Debug)]
pub struct Etcd {
    binary: &'static str,
    name: String,
    directory: PathBuf,
    client: Port,
    peer: Port,
    /// The names of all members and where they reach each other.
    cluster: String,
    child: Option<Child>,
}

impl Etcd {
    /// A member that responds; `None`, with a printed line, if etcd is not installed.
    #[must_use]
    pub fn start(test: &str) -> Option<Self> {
        Self::cluster(test, 1)?.pop()
    }

    /// So many members of one cluster, which answers.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn cluster(test: &str, members: usize) -> Option<Vec<Self>> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let Some(binary) = PLACES.into_iter().find(|binary| runs(binary)) else {
            println!("{test}: skipped, there is no etcd here (apt-get install etcd-server)");
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
            assert!(member.answers_soon(), "{test}: {}", member.log());
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

    /// Its process, while it runs.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it, again, with what it has written, and does not wait for it.
    ///
    /// # Panics
    /// When it cannot be run at all.
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

    /// Waits until it answers for its cluster; whether it does in time.
    #[must_use]
    pub fn answers_soon(&self) -> bool {
        (0..LOOKS).any(|look| {
            pause(Duration::from_millis(if look == 0 { 0 } else { 20 }));
            self.asked("GET", "/health").is_some_and(|body| body.contains("\"true\""))
        })
    }

    /// Returns whether it leads the other members.
    #[must_use]
    pub fn leads(&self) -> bool {
        let body = self.asked("POST", "/v3/maintenance/status").unwrap_or_default();
        let field = |name: &str| {
            let (_, rest) = body.split_once(&format!("\"{name}\":\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        field("leader").is_some_and(|leader| field("member_id") == Some(leader))
    }

    /// Warnings and errors of its log.
    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn asked(&self, method: &str, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.client.number())).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        let ask =
            format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}");
        stream.write_all(ask.as_bytes()).ok()?;
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
