//! What systemd, or whoever has started this process in its way, is told: `sd_notify`.
//!
//! Nothing of it matters to the store: what cannot be told at once is not told.

use std::ffi::OsString;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How much longer a start may take, each time that something was read.
const MORE_TIME: Duration = Duration::from_secs(60);

/// The other end, if there is one.
pub(crate) struct Supervisor {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants to hear that this process lives.
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// As the environment says.
    #[expect(clippy::disallowed_methods, reason = "a supervisor says nothing otherwise")]
    pub(crate) fn from_env() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let is_ours = variable("WATCHDOG_PID").is_none_or(|process| {
            process.to_str().and_then(|text| text.parse().ok()) == Some(std::process::id())
        });
        let micros = variable("WATCHDOG_USEC").filter(|_| is_ours);
        let micros = micros.and_then(|micros| micros.to_str()?.parse().ok());
        Self {
            socket: variable("NOTIFY_SOCKET").and_then(connected),
            watchdog: micros.map(Duration::from_micros).filter(|every| !every.is_zero()),
        }
    }

    /// Requests reach the store.
    pub(crate) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}\n", crate::escape::on_one_line(status)));
    }

    /// What it does, in a line.
    pub(crate) fn status(&self, status: &str) {
        self.tell(&format!("STATUS={}\n", crate::escape::on_one_line(status)));
    }

    /// What is read takes long, and goes on.
    pub(crate) fn loading(&self, records: u64) {
        let micros = MORE_TIME.as_micros();
        self.tell(&format!("EXTEND_TIMEOUT_USEC={micros}\nSTATUS=reading: {records} records\n"));
    }

    /// It reads its files again, from now until it is [ready](Self::ready) again.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n"));
    }

    /// It was told to stop.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping\n");
    }

    /// Says again and again that the loop that calls this goes on; never returns.
    pub(crate) async fn lives(&self) {
        let Some(every) = self.watchdog else { return std::future::pending().await };
        loop {
            self.tell("WATCHDOG=1\n");
            tokio::time::sleep(every / 2).await;
        }
    }

    fn tell(&self, what: &str) {
        if let Some((socket, to)) = &self.socket {
            let _ = socket.send_to_addr(what.as_bytes(), to);
        }
    }
}

/// A path, or a name that begins with an @.
fn connected(at: OsString) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match at.as_bytes().split_first() {
        #[cfg(target_os = "linux")]
        Some((b'@', name)) => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&at),
    };
    let socket = UnixDatagram::unbound().ok()?;
    // A supervisor that does not read must not stop what it supervises.
    socket.set_nonblocking(true).ok()?;
    Some((socket, address.ok()?))
}
