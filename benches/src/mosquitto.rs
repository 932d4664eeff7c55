//! A mosquitto of our own on a free port of this machine.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Debian puts daemons where ordinary users do not look.
const PLACES: [&str; 2] = ["mosquitto", "/usr/sbin/mosquitto"];

/// A running broker; it ends when this is dropped.
pub struct Mosquitto {
    child: Child,
    directory: PathBuf,
    /// Where it listens, on the loopback address.
    pub port: u16,
}

impl Mosquitto {
    /// Starts one; `None` where there is no mosquitto, or it does not start.
    #[must_use]
    pub fn start() -> Option<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?.local_addr().ok()?.port();
        let directory =
            std::env::temp_dir().join(format!("statestore-benches-{}", std::process::id()));
        fs::create_dir_all(&directory).ok()?;
        let file = directory.join("mosquitto.conf");
        let lines = "allow_anonymous true\nset_tcp_nodelay true\nmax_queued_messages 0\nmax_inflight_messages 0\n";
        fs::write(&file, format!("listener {port} 127.0.0.1\n{lines}")).ok()?;
        let start = |binary: &&str| {
            let mut command = Command::new(binary);
            command
                .arg("-c")
                .arg(&file)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.spawn().ok()
        };
        let child = PLACES.iter().find_map(start)?;
        let broker = Self { child, directory, port };
        for _ in 0..500 {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Some(broker);
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a process is waited for, before there is a runtime"
            )]
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
