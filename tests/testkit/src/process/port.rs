//! Ports for processes that are started, and restarted.

use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use super::HANGS;

/// Ports that no system chooses itself, neither for a connection nor for a listener on port 0. Linux
/// chooses from 32768 on, other systems from 49152 on.
const PORTS: Range<u16> = 16_384..32_768;

/// A port, reserved by binding the UDP port of the same number. The owner may listen on it.
///
/// It stays free while the owner does not listen, for example between two runs of a server. If the
/// system had chosen it, a connection of any process could take it then. Even a client that tries
/// to reach the server could: it would be connected to itself.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _claim: UdpSocket,
}

impl Port {
    /// Reserves a free port of this machine.
    ///
    /// # Panics
    /// If no port is free.
    #[must_use]
    pub fn free() -> Self {
        // A listener would be copied into processes that other tests start at this moment.
        let is_free = |number| TcpStream::connect((Ipv4Addr::LOCALHOST, number)).is_err();
        Self::claim(|number| is_free(number).then_some(())).0
    }

    /// Reserves a free port with its listener.
    ///
    /// # Panics
    /// If no port is free.
    #[must_use]
    pub fn bound() -> (Self, TcpListener) {
        Self::claim(|number| TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok())
    }

    /// Reserves the first port that is not reserved and for which `check` returns a value.
    fn claim<T>(check: impl Fn(u16) -> Option<T>) -> (Self, T) {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let count = u32::from(PORTS.end - PORTS.start);
        for _ in PORTS {
            // Processes of tests that run at the same time begin at different ports.
            let turn = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(7 * std::process::id());
            let Ok(number) = u16::try_from(u32::from(PORTS.start) + turn % count) else { continue };
            let Ok(claim) = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)) else { continue };
            if let Some(checked) = check(number) {
                return (Self { number, _claim: claim }, checked);
            }
        }
        panic!("no port is free");
    }

    /// The number of the port.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }
}

/// Waits until nobody listens on an address. If another test starts a process at this moment, the
/// new process has a copy of every listener of this one until it executes its program.
///
/// # Panics
/// If somebody still listens on it after [`HANGS`].
#[expect(clippy::disallowed_methods, reason = "the system frees the address, in its own time")]
pub fn wait_free(address: impl ToSocketAddrs) {
    let deadline = Instant::now() + HANGS;
    while TcpStream::connect(&address).is_ok() {
        assert!(Instant::now() < deadline, "somebody listens on the address");
        thread::yield_now();
    }
}
