//! mosquitto as a process, on a free port. It ends with the test or benchmark.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use statestore_tokio::Options;

use crate::process::Port;

/// Paths of the program. Debian installs daemons outside of the path of ordinary users.
const PLACES: [&str; 4] = [
    "mosquitto",
    "/usr/sbin/mosquitto",
    "/usr/local/sbin/mosquitto",
    "/opt/homebrew/sbin/mosquitto",
];

/// A broker process. Dropping it ends the process.
#[derive(Debug)]
pub struct Mosquitto {
    binary: &'static str,
    directory: PathBuf,
    port: Port,
    child: Option<Child>,
}

impl Mosquitto {
    /// Starts a broker. Prints a note and returns `None` if mosquitto is not installed.
    #[must_use]
    pub fn start(test: &str) -> Option<Self> {
        Self::start_with(test, "")
    }

    /// Starts a broker with further lines in its configuration.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_with(test: &str, lines: &str) -> Option<Self> {
        let Some(binary) = PLACES.into_iter().find(|binary| runs(binary)) else {
            println!("{test}: skipped, mosquitto is not installed (apt-get install mosquitto)");
            return None;
        };
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("statestore-mosquitto-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        // Another process may take the port before mosquitto starts. Then another port is tried.
        for _ in 0..10 {
            fs::create_dir_all(&directory).expect("a directory of our own");
            let port = Port::free();
            let config = format!(
                "listener {} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n\
                 max_queued_messages 0\n{lines}\n",
                port.number()
            );
            fs::write(directory.join("mosquitto.conf"), config).expect("its file");
            let directory = directory.clone();
            let mut broker = Self { binary, directory, port, child: None };
            if broker.restart() {
                return Some(broker);
            }
            let log = fs::read_to_string(broker.directory.join("log"));
            println!("{test}: {}", log.unwrap_or_default());
        }
        panic!("{test}: mosquitto does not start");
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// Options for a client of this broker.
    #[must_use]
    pub fn options(&self, client_id: &str) -> Options {
        Options::new(client_id, "127.0.0.1", self.port())
    }

    /// The process id, while the process runs.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills the process, like a crash. Sessions are lost.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the process again on the same port. Returns whether it listens.
    ///
    /// # Panics
    /// If the program cannot be run.
    pub fn restart(&mut self) -> bool {
        self.kill();
        let log = fs::File::create(self.directory.join("log")).expect("its log");
        let child = Command::new(self.binary)
            .arg("-c")
            .arg(self.directory.join("mosquitto.conf"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("its log"))
            .stderr(log)
            .spawn();
        let child = self.child.insert(child.expect("it runs"));
        for _ in 0..500 {
            if child.try_wait().expect("its state").is_some() {
                return false;
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port.number())).is_ok() {
                return true;
            }
            pause(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn runs(binary: &str) -> bool {
    let mut help = Command::new(binary);
    help.arg("-h").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    help.status().is_ok()
}

#[expect(clippy::disallowed_methods, reason = "a process is waited for, before there is a runtime")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
