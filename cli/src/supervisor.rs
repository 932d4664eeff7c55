//! Notifications to systemd, by the protocol of `sd_notify`.
//!
//! A notification that cannot be sent immediately is dropped, since a supervisor that does not read
//! must not stop the store. The crate `sd-notify` waits for it.

use std::ffi::OsString;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Additional time for the start after each portion that was read.
const MORE_TIME: Duration = Duration::from_secs(60);

/// The supervisor of this process, if there is one.
pub(crate) struct Supervisor {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Interval within which it expects a notification.
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// Reads the variables that systemd sets.
    #[expect(clippy::disallowed_methods, reason = "systemd passes them in the environment")]
    pub(crate) fn from_env() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let is_ours = variable("WATCHDOG_PID").is_none_or(|process| {
            process.to_str().and_then(|text| text.parse().ok()) == Some(std::process::id())
        });
        let micros = variable("WATCHDOG_USEC").filter(|_| is_ours);
        let micros = micros.and_then(|micros| micros.to_str()?.parse().ok());
        Self {
            socket: variable("NOTIFY_SOCKET").and_then(open),
            watchdog: micros.map(Duration::from_micros).filter(|every| !every.is_zero()),
        }
    }

    /// Requests reach the store.
    pub(crate) fn ready(&self, status: &str) {
        self.notify(&format!("READY=1\nSTATUS={}\n", crate::escape::on_one_line(status)));
    }

    /// A status line.
    pub(crate) fn status(&self, status: &str) {
        self.notify(&format!("STATUS={}\n", crate::escape::on_one_line(status)));
    }

    /// Loading takes long, and continues.
    pub(crate) fn loading(&self, records: u64) {
        let micros = MORE_TIME.as_micros();
        self.notify(&format!("EXTEND_TIMEOUT_USEC={micros}\nSTATUS=loading: {records} records\n"));
    }

    /// The files are being reloaded, until [`ready`](Self::ready).
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n"));
    }

    /// The server stops.
    pub(crate) fn stopping(&self) {
        self.notify("STOPPING=1\nSTATUS=stopping\n");
    }

    /// Sends notifications for the watchdog, from the loop that it supervises. Never returns.
    pub(crate) async fn run_watchdog(&self) {
        let Some(every) = self.watchdog else { return std::future::pending().await };
        loop {
            self.notify("WATCHDOG=1\n");
            tokio::time::sleep(every / 2).await;
        }
    }

    fn notify(&self, text: &str) {
        if let Some((socket, to)) = &self.socket {
            let _ = socket.send_to_addr(text.as_bytes(), to);
        }
    }
}

/// Opens a socket to a path, or to an abstract name, which begins with an @.
fn open(at: OsString) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match at.as_bytes().split_first() {
        #[cfg(target_os = "linux")]
        Some((b'@', name)) => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&at),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, address.ok()?))
}
